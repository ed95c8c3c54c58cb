"""Costs of pairs on lines, and how they change with projections and with weights."""

from __future__ import annotations

import math
from typing import Any, cast

from orthoslice.backend.arrays import Array, Operation, PlainWork, Tensor, Wanted, at_rank, detach, namespace
from orthoslice.backend.kernels import rows_refusal
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.draw import Draw, Priced
from orthoslice.costs.lines import (
    SCORES_BYTES,
    SLOPES_BYTES,
    cuda_rows_refusal,
    differences,
    powered,
    powered_slope,
    scatter_slopes,
    weigh,
)
from orthoslice.couplings.coupling import Pairs, couple, coupling_bytes, flat_masses, flat_rows, meeting_slack
from orthoslice.directions.base import Directions


def price_on_lines(
    x: ReadyCloud,
    y: ReadyCloud,
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
    moved = (lines.adjoint(side, draw.rows) for side, want in zip(slopes, wanted, strict=False) if want)
    return scores, (*(namespace(qx).astype(g, x.dtype) for g in moved), *by_weights)


def _line_slopes(
    qx: Array, qy: Array, x: ReadyCloud, y: ReadyCloud, p: float, pairs: Pairs, factor: float, wanted: Wanted
) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
    """As :func:`weighted_slopes`, for pairs of any origin."""
    xp = namespace(qx)
    difference = differences(qx, qy, pairs)
    costs = factor * powered(difference, p)
    by_projections: tuple[Array, ...] = ()
    if wanted[0] or wanted[1]:
        mass = at_rank(pairs.mass, difference.ndim)
        slopes = xp.astype(factor * mass * powered_slope(difference, p), qx.dtype)
        by_projections = scatter_slopes(slopes, pairs.ix, x.n), scatter_slopes(-slopes, pairs.iy, y.n)
    return weigh(costs, pairs), by_projections, weight_gradients(costs, pairs, x, y, wanted)


weighted_slopes: Operation[tuple[Array, tuple[Array, ...], tuple[Array, ...]]] = Operation("weighted_slopes")
"""weighted_slopes(px, py, x, y, p, factor, other_side, wanted) -> scores, slopes, gradients by weights.

`factor` times the costs on the line of weighted clouds, their derivatives by all projections if either of the
first two is wanted, and the gradients of the scores' sum by the weights, as far as wanted. `other_side` is as
in :func:`couple`.
"""


def _kernel_bytes(px: Array, py: Array, *rest: Any) -> int:
    *_, wanted = rest
    return (SLOPES_BYTES if any(wanted) else SCORES_BYTES)(px, py)


@weighted_slopes.implementation(
    "numba",
    lambda px, *_: rows_refusal(px),
    row_bytes=_kernel_bytes,
    plain_work=lambda px, py, *_: PlainWork.of(px, py, times=4),
)
def _weighted_slopes_numba(
    px: Array,
    py: Array,
    x: ReadyCloud,
    y: ReadyCloud,
    p: float,
    factor: float,
    other_side: bool,
    wanted: Wanted,
) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
    from orthoslice.backend.kernels.numba.weighted import slope_weighted

    lead, (rows_x, rows_y) = flat_rows(px, py)
    mass_x, mass_y = flat_masses(lead, x, y)
    kinds = any(wanted[:2]), any(wanted[2:])
    slack = meeting_slack(x, y) if other_side else None
    scores, slopes, potentials = slope_weighted(rows_x, rows_y, mass_x, mass_y, p, factor, slack, kinds)
    by_projections = tuple(s.reshape(*lead, -1) for s in slopes) if kinds[0] else ()
    by_weights = (g for g, want in zip(potentials, wanted[2:], strict=True) if want)
    return (
        scores.reshape(lead),
        by_projections,
        tuple(g.reshape(*lead[1:], -1).astype(x.dtype) for g in by_weights),
    )


def _cuda_refusal(px: Array, py: Array, *rest: Any) -> str | None:
    *_, wanted = rest
    if any(wanted[2:]):
        return "it gives no gradients by weights"
    return cuda_rows_refusal(px, py)


@weighted_slopes.implementation("cuda", _cuda_refusal, row_bytes=lambda px, py, *_: SLOPES_BYTES(px, py))
def _weighted_slopes_cuda(
    px: Tensor,
    py: Tensor,
    x: ReadyCloud,
    y: ReadyCloud,
    p: float,
    factor: float,
    other_side: bool,
    wanted: Wanted,
) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
    from orthoslice.backend.kernels.cuda.weighted import match_weighted, scale_weights

    lead, xp = px.shape[:-1], namespace(px)
    rows_x, rows_y = (q.reshape(-1, q.shape[-1]) for q in (px, py))
    own = [
        None if c.weights is None else cast(Tensor, xp.broadcast_to(detach(c.weights), (*lead[1:], c.n)))
        for c in (x, y)
    ]
    # They were checked before, and those that are unsound are NaN.
    weights = scale_weights(own[0], own[1], (math.inf, math.inf), px)
    slopes_wanted = any(wanted[:2])
    scores, *slopes = match_weighted(rows_x, rows_y, weights, p, factor, (slopes_wanted, slopes_wanted))
    by_projections = tuple(s.reshape(q.shape) for s, q in zip(slopes, (px, py), strict=True) if slopes_wanted)
    return scores.reshape(lead), by_projections, ()


@weighted_slopes.implementation(
    "reference", lambda *_: None, row_bytes=lambda px, py, x, y, *_: coupling_bytes(x, y)
)
def _weighted_slopes(
    px: Array,
    py: Array,
    x: ReadyCloud,
    y: ReadyCloud,
    p: float,
    factor: float,
    other_side: bool,
    wanted: Wanted,
) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
    return _line_slopes(px, py, x, y, p, couple(px, py, x, y, other_side), factor, wanted)


def weight_gradients(
    costs: Array, pairs: Pairs, x: ReadyCloud, y: ReadyCloud, wanted: Wanted
) -> tuple[Array, ...]:
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
