"""Costs of pairs in full space, and how they change with the points."""

from __future__ import annotations

import math
from typing import Any

from orthoslice.backend.arrays import (
    Array,
    Operation,
    PlainWork,
    Wanted,
    add_totals,
    map_sum,
    namespace,
    scatter_add,
    to_numpy,
)
from orthoslice.backend.arrays.operations import from_host, host_refusal
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.kernels.cuda.space import price_matches
from orthoslice.clouds.canonical import flat_index, gather_points
from orthoslice.clouds.mapped import stored_points
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.draw import Priced
from orthoslice.costs.lines import weigh
from orthoslice.costs.weighted import weight_gradients
from orthoslice.couplings.coupling import Pairs, powered_norm

# About the size of a core's cache: larger gathers are slower, not faster.
_GATHER_ITEMS = 1 << 18


price_in_space: Operation[Priced] = Operation("price_in_space")
"""price_in_space(x, y, p, pairs, wanted) -> scores (slices, ...), wanted gradients of their sum.

Prices pairs by |x - y|^p; slices x pairs x dim is never held.
"""


def _space_refusal(x: ReadyCloud, y: ReadyCloud, p: float, pairs: Pairs, wanted: Wanted) -> str | None:
    if wanted[2] or wanted[3]:
        return "it gives no gradients by weights"
    if any(a.ndim != 2 for a in (x.points, y.points, pairs.ix, pairs.iy)):
        return "it takes clouds without a batch"
    return None


def _space_host_refusal(x: ReadyCloud, y: ReadyCloud, *rest: Any) -> str | None:
    return _space_refusal(x, y, *rest) or host_refusal(x.points, y.points)


def _space_work(x: ReadyCloud, y: ReadyCloud, p: float, pairs: Pairs, wanted: Wanted) -> PlainWork:
    numbers = max(math.prod(i.shape) for i in (pairs.ix, pairs.iy)) * x.dim
    return PlainWork.of(x.points[:1, :1], times=numbers * (2 if any(wanted) else 0.2))


@price_in_space.implementation("numba", _space_host_refusal, plain_work=_space_work)
def _price_in_space_numba(x: ReadyCloud, y: ReadyCloud, p: float, pairs: Pairs, wanted: Wanted) -> Priced:
    from orthoslice.backend.kernels.numba.pairs import price_pairs

    ix, iy, mass = (to_numpy(a) for a in pairs[:3])
    (points_x, order_x), (points_y, order_y) = (stored_points(c.points) for c in (x, y))
    ix, iy = (i if order is None else order[i] for i, order in ((ix, order_x), (iy, order_y)))
    tables = to_numpy(points_x), to_numpy(points_y)
    scores, gradients = price_pairs(*tables, ix, iy, mass, p=p, wanted=wanted[:2])
    orders = (order for order, want in zip((order_x, order_y), wanted, strict=False) if want)
    by_row = (g if order is None else g[order] for g, order in zip(gradients, orders, strict=True))
    return from_host(scores, x.points), tuple(from_host(g, x.points) for g in by_row)


def _space_cuda_refusal(x: ReadyCloud, y: ReadyCloud, *rest: Any) -> str | None:
    if x.points.dtype != y.points.dtype:
        return f"it takes clouds of one type, not {x.points.dtype} and {y.points.dtype}"
    return _space_refusal(x, y, *rest) or cuda_refusal(x.points, y.points, dtype=("float32", "float64"))


@price_in_space.implementation("cuda", _space_cuda_refusal)
def _price_in_space_cuda(x: ReadyCloud, y: ReadyCloud, p: float, pairs: Pairs, wanted: Wanted) -> Priced:
    scores, gradients = price_matches(x.points, y.points, *pairs[:3], p=p, wanted=wanted[:2])
    return scores, gradients


@price_in_space.implementation("reference", lambda *_: None)
def _price_in_space(x: ReadyCloud, y: ReadyCloud, p: float, pairs: Pairs, wanted: Wanted) -> Priced:
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
    return weigh(costs, pairs), (*gradients, *weight_gradients(costs, pairs, x, y, wanted))


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
