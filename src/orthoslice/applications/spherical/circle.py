"""W_p of angles: exact, on a circle of any length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from orthoslice.backend.arrays import Array, Outcome, Wanted, differentiable, is_traced, namespace, to_numpy
from orthoslice.check.inputs import as_line
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_p, is_real
from orthoslice.clouds.cloud import Cloud, make_clouds
from orthoslice.clouds.conditioning import rescaled
from orthoslice.clouds.laws import Law
from orthoslice.clouds.masses import shared_masses
from orthoslice.costs.circle import check_circle_p, circle_slopes, turns_of, uniform_circle_slopes
from orthoslice.costs.spheres import refuse_weight_gradients
from orthoslice.estimates.result import root

UNIFORM = "uniform"
"""What to pass as `y` for the uniform law."""


@dataclass(frozen=True, eq=False, repr=False)
class CircularTransport:
    """W_p on a circle, without error but that of rounding.

    Attributes
    ----------
    value, distance
        W_p^p and W_p in the unit of the angles: scalars of the input's library, or batches; torch and JAX can
        differentiate both by the angles.
    p, period
        As they were asked for.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> angles = np.linspace(0, 6, 20)
    >>> found = osl.circular_wasserstein(angles, angles + 0.1, period=2 * np.pi)
    >>> round(float(found.distance), 6)
    0.1
    """

    p: float
    period: float
    _turns: Array
    """W_p^p on a circle of length 1."""

    @property
    def value(self) -> Array:
        return self._in_units(self._turns, self.p)

    @property
    def distance(self) -> Array:
        return self._in_units(root(self._turns, self.p), 1)

    def _in_units(self, turns: Array, power: float) -> Array:
        # The power of the period may leave the floating range where the product does not.
        digits, exponent = math.frexp(self.period)
        return rescaled(turns * (2 * digits) ** power, 2.0 ** (exponent - 1), power)

    def __repr__(self) -> str:
        if is_traced(self._turns):
            told = "traced"
        elif self._turns.ndim:
            told = f"a batch of shape {tuple(self._turns.shape)}"
        else:
            told = f"{float(to_numpy(self.distance)):.6g}"
        return f"CircularTransport(W_{self.p:g} = {told} on a circle of length {self.period:.6g})"


@answers_other_names
def circular_wasserstein(
    x: Any, y: Any, p: float = 2, *, period: float, x_weights: Any = None, y_weights: Any = None
) -> CircularTransport:
    """The exact Wasserstein distance of angles, hours, months or bearings on a circle.

    The cost of a pair is the p-th power of the shorter way round. Sorting is all it takes: both clouds are cut
    open and matched by order, and the best place to cut is found exactly, with weights and unequal sizes too.

    Parameters
    ----------
    x, y
        Angles `(n,)` and `(m,)`, or `(..., n)` for many circles at once; any real numbers, which count modulo
        `period`. Of unit vectors of the plane pass ``np.arctan2(v[:, 1], v[:, 0])``. As `y`, ``"uniform"`` is
        the uniform law on the circle.
    p
        The power, at least 1; at most 19 (5 in JAX without 64 bits), where powers of small angles underflow.
    period
        The length of the circle in the unit of the angles: 1 for turns (POT's unit), 2 pi for radians, 360 for
        degrees, 24 for hours. There is no default, because the wrong one gives a plausible wrong answer.
    x_weights, y_weights
        Weights `(..., n)` and `(..., m)` that sum to 1; uniform when None. They have no gradient here.

    Returns
    -------
    CircularTransport
        `value` (W_p^p) and `distance` (W_p), in the unit of the angles.

    Examples
    --------
    >>> import orthoslice as osl
    >>> osl.circular_wasserstein([23.5], [1.0], period=24)
    CircularTransport(W_2 = 1.5 on a circle of length 24)

    Four points spread evenly are as near to the uniform law as four points can be:

    >>> found = osl.circular_wasserstein([0, 90, 180, 270], "uniform", p=1, period=360)
    >>> round(float(found.distance), 9)
    22.5
    """
    p = check_p(p)
    if not is_real(period) or not 0 < period < math.inf:
        raise ValueError(f"`period` must be a positive real number, the length of the circle; got {period!r}.")
    refuse_law("y", y)
    is_uniform = isinstance(y, str)
    if is_uniform:
        if y != UNIFORM:
            raise ValueError(f'The only law that has a name here is "{UNIFORM}"; got {y!r}.')
        if y_weights is not None:
            raise ValueError("`y_weights` must be None for the uniform law.")
        y = x
    cloud_x, cloud_y = make_clouds(as_line("x", x), as_line("y", y), x_weights, y_weights)
    check_circle_p(p, cloud_x.points)
    inputs = (
        cloud_x.points[..., 0],
        None if is_uniform else cloud_y.points[..., 0],
        cloud_x.weights,
        cloud_y.weights,
    )
    request = _Request(p, float(period))
    turns, _ = differentiable(_compute, request, inputs, (), (1, 1, 1, 1), compilable=True)
    return CircularTransport(p, float(period), turns)


def refuse_law(name: str, given: object) -> None:
    """Raise for a law of ``osl.laws``, which is known on lines and not on circles."""
    if isinstance(given, Law):
        raise TypeError(
            f'`{name}` cannot be a law of `osl.laws` here: for the uniform law pass "{UNIFORM}", for others '
            f"points, `{name}.sample(1000)`; got {given!r}."
        )


class _Request(NamedTuple):
    p: float
    period: float


def _compute(request: _Request, inputs: tuple[Array | None, ...], _: Any, wanted: Wanted) -> Outcome:
    """W_p^p in turns, and its gradients by angles in their own unit."""
    x, y, x_weights, y_weights = inputs
    assert x is not None
    refuse_weight_gradients(wanted)
    xp, p = namespace(x), request.p
    ax = turns_of(x, request.period)[None, ...]
    cloud = Cloud(x[..., None], x_weights)
    if y is None:
        scores, slopes = uniform_circle_slopes(ax, cloud, p, 1.0, wanted[0])
    else:
        ay = turns_of(y, request.period)[None, ...]
        masses = shared_masses(cloud, Cloud(y[..., None], y_weights))
        scores, slopes = circle_slopes(ax, ay, masses, p, 1.0, wanted[:2])
    gradients = tuple(
        xp.astype(slopes[k][0, ...] / request.period, x.dtype) if wanted[k] else None for k in range(2)
    )
    return Outcome(xp.astype(scores[0, ...], x.dtype), (), (*gradients, None, None))
