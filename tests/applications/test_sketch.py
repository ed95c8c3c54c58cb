"""Streams: certain bounds hold in every trial, and order, splits and merges change nothing."""

from __future__ import annotations

import copy
import pickle
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.applications.sketch import stream as streams
from orthoslice.applications.sketch import summary as summaries
from orthoslice.directions import Given

LAWS = ["normal", "tied", "cauchy", "far", "near", "one", "zeros", "scales", "dominated"]


def _clouds(law: str, rng: np.random.Generator, n: int, m: int, dim: int) -> tuple[Any, Any]:
    x, y = rng.normal(size=(n, dim)), rng.normal(size=(m, dim)) * 1.1
    if law == "tied":
        return x.round(1), y.round()
    if law == "cauchy":
        return rng.standard_cauchy((n, dim)), rng.standard_cauchy((m, dim))
    if law == "far":
        return x + 1e6, y + 1e6
    if law == "near":
        return x, x[rng.permutation(n)] + 1e-5 * rng.normal(size=x.shape)
    if law == "zeros":
        return np.where(x < 0.8, 0, np.exp(3 * x)), np.where(y < 0.7, 0, np.exp(3 * y))
    if law == "scales":
        return tuple(a * 10.0 ** rng.integers(-12, 6, size=(len(a), 1)) for a in (x, y))
    if law == "dominated":
        return tuple(a * np.array([1e5, 1, 1e-5])[:dim] for a in (x, y))
    if law == "one":
        return np.full((n, dim), 0.1), y
    return x, y


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_bounds_are_certain(law: str, p: float) -> None:
    """The answer from all points lies within the bounds in all trials, whatever the number of bins."""
    rng = np.random.default_rng([int(10 * p), LAWS.index(law)])
    for bins in (2, 7, 40, 300):
        for _ in range(3):
            n, m = rng.integers(1, 800, size=2)
            x, y = _clouds(law, rng, int(n), int(m), dim := int(rng.integers(1, 4)))
            options = {"n_directions": 3, "directions": "iid", "rng": 5}
            one, other = (osl.Stream(dim, p, bins=bins, **options) for _ in range(2))
            one.update(x)
            other.update(y)
            found = one.compare(other)
            true = float(osl.sliced_wasserstein(x, y, p, control=None, **options).value)
            assert found.lower <= true <= found.upper
            assert one.nbytes <= 3 * bins * summaries.BIN_BYTES


def test_bounds_without_the_penalty_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the tangents alone, without what numbers can do within bins, are no bound."""
    monkeypatch.setattr(summaries, "_steps", lambda shape, k, *_: np.zeros(len(k)))
    broken = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(300, 1)), rng.normal(size=(200, 1))
        options = {"n_directions": 1, "directions": "iid", "rng": 5}
        one, other = (osl.Stream(1, 2, bins=7, **options) for _ in range(2))
        one.update(x)
        other.update(y)
        true = float(osl.sliced_wasserstein(x, y, 2, **options).value)
        broken += one.compare(other).lower > true
    assert broken > 0


def test_many_numbers_are_told_narrowly(rng: np.random.Generator) -> None:
    """A relative width of at most 1e-3 in less than 1 MB a direction, where bins hold many numbers."""
    x, y = rng.normal(size=(300_000, 1)), rng.normal(size=(200_000, 1)) + 0.1
    options = {"n_directions": 1, "directions": "iid", "rng": 5}
    one, other = (osl.Stream(1, bins=3000, **options) for _ in range(2))
    one.update(x)
    other.update(y)
    found = one.compare(other)
    true = float(osl.sliced_wasserstein(x, y, **options).value)
    assert found.lower <= true <= found.upper
    assert found.distance_upper - found.distance_lower <= 1e-3 * found.distance
    assert max(len(bins.key) for bins in one._seen.bins) > 1000
    assert osl.Stream(1).bins * summaries.BIN_BYTES < 10**6


def test_widths_on_data_that_people_have(rng: np.random.Generator) -> None:
    """Zeros, heavy tails and counts: also there the relative width is at most 1e-3."""
    n = 100_000
    x, y = rng.normal(size=(2, n, 1))
    rare = [rng.random((n, 1)) < share for share in (0.2, 0.22)]
    laws = {
        "zeros": (np.where(rare[0], np.exp(x), 0), np.where(rare[1], np.exp(y), 0)),
        "incomes": (np.exp(2 * x), 1.1 * np.exp(2 * y)),
        "no mean": (rng.standard_cauchy((n, 1)), 1.1 * rng.standard_cauchy((n, 1))),
        "counts": (rng.poisson(3.0, (n, 1)), rng.poisson(3.1, (n, 1))),
    }
    for name, pair in laws.items():
        for p in (1, 2, 3):
            one, other = (osl.Stream(1, p, directions=np.ones((1, 1)), bins=8000) for _ in range(2))
            one.update(pair[0])
            other.update(pair[1])
            found = one.compare(other)
            assert found.distance_upper - found.distance_lower <= 1e-3 * found.distance, (name, p)


@pytest.mark.parametrize("law", LAWS)
def test_order_splits_and_merges_change_nothing(law: str) -> None:
    rng = np.random.default_rng(LAWS.index(law))
    x, y = _clouds(law, rng, 500, 500, 2)
    options = {"n_directions": 4, "rng": 1, "bins": 50}
    whole, other = (osl.Stream(2, **options) for _ in range(2))
    whole.update(x)
    other.update(y)
    known = whole.compare(other)
    for _ in range(4):
        shuffled = x[rng.permutation(500)]
        cuts = np.sort(rng.integers(1, 499, size=3))
        sites = []
        for part in np.split(shuffled, np.unique(cuts)):
            site = osl.Stream(2, **options)
            for row in np.array_split(part, 2):
                if len(row):
                    site.update(row)
            sites.append(pickle.loads(pickle.dumps(site)))
        rng.shuffle(sites)
        merged = sites[0].merge(*sites[1:2]).merge(*sites[2:])
        found = merged.compare(other)
        assert (merged.n, merged.nbytes) == (500, whole.nbytes)
        assert (found.lower, found.upper, found.stderr) == (known.lower, known.upper, known.stderr)
        back = other.compare(merged)
        np.testing.assert_allclose((back.lower, back.upper), (found.lower, found.upper), rtol=1e-9)


@pytest.mark.parametrize("directions", ["hadamard", "orthogonal", "sobol"])
def test_points_one_by_one(rng: np.random.Generator, directions: str) -> None:
    """A point is projected alike on its own and among others, to the last digit."""
    x = rng.normal(size=(19, 50)) * 10.0 ** rng.integers(-6, 6, size=(19, 1))
    whole, single = (osl.Stream(50, directions=directions, n_directions=16, bins=9) for _ in range(2))
    whole.update(np.asfortranarray(x))
    for point in x:
        single.update(point[None])
    for one, other in zip(whole._seen.bins, single._seen.bins, strict=True):
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_sizes_beyond_64_bits(rng: np.random.Generator) -> None:
    """Counts whose product leaves 64 bits give what the same shares give in small numbers."""
    shapes = []
    for shift in (0.0, 0.4):
        low = np.arange(5.0) + shift
        shapes.append(summaries.Shape(rng.integers(1, 9, size=5), low, low + 0.9, low + 0.3))
    large = [shape._replace(counts=shape.counts * 10**12) for shape in shapes]
    np.testing.assert_allclose(
        summaries.line_bounds(*large, 2.0, 0.0), summaries.line_bounds(*shapes, 2.0, 0.0), rtol=1e-12
    )


def test_directions_are_those_of_the_distance(rng: np.random.Generator) -> None:
    """Also with directions of a larger space, and given ones; the middle has the distance's error bar."""
    x, y = rng.normal(size=(90, 3)), rng.normal(size=(80, 3)) + 1
    for directions in ("hadamard", "orthogonal", np.eye(3)):
        count = None if isinstance(directions, np.ndarray) else 12
        one, other = (osl.Stream(3, directions=directions, n_directions=count) for _ in range(2))
        one.update(x)
        other.update(y)
        found = one.compare(other)
        true = osl.sliced_wasserstein(x, y, directions=directions, n_directions=count, rng=0, control=None)
        np.testing.assert_allclose([found.value, found.stderr], [true.value, true.stderr], rtol=1e-6)


def test_given_directions_are_told_apart(rng: np.random.Generator) -> None:
    """Streams on other directions, as many, are not mistaken for each other."""
    x, y = rng.normal(size=(90, 2)), rng.normal(size=(80, 2)) * [1, 3]
    values = []
    for theta in (np.eye(2)[:1], np.eye(2)[1:]):
        one, other = (osl.Stream(2, directions=theta) for _ in range(2))
        one.update(x)
        other.update(y)
        values.append(one.merge(osl.Stream(2, directions=theta)).compare(other).value)
        true = osl.sliced_wasserstein(x, y, directions=theta, control=None).value
        assert values[-1] == pytest.approx(float(true), rel=1e-6)
    assert Given(theta=np.eye(2)) != Given(theta=-np.eye(2))
    with pytest.raises(
        ValueError, match=r"same `directions`; got two Given\(theta of shape \(1, 2\)\) that differ"
    ):
        other.merge(osl.Stream(2, directions=np.eye(2)[:1]))


@pytest.mark.parametrize("scale", [1e300, 1e-200, 1e-310])
@pytest.mark.parametrize("p", [1, 2, 50])
def test_powers_out_of_range(rng: np.random.Generator, scale: float, p: float) -> None:
    """Distances and their bounds are right; powers that overflow say so."""
    x, y = scale * rng.normal(size=(50, 2)), scale * rng.normal(size=(60, 2))
    resolution = max(2.0 ** np.floor(np.log2(scale) - 40), 2.0**-1074)
    options = {"n_directions": 2, "directions": "iid"}
    one, other = (osl.Stream(2, p, resolution=resolution, **options) for _ in range(2))
    one.update(x)
    other.update(y)
    found = one.compare(other)
    true = osl.sliced_wasserstein(x, y, p, rng=0, control=None, **options).distance
    assert 0 < found.distance_lower <= true <= found.distance_upper
    assert found.distance_upper < (1 + 1e-6) * found.distance_lower
    if p > 1 and scale > 1:
        with pytest.raises(OverflowError, match="Read `distance`"):
            _ = found.value
    else:
        assert 0 <= found.lower <= found.value <= found.upper
        assert found.upper > 0


def test_sums_are_exact_in_the_widest_bins(rng: np.random.Generator) -> None:
    numbers = np.append([-(2**60), -1, 1, 2**60], rng.integers(3 * 2**59, 2**61, size=200_000))
    stream = osl.Stream(1, directions=np.ones((1, 1)), resolution=1, bins=2)
    # The first ones make the bins wide.
    stream.update(numbers.astype(np.float64)[:4, None])
    stream.update(numbers.astype(np.float64)[4:, None])
    (bins,) = stream._seen.bins
    places = numbers.astype(np.float64).astype(np.int64)
    assert bins.level == 61
    for k, key in enumerate(bins.key.tolist()):
        own = places[places >> 61 == key]
        assert int(bins.counts[k]) == len(own)
        assert (int(bins.high[k]) << 24) + int(bins.low[k]) == sum(int(t) - (key << 61) for t in own)


def test_sums_do_not_wrap_around() -> None:
    """More numbers than the words of a sum hold are refused."""
    many = summaries.counted(np.array([0, 2**60]), 0)
    many = many._replace(counts=many.counts * 2**37)
    assert summaries.joined([many], 2).counts.sum() == 2**38
    with pytest.raises(OverflowError, match=r"at most 2.75e\+11 points .* got 5.5e\+11. Pass a coarser"):
        summaries.joined([many, many], 2)
    with pytest.raises(OverflowError, match=r"at most 1.68e\+07 points"):
        summaries.joined([many], 1)


def test_columns_are_matched_by_name(rng: np.random.Generator) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(rng.normal(size=(20, 3)), columns=list("abc"))
    straight, mixed, turned = (osl.Stream(3, n_directions=4) for _ in range(3))
    straight.update(frame)
    mixed.update(frame[:8])
    mixed.update(frame[list("cab")][8:])
    turned.update(frame[list("cab")])
    assert mixed.compare(straight).distance_lower == 0
    assert mixed.merge(osl.Stream(3, n_directions=4)).nbytes == mixed.nbytes
    with pytest.raises(ValueError, match="only `earlier` has 'c' and only `points` has 'd'"):
        mixed.update(frame.rename(columns={"c": "d"}))
    for combine in (mixed.merge, mixed.compare):
        with pytest.raises(ValueError, match="same order; got 'a', 'b', 'c' and 'c', 'a', 'b'"):
            combine(turned)


def test_an_update_happens_or_does_not(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = osl.Stream(3, n_directions=4)
    stream.update(rng.normal(size=(10, 3)))
    before, calls = stream._seen.bins, iter(range(2))

    def fails(parts: Any, most: int) -> Any:
        assert next(calls, None) is not None, "the third direction"
        return summaries.joined(parts, most)

    monkeypatch.setattr(streams, "joined", fails)
    with pytest.raises(AssertionError, match="third"):
        stream.update(rng.normal(size=(10, 3)))
    assert stream.n == 10
    assert stream._seen.bins is before


def test_what_an_update_takes(rng: np.random.Generator) -> None:
    """Memory of updates does not grow with the number of directions, nor with that of points."""
    stream, points = osl.Stream(2, n_directions=64, bins=100), rng.normal(size=(100_000, 2))
    stream.update(points[:10])
    tracemalloc.start()
    try:
        stream.update(points)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * 8 * streams._PIECE_ITEMS, f"{peak / 1e6:.0f} MB"


def test_updates_of_any_kind(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x = rng.normal(size=(20, 3))
    known, stream = (osl.Stream(3, directions=np.eye(3)) for _ in range(2))
    known.update(x)
    stream.update(x[:0])
    stream.update(torch.from_numpy(x[:5]).requires_grad_())
    stream.update(x[5:6].tolist())
    other = copy.copy(stream)
    other.update(np.asfortranarray(x[6:]))
    assert (known.n, stream.n, other.n) == (20, 6, 20)
    assert other.compare(known).distance_lower == 0
    assert osl.Stream(3, directions=torch.eye(3)).merge(other).n == 20


def test_bad_use(rng: np.random.Generator) -> None:
    stream = osl.Stream(3, n_directions=2)
    with pytest.raises(ValueError, match=r"`points` must have shape \(n, 3\); got \(5, 2\)"):
        stream.update(np.ones((5, 2)))
    with pytest.raises(ValueError, match="`points` must be finite"):
        stream.update(np.full((5, 3), np.nan))
    with pytest.raises(ValueError, match="Pass a coarser `resolution`"):
        stream.update(np.full((5, 3), 1e9))
    with pytest.raises(ValueError, match="must have seen points"):
        stream.compare(stream)
    with pytest.raises(ValueError, match="must have the same `rng`; got 0 and 1"):
        stream.merge(osl.Stream(3, n_directions=2, rng=1))
    with pytest.raises(TypeError, match="Streams go with streams; got list"):
        stream.compare([1])
    with pytest.raises(ValueError, match="`resolution` must be a power of two"):
        osl.Stream(3, resolution=0.3)
    with pytest.raises(ValueError, match=r"`points` must have shape .* pass `points\[:, None\]`"):
        stream.update(np.ones(3))
    assert stream.n == 0
    assert stream.nbytes == 0


@pytest.mark.parametrize("shift", [0.0, 1e-9, 0.3, 1e6])
def test_what_is_printed_are_bounds(shift: float) -> None:
    here, there = osl.Stream(2, n_directions=4), osl.Stream(2, n_directions=4)
    points = np.random.default_rng(3).normal(size=(50, 2))
    here.update(points)
    there.update(points + shift)
    found = here.compare(there)
    lower, upper = map(float, re.findall(r"from (\S+) to (\S+) on", repr(found))[0])
    assert lower <= found.distance_lower <= found.distance_upper <= upper
    assert upper - lower <= 1.1 * (found.distance_upper - found.distance_lower)
