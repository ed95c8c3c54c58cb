"""Control variates: quantities of a direction whose mean over all directions is known."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from orthoslice.backend.arrays import (
    CONTROLS,
    Array,
    Key,
    at_rank,
    call_on_host,
    device,
    namespace,
    wide_float,
)
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.moments import Moments, gaussian_cost, mean_gaussian_cost, moments_of
from orthoslice.directions.base import DenseDirections, Directions, take_rows
from orthoslice.directions.control_rules import fewest_for_mean, is_fitted
from orthoslice.directions.layout import Layout
from orthoslice.directions.spheres import mean_shortening
from orthoslice.estimates.statistics import unit_means

# The slope over unit means counts with max(1 - _UNITS_FOR_SLOPES / units, 0), that over single directions with
# the rest: few units tell a slope badly.
_UNITS_FOR_SLOPES = 8

# Directions from which the mean of a Gaussian control is found: at most _MEAN_ROWS for each that is scored, but
# in all at least `fewest_for_mean` and at most _MOST_FOR_MEAN.
_MEAN_ROWS, _MOST_FOR_MEAN = 8, 1 << 16


class KnownMean(NamedTuple):
    """The mean of a control over all directions, `(...)`, and the variance of that number; 0 if it is exact.

    Examples
    --------
    >>> from orthoslice.control import KnownMean
    >>> KnownMean(0.25)
    KnownMean(value=0.25, variance=0.0)
    """

    value: Array
    variance: Array | float = 0.0


class Control(abc.ABC):
    """A control variate: a frozen, hashable value, such as a frozen dataclass.

    Scores f are replaced by f - beta (g - E g) for the control g, which has the same mean and, with the right
    factor beta, less variance. The factor of a unit of directions is fitted on all the others: a factor fitted
    on the scores that it corrects would bias them. Values only: controls have no gradient.

    Examples
    --------
    Clouds that are a shift apart: the squared shift along a direction, and its mean over the sphere.

    >>> from dataclasses import dataclass
    >>> import numpy as np, orthoslice as osl
    >>> from orthoslice.control import Control, KnownMean
    >>> @dataclass(frozen=True)
    ... class MeanShift(Control):
    ...     def evaluate(self, x, y, p, directions, rows):
    ...         gap = x.points.mean(-2) - y.points.mean(-2)
    ...         return directions.project(gap[None, :], rows)[:, 0] ** 2
    ...     def mean(self, x, y, p):
    ...         gap = x.points.mean(-2) - y.points.mean(-2)
    ...         return KnownMean((gap * gap).sum() / x.dim)
    >>> x, y = np.random.default_rng(0).normal(size=(2, 40, 3)) + [[[0, 0, 0]], [[3, 3, 3]]]
    >>> options = {"directions": "iid", "n_directions": 64, "rng": 0}
    >>> plain, less = (osl.sliced_wasserstein(x, y, control=c, **options) for c in (None, MeanShift()))
    >>> bool(less.stderr < plain.stderr / 4)
    True
    """

    @abc.abstractmethod
    def evaluate(self, x: Cloud, y: Cloud, p: float, directions: Directions, rows: slice | Array) -> Array:
        """The control of some rows of the directions, `(slices, ...)`: cheap beside a score, and like it."""

    @abc.abstractmethod
    def mean(self, x: Cloud, y: Cloud, p: float) -> KnownMean:
        """Its mean over all directions."""

    def fitted(self, x: Cloud, y: Cloud, key: Key, n_directions: int) -> Control:
        """The control to use for these clouds: itself, unless something is worked out once for all directions.

        Draws must come from `key`, folded with a purpose of their own. Whenever there are more directions,
        the fitted control is fitted again, and then used for a better mean only.
        """
        return self


@dataclass(frozen=True)
class Gaussian(Control):
    """What each direction would cost if both clouds were Gaussian: ``control="gaussian"``.

    g(theta) is W_p^p between normal distributions on the line that have the means and variances of the
    projected clouds. It is much like the score of a sliced distance, takes O(dim^2) a direction whatever the
    number of points, and its mean over the sphere is found nearly without error; what uncertainty is left is
    part of the error bar. Squared errors are 1.2 to 2 times smaller where clouds are samples of one law, and 10
    to 1,000 times where they differ in mean or covariance. Projected distances are piecewise constant in the
    direction, and it would do nothing for them: it is off there, in dimension 1, and with fewer than 4 units or
    16 directions.

    Examples
    --------
    >>> import orthoslice as osl
    >>> x, y = osl.datasets.digits(0), osl.datasets.digits(1)
    >>> plain, less = (osl.sliced_wasserstein(x, y, control=c, rng=0) for c in (None, "gaussian"))
    >>> bool(less.stderr < plain.stderr / 2), less.control
    (True, Gaussian())
    """

    def evaluate(self, x: Cloud, y: Cloud, p: float, directions: Directions, rows: slice | Array) -> Array:
        return _FittedGaussian(moments_of(x, y)).evaluate(x, y, p, directions, rows)

    def mean(self, x: Cloud, y: Cloud, p: float) -> KnownMean:
        fixed = Key.from_seed(0, x.points)
        return self.fitted(x, y, fixed, 0).mean(x, y, p)

    def fitted(self, x: Cloud, y: Cloud, key: Key, n_directions: int) -> Control:
        return _FittedGaussian(moments_of(x, y)).fitted(x, y, key, n_directions)


@dataclass(frozen=True, eq=False)
class _FittedGaussian(Control):
    """:class:`Gaussian` for clouds with these moments; its mean is found from `rows` directions."""

    moments: Moments
    key: Key | None = None
    rows: int = 0

    def evaluate(self, x: Cloud, y: Cloud, p: float, directions: Directions, rows: slice | Array) -> Array:
        xp, dtype = namespace(x.points), x.dtype
        gap, *forms = (xp.astype(m, dtype) for m in self.moments)
        if isinstance(directions, DenseDirections):
            theta = xp.astype(take_rows(directions.theta, rows), dtype)
        else:
            theta = directions.project(xp.eye(x.dim, dtype=dtype, device=device(x.points)), rows)
        dense = DenseDirections(theta)
        a = dense.project(gap[..., None, :], slice(None))[..., 0]
        u, v = (_quadratic(dense.project(form, slice(None)), theta) for form in forms)
        a, u, v = xp.broadcast_arrays(a, u, v)
        costs = gaussian_cost(a, u, v, p)
        # Costs are p-homogeneous like scores, so both have the same factor for rows shorter than 1.
        factor = 1 / mean_shortening(directions.dim, directions.ambient_dim, p)
        return costs if factor == 1 else factor * costs

    def fitted(self, x: Cloud, y: Cloud, key: Key, n_directions: int) -> Control:
        # These directions must take a small part of the time that projecting the points takes.
        rows = n_directions * min(_MEAN_ROWS, (x.n + y.n) // (8 * x.dim))
        rows = min(max(rows, fewest_for_mean(x.dim)), _MOST_FOR_MEAN)
        return replace(self, key=key.fold(0, CONTROLS), rows=rows)

    def mean(self, x: Cloud, y: Cloud, p: float) -> KnownMean:
        assert self.key is not None
        batch = np.broadcast_shapes(*(tuple(c.points.shape[:-2]) for c in (x, y)))
        find = functools.partial(mean_gaussian_cost, p=p, rows=self.rows)
        found = call_on_host(find, (*batch, 2), wide_float(x.points), *self.moments, *self.key)
        return KnownMean(found[..., 0], found[..., 1])


def _quadratic(image: Array, theta: Array) -> Array:
    """<theta, S theta> from `S theta (slices, ..., dim)`, and not below 0."""
    xp = namespace(image)
    theta = xp.reshape(theta, (theta.shape[0], *(1,) * (image.ndim - 2), theta.shape[1]))
    form = xp.sum(image * theta, axis=-1)
    return xp.maximum(form, xp.zeros_like(form))


NAMED_CONTROLS: dict[str, Control] = {"gaussian": Gaussian()}
"""What the names accepted by ``control=`` stand for."""


def check_control(control: object) -> Control | Literal["auto"] | None:
    """The control variate asked for, None for none, or "auto" if the library is to choose."""
    if control is None:
        return None
    if isinstance(control, str):
        if control == "auto":
            return "auto"
        if control in NAMED_CONTROLS:
            return NAMED_CONTROLS[control]
    elif isinstance(control, Control):
        return control
    raise ValueError(
        f"`control` must be 'auto', None or a control variate: one of {sorted(NAMED_CONTROLS)}, or an "
        f"`osl.control.Control` of your own; got {control!r}."
    )


class Corrected(NamedTuple):
    """Scores with less variance, and what the control's uncertain mean adds to the variance of their mean."""

    scores: Array
    variance: Array | float | None


def correct(scores: Array, controls: Array, known: KnownMean, layout: Layout) -> Corrected:
    """Take `beta (controls - known)` off the `scores (n_directions, ...)`, with a factor beta for every unit.

    With fewer than four units or sixteen directions nothing can be fitted, and the scores stay as they are.
    """
    if not is_fitted(layout):
        return Corrected(scores, 0.0)
    xp = namespace(scores)
    factors = _fitted_elsewhere(scores, controls, known.variance, layout)
    each = xp.take(factors, _unit_of_rows(layout, factors), axis=0)
    away = controls - at_rank(known.value, controls.ndim)
    mean_factor = xp.mean(each, axis=0)
    return Corrected(scores - each * away, mean_factor * mean_factor * known.variance)


def _unit_of_rows(layout: Layout, like: Array) -> Array:
    index = np.repeat(np.arange(layout.n_units), layout.unit_rows)
    return namespace(like).asarray(index, device=device(like))


def _fitted_elsewhere(f: Array, g: Array, mean_variance: Array | float, layout: Layout) -> Array:
    """For every unit a factor from all other units, `(units, ...)`; 0 where g does not vary.

    The slope of unit means of f on those of g minimises the variance of the mean over units. But few units tell
    it badly: an error of the slope costs as much as the control gains. Single directions tell a slope that is
    nearly right, and tell it well. The factor is an average of both, by the number of units. It is smaller if
    the mean of g is uncertain: with ever more directions that would be the only error left.
    """
    xp, units = namespace(f), layout.n_units
    f, g = (a - xp.mean(a, axis=0, keepdims=True) for a in (f, g))
    means = unit_means(xp.stack([f, g, f * g, g * g], axis=-1), layout)
    mf, mg = (means[..., k] - xp.mean(means[..., k], axis=0, keepdims=True) for k in (0, 1))
    factor, spread = _slopes_elsewhere(mf, mg, mf * mg, mg * mg, 1.0)
    if units < layout.n_directions:
        size = xp.asarray(layout.unit_rows, dtype=f.dtype, device=device(f))
        size = xp.reshape(size, (-1, *(1,) * (f.ndim - 1)))
        sums = [size * means[..., k] for k in range(4)]
        by_rows, _ = _slopes_elsewhere(sums[0], sums[1], sums[2], sums[3], size)
        trust = max(units - _UNITS_FOR_SLOPES, 0) / units
        factor = trust * factor + (1 - trust) * by_rows
    # The variance of the mean of g over all units, from the others.
    own = spread / ((units - 2) * units)
    total = own + mean_variance
    varies = total > 0
    return factor * xp.where(varies, own, xp.zeros_like(own)) / xp.where(varies, total, xp.ones_like(total))


def _slopes_elsewhere(f: Array, g: Array, fg: Array, gg: Array, size: Array | float) -> tuple[Array, Array]:
    """For every unit, over all others: the slope of f on g, and the sum of squares of g about its mean.

    The arguments are sums over the `size` observations of each unit; f and g have mean 0 over all units.
    """
    xp = namespace(f)
    others = xp.sum(size + xp.zeros_like(g), axis=0, keepdims=True) - size
    product = xp.sum(fg, axis=0, keepdims=True) - fg - f * g / others
    square = xp.sum(gg, axis=0, keepdims=True) - gg - g * g / others
    # A small difference may be rounding alone.
    varies = square > 8 * xp.finfo(g.dtype).eps * xp.sum(gg, axis=0, keepdims=True)
    nothing = xp.zeros_like(square)
    slope = xp.where(varies, product, nothing) / xp.where(varies, square, xp.ones_like(square))
    return slope, xp.where(varies, square, nothing)
