"""Laws on a line by their quantile functions, kept at knots.

With Q the quantile function and u a share of the mass, G(u) is the integral of Q from 0 to u: a convex
function whose slope is Q. Its conjugate is psi(z) = E max(z - T, 0), whose slope is the distribution function
F. So G and its slope at knots tell all that costs need: between knots both functions are cubic polynomials
that have the right values and slopes at the ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from orthoslice.backend.arrays import Array, HostArray, Operation, PlainWork, constant, namespace

# Knots on either side of the median, and nodes of Gauss and Legendre between two of them. The integrals are
# then off by 1e-13 of the spread for the laws of the library.
_HALF_KNOTS, _NODES = 2048, 8


class Table(NamedTuple):
    """A law on a line at knots `(knots,)`, or one law a direction, `(slices, ..., knots)`."""

    mass: Array
    """How much of the law lies below a knot, from 0 to 1."""
    place: Array
    """Where the knot lies."""
    below: Array
    """E[T; T < place]: the integral of the quantile function up to `mass`."""


def partial_moment(table: Table, u: Array) -> Array:
    """The integral of the quantile function from 0 to `u`."""
    return _interpolated(table.mass, table.below, table.place, u)[0]


def quantile(table: Table, u: Array) -> Array:
    """The quantile function at `u`."""
    return _interpolated(table.mass, table.below, table.place, u)[1]


def mean_excess(table: Table, z: Array) -> tuple[Array, Array]:
    """E max(z - T, 0) and the probability of T < z."""
    height = table.place * table.mass - table.below
    xp, (value, slope) = namespace(z), _interpolated(table.place, height, table.mass, z)
    # Beyond the outermost knots it is certain whether T < z.
    places = _beside(table.place, z)
    first, last = places[..., :1], places[..., -1:]
    beyond = xp.maximum(z - last, xp.zeros_like(z))
    sure = xp.where(z < last, xp.zeros_like(slope), xp.ones_like(slope))
    return value + beyond, xp.where((first < z) & (z < last), slope, sure)


def _interpolated(knots: Array, values: Array, slopes: Array, at: Array) -> tuple[Array, Array]:
    """A convex function with these values and increasing slopes at knots, and its slope, between them."""
    xp = namespace(at)
    knots, values, slopes = (_beside(a, at) for a in (knots, values, slopes))
    at = xp.minimum(xp.maximum(at, knots[..., :1]), knots[..., -1:])
    cell = cell_of(knots, at)
    left, right = (_taken(knots, cell + k) for k in (0, 1))
    low, high = (_taken(slopes, cell + k) for k in (0, 1))
    start = _taken(values, cell)
    width = right - left
    safe = xp.where(width > 0, width, xp.ones_like(width))
    share = (at - left) / safe
    bend = (high - low) * width
    above = _taken(values, cell + 1) - start - low * width
    # In (0, bend): what rounding leaves of narrow cells may lie outside.
    above = xp.minimum(xp.maximum(above, xp.zeros_like(above)), bend)
    square, cube = 3 * above - bend, bend - 2 * above
    value = start + low * (at - left) + share * share * (square + share * cube)
    slope = low + share * (2 * square + 3 * share * cube) / safe
    return value, xp.minimum(xp.maximum(slope, low), high)


def _beside(table: Array, at: Array) -> Array:
    """A table of every direction, with the axes of `at`; one for all directions as it is."""
    if table.ndim == 1:
        return table
    xp = namespace(table)
    lead = (1,) * (at.ndim - table.ndim)
    shape = (table.shape[0], *lead, *table.shape[1:])
    return xp.broadcast_to(xp.reshape(table, shape), (*at.shape[:-1], table.shape[-1]))


def _taken(table: Array, index: Array) -> Array:
    xp = namespace(table)
    if table.ndim == 1:
        return xp.reshape(xp.take(table, xp.reshape(index, (-1,)), axis=0), index.shape)
    return xp.take_along_axis(table, index, axis=-1)


def cell_of(knots: Array, at: Array) -> Array:
    """The last cell that begins at or before `at`."""
    xp, last = namespace(at), knots.shape[-1] - 2
    if knots.ndim == 1:
        index = xp.searchsorted(knots, xp.reshape(at, (-1,)), side="right")
        return xp.clip(xp.reshape(index, at.shape) - 1, 0, last)
    index = xp.zeros(at.shape, dtype=xp.int64 if at.dtype == xp.float64 else xp.int32)
    step = 1 << last.bit_length()
    while step := step >> 1:
        ahead = xp.clip(index + step, 0, last)
        index = xp.where(_taken(knots, ahead) <= at, ahead, index)
    return index


@dataclass(frozen=True, eq=False)
class Profile:
    """A symmetric law on a line, from its quantile function; in host memory."""

    quantile: Callable[[HostArray], HostArray]
    """Of shares of the mass from 0 to 1/2, both excluded."""

    @functools.cached_property
    def table(self) -> Table:
        ends = _drawn_out(np.linspace(0, 1, _HALF_KNOTS + 1))
        place = np.concatenate([self._outermost[:1], self._at(ends[1:])])
        below = np.concatenate([[0.0], np.cumsum(self._integrals[0])])
        # The other half is its mirror image.
        return Table(
            np.concatenate([ends, 1 - ends[-2::-1]]),
            np.concatenate([place, -place[-2::-1]]),
            np.concatenate([below, below[-2::-1]]),
        )

    @functools.cached_property
    def spread(self) -> float:
        """E T^2; infinite if there is none."""
        return 2 * float(self._integrals[1].sum())

    @functools.cached_property
    def tail(self) -> float:
        """The power of 1 / u that quantiles grow as towards level 0: there is no moment of order 1 / tail."""
        _, far, near = np.abs(self._outermost)
        return max(math.log(far / near) / -math.log(_OUTERMOST[2]), 0.0) if near > 0 else 0.0

    @functools.cached_property
    def _outermost(self) -> HostArray:
        """The quantiles of some shares of the outermost cell, `(3,)`."""
        return self._at(_END / np.array(_OUTERMOST))

    @functools.cached_property
    def _integrals(self) -> HostArray:
        """Integrals of Q and of Q^2 over the cells of the lower half, `(2, cells)`."""
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        v = (np.arange(1, _HALF_KNOTS)[:, None] + (1 + nodes) / 2) / _HALF_KNOTS
        found = self._at(_drawn_out(v))
        rule = weights / 2 * _stretch(v) / _HALF_KNOTS
        end = float(self._outermost[1])
        sums = []
        for k in (1, 2):
            # In the outermost cell quantiles are taken for a power of u.
            left = 1 - k * self.tail
            first = _END * end**k / left if left > 0 else math.copysign(math.inf, end**k)
            sums.append(np.concatenate([[first], (rule * found**k).sum(axis=1)]))
        return np.stack(sums)

    def _at(self, u: HostArray) -> HostArray:
        inner = np.minimum(u, np.nextafter(0.5, 0))
        found: HostArray = np.where(u < 0.5, self.quantile(inner), 0.0)
        return found


def _drawn_out(v: HostArray) -> HostArray:
    """Shares of the mass up to 1/2 for v from 0 to 1, much closer to each other near 0."""
    shares: HostArray = v**4 * (4 - v * v) / 6
    return shares


# How much of the law is in the outermost cell; and divided by these numbers, where its quantiles are looked at.
# The first stands for the end of the support, which may be infinite, and the others tell how they grow.
_END, _OUTERMOST = float(_drawn_out(np.array(1 / _HALF_KNOTS))), (2.0**6, 1.0, 2.0**-10)


def _stretch(v: HostArray) -> HostArray:
    """The derivative of :func:`_drawn_out`."""
    slopes: HostArray = v**3 * (16 - 6 * v * v) / 6
    return slopes


# The law of a cube on lines: knots on either side of the centre, and terms of its Fourier series. The series is
# on a circle that is as long as the support, or as 17 standard deviations.
_CUBE_KNOTS, TERMS, _LONGEST = 128, 256, 4.9


cube_table: Operation[Table] = Operation("cube_table")
"""cube_table(unit (slices, dim)) -> the laws of sums of uniforms on [-unit_k, unit_k], for unit rows.

Coefficients of the series are the characteristic function, a product over coordinates, and have no error. What
is left out falls with the number of terms to the power of 2 at worst, where one coordinate has nearly all the
length: integrals of quantiles are off by 2e-5 there, and by 1e-7 on most directions.
"""


def _cube_refusal(unit: Array) -> str | None:
    if isinstance(unit, np.ndarray) and unit.dtype == np.float64:
        return None
    return "it takes NumPy arrays of float64"


@cube_table.implementation("numba", _cube_refusal, plain_work=lambda unit: PlainWork.of(unit, times=TERMS))
def _cube_table_numba(unit: HostArray) -> Table:
    from orthoslice.backend.kernels.numba.law_tables import cube_rows

    period, waves, place = cube_series(unit.shape[1])
    mass, below = cube_rows(unit, period, waves)
    return Table(mass, np.broadcast_to(place, mass.shape), below)


@functools.cache
def cube_series(dim: int) -> tuple[float, HostArray, HostArray]:
    """How long the circle of the series is, what its terms add at knots up to the centre, and all knots."""
    period = _period(dim)
    waves = _waves(period)
    return period, waves, np.concatenate([waves[0], -waves[0, -2::-1]])


def _period(dim: int) -> float:
    return float(min(dim**0.5, _LONGEST))


@cube_table.implementation("reference", lambda *_: None)
def _cube_table(unit: Array) -> Table:
    xp, period = namespace(unit), _period(unit.shape[1])
    frequency = constant(_frequencies, (period,), unit)
    angle = unit[:, None, :] * frequency[:, None]
    safe = xp.where(angle == 0, xp.ones_like(angle), angle)
    coefficient = xp.prod(xp.where(angle == 0, xp.ones_like(angle), xp.sin(safe) / safe), axis=-1)
    waves = constant(_waves, (period,), unit)
    place, sines, cosines = waves[0, :], waves[1 : TERMS + 1, :], waves[TERMS + 1 :, :]
    mass = 0.5 + place / (2 * period) + coefficient @ sines
    excess = (place + period) ** 2 / (4 * period) + coefficient @ cosines
    # Rounding must not make masses fall.
    rise = xp.maximum(xp.diff(mass, axis=-1), xp.zeros_like(mass[:, 1:]))
    mass = xp.cumulative_sum(rise, axis=-1, include_initial=True)
    mass = mass * (0.5 / mass[:, -1:])
    below = xp.minimum(place * mass - excess, xp.zeros_like(mass))
    halves = [xp.flip(a[:, :-1], axis=-1) for a in (mass, below)]
    both = xp.concat([place, -xp.flip(place[:-1])])
    return Table(
        xp.concat([mass, 1 - halves[0]], axis=-1),
        xp.broadcast_to(both, (unit.shape[0], both.shape[0])),
        xp.concat([below, halves[1]], axis=-1),
    )


@functools.cache
def _frequencies(period: float) -> HostArray:
    return np.pi / period * np.arange(1, TERMS + 1)


@functools.cache
def _waves(period: float) -> HostArray:
    """Knots up to the centre, and what a coefficient adds there to the mass and to mean excesses."""
    frequency, place = _frequencies(period)[:, None], np.linspace(-period, 0, _CUBE_KNOTS + 1)
    sines = np.sin(frequency * place) / (frequency * period)
    ends = (-1.0) ** np.arange(1, TERMS + 1)[:, None]
    cosines = (ends - np.cos(frequency * place)) / (frequency**2 * period)
    return np.concatenate([place[None, :], sines, cosines])
