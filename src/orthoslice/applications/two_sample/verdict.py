"""From the distances of all labellings to p-values: of one distance, of several together, and of columns."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from orthoslice.applications.two_sample.combining import rank_labellings, step_down, surprise
from orthoslice.applications.two_sample.contrasts import Contrasts
from orthoslice.applications.two_sample.permutations import Statistic
from orthoslice.backend.arrays import HostArray

# Statistics closer to each other than this are taken for equal: sums in another order differ by less.
_SAME = 1e-9


Features: TypeAlias = tuple[tuple[int, ...], ...]
"""The features of every column; where each is a column of its own, None stands for them."""


class OfColumns(NamedTuple):
    """What was found for every column, `(columns,)` each."""

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
    pair: tuple[int, int] | None = None
    """The columns that go together least as before."""

    @property
    def least_pvalue(self) -> float:
        """The smallest of all p-values."""
        of_columns = [] if self.columns is None else [float(self.columns.pvalues.min())]
        return min([*self.parts.values(), *of_columns])


def judge_distance(
    statistics: tuple[Statistic, ...],
    distances: HostArray,
    columns: HostArray | None,
    features: Features | None,
    slack: float,
) -> Verdict:
    """By the size of a distance, from `distances (1, labellings)`.

    `columns (dim, labellings)` are W_1 of every feature. Rounding changes distances by `slack` at most.
    """
    (own,), (statistic,) = distances, statistics
    reached = int((own[1:] >= own[0] * (1 - _SAME) - slack).sum())
    apart = None if columns is None else _of_columns(columns, features, _most_extreme(columns, features))
    return Verdict(own, reached, {statistic.name: (reached + 1) / len(own)}, apart)


def judge_all(
    statistics: tuple[Statistic, ...],
    distances: HostArray,
    columns: HostArray | None,
    features: Features | None,
    slack: float,
    contrasts: Contrasts | None = None,
) -> Verdict:
    """By the smallest of two p-values: that of all columns, and that of distances and pairs together.

    Columns are one half since most changes are of single columns, and else each further statistic would take
    from them. A column is as surprising as its W_1 or its shape, whichever is more so. The shapes of several
    features add up: for the values of a category that is nearly the chi-square statistic of its shares, which
    sees a little of a change in each where the most extreme value alone does not.
    """
    names, table, same = [own.name for own in statistics], distances, _SAME * distances.max(axis=1) + slack
    if contrasts is not None and contrasts.pairs is not None:
        pairs = contrasts.pairs
        names, table, same = [*names, "pairs"], np.vstack([table, pairs]), np.append(same, _SAME * pairs.max())
    ranked, apart = rank_labellings(table, same), None
    parts, least = dict(zip(names, ranked.pvalues[:, 0].tolist(), strict=True)), ranked.refined.min(axis=0)
    if columns is not None:
        refined = _most_extreme(columns, features)
        if contrasts is not None:
            refined = _smaller(np.minimum(refined, _ranked(_added_up(contrasts.shapes, features))))
        apart = _of_columns(columns, features, refined)
        halves = rank_labellings(np.stack([surprise(ranked.refined), surprise(refined)]), np.zeros(2))
        parts["columns"], least = float(halves.pvalues[1, 0]), halves.refined.min(axis=0)
    pair = None if contrasts is None else contrasts.farthest
    return Verdict(least, int((least[1:] <= least[0]).sum()), parts, apart, pair)


def _most_extreme(values: HostArray, features: Features | None) -> HostArray:
    """Refined p-values of every column by its most extreme feature, from `values (dim, labellings)`."""
    refined = _ranked(values)
    if features is None:
        return refined
    return _smaller(np.stack([refined[list(own)].min(axis=0) for own in features]))


def _added_up(values: HostArray, features: Features | None) -> HostArray:
    return values if features is None else np.stack([values[list(own)].sum(axis=0) for own in features])


def _smaller(least: HostArray) -> HostArray:
    """Refined p-values by the smallest of several, `least (columns, labellings)`."""
    return rank_labellings(-np.log(least), np.zeros(len(least))).refined


def _ranked(values: HostArray) -> HostArray:
    """Refined p-values of every row of values by itself, `(rows, labellings)`."""
    # Ranks, and projections on axes, are exact, so only sums are rounded.
    return rank_labellings(values, _SAME * values.max(axis=1)).refined


def _of_columns(distances: HostArray, features: Features | None, refined: HostArray) -> OfColumns:
    return OfColumns(_added_up(distances[:, :1], features)[:, 0], step_down(refined))
