"""Means over independent units of directions, their errors and intervals."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from orthoslice.backend.arrays import Array, at_rank, device, namespace
from orthoslice.directions.layout import Layout

# The skewness of fewer numbers is noise, and Student's t is wide enough for them.
_FEWEST_FOR_SKEWNESS = 8


class Statistics(NamedTuple):
    """What independent units say of the mean over all directions."""

    mean: Array
    stderr: Array
    """The standard error of the mean; NaN with one unit."""
    skewness: Array
    """The skewness of the means of whole units; 0 where there are too few to tell."""
    jump: Array
    """The largest change of scores from one row of a unit to the next, if its layout is stepped, else 0."""


class Controlled(Statistics):
    """The same where a control variate is used, whose mean is not known exactly."""

    known: Array
    """The part of `stderr**2` that comes from the uncertain mean of the control, and not from units."""


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
    mean = xp.sum(scores, axis=0) / layout.n_directions
    if layout.n_units == 1:
        return Statistics(mean, xp.full_like(mean, math.nan), xp.zeros_like(mean), xp.zeros_like(mean))
    found = _from_means(mean, unit_means(scores, layout), layout)
    return found._replace(jump=_largest_jump(scores, layout)) if layout.is_stepped else found


def unit_statistics(means: Array, layout: Layout) -> Statistics:
    """As :func:`statistics`, from the means of the units, `(n_units, ...)`, which say all it needs."""
    xp = namespace(means)
    if layout.n_units == 1:
        mean = means[0, ...]
        return Statistics(mean, xp.full_like(mean, math.nan), xp.zeros_like(mean), xp.zeros_like(mean))
    share = xp.asarray(layout.unit_rows / layout.n_directions, dtype=means.dtype, device=device(means))
    mean = xp.sum(xp.reshape(share, (-1, *(1,) * (means.ndim - 1))) * means, axis=0)
    return _from_means(mean, means, layout)


def _from_means(mean: Array, means: Array, layout: Layout) -> Statistics:
    xp, units = namespace(mean), layout.n_units
    share = layout.unit_rows / layout.n_directions
    largest = int(np.argmax(share))
    if share[largest] >= 0.5:
        # The mean over the other units is (mean - w m_1) / (1 - w).
        w = float(share[largest])
        gap = means[largest, ...] - (mean - w * means[largest, ...]) / (1 - w)
        return Statistics(mean, w * xp.abs(gap), xp.zeros_like(mean), xp.zeros_like(mean))
    away = means - at_rank(mean, means.ndim)
    if share.min() == share.max():
        spread = xp.sum(away * away, axis=0) / (units * (units - 1))
    else:
        factor = share**2 / (1 - 2 * share)
        weight = xp.asarray(factor, dtype=means.dtype, device=device(means))
        weighted = xp.reshape(weight, (-1, *(1,) * (means.ndim - 1))) * away * away
        spread = xp.sum(weighted, axis=0) / (1 + float(factor.sum()))
    whole = np.flatnonzero(layout.unit_rows == layout.unit_rows.max())
    if len(whole) < units:
        means = xp.take(means, xp.asarray(whole, device=device(means)), axis=0)
    return Statistics(mean, xp.sqrt(spread), _skewness(means), xp.zeros_like(mean))


def with_variance(found: Statistics, variance: Array | None) -> Statistics:
    """The statistics with an independent error of this variance added to the standard error."""
    if variance is None:
        return found
    stderr = namespace(found.stderr).sqrt(found.stderr * found.stderr + variance)
    controlled = Controlled(found.mean, stderr, found.skewness, found.jump)
    controlled.known = variance
    return controlled


def unit_means(scores: Array, layout: Layout) -> Array:
    """The mean score of every unit, `(units, ...)`."""
    xp = namespace(scores)
    parts = [
        stacked[:, 0, ...] if stacked.shape[1] == 1 else xp.mean(stacked, axis=1)
        for stacked in _units_by_size(scores, layout)
    ]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _largest_jump(scores: Array, layout: Layout) -> Array:
    """The largest change from one row of a unit to the next, or from the last to the first, `(...)`."""
    xp = namespace(scores)
    changes = (xp.abs(part - xp.roll(part, 1, axis=1)) for part in _units_by_size(scores, layout))
    return functools.reduce(xp.maximum, (xp.max(change, axis=(0, 1)) for change in changes))


def _units_by_size(scores: Array, layout: Layout) -> Iterator[Array]:
    """Scores of consecutive units of one size, `(units, rows, ...)`."""
    xp, first = namespace(scores), 0
    for rows, group in itertools.groupby(layout.unit_rows.tolist()):
        stop = first + rows * len(list(group))
        yield xp.reshape(scores[first:stop, ...], (-1, rows, *scores.shape[1:]))
        first = stop


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

    Where scores are steps on a circle, every unit has the same number of rows on a step, give or take one, and
    all may agree on a wrong mean. One row more or less in fewer than 3 of `n_units` units (for 95%) is easily
    missed: no arm is shorter than `log(looks / (1 - level)) jump / n_directions`, where the logarithm is 3 for
    one look at 95%.
    """
    xp = namespace(found.mean)
    t = student_quantile(level, degrees_of_freedom(layout), looks)
    lean = 1.25 * (1 + 2 * t * t) / (6 * math.sqrt(layout.n_units)) * found.skewness
    nothing = xp.zeros_like(lean)
    down, up = (xp.minimum(xp.maximum(side, nothing), nothing + t) for side in (-lean, lean))
    least = math.log(looks / (1 - level)) / layout.n_directions * found.jump
    if not isinstance(found, Controlled):
        arms = ((t + down) * found.stderr, (t + up) * found.stderr)
    else:
        # Student's t for the part estimated from units, the normal quantile for the known one; squares add up.
        told = xp.maximum(found.stderr * found.stderr - found.known, nothing)
        rest = normal_quantile(level, looks) ** 2 * found.known
        arms = (xp.sqrt((t + down) ** 2 * told + rest), xp.sqrt((t + up) ** 2 * told + rest))
    return xp.maximum(arms[0], least), xp.maximum(arms[1], least)


def degrees_of_freedom(layout: Layout) -> int:
    """Of the standard error of :func:`statistics`; 0 where there is none."""
    rows = layout.unit_rows
    longest = int(rows.max())
    if layout.n_units == 1:
        return 0
    if 2 * longest >= layout.n_directions:
        return 1
    # Units much shorter than the others vary more and say little of them: they are not counted.
    return int((2 * rows > longest).sum()) - 1


def normal_quantile(level: float, looks: int) -> float:
    """As :func:`student_quantile`, where the standard error is known."""
    from scipy.special import ndtri  # scipy.special is not needed to import orthoslice

    return float(ndtri(1 - (1 - level) / (2 * looks)))


def student_quantile(level: float, dof: int, looks: int) -> float:
    """Half-width of a two-sided interval in standard errors, shared out over repeated looks (Bonferroni)."""
    from scipy.special import stdtrit  # scipy.special is not needed to import orthoslice

    if dof == 0:
        return math.nan
    return float(stdtrit(dof, 1 - (1 - level) / (2 * looks)))
