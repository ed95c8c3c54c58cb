"""Rows sorted, matched and priced by CUDA kernels, against the plain reference in float64."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest
from helpers import assert_rounded, unit_rows

from orthoslice.backend.kernels.cuda import LONGEST_CUDA_ROW, Program
from orthoslice.backend.kernels.cuda import loss as cuda_loss
from orthoslice.backend.kernels.cuda import rows as cuda_rows
from orthoslice.backend.kernels.cuda.loss import (
    is_small_distance,
    sliced_loss,
    small_distance,
    small_step,
    sort_target,
)
from orthoslice.backend.kernels.cuda.merge import Matched
from orthoslice.backend.kernels.cuda.middle import MiddleStep
from orthoslice.backend.kernels.cuda.rows import (
    add_up,
    finish_step,
    match_points,
    match_rows,
    match_sorted,
    move_clouds,
    sort_rows,
)
from orthoslice.clouds.conditioning import far_centre
from orthoslice.costs import lines
from orthoslice.costs.lines import sliced_scores, sorted_scores, sorted_slopes
from orthoslice.directions.base import DenseDirections

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("cuda_device", "empty_is_nan")

SIZES = [1, 2, 63, 257, 1000, 4097]
UNEQUAL = [(1, 2), (63, 2), (2, 63), (257, 1), (1000, 999), (63, 4097)]
POWERS = [1, 1.5, 2, 3]
WANTED = [(True, True), (True, False), (False, True), (False, False)]


@pytest.fixture(params=["dealt", "shared"])
def small_chip(request, monkeypatch):
    """Rows above 100 are long: dealt to buckets of about 200 that a block of 512 sorts, or shared by blocks."""
    monkeypatch.setattr(cuda_rows, "longest_on_chip", lambda device: 100)
    monkeypatch.setattr(cuda_rows, "BUCKET", 200)
    monkeypatch.setattr(cuda_rows, "_SHARE", 200)
    monkeypatch.setattr(cuda_rows, "_MOST_SHARES", 100 if request.param == "shared" else 0)
    monkeypatch.setattr(cuda_rows, "_SHARES", cuda_rows.Source("shares", (("SAMPLE", 512), ("RESIDING", 64))))
    for shape in ("_BUCKET_SHAPE", "_SAMPLE_SHAPE"):
        monkeypatch.setattr(cuda_rows, shape, (64, 8))
    # What was made for other buckets is not for these.
    monkeypatch.setattr(cuda_rows, "sorting_long_rows", cuda_rows.sorting_long_rows.__wrapped__)


def spread(rng, n_rows, n):
    return rng.normal(size=(n_rows, n)) + rng.normal(size=(n_rows, 1))


def tied(rng, n_rows, n):
    """Few numbers, many times each: zeros of both signs among them."""
    table = rng.integers(-2, 3, size=(n_rows, n)).astype(float)
    return np.where(rng.random((n_rows, n)) < 0.5, table, -table)


def clumped(rng, n_rows, n):
    """Most numbers so close together, on the scale of all, that their cells are crowded; some are equal."""
    table = 1 + 1e-5 * rng.normal(size=(n_rows, n))
    table[:, : n // 5] = rng.normal(size=(n_rows, n // 5))
    return table


def outlying(rng, n_rows, n):
    table = rng.normal(size=(n_rows, n))
    table[:, n // 2] = -1e15
    table[:, -1] = 3e15
    return table


def huge(rng, n_rows, n):
    """The range of a row is more than a float32 holds."""
    return 3.4e38 * rng.uniform(-1, 1, size=(n_rows, n))


def tiny(rng, n_rows, n):
    """Below the normal numbers: the inverse of the range is more than a float32 holds."""
    return 1e-40 * rng.normal(size=(n_rows, n))


def equal(rng, n_rows, n):
    return np.broadcast_to(rng.normal(size=(n_rows, 1)), (n_rows, n))


def half_equal(rng, n_rows, n):
    """One number so often that it fills more than a bucket, alone or with others."""
    table = rng.normal(size=(n_rows, n))
    table[:, rng.permutation(n)[: n // 2]] = 0.25
    return table


def zeros_mostly(rng, n_rows, n):
    """Points at the origin, of which each is 0 whatever the direction: more than fill a block."""
    return rng.normal(size=(n_rows, n)) * (rng.random((n_rows, n)) < 0.1)


def few(rng, n_rows, n):
    """As many values as make some of them fill more than a bucket, and others less than that."""
    return rng.normal(size=5)[rng.choice(5, size=(n_rows, n), p=[0.5, 0.25, 0.15, 0.08, 0.02])]


def doubled(rng, n_rows, n):
    """Every number some twenty times: too many for a cell, and too few to be seen in a sample."""
    distinct = max(1, n // 20)
    return np.take_along_axis(
        rng.normal(size=(n_rows, distinct)), rng.integers(distinct, size=(n_rows, n)), axis=1
    )


def skewed(rng, n_rows, n):
    return np.exp(3 * rng.normal(size=(n_rows, n)))


def rising(rng, n_rows, n):
    return np.sort(rng.normal(size=(n_rows, n)), axis=1)


def falling(rng, n_rows, n):
    return -rising(rng, n_rows, n)


KINDS = [
    spread,
    tied,
    clumped,
    outlying,
    huge,
    tiny,
    equal,
    half_equal,
    zeros_mostly,
    few,
    doubled,
    skewed,
    rising,
    falling,
]


def as_rows(table, device):
    return torch.tensor(np.ascontiguousarray(table), dtype=torch.float32, device=device)


def pair(rng, device, n, m, make=spread, n_rows=2):
    return [as_rows(make(rng, n_rows, size), device) for size in (n, m)]


def exact(px, py, p, factor=1.0):
    with sorted_slopes.using("reference"):
        return sorted_slopes(px.double(), py.double(), p, factor)


def assert_matched(found, px, py, p, factor, wanted=(True, True)):
    """Differences are taken in float32, and a cost is off by a few roundings."""
    scores, *slopes = exact(px, py, p, factor)
    assert found.scores.dtype == torch.float64
    assert_rounded(found.scores, scores, np.float32, p)
    for a, b, want in zip(found[1:], slopes, wanted, strict=True):
        if want:
            assert a.dtype == torch.float32
            # A point of the smaller cloud adds up what it gets from the other.
            assert_rounded(a, b, np.float32, p * max(px.shape[1], py.shape[1]) / b.shape[1])
        else:
            assert a is None


def assert_sorted(rows, places):
    found, expected = sort_rows(rows, places), torch.sort(rows, dim=1, stable=True)
    assert torch.equal(found.keys, expected.values)
    if places:
        assert torch.equal(found.places.long(), expected.indices)
    else:
        assert found.places is None


@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_short_rows_are_sorted(rng, n, places, cuda_device):
    assert_sorted(as_rows(spread(rng, 2, n), cuda_device), places)


@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("n", [63, 1000])
def test_kinds_of_short_rows(rng, make, n, places, cuda_device):
    assert_sorted(as_rows(make(rng, 2, n), cuda_device), places)


@pytest.mark.thin
@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("n", [101, 1000, 4097])
def test_long_rows_are_sorted(rng, make, n, places, cuda_device):
    assert_sorted(as_rows(make(rng, 2, n), cuda_device), places)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("make", [spread, tied, skewed])
@pytest.mark.parametrize("n", [1, 2, 16, 17, 31, 32, 33, 255, 256, 257, 511, 512, 513])
def test_sizes_of_short_rows(rng, make, n, places, cuda_device):
    """Around warps, windows, and what blocks of several shapes hold; sorted by cells or by digits."""
    assert_sorted(as_rows(make(rng, 2, n), cuda_device), places)


@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("make", [spread, few, half_equal])
@pytest.mark.parametrize("n", [511, 512, 513, 1024, 1025])
def test_sizes_of_long_rows(rng, make, n, places, cuda_device):
    """Around what a block holds, of which a tile is dealt and a bucket sorted."""
    assert_sorted(as_rows(make(rng, 2, n), cuda_device), places)


@pytest.fixture
def no_network(small_chip, cuda_device, monkeypatch, tmp_path):
    """Buckets that a block cannot hold stay as they are."""
    if cuda_device != "cpu":
        pytest.skip("the change is made to what is compiled for the processor")
    folder = shutil.copytree(Program("buckets").path.parent, tmp_path / "cuda")
    for name in ("buckets.cu", "shares.cu"):
        text = (folder / name).read_text()
        assert text.count("sort_by_network(entries, size);") == 1
        (folder / name).write_text(text.replace("sort_by_network(entries, size);", ""))
    monkeypatch.setattr(Program, "path", property(lambda self: folder / f"{self.source}.cu"))
    # No other test has blocks of this shape, so nothing that was compiled from the source itself is taken.
    for shape in ("_BUCKET_SHAPE", "_SAMPLE_SHAPE"):
        monkeypatch.setattr(cuda_rows, shape, (32, 16))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("make", [spread, zeros_mostly, few, equal, half_equal, doubled, skewed, outlying])
def test_every_bucket_fits_on_chip(rng, make, cuda_device):
    """The network is for samples that mislead: one block would be busy with it while all others are done."""
    for places in (False, True):
        assert_sorted(as_rows(make(rng, 2, 4097), cuda_device), places)


@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("small_chip", ["dealt"], indirect=True)
@pytest.mark.parametrize("places", [False, True])
def test_more_buckets_than_threads(rng, places, cuda_device, monkeypatch):
    """Most buckets are empty: a sample of a block's size has fewer borders than there are buckets."""
    monkeypatch.setattr(cuda_rows, "BUCKET", 2)
    assert_sorted(as_rows(spread(rng, 2, 1000), cuda_device), places)


@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("make", [spread, half_equal, doubled, falling])
def test_samples_that_mislead(rng, make, places, cuda_device, monkeypatch):
    """Buckets are as full as can be on average, so that half of them overflow."""
    monkeypatch.setattr(cuda_rows, "BUCKET", 512)
    monkeypatch.setattr(cuda_rows, "_SHARE", 512)
    rows = as_rows(make(rng, 2, 4096), cuda_device)
    rows[1, 0], rows[1, 1] = torch.inf, -torch.inf
    assert_sorted(rows, places)


@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("small_chip", ["dealt"], indirect=True)
@pytest.mark.parametrize("places", [False, True])
def test_one_bucket(rng, places, cuda_device, monkeypatch):
    monkeypatch.setattr(cuda_rows, "BUCKET", 300)
    assert_sorted(as_rows(spread(rng, 2, 257), cuda_device), places)


@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("n", [16384, 16385, 100_003])
def test_full_size(rng, n, places, cuda_device):
    if cuda_device == "cpu":
        pytest.skip("rows of full size take a GPU")
    for make in KINDS:
        assert_sorted(as_rows(make(rng, 3, n), cuda_device), places)
        px, py = pair(rng, cuda_device, n, 70_001, make)
        # Squares of those leave the range of float32.
        if make not in (huge, tiny):
            assert_matched(match_rows(px, py, 2, 1.0, (places, places)), px, py, 2, 1.0, (places, places))


@pytest.mark.parametrize("n", SIZES)
def test_rows_of_one_length(rng, n, cuda_device):
    px, py = pair(rng, cuda_device, n, n)
    for p, wanted in itertools.product(POWERS if n <= 63 else [1, 2], WANTED if n <= 63 else WANTED[::3]):
        assert_matched(match_rows(px, py, p, 0.7, wanted), px, py, p, 0.7, wanted)


@pytest.mark.parametrize(("n", "p"), [(257, 2), (1000, 2), (1000, 1), (4097, 2)])
def test_one_large_cost_does_not_drown_the_others(n, p, cuda_device):
    """A sum in float32 that meets a cost of 2^24 first loses every cost of 1 after it, up to 31 of a thread."""
    px = torch.ones(1, n, device=cuda_device)
    # Lowest, so that a thread meets it before the others.
    px[0, 3] = -(2.0 ** (24 / p))
    for wanted in ((False, False), (True, True)):
        score = match_rows(px, torch.zeros_like(px), p, 1.0, wanted).scores.item()
        assert score == pytest.approx((2.0**24 + n - 1) / n, rel=2.0**-23)


@pytest.mark.parametrize(("n", "m"), UNEQUAL)
def test_rows_of_two_lengths(rng, n, m, cuda_device):
    px, py = pair(rng, cuda_device, n, m)
    for p, wanted in itertools.product(POWERS if n <= 63 else [1, 2], WANTED):
        assert_matched(match_rows(px, py, p, 0.7, wanted), px, py, p, 0.7, wanted)


@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize(("n", "m"), [(1000, 1000), (1000, 63), (257, 1000)])
@pytest.mark.parametrize("wanted", WANTED)
def test_long_rows(rng, n, m, wanted, cuda_device):
    px, py = pair(rng, cuda_device, n, m)
    assert_matched(match_rows(px, py, 2, 0.7, wanted), px, py, 2, 0.7, wanted)


@pytest.mark.parametrize("make", [tied, clumped, outlying, tiny, equal, half_equal])
@pytest.mark.parametrize(("n", "m"), [(63, 63), (63, 40)])
def test_kinds_of_rows(rng, make, n, m, cuda_device):
    """Slopes of tied numbers go where a stable sort sends them."""
    px, py = (as_rows(kind(rng, 2, size), cuda_device) for kind, size in ((make, n), (spread, m)))
    for p in POWERS:
        if make is not outlying or p <= 2:
            assert_matched(match_rows(px, py, p, 1.0, (True, True)), px, py, p, 1.0)
            assert_matched(match_rows(py, px, p, 1.0, (True, True)), py, px, p, 1.0)


@pytest.mark.parametrize("n", [1, 63, 257])
@pytest.mark.parametrize("dim", [1, 3, 4, 8])
def test_points(rng, n, dim, cuda_device):
    """Against projections of our own, in float64."""
    x, y, theta = (as_rows(rng.normal(size=(rows, dim)), cuda_device) for rows in (n, n, 5))
    px, py = (theta.double() @ a.double().T for a in (x, y))
    for wanted in WANTED if n == 63 else WANTED[:1]:
        found = match_points(x, y, theta, 2, 0.7, wanted)
        assert_matched(found, px, py, 2, 0.7, wanted)


def test_points_of_any_layout(rng, cuda_device):
    """Strided, transposed, and at addresses that are no multiples of four numbers."""
    numbers = as_rows(rng.normal(size=(1, 2000)), cuda_device)[0]
    x = numbers[1 : 1 + 20 * 8].view(20, 8)
    y = numbers[300 : 300 + 8 * 20].view(8, 20).T
    theta = numbers[700 : 700 + 5 * 16].view(5, 16)[:, ::2]
    assert x.is_contiguous()
    assert not y.is_contiguous()
    for a, b in ((x, y), (y, x)):
        found = match_points(a, b, theta, 2, 1.0, (True, True))
        again = match_points(a.clone(), b.clone(), theta.clone(), 2, 1.0, (True, True))
        assert_matched(found, *(theta.double() @ c.double().T for c in (a, b)), 2, 1.0)
        assert all(torch.equal(c, d) for c, d in zip(found, again, strict=True))


def test_rows_of_any_layout(rng, cuda_device):
    table = as_rows(rng.normal(size=(6, 2 * 63)), cuda_device)
    px, py = table[::2, ::2], table[:, :3].T.repeat(1, 12)[:, 1:64]
    before = table.clone()
    assert not px.is_contiguous()
    assert_matched(match_rows(px, py, 2, 1.0, (True, True)), px, py, 2, 1.0)
    assert_matched(match_rows(px, py[:, ::2], 2, 1.0, (True, True)), px, py[:, ::2], 2, 1.0)
    assert_sorted(px, True)
    assert torch.equal(table, before)


def test_equal_rows_cost_and_pull_nothing(rng, cuda_device):
    px = as_rows(tied(rng, 2, 63), cuda_device)
    shuffled = px[:, torch.tensor(rng.permutation(63), device=cuda_device)]
    for p in POWERS:
        for found in match_rows(px, shuffled, p, 1.0, (True, True)):
            assert (found == 0).all()


def test_both_zeros_are_one_number(cuda_device):
    zeros = torch.tensor([[0.0, -0.0, -0.0, 0.0, -0.0]], device=cuda_device)
    found = sort_rows(zeros, True)
    assert found.places.tolist() == [[0, 1, 2, 3, 4]]
    py = torch.tensor([[5.0, 2.0, 9.0, 3.0, 4.0]], device=cuda_device)
    assert_matched(match_rows(zeros, py, 2, 1.0, (True, True)), zeros, py, 2, 1.0)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(("n", "m"), [(63, 63), (63, 40), (40, 63), (1, 1)])
@pytest.mark.parametrize("sign", [1, -1])
def test_nan_is_not_swallowed(rng, p, n, m, sign, cuda_device):
    """NaN of either sign spoils its own row and no other."""
    px, py = pair(rng, cuda_device, n, m, n_rows=3)
    px[1, n // 2] = np.copysign(np.nan, sign)
    py[2, m // 3] = np.copysign(np.nan, sign)
    for wanted in ((True, True), (False, False)):
        for found in match_rows(px, py, p, 1.0, wanted):
            if found is not None:
                assert found.isnan().reshape(3, -1).any(dim=1).tolist() == [False, True, True]


@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("wanted", [(True, True), (False, False)])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_not_finite_in_long_rows(rng, wanted, bad, cuda_device):
    px, py = pair(rng, cuda_device, 1000, 1000, n_rows=3)
    px[1, 77] = py[2, 500] = bad
    scores = match_rows(px, py, 2, 1.0, wanted).scores
    assert (scores.isnan() if np.isnan(bad) else scores.isinf()).tolist() == [False, True, True]
    if not np.signbit(bad):
        found, expected = sort_rows(px, True), torch.sort(px, dim=1, stable=True)
        assert torch.equal(found.keys.nan_to_num(posinf=4e4), expected.values.nan_to_num(posinf=4e4))
        assert torch.equal(found.places.long(), expected.indices)


def test_nan_among_points(rng, cuda_device):
    x, y, theta = (as_rows(rng.normal(size=(rows, 4)), cuda_device) for rows in (63, 63, 3))
    x[5, 2] = np.nan
    assert match_points(x, y, theta, 2, 1.0, (False, False)).scores.isnan().all()
    assert match_points(x, y, theta, 2, 1.0, (True, True)).scores.isnan().all()


def test_infinities(cuda_device):
    px = torch.tensor([[1.0, np.inf, -np.inf], [0.0, np.inf, 1.0]], device=cuda_device)
    py = torch.tensor([[1.0, 2.0, 3.0], [np.inf, 0.0, 1.0]], device=cuda_device)
    scores = match_rows(px, py, 2, 1.0, (False, False)).scores
    assert scores[0] == np.inf
    assert scores[1].isnan()


@pytest.mark.parametrize(("n", "m"), [(63, 63), (257, 63), (63, 257), (4097, 4097)])
def test_sorted_rows(rng, n, m, cuda_device, monkeypatch):
    """The longest is matched in several parts; slopes are put in order of place on chip, or in memory."""
    px, py = pair(rng, cuda_device, n, m)
    for on_chip, wanted in itertools.product((24_000, 1000, 600), WANTED):
        monkeypatch.setattr(cuda_rows, "_PLACES_ON_CHIP", on_chip)
        sorts = (sort_rows(a, want) for a, want in zip((px, py), wanted, strict=True))
        assert_matched(match_sorted(*sorts, 2, 0.7, wanted), px, py, 2, 0.7, wanted)


def test_answers_are_the_same_every_time(rng, cuda_device):
    px, py = pair(rng, cuda_device, 1000, 1000, tied)
    once, again = (match_rows(px, py, 2, 1.0, (True, True)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


@pytest.mark.parametrize("sides", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("n", "m", "dim"), [(1, 1, 1), (9, 20, 3), (63, 8, 300)])
def test_slopes_are_gathered(rng, sides, n, m, dim, cuda_device):
    """More coordinates than threads, and points that do not fill a block."""
    theta = as_rows(rng.normal(size=(10, dim)), cuda_device)[::2]
    slopes = [
        as_rows(rng.normal(size=(5, k)), cuda_device) if side else None
        for k, side in zip((n, m), sides, strict=True)
    ]
    scores = torch.ones(5, dtype=torch.float64, device=cuda_device)
    step = torch.zeros((), dtype=torch.int64, device=cuda_device)
    expected = torch.cat([s.double().T @ theta.double() for s in slopes if s is not None])
    total, again = finish_step(Matched(scores, *slopes), theta.contiguous(), step)
    assert_rounded(again, expected, np.float32, 5)
    assert total.item() == 5
    assert step.item() == 1


@pytest.mark.parametrize("count", [1, 2, 257, 1000])
def test_scores_are_added_up(rng, count, cuda_device):
    scores = torch.tensor(rng.normal(size=count), device=cuda_device)
    step = torch.tensor(2**40, device=cuda_device)
    for k in range(2):
        total = add_up(scores, step)
        assert total.shape == ()
        assert total.dtype == torch.float32
        assert_rounded(total, scores.sum(), np.float32)
        assert step.item() == 2**40 + k + 1
    assert torch.equal(add_up(scores), total)
    assert add_up(torch.full_like(scores, np.nan)).isnan()
    table = scores[:, None] * scores.new_tensor([1.0, 0.0, 1e300])
    means = add_up(table, share=1 / count)
    assert_rounded(means[:2], table.mean(0)[:2], np.float32)
    assert means[2].isnan()


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(("n", "m"), [(63, 63), (63, 40), (40, 63)])
@pytest.mark.parametrize("p", [1, 2])
def test_losses(rng, n, m, p, wanted, cuda_device, monkeypatch):
    """Projected on chip or by products of matrices, all directions at once or a few at a time."""
    x, y, theta = (as_rows(rng.normal(size=(rows, 5)), cuda_device) for rows in (n, m, 7))
    px, py = (theta.double() @ a.double().T for a in (x, y))
    scores, *slopes = exact(px, py, p, 1 / 7)
    ways = (
        (1 << 30, 1 << 26, 0),
        (1 << 30, 0, 1 << 26),
        (1 << 30, 0, 0),
        (3 * 16 * (n + m), 0, 0),
        (1, 0, 1 << 26),
    )
    for memory, inside, at_once in ways:
        monkeypatch.setattr(cuda_loss, "_PROJECT_INSIDE", inside)
        monkeypatch.setattr(cuda_loss, "_PROJECT_AT_ONCE", at_once)
        step = torch.zeros((), dtype=torch.int64, device=cuda_device)
        value, gradient = sliced_loss(x, y, theta, None, p, wanted, memory, step)
        assert step.item() == 1
        assert_rounded(value, scores.sum(), np.float32, 7)
        expected = [slope.T @ theta.double() for slope, want in zip(slopes, wanted, strict=True) if want]
        if expected:
            assert_rounded(gradient, torch.cat(expected), np.float32, 7 * 5)
        else:
            assert gradient is None


@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("m", [300, 170])
def test_losses_of_long_rows(rng, m, wanted, cuda_device, monkeypatch):
    """Projected by the kernel or the library; clouds of one size are sorted at once or one after the other."""
    monkeypatch.setattr(cuda_loss, "longest_on_chip", lambda device: 100)
    x, y, theta = (as_rows(rng.normal(size=(rows, 3)), cuda_device) for rows in (300, m, 4))
    x[:200] = 0.25
    scores, *slopes = exact(theta.double() @ x.double().T, theta.double() @ y.double().T, 2, 1 / 4)
    expected = [slope.T @ theta.double() for slope, want in zip(slopes, wanted, strict=True) if want]
    for at_once, few in ((1 << 20, 8), (0, 8), (1 << 20, 0), (0, 0)):
        monkeypatch.setattr(cuda_loss, "_SORT_AT_ONCE", at_once)
        monkeypatch.setattr(cuda_loss, "FEW_COORDINATES", few)
        value, gradient = sliced_loss(x, y, theta, None, 2, wanted, 1 << 30, None)
        assert_rounded(value, scores.sum(), np.float32, 4)
        if expected:
            assert_rounded(gradient, torch.cat(expected), np.float32, 4 * 3)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(
    ("n", "m", "dim", "slices"),
    [
        (1, 1, 1, 1),
        (2, 2, 3, 5),
        (63, 63, 5, 7),
        (257, 257, 9, 65),
        (1, 2, 1, 1),
        (63, 40, 5, 7),
        (100, 257, 3, 7),
    ],
)
@pytest.mark.parametrize("p", [1, 2])
def test_small_steps(rng, n, m, dim, slices, p, wanted, cuda_device, monkeypatch):
    """Repeated with other data, projected where they are sorted or before."""
    for inside in (1 << 26, 0):
        monkeypatch.setattr(cuda_loss, "_PROJECT_INSIDE", inside)
        run = None
        for step in range(2):
            x, y, theta = (as_rows(rng.normal(size=(rows, dim)), cuda_device) for rows in (n, m, slices))
            run = run or small_step(x, y, slices, p, 1 << 30)
            count = torch.tensor(step, device=cuda_device)
            value, gradient = run(x, y, theta, count, wanted)
            px, py = (theta.double() @ a.double().T for a in (x, y))
            scores, *slopes = exact(px, py, p, 1 / slices)
            assert count.item() == step + 1
            assert_rounded(value, scores.sum(), np.float32, slices)
            expected = [slope.T @ theta.double() for slope, want in zip(slopes, wanted, strict=True) if want]
            if expected:
                assert_rounded(gradient, torch.cat(expected), np.float32, slices * dim)
            else:
                assert gradient is None


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(
    ("batch", "n", "dim", "slices"), [((), 1, 1, 1), ((3,), 33, 3, 7), ((2, 2), 140, 20, 70)]
)
@pytest.mark.parametrize("p", [1, 2])
def test_small_distances(rng, batch, n, dim, slices, p, wanted, cuda_device, monkeypatch):
    """Of pairs of clouds, one pair far from the others, projected where they are sorted or before."""
    for inside in (1 << 26, 0):
        monkeypatch.setattr(cuda_loss, "_PROJECT_INSIDE", inside)
        x, y = (as_rows(rng.normal(size=(*batch, n, dim)), cuda_device) for _ in range(2))
        for cloud in (x, y):
            cloud[(0,) * len(batch)] += 2.0**16
        theta = as_rows(rng.normal(size=(slices, dim)), cuda_device)
        value, scores, gradients = small_distance(x, slices, p)(x, y, theta, wanted)
        assert value.shape == batch
        assert scores.shape == (slices, *batch)
        for k in np.ndindex(*batch):
            px, py = (theta.double() @ a[k].double().T for a in (x, y))
            costs, *slopes = exact(px, py, p, 1)
            assert_rounded(scores[(slice(None), *k)], costs, np.float32, dim)
            assert_rounded(value[k], costs.mean(), np.float32, slices)
            for gradient, slope, want in zip(gradients, slopes, wanted, strict=True):
                assert (gradient is not None) == want
                if want:
                    assert_rounded(gradient[k], slope.T @ theta.double() / slices, np.float32, slices * dim)


def test_distances_that_are_not_small(cuda_device, monkeypatch):
    monkeypatch.setattr(cuda_loss, "longest_on_chip", lambda device: 100)
    x, y, long = (torch.zeros((4, n, 3), device=cuda_device) for n in (100, 99, 101))
    assert is_small_distance(x, x, 10, 8 * 4 * 10 * 101)
    assert not is_small_distance(x, x, 10, 8 * 4 * 10 * 101 - 1)
    assert not is_small_distance(x, y, 10, 1 << 30)
    assert not is_small_distance(long, long, 10, 1 << 30)
    monkeypatch.setattr(cuda_loss, "_PROJECT_AT_ONCE", 2 * 10 * 100 * 3 - 1)
    assert is_small_distance(x, x, 10, 1 << 30)
    assert not is_small_distance(x[0], x[0], 10, 1 << 30)


@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("small_chip", ["shared"], indirect=True)
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(("n", "dim", "slices"), [(101, 3, 2), (1000, 5, 3), (2300, 1, 2)])
def test_middle_steps(rng, n, dim, slices, wanted, cuda_device, monkeypatch):
    """Repeated with other data, whose projections are exact; the longest rows are matched in several parts."""
    monkeypatch.setattr(cuda_loss, "longest_on_chip", lambda device: 100)
    run = None
    for step in range(2):
        x, y, theta = (
            as_rows(np.rint(64 * rng.normal(size=(rows, dim))) / 64, cuda_device) for rows in (n, n, slices)
        )
        x[:step] = y[:step] = np.nan
        run = run or small_step(x, y, slices, 2, 1 << 30)
        assert isinstance(run, MiddleStep)
        count = torch.tensor(step, device=cuda_device)
        value, gradient = run(x, y, theta, count, wanted)
        assert count.item() == step + 1
        px, py = (theta.double() @ a.double().T for a in (x, y))
        scores, *slopes = exact(px, py, 2, 1 / slices)
        expected = [slope.T @ theta.double() for slope, want in zip(slopes, wanted, strict=True) if want]
        if step:
            assert value.isnan()
        else:
            assert_rounded(value, scores.sum(), np.float32, slices)
            if expected:
                assert_rounded(gradient, torch.cat(expected), np.float32, slices * dim)
        assert (gradient is None) == (not expected)


def test_steps_that_are_not_small(cuda_device, monkeypatch):
    monkeypatch.setattr(cuda_loss, "longest_on_chip", lambda device: 100)
    monkeypatch.setattr(cuda_loss, "_SORT_AT_ONCE", 0)
    x, long = (torch.zeros((n, 3), device=cuda_device) for n in (100, 101))
    assert small_step(x, x, 10, 2, 32 * 10 * 100) is not None
    assert small_step(x, x, 10, 2, 32 * 10 * 100 - 1) is None
    assert small_step(x, long, 10, 2, 1 << 30) is None
    assert small_step(long, long, 10, 2, 1 << 30) is None
    monkeypatch.setattr(cuda_loss, "_PROJECT_AT_ONCE", 2 * 10 * 100 * 3 - 1)
    assert small_step(x, x, 10, 2, 1 << 30) is None


@pytest.mark.parametrize(("n", "m"), [(63, 63), (63, 40), (40, 63)])
def test_losses_against_a_sorted_target(rng, n, m, cuda_device, monkeypatch):
    monkeypatch.setattr(cuda_loss, "_PROJECT_INSIDE", 0)
    x, y, theta = (as_rows(rng.normal(size=(rows, 5)), cuda_device) for rows in (n, m, 7))
    scores, slopes, _ = exact(theta.double() @ x.double().T, theta.double() @ y.double().T, 2, 1 / 7)
    for memory in (1 << 30, 3 * 16 * (n + m)):
        target = sort_target(y, theta)
        value, gradient = sliced_loss(x, y, theta, target, 2, (True, False), memory, None)
        assert_rounded(value, scores.sum(), np.float32, 7)
        assert_rounded(gradient, slopes.T @ theta.double(), np.float32, 7 * 5)


@pytest.mark.parametrize(("n", "m"), [(17, 17), (17, 40)])
def test_operations_on_batches(rng, n, m, cuda_device, monkeypatch):
    """Strided rows with batch axes, through the operations that the distances call."""
    if cuda_device == "cpu":
        monkeypatch.setattr(lines, "cuda_refusal", lambda *_: None)
    px = as_rows(rng.normal(size=(24, 2 * n)), cuda_device).reshape(4, 6, -1)[:, :3, ::2]
    py = as_rows(rng.normal(size=(12, m)), cuda_device).reshape(3, 4, m).transpose(0, 1)
    with sorted_scores.using("cuda"), sorted_slopes.using("cuda"):
        scores, found = sorted_scores(px, py, 1), sorted_slopes(px, py, 1, 2.0)
    assert scores.shape == (4, 3)
    assert_rounded(2 * scores, found[0], np.float32)
    for a, b in zip(found, exact(px, py, 1, 2.0), strict=True):
        assert a.shape == b.shape
        assert_rounded(a, b, np.float32)


def test_only_tensors_on_a_gpu_are_taken():
    """Others are refused with a reason."""
    host = torch.zeros((2, 5))
    for operation, rest in ((sorted_scores, (2,)), (sorted_slopes, (2, 1.0))):
        for px in (host, host.numpy()):
            with operation.using("cuda"), pytest.raises(TypeError, match="tensors on an NVIDIA GPU"):
                operation(px, px, *rest)
        with operation.using("cuda"), pytest.raises(TypeError, match="no broadcasting"):
            operation(host[:1], host, *rest)
        long = host[:, :1].expand(2, LONGEST_CUDA_ROW + 1)
        with operation.using("cuda"), pytest.raises(TypeError, match=f"at most {LONGEST_CUDA_ROW} points"):
            operation(host, long, *rest)


def test_chips_with_less_room(monkeypatch):
    """What a row needs on chip, and what dealing it out needs, is no more than there is."""
    for room, longest in ((227 * 1024, 16384), (99 * 1024, 8192)):
        monkeypatch.setattr(cuda_rows, "most_shared_bytes", lambda device, room=room: room)
        cuda_rows.longest_on_chip.cache_clear()
        assert cuda_rows.longest_on_chip(0) == longest
    cuda_rows.longest_on_chip.cache_clear()
    shape = cuda_rows.Shape(*cuda_rows._BUCKET_SHAPE, places=True)
    words = shape.words
    extra_words = cuda_rows._words_to_deal(shape, LONGEST_CUDA_ROW // cuda_rows.BUCKET)
    assert 4 * (words + extra_words) <= 99 * 1024


@pytest.mark.parametrize(("n", "slices"), [(1, 1), (1025, 65)])
@pytest.mark.parametrize("dim", [1, 3, 4, 5, 8])
def test_projections_on_few_coordinates(rng, n, slices, dim, cuda_device):
    clouds = tuple(as_rows(rng.normal(size=(n, dim)), cuda_device) for _ in range(2))
    theta = as_rows(rng.normal(size=(slices, dim)), cuda_device)
    for some in (clouds, clouds[1:]):
        found = cuda_rows.project_few(some, theta)
        expected = torch.stack([theta.double() @ cloud.double().T for cloud in some])
        assert_rounded(found, expected, np.float32, dim)


@pytest.mark.parametrize(("n", "slices"), [(1, 1), (257, 65)])
@pytest.mark.parametrize("dim", [1, 3, 4, 5, 8])
def test_gradients_by_few_coordinates(rng, n, slices, dim, cuda_device):
    """Some directions after the others."""
    slopes, theta = (as_rows(rng.normal(size=(2, slices, size)), cuda_device) for size in (n, dim))
    gradient = torch.full((n, dim), np.nan, device=cuda_device)
    for k in range(2):
        cuda_rows.gather_few(gradient, slopes[k], theta[k], is_first=k == 0)
        expected = sum(slopes[i].double().T @ theta[i].double() for i in range(k + 1))
        assert_rounded(gradient, expected, np.float32, 2 * slices)


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (2, 3), (63, 33), (257, 64), (1000, 5)])
def test_far_centres(rng, n, dim, cuda_device):
    """Every other coordinate is far from 0 for its range, to either side; layouts are free."""
    offset = np.where(np.arange(dim) % 2, 0.5, -1) * 10.0 ** (np.arange(dim) % 4)
    points = as_rows(rng.normal(size=(n, dim)) + offset, cuda_device)
    with far_centre.using("reference"):
        expected = far_centre(points, (-2,))[0]
    assert torch.equal(cuda_rows.far_centre(points), expected)
    assert torch.equal(cuda_rows.far_centre(points.T.contiguous().T), expected)


@pytest.mark.parametrize(("n", "m"), [(40, 40), (40, 17)])
def test_clouds_are_projected_and_matched(rng, n, m, cuda_device, monkeypatch):
    """Through the operation, by all three ways to project."""
    if cuda_device == "cpu":
        monkeypatch.setattr(lines, "cuda_refusal", lambda *_: None)
    x, y, theta = (as_rows(rng.normal(size=(rows, 5)), cuda_device) for rows in (n, m, 9))
    expected = exact(theta[2:].double() @ x.double().T, theta[2:].double() @ y.double().T, 2, 1.0)[0]
    for inside, at_once in ((1 << 26, 0), (0, 1 << 26), (0, 0)):
        monkeypatch.setattr(cuda_loss, "_PROJECT_INSIDE", inside)
        monkeypatch.setattr(cuda_loss, "_PROJECT_AT_ONCE", at_once)
        with sliced_scores.using("cuda"):
            scores = sliced_scores(x, y, DenseDirections(theta), slice(2, 9), 2)
        assert_rounded(scores, expected, np.float32, 5)


def far_cloud(rng, n, dim, device):
    """A thousand times as far from 0 as its points are apart, in every other coordinate."""
    return as_rows(rng.normal(size=(n, dim)) + 1e3 * (np.arange(dim) % 2), device)


@pytest.mark.parametrize(("n", "m", "dim"), [(63, 63, 8), (63, 63, 5), (63, 40, 5), (40, 63, 5), (9, 9, 300)])
def test_clouds_far_from_the_origin(rng, n, m, dim, cuda_device, monkeypatch):
    """Values and gradients keep their digits, whichever way the clouds are projected."""
    x, y = (far_cloud(rng, size, dim, cuda_device) for size in (n, m))
    theta = as_rows(unit_rows(rng, 7, dim), cuda_device)
    scores, *slopes = exact(theta.double() @ x.double().T, theta.double() @ y.double().T, 2, 1 / 7)
    gradient = torch.cat([slope.T @ theta.double() for slope in slopes])
    ways = ((1 << 30, 1 << 26, 0), (1 << 30, 0, 1 << 26), (1 << 30, 0, 0), (3 * 16 * (n + m), 0, 0))
    for memory, inside, at_once in ways:
        monkeypatch.setattr(cuda_loss, "_PROJECT_INSIDE", inside)
        monkeypatch.setattr(cuda_loss, "_PROJECT_BY_THREAD", 1 << 20)
        monkeypatch.setattr(cuda_loss, "_PROJECT_AT_ONCE", at_once)
        found = sliced_loss(x, y, theta, None, 2, (True, True), memory, None)
        assert_rounded(found[0], scores.sum(), np.float32, dim)
        assert_rounded(found[1], gradient, np.float32, 7 * dim)
        small = small_step(x, y, 7, 2, memory) if n == m else None
        if small is not None:
            found = small(x, y, theta, None, (True, True))
            assert_rounded(found[1], gradient, np.float32, 7 * dim)
        target = sort_target(y, theta)
        found = sliced_loss(x, y, theta, target, 2, (True, False), memory, None)
        assert_rounded(found[1], gradient[:n], np.float32, 7 * dim)


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (2, 3), (5, 4), (63, 300)])
def test_only_far_clouds_are_moved(rng, n, dim, cuda_device):
    """Five points say which; one that is NaN or elsewhere does not change that."""
    near = as_rows(rng.normal(size=(n, dim)), cuda_device)
    x, y = move_clouds(near, near[:1] + 1, near)
    # Five points may be close together by chance; of one point nothing is known.
    stayed = (x == near).all(dim=0)
    assert stayed.sum() >= 0.98 * dim or n == 1
    assert torch.equal(y[:, stayed], (near[:1] + 1)[:, stayed])
    far = near + 4096
    for bad in (np.nan, 1e9) if n > 2 else ():
        far[-1] = bad
        x, y = move_clouds(far, near, far)
        assert x[:-1].abs().max() < 20
        assert (y + 4096 - near).abs().max() < 20
        assert x[-1].isnan().equal(far[-1].isnan())


@pytest.mark.parametrize(("slices", "dim"), [(1, 1), (5, 3), (3, 600)])
def test_rows_of_unit_length_or_nan(rng, cuda_device, slices, dim):
    """Rows are kept, divided by their length, or made NaN; NaN stays NaN."""
    theta = rng.normal(size=(slices, dim))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    kinds = np.stack([theta, theta * (1 + 1e-4), theta * 1.1, theta * np.nan])
    table = torch.tensor(kinds.reshape(-1, dim), dtype=torch.float32, device=cuda_device)
    found = cuda_rows.check_rows(table, 3e-4, 1e-6).reshape(4, slices, dim).cpu()
    assert torch.equal(found[0], torch.tensor(theta, dtype=torch.float32))
    np.testing.assert_allclose(found[1], theta, rtol=3e-7)
    assert torch.isnan(found[2:]).all()
