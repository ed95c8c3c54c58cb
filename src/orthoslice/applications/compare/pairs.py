"""How two columns go together in two tables."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from orthoslice.applications.two_sample.contrasts import column_ranks
from orthoslice.applications.two_sample.result import TwoSampleResult
from orthoslice.backend.arrays import HostArray


class PairChange(NamedTuple):
    """Two columns that do not go together as before."""

    names: tuple[Hashable, Hashable]
    correlations: tuple[float, float]
    """Spearman's rank correlation in both tables: 1 if they rise together, 0 if neither tells of the other."""
    pvalue: float
    """Adjusted for the number of pairs."""

    def in_words(self) -> str:
        first, second = self.correlations
        return f"{self.names[0]} and {self.names[1]} (rank correlation {first:.2f} -> {second:.2f})"


def pair_of(
    test: TwoSampleResult | None, features: Sequence[Hashable], x: HostArray, y: HostArray
) -> PairChange | None:
    """The pair of columns that changed most surely; None if pairs were not tested."""
    pair = getattr(test, "pair", None)
    if test is None or pair is None:
        return None
    first, second = (_correlation(points[:, list(pair)]) for points in (x, y))
    return PairChange((features[pair[0]], features[pair[1]]), (first, second), test.parts["pairs"])


def _correlation(points: HostArray) -> float:
    """Of the ranks of two columns `(rows, 2)`; 0 where one of them is constant."""
    ranks = column_ranks(np.asarray(points)).astype(np.float64)
    size = float(np.sqrt((ranks**2).sum(axis=1).prod()))
    return float(ranks[0] @ ranks[1]) / size if size > 0 else 0.0
