"""Clouds whose points lie in the chunks of Dask collections: checked, and looked at, where they lie."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from orthoslice.arrays import DType, library
from orthoslice.cloud import Cloud
from orthoslice.conditioning import middle_if_far, range_of_rows
from orthoslice.frames import check_same_names, column_names, is_frame, read_column, read_frame
from orthoslice.inputs import (
    as_array,
    as_floating,
    check_finite,
    check_not_negative,
    check_sum,
    exact_floating,
    is_dask,
    widest_float,
)

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


@dataclass(frozen=True, eq=False, kw_only=True)
class LazyCloud(Cloud):
    """A cloud in chunks. `points` and `weights` only have its shape and type, and take no memory.

    Their range was found by one pass over the chunks: :func:`lazy_clouds`.
    """

    chunks: tuple[Any, ...]
    """Delayed tables, none of them empty."""
    sizes: tuple[int, ...]
    """Points of each."""
    reading: Reading
    low: Table
    """The least coordinates, `(dim,)`."""
    high: Table
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

    def moved(self, origin: Table | None) -> Self:
        """The same cloud with another origin."""
        return replace(self, reading=self.reading._replace(origin=origin))

    def outline(self) -> Cloud:
        """What is known of the cloud, without its chunks."""
        return Outline(self.points, self.weights, self.largest, seen=self.seen)

    def mean_and_covariance(self) -> tuple[Table, Table]:
        """The first two moments, in the type of the points."""
        total = merged_moments(run_all([(_moments, *pair, self.reading) for pair in self.pairs]))
        return total.mean.astype(self.dtype), total.square.astype(self.dtype)


@dataclass(frozen=True, eq=False)
class Outline(Cloud):
    """A cloud of which `points` and `weights` only have the shape and type; so have copies sent elsewhere."""

    def __getstate__(self) -> dict[str, Any]:
        # Otherwise as many zeros as the cloud has numbers would be written.
        arrays = {"points": self.points, "weights": self.weights}
        return vars(self) | {name: a if a is None else (a.shape, a.dtype) for name, a in arrays.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shapes = {name: state[name] for name in ("points", "weights")}
        vars(self).update(state | {name: a if a is None else shape_only(*a) for name, a in shapes.items()})


def run_all(calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Results of calls `(function, *arguments)` whose arguments may be delayed, by Dask's scheduler."""
    import dask

    work = [dask.delayed(call[0], pure=False, traverse=False)(*call[1:]) for call in calls]
    return list(dask.compute(*work))


def shape_only(shape: tuple[int, ...], dtype: DType) -> Table:
    """An array of this shape and type in the memory of a single number."""
    return np.broadcast_to(np.zeros((), dtype=dtype), shape)


def largest_of(low: Table, high: Table) -> float:
    """The largest magnitude between these ends."""
    return max(abs(float(low.min())), abs(float(high.max())))


def common_origin(x: LazyCloud) -> Table | None:
    """What both clouds are to be moved by: see :func:`orthoslice.conditioning.centred`."""
    centre = middle_if_far(x.low, x.high)
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
        found.append(_looked_at(reading, *_chunks_of(name, given)))
    dtype = widest_float(*(look.dtype for _, looks, _ in found for look in looks))
    clouds = []
    for (name, _, weights), (reading, looks, chunks) in zip(named, found, strict=True):
        cloud = _made(reading._replace(dtype=dtype), looks, chunks)
        clouds.append(cloud if weights is None else _weighed(cloud, f"{name}_weights", weights))
    dims = [cloud.dim for cloud in clouds]
    for (name, _, _), cloud in zip(named[1:], clouds[1:], strict=True):
        if cloud.dim != dims[0]:
            shapes = f"{clouds[0].points.shape} and {cloud.points.shape}"
            raise ValueError(f"`{named[0][0]}` and `{name}` must share `dim`; got shapes {shapes}.")
    return clouds


def _columns_of(name: str, given: Any) -> list[Hashable] | None:
    """The names of the columns of a frame, Dask's or another's; None where `given` is none."""
    if is_dask(given) and hasattr(given, "columns"):
        return column_names(name, given._meta)
    return column_names(name, given)


class Look(NamedTuple):
    """What is seen of a chunk."""

    n: int
    dtype: DType
    low: Table
    high: Table


class Summary(NamedTuple):
    """Mass, mean and mean squares about it: a number, or `(dim, dim)` with products."""

    mass: float
    mean: Table
    square: Table


def merged_moments(parts: Sequence[Summary]) -> Summary:
    """The moments of all parts together; masses may be numbers of points or weights.

    Examples
    --------
    >>> a, b = (Summary(2.0, np.array([m]), np.array(1.0)) for m in (0.0, 2.0))
    >>> merged_moments([a, b])
    Summary(mass=4.0, mean=array([1.]), square=array(2.))
    """
    mass = math.fsum(part.mass for part in parts)
    # A chunk may have no mass at all.
    shares = [part.mass / (mass or 1.0) for part in parts]
    mean = sum(share * part.mean for share, part in zip(shares, parts, strict=True))
    square: Any = 0.0
    for share, part in zip(shares, parts, strict=True):
        gap = part.mean - mean
        between = gap @ gap if part.square.ndim == 0 else np.outer(gap, gap)
        square = square + share * (part.square + between)
    return Summary(mass, np.asarray(mean), np.asarray(square))


def _chunks_of(name: str, given: Any) -> tuple[list[Any], list[int | None], int | None]:
    """Delayed chunks along the rows, how many each is said to have, and of which dimension."""
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


def _looked_at(
    reading: Reading, chunks: list[Any], sizes: list[int | None], dim: int | None
) -> tuple[Reading, list[Look], list[Any]]:
    """What is seen of all chunks that are not empty."""
    first: int | None = 0
    calls: list[tuple[Any, ...]] = []
    for k, (chunk, size) in enumerate(zip(chunks, sizes, strict=True)):
        calls.append((_look, chunk, reading, _Place(k, first, size, dim)))
        first = None if first is None or size is None else first + size
    looks = run_all(calls)
    found = [(look, chunk) for look, chunk in zip(looks, chunks, strict=True) if look is not None]
    if not found:
        raise ValueError(f"`{reading.name}` must hold at least one point and dimension; all chunks are empty.")
    dims = [len(look.low) for look, _ in found]
    for k, other in enumerate(dims):
        if other != dims[0]:
            raise ValueError(
                f"All chunks of `{reading.name}` must share `dim`; chunk {k} has dim {other}, and chunk 0 has "
                f"dim {dims[0]} (empty chunks not counted)."
            )
    return reading, [look for look, _ in found], [chunk for _, chunk in found]


def _made(reading: Reading, looks: list[Look], chunks: list[Any]) -> LazyCloud:
    n = sum(look.n for look in looks)
    dtype = reading.dtype
    low = np.min([look.low for look in looks], axis=0).astype(dtype)
    high = np.max([look.high for look in looks], axis=0).astype(dtype)
    return LazyCloud(
        points=shape_only((n, len(low)), dtype),
        largest=largest_of(low, high),
        chunks=tuple(chunks),
        sizes=tuple(look.n for look in looks),
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


def _look(chunk: Any, reading: Reading, place: _Place) -> Look | None:
    """What is seen of a chunk; None where it is empty, and an error that tells its place where it is bad."""
    try:
        return _look_at_points(reading.name, reading.array(chunk), place)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{place.told(reading.name)}: {error}") from None


def _look_at_points(name: str, points: Table, place: _Place) -> Look | None:
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
    return Look(rows, dtype, *range_of_rows(np.ascontiguousarray(points)))


def _moments(chunk: Any, weights: Any, reading: Reading) -> Summary:
    """The mean of a chunk and its covariance."""
    share = None if weights is None else weights_of(reading.name, weights)
    mass, mean, away = _away(reading.points(chunk).astype(np.float64), share)
    if share is None or mass == 0:
        return Summary(mass, mean, away.T @ away / len(away))
    return Summary(mass, mean, (away * (share / mass)[:, None]).T @ away)


def weights_of(name: str, chunk: Any) -> Table:
    """The weights of a chunk, in float64."""
    table = read_column(f"`{name}`", chunk) if hasattr(chunk, "to_numpy") else np.asarray(chunk)
    return table.astype(np.float64)


class _Weighed(NamedTuple):
    """What is seen of the weights of a chunk."""

    least: float
    most: float
    total: float
    dtype: DType


def _weighed(cloud: LazyCloud, name: str, given: Any) -> LazyCloud:
    """The cloud with weights, which are checked and cut as its points are."""
    chunks = _weight_chunks(cloud, name, given)
    sized = zip(chunks, cloud.sizes, strict=True)
    looks: list[_Weighed] = run_all([(_weigh, c, name, k, size) for k, (c, size) in enumerate(sized)])
    check_sum(name, math.fsum(look.total for look in looks), looks[0].dtype)
    if min(look.least for look in looks) == max(look.most for look in looks):
        return cloud
    return replace(
        cloud,
        weights=np.broadcast_to(1 / cloud.n, (cloud.n,)),
        weight_chunks=tuple(chunks),
        chunk_weights=tuple(look.total for look in looks),
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


def _weigh(weights: Any, name: str, chunk: int, size: int) -> _Weighed:
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


# Points whose moments are taken together.
_PIECE_POINTS = 1 << 14


class Visit(NamedTuple):
    """What a pass over the chunks of a cloud brings back."""

    moments: Summary
    """With the mean squared distance from the mean."""
    points: list[Table]
    """Points at places that were drawn, `(places, dim)` each."""


def visit_chunks(clouds: Sequence[LazyCloud], drawn: Sequence[Sequence[Table]]) -> list[Visit]:
    """Go over all chunks once, for moments and for points at places that were drawn.

    Places are the numbers of points, or shares of the mass that comes before them. Points are in their units,
    but not moved to another origin.
    """
    calls: list[tuple[Any, ...]] = []
    places = [np.concatenate([np.zeros(0, dtype=np.int64), *own]) for own in drawn]
    by_chunk = [_by_chunk(cloud, own) for cloud, own in zip(clouds, places, strict=True)]
    for cloud, own in zip(clouds, by_chunk, strict=True):
        reading = cloud.reading._replace(origin=None)
        for k, (chunk, weights) in enumerate(cloud.pairs):
            calls.append(
                (_visit, chunk, weights, reading, own[k][1] if k in own else np.zeros(0, dtype=np.int64))
            )
    found = iter(run_all(calls))
    visits = []
    for cloud, own, parts in zip(clouds, by_chunk, drawn, strict=True):
        table = np.empty((sum(len(part) for part in parts), cloud.dim))
        moments = []
        for k in range(len(cloud.chunks)):
            summary, rows = next(found)
            moments.append(summary)
            if k in own:
                table[own[k][0]] = rows
        cuts = np.cumsum([len(part) for part in parts])[:-1]
        visits.append(Visit(merged_moments(moments), np.split(table, cuts) if parts else []))
    return visits


def _by_chunk(cloud: LazyCloud, places: Table) -> dict[int, tuple[Table, Table]]:
    """For each chunk that has any: which places it has, and where they are in it."""
    ends = np.cumsum(cloud.sizes if cloud.weight_chunks is None else cloud.chunk_weights)
    at = places if cloud.weight_chunks is None else places * ends[-1]
    owner = np.minimum(np.searchsorted(ends, at, side="right"), len(ends) - 1)
    starts = np.concatenate([[0], ends[:-1]])
    return {int(k): (np.flatnonzero(owner == k), at[owner == k] - starts[k]) for k in np.unique(owner)}


def _visit(chunk: Any, weights: Any, reading: Reading, among: Table) -> tuple[Summary, Table]:
    points = reading.points(chunk)
    share = None
    if weights is not None:
        share = weights_of(reading.name, weights)
        ends = np.cumsum(share)
        among = np.minimum(np.searchsorted(ends, among, side="right"), len(ends) - 1)
    parts = []
    # A few points at a time, as a cache holds them.
    for first in range(0, len(points), _PIECE_POINTS):
        few = slice(first, first + _PIECE_POINTS)
        own = None if share is None else share[few]
        mass, mean, away = _away(points[few].astype(np.float64), own)
        squares = np.vecdot(away, away)
        spread = squares.mean() if own is None or mass == 0 else (own / mass) @ squares
        parts.append(Summary(mass, mean, np.asarray(spread)))
    return merged_moments(parts), points[among].astype(np.float64)


def _away(points: Table, share: Table | None) -> tuple[float, Table, Table]:
    """Mass and mean of points, and the points from there on; `points` are overwritten."""
    mass = float(len(points) if share is None else share.sum())
    counted = np.ones(len(points)) if share is None or mass == 0 else share
    # A product: NumPy's means go through short rows one by one.
    mean = counted @ points / counted.sum()
    points -= mean
    return mass, mean, points
