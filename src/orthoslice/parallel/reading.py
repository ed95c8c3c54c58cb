"""How workers read the chunks of a cloud: what the points and the weights of a chunk are."""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import DType, HostArray
from orthoslice.check.frames import read_column, read_frame
from orthoslice.check.inputs import as_array, as_floating
from orthoslice.clouds.cloud import Cloud


class Reading(NamedTuple):
    """How a chunk becomes points: all that a worker has to know of the cloud that the chunk belongs to."""

    name: str
    columns: tuple[Hashable, ...] | None
    """The columns of data frames, in the order of the first cloud."""
    dtype: DType = np.dtype(np.float64)
    exponent: int = 0
    """Points are in units of 2**exponent."""
    origin: HostArray | None = None
    """What is taken off them, `(dim,)`."""

    def array(self, chunk: Any) -> HostArray:
        """The numbers of a chunk as they came."""
        if self.columns is not None:
            return read_frame(self.name, chunk[list(self.columns)])
        return np.asarray(as_array(self.name, chunk))

    def points(self, chunk: object) -> HostArray:
        """The points of a chunk, as the same rows of the cloud would be in memory."""
        cloud = Cloud(as_floating(self.name, self.array(chunk), self.dtype))
        cloud = cloud.divided(self.exponent) if self.exponent else cloud
        points: HostArray = cloud.points if self.origin is None else cloud.points - self.origin
        return points


def weights_of(name: str, chunk: object) -> HostArray:
    """The weights of a chunk, in float64."""
    table = read_column(f"`{name}`", chunk) if hasattr(chunk, "to_numpy") else np.asarray(chunk)
    return table.astype(np.float64)


def delayed_calls(calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Delayed results of calls `(function, *arguments)`, of which the first arguments may be delayed.

    All are in one layer of Dask's graph: Dask looks for every key in every layer, and a layer for every call
    would take time that grows with the square of the number of chunks.
    """
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph

    name = f"orthoslice-{uuid.uuid4().hex}"
    tasks, needed = {}, []
    for k, (function, *arguments) in enumerate(calls):
        lazy = list(itertools.takewhile(lambda argument: isinstance(argument, Delayed), arguments))
        bound = functools.partial(_call, function, arguments[len(lazy) :])
        tasks[name, k] = (bound, *(argument.key for argument in lazy))
        needed += lazy
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=needed)
    return [Delayed(key, graph, layer=name) for key in tasks]


def _call(function: Callable[..., Any], rest: list[Any], *first: object) -> Any:
    return function(*first, *rest)


def run_all(calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Results of :func:`delayed_calls`, by Dask's scheduler."""
    return list(compute(*delayed_calls(calls)))


def compute(*delayed: object, **options: Any) -> tuple[Any, ...]:
    """Results from Dask's scheduler in use, or an error that says that it is gone."""
    import dask

    try:
        found: tuple[Any, ...] = dask.compute(*delayed, **options)
    except CancelledError as error:
        # Dask's own message only names an internal task.
        raise ConnectionError(
            "The Dask cluster must be there until the work is done; it was lost, or its work was cancelled "
            f"({getattr(error, 'reason', None) or error}). Connect to one again, and repeat the call."
        ) from error
    return found


def shape_only(shape: tuple[int, ...], dtype: DType) -> HostArray:
    """An array of this shape and type in the memory of a single number."""
    return np.broadcast_to(np.zeros((), dtype=dtype), shape)
