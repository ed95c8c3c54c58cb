"""Clouds whose points lie in the chunks of Dask collections, which are checked where they lie."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np

from orthoslice.backend.arrays import DType, HostArray, library
from orthoslice.check.frames import check_names, check_same_names, column_names, is_frame
from orthoslice.check.inputs import (
    as_array,
    check_finite,
    check_not_negative,
    check_sum,
    exact_floating,
    is_dask,
    widest_float,
)
from orthoslice.clouds.cloud import Cloud, DistantCloud
from orthoslice.clouds.conditioning import middle_if_far, range_of_rows
from orthoslice.parallel.reading import Reading, run_all, shape_only, weights_of


@dataclass(frozen=True, eq=False, kw_only=True)
class LazyCloud(DistantCloud):
    """A cloud in chunks, whose range was found by one pass over them: :func:`lazy_clouds`."""

    chunks: tuple[Any, ...]
    """Delayed tables, none of them empty."""
    sizes: tuple[int, ...]
    """Points of each."""
    reading: Reading
    low: HostArray
    """The least coordinates, `(dim,)`."""
    high: HostArray
    weight_chunks: tuple[Any, ...] | None = None
    chunk_weights: tuple[float, ...] = ()
    """What each of these sums to."""

    @property
    def is_lazy(self) -> bool:
        return True

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Chunks with their weights, which are None where there are none."""
        return list(zip(self.chunks, self.weight_chunks or (None,) * len(self.chunks), strict=True))

    def divided(self, exponent: int) -> Self:
        low, high = (Cloud(end).divided(exponent).points for end in (self.low, self.high))
        reading = self.reading._replace(exponent=self.reading.exponent + exponent)
        return replace(self, low=low, high=high, reading=reading, largest=largest_of(low, high))

    def astype(self, dtype: DType) -> Self:
        points = shape_only((self.n, self.dim), dtype)
        low, high = self.low.astype(dtype), self.high.astype(dtype)
        return replace(self, points=points, reading=self.reading._replace(dtype=dtype), low=low, high=high)

    def moved(self, origin: HostArray | None) -> Self:
        """The same cloud with another origin."""
        return replace(self, reading=self.reading._replace(origin=origin))

    def outline(self) -> Cloud:
        """What is known of the cloud, without its chunks."""
        # The covariance is needed only while an estimate is made, and takes more memory than all else.
        seen = None if self.seen is None else self.seen._replace(covariance=None)
        return Outline(self.points, self.weights, self.largest, seen)


@dataclass(frozen=True, eq=False)
class Outline(DistantCloud):
    """What is known of a distant cloud; copies sent elsewhere take no more memory than it does."""

    def __getstate__(self) -> dict[str, Any]:
        # Otherwise as many zeros as the cloud has numbers would be written.
        arrays = {"points": self.points, "weights": self.weights}
        return vars(self) | {name: a if a is None else (a.shape, a.dtype) for name, a in arrays.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shapes = {name: state[name] for name in ("points", "weights")}
        vars(self).update(state | {name: a if a is None else shape_only(*a) for name, a in shapes.items()})


def largest_of(low: HostArray, high: HostArray) -> float:
    """The largest magnitude between these ends."""
    return max(abs(float(low.min())), abs(float(high.max())))


def common_origin(x: LazyCloud) -> HostArray | None:
    """What both clouds are to be moved by: see :func:`orthoslice.clouds.conditioning.centred`."""
    centre = cast(HostArray, middle_if_far(x.low, x.high))
    return centre if centre.any() else None


def pool_outline(clouds: Sequence[Cloud]) -> LazyCloud:
    """What is known of all these clouds together: their shape, type and range, but no chunks."""
    lazy = [cloud for cloud in clouds if isinstance(cloud, LazyCloud)]
    low, high = np.min([c.low for c in lazy], axis=0), np.max([c.high for c in lazy], axis=0)
    return replace(
        lazy[0],
        points=shape_only((sum(c.n for c in lazy), lazy[0].dim), lazy[0].dtype),
        chunks=(),
        sizes=(),
        low=low,
        high=high,
        largest=largest_of(low, high),
    )


def lazy_clouds(*named: tuple[str, Any, Any]) -> list[LazyCloud]:
    """Clouds of one `dim` and floating type from `(name, points, weights)`, of which some are Dask's.

    Values are checked as those in memory are, in one pass over the chunks; errors tell the chunk. Columns of
    frames are put in the order of the first.
    """
    columns = [_columns_of(name, given) for name, given, _ in named]
    for (name, _, _), own in zip(named[1:], columns[1:], strict=True):
        if own is not None and columns[0] is not None:
            check_same_names(columns[0], own, (named[0][0], name))
    found = []
    for (name, given, _), own in zip(named, columns, strict=True):
        order = own if own is None or columns[0] is None else columns[0]
        reading = Reading(name, None if order is None else tuple(order))
        found.append(_inspect_chunks(reading, *_chunks_of(name, given)))
    dtype = widest_float(*(one.dtype for _, facts, _ in found for one in facts))
    clouds = []
    for (name, _, weights), (reading, facts, chunks) in zip(named, found, strict=True):
        cloud = _made(reading._replace(dtype=dtype), facts, chunks)
        clouds.append(cloud if weights is None else _weighed(cloud, f"{name}_weights", weights))
    dims = [cloud.dim for cloud in clouds]
    for (name, _, _), cloud in zip(named[1:], clouds[1:], strict=True):
        if cloud.dim != dims[0]:
            shapes = f"{clouds[0].points.shape} and {cloud.points.shape}"
            raise ValueError(f"`{named[0][0]}` and `{name}` must share `dim`; got shapes {shapes}.")
    return clouds


def _columns_of(name: str, given: object) -> list[Hashable] | None:
    """The names of the columns of a frame, Dask's or another's; None where `given` is none."""
    if is_dask(given) and hasattr(given, "columns"):
        return check_names(name, given.columns)
    return column_names(name, given)


class ChunkFacts(NamedTuple):
    """Facts found in one chunk: its size, type and range."""

    n: int
    dtype: DType
    low: HostArray
    high: HostArray


def _chunks_of(name: str, given: Any) -> tuple[list[Any], list[int | None], int | None]:
    """Delayed chunks along the rows, how many rows each is said to have, and the dimension."""
    import dask

    if not is_dask(given):
        if not (is_frame(given) or library(given) in ("numpy", None)):
            raise TypeError(
                f"Beside Dask collections, `{name}` must be one, or in NumPy arrays, lists or data frames; got "
                f"{type(given).__name__}."
            )
        table = given if is_frame(given) else as_array(name, given)
        return [dask.delayed(table, pure=False)], [None], None
    if not hasattr(given, "chunks"):
        partitions = list(given.to_delayed())
        return partitions, [None] * len(partitions), None
    if given.ndim != 2:
        hint = f" Points on a line have dim 1: pass `{name}[:, None]`." if given.ndim == 1 else ""
        raise ValueError(f"`{name}` must have shape (n, dim) as a Dask array; got {given.shape}.{hint}")
    if given.numblocks[1] > 1:
        given = given.rechunk({1: -1})
    known = [None if math.isnan(size) else int(size) for size in given.chunks[0]]
    dim = given.shape[1]
    return list(given.to_delayed()[:, 0]), known, None if math.isnan(dim) else int(dim)


def _inspect_chunks(
    reading: Reading, chunks: list[Any], sizes: list[int | None], dim: int | None
) -> tuple[Reading, list[ChunkFacts], list[Any]]:
    """The facts of all chunks that are not empty, and those chunks."""
    first: int | None = 0
    calls: list[tuple[Any, ...]] = []
    for k, (chunk, size) in enumerate(zip(chunks, sizes, strict=True)):
        calls.append((_inspect_chunk, chunk, reading, _Place(k, first, size, dim)))
        first = None if first is None or size is None else first + size
    facts = run_all(calls)
    found = [(one, chunk) for one, chunk in zip(facts, chunks, strict=True) if one is not None]
    if not found:
        raise ValueError(f"`{reading.name}` must hold at least one point and dimension; all chunks are empty.")
    dims = [len(one.low) for one, _ in found]
    for k, other in enumerate(dims):
        if other != dims[0]:
            raise ValueError(
                f"All chunks of `{reading.name}` must share `dim`; chunk {k} has dim {other}, and chunk 0 has "
                f"dim {dims[0]} (empty chunks not counted)."
            )
    return reading, [one for one, _ in found], [chunk for _, chunk in found]


def _made(reading: Reading, facts: list[ChunkFacts], chunks: list[Any]) -> LazyCloud:
    n = sum(one.n for one in facts)
    dtype = reading.dtype
    low = np.min([one.low for one in facts], axis=0).astype(dtype)
    high = np.max([one.high for one in facts], axis=0).astype(dtype)
    return LazyCloud(
        points=shape_only((n, len(low)), dtype),
        largest=largest_of(low, high),
        chunks=tuple(chunks),
        sizes=tuple(one.n for one in facts),
        reading=reading,
        low=low,
        high=high,
    )


class _Place(NamedTuple):
    """Where a chunk is, and what it is said to hold; None where that is not known."""

    chunk: int
    first: int | None
    size: int | None
    dim: int | None

    def told(self, name: str) -> str:
        if self.first is None or self.size is None:
            return f"In chunk {self.chunk} of `{name}`, where indices count from its first row"
        last = self.first + self.size - 1
        return f"In chunk {self.chunk} of `{name}` (rows {self.first} to {last}, indices count from the first)"


def _inspect_chunk(chunk: object, reading: Reading, place: _Place) -> ChunkFacts | None:
    """What is seen of a chunk; None where it is empty, and an error that tells its place where it is bad."""
    try:
        return _inspect_points(reading.name, reading.array(chunk), place)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{place.told(reading.name)}: {error}") from None


def _inspect_points(name: str, points: HostArray, place: _Place) -> ChunkFacts | None:
    rows, dim = (points.shape[0] if points.ndim else 0), points.shape[-1] if points.ndim == 2 else None
    said = (place.size, place.dim)
    if dim is None or any(a is not None and a != b for a, b in zip(said, points.shape, strict=True)):
        wanted = tuple("?" if a is None else a for a in said)
        raise ValueError(
            f"a chunk must hold what its collection says, a table of shape ({wanted[0]}, {wanted[1]}); got "
            f"{points.shape}."
        )
    dtype = exact_floating(name, points)
    if rows == 0:
        return None
    check_finite(name, points)
    return ChunkFacts(rows, dtype, *range_of_rows(np.ascontiguousarray(points)))


class _Weighed(NamedTuple):
    """What is seen of the weights of a chunk."""

    least: float
    most: float
    total: float
    dtype: DType


def _weighed(cloud: LazyCloud, name: str, given: object) -> LazyCloud:
    """The cloud with weights, which are checked and cut as its points are."""
    chunks = _weight_chunks(cloud, name, given)
    sized = zip(chunks, cloud.sizes, strict=True)
    weighed: list[_Weighed] = run_all([(_weigh, c, name, k, size) for k, (c, size) in enumerate(sized)])
    check_sum(name, math.fsum(one.total for one in weighed), weighed[0].dtype)
    if min(one.least for one in weighed) == max(one.most for one in weighed):
        return cloud
    return replace(
        cloud,
        weights=shape_only((cloud.n,), np.dtype(np.float64)),
        weight_chunks=tuple(chunks),
        chunk_weights=tuple(one.total for one in weighed),
    )


def _weight_chunks(cloud: LazyCloud, name: str, given: Any) -> list[Any]:
    """Delayed weights, a chunk for every chunk of points that is not empty."""
    import dask.array as da

    of = cloud.reading.name
    if is_dask(given) and not hasattr(given, "chunks"):
        partitions = list(given.to_delayed())
        if len(partitions) != len(cloud.chunks):
            raise ValueError(
                f"`{name}` must have the partitions of `{of}`, none of them empty; got {len(partitions)} and "
                f"{len(cloud.chunks)}."
            )
        return partitions
    weights = given if is_dask(given) else da.from_array(np.asarray(as_array(name, given)))
    if weights.ndim == 1 and any(math.isnan(size) for size in weights.chunks[0]):
        weights = weights.copy().compute_chunk_sizes()
    if weights.shape != (cloud.n,):
        raise ValueError(
            f"`{name}` must have one weight a point of `{of}`, shape ({cloud.n},); got {weights.shape}."
        )
    return list(weights.rechunk((cloud.sizes,)).to_delayed())


def _weigh(weights: object, name: str, chunk: int, size: int) -> _Weighed:
    """What is seen of the weights of a chunk, or an error that tells its place."""
    try:
        came_in = np.asarray(weights).dtype
        exact_floating(name, np.asarray(weights))
        share = weights_of(name, weights)
        if share.shape != (size,):
            raise ValueError(f"`{name}` must have one weight a point, shape ({size},); got {share.shape}.")
        check_not_negative(name, share)
    except (ValueError, TypeError) as error:
        raise type(error)(
            f"In chunk {chunk} of `{name}`, where indices count from its first row: {error}"
        ) from None
    return _Weighed(float(share.min()), float(share.max()), float(share.sum()), came_in)
