"""Streams: certain bounds hold in every trial, and order, splits and merges change nothing."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import orthoslice as osl
from orthoslice import streams

LAWS = ["normal", "tied", "cauchy", "far", "near", "one"]


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
            assert one.nbytes <= 3 * bins * streams.BIN_BYTES


def test_bounds_without_the_penalty_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the tangents alone, without what numbers can do within bins, are no bound."""
    monkeypatch.setattr(streams, "_steps", lambda shape, k, *_: np.zeros(len(k)))
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
    assert max(len(bins.key) for bins in one._bins) > 1000
    assert osl.Stream(1).bins * streams.BIN_BYTES < 10**6


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


def test_sizes_beyond_64_bits(rng: np.random.Generator) -> None:
    """Counts whose product leaves 64 bits give what the same shares give in small numbers."""
    shapes = []
    for shift in (0.0, 0.4):
        low = np.arange(5.0) + shift
        shapes.append(streams.Shape(rng.integers(1, 9, size=5), low, low + 0.9, low + 0.3))
    large = [shape._replace(counts=shape.counts * 10**12) for shape in shapes]
    np.testing.assert_allclose(
        streams.line_bounds(*large, 2.0, 0.0), streams.line_bounds(*shapes, 2.0, 0.0), rtol=1e-12
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


def test_bad_use(rng: np.random.Generator) -> None:
    stream = osl.Stream(3, n_directions=2)
    with pytest.raises(ValueError, match=r"`points` must have shape \(n, 3\); got \(5, 2\)"):
        stream.update(np.ones((5, 2)))
    with pytest.raises(ValueError, match="must be finite"):
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
    assert stream.n == 0
    assert stream.nbytes == 0
