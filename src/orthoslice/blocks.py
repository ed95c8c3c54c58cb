"""Independent blocks of directions: their layout, their means and what those are worth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from orthoslice.arrays import Array, at_rank, namespace

# The skewness of fewer numbers is noise, and Student's t is wide enough for them.
_FEWEST_FOR_SKEWNESS = 8


@dataclass(frozen=True)
class Layout:
    """How directions are grouped: blocks of `block_rows`, and `unit_blocks` blocks to an independent unit.

    The last block may be shorter. Blocks that do not fill a unit belong to the last one.
    """

    n_directions: int
    block_rows: int
    unit_blocks: int = 1

    @property
    def n_blocks(self) -> int:
        return -(-self.n_directions // self.block_rows)

    @property
    def n_units(self) -> int:
        return max(1, self.n_blocks // self.unit_blocks)

    @property
    def unit_rows(self) -> int:
        """Rows of every unit but the last."""
        return self.block_rows * self.unit_blocks

    @property
    def last_rows(self) -> int:
        """Rows of the last unit."""
        return self.n_directions - (self.n_units - 1) * self.unit_rows

    def rows_between(self, first_unit: int, stop_unit: int) -> int:
        """Rows of the units from the first up to, and without, the other."""
        stop = self.n_directions if stop_unit >= self.n_units else stop_unit * self.unit_rows
        return stop - first_unit * self.unit_rows

    def first(self, n_units: int) -> Layout:
        """The layout of the first units only."""
        if n_units >= self.n_units:
            return self
        return Layout(n_units * self.unit_rows, self.block_rows, self.unit_blocks)


class Statistics(NamedTuple):
    """What independent units say of the mean over all directions."""

    mean: Array
    stderr: Array
    """The standard error of the mean; NaN with one unit."""
    skewness: Array
    """Of the means of whole units; 0 where there are too few to tell."""


def statistics(scores: Array, layout: Layout) -> Statistics:
    """Mean of the scores `(n_directions, ...)`, its standard error, and the skewness behind it.

    Units are independent, rows within a unit are not, so the error comes from unit means m_u with their share
    w_u of the rows. `sum_u w_u^2 / (1 - 2 w_u) (m_u - mean)^2 / (1 + S)` with `S = sum_u w_u^2 / (1 - 2 w_u)`
    is an unbiased estimate of the variance of the mean whatever the variances of the units; with equal shares
    it is the textbook formula. It asks for shares below a half. Where one unit has more, it is set against the
    rest: `w^2 (m_1 - m_2)^2` with the larger share w is never too small in the mean. One unit has no error
    bar: nothing can be learned from rows that may depend on each other.
    """
    xp = namespace(scores)
    n, units = layout.n_directions, layout.n_units
    mean = xp.sum(scores, axis=0) / n
    if units == 1:
        return Statistics(mean, xp.full_like(mean, math.nan), xp.zeros_like(mean))
    cut = (units - 1) * layout.unit_rows
    whole = xp.reshape(scores[:cut, ...], (units - 1, layout.unit_rows, *scores.shape[1:]))
    return _from_means(mean, xp.mean(whole, axis=1), xp.mean(scores[cut:, ...], axis=0), layout)


def unit_statistics(means: Array, layout: Layout) -> Statistics:
    """As :func:`statistics`, from the means of the units, `(n_units, ...)`, which say all it needs."""
    xp = namespace(means)
    if layout.n_units == 1:
        mean = means[0, ...]
        return Statistics(mean, xp.full_like(mean, math.nan), xp.zeros_like(mean))
    rows = layout.unit_rows * xp.sum(means[:-1, ...], axis=0) + layout.last_rows * means[-1, ...]
    return _from_means(rows / layout.n_directions, means[:-1, ...], means[-1, ...], layout)


def _from_means(mean: Array, whole_means: Array, last_mean: Array, layout: Layout) -> Statistics:
    xp = namespace(mean)
    n, units = layout.n_directions, layout.n_units
    w, last = layout.unit_rows / n, layout.last_rows / n
    if max(w, last) >= 0.5:
        # Only the last unit can be longer, and a half or more for the others leaves room for only one of them.
        gap = last_mean - xp.mean(whole_means, axis=0)
        return Statistics(mean, max(w, last) * xp.abs(gap), xp.zeros_like(mean))
    a, b = w**2 / (1 - 2 * w), last**2 / (1 - 2 * last)
    away = whole_means - at_rank(mean, whole_means.ndim)
    spread = a * xp.sum(away**2, axis=0) + b * (last_mean - mean) ** 2
    stderr = xp.sqrt(spread / (1 + (units - 1) * a + b))
    if last == w:
        whole_means = xp.concat([whole_means, last_mean[None, ...]], axis=0)
    return Statistics(mean, stderr, _skewness(whole_means))


def _skewness(means: Array) -> Array:
    """Sample skewness of `means (units, ...)` with the usual correction of its bias."""
    xp = namespace(means)
    n = means.shape[0]
    if n < _FEWEST_FOR_SKEWNESS:
        return xp.zeros_like(means[0, ...])
    centred = means - xp.mean(means, axis=0, keepdims=True)
    deviation = xp.sqrt(xp.sum(centred * centred, axis=0) / (n - 1))
    # Divided before it is cubed: the cube of a small or large deviation might not fit its type.
    unit = xp.where(deviation > 0, deviation, xp.ones_like(deviation))
    ratio = centred / at_rank(unit, centred.ndim)
    return n / ((n - 1) * (n - 2)) * xp.sum(ratio**3, axis=0)


def interval_arms(found: Statistics, layout: Layout, level: float, looks: int) -> tuple[Array, Array]:
    """How far an interval for the mean reaches down and up from it.

    Student's t on the means of units, with a longer arm on the side to which they lean: where few large values
    carry the mean, those not seen yet are more likely to raise it than to lower it. The arm grows by Johnson's
    correction for skewness g (JASA 1978), `g (1 + 2 t^2) / (6 sqrt(units))` standard errors, times 1.25, since
    the skewness of few means comes out too small; it never more than doubles, and no arm is made shorter.
    """
    xp = namespace(found.mean)
    t = student_quantile(level, degrees_of_freedom(layout), looks)
    lean = 1.25 * (1 + 2 * t * t) / (6 * math.sqrt(layout.n_units)) * found.skewness
    nothing = xp.zeros_like(lean)
    down, up = (xp.minimum(xp.maximum(side, nothing), nothing + t) for side in (-lean, lean))
    return (t + down) * found.stderr, (t + up) * found.stderr


def degrees_of_freedom(layout: Layout) -> int:
    """Of the standard error of :func:`statistics`; 0 where there is none."""
    units, longest = layout.n_units, max(layout.unit_rows, layout.last_rows)
    if units == 1:
        return 0
    if 2 * longest >= layout.n_directions:
        return 1
    # A short last unit varies more than the others and says little of them: it is not counted.
    return units - 1 if layout.last_rows >= layout.unit_rows else units - 2


def student_quantile(level: float, dof: int, looks: int) -> float:
    """Half-width of a two-sided interval in standard errors, shared out over repeated looks (Bonferroni)."""
    from scipy.special import stdtrit  # scipy.special is not needed to import orthoslice

    if dof == 0:
        return math.nan
    return float(stdtrit(dof, 1 - (1 - level) / (2 * looks)))
