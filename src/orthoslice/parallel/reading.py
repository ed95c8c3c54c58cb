"""How workers read the chunks of a cloud: what the points and the weights of a chunk are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from orthoslice.arrays import DType
from orthoslice.cloud import Cloud
from orthoslice.frames import read_column, read_frame
from orthoslice.inputs import as_array, as_floating

Table: TypeAlias = np.ndarray[Any, Any]


class Reading(NamedTuple):
    """How a chunk becomes points: all that a worker has to know of the cloud that the chunk belongs to."""

    name: str
    columns: tuple[Hashable, ...] | None
    """Of data frames, in the order of the first cloud."""
    dtype: DType = np.dtype(np.float64)
    exponent: int = 0
    """Points are in units of 2**exponent."""
    origin: Table | None = None
    """What is taken off them, `(dim,)`."""

    def array(self, chunk: Any) -> Table:
        """The numbers of a chunk as they came."""
        if self.columns is not None:
            return read_frame(self.name, chunk[list(self.columns)])
        return np.asarray(as_array(self.name, chunk))

    def points(self, chunk: Any) -> Table:
        """The points of a chunk, as the same rows of the cloud would be in memory."""
        cloud = Cloud(as_floating(self.name, self.array(chunk), self.dtype))
        cloud = cloud.divided(self.exponent) if self.exponent else cloud
        points: Table = cloud.points if self.origin is None else cloud.points - self.origin
        return points


def weights_of(name: str, chunk: Any) -> Table:
    """The weights of a chunk, in float64."""
    table = read_column(f"`{name}`", chunk) if hasattr(chunk, "to_numpy") else np.asarray(chunk)
    return table.astype(np.float64)


def run_all(calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Results of calls `(function, *arguments)` whose arguments may be delayed, by Dask's scheduler."""
    import dask

    work = [dask.delayed(call[0], pure=False, traverse=False)(*call[1:]) for call in calls]
    return list(dask.compute(*work))


def shape_only(shape: tuple[int, ...], dtype: DType) -> Table:
    """An array of this shape and type in the memory of a single number."""
    return np.broadcast_to(np.zeros((), dtype=dtype), shape)
