"""What labellings of a pooled sample cost, a block of them at once, on lines and in full space."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from orthoslice.applications.two_sample.labels import Exchange, unpacked
from orthoslice.backend.arrays import Array, HostArray, Operation, PlainWork, namespace
from orthoslice.backend.kernels import LABELLINGS, rows_refusal
from orthoslice.costs.lines import price_sorted
from orthoslice.couplings.coupling import powered_norm, rank_pairs
from orthoslice.couplings.orders import stable_order

# How much plain code looks at together, so that tables stay in a core's cache: directions, points on these that
# are labelled by a word each, and labelled points of all labellings.
_LINES_AT_ONCE, _LABELS_AT_ONCE, _PLACES_AT_ONCE = 256, 1 << 12, 1 << 18

# Steps of all units are looked up in a table, where there are no more of them: it takes 4 MB.
_FEW_UNITS = 1 << 14

# NumPy adds long rows one to the other, and along short ones.
_SHORT_ROW = 512

# Numbers of a table of the costs of all pairs of points, 32 MB.
_TABLE = 1 << 22


sort_with_units: Operation[tuple[Array, Array]] = Operation("sort_with_units")
"""sort_with_units(projections (slices, points), unit (points,)) -> values, at, both (slices, points).

Projections in increasing order, and the units of the points they are of; equal ones keep their order. The
projections may be overwritten.
"""


@sort_with_units.implementation(
    "numba",
    lambda projections, _: rows_refusal(projections),
    plain_work=lambda projections, _: PlainWork.of(projections, times=2),
)
def _sort_with_units_numba(projections: HostArray, unit: HostArray) -> tuple[HostArray, HostArray]:
    from orthoslice.backend.kernels.numba.labels import sort_in_place

    values = np.ascontiguousarray(projections)
    return values, sort_in_place(values, unit)


@sort_with_units.implementation("reference", lambda *_: None)
def _sort_with_units(projections: Array, unit: Array) -> tuple[Array, Array]:
    order = stable_order(projections)
    return namespace(projections).take_along_axis(projections, order, axis=1), unit[order]


line_totals: Operation[HostArray] = Operation("line_totals")
"""line_totals(values (slices, points), at (slices, points), words, sizes (lanes,), p) -> (lanes,).

What the labellings cost on the lines, summed over directions: `values` are the projections in increasing order,
`at` the units of the points they are of, and `sizes` how many points each labelling gives to x.
"""


def _lines_work(
    values: HostArray, at: HostArray, words: HostArray, sizes: HostArray, *rest: object
) -> PlainWork:
    *_, p = rest
    return PlainWork.of(values, times=len(sizes) / (32 if p == 1 else 8))


@line_totals.implementation("numba", lambda *_: None, plain_work=_lines_work)
def _line_totals_numba(
    values: HostArray, at: HostArray, words: HostArray, sizes: HostArray, p: float
) -> HostArray:
    from orthoslice.backend.kernels.numba.labels import add_line_totals

    totals: HostArray = add_line_totals(values, at, words, sizes, p)
    return totals


@line_totals.implementation("reference", lambda *_: None)
def _line_totals(values: HostArray, at: HostArray, words: HostArray, sizes: HostArray, p: float) -> HostArray:
    n_all = at.shape[1]
    if p == 1:
        # The difference of both distribution functions, times n m, rises by m at a point of x and falls by n
        # at others: by n + m where the label is 1, less n everywhere.
        unit = math.gcd(n_all, *sizes.tolist())
        fall = _on_all_lanes(sizes // unit)
        rise = np.where(fall > 0, n_all // unit, 0)
        highest = max(n_all, int((sizes * (n_all - sizes)).max())) // unit

        def steps(words: HostArray) -> HostArray:
            kind = _integers(highest)
            return np.asarray(unpacked(words) * rise.astype(kind) - fall.astype(kind))

        step_of = steps(words).__getitem__ if len(words) <= _FEW_UNITS else lambda units: steps(words[units])
        return np.asarray(_add_walks(values, at, step_of)[: len(sizes)] * unit / sizes / (n_all - sizes))
    totals = np.zeros(len(sizes))
    for lanes in _alike(sizes, n_all):
        for row, units in zip(values, at, strict=True):
            in_x = _labels_of(words[units], lanes)
            totals[lanes] += price_sorted(row[_places(in_x)], row[_places(~in_x)], p)
    return totals


def _on_all_lanes(numbers: HostArray) -> HostArray:
    """Numbers of the wanted labellings, and 0 for the others of their block."""
    padded = np.zeros(LABELLINGS, dtype=np.int64)
    padded[: len(numbers)] = numbers
    return padded


def _integers(highest: int) -> Any:
    """The shortest type of signed integers that holds numbers up to `highest`: more of them fit a vector."""
    return np.min_scalar_type(-highest - 1)


def _add_walks(values: HostArray, at: HostArray, steps: Callable[[HostArray], HostArray]) -> HostArray:
    """Areas under the size of the sum of all steps so far, along the lines; summed over lines, `(LABELLINGS,)`.

    `steps(units (...))` are those of the points of these units, `(..., LABELLINGS)`: integers, so that sums are
    exact.
    """
    totals = np.zeros(LABELLINGS)
    for first in range(0, len(values), _LINES_AT_ONCE):
        lines = slice(first, first + _LINES_AT_ONCE)
        gaps, units = (np.ascontiguousarray(table.T) for table in (np.diff(values[lines]), at[lines]))
        lead = None
        n_places = max(1, _LABELS_AT_ONCE // units.shape[1])
        for start in range(0, len(gaps), n_places):
            some = slice(start, min(start + n_places, len(gaps)))
            walk = steps(units[some])
            if lead is not None:
                walk[0] += lead
            _accumulate(walk)
            lead = walk[-1].copy()
            sizes = np.abs(walk, out=walk).reshape(-1, LABELLINGS)
            totals += gaps[some].ravel() @ sizes.astype(np.float64)
    return totals


def _accumulate(walk: HostArray) -> None:
    """Sums along the first axis, in place."""
    if walk[0].size < _SHORT_ROW:
        np.cumsum(walk, axis=0, dtype=walk.dtype, out=walk)
        return
    for before, row in itertools.pairwise(walk):
        np.add(row, before, out=row)


def _alike(sizes: HostArray, n_points: int) -> Iterator[HostArray]:
    """Labellings with equal `sizes (lanes,)` or `(lanes, 2)`, a few at a time if there are many points."""
    step = max(1, _PLACES_AT_ONCE // n_points)
    _, kind = np.unique(sizes, axis=0, return_inverse=True)
    for one in range(int(kind.max()) + 1):
        lanes = np.flatnonzero(kind == one)
        yield from (lanes[first : first + step] for first in range(0, len(lanes), step))


def _labels_of(words: HostArray, lanes: HostArray) -> HostArray:
    """The labels of words `(points,)` under some labellings, a table of bool `(lanes, points)`."""
    return np.ascontiguousarray(unpacked(words).T[lanes])


def _places(chosen: HostArray) -> HostArray:
    """Where a table of bool `(rows, points)` is true, `(rows, k)`; every row has k such places."""
    rows, n_points = chosen.shape
    starts = n_points * np.arange(rows)[:, None]
    return np.asarray(np.flatnonzero(chosen).reshape(rows, -1) - starts)


space_totals: Operation[HostArray] = Operation("space_totals")
"""space_totals(points (points, dim), order (slices, points), exchange, words, sizes (lanes,), p) -> (lanes,).

What the couplings that the directions induce cost in full space, summed over directions.
"""


def _space_work(
    points: HostArray, order: HostArray, exchange: Exchange, words: HostArray, sizes: HostArray, p: float
) -> PlainWork:
    times = len(sizes) / 8 if _fits_table(points, order, sizes) else len(sizes) * points.shape[1] / 4
    return PlainWork(int(order.size * times), str(points.dtype))


@space_totals.implementation("numba", lambda *_: None, plain_work=_space_work)
def _space_totals_numba(
    points: HostArray, order: HostArray, exchange: Exchange, words: HostArray, sizes: HostArray, p: float
) -> HostArray:
    from orthoslice.backend.kernels.numba.labels import add_space_totals

    totals: HostArray = add_space_totals(points, order, exchange.unit, words, len(sizes), p)
    return totals


@space_totals.implementation("reference", lambda *_: None)
def _space_totals(
    points: HostArray, order: HostArray, exchange: Exchange, words: HostArray, sizes: HostArray, p: float
) -> HostArray:
    n_all, totals = order.shape[1], np.zeros(len(sizes))
    price = _pair_prices(points, p, at_once=_fits_table(points, order, sizes))
    for lanes in _alike(sizes, n_all):
        size = int(sizes[lanes[0]])
        i, j, mass = rank_pairs(size, n_all - size, points)
        for row in order:
            in_x = _labels_of(words[exchange.unit[row]], lanes)
            x, y = row[_places(in_x)], row[_places(~in_x)]
            if 2 * size != n_all:
                x, y = x[:, i], y[:, j]
            totals[lanes] += price(x, y) @ mass
    return totals


def _fits_table(points: HostArray, order: HostArray, sizes: HostArray) -> bool:
    """Whether the costs of all pairs of points fit the memory, and are fewer than those that are looked up."""
    return len(points) ** 2 <= min(_TABLE, order.size * len(sizes) // 2)


def _pair_prices(points: HostArray, p: float, *, at_once: bool) -> Callable[[HostArray, HostArray], HostArray]:
    """A function of indices of points, `(...)` each, to |x - y|^p."""
    if not at_once:
        return lambda x, y: cast(HostArray, powered_norm(points[x] - points[y], p))
    table = np.stack([powered_norm(points - point, p) for point in points]).ravel()
    return lambda x, y: table.take(x.astype(np.intp) * len(points) + y)


kept_totals: Operation[HostArray] = Operation("kept_totals")
"""kept_totals(values (slices, points), at (slices, points), words, sizes (lanes, 2), n, p) -> (lanes,).

As `line_totals`, but the first n units are always those of x, and labels say which points are kept: labelling l
keeps `sizes[l, 0]` points of x and `sizes[l, 1]` of y.
"""


@kept_totals.implementation("numba", lambda *_: None, plain_work=_lines_work)
def _kept_totals_numba(
    values: HostArray, at: HostArray, words: HostArray, sizes: HostArray, n: int, p: float
) -> HostArray:
    from orthoslice.backend.kernels.numba.labels import add_kept_totals

    totals: HostArray = add_kept_totals(values, at, words, sizes, n, p)
    return totals


@kept_totals.implementation("reference", lambda *_: None)
def _kept_totals(
    values: HostArray, at: HostArray, words: HostArray, sizes: HostArray, n: int, p: float
) -> HostArray:
    of_x, of_y = sizes.T
    if p == 1:
        # In whole numbers: a point of x adds 1 / n to F - G, a point of y takes 1 / m off.
        heights = np.stack([_on_all_lanes(of_y), -_on_all_lanes(of_x)])
        highest = int((of_x * of_y).max())

        def steps(units: HostArray) -> HostArray:
            rise = heights.astype(_integers(highest))[(units >= n).astype(np.intp)]
            return np.asarray(unpacked(words[units]) * rise)

        return np.asarray(_add_walks(values, at, steps)[: len(sizes)] / of_x / of_y)
    totals = np.zeros(len(sizes))
    for lanes in _alike(sizes, at.shape[1]):
        for row, units in zip(values, at, strict=True):
            kept = _labels_of(words[units], lanes)
            px, py = (row[_places(kept & side)] for side in (units < n, units >= n))
            totals[lanes] += price_sorted(px, py, p)
    return totals
