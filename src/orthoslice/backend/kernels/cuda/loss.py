"""The sliced loss of a training step on an NVIDIA GPU, in as few launches as it takes.

The reference is `orthoslice.costs.lines.sorted_scores`, averaged over the rows of `theta`.
"""

from __future__ import annotations

import math
import sys

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda.merge import Matched
from orthoslice.backend.kernels.cuda.middle import MiddleStep
from orthoslice.backend.kernels.cuda.products import add_product, product
from orthoslice.backend.kernels.cuda.rows import (
    FEW_COORDINATES,
    MOST_CENTRED,
    Sorted,
    add_up,
    finish_step,
    gather_few,
    longest_on_chip,
    match_points,
    match_projected,
    match_rows,
    match_sorted,
    move_clouds,
    numbers_a_thread,
    project_few,
    sort_rows,
)
from orthoslice.backend.kernels.cuda.small import SmallDistance, SmallStep
from orthoslice.backend.kernels.cuda.weighted import (
    MOST_PROJECTED,
    ScaledWeights,
    WeightedStep,
    match_long,
    match_weighted,
    sort_long,
)

# Up to _PROJECT_INSIDE multiplications a step (slices x points x dim) and _PROJECT_BY_THREAD a thread, the
# kernel that sorts also projects, though every direction then reads the clouds again. Up to _PROJECT_AT_ONCE a
# step, one launch of our own makes both products.
_PROJECT_INSIDE = 1 << 24
_PROJECT_BY_THREAD = 512
_PROJECT_AT_ONCE = 1 << 30

# The same for batches, whose projections by the library have to be brought into another order.
_PROJECT_BATCH = 1 << 34

# Numbers of a cloud up to which both clouds are sorted at once.
_SORT_AT_ONCE = 1 << 23

BYTES_A_NUMBER = 16
"""Working memory: the projection, its sorted copy and its place, and the slope."""

BYTES_DEALT = 18
"""Without slopes: the projection, its sorted copy, and slots with room for more than twice as many."""

BYTES_A_WEIGHTED_NUMBER = 20
"""The same with the mass up to it, which takes the room of the projection and of what was sorted with it."""

# The library multiplies matrices of other numbers of rows more slowly.
_ROWS_AT_ONCE = 8


def sliced_loss(
    x: Tensor,
    y: Tensor,
    theta: Tensor,
    target: Sorted | None,
    p: float,
    wanted: tuple[bool, bool],
    memory: int,
    step: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Mean over `theta (slices, dim)` of the costs on the line of `x (n, dim)` and `y (m, dim)`.

    With a `target`, that is `y` projected and sorted. Returns a float32 scalar and the wanted gradients, one
    below the other, `(rows, dim)`, or None; adds 1 to an int64 `step` unless it is None.
    """
    x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
    (n, dim), m, slices = x.shape, y.shape[0], theta.shape[0]
    # Parts of equal size, each of which fits `memory`.
    parts = -(-slices // max(1, memory // ((BYTES_A_NUMBER if any(wanted) else BYTES_DEALT) * (n + m))))
    if parts > 1 or slices * (n + m) * dim > _PROJECT_AT_ONCE:
        return _large_sliced_loss(x, y, theta.split(-(-slices // parts)), target, p, wanted, step)
    if target is None:
        matched = match_clouds(x, y, theta, p, 1 / slices, wanted)
    else:
        moved = move_clouds(x, y, _whose_centre(x, y, target))
        matched = _match_moved(*moved, theta, target.keys, p, 1 / slices, wanted)
    if wanted[0] or wanted[1]:
        return finish_step(matched, theta, step)
    return add_up(matched.scores, step), None


def weighted_loss(
    x: Tensor,
    y: Tensor,
    theta: Tensor,
    weights: ScaledWeights,
    p: float,
    wanted: tuple[bool, bool],
    memory: int,
    step: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """As :func:`sliced_loss`, for weighted points."""
    x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
    # Without slopes a number takes as much as one without a weight.
    bytes_a_number = BYTES_A_WEIGHTED_NUMBER if any(wanted) else BYTES_DEALT
    most = max(1, memory // (bytes_a_number * (x.shape[0] + y.shape[0])))
    rows = -(-theta.shape[0] // -(-theta.shape[0] // most))
    if rows > _ROWS_AT_ONCE:
        rows = min(most // _ROWS_AT_ONCE, -(-rows // _ROWS_AT_ONCE)) * _ROWS_AT_ONCE
    return _large_sliced_loss(x, y, theta.split(rows), None, p, wanted, step, weights)


def small_weighted_step(x: Tensor, y: Tensor, slices: int, p: float, memory: int) -> WeightedStep | None:
    """The same for weighted clouds of these shapes, ready to be repeated, if they are small."""
    (n, dim), m, device = x.shape, y.shape[0], x.get_device()
    inside = max(n, m) <= MOST_PROJECTED and _projects_inside(x if n > m else y, slices)
    if (
        max(n, m) > longest_on_chip(device)
        or (dim > MOST_CENTRED and not inside)
        or slices * (n + m) * dim > _PROJECT_AT_ONCE
        or BYTES_A_WEIGHTED_NUMBER * slices * (n + m) > memory
    ):
        return None
    return WeightedStep(device, slices, n, m, dim, p, inside)


def small_step(
    x: Tensor, y: Tensor, slices: int, p: float, memory: int
) -> SmallStep | MiddleStep | WeightedStep | None:
    """The same for clouds of these shapes without a target, ready to be repeated, unless they are large."""
    (n, dim), m, device = x.shape, y.shape[0], x.get_device()
    if n != m:
        return small_weighted_step(x, y, slices, p, memory)
    work = 2 * slices * n * dim
    if work > _PROJECT_AT_ONCE or 2 * BYTES_A_NUMBER * slices * n > memory:
        return None
    if n > longest_on_chip(device):
        is_middle = dim <= MOST_CENTRED and slices * n <= min(_SORT_AT_ONCE, memory // (2 * BYTES_DEALT))
        return MiddleStep(device, n, dim, slices, p) if is_middle else None
    inside = _projects_inside(x, slices)
    return SmallStep(device, n, dim, slices, p, inside) if inside or dim <= MOST_CENTRED else None


def is_small_distance(x: Tensor, y: Tensor, slices: int, memory: int) -> bool:
    """Whether :func:`small_distance` takes pairs of clouds of these shapes `(..., n, dim)`."""
    *batch, n, dim = x.shape
    rows = slices * math.prod(batch)
    if x.shape != y.shape or n > longest_on_chip(x.get_device()) or 8 * rows * (n + 1) > memory:
        return False
    most = _PROJECT_BATCH if batch else _PROJECT_AT_ONCE
    return bool(2 * rows * n * dim <= most and (dim <= MOST_CENTRED or _projects_inside(x, slices)))


def small_distance(x: Tensor, slices: int, p: float) -> SmallDistance:
    """Distances of pairs of clouds shaped like `x`, and what every direction costs, as :func:`small_step`."""
    *batch, n, dim = x.shape
    return SmallDistance(x.get_device(), n, dim, slices, p, _projects_inside(x, slices), tuple(batch))


def _projects_inside(x: Tensor, slices: int) -> bool:
    """Whether the kernel that sorts clouds of this size on chip should also project them."""
    n, dim = map(int, x.shape[-2:])
    return 2 * slices * x.numel() <= _PROJECT_INSIDE and numbers_a_thread(n) * dim <= _PROJECT_BY_THREAD


def _large_sliced_loss(
    x: Tensor,
    y: Tensor,
    parts: tuple[Tensor, ...],
    target: Sorted | None,
    p: float,
    wanted: tuple[bool, bool],
    step: Tensor | None,
    weights: ScaledWeights | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The same, some directions at a time, with products left to the library."""
    sizes = [theta.shape[0] for theta in parts]
    known = [None] * len(parts) if target is None else target.keys.split(sizes)
    moved = move_clouds(x, y, _whose_centre(x, y, target))
    scores: list[Tensor] = []
    gradient = None
    for theta, keys in zip(parts, known, strict=True):
        matched = _match_moved(*moved, theta, keys, p, 1 / sum(sizes), wanted, weights)
        scores.append(matched.scores)
        if any(wanted):
            gradient = _carry_back(gradient, matched, theta)
    return add_up(scores[0] if len(parts) == 1 else sys.modules["torch"].cat(scores), step), gradient


def _whose_centre(x: Tensor, y: Tensor, target: Sorted | None) -> Tensor:
    """The cloud that sets the origin of both: `x`, or `y` where a sorted target was moved by its own centre."""
    return x if target is None else y


def match_clouds(
    x: Tensor, y: Tensor, theta: Tensor, p: float, factor: float, wanted: tuple[bool, bool]
) -> Matched:
    """Project contiguous clouds and match them by order, whichever way is quickest for their size."""
    if x.shape[0] == y.shape[0] <= longest_on_chip(x.get_device()):
        if _projects_inside(x, theta.shape[0]):
            return match_points(x, y, theta, p, factor, wanted)
        if 2 * theta.shape[0] * x.numel() <= _PROJECT_AT_ONCE and x.shape[1] <= MOST_CENTRED:
            return match_projected(x, y, theta, p, factor, wanted)
    return _match_moved(*move_clouds(x, y, x), theta, None, p, factor, wanted)


def _match_moved(
    x: Tensor,
    y: Tensor,
    theta: Tensor,
    target_keys: Tensor | None,
    p: float,
    factor: float,
    wanted: tuple[bool, bool],
    weights: ScaledWeights | None = None,
) -> Matched:
    """The same for clouds that are moved to the origin, with products left to the library."""
    if weights is not None and max(x.shape[0], y.shape[0]) <= longest_on_chip(x.get_device()):
        return match_weighted(product(theta, x.T), product(theta, y.T), weights, p, factor, wanted)
    if weights is not None:
        # As below, projections are freed once sorted.
        own_x, own_y = (sort_long(_project(c, theta), weights, k, wanted[k]) for k, c in enumerate((x, y)))
        return match_long(own_x, own_y, weights, p, factor, wanted)
    if target_keys is None and x.shape[0] == y.shape[0] <= longest_on_chip(x.get_device()):
        return match_rows(product(theta, x.T), product(theta, y.T), p, factor, wanted)
    if target_keys is None and wanted[0] == wanted[1] and _sorts_at_once(x, y, theta, wanted[0]):
        keys, places = sort_rows(_project_pair(x, y, theta), wanted[0])
        known = places.chunk(2) if wanted[0] else (None, None)
        px, py = map(Sorted, keys.chunk(2), known)
        return match_sorted(px, py, p, factor, wanted)
    # Projections are freed once sorted: those of both clouds are never in memory together.
    px = sort_rows(_project(x, theta), wanted[0])
    py = Sorted(target_keys, None) if target_keys is not None else sort_rows(_project(y, theta), wanted[1])
    return match_sorted(px, py, p, factor, wanted)


def _project(cloud: Tensor, theta: Tensor) -> Tensor:
    """Projections `(slices, n)` of a cloud that is moved to the origin."""
    if cloud.shape[1] <= FEW_COORDINATES:
        return project_few((cloud,), theta)[0]
    return product(theta, cloud.T)


def _project_pair(x: Tensor, y: Tensor, theta: Tensor) -> Tensor:
    """Projections of two clouds of one shape, `(2 slices, n)`."""
    if x.shape[1] <= FEW_COORDINATES:
        return project_few((x, y), theta).flatten(0, 1)
    both = x.new_empty((2 * theta.shape[0], x.shape[0]))
    for cloud, rows in zip((x, y), both.chunk(2), strict=True):
        add_product(rows, theta, cloud.T, is_first=True)
    return both


def _sorts_at_once(x: Tensor, y: Tensor, theta: Tensor, places: bool) -> bool:
    """Whether both clouds are sorted at once: small ones to save time of the host, others if there is room."""
    return x.shape == y.shape and bool(not places or theta.shape[0] * x.shape[0] <= _SORT_AT_ONCE)


def _carry_back(total: Tensor, matched: Matched, theta: Tensor) -> Tensor:
    """The gradients by the points, added to those of directions before."""
    slopes = [s for s in matched[1:] if s is not None]
    sizes = [s.shape[1] for s in slopes]
    is_first = total is None
    if is_first:
        total = theta.new_empty((sum(sizes), theta.shape[1]))
    for side, part in zip(slopes, total.split(sizes), strict=True):
        if theta.shape[1] <= FEW_COORDINATES:
            gather_few(part, side, theta, is_first=is_first)
        else:
            add_product(part, side.T, theta, is_first=is_first)
    return total


def is_target_worth_sorting(x: Tensor, y: Tensor, slices: int) -> bool:
    """Whether a step would use a sorted target: small clouds are sorted faster than sorted rows are read."""
    on_chip = x.shape[0] == y.shape[0] <= longest_on_chip(x.get_device())
    return not (on_chip and _projects_inside(x, slices))


def sort_target(y: Tensor, theta: Tensor) -> Sorted:
    """A fixed target, projected on fixed directions and sorted: once for all steps."""
    y = y.float().contiguous()
    moved, _ = move_clouds(y, y[:0], y)
    return sort_rows(_project(moved, theta), places=False)
