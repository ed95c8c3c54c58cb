"""The sliced loss of a training step on an NVIDIA GPU, in as few launches as it takes.

The reference is `orthoslice.pricing.sorted_scores`, averaged over the rows of `theta`.
"""

from __future__ import annotations

import sys
from typing import Any

from orthoslice.kernels.cuda.rows import (
    LONGEST_ON_CHIP,
    Sorted,
    add_up,
    gather_slopes,
    match_points,
    match_rows,
    match_sorted,
    sort_rows,
)

# Bytes that the directions together read from the outer cache where each projects for itself: with more, two
# matrix products are faster than none.
_WORTH_FUSING = 1 << 26

# Working memory a number: the projection, its sorted copy and its place, and the slope.
_BYTES = 16


def sliced_loss(
    x: Any,
    y: Any,
    theta: Any,
    target: Sorted | None,
    p: float,
    wanted: tuple[bool, bool],
    memory: int,
    step: Any,
) -> tuple[Any, tuple[Any, Any]]:
    """Mean over `theta (slices, dim)` of the costs on the line of `x (n, dim)` and `y (m, dim)`.

    With a `target`, that is `y` projected and sorted. Returns a float32 scalar and the wanted gradients, None
    for the others; adds 1 to an int64 `step` unless it is None.
    """
    n, m, slices = x.shape[0], y.shape[0], theta.shape[0]
    factor = 1 / slices
    fused = 8 * slices * n * x.shape[1] <= _WORTH_FUSING
    if n == m <= LONGEST_ON_CHIP and fused and target is None:
        matched = match_points(x, y, theta, p, factor, wanted)
        value = add_up(matched.scores, step)
        return value, gather_slopes(matched, theta) if any(wanted) else (None, None)
    at_once = max(1, memory // (_BYTES * (n + m)))
    parts, gradients = [], [None, None]
    for first in range(0, slices, at_once):
        rows = slice(first, first + at_once)
        px = theta[rows] @ x.T
        if target is None:
            matched = match_rows(px, theta[rows] @ y.T, p, factor, wanted)
        else:
            known = Sorted(target.keys[rows], None)
            matched = match_sorted(sort_rows(px, wanted[0]), known, p, factor, wanted)
        parts.append(matched.scores)
        for k, slopes in enumerate(matched[1:]):
            if wanted[k]:
                gradients[k] = _carry_back(gradients[k], slopes, theta[rows])
    scores = parts[0] if len(parts) == 1 else sys.modules["torch"].cat(parts)
    return add_up(scores, step), (gradients[0], gradients[1])


def _carry_back(total: Any, slopes: Any, theta: Any) -> Any:
    return slopes.T @ theta if total is None else total.addmm_(slopes.T, theta)


def sort_target(y: Any, theta: Any) -> Sorted:
    """A target that stays as it is, projected on directions that do too, and sorted: once for all steps."""
    return sort_rows(theta @ y.T, places=False)
