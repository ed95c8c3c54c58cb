"""How two columns go together in two tables."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from orthoslice.applications.two_sample.contrasts import column_ranks
from orthoslice.applications.two_sample.result import TwoSampleResult
from orthoslice.backend.arrays import HostArray

# A change of a correlation is told if it exceeds this many standard errors.
_TOLD_ERRORS = 2.0


class PairChange(NamedTuple):
    """Two columns that do not go together as before."""

    names: tuple[Hashable, Hashable]
    correlations: tuple[float, float]
    """Spearman's rank correlation in both tables: 1 if they rise together, 0 if neither tells of the other."""
    pvalue: float
    """Adjusted for the number of pairs."""
    together: float
    """How much the mean product of their ranks in both tables together is larger in the second table."""
    rows: tuple[int, int]

    def in_words(self, y: str = "y") -> str:
        """The correlations if they explain what was found, or else that both columns are far out together."""
        first, second = self.correlations
        errors = [(1 - r * r) / math.sqrt(n) for r, n in zip(self.correlations, self.rows, strict=True)]
        if (second - first) * math.copysign(1, self.together) > _TOLD_ERRORS * math.hypot(*errors):
            told = f"rank correlation {first:.2f} -> {second:.2f}"
        else:
            told = f"they are both high or both low {'more' if self.together > 0 else 'less'} in {y}"
        return f"{self.names[0]} and {self.names[1]} ({told})"


def pair_of(
    test: TwoSampleResult | None, features: Sequence[Hashable], x: HostArray, y: HostArray
) -> PairChange | None:
    """The pair of columns that changed most surely; None if pairs were not tested."""
    pair = getattr(test, "pair", None)
    if test is None or pair is None:
        return None
    both = [np.asarray(points[:, list(pair)]) for points in (x, y)]
    first, second = (_correlation(points) for points in both)
    products = column_ranks(np.concatenate(both)).prod(axis=0, dtype=np.float64)
    together = float(products[len(x) :].mean() - products[: len(x)].mean())
    names = features[pair[0]], features[pair[1]]
    return PairChange(names, (first, second), test.parts["pairs"], together, (len(x), len(y)))


def _correlation(points: HostArray) -> float:
    """Of the ranks of two columns `(rows, 2)`; 0 where one of them is constant."""
    ranks = column_ranks(np.asarray(points)).astype(np.float64)
    size = float(np.sqrt((ranks**2).sum(axis=1).prod()))
    return float(ranks[0] @ ranks[1]) / size if size > 0 else 0.0
