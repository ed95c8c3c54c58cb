"""Costs on the line of clouds without weights, and their slopes: project, sort, match, add up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    HostArray,
    JaxArray,
    Operation,
    PlainWork,
    Tensor,
    at_rank,
    float_info,
    namespace,
    scatter_add,
    wide_float,
)
from orthoslice.backend.kernels import (
    LONGEST_CACHED,
    LONGEST_COLUMN,
    rows_refusal,
    xla,
    xla_launches,
)
from orthoslice.backend.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal
from orthoslice.clouds.canonical import flat_index
from orthoslice.couplings.coupling import Pairs, couple_ranks, rank_pairs
from orthoslice.directions.base import DenseDirections, Directions, SteadyDirections


def powered(difference: Array, p: float) -> Array:
    """|difference|^p."""
    if p == 2:
        return difference * difference
    magnitude = namespace(difference).abs(difference)
    return magnitude if p == 1 else magnitude**p


def powered_slope(difference: Array, p: float) -> Array:
    """The derivative of |difference|^p, 0 at 0."""
    xp = namespace(difference)
    if p == 2:
        return 2 * difference
    sign = xp.sign(difference)
    return sign if p == 1 else p * xp.abs(difference) ** (p - 1) * sign


def _bytes_of_numbers(per_number: int) -> Callable[..., int]:
    """Memory of kernels: `per_number` floats for each number of a row (measured, rounded up)."""

    def row_bytes(px: Array, py: Array, *_: object) -> int:
        width: int = float_info(namespace(px), px.dtype).bits // 8
        return per_number * count_numbers(px, py) * width

    return row_bytes


def count_numbers(px: Array, py: Array) -> int:
    """How many projections of both clouds there are on one direction, over the whole batch."""
    batch: tuple[int, ...] = px.shape[1:-1]
    if batch != py.shape[1:-1]:
        batch = np.broadcast_shapes(batch, py.shape[1:-1])
    return math.prod(batch) * int(px.shape[-1] + py.shape[-1])


SCORES_BYTES, SLOPES_BYTES = _bytes_of_numbers(3), _bytes_of_numbers(8)
"""What kernels need for scores alone, and with their slopes."""

_LAUNCHED_BYTES = _bytes_of_numbers(5)


def _xla_scores_bytes(px: Array, py: Array, *_: object) -> int:
    return (SCORES_BYTES if xla_launches.refusal(px, py) else _LAUNCHED_BYTES)(px, py)


def _xla_slopes_bytes(px: Array, py: Array, *_: object) -> int:
    return (SLOPES_BYTES if xla_launches.refusal(px, py) else _LAUNCHED_BYTES)(px, py)


# A pair of a coupling: two indices, a mass, a cost, and its weighted cost or slope.
_PAIR_BYTES = 40


def _plain_scores_bytes(px: Array, py: Array, *_: object) -> int:
    pairs = 0 if px.shape[-1] == py.shape[-1] else _PAIR_BYTES * count_numbers(px, py)
    return SCORES_BYTES(px, py) + pairs


def _plain_slopes_bytes(px: Array, py: Array, *_: object) -> int:
    return SLOPES_BYTES(px, py) + _PAIR_BYTES * count_numbers(px, py)


sorted_scores: Operation[Array] = Operation("sorted_scores")
"""sorted_scores(px (slices, ..., n), py (slices, ..., m), p) -> (slices, ...): costs on the line.

For clouds without weights. The projections may be overwritten.
"""


def _long_refusal(px: Array, py: Array, _: float) -> str | None:
    if max(px.shape[-1], py.shape[-1]) <= LONGEST_CACHED:
        return f"it takes rows of more than {LONGEST_CACHED} points"
    return rows_refusal(px, py)


def _scores_work(px: Array, py: Array, *_: object) -> PlainWork:
    return PlainWork.of(px, py)


@sorted_scores.implementation("pieces", _long_refusal, row_bytes=SCORES_BYTES, plain_work=_scores_work)
def _sorted_scores_pieces(px: HostArray, py: HostArray, p: float) -> HostArray:
    from orthoslice.backend.kernels.numba.pieces import score_long_rows

    flat_x, flat_y = (np.ascontiguousarray(a.reshape(-1, a.shape[-1])) for a in (px, py))
    return score_long_rows(flat_x, flat_y, p).reshape(px.shape[:-1])


@sorted_scores.implementation(
    "numba", lambda px, py, _: rows_refusal(px, py), row_bytes=SCORES_BYTES, plain_work=_scores_work
)
def _sorted_scores_numba(px: HostArray, py: HostArray, p: float) -> HostArray:
    from orthoslice.backend.kernels.numba.sliced import score_projections

    flat_x, flat_y = px.reshape(-1, px.shape[-1]), py.reshape(-1, py.shape[-1])
    return score_projections(flat_x, flat_y, p).reshape(px.shape[:-1])


def cuda_rows_refusal(px: Array, py: Array, *_: object) -> str | None:
    """Why kernels cannot take rows of both clouds on a GPU, or None if they can."""
    if px.shape[:-1] != py.shape[:-1]:
        return "it takes rows that need no broadcasting"
    if max(px.shape[-1], py.shape[-1]) > LONGEST_CUDA_ROW:
        return f"it takes rows of at most {LONGEST_CUDA_ROW} points"
    return cuda_refusal(px, py)


@sorted_scores.implementation("cuda", cuda_rows_refusal, row_bytes=SCORES_BYTES)
def _sorted_scores_cuda(px: Tensor, py: Tensor, p: float) -> Tensor:
    from orthoslice.backend.kernels.cuda.rows import match_rows

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    return match_rows(flat_x, flat_y, p, 1.0, (False, False)).scores.reshape(px.shape[:-1])


@sorted_scores.implementation("xla", lambda px, py, _: xla.refusal(px, py), row_bytes=_xla_scores_bytes)
def _sorted_scores_xla(px: JaxArray, py: JaxArray, p: float) -> JaxArray:
    return xla.score_rows(px, py, p, wide_float(px), _sorted_scores)


@sorted_scores.implementation("reference", lambda *_: None, row_bytes=_plain_scores_bytes)
def _sorted_scores(px: Array, py: Array, p: float) -> Array:
    xp = namespace(px)
    px, py = (xp.sort(a, axis=-1, stable=False) for a in (px, py))
    return price_sorted(px, py, p)


def price_sorted(px: Array, py: Array, p: float) -> Array:
    """As :data:`sorted_scores`, of projections in increasing order."""
    xp = namespace(px)
    n, m, wide = px.shape[-1], py.shape[-1], wide_float(px)
    if n == m:
        return xp.sum(powered(px - py, p), axis=-1, dtype=wide) / n
    i, j, mass = rank_pairs(n, m, px)
    difference = xp.take(px, i, axis=-1) - xp.take(py, j, axis=-1)
    costs = xp.astype(powered(difference, p), wide)
    return xp.sum(at_rank(mass, costs.ndim) * costs, axis=-1)


_OWN_SCORES = sorted_scores.names

sliced_scores: Operation[Array] = Operation("sliced_scores")
"""sliced_scores(x points, y points, directions, rows, p) -> (slices, ...): project, sort and price at once."""


def _dense_refusal(x: Array, y: Array, directions: Directions) -> str | None:
    if isinstance(directions, DenseDirections) and x.ndim == y.ndim == 2:
        return None
    return "it takes directions held as a matrix, and single clouds"


def _columns_refusal(x: Array, y: Array, directions: Directions, *_: object) -> str | None:
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return "it takes NumPy arrays"
    if isinstance(directions, SteadyDirections):
        return "it rounds as it goes, and steady directions are projected term by term"
    if x.dtype != y.dtype or x.dtype not in (np.float32, np.float64):
        return "it takes clouds of one floating type"
    if max(x.shape[0], y.shape[0]) > LONGEST_COLUMN:
        return f"it takes clouds of at most {LONGEST_COLUMN} points"
    if sorted_scores.names != _OWN_SCORES:
        return "it leaves projections to implementations from outside"
    return _dense_refusal(x, y, directions)


def _cuda_clouds_refusal(x: Array, y: Array, directions: Directions, *_: object) -> str | None:
    if max(x.shape[-2], y.shape[-2]) > LONGEST_CUDA_ROW:
        return f"it takes clouds of at most {LONGEST_CUDA_ROW} points"
    return _dense_refusal(x, y, directions) or cuda_refusal(x, y)


@sliced_scores.implementation("cuda", _cuda_clouds_refusal)
def _sliced_scores_cuda(x: Tensor, y: Tensor, directions: DenseDirections, rows: slice, p: float) -> Tensor:
    from orthoslice.backend.kernels.cuda.loss import match_clouds

    x, y, theta = (a.contiguous() for a in (x, y, cast(Tensor, directions.theta)[rows]))
    return match_clouds(x, y, theta, p, 1.0, (False, False)).scores


def _columns_work(x: Array, y: Array, directions: DenseDirections, rows: slice, _: float) -> PlainWork:
    return PlainWork.of(x[:, 0], y[:, 0], times=len(directions.theta[rows]))


@sliced_scores.implementation("columns", _columns_refusal, plain_work=_columns_work)
def score_in_columns(
    x: HostArray, y: HostArray, directions: DenseDirections, rows: slice, p: float
) -> HostArray:
    from orthoslice.backend.kernels.numba.sliced import score_points

    return score_points(x, y, cast(HostArray, directions.theta)[rows], p)


@sliced_scores.implementation("reference", lambda *_: None)
def project_and_score(x: Array, y: Array, directions: Directions, rows: slice | Array, p: float) -> Array:
    return sorted_scores(directions.project(x, rows), directions.project(y, rows), p)


sorted_slopes: Operation[tuple[Array, Array, Array]] = Operation("sorted_slopes")
"""sorted_slopes(px, py, p, factor) -> scores, slopes of px, slopes of py.

`factor` times :func:`sorted_scores`, and its derivatives by every projection.
"""


@sorted_slopes.implementation(
    "numba",
    lambda px, py, *_: rows_refusal(px, py),
    row_bytes=SLOPES_BYTES,
    plain_work=lambda px, py, *_: PlainWork.of(px, py, times=4),
)
def slope_compiled_rows(
    px: HostArray, py: HostArray, p: float, factor: float
) -> tuple[HostArray, HostArray, HostArray]:
    from orthoslice.backend.kernels.numba.sliced import slope_projections

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    scores, x_slopes, y_slopes = slope_projections(flat_x, flat_y, p, factor)
    return scores.reshape(px.shape[:-1]), x_slopes.reshape(px.shape), y_slopes.reshape(py.shape)


@sorted_slopes.implementation("cuda", cuda_rows_refusal, row_bytes=SLOPES_BYTES)
def _sorted_slopes_cuda(px: Tensor, py: Tensor, p: float, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    from orthoslice.backend.kernels.cuda.rows import match_rows

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    scores, x_slopes, y_slopes = match_rows(flat_x, flat_y, p, factor, (True, True))
    return scores.reshape(px.shape[:-1]), x_slopes.reshape(px.shape), y_slopes.reshape(py.shape)


@sorted_slopes.implementation("xla", lambda px, py, *_: xla.refusal(px, py), row_bytes=_xla_slopes_bytes)
def _sorted_slopes_xla(px: Array, py: Array, p: float, factor: float) -> tuple[Array, Array, Array]:
    scores, x_slopes, y_slopes = xla.slope_rows(px, py, p, factor, wide_float(px), _sorted_slopes)
    return scores, x_slopes, y_slopes


@sorted_slopes.implementation("reference", lambda *_: None, row_bytes=_plain_slopes_bytes)
def _sorted_slopes(px: Array, py: Array, p: float, factor: float) -> tuple[Array, Array, Array]:
    xp = namespace(px)
    pairs = couple_ranks(px, py)
    difference = differences(px, py, pairs)
    mass = at_rank(pairs.mass, difference.ndim)
    slopes = xp.astype(factor * mass * powered_slope(difference, p), px.dtype)
    return (
        weigh(factor * powered(difference, p), pairs),
        scatter_slopes(slopes, pairs.ix, px.shape[-1]),
        scatter_slopes(-slopes, pairs.iy, py.shape[-1]),
    )


def differences(qx: Array, qy: Array, pairs: Pairs) -> Array:
    """How far apart the points of every pair are on a line."""
    xp = namespace(qx)
    return xp.take_along_axis(qx, pairs.ix, axis=-1) - xp.take_along_axis(qy, pairs.iy, axis=-1)


def weigh(costs: Array, pairs: Pairs) -> Array:
    xp = namespace(costs)
    return xp.sum(at_rank(pairs.mass, costs.ndim) * xp.astype(costs, pairs.mass.dtype), axis=-1)


def scatter_slopes(slopes: Array, index: Array, n: int) -> Array:
    """Sum `slopes (slices, ..., pairs)` over the pairs of each point: `(slices, ..., n)`."""
    xp = namespace(slopes)
    lead = tuple(slopes.shape[:-1])
    index = flat_index(xp.broadcast_to(index, slopes.shape), lead, n)
    flat = scatter_add(xp.reshape(slopes, (-1,)), xp.reshape(index, (-1,)), math.prod(lead) * n)
    return xp.reshape(flat, (*lead, n))
