"""Independent blocks of directions: their layout, their means and what those are worth."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from orthoslice.arrays import Array, at_rank, device, namespace

Table: TypeAlias = np.ndarray[Any, Any]

# Blocks up to which layouts keep tables of all their blocks.
_MOST_KEPT = 1 << 12

# The skewness of fewer numbers is noise, and Student's t is wide enough for them.
_FEWEST_FOR_SKEWNESS = 8


class Run(NamedTuple):
    """Consecutive blocks of one size."""

    n_blocks: int
    rows: int


def whole_blocks(n_directions: int, rows: int) -> tuple[Run, ...]:
    """As many blocks of this size as fit, and one with the rows that are left."""
    count, left = divmod(n_directions, rows)
    runs = (Run(count, rows), Run(1, left))
    return tuple(run for run in runs if run.n_blocks and run.rows)


@functools.lru_cache(maxsize=256)
def layout_of(runs: tuple[Run, ...], unit_blocks: int = 1, is_stepped: bool = False) -> Layout:
    """A layout, perhaps one that was made before and has its tables already."""
    return Layout(runs, unit_blocks, is_stepped)


class _kept_if_short(functools.cached_property[Table]):
    """A table of a layout that is worked out once, unless it is long: layouts are kept beyond a call."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Table:  # type: ignore[override]
        if instance is not None and instance.n_blocks > _MOST_KEPT:
            return self.func(instance)
        table: Table = super().__get__(instance, owner)
        return table


@dataclass(frozen=True)
class Layout:
    """How directions are grouped: runs of equal blocks, and `unit_blocks` blocks to an independent unit.

    Blocks that do not fill a unit belong to the last one.

    Examples
    --------
    >>> layout = Layout((Run(2, 16), Run(1, 1)))
    >>> layout.n_directions, layout.n_blocks, layout.unit_rows.tolist()
    (33, 3, [16, 16, 1])
    """

    runs: tuple[Run, ...]
    unit_blocks: int = 1
    is_stepped: bool = False
    """Whether the rows of a unit go once round a circle on which scores are constant between jumps."""

    @_kept_if_short
    def block_rows(self) -> Table:
        """Rows of every block."""
        counts, rows = zip(*self.runs, strict=True)
        return np.repeat(rows, counts)

    @_kept_if_short
    def unit_rows(self) -> Table:
        """Rows of every unit."""
        if self.unit_blocks == 1:
            return self.block_rows
        starts = np.arange(self.n_units) * self.unit_blocks
        return np.add.reduceat(self.block_rows, starts)

    @_kept_if_short
    def unit_ends(self) -> Table:
        """After how many rows every unit ends, with a 0 before the first."""
        return np.concatenate([[0], np.cumsum(self.unit_rows)])

    @functools.cached_property
    def size_changes(self) -> list[int]:
        """The blocks at which another size begins, and last the number of all blocks."""
        sizes = [run.rows for run in self.runs]
        ends = itertools.accumulate(run.n_blocks for run in self.runs)
        return [end for end, a, b in zip(ends, sizes, [*sizes[1:], 0], strict=True) if a != b]

    @functools.cached_property
    def n_directions(self) -> int:
        return sum(n * rows for n, rows in self.runs)

    @functools.cached_property
    def n_blocks(self) -> int:
        return sum(run.n_blocks for run in self.runs)

    @functools.cached_property
    def n_units(self) -> int:
        return max(1, self.n_blocks // self.unit_blocks)

    @functools.cached_property
    def longest_block(self) -> int:
        return max(run.rows for run in self.runs)

    def rows_between(self, first_unit: int, stop_unit: int) -> int:
        """Rows of the units from the first up to, and without, the other."""
        return self._rows_before(stop_unit) - self._rows_before(first_unit)

    def _rows_before(self, unit: int) -> int:
        if unit == self.n_units:
            return self.n_directions
        block = unit * self.unit_blocks
        run = bisect.bisect_right(self._run_starts, block) - 1
        return self._run_rows[run] + (block - self._run_starts[run]) * self.runs[run].rows

    @functools.cached_property
    def _run_starts(self) -> list[int]:
        """Blocks before every run."""
        return [0, *itertools.accumulate(run.n_blocks for run in self.runs[:-1])]

    @functools.cached_property
    def _run_rows(self) -> list[int]:
        """Rows before every run."""
        return [0, *itertools.accumulate(run.n_blocks * run.rows for run in self.runs[:-1])]

    def first(self, n_units: int) -> Layout:
        """The layout of the first units only."""
        if n_units >= self.n_units:
            return self
        runs, left = [], n_units * self.unit_blocks
        for run in self.runs:
            count = min(run.n_blocks, left)
            left -= count
            if count:
                runs.append(Run(count, run.rows))
        return Layout(tuple(runs), self.unit_blocks, self.is_stepped)


class Statistics(NamedTuple):
    """What independent units say of the mean over all directions."""

    mean: Array
    stderr: Array
    """The standard error of the mean; NaN with one unit."""
    skewness: Array
    """Of the means of whole units; 0 where there are too few to tell."""
    jump: Array
    """The largest change of scores from one row of a unit to the next, if its layout is stepped, else 0."""


class Controlled(Statistics):
    """The same where a control variate is used, whose mean is not known exactly."""

    known: Array
    """The part of the squared standard error that units do not tell: the variance from that mean."""


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
        # The mean over all, less the part of the largest unit, is what the others say.
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
    """The same with an error that has a further, independent source of this variance."""
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

    Where scores are steps on a circle, units round the length of every step alike, up to one row, and may all
    agree on what is wrong. One row more or less that fewer than 3 in `n_units` units have (for 95%) is easily
    missed, and changes the mean by 3 jumps in `n_directions`: no arm is shorter than that.
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
        # Student's t is for the part that few units tell. Squared, as independent errors add up.
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
