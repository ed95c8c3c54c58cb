"""Directions that repel each other by the energy which is the error of sliced distances."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, cast

import numpy as np

from orthoslice.backend import caching
from orthoslice.backend.array_types import HostArray
from orthoslice.backend.threads import single_threaded_blas
from orthoslice.directions.equispaced import even_angles
from orthoslice.directions.orthogonal import Orthogonal
from orthoslice.directions.point_set import PointSet

Points: TypeAlias = HostArray

# Part of the names of cached files: another algorithm makes other sets.
_VERSION = 1

LARGEST_SET = 1024
"""Rows of a set: as many take half a second to make, and time grows with the square."""

# _PAIRS / rows**2 iterations are made, but at least and at most these.
_PAIRS = 1.5e7
_ITERATIONS = (40, 400)


@dataclass(frozen=True, kw_only=True, repr=False)
class Optimized(PointSet):
    """Directions that are spread over the sphere as evenly as can be, under a random rotation.

    For a set under a random rotation, the error of SW is a sum over pairs of its rows. For p = 1 and a single
    difference it is the arc-cosine kernel sqrt(1 - t^2) + t arcsin(t) of their cosine t. The set has the least
    such sum that a descent finds. Directions count as lines: one and its opposite are the same.

    Prefer it for SW in 3 to about 12 dimensions, with several times `dim` directions. In the plane it is
    :class:`Equispaced`. With `dim` rows or fewer a set is orthonormal, as a block of :class:`Orthogonal` is. In
    high dimension hardly anything is better than that: 256 rows in 64 dimensions have 5% less error, and
    :class:`Orthogonal` makes more independent blocks of as many.

    Sets are made once, in about half a second at most, and kept in memory and on disk, in
    ``$ORTHOSLICE_CACHE_DIR`` or the platform's directory for caches. A set has at most 1,024 rows: more
    directions make more sets, and a better error bar.

    Parameters
    ----------
    replicates, block_size
        As in :class:`PointSet`; `block_size` is at most 1,024.

    Notes
    -----
    As with all fixed sets, symmetric clouds can make it lose: see :class:`Equispaced`. On one machine a seed
    gives the same directions every time; another processor or library of linear algebra may round otherwise
    and find another set, as good as this one.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> theta = osl.directions.Optimized(replicates=1).sample(6, dim=3, rng=0).theta

    Six lines through the corners of an icosahedron:

    >>> np.unique(np.abs(theta @ theta.T).round(3)).tolist()
    [0.447, 1.0]
    """

    name: ClassVar[str] = "optimized"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block_size is not None and self.block_size > LARGEST_SET:
            raise ValueError(f"`block_size` must be at most {LARGEST_SET}; got {self.block_size}.")

    def _n_sets(self, n_directions: int, dim: int) -> int:
        return max(super()._n_sets(n_directions, dim), -(-n_directions // LARGEST_SET))

    def points(self, rows: int, dim: int) -> Points:
        return _spread_out(rows, dim).copy()


@functools.lru_cache(maxsize=64)
def _spread_out(rows: int, dim: int) -> Points:
    """The set, found in the cache on disk or made; all callers share the array."""
    if dim == 2:
        return even_angles(rows)
    if rows <= dim:
        return np.eye(rows, dim)
    name = f"optimized-{_VERSION}-{dim}-{rows}.npy"
    kept = caching.find(name)
    if kept is not None:
        found: Points = np.load(io.BytesIO(kept), allow_pickle=False)
        return found
    points = _descend(cast(Points, Orthogonal().sample(rows, dim, rng=0).theta))
    file = io.BytesIO()
    np.save(file, points, allow_pickle=False)
    caching.keep(name, file.getvalue())
    return points


def energy(points: Points) -> float:
    """The mean over all pairs of rows, also with themselves, of sqrt(1 - t^2) + t arcsin(t), t their cosine.

    Examples
    --------
    >>> energy(np.eye(2)) == (1 + np.pi / 2) / 2
    True
    """
    cosines = np.clip(points @ points.T, -1, 1)
    return float(np.mean(np.sqrt(1 - cosines**2) + cosines * np.arcsin(cosines)))


def _descend(points: Points) -> Points:
    """Move the rows to less energy, by gradient steps of Barzilai and Borwein's lengths.

    These steps take few products and no search, but at times raise the energy: the best set is kept.
    """
    n = len(points)
    fewest, most = _ITERATIONS
    best, least = points, np.inf
    step, before, slope_before = 0.5 * points.shape[1] / n, points, points
    # Several threads would change the order of sums, and a seed would give other directions.
    with single_threaded_blas():
        for k in range(int(np.clip(_PAIRS / n**2, fewest, most))):
            cosines = np.clip(points @ points.T, -1, 1)
            np.fill_diagonal(cosines, 0)
            # d/dt (sqrt(1 - t^2) + t arcsin(t)) = arcsin(t).
            angles = np.arcsin(cosines)
            size = float(np.sqrt(1 - cosines**2).sum() + np.vdot(cosines, angles))
            if size < least:
                best, least = points, size
            slope = angles @ points
            slope -= np.vecdot(slope, points)[:, None] * points
            moved, turned = points - before, slope - slope_before
            agreement = float(np.vdot(moved, turned))
            if k and agreement > 0:
                long, short = np.vdot(moved, moved) / agreement, agreement / np.vdot(turned, turned)
                step = float(long if k % 2 else short)
            if float(np.vdot(slope, slope)) < 1e-16 * n:
                break
            before, slope_before = points, slope
            points = points - step * slope
            points /= np.sqrt(np.vecdot(points, points))[:, None]
    return best
