"""Short rows sorted, matched and priced by Triton kernels, against the plain reference in float64."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_rounded

from orthoslice.costs.lines import sorted_scores, sorted_slopes

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

SIZES = [(1, 1), (2, 2), (63, 63), (257, 257), (1000, 1000), (1024, 1024)]
SIZES += [(1, 2), (63, 40), (40, 63), (3, 257), (1000, 999), (70, 1)]
POWERS = [1, 1.5, 2, 3]


def powers(n):
    """Few for long rows: each is a kernel of its own that takes seconds to compile or to interpret."""
    return POWERS if n < 100 else [2]


@pytest.fixture
def rows_share_programs(monkeypatch):
    """As they do where there are many of them."""
    monkeypatch.setattr("orthoslice.kernels.triton.rows._ENOUGH_PROGRAMS", 1)


def rows(rng, n_rows, n, device, ties=False):
    """Float32 numbers of many sizes; perhaps with ties and both zeros among them."""
    table = rng.normal(size=(n_rows, n)) * 10.0 ** rng.integers(-3, 3, size=(n_rows, n))
    if ties:
        table[rng.random((n_rows, n)) < 0.2] = 0.0
        table[rng.random((n_rows, n)) < 0.1] = -0.0
        table[rng.random((n_rows, n)) < 0.2] = 1.5
    return torch.tensor(table, dtype=torch.float32, device=device)


def exact(operation, px, py, *rest):
    with operation.using("reference"):
        return operation(px.double(), py.double(), *rest)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_scores(rng, n, m, device):
    px, py = (rows(rng, 2, k, device, ties=True) for k in (n, m))
    for p in powers(max(n, m)):
        with sorted_scores.using("triton"):
            scores = sorted_scores(px.clone(), py.clone(), p)
        assert scores.dtype == torch.float64
        # Differences are taken in float32, so that each cost is off by a few roundings.
        assert_rounded(scores, exact(sorted_scores, px, py, p), np.float32, p)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_slopes(rng, n, m, device):
    px, py = (rows(rng, 2, k, device) for k in (n, m))
    for p in powers(max(n, m)):
        with sorted_slopes.using("triton"):
            found = sorted_slopes(px.clone(), py.clone(), p, 0.7)
        assert [a.dtype for a in found] == [torch.float64, torch.float32, torch.float32]
        for a, b in zip(found, exact(sorted_slopes, px, py, p, 0.7), strict=True):
            assert_rounded(a, b, np.float32, p)


@pytest.mark.usefixtures("empty_is_nan", "rows_share_programs")
@pytest.mark.parametrize("n", [1, 16, 63])
def test_rows_that_share_a_program(rng, n, device):
    """The last program is not full."""
    px, py = (rows(rng, 37, n, device) for _ in range(2))
    with sorted_scores.using("triton"), sorted_slopes.using("triton"):
        scores, found = sorted_scores(px, py, 2), sorted_slopes(px, py, 2, 1.0)
    for a, b in zip((scores, *found[1:]), exact(sorted_slopes, px, py, 2, 1.0), strict=True):
        assert_rounded(a, b, np.float32, 2)


def test_ties_keep_their_order(rng, device):
    """The slopes of tied numbers go where a stable sort sends them, zeros of both signs included."""
    px = torch.tensor([[0.0, -0.0, 0.0, 1.0, 1.0]], device=device)
    py = torch.tensor([[5.0, 2.0, 9.0, 3.0, 4.0]], device=device)
    with sorted_slopes.using("triton"):
        found = sorted_slopes(px, py, 2, 1.0)
    for a, b in zip(found, exact(sorted_slopes, px, py, 2, 1.0), strict=True):
        assert_rounded(a, b, np.float32)


@pytest.mark.usefixtures("rows_share_programs")
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("m", [5, 9])
@pytest.mark.parametrize("sign", [1, -1])
def test_nan_is_not_swallowed(rng, p, m, sign, device):
    """NaN of either sign spoils its own row and no other."""
    px, py = rows(rng, 3, 9, device), rows(rng, 3, m, device)
    px[1, 4] = np.copysign(np.nan, sign)
    py[2, 3] = np.copysign(np.nan, sign)
    with sorted_scores.using("triton"), sorted_slopes.using("triton"):
        scores, slopes = sorted_scores(px, py, p), sorted_slopes(px, py, p, 1.0)
    for found in (scores, *slopes):
        spoiled = found.isnan().reshape(3, -1).any(dim=1)
        assert spoiled.tolist() == [False, True, True]


def test_infinities(device):
    px = torch.tensor([[1.0, np.inf, -np.inf], [0.0, np.inf, 1.0]], device=device)
    py = torch.tensor([[1.0, 2.0, 3.0], [np.inf, 0.0, 1.0]], device=device)
    with sorted_scores.using("triton"):
        scores = sorted_scores(px, py, 2)
    assert scores[0] == np.inf
    assert scores[1].isnan()


def test_equal_rows_cost_and_pull_nothing(rng, device):
    px = rows(rng, 2, 63, device, ties=True)
    shuffled = px[:, torch.tensor(rng.permutation(63), device=device)]
    for p in POWERS:
        with sorted_slopes.using("triton"):
            for found in sorted_slopes(px, shuffled, p, 1.0):
                assert (found == 0).all()


@pytest.mark.usefixtures("rows_share_programs")
def test_layouts_and_batches(rng, device):
    """Strided rows of a batch; the same answer every time."""
    table = rows(rng, 24, 2 * 17, device)
    px, py = table.reshape(4, 6, 34)[:, :3, ::2], table.reshape(4, 6, 34).transpose(0, 1)[:4, 1:4, 17:]
    with sorted_scores.using("triton"), sorted_slopes.using("triton"):
        scores, found = sorted_scores(px, py, 1), sorted_slopes(px, py, 1, 2.0)
        again = sorted_slopes(px, py, 1, 2.0)
    assert scores.shape == (4, 3)
    assert_rounded(2 * scores, found[0], np.float32)
    for a, b, c in zip(found, again, exact(sorted_slopes, px, py, 1, 2.0), strict=True):
        assert torch.equal(a, b)
        assert_rounded(a, c, np.float32)


def test_no_rows(device):
    nothing = torch.zeros((0, 5), device=device)
    with sorted_scores.using("triton"), sorted_slopes.using("triton"):
        assert sorted_scores(nothing, nothing, 2).shape == (0,)
        assert [tuple(a.shape) for a in sorted_slopes(nothing, nothing, 2, 1.0)] == [(0,), (0, 5), (0, 5)]


def test_refusals(device):
    table = torch.zeros((2, 5), device=device)
    long = torch.zeros((1, 1025), device=device)
    cases = {
        "at most 1024 points": (long, long),
        "no broadcasting": (table[:1], table),
        "float32, not torch.float64": (table.double(), table.double()),
        "gradient tape": (table.clone().requires_grad_(), table),
        "torch tensors": (np.zeros((2, 5)), np.zeros((2, 5))),
    }
    for reason, pair in cases.items():
        with sorted_scores.using("triton"), pytest.raises(TypeError, match=reason):
            sorted_scores(*pair, 2)
