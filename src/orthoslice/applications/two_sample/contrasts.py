"""Statistics of ranks under permuted labels: the shape of every column, and how two columns go together.

W_1 of a column weighs a change by how far values move, so it hardly sees one that moves many values a little
way apart, such as one hump that becomes two. No statistic of a single column sees that columns no longer go
together. Both show in ranks, as differences of means of scores: sums over the points that are called x.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from orthoslice.applications.two_sample.labels import Exchange, label_block, unpacked
from orthoslice.backend.arrays import LABELS, HostArray, Key
from orthoslice.backend.kernels import LABELLINGS

# Legendre polynomials of ranks, up to this degree: place, spread, skewness, and one hump or two.
_DEGREE = 4

# Points times scores, above which they are left out: 999 permutations of as many take some 8 seconds of a core.
_MOST_WORK = 4 * 10**7

# Blocks of labellings, points and scores that are multiplied at once: tables of 8 MB.
_BLOCKS_AT_ONCE, _POINTS_AT_ONCE, _SCORES_AT_ONCE = 4, 1 << 12, 1 << 8

Scores = Callable[[slice, slice], HostArray]
"""Some scores of some points, `(scores, points)`."""


class Contrasts(NamedTuple):
    """What every labelling gets besides distances; large is extreme."""

    shapes: HostArray
    """Of every feature, `(dim, labellings)`."""
    pairs: HostArray | None
    """The largest of all pairs of columns, `(labellings,)`; None for one column, or too many."""
    farthest: tuple[int, int] | None
    """The pair with the largest one under the first labelling."""


def has_shapes(n_points: int, dim: int) -> bool:
    """Whether shapes of columns are looked at."""
    return _DEGREE * dim * n_points <= _MOST_WORK


def has_pairs(n_points: int, dim: int) -> bool:
    """Whether pairs of columns are looked at."""
    return dim > 1 and dim * (dim - 1) // 2 * n_points <= _MOST_WORK


def column_ranks(points: HostArray) -> HostArray:
    """Twice the rank of every value in its column, less the mean, `(dim, points)` of int32: -n < rank < n.

    Examples
    --------
    >>> column_ranks(np.array([[3.0, 1.0], [1.0, 1.0], [2.0, 0.0]])).tolist()
    [[2, -2, 0], [1, 1, -2]]
    """
    n, dim = points.shape
    found = np.empty((dim, n), dtype=np.int32)
    for row, values in zip(found, points.T, strict=True):
        order = np.argsort(values, kind="stable")
        is_new = np.diff(values[order], prepend=-np.inf) > 0
        is_new[0] = True
        starts = np.flatnonzero(is_new)
        ends = np.append(starts[1:], n)
        row[order] = np.repeat(starts + ends - n, ends - starts)
    return found


def contrast_waves(
    points: HostArray,
    exchange: Exchange,
    key: Key,
    looks: Sequence[int],
    features: Sequence[Sequence[int]] | None = None,
) -> Iterator[Contrasts]:
    """Contrasts of as many labellings as each of `looks` says, the observed one first.

    Features of one column, where `features` says which they are, make no pair.

    The shape of a column is the sum of squares of the standardised differences of its mean scores: Neyman's
    smooth test. A pair is the size of the standardised difference of the mean products of ranks, as in
    Spearman's correlation.

    References
    ----------
    Janic-Wroblewska and Ledwina, Data driven rank test for two-sample problem, Scandinavian Journal of
    Statistics 27 (2000).
    """
    ranks = column_ranks(points)
    dim, n = ranks.shape
    shapes = _Contrast(functools.partial(_polynomials, ranks), _DEGREE * dim, n)
    first, second = np.triu_indices(dim, 1)
    if features is not None:
        owner = np.arange(dim)
        for own in features:
            owner[list(own)] = own[0]
        is_apart = owner[first] != owner[second]
        first, second = first[is_apart], second[is_apart]
    pairs = None
    if has_pairs(n, dim) and len(first):
        pairs = _Contrast(functools.partial(_products, ranks, first, second), len(first), n)
    found: list[Contrasts] = []
    farthest = None
    for look in looks:
        blocks = range(sum(c.shapes.shape[1] for c in found) // LABELLINGS, -(-look // LABELLINGS))
        for start in blocks[::_BLOCKS_AT_ONCE]:
            some = blocks[start - blocks[0] :][:_BLOCKS_AT_ONCE]
            words = [label_block(key.fold(0, LABELS), block, exchange) for block in some]
            sizes = np.concatenate([exchange.sizes(own, LABELLINGS) for own in words])
            squares = shapes.of_labels(words, exchange, sizes) ** 2
            largest = None
            if pairs is not None:
                sizes_of_pairs = np.abs(pairs.of_labels(words, exchange, sizes))
                largest = sizes_of_pairs.max(axis=0)
                if not found:
                    place = int(sizes_of_pairs[:, 0].argmax())
                    farthest = int(first[place]), int(second[place])
            found.append(Contrasts(squares.reshape(dim, _DEGREE, -1).sum(axis=1), largest, farthest))
        shape = np.concatenate([c.shapes for c in found], axis=1)[:, :look]
        pair = None if pairs is None else np.concatenate([c.pairs for c in found if c.pairs is not None])[:look]
        yield Contrasts(shape, pair, farthest)


class _Contrast:
    """Differences of mean scores of x and y, in units of what their labels alone make of them."""

    def __init__(self, scores: Scores, n_scores: int, n_points: int) -> None:
        self.scores, self.n_scores, self.n_points = scores, n_scores, n_points
        self.mean, self.spread = np.empty(n_scores), np.empty(n_scores)
        for some in _slices(n_scores, _SCORES_AT_ONCE):
            pieces = [scores(some, points) for points in _slices(n_points, _POINTS_AT_ONCE)]
            self.mean[some] = sum(own.sum(axis=1) for own in pieces) / n_points
            squares = sum(((own - self.mean[some, None]) ** 2).sum(axis=1) for own in pieces)
            self.spread[some] = np.sqrt(squares / n_points)

    def of_labels(self, words: list[HostArray], exchange: Exchange, sizes: HostArray) -> HostArray:
        """For labellings of these blocks, which call `sizes (labellings,)` points x: `(scores, labellings)`."""
        total = np.zeros((self.n_scores, len(sizes)))
        for points in _slices(self.n_points, _POINTS_AT_ONCE):
            labels = np.concatenate([unpacked(own[exchange.unit[points]]) for own in words], axis=1)
            labels = labels.astype(np.float64)
            for some in _slices(self.n_scores, _SCORES_AT_ONCE):
                total[some] += (self.scores(some, points) - self.mean[some, None]) @ labels
        n = self.n_points
        unit = self.spread[:, None] * np.sqrt(sizes * (n - sizes) / n)
        # A score that is the same for all points says nothing.
        is_flat = self.spread <= 1e-9 * np.maximum(np.abs(self.mean), 1e-9)
        found: HostArray = np.divide(total, unit, out=np.zeros_like(total), where=~is_flat[:, None])
        return found


def _slices(n: int, step: int) -> list[slice]:
    return [slice(first, min(first + step, n)) for first in range(0, n, step)]


def _polynomials(ranks: HostArray, some: slice, points: slice) -> HostArray:
    """Legendre polynomials of ranks; `some` are whole columns, of `_DEGREE` scores each."""
    u = ranks[some.start // _DEGREE : some.stop // _DEGREE, points] / ranks.shape[1]
    squares = u * u
    table = u, (3 * squares - 1) / 2, u * (5 * squares - 3) / 2, ((35 * squares - 30) * squares + 3) / 8
    return np.stack(table, axis=1).reshape(-1, u.shape[1])


def _products(ranks: HostArray, first: HostArray, second: HostArray, some: slice, points: slice) -> HostArray:
    u = ranks[:, points] / ranks.shape[1]
    return np.asarray(u[first[some]] * u[second[some]])
