"""Distances under permuted labels: pooled points are projected and sorted once, for all labellings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from orthoslice.applications.two_sample.labels import Exchange, label_block
from orthoslice.applications.two_sample.pricing import kept_totals, line_totals, sort_with_units, space_totals
from orthoslice.backend.arrays import (
    LABELS,
    Array,
    HostArray,
    Key,
    Operation,
    concat_rows,
    device,
    namespace,
    to_numpy,
)
from orthoslice.backend.kernels import LABELLINGS
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.kernels.cuda.labels import GROUP, draw_words, line_costs, space_costs
from orthoslice.backend.kernels.when_to_compile import expecting
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
_SORTING_BYTES, _ORDERING_BYTES = 24, 48

# Bytes a point of a sorted direction: a projection with a unit, and a place in the order that decides ties.
_LINE_BYTES, _PLACE_BYTES = 12, 4

# Bytes a pooled point that a worker needs to price labellings: words, and for other powers than 1 the words in
# the order of a direction and the points of one labelling.
_WORD_BYTES, _DEALT_BYTES = 8, 24

# Plain code goes through as many labels in the time of a number of other work, or fewer.
_LABELS_A_NUMBER = 32

# Bytes of a unit's labels under a group of labellings, on a GPU.
_GROUP_BYTES = GROUP // 8


class Statistic(NamedTuple):
    """A distance that every labelling gets."""

    method: str
    """"sliced" for SW_p, "projected" for PW_p."""
    p: float
    most_directions: int | None = None
    """The mean is over the first directions, at most this many; None: over all."""

    @property
    def name(self) -> str:
        return f"{'SW' if self.method == 'sliced' else 'PW'}_{self.p:g}"

    def count(self, n_directions: int) -> int:
        """How many directions it is the mean over."""
        return n_directions if self.most_directions is None else min(self.most_directions, n_directions)


class PermutationTest(NamedTuple):
    """All that a test is made of, checked and complete."""

    statistics: tuple[Statistic, ...]
    """The distances of every labelling, which share directions and their order."""
    pooled: ReadyCloud
    exchange: Exchange
    sampler: Sampler
    layout: Layout
    key: Key
    n_labellings: int
    """The observed one and all permutations."""
    memory: int
    workers: int
    kept: tuple[int, int] | None = None
    """The sizes of both samples where labels say which points are kept, and not which are called x."""
    home: Array | None = None
    """An array on the GPU where the work is to be done; None for host memory."""
    apart: bool = False
    """Whether every direction has a distance of its own, and not all of them one; for a single statistic."""

    @property
    def n_distances(self) -> int:
        """Distances of a labelling."""
        return self.layout.n_directions if self.apart else len(self.statistics)

    @property
    def on_lines(self) -> bool:
        """Whether any pairs are priced on their lines."""
        return any(own.method == "sliced" for own in self.statistics)

    @property
    def n_in_space(self) -> int:
        """Directions whose pairs are priced in space: the first ones."""
        counts = [s.count(self.layout.n_directions) for s in self.statistics if s.method == "projected"]
        return max(counts, default=0)

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

    first: int
    """The number of the first of these directions among all."""
    values: Array | None
    """Their projections, `(slices, points)`; None if no pairs are priced on lines."""
    units: Array | None
    """The units of these points, of 32 bits like `points`; None where `values` is."""
    points: Array | None
    """The points, `(slices, points)`; None if no pairs are priced in space."""

    @property
    def n_rows(self) -> int:
        some: Any = self.points if self.units is None else self.units
        return len(some)

    def before(self, stop: int) -> Ordered:
        """The directions before number `stop`."""
        return self._rows(0, max(0, stop - self.first))

    def lines(self) -> Iterator[Ordered]:
        """Each direction by itself."""
        return (self._rows(k, k + 1) for k in range(self.n_rows))

    def _rows(self, start: int, stop: int) -> Ordered:
        values, units, points = (None if table is None else table[start:stop] for table in self[1:])
        return Ordered(self.first + start, values, units, points)


def labelled_values(test: PermutationTest, progress: bool) -> HostArray:
    """SW_p^p or PW_p^p under every labelling, the observed one first, `(n_distances, n_labellings)`."""
    (values,) = labelled_waves(test, (test.n_labellings,), progress)
    return values


def labelled_waves(test: PermutationTest, looks: Sequence[int], progress: bool) -> Iterator[HostArray]:
    """As :func:`labelled_values`, of as many labellings as each of `looks` says; the last says all.

    Labellings are priced when their look is reached, each once. Every direction is sorted once; where the
    sorted directions do not fit the memory all at once, once for each look that is reached.
    """
    test = ready_to_order(test)
    placed = _placed(test)
    totals = np.zeros((test.n_distances, test.n_labellings))
    n_blocks = -(-test.n_labellings // test.lanes)
    with progress_bar("permutations", n_blocks * test.layout.n_directions, progress) as advance:
        is_kept = _held_rows(placed) >= test.layout.n_directions
        kept = list(_sorted_parts(placed)) if is_kept else None
        done = 0
        for look in looks:
            # A GPU prices all labellings at once, if it can.
            wanted = look if test.home is None else test.n_labellings
            if wanted > done:
                for parts in _sorted_parts(placed) if kept is None else kept:
                    _add_blocks(placed, parts, done, wanted, totals, advance)
                    if kept is None or look == looks[-1]:
                        # Frees the memory before the next directions are sorted.
                        parts.clear()
                done = wanted
            yield values_of(test, totals[:, :look])


def _add_blocks(
    test: PermutationTest,
    parts: list[Ordered],
    first: int,
    stop: int,
    totals: HostArray,
    advance: Callable[[int], None],
) -> None:
    """Add what labellings `first .. stop`, in whole blocks, cost on some directions."""
    lanes = test.lanes
    numbers = range(first // lanes, -(-stop // lanes))
    blocks = (functools.partial(price_block, test, parts, block) for block in numbers)
    workers, n_rows = min(_pricing_workers(test), len(numbers)), sum(part.n_rows for part in parts)
    with expecting(test.pooled.n * n_rows * (stop - first) // _LABELS_A_NUMBER):
        for block, found in zip(numbers, ordered_map(blocks, workers), strict=True):
            add_costs(test, totals[:, block * lanes :], parts[0].first, found)
            advance(n_rows)


def add_costs(test: PermutationTest, totals: HostArray, first: int, found: HostArray) -> None:
    """Add costs of some labellings to the first columns of `totals`; `first` is the number of a direction."""
    rows = slice(first, first + len(found)) if test.apart else slice(None)
    totals[rows, : found.shape[1]] += found


def _pricing_workers(test: PermutationTest) -> int:
    walks = all(own.method == "sliced" and own.p == 1 for own in test.statistics)
    own = (_WORD_BYTES if walks else _WORD_BYTES + _DEALT_BYTES) * test.pooled.n
    return share_memory(3 * test.room // 4, own, test.workers)[0]


def ready_to_order(test: PermutationTest) -> PermutationTest:
    """The test with its points in the order that decides ties, if pairs are priced in space."""
    if not test.n_in_space:
        return test
    # Ties are taken in lexicographic order of the points, which does not depend on labels.
    pooled = ready_for_ties(test.pooled)
    return test._replace(pooled=pooled, exchange=replace(test.exchange, unit=test.exchange.unit[pooled.order]))


def priced_piece(test: PermutationTest, piece: Piece) -> HostArray:
    """Costs of every labelling on some directions: summed, or of each direction if they are apart."""
    part = _sort(test, piece)
    n_blocks = -(-test.n_labellings // test.lanes)
    return np.concatenate([price_block(test, [part], block) for block in range(n_blocks)], axis=1)


def values_of(test: PermutationTest, totals: HostArray) -> HostArray:
    """SW_p^p or PW_p^p `(n_distances, labellings)` from summed costs."""
    dim, count = test.pooled.dim, 1 if test.apart else test.layout.n_directions
    ambient = test.sampler.ambient_dim(dim)
    divisors = [
        own.count(count) * (mean_shortening(dim, ambient, own.p) if own.method == "sliced" else 1.0)
        for own in test.statistics
    ]
    values: HostArray = totals / np.array(divisors)[:, None]
    # Unless all points are equal, some labelling costs more than 0: if none does, powers underflow.
    for own, found in zip(test.statistics, values.reshape(len(divisors), -1), strict=True):
        differ = functools.partial(_have_other_points, test)
        check_underflow(own.p, test.pooled.dtype, found.max(keepdims=True), differ)
    return values


def _have_other_points(test: PermutationTest) -> bool:
    return not are_all_equal(test.pooled)


def distances_of(test: PermutationTest, values: HostArray) -> HostArray:
    """SW_p or PW_p `(n_distances, labellings)` from their powers."""
    powers = np.array([own.p for own in test.statistics])
    return np.asarray(values ** (1 / powers)[:, None])


def _placed(test: PermutationTest) -> PermutationTest:
    """The test with its points, units and given directions moved to the device of `home`, if there is one."""
    if test.home is None:
        return test
    xp, place = namespace(test.home), device(test.home)

    def moved(table: Any, dtype: type = np.float64) -> Array | None:
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


def _held_rows(test: PermutationTest) -> int:
    """How many sorted directions are held: a quarter of the memory, which leaves room to sort and to price."""
    row = _LINE_BYTES + (_PLACE_BYTES if test.n_in_space and test.on_lines else 0)
    return max(1, test.room // 4 // (test.pooled.n * row))


def _sorted_parts(test: PermutationTest) -> Iterator[list[Ordered]]:
    """Pooled points in the order of their projections, for as many directions at a time as the memory holds."""
    n, dim = test.pooled.n, test.pooled.dim
    held = _held_rows(test)
    in_place = not test.n_in_space and test.home is None
    row = n * (_LINE_BYTES if in_place else _ORDERING_BYTES) + 96 * test.sampler.ambient_dim(dim)
    workers, at_once = share_memory(3 * test.room // 4, row, test.workers, n * _SORTING_BYTES)
    at_once = min(at_once, held, max(1, -(-test.layout.n_directions // workers)))
    xp, points = namespace(test.pooled.points), test.pooled.points
    key = Key(*(xp.asarray(word, device=device(points)) for word in test.key))
    pieces = sweep_directions(test.sampler, test.layout, key, dim, points.dtype, at_once)
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
    """All directions as one part; those that are not priced in space have no points, and come last."""

    def joined(tables: Sequence[Array | None]) -> Array | None:
        some = [table for table in tables if table is not None]
        return concat_rows(some) if some else None

    firsts, values, units, points = zip(*parts, strict=True)
    return Ordered(firsts[0], joined(values), joined(units), joined(points))


def _sort(test: PermutationTest, piece: Piece) -> Ordered:
    values: Array | None
    units: Array | None
    projections, unit = test.pooled.project(piece.directions, piece.rows, widely=True), test.exchange.unit
    if piece.first >= test.n_in_space:
        values, units = sort_with_units(projections, unit)
        return Ordered(piece.first, values, units, None)
    xp = namespace(projections)
    order = order_points(projections, test.pooled)
    values = xp.take_along_axis(projections, order, axis=1) if test.on_lines else None
    units = unit[order] if test.on_lines else None
    return Ordered(piece.first, values, units, xp.astype(order, unit.dtype))


price_block: Operation[HostArray] = Operation("price_block")
"""price_block(test, parts, block) -> (n, lanes): costs of a block of labellings, `test.lanes` at most.

A row a statistic, summed over directions; or, if they are apart, a row a direction of `parts`.
"""


@price_block.implementation("cuda", lambda test, *_: cuda_refusal(test.pooled.points, dtype="float64"))
def _price_block_cuda(test: PermutationTest, parts: list[Ordered], block: int) -> HostArray:
    (part,) = parts
    first, own = block * test.lanes, test.exchange
    wanted = min(test.lanes, test.n_labellings - first)
    high, low = (int(word[0]) & 0xFFFFFFFF for word in test.key.fold(0, LABELS))
    words, sizes = draw_words(high << 32 | low, first, own.left, own.quota, own.weight, wanted)
    if first == 0:
        words[0, :, 0] += own.observed - (words[0, :, 0] & 1)
        sizes[0] = (own.observed * own.weight).sum()
    room, rows = test.memory // 4, []
    for statistic in test.statistics:
        head = part.before(statistic.count(test.layout.n_directions))
        if not head.n_rows:
            rows.append(np.zeros((1, wanted)))
            continue
        if statistic.method == "sliced":
            costs = line_costs(head.values, head.units, words, sizes, statistic.p, room)
        else:
            costs = space_costs(test.pooled.points, head.points, own.unit, words, sizes, statistic.p, room)
        rows.append(to_numpy(costs if test.apart else costs.sum(0)[None, :])[:, :wanted])
    return np.concatenate(rows)


@price_block.implementation("reference", lambda *_: None)
def _price_block(test: PermutationTest, parts: list[Ordered], block: int) -> HostArray:
    words = label_block(test.key.fold(0, LABELS), block, test.exchange)
    lanes = min(LABELLINGS, test.n_labellings - block * LABELLINGS)
    if test.kept is None:
        sizes = test.exchange.sizes(words, lanes)
    else:
        n, m = test.kept
        sizes = np.full((lanes, 2), (n // 2, m // 2), dtype=np.int64)
        if block == 0:
            sizes[0] = test.kept
    if test.apart:
        (statistic,) = test.statistics
        lines = (line for part in parts for line in part.lines())
        return np.stack([_price_part(test, statistic, line, words, sizes) for line in lines])
    found = np.zeros((len(test.statistics), lanes))
    for row, statistic in enumerate(test.statistics):
        stop = statistic.count(test.layout.n_directions)
        for part in parts:
            if part.first < stop:
                found[row] += _price_part(test, statistic, part.before(stop), words, sizes)
    return found


def _price_part(
    test: PermutationTest, statistic: Statistic, part: Ordered, words: HostArray, sizes: HostArray
) -> HostArray:
    if test.kept is not None:
        found = kept_totals(part.values, part.units, words, sizes, test.kept[0], statistic.p)
    elif statistic.method == "sliced":
        found = line_totals(part.values, part.units, words, sizes, statistic.p)
    else:
        found = space_totals(test.pooled.points, part.points, test.exchange, words, sizes, statistic.p)
    return found
