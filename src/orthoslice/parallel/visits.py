"""Passes over the chunks of clouds: their moments, and points at places that were drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orthoslice.parallel.reading import Reading, Table, run_all, weights_of

if TYPE_CHECKING:
    from orthoslice.parallel.chunks import LazyCloud

# Points whose moments are taken together.
_PIECE_POINTS = 1 << 14


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


def moments(chunk: Any, weights: Any, reading: Reading) -> Summary:
    """The mean of a chunk and its covariance."""
    share = None if weights is None else weights_of(reading.name, weights)
    mass, mean, away = _away(reading.points(chunk).astype(np.float64), share)
    if share is None or mass == 0:
        return Summary(mass, mean, away.T @ away / len(away))
    return Summary(mass, mean, (away * (share / mass)[:, None]).T @ away)


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
        summaries = []
        for k in range(len(cloud.chunks)):
            summary, rows = next(found)
            summaries.append(summary)
            if k in own:
                table[own[k][0]] = rows
        cuts = np.cumsum([len(part) for part in parts])[:-1]
        visits.append(Visit(merged_moments(summaries), np.split(table, cuts) if parts else []))
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
