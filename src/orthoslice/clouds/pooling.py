"""Several clouds as one: side by side in memory where there is room for that, or else where they lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import Array, DType, HostArray
from orthoslice.check.inputs import largest_magnitude
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import centred, middle_if_far, range_of_rows, unit_scale
from orthoslice.clouds.mapped import MappedPoints
from orthoslice.clouds.projection import Projector
from orthoslice.clouds.ready import ReadyCloud

# A copy may take 1 / _COPIED_PART of the memory: one array is projected faster than several.
_COPIED_PART = 4


@dataclass(frozen=True, eq=False)
class SpreadCloud(ReadyCloud):
    """Points of several NumPy arrays or memory maps, one after the other.

    `points` only has their shape and type.
    """

    parts: tuple[MappedPoints, ...] = ()
    """`(n, dim)` each, of any floating type."""

    @property
    def has_table(self) -> bool:
        return False

    def project(self, directions: Projector, rows: Rows, *, widely: bool = False) -> Array:
        first, projected = 0, None
        for piece in pieces_of(self):
            found = directions.project(piece, rows)
            if projected is None:
                projected = np.empty((len(found), self.n), dtype=found.dtype)
            projected[:, first : first + len(piece)] = found
            first += len(piece)
        return cast(HostArray, projected)


class Pool(NamedTuple):
    """Several clouds as one."""

    cloud: ReadyCloud
    scale: float
    """What they were divided by."""
    memory: int
    """The bytes of memory that are left."""


def pool_clouds(clouds: Sequence[Cloud], dtype: DType, p: float, memory: int, *, copied: bool = False) -> Pool:
    """The points of NumPy clouds, one after the other, of one type, near the origin and of a size fit for p.

    They are copied if a small part of the memory holds them, or if they have to be `copied`.
    """
    # One scale for all clouds, as if they were of the common type.
    largest = max(largest_magnitude(c.points) if c.largest is None else c.largest for c in clouds)
    example = Cloud(np.zeros((1, clouds[0].dim), dtype=dtype), largest=largest)
    scale = unit_scale(example, example, p)[2]
    parts = [c.points for c in clouds]
    if scale != 1:
        exponent = round(math.log2(scale))
        parts = [c.astype(dtype).divided(exponent).points for c in clouds]
    shape = sum(c.n for c in clouds), clouds[0].dim
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if copied or _COPIED_PART * size <= memory:
        whole = ReadyCloud(np.concatenate(parts, dtype=dtype))
        return Pool(centred(whole, whole)[0], scale, memory - size)
    cloud = SpreadCloud(
        np.broadcast_to(np.zeros((), dtype=dtype), shape), parts=tuple(map(MappedPoints, parts))
    )
    lows, highs = zip(*map(range_of_rows, pieces_of(cloud)), strict=True)
    origin = cast(HostArray, middle_if_far(np.min(lows, axis=0), np.max(highs, axis=0)))
    if origin.any():
        cloud = replace(cloud, parts=tuple(part.moved(origin) for part in cloud.parts))
    return Pool(cloud, scale, memory)


def pieces_of(cloud: Cloud) -> Iterator[HostArray]:
    """The points of a cloud in one piece, or a few at a time if it is a :class:`SpreadCloud`."""
    if not isinstance(cloud, SpreadCloud):
        yield cloud.points
        return
    for part in cloud.parts:
        for rows in part.parts():
            yield np.ascontiguousarray(part.read(rows, cloud.dtype))


def are_all_equal(cloud: Cloud) -> bool:
    """Whether all points are the same."""
    first = next(pieces_of(cloud))[0]
    return all(bool((piece == first).all()) for piece in pieces_of(cloud))
