"""Projected distances of Dask collections that `memory` does not hold: ranges of couplings, as in memory."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orthoslice as osl
from orthoslice.clouds.canonical import roundings
from orthoslice.parallel import row_ranges

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

COSTS = ["exact", "pooled", "independent", "paper_pooled"]


@pytest.fixture(autouse=True)
def _scheduler() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


class _Sent:
    """What ranges are sent, beside the marks that they know: counted on the way to their price."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.points: list[int] = []
        self.shares: list[row_ranges.Range] = []
        plain = row_ranges._price

        def price(about: tuple[Any, ...], *sent: Any) -> float:
            self.points.append(sum(len(rows) for own in sent for rows, _ in own))
            self.shares.append(about[-1])
            return plain(about, *sent)

        patch.setattr(row_ranges, "_price", price)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> _Sent:
    return _Sent(monkeypatch)


def _cut(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """Random chunks, some of them of one point."""
    cuts = np.unique(rng.integers(1, n, size=rng.integers(0, 6))) if n > 1 else []
    return tuple(int(size) for size in np.diff([0, *cuts, n]))


def _lazy(points: Any, rows: Any) -> Any:
    return da.from_array(points, chunks=(rows, points.shape[1]))


def _room(x: Any, y: Any, parts: int) -> int:
    """A memory that holds about so small a part of both clouds with all that is made of them."""
    return -(-(len(x) + len(y)) * (4 * x[0].nbytes + 80) // parts)


def _agree(found: Any, known: Any, rtol: float = 1e-12) -> None:
    assert (found.n_directions, found.n_blocks, found.converged) == (
        known.n_directions,
        known.n_blocks,
        known.converged,
    )
    assert (found.seed, found.trusted, found.value.dtype) == (known.seed, known.trusted, known.value.dtype)
    scale = float(np.abs(known.scores).max())
    np.testing.assert_allclose(found.scores, known.scores, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(found.value, known.value, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(found.stderr, known.stderr, rtol=1e-6, atol=rtol * scale)


def test_points_without_mass(rng: np.random.Generator) -> None:
    """Points without mass are no marks, and their ties, which chunks do not report, are not searched."""
    x, y = rng.normal(size=(400, 1)), rng.normal(size=(400, 1)) + 0.5
    weights = np.where(rng.random(400) < 0.5, 0.0, rng.random(400))
    options = {"directions": [[1.0]], "y_weights": weights / weights.sum()}
    known = osl.projected_wasserstein(x, y, **options)
    lazy = _lazy(x, (200, 200)), _lazy(y, (200, 200))
    _agree(osl.projected_wasserstein(*lazy, **options, memory=_room(x, y, 8)), known)


def _grid(rng: np.random.Generator, n: int, dim: int) -> Any:
    """Points of a small grid with both signs of zero: most projections on an axis are tied."""
    points = rng.integers(-1, 2, size=(n, dim)) * 1.0
    return np.where((points == 0) & (rng.random((n, dim)) < 0.5), -0.0, points)


@given(
    seed=st.integers(0, 10**6),
    dim=st.integers(1, 4),
    sizes=st.tuples(st.integers(1, 60), st.integers(1, 60)) | st.integers(1, 60).map(lambda n: (n, n)),
    weighted=st.sampled_from([(False, False), (False, False), (True, False), (True, True)]),
    kind=st.sampled_from(["apart", "grid", "grid", "copies"]),
    dtype=st.sampled_from(["float64", "float32"]),
    p=st.sampled_from([1, 2, 2.5]),
    cost=st.sampled_from(COSTS),
    axes=st.booleans(),
    marks=st.tuples(st.integers(1, 4), st.integers(1, 3)),
)
def test_any_chunks(
    seed: int,
    dim: int,
    sizes: tuple[int, int],
    weighted: tuple[bool, bool],
    kind: str,
    dtype: str,
    p: float,
    cost: str,
    axes: bool,
    marks: tuple[int, int],
) -> None:
    """Scores are those in memory, also with few marks, where most points lie between marks and are sent."""
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=(n, dim)) * 3 + 40 * rng.integers(0, 2) for n in sizes)
    if kind == "grid":
        x, y = (_grid(rng, n, dim) for n in sizes)
    elif kind == "copies":
        x[rng.random(len(x)) < 0.7] = x[0]
        y[: len(y) // 2] = x[0]
    x, y = x.astype(dtype), y.astype(dtype)
    given = {}
    for name, n, wanted in zip(("x_weights", "y_weights"), sizes, weighted, strict=True):
        if wanted:
            weights = rng.dirichlet(np.full(n, 0.3)) * (rng.random(n) >= rng.choice([0, 1 / 3]))
            weights[rng.integers(n)] += 1 / n
            given[name] = weights / weights.sum()
    options = {"p": p, "rng": seed, "cost": cost, "directions": "iid", "n_directions": 2}
    if axes and "pooled" not in cost:
        # Of a diagonal, tied sums are rounded in different ways.
        options |= {"directions": np.stack([np.eye(dim)[0], np.full(dim, dim**-0.5)])}
    known = osl.projected_wasserstein(x, y, **options, **given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "_MARKS", marks[0])
        patch.setattr(row_ranges, "_DRAWN", marks[1])
        patch.setattr(row_ranges, "_LONGEST", np.inf)
        found = osl.projected_wasserstein(
            _lazy(x, _cut(rng, len(x))),
            _lazy(y, _cut(rng, len(y))),
            **options,
            **{name: da.from_array(w, chunks=(_cut(rng, len(w)),)) for name, w in given.items()},
            memory=max(100, _room(x, y, 4)),
        )
    _agree(found, known, 1e-11 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("n_values", [1, 3])
@pytest.mark.parametrize("sizes", [(3000, 3000), (3000, 2000)])
def test_ties_longer_than_ranges(
    n_values: int, sizes: tuple[int, int], rng: np.random.Generator, sent: _Sent
) -> None:
    """Many ranges lie in one tie, whose points differ: it is cut by coordinates, in shares of equal length."""
    x, y = (
        np.column_stack([rng.integers(0, n_values, n) * 1.0, rng.normal(size=(n, 2)).round(2)]) for n in sizes
    )
    options = {"directions": np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), "rng": 0, "p": 1}
    known = osl.projected_wasserstein(x, y, **options)
    found = osl.projected_wasserstein(_lazy(x, 700), _lazy(y, 900), **options, memory=_room(x, y, 12))
    _agree(found, known)
    assert len(sent.points) == 2 * 12
    assert max(sent.points) < 1.5 * sum(sizes) / 12
    within = [share for share in sent.shares if all(len(side.marks.low) == 1 for side in share.sides)]
    assert len(within) > 2 * 12 / 2
    # As the order of rows would have it, the same ties cost more.
    assert float(np.linalg.norm(x[: sizes[1]] - y, axis=1).mean()) > 1.2 * float(known.value)


@pytest.mark.parametrize("n_ties", [3, 300])
def test_ties_but_for_rounding(n_ties: int, rng: np.random.Generator, sent: _Sent) -> None:
    """Equal sums whose rounding depends on the order of terms are one tie, longer than ranges or short."""
    base = rng.random((n_ties, 5)) * [1, 10, 100, 1000, 10]
    orders = np.array(list(itertools.permutations(range(5))))
    x, y = (
        np.take_along_axis(base[rng.integers(0, n_ties, n)], orders[rng.integers(0, 120, n)], axis=1)
        for n in (2000, 1500)
    )
    theta = np.full((1, 5), 5**-0.5)
    for cloud in (x, y):
        values = row_ranges._project(theta, cloud)[0]
        # The test is one: there are more numbers than ties.
        assert len(np.unique(values)) > 1.5 * len(np.unique(values.round(6)))
    options = {"directions": theta, "rng": 0, "p": 2}
    known = osl.projected_wasserstein(x, y, **options)
    found = osl.projected_wasserstein(_lazy(x, 600), _lazy(y, 600), **options, memory=_room(x, y, 10))
    _agree(found, known)
    assert len(sent.points) == 10


def test_a_tie_whose_links_lie_in_other_ranges(rng: np.random.Generator, sent: _Sent) -> None:
    """A chain of ties is one: a range has some links of it, far apart, and takes them by their coordinates too.

    Numbers of one link differ by nothing, those of the next by less than rounding may do to both.
    """
    links, x = rng.permutation(30), np.zeros((2000, 2))
    link = rng.integers(0, 30, 2000)
    x[:, 0] = 1e6 + 100 * links[link] + 90 * rng.random(2000)
    reach = float(roundings(x).min())
    x[:, 1] = 1.5 * reach * link
    # Far from all others: clouds are not moved to the origin.
    x[0] = -1e6, 1.0
    y = x[rng.permutation(2000)[:1500]] + [50, 0]
    options = {"directions": np.array([[0.0, 1.0]]), "rng": 0, "p": 1}
    known = osl.projected_wasserstein(x, y, **options)
    found = osl.projected_wasserstein(_lazy(x, 600), _lazy(y, 600), **options, memory=_room(x, y, 10))
    _agree(found, known)
    assert len(sent.points) == 10


def test_copies_are_not_sent(rng: np.random.Generator, sent: _Sent) -> None:
    """Nine in ten points are one, which is a mark: all of them together are one point of their mass."""
    x, y = rng.normal(size=(3000, 2)), rng.normal(size=(3000, 2))
    x[rng.permutation(3000)[:2700]] = x[0]
    options = {"directions": "iid", "n_directions": 2, "rng": 0}
    known = osl.projected_wasserstein(x, y, **options)
    found = osl.projected_wasserstein(_lazy(x, 600), _lazy(y, 600), **options, memory=_room(x, y, 8))
    _agree(found, known)
    assert sum(sent.points) < 2 * 1.5 * 3300


def test_a_cloud_and_itself_in_another_order(rng: np.random.Generator) -> None:
    x = np.concatenate([_grid(rng, 800, 3), rng.normal(size=(200, 3))])
    y = rng.permutation(x)
    for directions in (np.eye(3), "orthogonal"):
        found = osl.projected_wasserstein(
            _lazy(x, 300), _lazy(y, 170), directions=directions, n_directions=3, rng=0, memory=_room(x, y, 5)
        )
        assert (found.scores == 0).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_ranges_are_no_longer_than_their_share(weighted: bool, rng: np.random.Generator, sent: _Sent) -> None:
    """Of points, not of mass: where one in a hundred has nearly all of it, the others take the same room."""
    x, y = rng.normal(size=(4000, 3)), rng.normal(size=(4000, 3)) * 2
    given = {}
    if weighted:
        weights = np.where(rng.random(4000) < 0.01, 1e6, 1.0) * rng.random(4000)
        given["x_weights"] = weights / weights.sum()
    options = {"directions": "iid", "n_directions": 2, "rng": 0}
    known = osl.projected_wasserstein(x, y, **options, **given)
    found = osl.projected_wasserstein(_lazy(x, 900), _lazy(y, 900), **options, **given, memory="100KB")
    _agree(found, known, 1e-11)
    assert len(sent.points) > 20
    assert max(sent.points) < 1.3 * 2 * 8000 / len(sent.points)


@pytest.mark.parametrize(("dim", "dtype", "cost"), [(3, "float32", "exact"), (24, "float64", "pooled")])
def test_a_range_holds_the_memory(
    dim: int, dtype: str, cost: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the task of a range makes, and what was sent to it, is less than `memory`."""
    x, y = (rng.normal(size=(20_000, dim)).astype(dtype) for _ in range(2))
    memory, peaks, plain = _room(x, y, 4), [], row_ranges._price

    def price(about: Any, *sent: Any) -> float:
        came = sum(rows.nbytes + masses.nbytes for own in sent for rows, masses in own)
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        cost = plain(about, *sent)
        peaks.append(came + tracemalloc.get_traced_memory()[1] - before)
        return cost

    lazy = [_lazy(c, 5000) for c in (x, y)]
    options = {"directions": "iid", "n_directions": 2, "cost": cost, "rng": 0, "p": 1}
    # Compiled before it counts.
    osl.projected_wasserstein(*lazy, **options, memory=memory)
    monkeypatch.setattr(row_ranges, "_price", price)
    tracemalloc.start()
    try:
        osl.projected_wasserstein(*lazy, **options, memory=memory)
    finally:
        tracemalloc.stop()
    assert len(peaks) >= 2 * 4
    assert memory / 2 < max(peaks) <= memory


def test_a_small_cloud_beside_a_large_one(rng: np.random.Generator, sent: _Sent) -> None:
    """More ranges than the small one has points: these are shared out."""
    x, y = rng.normal(size=(3, 2)), rng.normal(size=(3000, 2))
    options = {"directions": "iid", "n_directions": 2, "rng": 0, "p": 1}
    known = osl.projected_wasserstein(x, y, **options)
    _agree(osl.projected_wasserstein(x, _lazy(y, 800), **options, memory=_room(x, y, 8)), known)
    assert len(sent.points) == 2 * 8


def test_weights_that_sum_to_one_in_float32(rng: np.random.Generator) -> None:
    """They are divided by their sum, as in memory, also of sliced distances."""
    x, y = rng.normal(size=(600, 2)), rng.normal(size=(500, 2)) + 1
    weights = rng.dirichlet(np.ones(600)).astype(np.float32)
    assert abs(weights.astype(np.float64).sum() - 1) > 1e-10
    for function in (osl.sliced_wasserstein, osl.projected_wasserstein):
        options = {"x_weights": weights, "directions": "iid", "n_directions": 2, "rng": 0}
        known = function(x, y, **options)
        _agree(function(_lazy(x, 200), _lazy(y, 200), **options, memory=9000), known)


def test_a_tolerance(rng: np.random.Generator, sent: _Sent) -> None:
    x, y = rng.normal(size=(120, 3)), rng.normal(size=(100, 3)) + 0.3
    known = osl.projected_wasserstein(x, y, rtol=0.03, directions="iid", rng=0)
    found = osl.projected_wasserstein(
        _lazy(x, 50), _lazy(y, 50), rtol=0.03, directions="iid", rng=0, memory=_room(x, y, 3)
    )
    _agree(found, known)
    assert found.n_directions > 8
    assert len(sent.points) >= 3 * found.n_directions


def test_threads(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(3000, 3)), rng.normal(size=(2000, 3))
    known = osl.projected_wasserstein(x, y, rng=0, n_directions=4, directions="iid")
    with dask.config.set(scheduler="threads"):
        for parts in (2, 3, 7):
            found = osl.projected_wasserstein(
                _lazy(x, 500),
                _lazy(y, 500),
                rng=0,
                n_directions=4,
                directions="iid",
                memory=_room(x, y, parts),
                workers=4,
            )
            _agree(found, known)


def test_points_in_the_rounding_of_far_ones_are_refused(rng: np.random.Generator) -> None:
    """2,000 projections closer to each other than their rounding: one chain of ties, longer than a range."""
    x = np.column_stack([np.full(2000, 1e6), rng.normal(size=2000) * 1e-8])
    x[0, 0], far = -1e6, np.array([0, 1e-8])
    order = np.sort(x[:, 1])
    assert np.diff(order)[100:-100].max() < roundings(x).min()
    options = {"directions": np.array([[0.0, 1.0]]), "rng": 0}
    lazy = [_lazy(c, 500) for c in (x, x + far)]
    with pytest.raises(ValueError, match=r"lost in the rounding of float64; got less\. Pass a larger `memory`"):
        osl.projected_wasserstein(*lazy, **options, memory=_room(x, x, 8))
    known = osl.projected_wasserstein(x, x + far, **options)
    _agree(osl.projected_wasserstein(*lazy, **options, memory="1MB"), known)
