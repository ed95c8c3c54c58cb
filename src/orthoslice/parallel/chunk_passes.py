"""Passes over the chunks of clouds: their moments, and points at places that were drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray
from orthoslice.backend.threads import single_threaded_blas
from orthoslice.parallel.reading import Reading, run_all, weights_of

if TYPE_CHECKING:
    from orthoslice.parallel.chunks import LazyCloud

# Points whose moments are taken together.
_PIECE_POINTS = 1 << 14


class Summary(NamedTuple):
    """Mass, mean and mean squares about it: a number, or `(dim, dim)` with products."""

    mass: float
    mean: HostArray
    square: HostArray


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


def spread(points: HostArray, share: HostArray | None) -> Summary:
    """The mean of some points and their mean squared distance from it; `points` are overwritten."""
    mass, mean, part = _move_to_mean(points, share)
    square = np.vdot(points, points) / len(points) if part is None else part @ np.vecdot(points, points)
    return Summary(mass, mean, np.asarray(square))


def covariance(points: HostArray, share: HostArray | None) -> Summary:
    """The mean of some points and their covariance; `points` are overwritten."""
    mass, mean, part = _move_to_mean(points, share)
    square = points.T @ points / len(points) if part is None else (points * part[:, None]).T @ points
    return Summary(mass, mean, square)


def _move_to_mean(points: HostArray, share: HostArray | None) -> tuple[float, HostArray, HostArray | None]:
    """Mass and mean of points, and the part of the mass that each has; subtracts the mean in place.

    The part is None if all points count alike: without weights, or with a total mass of 0.
    """
    mass = float(len(points) if share is None else share.sum())
    part = None if share is None or mass == 0 else share / mass
    # A product: NumPy's means go through short rows one by one.
    mean = (np.full(len(points), 1 / len(points)) if part is None else part) @ points
    points -= mean
    return mass, mean, part


class Visit(NamedTuple):
    """What a pass over the chunks of a cloud brings back."""

    points: list[HostArray]
    """Points at places that were drawn, `(places, dim)` each."""
    moments: Summary | None
    """None unless `summarise` was given."""


def visit_chunks(
    clouds: Sequence[LazyCloud],
    drawn: Sequence[Sequence[HostArray]],
    summarise: Callable[[HostArray, HostArray | None], Summary] | None = None,
) -> list[Visit]:
    """Go over all chunks once, for points at places that were drawn and perhaps for moments.

    Places are the numbers of points, or shares of the mass that comes before them; `summarise` is
    :func:`spread` or :func:`covariance`.
    """
    nowhere = np.zeros(0, dtype=np.int64)
    places = [np.concatenate([nowhere, *own]) for own in drawn]
    by_chunk = [_by_chunk(cloud, own) for cloud, own in zip(clouds, places, strict=True)]
    calls: list[tuple[Any, ...]] = []
    for cloud, own in zip(clouds, by_chunk, strict=True):
        for k, pair in enumerate(cloud.pairs):
            calls.append((_visit, *pair, cloud.reading, own[k][1] if k in own else nowhere, summarise))
    found = iter(run_all(calls))
    visits = []
    for cloud, own, parts in zip(clouds, by_chunk, drawn, strict=True):
        table = np.empty((sum(len(part) for part in parts), cloud.dim))
        summaries = []
        for k in range(len(cloud.chunks)):
            rows, summary = next(found)
            summaries.append(summary)
            if k in own:
                table[own[k][0]] = rows
        cuts = np.cumsum([len(part) for part in parts])[:-1]
        moments = None if summarise is None else merged_moments(summaries)
        visits.append(Visit(np.split(table, cuts) if parts else [], moments))
    return visits


def _by_chunk(cloud: LazyCloud, places: HostArray) -> dict[int, tuple[HostArray, HostArray]]:
    """For each chunk that has any: which places it has, and where they are in it."""
    ends = np.cumsum(cloud.sizes if cloud.weight_chunks is None else cloud.chunk_weights)
    at = places if cloud.weight_chunks is None else places * ends[-1]
    owner = np.minimum(np.searchsorted(ends, at, side="right"), len(ends) - 1)
    starts = np.concatenate([[0], ends[:-1]])
    return {int(k): (np.flatnonzero(owner == k), at[owner == k] - starts[k]) for k in np.unique(owner)}


def _visit(
    chunk: object,
    weights: object,
    reading: Reading,
    among: HostArray,
    summarise: Callable[[HostArray, HostArray | None], Summary] | None,
) -> tuple[HostArray, Summary | None]:
    points = reading.points(chunk)
    share = None
    if weights is not None:
        share = weights_of(reading.name, weights)
        ends = np.cumsum(share)
        among = np.minimum(np.searchsorted(ends, among, side="right"), len(ends) - 1)
    rows = points[among].astype(np.float64)
    if summarise is None:
        return rows, None
    parts = []
    with single_threaded_blas():
        # A few points at a time, as a cache holds them.
        for first in range(0, len(points), _PIECE_POINTS):
            few = slice(first, first + _PIECE_POINTS)
            parts.append(summarise(points[few].astype(np.float64), None if share is None else share[few]))
    return rows, merged_moments(parts)
