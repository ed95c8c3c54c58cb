"""What an estimate knows of itself: its value, how far to trust it, and how to repeat it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from orthoslice.arrays import (
    Array,
    DType,
    detach,
    is_readable,
    is_traced,
    library,
    namespace,
    register_pytree,
    to_numpy,
)
from orthoslice.blocks import Layout, mean_and_stderr, student_quantile
from orthoslice.conditioning import rescaled
from orthoslice.directions import Sampler
from orthoslice.options import is_real


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
    _dtype: DType | None = None
    """The type of the clouds, where the work was done in a wider one."""

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
        return None if self._scores is None else rescaled(self._scores, self._scale, self.p)

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
        return rescaled(quantity, self._scale, 1, self._dtype)

    def _powered(self, quantity: Array) -> Array:
        return rescaled(quantity, self._scale, self.p, self._dtype)

    def _check_read(self) -> None:
        """On an accelerator values could not be checked before; now they are read anyway."""
        if is_traced(self._value) or is_readable(self._value):
            return
        if not bool(namespace(self._value).all(namespace(self._value).isfinite(self._value))):
            raise ValueError(
                "The estimate is not finite: `x`, `y`, weights or directions hold NaN, infinity, integers that "
                "floating point would round, negative or unnormalised weights, or rows that are not of unit "
                "length."
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
