"""Distances under permuted labels: pooled points are projected and sorted once, for all labellings."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from orthoslice.arrays import LABELS, Stream
from orthoslice.blocks import Layout
from orthoslice.cloud import Cloud
from orthoslice.costs.pools import mean_shortening
from orthoslice.directions import Sampler
from orthoslice.kernels import LABELLINGS
from orthoslice.labels import Exchange, Table, label_block, line_totals, space_totals
from orthoslice.orders import order_points, ready_for_ties, stable_order
from orthoslice.progress import progress_bar
from orthoslice.sweeps import Piece, check_underflow, sweep_directions
from orthoslice.threads import ordered_map

# Bytes a pooled point and direction: while it is projected and sorted, and as long as it is in use.
_SORTING_BYTES, _SORTED_BYTES = 48, 12


class PermutationTest(NamedTuple):
    """All that a test is made of, checked and complete."""

    score: str
    p: float
    pooled: Cloud
    exchange: Exchange
    sampler: Sampler
    layout: Layout
    stream: Stream
    n_labellings: int
    """The observed one and all permutations."""
    memory: int
    workers: int


class Ordered(NamedTuple):
    """Pooled points in the order of their projections on some directions."""

    values: Table | None
    """Their projections, `(slices, points)`, where the score asks for them."""
    places: Table
    """The units of these points where there are projections, else the points: `(slices, points)` of uint32."""


def labelled_distances(test: PermutationTest, progress: bool) -> Table:
    """SW_p or PW_p under every labelling, the observed one first."""
    test = ready_to_order(test)
    totals = np.zeros(test.n_labellings)
    n_blocks = -(-test.n_labellings // LABELLINGS)
    with progress_bar("permutations", n_blocks * test.layout.n_directions, progress) as advance:
        for part in _sorted_parts(test):
            blocks = (functools.partial(_price, test, part, block) for block in range(n_blocks))
            for block, found in enumerate(ordered_map(blocks, min(test.workers, n_blocks))):
                totals[block * LABELLINGS : block * LABELLINGS + len(found)] += found
                advance(len(part.places))
    # Costs of some labelling are more than nothing unless all points are equal.
    one_point = Cloud(np.broadcast_to(test.pooled.points[:1], test.pooled.points.shape))
    check_underflow(test.p, test.pooled, one_point, totals.max(keepdims=True) / test.layout.n_directions)
    return distances_of(test, totals)


def ready_to_order(test: PermutationTest) -> PermutationTest:
    """The test with its points in the order that decides ties, where the score asks for it."""
    if test.score != "projected":
        return test
    # Ties are taken in lexicographic order of the points, which knows nothing of labels.
    order, pooled = ready_for_ties(test.pooled)
    return test._replace(pooled=pooled, exchange=replace(test.exchange, unit=test.exchange.unit[order]))


def priced_piece(test: PermutationTest, piece: Piece) -> Table:
    """Summed costs of every labelling on some directions."""
    part = _sort(test, piece)
    n_blocks = -(-test.n_labellings // LABELLINGS)
    return np.concatenate([_price(test, part, block) for block in range(n_blocks)])


def distances_of(test: PermutationTest, totals: Table) -> Table:
    """SW_p or PW_p from summed costs."""
    ambient = test.sampler.ambient_dim(test.pooled.dim)
    factor = 1 / mean_shortening(test.pooled.dim, ambient, test.p) if test.score == "sliced" else 1.0
    return np.asarray((factor * totals / test.layout.n_directions) ** (1 / test.p))


def _sorted_parts(test: PermutationTest) -> Iterator[Ordered]:
    """Pooled points in order, for some directions at a time."""
    n, dim = test.pooled.n, test.pooled.dim
    at_once = max(
        1, test.memory // 4 // test.workers // (n * _SORTING_BYTES + 96 * test.sampler.ambient_dim(dim))
    )
    at_once = min(at_once, max(1, -(-test.layout.n_directions // test.workers)))
    # A quarter of the memory for sorting, and one each for the part in use, the next one, and its pieces.
    held = max(1, test.memory // 4 // (n * _SORTED_BYTES))
    pieces = sweep_directions(
        test.sampler, test.layout, test.stream, dim, np.dtype(np.float64), min(at_once, held)
    )
    parts: list[Ordered] = []
    work = (functools.partial(_sort, test, piece) for piece in pieces)
    for part in ordered_map(work, test.workers):
        if parts and sum(len(p.places) for p in parts) + len(part.places) > held:
            yield _joined(parts)
            parts = []
        parts.append(part)
    yield _joined(parts)


def _joined(parts: list[Ordered]) -> Ordered:
    values = [part.values for part in parts if part.values is not None]
    return Ordered(np.concatenate(values) if values else None, np.concatenate([part.places for part in parts]))


def _sort(test: PermutationTest, piece: Piece) -> Ordered:
    projections = piece.directions.project(test.pooled.points, piece.rows)
    if test.score == "projected":
        return Ordered(None, order_points(projections, test.pooled).astype(np.uint32))
    order = stable_order(projections)
    return Ordered(np.take_along_axis(projections, order, axis=1), test.exchange.unit[order])


def _price(test: PermutationTest, part: Ordered, block: int) -> Table:
    """Summed costs of one block of labellings."""
    words = label_block(test.stream.fold(0, LABELS), block, test.exchange)
    sizes = test.exchange.sizes(words, min(LABELLINGS, test.n_labellings - block * LABELLINGS))
    if part.values is not None:
        found: Table = line_totals(part.values, part.places, words, sizes, test.p)
    else:
        found = space_totals(test.pooled.points, part.places, test.exchange, words, sizes, test.p)
    return found
