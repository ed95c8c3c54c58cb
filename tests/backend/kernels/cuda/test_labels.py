"""Labellings drawn and priced by CUDA kernels, against those of the processor."""

from __future__ import annotations

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.applications.two_sample import labels, permutations, pooled, pricing, testing
from orthoslice.backend.arrays import LABELS, Key
from orthoslice.backend.kernels import LABELLINGS
from orthoslice.backend.kernels.cuda.labels import GROUP, draw_words, line_costs, space_costs

torch = pytest.importorskip("torch")

KEY = Key.from_seed(7, np.zeros(1)).fold(0, LABELS)
KEY_BITS = (int(KEY.high[0]) & 0xFFFFFFFF) << 32 | (int(KEY.low[0]) & 0xFFFFFFFF)


def pairs(n_points):
    """Points in groups that have members in both samples."""
    shuffled = np.random.default_rng(1).permutation(n_points)
    return labels.grouped_exchange((shuffled % 2).astype(bool), shuffled // 2)


def clusters(n_clusters):
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(n_clusters), rng.integers(1, 6, size=n_clusters))
    return labels.grouped_exchange(group < (n_clusters + 1) // 2, rng.permutation(n_clusters)[group])


EXCHANGES = {
    "one and one": labels.free_exchange(1, 1),
    "one and many": labels.free_exchange(1, 33),
    "a warp": labels.free_exchange(15, 17),
    "equal sizes": labels.free_exchange(36, 36),
    "more than a block": labels.free_exchange(101, 160),
    "pairs": pairs(20),
    "clusters": clusters(9),
}


@pytest.fixture(params=EXCHANGES)
def exchange(request):
    return EXCHANGES[request.param]


def drawn(exchange, first, lanes, device):
    left, quota, weight = (
        torch.tensor(a, dtype=torch.int32, device=device)
        for a in (exchange.left, exchange.quota, exchange.weight)
    )
    return draw_words(KEY_BITS, first, left, quota, weight, lanes)


def host_words(exchange, first, groups):
    """The words of the processor, of 64 labellings each, as tables of labels `(units, labellings)`."""
    starts = range(first, first + groups * GROUP, LABELLINGS)
    tables = [labels.unpacked(labels.draw_labels(KEY, start, exchange)) for start in starts]
    return np.concatenate(tables, axis=1)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(("first", "lanes"), [(0, 5), (1 << 20, GROUP + 1)])
def test_labels_are_those_of_the_processor(exchange, first, lanes, cuda_device):
    words, sizes = drawn(exchange, first, lanes, cuda_device)
    groups = -(-lanes // GROUP)
    assert words.shape == (groups, len(exchange.left), GROUP // 32)
    bits = words.cpu().numpy().view(np.uint8).reshape(groups, len(exchange.left), -1)
    found = np.unpackbits(bits, axis=2, bitorder="little").astype(bool)
    expected = host_words(exchange, first, groups)
    np.testing.assert_array_equal(np.concatenate(list(found), axis=1), expected)
    np.testing.assert_array_equal(sizes.cpu().numpy(), exchange.weight @ expected)


def ordered(exchange, rng, slices=3):
    """Points of which some are equal, and the order of their projections."""
    points = rng.normal(size=(len(exchange.unit), 4))
    points[rng.random(len(points)) < 0.3] = 1.0
    values = (points @ rng.normal(size=(4, slices))).T
    order = np.argsort(values, axis=1, kind="stable")
    return points, np.take_along_axis(values, order, axis=1), order


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("p", [1.0, 2.0, 2.5])
def test_costs_are_those_of_the_processor(exchange, p, rng, cuda_device):
    points, values, order = ordered(exchange, rng)
    words, sizes = drawn(exchange, 64, GROUP + 1, cuda_device)
    on_device = [
        torch.tensor(a, device=cuda_device)
        for a in (values, exchange.unit[order].astype(np.int32), points, order.astype(np.int32))
    ]
    unit = torch.tensor(exchange.unit.astype(np.int32), device=cuda_device)
    # Room for one warp only: it has one task after the other.
    found = [
        line_costs(*on_device[:2], words, sizes, p, 1),
        space_costs(*on_device[2:], unit, words, sizes, p, 1),
    ]
    assert found[0].shape == found[1].shape == (3, 2 * GROUP)
    for first in (0, LABELLINGS, GROUP):
        own = labels.draw_labels(KEY, 64 + first, exchange)
        n = exchange.sizes(own, LABELLINGS)
        for slice_ in range(3):
            row = slice(slice_, slice_ + 1)
            at, places = exchange.unit[order[row]], order[row].astype(np.uint32)
            expected = (
                pricing.line_totals(values[row], at, own, n, p),
                pricing.space_totals(points, places, exchange, own, n, p),
            )
            for ours, theirs in zip(found, expected, strict=True):
                mine = ours[slice_, first : first + LABELLINGS].cpu().numpy()
                np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-14)


@pytest.fixture
def on_gpu(cuda_device, monkeypatch):
    """Makes tensors that are tested by the kernels of a GPU, also where those run on the processor."""
    if cuda_device == "cpu":
        monkeypatch.setattr(
            permutations, "cuda_refusal", lambda a, **_: None if torch.is_tensor(a) else "it takes tensors"
        )
        monkeypatch.setattr(testing, "gpu_home", lambda x: x if torch.is_tensor(x) else None)
        monkeypatch.setattr(pooled, "free_bytes", lambda _: 1 << 30)
    return lambda *clouds: [torch.tensor(cloud, device=cuda_device) for cloud in clouds]


@pytest.mark.parametrize("memory", [None, 8_000], ids=["at once", "in pieces"])
@pytest.mark.parametrize(
    ("method", "p", "design", "directions"),
    [
        ("sliced", 1, "free", "auto"),
        ("sliced", 1, "clusters", "iid"),
        ("sliced", 2, "pairs", "hadamard"),
        ("projected", 1, "free", np.eye(3)),
        ("projected", 2, "clusters", "orthogonal"),
    ],
    ids=str,
)
def test_the_test_is_that_of_the_processor(method, p, design, directions, memory, on_gpu, rng):
    # Rounded, so that some points tie.
    x, y = np.round(rng.normal(size=(40, 3)), 1), np.round(rng.normal(size=(31, 3)) + 0.2, 1)
    groups = {
        "free": None,
        "pairs": np.r_[np.arange(40) % 31, np.arange(31)],
        "clusters": np.r_[np.arange(40) // 7, 100 + np.arange(31) // 5],
    }[design]
    options = {
        "p": p,
        "method": method,
        "groups": groups,
        "directions": directions,
        "n_directions": 7 if isinstance(directions, str) else None,
        "n_permutations": 2 * GROUP + 10,
        "rng": 3,
    }
    expected = osl.two_sample_test(x, y, **options)
    found = osl.two_sample_test(*on_gpu(x, y), memory=memory, **options)
    np.testing.assert_allclose(found.null_distribution, expected.null_distribution, rtol=1e-12)
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-12)
    assert found.pvalue == expected.pvalue
    np.testing.assert_array_equal(found.column_pvalues, expected.column_pvalues)


@pytest.mark.parametrize("memory", [None, 20_000], ids=["at once", "in pieces"])
@pytest.mark.parametrize("stop_early", [False, True])
def test_the_test_by_all_statistics_is_that_of_the_processor(memory, stop_early, on_gpu, rng):
    x, y = np.round(rng.normal(size=(40, 3)), 1), np.round(rng.normal(size=(31, 3)), 1)
    options = {"method": "auto", "n_directions": 7, "n_permutations": 2 * GROUP + 10, "rng": 3}
    options |= {"stop_early": stop_early}
    expected = osl.two_sample_test(x, y, **options)
    found = osl.two_sample_test(*on_gpu(x, y), memory=memory, **options)
    assert expected.stopped_early == stop_early
    assert (found.pvalue, found.parts, found.n_permutations) == (
        expected.pvalue,
        expected.parts,
        expected.n_permutations,
    )
    np.testing.assert_array_equal(found.column_pvalues, expected.column_pvalues)
    np.testing.assert_allclose(found.column_statistics, expected.column_statistics, rtol=1e-12)


def test_labellings_are_drawn_as_far_as_memory_goes():
    exchange = labels.free_exchange(500, 500)
    test = permutations.PermutationTest(
        (permutations.Statistic("sliced", 1.0),),
        None,
        exchange,
        None,
        None,
        None,
        10_000,
        1 << 20,
        1,
        home=object(),
    )
    assert test.lanes % GROUP == 0
    assert test.lanes // 8 * 1000 <= (1 << 20) // 4
    assert test._replace(memory=1).lanes == GROUP
    assert test._replace(memory=1 << 40).lanes == 40 * GROUP
    assert test._replace(home=None).lanes == LABELLINGS


def test_on_a_gpu(rng):
    """As a user has it: nothing is patched, so there must be a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    x, y = rng.normal(size=(3000, 20)).astype(np.float32), rng.normal(size=(2500, 20)).astype(np.float32)
    expected = osl.two_sample_test(x, y, rng=1)
    with permutations.price_block.using("cuda"):
        found = osl.two_sample_test(*(torch.tensor(c, device="cuda") for c in (x, y)), rng=1)
    np.testing.assert_allclose(found.null_distribution, expected.null_distribution, rtol=1e-10)
    assert found.pvalue == expected.pvalue
