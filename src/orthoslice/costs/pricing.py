"""What pairs cost and how that changes with the clouds: on lines with weights, in full space, in pools."""

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
)
from orthoslice.arrays.operations import from_host, host_refusal
from orthoslice.cloud import Cloud
from orthoslice.costs.lines import differences, powered, powered_slope, scatter_slopes, weigh
from orthoslice.coupling import (
    Pairs,
    couple,
    flat_index,
    flat_masses,
    flat_rows,
    gather_points,
    powered_norm,
)
from orthoslice.directions.base import Directions
from orthoslice.kernels import rows_refusal, triton_refusal

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
    is_basis: bool
    """Whether whole blocks are orthonormal bases."""
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
    difference = differences(qx, qy, pairs)
    costs = factor * powered(difference, p)
    by_projections: tuple[Array, ...] = ()
    if wanted[0] or wanted[1]:
        slopes = xp.astype(factor * pairs.mass * powered_slope(difference, p), x.dtype)
        by_projections = scatter_slopes(slopes, pairs.ix, x.n), scatter_slopes(-slopes, pairs.iy, y.n)
    return weigh(costs, pairs), by_projections, _weight_gradients(costs, pairs, x, y, wanted)


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
    from orthoslice.kernels.numba.weighted import slope_weighted

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
    from orthoslice.kernels.numba.pairs import price_pairs

    tables = (to_numpy(a) for a in (x.points, y.points, *pairs[:3]))
    scores, gradients = price_pairs(*tables, p=p, wanted=wanted[:2])
    return from_host(scores, x.points), tuple(from_host(g, x.points) for g in gradients)


def _space_triton_refusal(x: Cloud, y: Cloud, *rest: Any) -> str | None:
    return _space_refusal(x, y, *rest) or triton_refusal(x.points, y.points, dtypes=("float32", "float64"))


@price_in_space.row("triton", _space_triton_refusal)
def _price_in_space_triton(x: Cloud, y: Cloud, p: float, pairs: Pairs, wanted: Wanted) -> Priced:
    from orthoslice.kernels.triton.pairs import price_matches

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
    return weigh(costs, pairs), (*gradients, *_weight_gradients(costs, pairs, x, y, wanted))


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
        difference = differences(qx, qy, pairs)
        weight = xp.reshape(share, (-1, *(1,) * (pairs.ix.ndim - 1)))
        if not moves:
            return share[:, :1], (weight * powered(difference, p),)
        slopes = xp.astype(weight * pairs.mass * powered_slope(difference, p), x.dtype)
        both = (scatter_slopes(slopes, pairs.ix, x.n), scatter_slopes(-slopes, pairs.iy, y.n))
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
    return weigh(costs, pairs), (*gradients, *_weight_gradients(costs, pairs, x, y, wanted))


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
            potential = scatter_slopes(at_ends, index, n)
            potential = potential - xp.mean(potential, axis=-1, keepdims=True)
            gradients.append(xp.astype(xp.sum(potential, axis=0), x.dtype))
    return tuple(gradients)
