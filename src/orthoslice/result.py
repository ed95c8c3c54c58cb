"""What an estimate knows of itself: its value, how far to trust it, and how to repeat it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from orthoslice.arrays import (
    Array,
    detach,
    is_readable,
    is_traced,
    library,
    namespace,
    register_pytree,
    to_numpy,
)
from orthoslice.directions import Sampler
from orthoslice.options import is_real
from orthoslice.scaling import times_power


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

    def first(self, n_units: int) -> Layout:
        """The layout of the first units only."""
        if n_units >= self.n_units:
            return self
        return Layout(n_units * self.unit_rows, self.block_rows, self.unit_blocks)


def mean_and_stderr(scores: Array, layout: Layout) -> tuple[Array, Array]:
    """Mean of the scores `(n_directions, ...)`, and its standard error.

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
        return mean, xp.full_like(mean, math.nan)
    cut = (units - 1) * layout.unit_rows
    whole = xp.reshape(scores[:cut, ...], (units - 1, layout.unit_rows, *scores.shape[1:]))
    whole_means, last_mean = xp.mean(whole, axis=1), xp.mean(scores[cut:, ...], axis=0)
    w, last = layout.unit_rows / n, layout.last_rows / n
    if max(w, last) >= 0.5:
        # Only the last unit can be longer, and a half or more for the others leaves room for only one of them.
        gap = last_mean - xp.mean(whole_means, axis=0)
        return mean, max(w, last) * xp.abs(gap)
    a, b = w**2 / (1 - 2 * w), last**2 / (1 - 2 * last)
    spread = a * xp.sum((whole_means - mean) ** 2, axis=0) + b * (last_mean - mean) ** 2
    return mean, xp.sqrt(spread / (1 + (units - 1) * a + b))


def degrees_of_freedom(layout: Layout) -> int:
    """Of the standard error of :func:`mean_and_stderr`; 0 where there is none."""
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


def root(value: Array, p: float) -> Array:
    """max(value, 0)^(1/p), with a gradient of 0 at 0."""
    xp = namespace(value)
    # Written so that NaN counts as positive, and stays NaN.
    positive = ~(value <= 0)
    safe = xp.where(positive, value, xp.ones_like(value))
    result = xp.where(positive, safe if p == 1 else safe ** (1 / p), xp.zeros_like(value))
    # NumPy's `where` makes arrays of what were scalars.
    return result[()] if library(result) == "numpy" else result


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """An unbiased estimate of SW_p^p or PW_p^p with its error bar.

    Attributes
    ----------
    value, distance
        The estimate, and its p-th root. Scalars of the input's library, or batches; torch and JAX can
        differentiate both. The root of an unbiased estimate is slightly biased downwards.
    stderr, distance_stderr
        Standard errors of both, without gradients; NaN where there is only one independent block.
    n_directions, n_blocks
        How many directions were used, in how many independent blocks.
    directions, seed
        ``directions=est.directions, n_directions=est.n_directions, rng=est.seed`` repeats the estimate.
    converged
        Whether the tolerance that was asked for is met; None where none was.
    """

    name: str
    p: float
    n_directions: int
    n_blocks: int
    directions: Sampler
    seed: int | None
    converged: bool | None
    _value: Array
    _error: Array | None
    """The standard error, once somebody asked for it."""
    _layout: Layout
    _scale: float
    """The values above are in units of scale^p, so that they fit their type whatever the clouds' units are."""
    _dof: int
    _looks: int
    _no_error_bar: str
    """Why there is none, where there is none."""
    _scores: Array | None = None

    @property
    def _stderr(self) -> Array:
        if self._error is None:
            # Worked out when it is read: a training step has no use for it.
            error = mean_and_stderr(self._scores, self._layout)[1]
            object.__setattr__(self, "_error", namespace(error).astype(error, self._value.dtype))
        return self._error

    @property
    def value(self) -> Array:
        return self._powered(self._value)

    @property
    def scores(self) -> Array | None:
        """The score of every direction, `(n_directions, ...)`; None once it went through a pytree."""
        return None if self._scores is None else self._powered(self._scores)

    @property
    def stderr(self) -> Array:
        return self._powered(self._stderr)

    @property
    def distance(self) -> Array:
        return self._scaled(root(self._value, self.p))

    @property
    def distance_stderr(self) -> Array:
        """Standard error of `distance`, by the slope of the root."""
        xp = namespace(self._value)
        distance = root(detach(self._value), self.p)
        apart = distance != 0
        slope = xp.where(apart, distance, xp.ones_like(distance)) ** (1 - self.p) / self.p
        # At distance 0 all scores are 0, and the error of the root is that of the value: 0, or unknown.
        return self._scaled(self._stderr * xp.where(apart, slope, xp.ones_like(slope)))

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """A confidence interval for SW_p^p or PW_p^p, by Student's t on the means of independent blocks.

        After adaptive stopping it is widened for the repeated looks.
        """
        half = self._half_width(level)
        value = detach(self._value)
        return self._powered(value - half), self._powered(value + half)

    def distance_interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """A confidence interval for SW_p or PW_p: the roots of :meth:`interval`."""
        half = self._half_width(level)
        value = detach(self._value)
        low, high = (root(v, self.p) for v in (value - half, value + half))
        return self._scaled(low), self._scaled(high)

    def _half_width(self, level: float) -> Array:
        if not (is_real(level) and 0 < level < 1):
            raise ValueError(f"`level` must lie between 0 and 1; got {level!r}.")
        self._check_read()
        return student_quantile(level, self._dof, self._looks) * self._stderr

    def _scaled(self, quantity: Array) -> Array:
        return quantity if self._scale == 1 else quantity * self._scale

    def _powered(self, quantity: Array) -> Array:
        return times_power(quantity, self._scale, self.p)

    def _check_read(self) -> None:
        """On an accelerator values could not be checked before; now they are read anyway."""
        if is_traced(self._value) or is_readable(self._value):
            return
        if not bool(namespace(self._value).all(namespace(self._value).isfinite(self._value))):
            raise ValueError(
                "The estimate is not finite: `x`, `y`, weights or directions hold NaN, infinity, negative or "
                "unnormalised weights, or rows that are not of unit length."
            )

    def __repr__(self) -> str:
        repeat = f"directions={self.directions!r}, n_directions={self.n_directions}, rng={self.seed}"
        head = f"{self.name}_{self.p:g}"
        if is_traced(self._value):
            return f"Estimate({head}: traced; {repeat})"
        self._check_read()
        if self._value.ndim:
            return f"Estimate({head}: a batch of shape {tuple(self._value.shape)}; {repeat})"
        distance = float(to_numpy(self.distance))
        if self._dof == 0:
            error = f" (no error bar: {self._no_error_bar})"
        else:
            low, high = (float(to_numpy(v)) for v in self.distance_interval())
            error = f", 95% interval [{low:.6g}, {high:.6g}] from {self.n_blocks} blocks"
        failed = "" if self.converged is not False else ", tolerance NOT met"
        return f"Estimate({head} = {distance:.6g}{error}{failed}; {repeat})"


def _flatten(estimate: Estimate) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    leaves = ("_value", "_error")
    static = tuple(
        (f.name, getattr(estimate, f.name)) for f in fields(estimate) if f.name not in (*leaves, "_scores")
    )
    return (estimate._value, estimate._stderr), static


def _unflatten(static: tuple[Any, ...], leaves: Any) -> Estimate:
    return Estimate(_value=leaves[0], _error=leaves[1], **dict(static))


def register_estimates(kind: str | None) -> None:
    """Make estimates pytrees of an array library; their values are leaves, the rest is static."""
    register_pytree(kind, Estimate, _flatten, _unflatten)
