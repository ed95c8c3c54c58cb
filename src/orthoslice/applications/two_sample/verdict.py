"""From the distances of all labellings to p-values: of one distance, of several together, and of columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orthoslice.applications.two_sample.combining import rank_labellings, step_down, surprise
from orthoslice.applications.two_sample.permutations import Statistic
from orthoslice.backend.arrays import HostArray

# Statistics closer to each other than this are taken for equal: sums in another order differ by less.
_SAME = 1e-9


class OfColumns(NamedTuple):
    """What was found for every column, `(dim,)` each."""

    statistics: HostArray
    pvalues: HostArray


class Verdict(NamedTuple):
    """What a number of labellings says."""

    statistics: HostArray
    """Of every labelling, the observed one first."""
    n_reached: int
    """Permutations that are as extreme as it."""
    parts: dict[str, float]
    columns: OfColumns | None

    @property
    def least_pvalue(self) -> float:
        """The smallest of all p-values."""
        of_columns = [] if self.columns is None else [float(self.columns.pvalues.min())]
        return min([*self.parts.values(), *of_columns])


def judge_distance(
    statistics: tuple[Statistic, ...], distances: HostArray, columns: HostArray | None, slack: float
) -> Verdict:
    """By the size of a distance, from `distances (1, labellings)`.

    `columns (dim, labellings)` are W_1 of every column. Rounding changes distances by `slack` at most.
    """
    (own,), (statistic,) = distances, statistics
    reached = int((own[1:] >= own[0] * (1 - _SAME) - slack).sum())
    apart = None if columns is None else _judge_columns(columns)[0]
    return Verdict(own, reached, {statistic.name: (reached + 1) / len(own)}, apart)


def judge_all(
    statistics: tuple[Statistic, ...], distances: HostArray, columns: HostArray | None, slack: float
) -> Verdict:
    """By the smallest p-value of several distances `(statistics, labellings)` and of the columns, if any."""
    names, table = [own.name for own in statistics], distances
    same, apart = _SAME * distances.max(axis=1) + slack, None
    if columns is not None:
        apart, surprises = _judge_columns(columns)
        names, table, same = [*names, "columns"], np.vstack([table, surprises]), np.append(same, 0.0)
    ranked = rank_labellings(table, same)
    least = ranked.refined.min(axis=0)
    parts = dict(zip(names, ranked.pvalues[:, 0].tolist(), strict=True))
    return Verdict(least, int((least[1:] <= least[0]).sum()), parts, apart)


def _judge_columns(distances: HostArray) -> tuple[OfColumns, HostArray]:
    """Every column by itself; and one statistic of all columns, `(labellings,)`."""
    # Projections on axes are exact, so only sums are rounded.
    refined = rank_labellings(distances, _SAME * distances.max(axis=1)).refined
    return OfColumns(distances[:, 0], step_down(refined)), surprise(refined)
