"""Many labellings of one pooled sample at once on an NVIDIA GPU: which units belong to x, and what each costs.

The labels are those that the processor draws. The plain references are those of
`draw_labels`, `line_totals` and `space_totals`.
"""

from __future__ import annotations

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty

GROUP = 256
"""Labellings whose labels of a unit lie side by side, in words of 32 bits: a thread block takes as many."""

_WORDS = GROUP // 32

_PROGRAM = Program("labels", (("THREADS", GROUP),))
_DRAW = Kernel("draw_labels", 7, "i")
_WALK = Kernel("walk_lines", 5, "iiii")
_MATCH_LINES = Kernel("match_lines", 6, "iiiiid")
_MATCH_IN_SPACE = Kernel("match_in_space", 7, "iiiiiid")

# For every place that is laid ready in shared memory, a gap and a row of words.
_WALK_BYTES = GROUP * (8 + 4 * _WORDS)

# Warps that keep a large GPU busy; each has room of its own.
_MOST_WARPS = 4096


def draw_words(
    key: int, first: int, left: Tensor, quota: Tensor, weight: Tensor, lanes: int
) -> tuple[Tensor, Tensor]:
    """Labels of `lanes` labellings from `first` on, and how many points each gives to x.

    Parameters
    ----------
    key
        The key of the generator, 64 bits.
    first
        The number of the first labelling.
    left, quota, weight
        int32 `(units,)`. For every unit how many of its stratum there are from it on; at the first unit of a
        stratum how many of it go to x, -1 elsewhere; and the points of a unit.
    lanes
        How many labellings are wanted; whole groups are drawn.

    Returns
    -------
    words, sizes
        int32 `(groups, units, words)`, and int64 `(groups * GROUP,)`. Bit b of word w of a group is of its
        labelling `32 w + b`.
    """
    groups, units = -(-lanes // GROUP), left.shape[0]
    words = empty(left, (groups, units, _WORDS), "int32")
    sizes = empty(left, (groups * GROUP,), "int64")
    draw = bind(_DRAW, _PROGRAM, left.get_device(), groups * _WORDS, 32, 0, units)
    draw(left, quota, weight, words, sizes, key, first)
    return words, sizes


def line_costs(values: Tensor, at: Tensor, words: Tensor, sizes: Tensor, p: float, room: int) -> Tensor:
    """Costs on the lines of all directions, float64 `(slices, labellings)`.

    Parameters
    ----------
    values
        Projections of the pooled points in increasing order, float64 `(slices, points)`.
    at
        The units of these points, int32 `(slices, points)`.
    words, sizes
        As from :func:`draw_words`.
    p
        The power.
    room
        Bytes of working memory; powers other than 1 need some.
    """
    (slices, points), (groups, units, _), labellings = at.shape, words.shape, sizes.shape[0]
    device = values.get_device()
    values, at = values.contiguous(), at.contiguous()
    totals = empty(values, (slices, labellings), "float64")
    shape = units, points, slices, labellings
    if p == 1:
        walk = bind(_WALK, _PROGRAM, device, groups * slices, GROUP, _WALK_BYTES, *shape)
        walk(values, at, words, sizes, totals)
        return totals
    rows = _rows_for(at, labellings, room)
    match = bind(_MATCH_LINES, _PROGRAM, device, rows.shape[0], 32, 0, *shape, rows.shape[0], float(p))
    match(values, at, words, sizes, totals, rows)
    return totals


def space_costs(
    cloud: Tensor, order: Tensor, unit: Tensor, words: Tensor, sizes: Tensor, p: float, room: int
) -> Tensor:
    """Costs in full space of the couplings that all directions induce, float64 `(slices, labellings)`.

    Parameters
    ----------
    cloud
        The pooled points, float64 `(points, dim)`.
    order
        Its points in increasing order of their projections, int32 `(slices, points)`.
    unit
        The unit of every point, int32 `(points,)`.
    words, sizes, p, room
        As in :func:`line_costs`.
    """
    (slices, points), (_, units, _), labellings = order.shape, words.shape, sizes.shape[0]
    cloud, order = cloud.contiguous(), order.contiguous()
    totals = empty(cloud, (slices, labellings), "float64")
    rows = _rows_for(order, labellings, room)
    shape = units, points, cloud.shape[1], slices, labellings, rows.shape[0]
    match = bind(_MATCH_IN_SPACE, _PROGRAM, cloud.get_device(), rows.shape[0], 32, 0, *shape, float(p))
    match(cloud, order, unit, words, sizes, totals, rows)
    return totals


def _rows_for(at: Tensor, labellings: int, room: int) -> Tensor:
    """Room for the labels of 32 labellings in the order of a direction, for as many warps as there may be."""
    slices, points = at.shape
    row = -(-points // 32) * 32
    warps = max(1, min(slices * labellings // 32, _MOST_WARPS, room // (4 * row)))
    return empty(at, (warps, row), "int32")
