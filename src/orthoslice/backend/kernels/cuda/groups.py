"""Groups of points matched with their partners as cheaply as can be, on an NVIDIA GPU: a block a group."""

from __future__ import annotations

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty

LARGEST_GROUP = 128
"""Points of a group, at most: shared memory holds the costs of all their pairs."""

_THREADS = 128
_PROGRAM = Program("groups", (("THREADS", _THREADS), ("LARGEST", LARGEST_GROUP)))
_MATCH = Kernel("match_groups", 5, "iiif")

# Costs, and four numbers for every point.
_SHARED_BYTES = 4 * LARGEST_GROUP * (LARGEST_GROUP + 4)


def match_groups(x: Tensor, y: Tensor, order: Tensor, partner: Tensor, levels: int, p: float) -> Tensor:
    """Partners `(n,)` for the points `x (n, dim)`, among those `y[partner]` that their group has.

    Parameters
    ----------
    x, y
        Points `(n, dim)`, float32.
    order, partner
        int64 `(n,)`: which points stand in the groups, one after the other, and the partner of every point.
    levels
        How often the places of the order are halved, so that groups have `LARGEST_GROUP` points at most.
    p
        The power of distances that is to be least in sum.
    """
    n, dim = x.shape
    better = empty(order, (n,), "int64")
    match = bind(
        _MATCH, _PROGRAM, x.get_device(), 1 << levels, _THREADS, _SHARED_BYTES, n, dim, levels, float(p)
    )
    match(*(a.contiguous() for a in (x, y, order, partner)), better)
    return better
