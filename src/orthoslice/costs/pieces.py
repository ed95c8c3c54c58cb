"""Costs on the line of rows that come in pieces, from many chunks of points, and may be longer than a cache."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import cast

import numpy as np

from orthoslice.backend.arrays import HostArray, Operation, PlainWork
from orthoslice.backend.kernels.rough_order import RowInPieces
from orthoslice.costs.lines import powered

__all__ = ["RowInPieces", "mark_counts", "order_roughly", "piece_cost"]


order_roughly: Operation[None] = Operation("order_roughly")
"""order_roughly(rows (slices, n)): put rows, in place, in an order that :data:`piece_cost` can make use of.

That is the order of their leading bits, or any finer one.
"""


@order_roughly.implementation("numba", lambda *_: None, plain_work=PlainWork.of)
def _order_roughly_numba(rows: HostArray) -> None:
    from orthoslice.backend.kernels.numba.pieces import order_in_place

    order_in_place(rows)


@order_roughly.implementation("reference", lambda *_: None)
def _order_roughly(rows: HostArray) -> None:
    rows.sort(axis=-1)


mark_counts: Operation[HostArray] = Operation("mark_counts")
"""mark_counts(parts, marks (k,)) -> (2, k): how many numbers are below, and up to, each mark.

The numbers come in parts, which are arrays `(n,)`, and in any order.
"""


def _counting_work(parts: Iterable[HostArray], marks: HostArray) -> PlainWork:
    # Plain code would hold all parts, which may be more than fits the memory.
    return PlainWork(sys.maxsize, str(marks.dtype))


@mark_counts.implementation("numba", lambda *_: None, plain_work=_counting_work)
def _mark_counts_numba(parts: Iterable[HostArray], marks: HostArray) -> HostArray:
    from orthoslice.backend.kernels.numba.pieces import count_marks

    counts: HostArray = count_marks(parts, marks)
    return counts


@mark_counts.implementation("reference", lambda *_: None)
def _mark_counts(parts: Iterable[HostArray], marks: HostArray) -> HostArray:
    row = np.sort(np.concatenate(list(parts)))
    return np.stack([np.searchsorted(row, marks, "left"), np.searchsorted(row, marks, "right")])


piece_cost: Operation[float] = Operation("piece_cost")
"""piece_cost(x side, y side, mass, p) -> float: the cost of moving `mass` from one side to the other, by order.

The mass is that of each side's least numbers, after the skipped ones; the cost is the sum of mass |x - y|^p.
"""


def _numbers_of(x: RowInPieces, y: RowInPieces) -> list[int]:
    return [sum(piece.size for piece in side.pieces) for side in (x, y)]


def _pieces_work(x: RowInPieces, y: RowInPieces, *_: object) -> PlainWork:
    return PlainWork.of(*x.pieces, *y.pieces, times=4)


def _kernel_bytes(x: RowInPieces, y: RowInPieces, *_: object) -> int:
    # Where the leading bits of all numbers are the same, they are sorted all at once.
    n, m = _numbers_of(x, y)
    return int(x.pieces[0].itemsize) * (n + m + 2 * max(n, m))


def _plain_bytes(x: RowInPieces, y: RowInPieces, *_: object) -> int:
    # Numbers twice; their ends, once a side and twice merged; and a pair for each end.
    return (2 * int(x.pieces[0].itemsize) + 64) * sum(_numbers_of(x, y))


@piece_cost.implementation("numba", lambda *_: None, row_bytes=_kernel_bytes, plain_work=_pieces_work)
def _piece_cost_numba(x: RowInPieces, y: RowInPieces, mass: int, p: float) -> float:
    from orthoslice.backend.kernels.numba.pieces import price_pieces

    return price_pieces(x, y, mass, p)


@piece_cost.implementation("reference", lambda *_: None, row_bytes=_plain_bytes)
def _piece_cost(x: RowInPieces, y: RowInPieces, mass: int, p: float) -> float:
    rows, stops = [], []
    for side in (x, y):
        runs = [np.full(count, value, dtype=side.pieces[0].dtype) for value, count in side.ends]
        rows.append(np.sort(np.concatenate([*runs, *side.pieces])))
        stops.append(side.unit * np.arange(1, rows[-1].size + 1) - side.skipped)
    cuts = np.unique(np.concatenate([[0, mass], *stops]))
    cuts = cuts[(cuts >= 0) & (cuts <= mass)]
    i, j = (np.searchsorted(own, cuts[:-1], side="right") for own in stops)
    return float(cast(HostArray, powered(rows[0][i] - rows[1][j], p)).astype(np.float64) @ np.diff(cuts))
