"""Tables of laws on lines: those of a cube, and what tables say of shares of equal mass.

They stand beside the plain references in `orthoslice.clouds.quantiles`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from orthoslice.backend.array_types import Floats, Indices
from orthoslice.backend.kernels.numba._compile import compiled, summing

Room: TypeAlias = tuple[Floats, Floats, Floats, Floats]
"""Of :func:`room_for`."""

# Terms of a series are left out where the coefficients are below this from there on.
_NEGLIGIBLE = 1e-8


@summing
def _coefficients(unit: Floats, step: float, work: Floats, found: Floats) -> int:
    """The characteristic function of a sum of uniforms at multiples of `step`; returns how many were found.

    Sines go on from multiple to multiple by a rotation, for all coordinates at once: `work (6, dim)`.
    """
    sines, cosines, at_sines, at_cosines, inverses, angles = work
    dim = 0
    for j in range(unit.size):
        angle = abs(step * unit[j])
        if angle > 0.0:
            angles[dim], inverses[dim] = angle, 1.0 / angle
            sines[dim], cosines[dim] = np.sin(angle), np.cos(angle)
            at_sines[dim], at_cosines[dim] = sines[dim], cosines[dim]
            dim += 1
    for k in range(found.size):
        share, product = 1.0 / (k + 1), 1.0
        for j in range(dim):
            product *= at_sines[j] * inverses[j] * share
        found[k] = product
        for j in range(dim):
            rotated = at_sines[j] * cosines[j] + at_cosines[j] * sines[j]
            at_cosines[j] = at_cosines[j] * cosines[j] - at_sines[j] * sines[j]
            at_sines[j] = rotated
        if k % 8 == 7:
            most = 1.0
            for j in range(dim):
                most *= min(1.0, inverses[j] * share)
            if most < _NEGLIGIBLE:
                return k + 1
    return int(found.size)


@compiled
def _add_waves(coefficients: Floats, waves: Floats, sums: Floats) -> None:
    # Four at a time, so that sums are read and written less often; their number is a multiple of 8.
    for k in range(0, coefficients.size, 4):
        a, b, c, d = coefficients[k], coefficients[k + 1], coefficients[k + 2], coefficients[k + 3]
        for i in range(sums.size):
            sums[i] += a * waves[k, i] + b * waves[k + 1, i] + c * waves[k + 2, i] + d * waves[k + 3, i]


@compiled
def _square(unit: Floats, place: Floats, mass: Floats, excess: Floats) -> None:
    """Masses and mean excesses up to the centre for one or two coordinates: a trapezium, without error."""
    # Lines that the law shrinks to a point on have no direction, and any will do.
    long = np.abs(unit).max() or 1.0
    short = np.abs(unit).min() if unit.size == 2 else 0.0
    over, corners = 1.0 / (2.0 * long), 1.0 / (8.0 * long * short) if short > 0.0 else 0.0
    for i in range(place.size):
        along = place[i] + long
        if along >= short:
            mass[i] = along * over
            excess[i] = (along * along + short * short / 3.0) * (over / 2.0)
        elif along > -short:
            corner = along + short
            mass[i] = corner * corner * corners
            excess[i] = corner * corner * corner * (corners / 3.0)
        else:
            mass[i] = excess[i] = 0.0


@compiled
def cube_row(unit: Floats, period: float, waves: Floats, room: Room, mass: Floats, below: Floats) -> None:
    """One row of :func:`cube_rows`; `room` is :func:`room_for`."""
    work, coefficients, own, excess = room
    n_terms, half = (waves.shape[0] - 1) // 2, waves.shape[1] - 1
    place, sines, cosines = waves[0], waves[1 : n_terms + 1], waves[n_terms + 1 :]
    if unit.size <= 2:
        _square(unit, place, own, excess)
    else:
        count = _coefficients(unit, np.pi / period, work, coefficients)
        for i in range(half + 1):
            own[i] = 0.5 + place[i] / (2.0 * period)
            excess[i] = (place[i] + period) ** 2 / (4.0 * period)
        _add_waves(coefficients[:count], sines, own)
        _add_waves(coefficients[:count], cosines, excess)
    mass[0] = 0.0
    for i in range(half):
        # Rounding must not make masses fall.
        mass[i + 1] = mass[i] + max(own[i + 1] - own[i], 0.0)
    unit_mass = 0.5 / mass[half]
    for i in range(half + 1):
        mass[i] *= unit_mass
        below[i] = min(place[i] * mass[i] - excess[i], 0.0)
        # The other half is its mirror image.
        mass[2 * half - i], below[2 * half - i] = 1.0 - mass[i], below[i]


@compiled
def _cube_rows(unit: Floats, period: float, waves: Floats, room: Room, mass: Floats, below: Floats) -> None:
    for s in range(unit.shape[0]):
        cube_row(unit[s], period, waves, room, mass[s], below[s])


def room_for(dim: int, waves: Floats) -> Room:
    """What :func:`cube_row` works in."""
    n_terms, n_knots = (waves.shape[0] - 1) // 2, waves.shape[1]
    return np.empty((6, dim)), np.empty(n_terms), np.empty(n_knots), np.empty(n_knots)


def cube_rows(unit: Floats, period: float, waves: Floats) -> tuple[Floats, Floats]:
    """Masses and integrals of the quantile function at the knots of a cube's law, `(slices, knots)` each.

    `waves (1 + 2 terms, knots of a half)` are those of `orthoslice.clouds.quantiles`.
    """
    shape = unit.shape[0], 2 * waves.shape[1] - 1
    mass, below = np.empty(shape), np.empty(shape)
    _cube_rows(unit, period, waves, room_for(unit.shape[1], waves), mass, below)
    return mass, below


@compiled
def share_row(
    mass: Floats,
    place: Floats,
    below: Floats,
    variance: float,
    means: Floats,
    quantiles: Floats,
    moments: Floats,
    first: Indices,
) -> float:
    """One row of :func:`share_rows`; returns the residue."""
    n, last = means.size, mass.size - 2
    cell, next_mass = -1, mass[0]
    left, low, start, share_of, bend, square, cube = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    before, explained = 0.0, 0.0
    for i in range(n + 1):
        u = i / n
        if cell < last and next_mass <= u:
            while cell < last and mass[cell + 1] <= u:
                cell += 1
            left, low, start, next_mass = mass[cell], place[cell], below[cell], mass[cell + 1]
            width = next_mass - left
            share_of = 1.0 / width if width > 0.0 else 1.0
            bend = (place[cell + 1] - low) * width
            above = min(max(below[cell + 1] - start - low * width, 0.0), bend)
            square, cube = 3.0 * above - bend, bend - 2.0 * above
        away = u - left
        share = away * share_of
        moment = start + low * away + share * share * (square + share * cube) if 0 < i < n else 0.0
        if i:
            mean = n * (moment - before)
            means[i - 1] = mean
            explained += mean * mean
        before = moment
        if quantiles.size:
            slope = low + share * (2.0 * square + 3.0 * share * cube) * share_of
            quantiles[i] = min(max(slope, low), place[cell + 1])
            moments[i], first[i] = moment, cell
    return max(variance - explained / n, 0.0)


@compiled
def _share_rows(
    mass: Floats,
    place: Floats,
    below: Floats,
    variance: float,
    means: Floats,
    residue: Floats,
    quantiles: Floats,
    moments: Floats,
    first: Indices,
) -> None:
    for s in range(mass.shape[0]):
        # Where ends are not asked for there is one empty row of them.
        own = s if quantiles.size else 0
        residue[s] = share_row(
            mass[s], place[s], below[s], variance, means[s], quantiles[own], moments[own], first[own]
        )


def share_rows(
    mass: Floats, place: Floats, below: Floats, variance: float, n: int, with_ends: bool
) -> tuple[Floats, Floats, Floats, Floats, Indices]:
    """As `orthoslice.costs.laws.equal_shares`, of rows `(rows, knots)`."""
    rows = mass.shape[0]
    ends = (rows, n + 1) if with_ends else (1, 0)
    found = (
        np.empty((rows, n)),
        np.empty(rows),
        np.empty(ends),
        np.empty(ends),
        np.empty(ends, dtype=np.int64),
    )
    _share_rows(mass, np.ascontiguousarray(place), below, variance, *found)
    return found
