"""Integrals over the angles between which a pair of points is matched."""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import FloatArray
from orthoslice.exact._sweep import Lifetimes


def half_moments(half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Integrals of cos^2 and of sin^2 over [-half, half].

    The second is of third order in `half`; a series keeps its digits where the difference would not.

    Examples
    --------
    >>> [moment.round(6).tolist() for moment in half_moments(np.array([np.pi / 2, 1e-3]))]
    [[1.570796, 0.002], [1.570796, 0.0]]
    """
    whole = 2 * half
    wave = np.sin(whole)
    square = whole * whole
    bracket = 1 - square / 20 * (1 - square / 42 * (1 - square / 72 * (1 - square / 110)))
    series = whole * square / 6 * bracket
    excess = np.where(whole < 0.25, series, whole - wave)
    return (whole + wave) / 2, excess / 2


def midway(cell: Lifetimes) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Half the lifetime, and delta along and across the direction halfway through it.

    At an angle t from there the projected difference is along cos t + across sin t. Seen from the
    middle, odd parts cancel and what remains are sums of terms of one sign: no digits are lost even
    where a pair far apart meets for a moment in nearly equal projections.
    """
    centre = (cell.start + cell.stop) / 2
    cosine, sine = np.cos(centre), np.sin(centre)
    along = cosine * cell.delta[:, 0] + sine * cell.delta[:, 1]
    across = cosine * cell.delta[:, 1] - sine * cell.delta[:, 0]
    return cell.span / 2, along, across


def integrate_square(cell: Lifetimes) -> FloatArray:
    """Integral of <v, delta>^2 over each lifetime."""
    half, along, across = midway(cell)
    cosines, sines = half_moments(half)
    return along**2 * cosines + across**2 * sines


def integrate_absolute(cell: Lifetimes) -> FloatArray:
    """Integral of |<v, delta>| over each lifetime, through its zero if it has one."""
    half, along, across = midway(cell)
    along, across = np.abs(along), np.abs(across)
    crosses = along * np.cos(half) < across * np.sin(half)
    length = np.where(crosses, np.hypot(along, across) + across, 1.0)
    # hypot - across cos(half), written without the subtraction.
    bent = along**2 / length + 2 * across * np.sin(half / 2) ** 2
    return 2 * np.where(crosses, bent, along * np.sin(half))


def price_whole(cell: Lifetimes) -> FloatArray:
    """|delta| times the lifetime."""
    return cell.span * np.hypot(cell.delta[:, 0], cell.delta[:, 1])


def price_whole_square(cell: Lifetimes) -> FloatArray:
    """|delta|^2 times the lifetime."""
    return cell.span * (cell.delta[:, 0] ** 2 + cell.delta[:, 1] ** 2)
