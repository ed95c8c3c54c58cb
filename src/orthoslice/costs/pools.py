"""Costs of pairs on the lines of other directions: E|<theta, x - y>|^p = E|theta_1|^p |x - y|^p."""

from __future__ import annotations

from typing import Any

from orthoslice.backend.arrays import Array, Wanted, add_totals, at_rank, device, map_sum, namespace
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.draw import Draw, Priced
from orthoslice.costs.lines import differences, powered, powered_slope, scatter_slopes, weigh
from orthoslice.costs.weighted import weight_gradients
from orthoslice.couplings.coupling import Pairs
from orthoslice.directions.spheres import mean_power, mean_shortening

__all__ = ["mean_power", "mean_shortening", "price_in_pool"]


def price_in_pool(
    x: ReadyCloud, y: ReadyCloud, p: float, pairs: Pairs, draw: Draw, factor: float, wanted: Wanted
) -> Priced:
    """Price pairs by their mean over a pool: all rows drawn but those of the coupling's own block.

    With `block_rows` 0 no row is left out. The pool is projected a few rows at a time.
    """
    xp = namespace(x.points)
    share = factor * _pool_shares(draw, x)
    moves = wanted[0] or wanted[1]

    def step(qx: Array, qy: Array, share: Array) -> tuple[Array, tuple[Array, ...]]:
        difference = differences(qx, qy, pairs)
        weight = xp.reshape(share, (-1, *(1,) * (pairs.ix.ndim - 1)))
        if not moves:
            return share[:, :1], (weight * powered(difference, p),)
        mass = at_rank(pairs.mass, difference.ndim)
        slopes = xp.astype(weight * mass * powered_slope(difference, p), qx.dtype)
        both = (scatter_slopes(slopes, pairs.ix, x.n), scatter_slopes(-slopes, pairs.iy, y.n))
        return xp.sum(xp.concat(both, axis=-1), axis=0, keepdims=True), (weight * powered(difference, p),)

    costs: Any
    gradients: tuple[Array, ...]
    costs, gradients = None, ()
    for first in range(0, draw.n_rows, draw.chunk_rows):
        rows = slice(first, min(first + draw.chunk_rows, draw.n_rows))
        qx, qy = (c.project(draw.directions, rows, widely=True) for c in (x, y))
        slopes, (part,) = map_sum(step, (qx, qy, share[rows, :]), 1)
        costs = part if costs is None else costs + part
        if moves:
            sides = ((slopes[..., : x.n], wanted[0]), (slopes[..., x.n :], wanted[1]))
            gradients = add_totals(
                gradients,
                tuple(xp.astype(draw.directions.adjoint(s, rows), x.dtype) for s, want in sides if want),
            )
    return weigh(costs, pairs), (*gradients, *weight_gradients(costs, pairs, x, y, wanted))


def _pool_shares(draw: Draw, x: ReadyCloud) -> Array:
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
