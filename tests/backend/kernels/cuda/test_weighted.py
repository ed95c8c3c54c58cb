"""Rows of weighted points, sorted and merged by CUDA kernels, against the plain reference in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from backend.kernels.cuda.test_rows import POWERS, WANTED, as_rows, far_cloud, few, half_equal, spread, tied
from helpers import assert_rounded, unit_rows

from orthoslice.backend.kernels.cuda import loss as cuda_loss
from orthoslice.backend.kernels.cuda import rows as cuda_rows
from orthoslice.backend.kernels.cuda import weighted as cuda_weighted
from orthoslice.backend.kernels.cuda.loss import small_weighted_step, weighted_loss
from orthoslice.backend.kernels.cuda.rows import match_rows
from orthoslice.backend.kernels.cuda.weighted import match_weighted, scale_weights
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.ready import as_given, with_masses
from orthoslice.costs.weighted import weighted_slopes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("cuda_device", "empty_is_nan")

EVERYTHING = (True, True, False, False)
SINGLE = torch.float32, torch.float32


@pytest.fixture
def long_rows(request, monkeypatch):
    """Rows above 100 are long: dealt to buckets of about 200 that a block of 512 sorts, or shared by blocks."""
    monkeypatch.setattr(cuda_rows, "BUCKET", 200)
    monkeypatch.setattr(cuda_rows, "_SHARE", 200)
    monkeypatch.setattr(cuda_rows, "_MOST_SHARES", 100 if getattr(request, "param", "") == "shared" else 0)
    monkeypatch.setattr(cuda_rows, "_SHARES", cuda_rows.Source("shares", (("SAMPLE", 512), ("RESIDING", 64))))
    for shape in ("_BUCKET_SHAPE", "_SAMPLE_SHAPE"):
        monkeypatch.setattr(cuda_rows, shape, (64, 8))
    # What was made for other buckets is not for these.
    monkeypatch.setattr(cuda_weighted, "sorting_long_rows", cuda_rows.LongSort)
    for module in (cuda_weighted, cuda_loss):
        monkeypatch.setattr(module, "longest_on_chip", lambda device: 100)


def uneven(rng, n):
    return rng.random(n)


def with_zeros(rng, n):
    """A third of the points weigh nothing, the first and the last among them."""
    weights = rng.random(n) * (np.arange(n) % 3 > 0)
    return weights if weights.any() else np.ones(n)


def with_one_heavy(rng, n):
    """One point has most of the mass: its pairs go to many threads, and to many blocks."""
    weights = rng.random(n)
    weights[n // 3] = 100 * n
    return weights


def with_light_ones(rng, n):
    return 10 ** rng.uniform(-12, 0, n)


def even(rng, n):
    return np.ones(n)


KINDS = [uneven, with_zeros, with_one_heavy, with_light_ones, even]


def make_weights(rng, device, sizes, kinds=(uneven, uneven), types=SINGLE, batch=()):
    """One table a cloud, or None where there is no type for it."""
    tables = []
    for n, make, dtype in zip(sizes, kinds, types, strict=True):
        table = np.stack([make(rng, n) for _ in range(*batch or (1,))])
        table = (table / table.sum(axis=1, keepdims=True)).reshape(*batch, n)
        tables.append(None if dtype is None else torch.tensor(table, dtype=dtype, device=device))
    return tables


def ready(tables, sizes):
    """The weights as kernels take them."""
    like = next(t for t in tables if t is not None)
    return scale_weights(*tables, (1e-3, 1e-3), torch.zeros(1, device=like.device))


def exact(px, py, tables, p, factor=1.0):
    clouds = []
    for rows, table in zip((px, py), tables, strict=True):
        points = torch.zeros((rows.shape[-1], 1), dtype=torch.float64)
        clouds.append(as_given(Cloud(points, None if table is None else table.cpu().double())))
    with weighted_slopes.using("reference"):
        rows = (q.cpu().double() for q in (px, py))
        scores, slopes, _ = weighted_slopes(*rows, *with_masses(*clouds), p, factor, False, EVERYTHING)
    return scores, *slopes


def assert_matched(found, expected, wanted):
    assert found.scores.dtype == torch.float64
    for a, b, want in zip(found, expected, (True, *wanted), strict=True):
        if want:
            # Differences, and products with masses, are rounded a few times.
            assert_rounded(a, b, np.float32, 4)
        else:
            assert a is None


def assert_all(px, py, tables, p, ways=WANTED):
    expected = exact(px, py, tables, p, 0.7)
    for wanted in ways:
        found = match_weighted(px, py, ready(tables, (px, py)), p, 0.7, wanted)
        assert_matched(found, expected, wanted)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 2), (63, 63), (63, 40), (40, 257), (1000, 999)])
def test_short_rows(rng, n, m, kind, cuda_device):
    px, py = (as_rows(spread(rng, 2, size), cuda_device) for size in (n, m))
    tables = make_weights(rng, cuda_device, (n, m), (kind, uneven))
    for p in POWERS if n <= 63 else [1, 2]:
        assert_all(px, py, tables, p, WANTED if n <= 63 else WANTED[::3])


@pytest.mark.parametrize("types", list(itertools.product([torch.float32, torch.float64, None], repeat=2))[:-1])
@pytest.mark.parametrize("is_long", [False, True])
def test_types_of_weights(rng, types, is_long, cuda_device, request):
    """Weights in single precision go along with their points, others are looked up; or there are none."""
    if is_long:
        request.getfixturevalue("long_rows")
    px, py = (as_rows(spread(rng, 2, size), cuda_device) for size in (300, 257))
    assert_all(px, py, make_weights(rng, cuda_device, (300, 257), types=types), 2)


@pytest.mark.thin
@pytest.mark.usefixtures("long_rows")
@pytest.mark.parametrize("long_rows", ["dealt", "shared"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m"), [(101, 3), (3, 1000), (1000, 1000), (4097, 2500)])
def test_long_rows(rng, n, m, kind, cuda_device):
    px, py = (as_rows(spread(rng, 2, size), cuda_device) for size in (n, m))
    assert_all(px, py, make_weights(rng, cuda_device, (n, m), (uneven, kind)), 2, WANTED[::3])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_several_parts(rng, kind, cuda_device):
    """Slopes of a point whose pairs are in several parts are added up."""
    px, py = (as_rows(spread(rng, 2, size), cuda_device) for size in (3000, 4097))
    tables = make_weights(rng, cuda_device, (3000, 4097), (kind, uneven))
    once = assert_all(px, py, tables, 2, WANTED[:1])
    again = assert_all(px, py, tables, 2, WANTED[:1])
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    # The other way round it is the other cloud that has the heavy point.
    scores, y_slopes, x_slopes = match_weighted(py, px, ready(tables[::-1], (py, px)), 2, 0.7, (True, True))
    assert_matched(once._replace(scores=scores, x_slopes=x_slopes, y_slopes=y_slopes), once, (True, True))


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("make", [tied, few, half_equal])
def test_ties(rng, make, is_long, cuda_device, request):
    """Points with equal projections are taken in order of place, or in that of their weights."""
    if is_long:
        request.getfixturevalue("long_rows")
    px, py = as_rows(make(rng, 2, 300), cuda_device), as_rows(spread(rng, 2, 257), cuda_device)
    tables = make_weights(rng, cuda_device, (300, 257), (with_zeros, uneven))
    for _ in range(2):
        assert_all(px, py, tables, 2)
        assert_all(py, px, tables[::-1], 1)


@pytest.mark.parametrize("is_long", [False, True])
def test_long_and_short_rows_give_the_same(rng, is_long, cuda_device, monkeypatch, request):
    """To the last bit: how masses are added up changes nothing."""
    px, py = (as_rows(spread(rng, 2, size), cuda_device) for size in (1000, 257))
    weights = ready(make_weights(rng, cuda_device, (1000, 257)), (px, py))
    for wanted in WANTED:
        found = match_weighted(px, py, weights, 2, 1.0, wanted)
        with monkeypatch.context() as patch:
            patch.setattr(cuda_weighted, "longest_on_chip", lambda device: 100)
            other = match_weighted(px, py, weights, 2, 1.0, wanted)
        assert all(a is b or torch.equal(a, b) for a, b in zip(found, other, strict=True))


@pytest.mark.parametrize("types", [SINGLE, (torch.float64, torch.float32), (None, torch.float32)])
@pytest.mark.parametrize("n", [63, 1024])
def test_even_weights_change_nothing(rng, n, types, cuda_device):
    px, py = (as_rows(spread(rng, 2, n), cuda_device) for _ in "xy")
    weights = ready(make_weights(rng, cuda_device, (n, n), (even, even), types), (px, py))
    for p in (1, 2):
        found = match_weighted(px, py, weights, p, 1.0, (True, True))
        assert_matched(
            found, [a.cpu().double() for a in match_rows(px, py, p, 1.0, (True, True))], (True, True)
        )


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_clouds_cost_nothing(rng, kind, is_long, cuda_device, request):
    """Exactly: the same points with the same weights, in another order."""
    if is_long:
        request.getfixturevalue("long_rows")
    px, (own, _) = (
        as_rows(spread(rng, 2, 300), cuda_device),
        make_weights(rng, cuda_device, (300, 1), (kind, kind)),
    )
    order = torch.tensor(rng.permutation(300), device=cuda_device)
    weights = ready((own, own[order]), (px, px))
    for wanted in WANTED:
        found = match_weighted(px, px[:, order], weights, 2, 1.0, wanted)
        assert all((a == 0).all() for a in found if a is not None)


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("sign", [1, -1])
def test_nan_is_not_swallowed(rng, wanted, sign, is_long, cuda_device, request):
    """NaN of either sign, of a point without mass too, spoils its own row and no other."""
    if is_long:
        request.getfixturevalue("long_rows")
    px, py = (as_rows(spread(rng, 3, size), cuda_device) for size in (120, 103))
    px[1, 60], py[2, 3] = np.copysign(np.nan, sign), np.copysign(np.nan, sign)
    tables = make_weights(rng, cuda_device, (120, 103), (with_zeros, with_zeros))
    assert tables[0][60] == tables[1][3] == 0
    found = match_weighted(px, py, ready(tables, (px, py)), 2, 1.0, wanted)
    assert found.scores.isnan().tolist() == [False, True, True]
    for slopes in found[1:]:
        if slopes is not None:
            assert not slopes[0].isnan().any()


def test_points_without_mass_may_be_anywhere(rng, cuda_device):
    """What they cost would be more than a float32 holds."""
    px, py = (as_rows(spread(rng, 2, size), cuda_device) for size in (63, 40))
    tables = make_weights(rng, cuda_device, (63, 40), (with_zeros, uneven))
    expected = exact(px, py, tables, 2)
    px[:, 0], px[:, 3] = 1e30, -1e30
    found = match_weighted(px, py, ready(tables, (px, py)), 2, 1.0, (True, True))
    assert_matched(found, expected, (True, True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spoil", ["negative", "nan", "infinite", "sum", "multiple", None])
@pytest.mark.parametrize("of_y", [False, True])
def test_unsound_weights_give_nan(rng, spoil, dtype, of_y, cuda_device):
    px, py = (as_rows(spread(rng, 2, 63), cuda_device) for _ in "xy")
    tables = make_weights(rng, cuda_device, (63, 63), types=(dtype, dtype))
    bad = tables[of_y]
    if spoil == "negative":
        bad[5], bad[6] = -bad[6].clone(), bad[6] + bad[5] + bad[6]
    elif spoil == "multiple":
        # Units of 64 bits would wrap around to a sum of 1.
        bad[5] += 4
    elif spoil is not None:
        bad[5] += {"nan": np.nan, "infinite": np.inf, "sum": 0.01}[spoil]
    for wanted in ((True, True), (False, False)):
        found = match_weighted(px, py, ready(tables, (px, py)), 2, 1.0, wanted)
        assert all(a is None or bool(a.isnan().all()) == (spoil is not None) for a in found)


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("types", [SINGLE, (torch.float64, None)])
def test_batches(rng, types, is_long, cuda_device, request, monkeypatch):
    """Through the operation that the distances call; weights may be shared by the clouds of a batch."""
    if is_long:
        request.getfixturevalue("long_rows")
    if cuda_device == "cpu":
        monkeypatch.setattr("orthoslice.costs.lines.cuda_refusal", lambda *_: None)
    px = as_rows(spread(rng, 24, 2 * 120), cuda_device).reshape(4, 6, -1)[:, :3, ::2]
    py = as_rows(spread(rng, 12, 103), cuda_device).reshape(3, 4, 103).transpose(0, 1)
    of_x, of_y = make_weights(rng, cuda_device, (120, 103), types=types, batch=(3,))
    clouds = [
        as_given(Cloud(torch.zeros((*batch, n, 1), device=cuda_device), weights))
        for n, batch, weights in ((120, (3,), of_x), (103, (1,), None if of_y is None else of_y[:1]))
    ]
    clouds = with_masses(*clouds)
    for wanted in (EVERYTHING, (False,) * 4):
        arguments = px, py, *clouds, 2, 0.7, False, wanted
        with weighted_slopes.using("cuda"):
            scores, slopes, _ = weighted_slopes(*arguments)
        with weighted_slopes.using("reference"):
            expected, expected_slopes, _ = weighted_slopes(px.double(), py.double(), *arguments[2:])
        assert scores.shape == (4, 3)
        assert_rounded(scores, expected, np.float32, 4)
        assert len(slopes) == 2 * wanted[0]
        for a, b in zip(slopes, expected_slopes, strict=True):
            assert_rounded(a, b, np.float32, 4)


def test_gradients_by_weights_are_left_to_others(rng):
    rows = torch.zeros((2, 5))
    clouds = with_masses(*(as_given(Cloud(torch.zeros((5, 1)), torch.full((5,), 0.2))) for _ in "xy"))
    with weighted_slopes.using("cuda"), pytest.raises(TypeError, match="no gradients by weights"):
        weighted_slopes(rows, rows, *clouds, 2, 1.0, False, (True, False, True, False))


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(("n", "m"), [(63, 40), (1500, 700)])
@pytest.mark.parametrize("p", [1, 2])
def test_losses(rng, n, m, p, wanted, cuda_device, monkeypatch):
    """Prepared for clouds of one shape, or a few directions at a time, by rows of both kinds; twice each.

    A step is counted.
    """
    x, y, theta = (as_rows(rng.normal(size=(rows, 5)), cuda_device) for rows in (n, m, 7))
    tables = make_weights(rng, cuda_device, (n, m), (with_one_heavy, uneven))
    weights = ready(tables, (x, y))
    px, py = (theta.double() @ a.double().T for a in (x, y))
    scores, *slopes = exact(px, py, tables, p, 1 / 7)
    expected = [slope.T @ theta.cpu().double() for slope, want in zip(slopes, wanted, strict=True) if want]
    small = small_weighted_step(x, y, 7, p, 1 << 30)
    monkeypatch.setattr(cuda_loss, "_PROJECT_INSIDE", 0)
    apart = small_weighted_step(x, y, 7, p, 1 << 30)

    def in_pieces(x, y, theta, step, wanted, weights):
        return weighted_loss(
            x, y, theta, weights, p, wanted, 3 * cuda_loss.BYTES_A_WEIGHTED_NUMBER * (n + m), step
        )

    def as_long_rows(*arguments):
        with monkeypatch.context() as patched:
            patched.setattr(cuda_loss, "longest_on_chip", lambda device: 0)
            return in_pieces(*arguments)

    for run, count in itertools.product((small, apart, in_pieces, as_long_rows), range(2)):
        step = torch.tensor(count, device=cuda_device)
        value, gradient = run(x, y, theta, step, wanted, weights)
        assert step.item() == count + 1
        assert_rounded(value, scores.sum(), np.float32, 7)
        if expected:
            assert_rounded(gradient, torch.cat(expected), np.float32, 7 * 5)
        else:
            assert gradient is None


def test_steps_that_are_not_small(cuda_device, monkeypatch):
    monkeypatch.setattr(cuda_loss, "longest_on_chip", lambda device: 100)
    x, y, long = (torch.zeros((n, 3), device=cuda_device) for n in (100, 60, 101))
    needed = cuda_loss.BYTES_A_WEIGHTED_NUMBER * 10 * 160
    assert small_weighted_step(x, y, 10, 2, needed) is not None
    assert small_weighted_step(x, y, 10, 2, needed - 1) is None
    assert small_weighted_step(x, long, 10, 2, 1 << 30) is None
    monkeypatch.setattr(cuda_loss, "_PROJECT_AT_ONCE", 10 * 160 * 3 - 1)
    assert small_weighted_step(x, y, 10, 2, 1 << 30) is None


@pytest.mark.parametrize(("n", "m", "dim"), [(63, 63, 8), (63, 40, 5), (40, 63, 5)])
def test_clouds_far_from_the_origin(rng, n, m, dim, cuda_device, monkeypatch):
    """Values and gradients keep their digits, whichever way the clouds are projected."""
    x, y = (far_cloud(rng, size, dim, cuda_device) for size in (n, m))
    theta = as_rows(unit_rows(rng, 7, dim), cuda_device)
    tables = make_weights(rng, cuda_device, (n, m))
    weights = ready(tables, (x, y))
    scores, *slopes = exact(*(theta.double() @ c.double().T for c in (x, y)), tables, 2, 1 / 7)
    gradient = torch.cat([slope.T @ theta.cpu().double() for slope in slopes])
    for inside in (1 << 26, 0):
        monkeypatch.setattr(cuda_loss, "_PROJECT_INSIDE", inside)
        step = small_weighted_step(x, y, 7, 2, 1 << 30)
        for found in (
            step(x, y, theta, None, (True, True), weights),
            weighted_loss(x, y, theta, weights, 2, (True, True), 1 << 30, None),
        ):
            assert_rounded(found[0], scores.sum(), np.float32, dim)
            assert_rounded(found[1], gradient, np.float32, 7 * dim)
