"""The coupling of two planar clouds at every angle; one cell after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.clouds.ready import in_canonical_order
from orthoslice.exact._inputs import PlaneProblem, shared_masses

if TYPE_CHECKING:
    from orthoslice.backend.kernels.numba.plane import Cells, SweptCloud


# At most 32 bytes each, so 1.1 GB: two clouds of 5,793 points.
MAX_CRITICAL_ANGLES = 2**25
# Large enough to hide the cost of a call, small enough to stay in the processor's cache.
_CHUNK = 2**14


class Lifetimes(NamedTuple):
    """Cells of the coupling: while start <= phi < stop, a pair of points delta apart shares a mass."""

    start: FloatArray  # (cells,) angles in [0, pi]
    stop: FloatArray  # (cells,)
    span: FloatArray  # (cells,) stop - start, to the last digits however short it is
    delta: FloatArray  # (cells, 2) the point of x less the point of y
    mass: FloatArray  # (cells,) shares of the whole; at every angle the living cells add up to 1


def lifetimes(problem: PlaneProblem, limit: int = MAX_CRITICAL_ANGLES) -> Iterator[Lifetimes]:
    """Yield every cell of the coupling once, in batches, in the order in which they end.

    Time O(k log k) for k = (n^2 + m^2) / 2 critical angles, memory at most 32 bytes a critical angle.

    Examples
    --------
    >>> from orthoslice.exact._inputs import check_plane
    >>> problem = check_plane("this", [[0, 0], [1, 0]], [[0, 0], [0, 1]], 1, None, None)
    >>> sum(float(((cell.stop - cell.start) * cell.mass).sum()) for cell in lifetimes(problem)) / np.pi
    1.0
    """
    from orthoslice.backend.kernels.numba.plane import (  # slow to load, and rarely needed
        sharpen_spans,
        sweep,
    )

    # Lexicographic order is the projected order just after angle 0. Masses are rounded in that order, so that
    # the order of the user's rows changes nothing.
    clouds = [in_canonical_order(cloud) for cloud in (problem.x, problem.y)]
    x_mass, y_mass = shared_masses(*clouds)
    x, y = clouds[0].points[x_mass > 0], clouds[1].points[y_mass > 0]
    x_mass, y_mass = x_mass[x_mass > 0], y_mass[y_mass > 0]
    n_angles = (len(x) * (len(x) - 1) + len(y) * (len(y) - 1)) // 2
    if n_angles > limit:
        raise ValueError(
            f"`x` and `y` must have at most {limit} critical angles, n (n - 1) / 2 + m (m - 1) / 2, for an "
            f"exact answer; got {n_angles} (n = {len(x)}, m = {len(y)}). "
            "Estimate with `osl.sliced_wasserstein` or `osl.projected_wasserstein` instead."
        )
    total = float(x_mass.sum())
    x_swept = _swept(x, x_mass, 0)
    y_swept = _swept(y, y_mass, len(x_swept.pair))
    cells = _empty_cells(_CHUNK + 2 * (len(x) + len(y)))
    position = np.zeros(3, dtype=np.int64)
    while not position[2]:
        n = sweep(x_swept, y_swept, position, cells)
        delta = x[cells.pair[:n, 0]] - y[cells.pair[:n, 1]]
        start, stop = cells.start[:n].copy(), cells.stop[:n].copy()
        span = stop - start
        sharpen_spans(x, x_swept, y, y_swept, cells.ends[:n], span)
        yield Lifetimes(start, stop, span, delta, cells.mass[:n] / total)


def _swept(points: FloatArray, mass: IntArray, first: int) -> SweptCloud:
    """A cloud with its critical angles in order, before the sweep; its events are numbered from `first`."""
    from orthoslice.backend.kernels.numba.plane import BEGIN, SweptCloud, critical_angles

    n = len(points)
    angle = np.empty(n * (n - 1) // 2)
    pair = np.empty((angle.size, 2), dtype=np.int32)
    angle = angle[: critical_angles(points, angle, pair)]
    event = np.argsort(angle)
    angle = angle[event]
    edge = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(mass)])
    ranks = np.arange(n, dtype=np.int64)
    zeros = np.zeros(n, dtype=np.int64)
    since, cause = np.zeros(n), np.full(n, BEGIN, dtype=np.int64)
    order = (mass, ranks, ranks.copy(), edge)
    return SweptCloud(angle, event, pair, first, *order, since, cause, zeros, zeros - 1, zeros.copy())


def _empty_cells(capacity: int) -> Cells:
    """A buffer for the kernel to fill."""
    from orthoslice.backend.kernels.numba.plane import Cells

    ends, pair = (np.empty((capacity, 2), dtype=np.int64) for _ in range(2))
    return Cells(np.empty(capacity), np.empty(capacity), ends, pair, np.empty(capacity, dtype=np.int64))
