"""Points that lie in a file, perhaps larger than memory: read a few at a time, and never held whole."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import NUMPY, DType, HostArray, counts_as_numpy, to_numpy

if TYPE_CHECKING:
    from orthoslice.clouds.projection import Projector

Points: TypeAlias = Any
"""The points of a cloud: an array of any library, or :class:`MappedPoints`, which has no arithmetic."""

# Coordinates that are read at a time: as many as a cache holds.
_PIECE_ITEMS = 1 << 18


def is_file(points: Any) -> TypeGuard[HostArray]:
    """Whether points are a memory map; copies of a map have its type, but no file behind them."""
    return getattr(points, "_mmap", None) is not None


@dataclass(frozen=True, eq=False)
class MappedPoints:
    """The points `table[order] - origin`, `(..., n, dim)`, as something that gives out rows.

    Order and origin are attributes of the points, so that they travel with them.
    The table is a memory map, or an array beside one: what is taken off the points of one cloud is taken off
    those of the other. `np.asarray` reads all points; arithmetic is refused, since it would.
    """

    table: HostArray
    order: HostArray | None = None
    """`(..., n)`; None is the order of the table."""
    origin: HostArray | None = None
    """`(..., 1, dim)`, or what broadcasts to it; None is 0."""

    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.table.shape)

    @property
    def ndim(self) -> int:
        return self.table.ndim

    @property
    def size(self) -> int:
        return self.table.size

    @property
    def dtype(self) -> DType:
        return self.table.dtype

    def __len__(self) -> int:
        return len(self.table)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return NUMPY

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> HostArray:
        return self.read(slice(None)).astype(self.dtype if dtype is None else dtype, copy=bool(copy))

    def __getitem__(self, key: Any) -> HostArray:
        """Rows by a slice or by indices, as `points[rows]` of a single cloud or `points[..., rows, :]`."""
        if not isinstance(key, tuple):
            key = (key, *(slice(None),) * (self.ndim - 1)) if self.ndim == 2 else (..., key, slice(None))
        *lead, rows, columns = key
        if rows is Ellipsis or lead not in ([], [Ellipsis]) or (not lead and self.ndim != 2):
            raise IndexError(f"Points in a file give out rows, `points[..., rows, :]`; got {key!r}.")
        return self.read(rows)[..., columns]

    def __rmatmul__(self, shares: HostArray) -> HostArray:
        """`shares (n,) @ points (n, dim)`, a few points at a time."""
        return np.asarray(sum(shares[part] @ self.read(part) for part in self.parts()))

    def moved(self, origin: HostArray) -> MappedPoints:
        """The same points with another origin."""
        return replace(self, origin=origin if self.origin is None else self.origin + origin)

    def taken(self, order: HostArray) -> MappedPoints:
        """The same points in another order `(..., n)`."""
        if self.order is not None:
            order = np.take_along_axis(self.order, order, axis=-1)
        return replace(self, order=order)

    def parts(self) -> Iterator[slice]:
        """All points, as many at a time as a cache holds."""
        n = self.shape[-2]
        step = max(1, _PIECE_ITEMS * n // max(1, self.size))
        return (slice(first, min(first + step, n)) for first in range(0, n, step))

    def project(self, directions: Projector, rows: Rows, dtype: DType) -> HostArray:
        """Projections `(slices, ..., n)` of the points in some floating type."""
        projected = None
        for part in self.parts():
            found = directions.project(self.read(part, dtype), rows)
            if part == slice(0, self.shape[-2]):
                return np.asarray(found)
            if projected is None:
                projected = np.empty((*found.shape[:-1], self.shape[-2]), dtype=found.dtype)
            projected[..., part] = found
        assert projected is not None, "a cloud has points"
        return projected

    def places(self, index: HostArray) -> HostArray:
        """Which rows of the table the points `index (slices, ..., pairs)` are."""
        if self.order is None:
            return index
        if self.order.ndim == 1:
            return self.order[index]
        return np.take_along_axis(np.broadcast_to(self.order, (*index.shape[:-1], self.shape[-2])), index, -1)

    def gather(self, index: HostArray) -> HostArray:
        """Points `(slices, ..., pairs, dim)` at `index (slices, ..., pairs)`."""
        batch, n = self.shape[:-2], self.shape[-2]
        first = np.arange(math.prod(batch)).reshape(*batch, 1) * n
        rows = self.table.reshape(-1, self.shape[-1])[self.places(index) + first]
        return np.asarray(rows if self.origin is None else rows - self.origin)

    def read(self, rows: Rows, dtype: DType | None = None) -> HostArray:
        """Some rows of the points, by a slice or by indices, in some floating type."""
        if self.order is None:
            found = self.table[..., rows, :]
        elif self.ndim == 2:
            found = self.table[self.order[rows]]
        else:
            found = np.take_along_axis(self.table, self.order[..., rows, None], axis=-2)
        found = np.asarray(found, dtype=dtype)
        return found if self.origin is None else found - self.origin


counts_as_numpy(MappedPoints)


def read_by_rows(points: Points) -> Points:
    """Points of any library as something that NumPy reads rows of; those in a file stay there."""
    return points if isinstance(points, MappedPoints) else to_numpy(points)


def stored_points(points: Points) -> tuple[Any, HostArray | None]:
    """The array that holds the points, and the order in which they count; None is its own.

    Differences of such points are right where both clouds were moved by one origin, which cancels.
    """
    return (points.table, points.order) if isinstance(points, MappedPoints) else (points, None)
