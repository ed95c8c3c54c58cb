"""The sliced loss of a training step on an NVIDIA GPU, in as few launches as it takes.

The reference is `orthoslice.pricing.sorted_scores`, averaged over the rows of `theta`.
"""

from __future__ import annotations

import sys
from typing import Any

from orthoslice.kernels.cuda.rows import (
    LONGEST_ON_CHIP,
    Matched,
    Sorted,
    add_up,
    gather_slopes,
    match_points,
    match_rows,
    match_sorted,
    project_both,
    sort_rows,
)

# Multiplications of a step (slices x points x dim, both clouds) up to which it pays to project in the kernel that
# sorts, where every direction reads the clouds again, and to make all products in one launch of our own.
_PROJECT_INSIDE = 1 << 24
_PROJECT_AT_ONCE = 1 << 29

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
    x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
    (n, dim), m, slices = x.shape, y.shape[0], theta.shape[0]
    at_once = max(1, memory // (_BYTES * (n + m)))
    small = slices * (n + m) * dim <= _PROJECT_AT_ONCE
    parts: list[Any] = []
    gradients: tuple[Any, Any] = (None, None)
    for first in range(0, slices, at_once):
        part = slice(first, first + at_once)
        rows = theta if at_once >= slices else theta[part]
        known = None if target is None else Sorted(target.keys[part], None)
        matched = _match(x, y, rows, known, p, 1 / slices, wanted, small)
        parts.append(matched.scores)
        if any(wanted):
            gradients = _carry_back(gradients, matched, rows, small)
    scores = parts[0] if len(parts) == 1 else sys.modules["torch"].cat(parts)
    return add_up(scores, step), gradients


def _match(
    x: Any,
    y: Any,
    theta: Any,
    target: Sorted | None,
    p: float,
    factor: float,
    wanted: tuple[bool, bool],
    small: bool,
) -> Matched:
    if target is not None:
        return match_sorted(sort_rows(theta @ x.T, wanted[0]), target, p, factor, wanted)
    if (
        x.shape == y.shape
        and x.shape[0] <= LONGEST_ON_CHIP
        and 2 * theta.shape[0] * x.numel() <= _PROJECT_INSIDE
    ):
        return match_points(x, y, theta, p, factor, wanted)
    px, py = project_both(x, y, theta) if small else (theta @ x.T, theta @ y.T)
    return match_rows(px, py, p, factor, wanted)


def _carry_back(totals: tuple[Any, Any], matched: Matched, theta: Any, small: bool) -> tuple[Any, Any]:
    """Gradients by the points, added to those of directions before."""
    if small and totals == (None, None):
        return gather_slopes(matched, theta)
    first, second = (
        None if slopes is None else slopes.T @ theta if total is None else total.addmm_(slopes.T, theta)
        for total, slopes in zip(totals, matched[1:], strict=True)
    )
    return first, second


def sort_target(y: Any, theta: Any) -> Sorted:
    """A target that stays as it is, projected on directions that do too, and sorted: once for all steps."""
    return sort_rows(theta @ y.T, places=False)
