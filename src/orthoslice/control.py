"""Control variates: quantities of a direction whose mean over all directions is known."""

from __future__ import annotations

import abc
from typing import NamedTuple

import numpy as np

from orthoslice.arrays import Array, at_rank, device, namespace
from orthoslice.blocks import Layout, unit_means
from orthoslice.cloud import Cloud
from orthoslice.directions.base import Directions

# Fewer units say too little of how scores and controls go together.
_FEWEST_UNITS = 4


class KnownMean(NamedTuple):
    """The mean of a control over all directions, `(...)`, and the variance of that number; 0 if it is exact."""

    value: Array
    variance: Array | float = 0.0


class Control(abc.ABC):
    """A control variate: a frozen, hashable value, such as a frozen dataclass.

    Scores f are replaced by f - beta (g - E g) for the control g, which has the same mean and, with the right
    factor beta, less variance. The factor of a unit of directions is fitted on all the others: a factor fitted
    on the scores that it corrects would bias them. Values only: controls have no gradient.
    """

    @abc.abstractmethod
    def evaluate(self, x: Cloud, y: Cloud, p: float, directions: Directions, rows: slice | Array) -> Array:
        """The control of some rows of the directions, `(slices, ...)`: cheap beside a score, and like it."""

    @abc.abstractmethod
    def mean(self, x: Cloud, y: Cloud, p: float) -> KnownMean:
        """Its mean over all directions."""


class Corrected(NamedTuple):
    """Scores with less variance, and what an uncertain mean of the control adds to the variance of theirs."""

    scores: Array
    variance: Array | float | None


def correct(scores: Array, controls: Array, known: KnownMean, layout: Layout) -> Corrected:
    """Take `beta (controls - known)` off the `scores (n_directions, ...)`, with a factor beta for every unit.

    With fewer than four units nothing can be fitted, and the scores stay as they are.
    """
    if layout.n_units < _FEWEST_UNITS:
        return Corrected(scores, 0.0)
    xp = namespace(scores)
    factors = _fitted_elsewhere(unit_means(scores, layout), unit_means(controls, layout))
    unit = np.repeat(np.arange(layout.n_units), layout.unit_rows)
    each = xp.take(factors, xp.asarray(unit, device=device(factors)), axis=0)
    away = controls - at_rank(known.value, controls.ndim)
    mean_factor = xp.mean(factors, axis=0)
    return Corrected(scores - each * away, mean_factor * mean_factor * known.variance)


def _fitted_elsewhere(f: Array, g: Array) -> Array:
    """For every unit the slope of `f (units, ...)` on `g` over all other units; 0 where g does not vary."""
    xp, n = namespace(f), f.shape[0]
    f, g = (a - xp.mean(a, axis=0, keepdims=True) for a in (f, g))
    # Sums without one unit, of numbers with mean 0: those of the others have the mean -a / (n - 1).
    fg = xp.sum(f * g, axis=0, keepdims=True) - f * g - f * g / (n - 1)
    gg = xp.sum(g * g, axis=0, keepdims=True) - g * g - g * g / (n - 1)
    varies = gg > 0
    return xp.where(varies, fg, xp.zeros_like(fg)) / xp.where(varies, gg, xp.ones_like(gg))
