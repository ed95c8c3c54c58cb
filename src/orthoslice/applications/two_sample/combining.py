"""Several statistics with one set of permutations: which is the most surprising, and how surprising that is.

All functions treat labellings alike, the observed one as well: what comes out for a labelling does not depend
on where it stands. If both samples have one law, every labelling is then the most extreme one equally often,
which is why the level is exact whatever is computed here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray

# exp(-_FARTHEST) is not yet 0.
_FARTHEST = 700.0

# Statistics whose values are ranked together: 2^22 numbers take some 200 MB while they are.
_VALUES_AT_ONCE = 1 << 22

# A test ends early when its p-value is above `OPEN_LEVEL`: fewer permutations would reach the statistic but for
# a chance of `_DOUBT`.
OPEN_LEVEL, _DOUBT = 0.1, 1e-3
_FIRST_LOOK = 256


class Ranked(NamedTuple):
    """How extreme every value of some statistics is among the values of the same statistic."""

    pvalues: HostArray
    """The share of labellings that reach the value, `(statistics, labellings)`."""
    refined: HostArray
    """P-values whose ties between statistics are broken: above `pvalues` less 1 / labellings, and at most
    `pvalues`."""


def rank_labellings(values: HostArray, same: HostArray) -> Ranked:
    """P-values of every labelling by every statistic, from `values (statistics, labellings)`.

    Large values are extreme. Values of a statistic that differ by its entry of `same (statistics,)` or less,
    perhaps by way of others between them, are taken for equal: they get the largest p-value among them.

    The rank of a value in its own row is fair between statistics of unlike scale and unlike tails. But it
    cannot tell further than 1 / labellings: with many statistics, most labellings come first in one of them.
    Equal ranks are therefore told apart by how many standard deviations z a value lies above the mean of its
    row: refined p-values are less by a share 1 - exp(-z) of 1 / labellings.

    Examples
    --------
    >>> ranked = rank_labellings(np.array([[3.0, 1.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]]), np.zeros(2))
    >>> ranked.pvalues.tolist()
    [[0.25, 1.0, 0.75, 0.75], [1.0, 1.0, 1.0, 1.0]]
    >>> bool(0 < ranked.refined[0, 0] < 0.25)
    True
    """
    step = max(1, _VALUES_AT_ONCE // values.shape[1])
    parts = [_rank(values[k : k + step], same[k : k + step]) for k in range(0, len(values), step)]
    return Ranked(*(np.concatenate(tables) for tables in zip(*parts, strict=True)))


def _rank(values: HostArray, same: HostArray) -> Ranked:
    count = values.shape[1]
    order = np.argsort(values, axis=1)
    ascending = np.take_along_axis(values, order, axis=1)
    is_new = np.diff(ascending, axis=1, prepend=-math.inf) > same[:, None]
    # Where the run of equal values begins: all from there on reach each of them.
    start = np.maximum.accumulate(np.where(is_new, np.arange(count), 0), axis=1)
    ascending = np.take_along_axis(ascending, start, axis=1)
    # In units of the largest value, whose square neither overflows nor underflows; and of the values in order,
    # so that the order of labellings does not even change the rounding.
    largest = np.abs(ascending).max(axis=1, keepdims=True)
    ascending = ascending / np.where(largest > 0, largest, 1)
    middle, spread = ascending.mean(axis=1, keepdims=True), ascending.std(axis=1, keepdims=True)
    above = np.clip((ascending - middle) / np.where(spread > 0, spread, math.inf), 0, _FARTHEST)
    ranked = Ranked(np.empty(values.shape), np.empty(values.shape))
    np.put_along_axis(ranked.pvalues, order, (count - start) / count, axis=1)
    np.put_along_axis(ranked.refined, order, (count - start - 1 + np.exp(-above)) / count, axis=1)
    return ranked


def step_down(refined: HostArray) -> HostArray:
    """P-values of every statistic, adjusted for their number, from `refined (statistics, labellings)`.

    Westfall and Young's step-down procedure: the most extreme statistic is compared with the most extreme one
    of each permutation, the next with the most extreme of those that are left, and so on. The probability that
    any statistic without a difference has a p-value of 5% or less is at most 5%.

    References
    ----------
    Westfall and Young, Resampling-based multiple testing, Wiley (1993), algorithm 2.8.

    Examples
    --------
    >>> refined = np.array([[0.25, 0.5, 0.75, 1.0], [0.75, 1.0, 0.2, 0.5]])
    >>> step_down(refined).tolist()
    [0.5, 0.75]
    """
    order = np.argsort(refined[:, 0])
    adjusted = np.empty(len(refined))
    least = np.full(refined.shape[1], math.inf)
    for k in order[::-1]:
        np.minimum(least, refined[k], out=least)
        adjusted[k] = np.mean(least <= refined[k, 0])
    adjusted[order] = np.maximum.accumulate(adjusted[order])
    return adjusted


def surprise(refined: HostArray) -> HostArray:
    """One statistic of many: -log of the smallest p-value of each labelling, `(labellings,)`."""
    return np.asarray(-np.log(refined.min(axis=0)))


def looks(n_labellings: int, *, early: bool) -> tuple[int, ...]:
    """After how many labellings a test may end; the last is all.

    Examples
    --------
    >>> looks(1000, early=True), looks(1000, early=False)
    ((256, 512, 1000), (1000,))
    """
    doublings = max(0, math.ceil(math.log2(n_labellings / _FIRST_LOOK))) if early else 0
    return (*(_FIRST_LOOK << k for k in range(doublings)), n_labellings)


def is_decided(pvalue: float, n_labellings: int) -> bool:
    """Whether a p-value of some labellings is large beyond doubt.

    Examples
    --------
    >>> is_decided(0.25, 256), is_decided(0.15, 256), is_decided(0.15, 1024)
    (True, False, True)
    """
    n_reached = round(pvalue * n_labellings) - 1
    return n_reached > 0 and _binomial_tail(n_reached, n_labellings - 1, OPEN_LEVEL) <= _DOUBT


def _binomial_tail(least: int, n: int, share: float) -> float:
    """P(X >= least) for a binomial X of n draws, as `scipy.special.bdtrc`, whose module is slow to import."""
    k = np.arange(1, n + 1)
    logs = np.cumsum(np.log((n + 1 - k) / k)) + k * math.log(share) + (n - k) * math.log1p(-share)
    return float(np.exp(logs[least - 1 :]).sum())
