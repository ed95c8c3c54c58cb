"""Return against steps for several seeds, and what is said of such curves: numbers a seed, and intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from experiments.fig4_trust_region.config import Config

Floats = NDArray[np.float64]


class Curve(NamedTuple):
    """All seeds of one method on one task."""

    task: str
    method: str
    strength: float
    steps: Floats
    """(times,)"""
    returns: Floats
    """(seeds, times)"""
    rows: list[list[dict[str, Any]]]
    """What the returns are taken from: rows of each seed."""

    @property
    def is_in_paper(self) -> bool:
        return self.method in Config.methods and self.strength in (0.0, Config.strength)

    @property
    def final(self) -> Floats:
        """Mean return over the last tenth of training, a seed."""
        return self.returns[:, -max(1, self.steps.size // 10) :].mean(axis=1)

    @property
    def area(self) -> Floats:
        """Mean return over all of training, a seed: the area under the curve over the number of steps."""
        widths = np.diff(self.steps, prepend=0)
        return self.returns @ widths / widths.sum()

    @property
    def drawdown(self) -> Floats:
        """How far a curve lies below its best so far, on average, a seed: 0 for one that only rises."""
        return (np.maximum.accumulate(self.returns, axis=1) - self.returns).mean(axis=1)

    def until(self, steps: float) -> Curve:
        """The same curve, cut off."""
        n = int(np.searchsorted(self.steps, steps, side="right"))
        return self._replace(
            steps=self.steps[:n], returns=self.returns[:, :n], rows=[seed[:n] for seed in self.rows]
        )

    def mean(self, column: str) -> Floats:
        """The mean of a column over all rows, a seed."""
        return np.array([np.mean([row[column] for row in rows]) for rows in self.rows])


def make_curves(rows: list[dict[str, Any]]) -> list[Curve]:
    """A curve for each task, method and strength, as far as all its seeds have come."""
    seeds: dict[tuple[Any, ...], dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        # A row without a finished episode has no return.
        if row["mean_return"] is not None:
            key = row["task"], row["method"], float(row["strength"])
            seeds.setdefault(key, {}).setdefault(row["seed"], []).append(row)
    made = []
    for key, by_seed in seeds.items():
        length = min(map(len, by_seed.values()))
        kept = [by_seed[seed][:length] for seed in sorted(by_seed)]
        steps = np.array([row["steps"] for row in kept[0]], dtype=float)
        returns = np.array([[row["mean_return"] for row in seed] for seed in kept], dtype=float)
        made.append(Curve(*key, steps, returns, kept))
    return made


def interquartile_mean(scores: Floats) -> Floats:
    """The mean of the middle half over the first axis, whole seeds cut: of five, the middle three."""
    cut = scores.shape[0] // 4
    return np.sort(scores, axis=0)[cut : scores.shape[0] - cut].mean(axis=0)


def bootstrap(
    strata: Sequence[Floats],
    statistic: Callable[..., Floats] = interquartile_mean,
    *,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """Percentile interval of `statistic(*strata)`, with seeds drawn anew within each stratum `(seeds, ...)`."""
    rng = np.random.default_rng(seed)
    values = [
        statistic(*(scores[rng.integers(scores.shape[0], size=scores.shape[0])] for scores in strata))
        for _ in range(n_resamples)
    ]
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def welch(a: Floats, b: Floats, level: float = 0.95) -> tuple[float, float, float]:
    """Mean of `a` minus mean of `b`, with Welch's interval.

    Claims are judged by this one: of few seeds the bootstrap's percentiles are too narrow.
    """
    parts = [values.var(ddof=1) / values.size for values in (a, b)]
    difference, variance = float(a.mean() - b.mean()), sum(parts)
    if variance == 0:
        return difference, difference, difference
    freedom = variance**2 / sum(part**2 / (n - 1) for part, n in zip(parts, (a.size, b.size), strict=True))
    half = float(stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance))
    return difference, difference - half, difference + half
