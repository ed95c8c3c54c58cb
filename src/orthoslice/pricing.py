"""What pairs cost and how that changes with the clouds: powers, lines, full space, pools, weights."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

from orthoslice.arrays import (
    Array,
    Operation,
    Wanted,
    add_totals,
    device,
    map_sum,
    namespace,
    scatter_add,
    to_numpy,
    wide_float,
)
from orthoslice.arrays.operations import from_host, host_refusal
from orthoslice.cloud import Cloud
from orthoslice.coupling import (
    Pairs,
    couple,
    couple_ranks,
    flat_index,
    flat_masses,
    flat_rows,
    gather_points,
    powered_norm,
    rank_pairs,
)
from orthoslice.directions.base import DenseDirections, Directions
from orthoslice.kernels import LONGEST_COLUMN, LONGEST_SIMD, LONGEST_TRITON_ROW, rows_refusal, triton_refusal
from orthoslice.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal

Priced: TypeAlias = tuple[Array, tuple[Array, ...]]
"""Scores `(slices, ...)`, and the wanted gradients of their sum over slices, batch axes first."""

# About the size of a core's cache: larger gathers are slower, not faster.
_GATHER_ITEMS = 1 << 18


class Draw(NamedTuple):
    """The directions of one pass: `n_rows` were drawn, in blocks of `block_rows`; `rows` make couplings."""

    directions: Directions
    n_rows: int
    block_rows: int
    rows: slice | Array
    tight: bool
    """Whether `sum theta theta^T` over a whole block is the identity."""
    partner: Directions | None
    """As many directions drawn independently, for scores that ask for them."""
    chunk_rows: int
    """How many rows may be projected at once."""
    y_first: bool = False
    """As in :func:`couple`."""


def mean_power(dim: int, p: float) -> float:
    """E|theta_1|^p for theta uniform on the sphere of R^dim."""
    log = math.lgamma((p + 1) / 2) + math.lgamma(dim / 2) - math.lgamma((dim + p) / 2)
    return math.exp(log) / math.sqrt(math.pi)


def mean_shortening(dim: int, ambient_dim: int, p: float) -> float:
    """E r^p for r the length of the first `dim` coordinates of a uniform unit vector of R^ambient_dim."""
    return 1.0 if dim == ambient_dim else mean_power(ambient_dim, p) / mean_power(dim, p)


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


sorted_scores = Operation("sorted_scores")
"""sorted_scores(px (slices, ..., n), py (slices, ..., m), p) -> (slices, ...): costs on the line.

For clouds without weights. The projections may be overwritten.
"""


@sorted_scores.row("numba", lambda px, py, _: rows_refusal(px, py))
def _sorted_scores_numba(px: Array, py: Array, p: float) -> Array:
    from orthoslice.kernels.sliced import score_projections

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    return score_projections(flat_x, flat_y, p).reshape(px.shape[:-1])


def _cuda_rows_refusal(px: Array, py: Array, *_: Any) -> str | None:
    if px.shape[:-1] != py.shape[:-1]:
        return "it takes rows that need no broadcasting"
    if max(px.shape[-1], py.shape[-1]) > LONGEST_CUDA_ROW:
        return f"it takes rows of at most {LONGEST_CUDA_ROW} points"
    return cuda_refusal(px, py)


@sorted_scores.row("cuda", _cuda_rows_refusal)
def _sorted_scores_cuda(px: Array, py: Array, p: float) -> Array:
    from orthoslice.kernels.cuda.rows import match_rows

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    return match_rows(flat_x, flat_y, p, 1.0, (False, False)).scores.reshape(px.shape[:-1])


def _short_rows_refusal(px: Array, py: Array, *_: Any) -> str | None:
    if max(px.shape[-1], py.shape[-1]) > LONGEST_TRITON_ROW:
        return f"it takes rows of at most {LONGEST_TRITON_ROW} points"
    if px.shape[:-1] != py.shape[:-1]:
        return "it takes rows that need no broadcasting"
    return triton_refusal(px, py)


@sorted_scores.row("triton", _short_rows_refusal)
def _sorted_scores_triton(px: Array, py: Array, p: float) -> Array:
    from orthoslice.kernels.triton_rows import score_rows

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    return score_rows(flat_x, flat_y, p).reshape(px.shape[:-1])


@sorted_scores.row("reference", lambda *_: None)
def _sorted_scores(px: Array, py: Array, p: float) -> Array:
    xp = namespace(px)
    n, m, wide = px.shape[-1], py.shape[-1], wide_float(px)
    px, py = (xp.sort(a, axis=-1, stable=False) for a in (px, py))
    if n == m:
        return xp.sum(powered(px - py, p), axis=-1, dtype=wide) / n
    i, j, mass = rank_pairs(n, m, px)
    difference = xp.take(px, i, axis=-1) - xp.take(py, j, axis=-1)
    return xp.sum(mass * xp.astype(powered(difference, p), wide), axis=-1)


sliced_scores = Operation("sliced_scores")
"""sliced_scores(x points, y points, directions, rows, p) -> (slices, ...): project, sort and price at once."""


def _dense_refusal(x: Array, y: Array, directions: Directions) -> str | None:
    if isinstance(directions, DenseDirections) and x.ndim == y.ndim == 2:
        return None
    return "it takes directions held as a matrix, and single clouds"


def _columns_refusal(x: Array, y: Array, directions: Directions, *_: Any) -> str | None:
    if not LONGEST_SIMD < max(x.shape[0], y.shape[0]) <= LONGEST_COLUMN:
        return "it takes clouds of middling size"
    return _dense_refusal(x, y, directions) or rows_refusal(x[:0], y[:0])


def _cuda_clouds_refusal(x: Array, y: Array, directions: Directions, *_: Any) -> str | None:
    if max(x.shape[-2], y.shape[-2]) > LONGEST_CUDA_ROW:
        return f"it takes clouds of at most {LONGEST_CUDA_ROW} points"
    return _dense_refusal(x, y, directions) or cuda_refusal(x, y)


@sliced_scores.row("cuda", _cuda_clouds_refusal)
def _sliced_scores_cuda(x: Array, y: Array, directions: DenseDirections, rows: slice, p: float) -> Array:
    from orthoslice.kernels.cuda.loss import match_clouds

    x, y, theta = (a.contiguous() for a in (x, y, directions.theta[rows]))
    return match_clouds(x, y, theta, p, 1.0, (False, False)).scores


@sliced_scores.row("columns", _columns_refusal)
def _sliced_scores_columns(x: Array, y: Array, directions: DenseDirections, rows: slice, p: float) -> Array:
    from orthoslice.kernels.sliced import score_points

    return score_points(x, y, directions.theta[rows], p)


@sliced_scores.row("reference", lambda *_: None)
def _sliced_scores(x: Array, y: Array, directions: Directions, rows: slice | Array, p: float) -> Array:
    return sorted_scores(directions.project(x, rows), directions.project(y, rows), p)


sorted_slopes = Operation("sorted_slopes")
"""sorted_slopes(px, py, p, factor) -> scores, slopes of px, slopes of py.

`factor` times :func:`sorted_scores`, and its derivatives by every projection.
"""


@sorted_slopes.row("numba", lambda px, py, *_: rows_refusal(px, py))
def _sorted_slopes_numba(px: Array, py: Array, p: float, factor: float) -> tuple[Array, Array, Array]:
    from orthoslice.kernels.sliced import slope_projections

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    scores, x_slopes, y_slopes = slope_projections(flat_x, flat_y, p, factor)
    return scores.reshape(px.shape[:-1]), x_slopes.reshape(px.shape), y_slopes.reshape(py.shape)


@sorted_slopes.row("cuda", _cuda_rows_refusal)
def _sorted_slopes_cuda(px: Array, py: Array, p: float, factor: float) -> tuple[Array, Array, Array]:
    from orthoslice.kernels.cuda.rows import match_rows

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    scores, x_slopes, y_slopes = match_rows(flat_x, flat_y, p, factor, (True, True))
    return scores.reshape(px.shape[:-1]), x_slopes.reshape(px.shape), y_slopes.reshape(py.shape)


@sorted_slopes.row("triton", _short_rows_refusal)
def _sorted_slopes_triton(px: Array, py: Array, p: float, factor: float) -> tuple[Array, Array, Array]:
    from orthoslice.kernels.triton_rows import slope_rows

    flat_x, flat_y = (a.reshape(-1, a.shape[-1]) for a in (px, py))
    scores, x_slopes, y_slopes = slope_rows(flat_x, flat_y, p, factor)
    return scores.reshape(px.shape[:-1]), x_slopes.reshape(px.shape), y_slopes.reshape(py.shape)


@sorted_slopes.row("reference", lambda *_: None)
def _sorted_slopes(px: Array, py: Array, p: float, factor: float) -> tuple[Array, Array, Array]:
    xp = namespace(px)
    pairs = couple_ranks(px, py)
    difference = _differences(px, py, pairs)
    slopes = xp.astype(factor * pairs.mass * powered_slope(difference, p), px.dtype)
    return (
        _weigh(factor * powered(difference, p), pairs),
        _scatter_slopes(slopes, pairs.ix, px.shape[-1]),
        _scatter_slopes(-slopes, pairs.iy, py.shape[-1]),
    )


def _differences(qx: Array, qy: Array, pairs: Pairs) -> Array:
    """How far apart the points of every pair are on a line."""
    xp = namespace(qx)
    return xp.take_along_axis(qx, pairs.ix, axis=-1) - xp.take_along_axis(qy, pairs.iy, axis=-1)


def _weigh(costs: Array, pairs: Pairs) -> Array:
    xp = namespace(costs)
    return xp.sum(pairs.mass * xp.astype(costs, pairs.mass.dtype), axis=-1)


def price_on_lines(
    x: Cloud,
    y: Cloud,
    p: float,
    pairs: Pairs,
    qx: Array,
    qy: Array,
    draw: Draw,
    lines: Directions,
    factor: float,
    wanted: Wanted,
) -> Priced:
    """Price the pairs of every slice by the projections `qx`, `qy` of the same slice on `lines`."""
    scores, slopes, by_weights = _line_slopes(qx, qy, x, y, p, pairs, factor, wanted)
    sides = zip(slopes, wanted, strict=False)
    return scores, (*(lines.adjoint(side, draw.rows) for side, want in sides if want), *by_weights)


def _line_slopes(
    qx: Array, qy: Array, x: Cloud, y: Cloud, p: float, pairs: Pairs, factor: float, wanted: Wanted
) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
    """As :func:`weighted_slopes`, for pairs of any origin."""
    xp = namespace(qx)
    difference = _differences(qx, qy, pairs)
    costs = factor * powered(difference, p)
    by_projections: tuple[Array, ...] = ()
    if wanted[0] or wanted[1]:
        slopes = xp.astype(factor * pairs.mass * powered_slope(difference, p), x.dtype)
        by_projections = _scatter_slopes(slopes, pairs.ix, x.n), _scatter_slopes(-slopes, pairs.iy, y.n)
    return _weigh(costs, pairs), by_projections, _weight_gradients(costs, pairs, x, y, wanted)


weighted_slopes = Operation("weighted_slopes")
"""weighted_slopes(px, py, x, y, p, factor, y_first, wanted) -> scores, slopes, gradients by weights.

`factor` times the costs on the line of weighted clouds, their derivatives by all projections if either of the
first two is wanted, and the gradients of the scores' sum by the weights, as far as wanted. `y_first` is as in
:func:`couple`.
"""


@weighted_slopes.row("numba", lambda px, *_: rows_refusal(px))
def _weighted_slopes_numba(
    px: Array, py: Array, x: Cloud, y: Cloud, p: float, factor: float, y_first: bool, wanted: Wanted
) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
    from orthoslice.kernels.weighted import slope_weighted

    lead, (rows_x, rows_y) = flat_rows(px, py)
    mass_x, mass_y = flat_masses(lead, x, y)
    kinds = any(wanted[:2]), any(wanted[2:])
    scores, slopes, potentials = slope_weighted(rows_x, rows_y, mass_x, mass_y, p, factor, y_first, kinds)
    by_projections = tuple(s.reshape(*lead, -1) for s in slopes) if kinds[0] else ()
    by_weights = (g for g, want in zip(potentials, wanted[2:], strict=True) if want)
    return (
        scores.reshape(lead),
        by_projections,
        tuple(g.reshape(*lead[1:], -1).astype(x.dtype) for g in by_weights),
    )


@weighted_slopes.row("reference", lambda *_: None)
def _weighted_slopes(
    px: Array, py: Array, x: Cloud, y: Cloud, p: float, factor: float, y_first: bool, wanted: Wanted
) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
    return _line_slopes(px, py, x, y, p, couple(px, py, x, y, y_first), factor, wanted)


def _scatter_slopes(slopes: Array, index: Array, n: int) -> Array:
    """Sum `slopes (slices, ..., pairs)` over the pairs of each point: `(slices, ..., n)`."""
    xp = namespace(slopes)
    lead = tuple(slopes.shape[:-1])
    index = flat_index(xp.broadcast_to(index, slopes.shape), lead, n)
    flat = scatter_add(xp.reshape(slopes, (-1,)), xp.reshape(index, (-1,)), math.prod(lead) * n)
    return xp.reshape(flat, (*lead, n))


price_in_space = Operation("price_in_space")
"""price_in_space(x, y, p, pairs, wanted) -> scores (slices, ...), wanted gradients of their sum.

Prices pairs by |x - y|^p; slices x pairs x dim is never held.
"""


def _space_refusal(x: Cloud, y: Cloud, p: float, pairs: Pairs, wanted: Wanted) -> str | None:
    if wanted[2] or wanted[3]:
        return "it gives no gradients by weights"
    if any(a.ndim != 2 for a in (x.points, y.points, pairs.ix, pairs.iy)):
        return "it takes clouds without a batch"
    return None


def _space_host_refusal(x: Cloud, y: Cloud, *rest: Any) -> str | None:
    return _space_refusal(x, y, *rest) or host_refusal(x.points, y.points)


@price_in_space.row("numba", _space_host_refusal)
def _price_in_space_numba(x: Cloud, y: Cloud, p: float, pairs: Pairs, wanted: Wanted) -> Priced:
    from orthoslice.kernels.pairs import price_pairs

    tables = (to_numpy(a) for a in (x.points, y.points, *pairs[:3]))
    scores, gradients = price_pairs(*tables, p=p, wanted=wanted[:2])
    return from_host(scores, x.points), tuple(from_host(g, x.points) for g in gradients)


def _space_triton_refusal(x: Cloud, y: Cloud, *rest: Any) -> str | None:
    return _space_refusal(x, y, *rest) or triton_refusal(x.points, y.points, dtypes=("float32", "float64"))


@price_in_space.row("triton", _space_triton_refusal)
def _price_in_space_triton(x: Cloud, y: Cloud, p: float, pairs: Pairs, wanted: Wanted) -> Priced:
    from orthoslice.kernels.triton_pairs import price_matches

    scores, gradients = price_matches(x.points, y.points, *pairs[:3], p=p, wanted=wanted[:2])
    return scores, gradients


@price_in_space.row("reference", lambda *_: None)
def _price_in_space(x: Cloud, y: Cloud, p: float, pairs: Pairs, wanted: Wanted) -> Priced:
    # A few slices at a time, as many as a core's cache holds.
    xp = namespace(x.points)
    n_pairs = max(pairs.ix.shape[-1], pairs.iy.shape[-1])
    lead = tuple(a if a != 1 else b for a, b in zip(pairs.ix.shape[:-1], pairs.iy.shape[:-1], strict=True))
    ix, iy, mass = (xp.broadcast_to(a, (*lead, n_pairs)) for a in (pairs.ix, pairs.iy, pairs.mass))
    row_items = math.prod(lead[1:]) * n_pairs * x.dim
    step_pairs = max(1, n_pairs * _GATHER_ITEMS // row_items) if row_items > _GATHER_ITEMS else n_pairs

    def step(ix: Array, iy: Array, mass: Array) -> tuple[Array, tuple[Array, ...]]:
        costs: list[Array] = []
        totals: tuple[Array, ...] = ()
        for first in range(0, n_pairs, step_pairs):
            part = (..., slice(first, min(first + step_pairs, n_pairs)))
            difference = gather_points(x.points, ix[part]) - gather_points(y.points, iy[part])
            costs.append(powered_norm(difference, p))
            if wanted[0] or wanted[1]:
                pull = _pulls(difference, mass[part], p)
                new = tuple(
                    _scatter_pulls(sign * pull, index[part], n)
                    for sign, index, n, want in ((1, ix, x.n, wanted[0]), (-1, iy, y.n, wanted[1]))
                    if want
                )
                totals = add_totals(totals, new)
        return (costs[0] if len(costs) == 1 else xp.concat(costs, axis=-1)), totals

    costs, gradients = map_sum(step, (ix, iy, mass), max(1, _GATHER_ITEMS // row_items))
    return _weigh(costs, pairs), (*gradients, *_weight_gradients(costs, pairs, x, y, wanted))


def _pulls(difference: Array, mass: Array, p: float) -> Array:
    """The gradient of `mass * |difference|^p` by the difference, 0 where points coincide."""
    xp = namespace(difference)
    pull = xp.astype(mass, difference.dtype)[..., None] * p * difference
    if p == 2:
        return pull
    square = xp.sum(difference * difference, axis=-1, keepdims=True)
    apart = square != 0
    safe = xp.where(apart, square, xp.ones_like(square))
    return xp.where(apart, pull * safe ** (p / 2 - 1), xp.zeros_like(pull))


def _scatter_pulls(pulls: Array, index: Array, n: int) -> Array:
    """Sum `pulls (slices, ..., pairs, dim)` over slices and the pairs of each point: `(..., n, dim)`."""
    xp = namespace(pulls)
    batch, dim = tuple(pulls.shape[1:-2]), pulls.shape[-1]
    index = flat_index(index, batch, n)
    flat = scatter_add(xp.reshape(pulls, (-1, dim)), xp.reshape(index, (-1,)), math.prod(batch) * n)
    return xp.reshape(flat, (*batch, n, dim))


def price_in_pool(
    x: Cloud, y: Cloud, p: float, pairs: Pairs, draw: Draw, factor: float, wanted: Wanted
) -> Priced:
    """Price pairs by their mean over a pool: all rows drawn but those of the coupling's own block.

    With `block_rows` 0 nobody is left out. The pool is projected a few rows at a time.
    """
    xp = namespace(x.points)
    share = factor * _pool_shares(draw, x)
    moves = wanted[0] or wanted[1]

    def step(qx: Array, qy: Array, share: Array) -> tuple[Array, tuple[Array, ...]]:
        difference = _differences(qx, qy, pairs)
        weight = xp.reshape(share, (-1, *(1,) * (pairs.ix.ndim - 1)))
        if not moves:
            return share[:, :1], (weight * powered(difference, p),)
        slopes = xp.astype(weight * pairs.mass * powered_slope(difference, p), x.dtype)
        both = (_scatter_slopes(slopes, pairs.ix, x.n), _scatter_slopes(-slopes, pairs.iy, y.n))
        return xp.sum(xp.concat(both, axis=-1), axis=0, keepdims=True), (weight * powered(difference, p),)

    costs, gradients = None, ()
    for first in range(0, draw.n_rows, draw.chunk_rows):
        rows = slice(first, min(first + draw.chunk_rows, draw.n_rows))
        qx, qy = (draw.directions.project(c.points, rows) for c in (x, y))
        slopes, (part,) = map_sum(step, (qx, qy, share[rows, :]), 1)
        costs = part if costs is None else costs + part
        if moves:
            sides = ((slopes[..., : x.n], wanted[0]), (slopes[..., x.n :], wanted[1]))
            gradients = add_totals(
                gradients, tuple(draw.directions.adjoint(s, rows) for s, want in sides if want)
            )
    return _weigh(costs, pairs), (*gradients, *_weight_gradients(costs, pairs, x, y, wanted))


def _pool_shares(draw: Draw, x: Cloud) -> Array:
    """What each row of the pool contributes to each coupling, `(pool, slices)`: columns sum to 1."""
    xp = namespace(x.points)
    everyone = xp.arange(draw.n_rows, device=device(x.points))
    own = everyone[draw.rows] if isinstance(draw.rows, slice) else draw.rows
    if draw.block_rows == 0:
        allowed = xp.ones((draw.n_rows, own.shape[0]), dtype=x.dtype, device=device(x.points))
    else:
        apart = everyone[:, None] // draw.block_rows != own[None, :] // draw.block_rows
        allowed = xp.astype(apart, x.dtype)
    return allowed / xp.sum(allowed, axis=0, keepdims=True)


def _weight_gradients(costs: Array, pairs: Pairs, x: Cloud, y: Cloud, wanted: Wanted) -> tuple[Array, ...]:
    """Gradients of the scores' sum by the weights, as far as wanted: `(..., n)` and `(..., m)`.

    Moving mass moves the ends of the merged quantiles, so the slope is a difference of costs along the path
    of pairs: for sliced scores it is the Kantorovich potential. It is defined up to a constant, since weights
    sum to 1, and given with mean 0.
    """
    if not (wanted[2] or wanted[3]):
        return ()
    assert pairs.ends_x is not None
    xp = namespace(costs)
    costs = xp.astype(costs, pairs.mass.dtype)
    rise = xp.diff(costs, axis=-1)
    gradients = []
    for want, ends, index, n in (
        (wanted[2], pairs.ends_x, pairs.ix, x.n),
        (wanted[3], ~pairs.ends_x, pairs.iy, y.n),
    ):
        if want:
            steps = xp.where(ends[..., :-1], rise, xp.zeros_like(rise))
            height = xp.cumulative_sum(steps, axis=-1, include_initial=True)
            at_ends = xp.where(ends, height, xp.zeros_like(height))
            potential = _scatter_slopes(at_ends, index, n)
            potential = potential - xp.mean(potential, axis=-1, keepdims=True)
            gradients.append(xp.astype(xp.sum(potential, axis=0), x.dtype))
    return tuple(gradients)
