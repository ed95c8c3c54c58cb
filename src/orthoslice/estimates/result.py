"""Estimates: their value, errors and intervals, whether to trust these, and how to repeat it."""

from __future__ import annotations

import functools
import math
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    DType,
    detach,
    device,
    is_readable,
    is_traced,
    library,
    namespace,
    register_pytree,
    to_numpy,
)
from orthoslice.backend.markup import card, preformatted
from orthoslice.check.options import check_level, is_real
from orthoslice.clouds.cloud import DistantCloud
from orthoslice.clouds.conditioning import rescaled, times_two_to
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Given, Sampler
from orthoslice.directions.given import GIVEN_LATER
from orthoslice.directions.layout import Layout
from orthoslice.estimates.control import Control
from orthoslice.estimates.population import FEWEST_POINTS, NEAR, SampleError, sample_error
from orthoslice.estimates.statistics import (
    Statistics,
    degrees_of_freedom,
    interval_arms,
    statistics,
    student_quantile,
    with_variance,
)
from orthoslice.estimates.trust import Subject


def root(value: Array, p: float) -> Array:
    """max(value, 0)^(1/p), with a gradient of 0 at 0."""
    xp = namespace(value)
    # Written so that NaN counts as positive, and stays NaN.
    positive = ~(value <= 0)
    safe = xp.where(positive, value, xp.ones_like(value))
    result = xp.where(positive, safe if p == 1 else safe ** (1 / p), xp.zeros_like(value))
    # NumPy's `where` makes arrays of what were scalars.
    return result[()] if library(result) == "numpy" else result


def root_stderr(value: Array, stderr: Array, p: float) -> Array:
    """Standard error of :func:`root`, by its slope."""
    xp = namespace(value)
    distance = root(value, p)
    apart = distance != 0
    slope = xp.where(apart, distance, xp.ones_like(distance)) ** (1 - p) / p
    # At distance 0 all scores are 0, and the error of the root is that of the value: 0, or unknown.
    return stderr * xp.where(apart, slope, xp.ones_like(slope))


# Degrees of freedom of the error bar for the data, which holds for large samples: Student's t is normal there.
_MANY_POINTS = 10**6


class UntrustedWarning(UserWarning):
    """An interval was read that cannot be trusted; the message says why and what to ask for.

    Examples
    --------
    >>> import warnings, numpy as np, orthoslice as osl
    >>> x = np.random.default_rng(0).normal(size=(10, 2))
    >>> est = osl.projected_wasserstein(x, x + 1e-4 * x[::-1], rng=0)
    >>> with warnings.catch_warnings(record=True, action="always") as told:
    ...     _ = est.interval()
    >>> est.trusted, [warning.category.__name__ for warning in told]
    (False, ['UntrustedWarning'])
    """


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """An unbiased estimate of SW_p^p, PW_p^p or a spherical SW_p^p with its error bar.

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
        ``directions=est.directions, n_directions=est.n_directions, rng=est.seed`` repeats the estimate; after a
        run with a tolerance add ``control=est.control``.
    control
        The control variate that was used, or None.
    converged
        Whether the tolerance is met, by an interval that can be trusted; None where none was asked for.

    Notes
    -----
    An estimate is a pytree of JAX and torch: ``jit`` and ``vmap`` can return it, and ``tree.map`` works on
    several of as many directions. Leaves are `value`, `stderr`, the skewness and the
    jump of scores behind the interval, and the exponent of their unit (0 unless the
    clouds are at the ends of the floating range). What belongs to a single run is gone afterwards: `seed`
    and `converged` are None, and `scores` too.

    ``float(est)``, ``round(est, 3)``, ``f"{est:.3f}"`` and ``est < 6`` mean `distance`. A batch is not one
    number, and refuses.

    An estimate refers to its clouds and copies nothing of them but a few rows, which show whether they were
    written to since. A pickled one, or a copy, has scores and intervals and says whether they can be trusted,
    but holds no clouds: read :attr:`data_stderr` before, and it keeps that too.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> est = osl.sliced_wasserstein(x, 2 * x + 1, rng=0)
    >>> low, high = est.distance_interval(0.99)
    >>> bool(low < est.distance < high), bool(np.isclose(est.distance**2, est.value)), est.trusted
    (True, True, True)
    """

    name: str
    p: float
    n_directions: int
    n_blocks: int
    directions: Sampler
    seed: int | None
    converged: bool | None
    control: Control | None
    _value: Array
    _layout: Layout
    _scale: float
    """`_value` and scores are in units of scale^p, so that they fit their type whatever the clouds' units."""
    _looks: int
    _no_error_bar: str
    """Why there is no error bar; empty where there is one."""
    _scores: Array | None = None
    _raw: Array | None = None
    """Scores before a control variate changed them; the same without one."""
    _subject: Subject | None = None
    _exponent: Array | None = None
    """Values are in units of 2^(exponent p) besides, where the clouds were scaled on the device."""
    _variance: Array | None = None
    """What an uncertain mean of a control variate adds to the variance of the value."""
    _dtype: DType | None = None
    """The type of the clouds, where the work was done in a wider one."""
    _memory: int = 2**28
    _workers: int = 1

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the clouds; `_doubts`, which reads them, is worked out first."""
        _ = self._doubts
        return self.__dict__ | {"_subject": None}

    @functools.cached_property
    def _statistics(self) -> Statistics:
        # Worked out when it is read: a training step has no use for it.
        found: tuple[Any, ...] = (*statistics(cast(Array, self._scores), self._layout), self._variance)
        *told, known = (a if a is None else namespace(a).astype(a, self._value.dtype) for a in found)
        return with_variance(Statistics(*cast("list[Array]", told)), known)

    @property
    def _stderr(self) -> Array:
        return self._statistics.stderr

    @functools.cached_property
    def _doubts(self) -> Any:
        """Why each interval cannot be trusted, empty where it can; None if the clouds are gone or changed."""
        if self._subject is None or is_traced(self._value) or not self._subject.is_intact:
            return None
        return self._subject.doubts(
            cast(Array, self._raw), self._statistics, self._layout, self._looks, self._exponent
        )

    @property
    def trusted(self) -> Any:
        """Whether the interval can be trusted: a bool, or an array of them for a batch.

        It cannot where directions that were not drawn may matter (nearly equal clouds, tight clusters far
        apart, high `p`, very few directions), and where there is no interval. None where it is unknown: while
        it is traced, once an estimate went through a pytree, and where the clouds were written to before this
        was first read. The value is unbiased all the same.
        """
        if degrees_of_freedom(self._layout) == 0:
            return False if not self._value.ndim else np.zeros(self._value.shape, dtype=bool)
        doubts = self._doubts
        if doubts is None:
            return None
        return doubts == "" if doubts.ndim else doubts[()] == ""

    @property
    def value(self) -> Array:
        return self._powered(self._value)

    @property
    def scores(self) -> Array | None:
        """The score of every direction, `(n_directions, ...)`; None once it went through a pytree.

        Their mean is `value`: where a control variate was used, it has been taken off.
        """
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
        return self._scaled(root_stderr(detach(self._value), self._stderr, self.p))

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """A confidence interval for SW_p^p or PW_p^p of these clouds, over the choice of directions.

        It says nothing of the clouds being samples. By Student's t on the means of independent blocks, with a
        longer arm on the side to which they lean.
        After adaptive stopping it is widened for the repeated looks. Where it cannot be trusted
        (see :attr:`trusted`) a warning says why.
        """
        low, high = self._limits(level)
        return self._powered(low), self._powered(high)

    def distance_interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """A confidence interval for SW_p or PW_p: the roots of :meth:`interval`."""
        low, high = (root(limit, self.p) for limit in self._limits(level))
        return self._scaled(low), self._scaled(high)

    @property
    def data_stderr(self) -> Array:
        """Standard error of `value` because the clouds are samples, each of independent points from its law.

        For SW_p^p with p > 1 and clouds without weights. NaN, with a warning that says why, elsewhere, and
        where the clouds may come from one law: use :func:`orthoslice.two_sample_test` there. Worked out when it
        is first read, by as many `workers` and within the `memory` of the estimate, or of one direction, which
        takes about 120 bytes a point and worker.
        """
        return self._powered(self._sample_error.stderr)

    def population_interval(self, level: float = 0.95, *, debias: bool = True) -> tuple[Array, Array]:
        """A confidence interval for SW_p^p of the laws that the clouds are samples of.

        It counts both errors, that of the directions and :attr:`data_stderr`. Two samples are further apart
        than their laws, on average by an amount that doubles when samples are halved: `debias` takes it off.
        NaN, with a warning, where :attr:`data_stderr` is.
        """
        low, high = self._population_limits(level, debias)
        return self._powered(low), self._powered(high)

    def population_distance_interval(self, level: float = 0.95, *, debias: bool = True) -> tuple[Array, Array]:
        """A confidence interval for SW_p of the laws: the roots of :meth:`population_interval`."""
        low, high = (root(limit, self.p) for limit in self._population_limits(level, debias))
        return self._scaled(low), self._scaled(high)

    def _population_limits(self, level: float, debias: bool) -> tuple[Array, Array]:
        low, high = self._limits(level)
        xp, value, error = namespace(self._value), detach(self._value), self._sample_error
        # One look: adaptive runs look at more and more directions, but at the same samples.
        arm = student_quantile(level, _MANY_POINTS, looks=1) * error.stderr
        centre = value - error.bias if debias else value
        # Independent errors: the squares of their arms add up.
        down, up = (xp.sqrt(side * side + arm * arm) for side in (value - low, high - value))
        return xp.maximum(centre - down, xp.zeros_like(centre)), centre + up

    @functools.cached_property
    def _sample_error(self) -> SampleError:
        """In the units of `_value`, as arrays of its library; NaN, with a warning, where there is none."""
        why = self._why_no_sample_error()
        if not why:
            assert self._subject is not None
            x, y = self._subject.x, self._subject.y
            found = sample_error(x, y, self.p, self.seed or 0, self._memory, self._workers)
            near = to_numpy(self._value) - found.bias <= NEAR * found.bias
            if near.any():
                why = (
                    "these clouds may be samples of one law, where this error bar does not hold; use "
                    "`osl.two_sample_test(x, y)`"
                )
                found = SampleError(*(np.where(near, math.nan, part) for part in found))
        else:
            found = SampleError(*(np.full(self._value.shape, math.nan) for _ in range(2)))
        if why:
            warnings.warn(f"There is no error bar for the data: {why}.", UntrustedWarning, stacklevel=4)
        xp, value = namespace(self._value), self._value
        return SampleError(*(xp.asarray(part, dtype=value.dtype, device=device(value)) for part in found))

    def _why_no_sample_error(self) -> str:
        subject = self._subject
        if subject is None or is_traced(self._value):
            return "it takes the clouds, which are gone once an estimate was traced, pickled or in a pytree"
        if isinstance(subject.x, DistantCloud):
            return "it takes clouds in memory, and these are Dask collections; some of their rows will do"
        if not subject.is_intact:
            return "it takes the clouds, which were written to since"
        if type(subject.score) is not Sliced:
            return "it holds for the sliced distance of two samples"
        if self.p == 1:
            return "it takes p > 1; use `osl.bootstrap(x, y, 1)`"
        if not (subject.x.weights is None and subject.y.weights is None):
            return "it takes clouds without weights, each point an independent draw"
        if min(subject.x.n, subject.y.n) < FEWEST_POINTS:
            return f"it takes {FEWEST_POINTS} points or more of each cloud"
        return ""

    def _limits(self, level: float, warn: bool = True) -> tuple[Array, Array]:
        check_level(level)
        self._check_read()
        if warn and self._doubt:
            warnings.warn(f"This interval cannot be trusted: {self._doubt}.", UntrustedWarning, stacklevel=3)
        value = detach(self._value)
        down, up = interval_arms(self._statistics, self._layout, level, self._looks)
        return value - down, value + up

    @property
    def _doubt(self) -> str:
        """A reason not to trust an interval, if there is one."""
        return "" if self._doubts is None else max(self._doubts.flat, key=len)

    def _scaled(self, quantity: Array) -> Array:
        if self._exponent is not None:
            return times_two_to(quantity, self._exponent, 1)
        return rescaled(quantity, self._scale, 1, self._dtype)

    def _powered(self, quantity: Array) -> Array:
        if self._exponent is None:
            return rescaled(quantity, self._scale, self.p, self._dtype)
        # No error can be raised here, so an infinite result becomes NaN: infinity times 0.
        result = times_two_to(quantity, self._exponent, self.p)
        return result + 0 * result

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

    def _told_interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """The interval of the distance as it is shown, without a warning; None where there is no error bar."""
        if degrees_of_freedom(self._layout) == 0:
            return None
        low, high = (self._scaled(root(limit, self.p)) for limit in self._limits(level, warn=False))
        return float(to_numpy(low)), float(to_numpy(high))

    def __float__(self) -> float:
        """The distance of a single pair of clouds, which rounding, formats and comparisons use too."""
        if self._value.ndim:
            shape = tuple(self._value.shape)
            raise TypeError(f"An estimate of a batch is not one number: read `distance`, of shape {shape}.")
        self._check_read()
        return float(detach(self.distance))

    def __round__(self, ndigits: int | None = None) -> float:
        return round(float(self), ndigits)

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else repr(self)

    def __lt__(self, other: object) -> Any:
        return self._compared(operator.lt, other)

    def __le__(self, other: object) -> Any:
        return self._compared(operator.le, other)

    def __gt__(self, other: object) -> Any:
        return self._compared(operator.gt, other)

    def __ge__(self, other: object) -> Any:
        return self._compared(operator.ge, other)

    def _compared(self, comparison: Callable[[float, float], bool], other: Any) -> Any:
        if not isinstance(other, Estimate) and not is_real(other):
            return NotImplemented
        return comparison(float(self), float(other))

    @property
    def _repeat(self) -> str:
        told = f"directions={self.directions!r}, n_directions={self.n_directions}, rng={self.seed}"
        # Given the number of directions beforehand, the library might have chosen another control.
        return told if self.converged is None else f"{told}, control={self.control!r}"

    def __repr__(self) -> str:
        head = f"{self.name}_{self.p:g}"
        if is_traced(self._value):
            return f"Estimate({head}: traced; {self._repeat})"
        self._check_read()
        if self._value.ndim:
            return f"Estimate({head}: a batch of shape {tuple(self._value.shape)}; {self._repeat})"
        distance, limits = float(to_numpy(self.distance)), self._told_interval()
        if limits is None:
            error = f" (no error bar: {self._no_error_bar})"
        else:
            low, high = limits
            error = f", 95% interval over directions [{low:.6g}, {high:.6g}] from {self.n_blocks} blocks"
            error += f" NOT to be trusted: {self._doubt}" if self._doubt else ""
        failed = "" if self.converged is not False else ", tolerance NOT met"
        return f"Estimate({head} = {distance:.6g}{error}{failed}; {self._repeat})"

    def _repr_html_(self) -> str:
        if is_traced(self._value) or self._value.ndim:
            return preformatted(repr(self))
        self._check_read()
        limits = self._told_interval()
        sure = f"none: {self._no_error_bar}" if limits is None else f"{limits[0]:.6g} to {limits[1]:.6g}"
        notes = [f"The interval is NOT to be trusted: {self._doubt}."] if limits and self._doubt else []
        notes += ["The tolerance was NOT met."] if self.converged is False else []
        rows = [
            ("distance", f"{float(to_numpy(self.distance)):.6g}"),
            ("95% interval over directions", sure),
            ("directions", f"{self.n_directions:,} in {self.n_blocks:,} independent blocks"),
            ("to repeat it", self._repeat),
        ]
        return card(f"{self.name}_{self.p:g}, the {_KINDS[self.name]} Wasserstein distance", rows, notes)


_KINDS = {
    "SW": "sliced",
    "PW": "projected",
    "SSW": "spherical sliced",
    "S3W": "stereographic spherical sliced",
}


_NOT_STATIC = (
    "_value",
    "_exponent",
    "_scale",
    "_scores",
    "_raw",
    "_subject",
    "_variance",
    "_memory",
    "_workers",
    "seed",
    "converged",
    "directions",
)


def _flatten(estimate: Estimate) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
    """Leaves of one shape: value, statistics of its interval, exponent of their unit; and the static fields.

    Fields that differ between runs of a request are left out, so that its estimates can be mapped, stacked and
    averaged together; `seed` is one of them, since no seed repeats the result.
    """
    xp, value = namespace(estimate._value), estimate._value
    exponent = xp.full_like(detach(value), math.log2(estimate._scale))
    if estimate._exponent is not None:
        exponent = exponent + estimate._exponent
    static = {f.name: getattr(estimate, f.name) for f in fields(estimate) if f.name not in _NOT_STATIC}
    given = isinstance(estimate.directions, Given)
    static["directions"] = GIVEN_LATER if given else estimate.directions
    return (value, *estimate._statistics[1:], exponent), tuple(static.items())


def _unflatten(static: tuple[Any, ...], leaves: Any) -> Estimate:
    value, *told, exponent = leaves
    estimate = Estimate(_value=value, _exponent=exponent, _scale=1.0, seed=None, converged=None, **dict(static))
    estimate.__dict__["_statistics"] = Statistics(value, *told)
    return estimate


def register_estimates(kind: str | None) -> None:
    """Make estimates pytrees of an array library: see :func:`_flatten`."""
    register_pytree(kind, Estimate, _flatten, _unflatten)
