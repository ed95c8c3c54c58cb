"""Distances under permuted labels: pooled points are projected and sorted once, for all labellings."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from orthoslice.applications.two_sample.labels import (
    Exchange,
    kept_totals,
    label_block,
    line_totals,
    sort_with_units,
    space_totals,
)
from orthoslice.backend.arrays import (
    LABELS,
    Array,
    Operation,
    Stream,
    Table,
    concat_rows,
    device,
    namespace,
    to_numpy,
)
from orthoslice.backend.kernels import LABELLINGS
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.kernels.cuda.labels import GROUP, draw_words, line_costs, space_costs
from orthoslice.backend.memory import share_memory
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.threads import ordered_map
from orthoslice.clouds.pooling import are_all_equal
from orthoslice.clouds.ready import ReadyCloud, ready_for_ties
from orthoslice.costs.pools import mean_shortening
from orthoslice.couplings.orders import order_points
from orthoslice.directions import Sampler
from orthoslice.directions.given import Given
from orthoslice.directions.layout import Layout
from orthoslice.directions.walks import Piece, sweep_directions
from orthoslice.estimates.underflow import check_underflow

# Bytes a pooled point: the scratch space of a worker that sorts, a sorted direction, and a direction that is
# being sorted other than in place.
_SORTING_BYTES, _SORTED_BYTES, _ORDERING_BYTES = 24, 12, 48

# Bytes a pooled point that a worker needs to price labellings: words, and for other powers than 1 the labels
# and points of one labelling.
_WORD_BYTES, _DEALT_BYTES = 8, 17

# Bytes of a unit's labels under a group of labellings, on a GPU.
_GROUP_BYTES = GROUP // 8


class PermutationTest(NamedTuple):
    """All that a test is made of, checked and complete."""

    score: str
    p: float
    pooled: ReadyCloud
    exchange: Exchange
    sampler: Sampler
    layout: Layout
    stream: Stream
    n_labellings: int
    """The observed one and all permutations."""
    memory: int
    workers: int
    kept: tuple[int, int] | None = None
    """The sizes of both samples where labels say which points are kept, and not which are called x."""
    home: Array | None = None
    """An array on the GPU where the work is to be done; None for host memory."""

    @property
    def lanes(self) -> int:
        """Labellings that are drawn and priced together."""
        if self.home is None:
            return LABELLINGS
        # All at once if possible: a warp draws 32 of them, one unit after the other, and a GPU has many warps.
        groups = max(1, self.memory // 4 // (_GROUP_BYTES * len(self.exchange.left)))
        return min(groups, -(-self.n_labellings // GROUP)) * GROUP

    @property
    def room(self) -> int:
        """Working memory besides `exchange`, which is held all along."""
        return self.memory if self.home is not None else max(0, self.memory - self.exchange.nbytes)


class Ordered(NamedTuple):
    """Pooled points in the order of their projections on some directions."""

    values: Array | None
    """Their projections, `(slices, points)`, if the score is "sliced"."""
    places: Array
    """The units of these points where there are projections, else the points: `(slices, points)`, 32 bits."""


def labelled_distances(test: PermutationTest, progress: bool) -> Table:
    """SW_p or PW_p under every labelling, the observed one first."""
    return np.asarray(labelled_values(test, progress) ** (1 / test.p))


def labelled_values(test: PermutationTest, progress: bool) -> Table:
    """SW_p^p or PW_p^p under every labelling, the observed one first."""
    test = ready_to_order(test)
    totals = np.zeros(test.n_labellings)
    placed, lanes = _placed(test), test.lanes
    n_blocks = -(-test.n_labellings // lanes)
    with progress_bar("permutations", n_blocks * test.layout.n_directions, progress) as advance:
        for parts in _sorted_parts(placed):
            blocks = (functools.partial(price_block, placed, parts, block) for block in range(n_blocks))
            for block, found in enumerate(ordered_map(blocks, min(_pricing_workers(placed), n_blocks))):
                totals[block * lanes : block * lanes + len(found)] += found
                advance(sum(len(part.places) for part in parts))
            # Frees the memory before the next directions are sorted.
            parts.clear()
    # Unless all points are equal, some labelling costs more than 0: if none does, powers underflow.
    largest = totals.max(keepdims=True) / test.layout.n_directions
    check_underflow(test.p, test.pooled.dtype, largest, lambda: not are_all_equal(test.pooled))
    return values_of(test, totals)


def _pricing_workers(test: PermutationTest) -> int:
    own = (
        _WORD_BYTES if test.p == 1 and test.score == "sliced" else _WORD_BYTES + _DEALT_BYTES
    ) * test.pooled.n
    return share_memory(3 * test.room // 4, own, test.workers)[0]


def ready_to_order(test: PermutationTest) -> PermutationTest:
    """The test with its points in the order that decides ties, if the score is "projected"."""
    if test.score != "projected":
        return test
    # Ties are taken in lexicographic order of the points, which does not depend on labels.
    pooled = ready_for_ties(test.pooled)
    return test._replace(pooled=pooled, exchange=replace(test.exchange, unit=test.exchange.unit[pooled.order]))


def priced_piece(test: PermutationTest, piece: Piece) -> Table:
    """Summed costs of every labelling on some directions."""
    part = _sort(test, piece)
    n_blocks = -(-test.n_labellings // test.lanes)
    return np.concatenate([price_block(test, [part], block) for block in range(n_blocks)])


def values_of(test: PermutationTest, totals: Table) -> Table:
    """SW_p^p or PW_p^p from summed costs."""
    ambient = test.sampler.ambient_dim(test.pooled.dim)
    factor = 1.0 if test.score == "projected" else 1 / mean_shortening(test.pooled.dim, ambient, test.p)
    return np.asarray(factor * totals / test.layout.n_directions)


def _placed(test: PermutationTest) -> PermutationTest:
    """The test with its points, units and given directions moved to the device of `home`, if there is one."""
    if test.home is None:
        return test
    xp, place = namespace(test.home), device(test.home)

    def moved(table: Table | None, dtype: type = np.float64) -> Array | None:
        return None if table is None else xp.asarray(table.astype(dtype, copy=False), device=place)

    own, sampler = test.exchange, test.sampler
    of_units = ("unit", "left", "quota", "observed", "weight")
    units: dict[str, Any] = {name: moved(getattr(own, name), np.int32) for name in of_units}
    if isinstance(sampler, Given):
        sampler = replace(sampler, theta=moved(sampler.theta))
    return test._replace(
        pooled=replace(test.pooled, points=moved(test.pooled.points), rounding=moved(test.pooled.rounding)),
        exchange=replace(own, **units),
        sampler=sampler,
        # A GPU is busy with one piece, and pieces that follow each other need no more memory than one.
        workers=1,
    )


def _sorted_parts(test: PermutationTest) -> Iterator[list[Ordered]]:
    """Pooled points in the order of their projections, for as many directions at a time as the memory holds."""
    n, dim = test.pooled.n, test.pooled.dim
    # A quarter of the memory is for the part in use, and the rest to sort it or to price labellings.
    held = max(1, test.room // 4 // (n * _SORTED_BYTES))
    in_place = test.score == "sliced" and test.home is None
    row = n * (_SORTED_BYTES if in_place else _ORDERING_BYTES) + 96 * test.sampler.ambient_dim(dim)
    workers, at_once = share_memory(3 * test.room // 4, row, test.workers, n * _SORTING_BYTES)
    at_once = min(at_once, held, max(1, -(-test.layout.n_directions // workers)))
    xp, points = namespace(test.pooled.points), test.pooled.points
    stream = Stream(*(xp.asarray(word, device=device(points)) for word in test.stream))
    pieces = sweep_directions(test.sampler, test.layout, stream, dim, points.dtype, at_once)
    for some in _runs_of(pieces, held):
        work = (functools.partial(_sort, test, piece) for piece in some)
        parts = list(ordered_map(work, workers))
        yield parts if test.home is None else [_joined(parts)]


def _runs_of(pieces: Iterator[Piece], most_rows: int) -> Iterator[list[Piece]]:
    """Lists of consecutive pieces with at most `most_rows` rows together, or of a single piece with more."""
    some: list[Piece] = []
    for piece in pieces:
        if some and sum(own.n_rows for own in some) + piece.n_rows > most_rows:
            yield some
            some = []
        some.append(piece)
    yield some


def _joined(parts: list[Ordered]) -> Ordered:
    values = [part.values for part in parts if part.values is not None]
    return Ordered(concat_rows(values) if values else None, concat_rows([part.places for part in parts]))


def _sort(test: PermutationTest, piece: Piece) -> Ordered:
    projections = test.pooled.project(piece.directions, piece.rows, widely=True)
    if test.score == "sliced":
        return Ordered(*sort_with_units(projections, test.exchange.unit))
    order = order_points(projections, test.pooled)
    return Ordered(None, namespace(order).astype(order, test.exchange.unit.dtype))


price_block = Operation("price_block")
"""price_block(test, parts, block) -> (lanes,): summed costs of a block of labellings, `test.lanes` at most."""


@price_block.implementation("cuda", lambda test, *_: cuda_refusal(test.pooled.points, dtype="float64"))
def _price_block_cuda(test: PermutationTest, parts: list[Ordered], block: int) -> Table:
    (part,) = parts
    first, own = block * test.lanes, test.exchange
    wanted = min(test.lanes, test.n_labellings - first)
    high, low = (int(word[0]) & 0xFFFFFFFF for word in test.stream.fold(0, LABELS))
    words, sizes = draw_words(high << 32 | low, first, own.left, own.quota, own.weight, wanted)
    if first == 0:
        words[0, :, 0] += own.observed - (words[0, :, 0] & 1)
        sizes[0] = (own.observed * own.weight).sum()
    room = test.memory // 4
    if part.values is not None:
        costs = line_costs(part.values, part.places, words, sizes, test.p, room)
    else:
        costs = space_costs(test.pooled.points, part.places, own.unit, words, sizes, test.p, room)
    return to_numpy(costs.sum(0))[:wanted]


@price_block.implementation("reference", lambda *_: None)
def _price_block(test: PermutationTest, parts: list[Ordered], block: int) -> Table:
    words = label_block(test.stream.fold(0, LABELS), block, test.exchange)
    lanes = min(LABELLINGS, test.n_labellings - block * LABELLINGS)
    if test.kept is None:
        sizes = test.exchange.sizes(words, lanes)
    else:
        n, m = test.kept
        sizes = np.full((lanes, 2), (n // 2, m // 2), dtype=np.int64)
        if block == 0:
            sizes[0] = test.kept
    return np.asarray(sum(_price_part(test, part, words, sizes) for part in parts))


def _price_part(test: PermutationTest, part: Ordered, words: Table, sizes: Table) -> Table:
    if test.kept is not None:
        found: Table = kept_totals(part.values, part.places, words, sizes, test.kept[0], test.p)
    elif part.values is not None:
        found = line_totals(part.values, part.places, words, sizes, test.p)
    else:
        found = space_totals(test.pooled.points, part.places, test.exchange, words, sizes, test.p)
    return found
