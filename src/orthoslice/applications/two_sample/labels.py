"""Labels of a pooled sample: which points are called x, and which may change places.

Labels are drawn from a counter-based generator, a block of 64 labellings at a time, and not stored beyond that:
any block can be drawn anywhere from its number. A word of 64 bits holds the label of a unit, which is a point
or a cluster of points, under each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from orthoslice.backend.arrays import Array, HostArray, Key, Operation, PlainWork, threefry
from orthoslice.backend.kernels import LABELLINGS

# Units whose labels plain code draws at once: their tables stay in a core's cache.
_UNITS_AT_ONCE = 1 << 9


@dataclass(frozen=True, eq=False)
class Exchange:
    """Which labellings of pooled points are as likely as the observed one if both samples have the same law.

    Units are numbered so that those of a stratum follow each other; every labelling gives x as many units of
    each stratum as were observed there.
    """

    unit: HostArray
    """The unit of every pooled point, `(points,)` of uint32."""
    left: HostArray
    """Units of the stratum from this one on, itself included, `(units,)` of int32."""
    quota: HostArray
    """How many units of a stratum go to x, at its first unit; -1 elsewhere. `(units,)` of int32."""
    observed: HostArray
    """The labels of the first labelling: whether a unit belongs to x, `(units,)` of bool."""
    weight: HostArray
    """Points of each unit, `(units,)` of int64."""
    told: str
    """What changes places, in words."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; equal weights are one broadcast number, and not counted."""
        arrays = (self.unit, self.left, self.quota, self.observed, self.weight)
        return sum(a.nbytes for a in arrays if any(a.strides))

    @property
    def n_labellings(self) -> float:
        """How many labellings there are; infinity where that does not fit a float."""
        strata = self.quota >= 0
        pairs = zip(self.left[strata].tolist(), self.quota[strata].tolist(), strict=True)
        log = sum(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for n, k in pairs)
        return math.inf if log > 700 else float(round(math.exp(log)))

    def sizes(self, words: HostArray, lanes: int) -> HostArray:
        """How many points each labelling gives to x, `(lanes,)` of int64."""
        if (self.weight == 1).all():
            return np.full(lanes, int(self.observed.sum()), dtype=np.int64)
        return np.asarray(self.weight @ unpacked(words)[:, :lanes].astype(np.int64))


def free_exchange(n: int, m: int) -> Exchange:
    """All labellings of `n + m` points, those of x first, with n of them called x."""
    total = n + m
    return Exchange(
        unit=np.arange(total, dtype=np.uint32),
        left=np.arange(total, 0, -1, dtype=np.int32),
        quota=_quotas(total, np.zeros(1, dtype=np.intp), n),
        observed=np.arange(total) < n,
        weight=_equal_weights(total),
        told="labels",
    )


def _quotas(n_units: int, starts: HostArray, of_x: HostArray | int) -> HostArray:
    """How many units go to x, at the first unit of each stratum."""
    quota = np.full(n_units, -1, dtype=np.int32)
    quota[starts] = of_x
    return quota


def _equal_weights(n_units: int) -> HostArray:
    return np.broadcast_to(np.int64(1), (n_units,))


def half_exchange(n: int, m: int) -> Exchange:
    """Labels that say which points are kept: all of them in the first labelling, then half of both samples.

    Examples
    --------
    >>> halves = half_exchange(4, 3)
    >>> halves.left.tolist(), halves.quota.tolist()
    ([4, 3, 2, 1, 3, 2, 1], [2, -1, -1, -1, 1, -1, -1])
    """
    both = (free_exchange(n // 2, n - n // 2), free_exchange(m // 2, m - m // 2))
    left, quota = (np.concatenate([getattr(one, name) for one in both]) for name in ("left", "quota"))
    whole = free_exchange(n + m, 0)
    return Exchange(whole.unit, left, quota, whole.observed, whole.weight, "halves")


def grouped_exchange(in_x: HostArray, group: HostArray) -> Exchange:
    """Labellings that respect groups, from the sample and the group (0, 1, ...) of every pooled point.

    Where every group has points in both samples, labels change places within groups only: pairs, litters,
    blocks of an experiment. Where none has, whole groups change places: clusters, such as the cells of a donor.

    Examples
    --------
    >>> pairs = grouped_exchange(np.array([True, True, False, False]), np.array([0, 1, 0, 1]))
    >>> pairs.n_labellings, pairs.unit.tolist(), pairs.quota.tolist()
    (4.0, [0, 2, 1, 3], [1, -1, 1, -1])
    >>> clusters = grouped_exchange(np.array([True, True, False, False]), np.array([0, 0, 1, 2]))
    >>> clusters.n_labellings, clusters.unit.tolist(), clusters.weight.tolist()
    (3.0, [0, 0, 1, 2], [2, 1, 1])
    """
    n_groups = int(group.max()) + 1
    size, size_x = np.bincount(group, minlength=n_groups), np.bincount(group[in_x], minlength=n_groups)
    if ((size_x == 0) | (size_x == size)).all():
        own = free_exchange(int((size_x > 0).sum()), int((size_x == 0).sum()))
        return Exchange(
            unit=group.astype(np.uint32),
            left=own.left,
            quota=own.quota,
            observed=size_x > 0,
            weight=size.astype(np.int64),
            told=f"labels of {n_groups} whole groups",
        )
    order = np.argsort(group, kind="stable")
    place = np.empty(len(group), dtype=np.uint32)
    place[order] = np.arange(len(group), dtype=np.uint32)
    starts = np.cumsum(size) - size
    return Exchange(
        unit=place,
        left=(np.repeat(starts + size, size) - np.arange(len(group))).astype(np.int32),
        quota=_quotas(len(group), starts, size_x),
        observed=in_x[order],
        weight=_equal_weights(len(group)),
        told=f"labels within {n_groups} groups",
    )


def check_groups(groups: object, n: int, m: int) -> Exchange:
    """What may change places, given the groups of two samples of n and m points as the user passed them."""
    if groups is None:
        return free_exchange(n, m)
    named = {"groups": (groups, n + m)}
    if isinstance(groups, tuple) and len(groups) == 2 and all(np.ndim(g) == 1 for g in groups):
        named = {"groups[0]": (groups[0], n), "groups[1]": (groups[1], m)}
    ids: list[Any] = []
    for name, (given, length) in named.items():
        part = np.asarray(given)
        if part.shape != (length,):
            raise ValueError(
                f"`groups` must have one entry a point: an array ({n + m},), or a pair of arrays ({n},) and "
                f"({m},); got `{name}` of shape {part.shape}."
            )
        listed = part.tolist()
        missing = next((row for row, g in enumerate(listed) if g is None or g != g), None)
        if missing is not None:
            raise ValueError(
                f"`groups` must name a group for every point; `{name}` has none at row {missing}. Give that "
                "point a group of its own, or leave it out."
            )
        ids += listed
    number: dict[Any, int] = {}
    group = np.array([number.setdefault(g, len(number)) for g in ids])
    in_x = np.arange(n + m) < n
    size, size_x = np.bincount(group), np.bincount(group[in_x], minlength=len(number))
    in_both = (size_x > 0) & (size_x < size)
    if in_both.any() and not in_both.all():
        both, one = (next(g for g, k in number.items() if in_both[k] == kind) for kind in (True, False))
        raise ValueError(
            "`groups` must all have points in both samples, so that labels change places within groups, or all "
            f"lie in one sample, so that whole groups do; got {int(in_both.sum())} of the first kind (such as "
            f"{both!r}) and {int((~in_both).sum())} of the second (such as {one!r}). Leave one kind out."
        )
    return grouped_exchange(in_x, group)


def label_block(key: Key, block: int, exchange: Exchange) -> HostArray:
    """Labellings from `block * LABELLINGS` on, as words `(units,)`; the very first is the observed one."""
    words = cast(HostArray, draw_labels(key, block * LABELLINGS, exchange))
    if block == 0:
        words = (words & ~np.uint64(1)) | exchange.observed.astype(np.uint64)
    return words


def unpacked(words: HostArray) -> HostArray:
    """Labels of words `(...)` as a table of bool, `(..., LABELLINGS)`."""
    # Little-endian, so that the lowest bits are in the first byte on every machine.
    octets = np.ascontiguousarray(words, dtype="<u8").view(np.uint8).reshape(*words.shape, 8)
    return np.unpackbits(octets, axis=-1, bitorder="little").view(bool)


draw_labels: Operation[Array] = Operation("draw_labels")
"""draw_labels(key, first, exchange) -> words (units,) of uint64: bit b is of labelling `first + b`.

Selection sampling (Knuth, 3.4.2 S), which is uniform: going through the units, one is taken with probability
needed / left. The draw for labelling l and unit u comes from the counter (l, u), in whole numbers: the same
everywhere.
"""


@draw_labels.implementation(
    "numba",
    lambda *_: None,
    plain_work=lambda key, first, exchange: PlainWork.of(exchange.left, times=LABELLINGS / 4),
)
def _draw_labels_numba(key: Key, first: int, exchange: Exchange) -> HostArray:
    from orthoslice.backend.kernels.numba.labels import draw_words

    high, low = (int(word[0]) & 0xFFFFFFFF for word in key)
    words: HostArray = draw_words(high, low, first, exchange.left, exchange.quota)
    return words


@draw_labels.implementation("reference", lambda *_: None)
def _draw_labels(key: Key, first: int, exchange: Exchange) -> HostArray:
    words = np.empty(exchange.left.size, dtype=np.uint64)
    needed = np.zeros(LABELLINGS, dtype=np.uint64)
    for start in range(0, words.size, _UNITS_AT_ONCE):
        some = slice(start, min(start + _UNITS_AT_ONCE, words.size))
        ranks = _draw_ranks(key, first, start, exchange.left[some])
        taken = np.empty(ranks.shape, dtype=bool)
        for rank, is_taken, quota in zip(ranks, taken, exchange.quota[some].tolist(), strict=True):
            if quota >= 0:
                needed[:] = quota
            np.less(rank, needed, is_taken)
            np.subtract(needed, is_taken, needed)
        words[some] = np.packbits(taken, axis=1, bitorder="little").view("<u8")[:, 0]
    return words


def _draw_ranks(key: Key, first: int, start: int, left: HostArray) -> HostArray:
    """For units from `start` on whole numbers in 0 .. left - 1, `(units, LABELLINGS)`, all equally likely."""
    lane = np.arange(LABELLINGS, dtype=np.int32) + np.int32(first)
    unit = np.arange(start, start + left.size, dtype=np.int32)[:, None]
    high, low = (cast(HostArray, word).view(np.uint32).astype(np.uint64) for word in threefry(key, lane, unit))
    many, half = left.astype(np.uint64)[:, None], np.uint64(32)
    return np.asarray((high * many + ((low * many) >> half)) >> half)
