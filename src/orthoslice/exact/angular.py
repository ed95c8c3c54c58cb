"""The score of a direction as an exact function of its angle, for clouds in the plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orthoslice.backend.array_types import FloatArray
from orthoslice.check.names import answers_other_names
from orthoslice.directions.auto import Method
from orthoslice.exact._inputs import PlaneProblem, check_plane
from orthoslice.exact._integrals import half_moments, midway
from orthoslice.exact._sweep import Lifetimes, lifetimes

ComplexArray = NDArray[np.complex128]

# About 0.3 kB each while the pieces are put together, so 1.3 GB: two clouds of 2,048 points.
MAX_CRITICAL_ANGLES_KEPT = 2**22


@dataclass(frozen=True, eq=False, kw_only=True)
class AngularScore:
    r"""A function of period pi that is a trigonometric polynomial of one frequency on every piece.

    On piece k, between ``breaks[k]`` and ``breaks[k + 1]``, it is
    ``constant[k] + cosine[k] * cos(frequency * phi) + sine[k] * sin(frequency * phi)``. That is what the
    score of the direction (cos phi, sin phi) looks like in the plane: frequency 1 for SW_1, 2 for
    SW_2^2, and constant pieces for PW.

    Attributes
    ----------
    breaks : array, shape (pieces + 1,)
        Ascending angles from 0 to pi.
    constant, cosine, sine : arrays, shape (pieces,)
        Coefficients.
    frequency : int
        1 or 2.

    Examples
    --------
    One point at the origin against one at (3, 4) scores ``|3 cos phi + 4 sin phi|``.

    >>> score = angular_score([[3, 4]], [[0, 0]], 1)
    >>> score(np.array([0.0, np.pi / 2])).round(12).tolist()
    [3.0, 4.0]
    >>> round(score.mean() * np.pi, 12)
    10.0
    """

    breaks: FloatArray
    constant: FloatArray
    cosine: FloatArray
    sine: FloatArray
    frequency: int

    def __call__(self, angles: ArrayLike) -> FloatArray:
        """The score at any angles, in an array of the same shape."""
        constant, along, _ = self._around(np.mod(np.asarray(angles, dtype=np.float64), np.pi))
        return constant + along

    def mean(self) -> float:
        """Mean over all angles: SW_p^p or PW_p^p."""
        half = np.diff(self.breaks) / 2
        constant, along, _ = self._around(self.breaks[:-1] + half)
        reach = np.sin(self.frequency * half) / self.frequency
        return float(np.sum(constant * half + along * reach)) * 2 / np.pi

    def variance(self) -> float:
        """Variance of the score of one uniform direction."""
        return self._covariance(self.breaks, 0.0)

    def quarter_turn_covariance(self) -> float:
        """Covariance of the scores of two orthogonal directions, uniform together."""
        quarter = np.pi / 2
        # The product has period pi / 2, so that half of the range says it all.
        inside = self.breaks[self.breaks < quarter]
        turned = self.breaks[self.breaks > quarter] - quarter
        breaks = np.unique(np.concatenate([inside, turned, [0.0, quarter]]))
        return self._covariance(breaks, quarter)

    def fourier(self, degrees: ArrayLike) -> ComplexArray:
        """Mean of score(phi) exp(-i degree phi) for even degrees, in an array of the same shape."""
        degree = np.asarray(degrees, dtype=np.float64)
        half = np.diff(self.breaks) / 2
        centre = self.breaks[:-1] + half
        wave = (self.cosine - 1j * self.sine) / 2
        parts = ((0, self.constant + 0j), (self.frequency, wave), (-self.frequency, wave.conj()))
        total = np.zeros(degree.shape, dtype=np.complex128)
        for frequency, coefficient in parts:
            for index in np.ndindex(degree.shape):
                beat = frequency - degree[index]
                reach = 2 * half * np.sinc(beat * half / np.pi)
                total[index] += np.sum(coefficient * reach * np.exp(1j * beat * centre))
        return total / np.pi

    def _around(self, centre: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Coefficients of 1, cos(frequency t) and sin(frequency t) in the angle t from each centre."""
        piece = np.clip(np.searchsorted(self.breaks, centre, side="right") - 1, 0, self.constant.size - 1)
        cosine, sine = np.cos(self.frequency * centre), np.sin(self.frequency * centre)
        along = self.cosine[piece] * cosine + self.sine[piece] * sine
        across = self.sine[piece] * cosine - self.cosine[piece] * sine
        return self.constant[piece], along, across

    def _covariance(self, breaks: FloatArray, turn: float) -> float:
        """Mean over the range of `breaks` of the product of centred scores at phi and phi + turn."""
        half = np.diff(breaks) / 2
        centre = breaks[:-1] + half
        mean = self.mean()
        constant, along, across = self._around(centre)
        constant_turned, along_turned, across_turned = self._around(centre + turn)
        constant, constant_turned = constant - mean, constant_turned - mean
        reach = np.sin(self.frequency * half) / self.frequency
        cosines, sines = half_moments(self.frequency * half)
        integral = 2 * half * constant * constant_turned
        integral += 2 * reach * (constant * along_turned + constant_turned * along)
        integral += (along * along_turned * cosines + across * across_turned * sines) / self.frequency
        return float(np.sum(integral)) / float(breaks[-1] - breaks[0])


class _Waves(NamedTuple):
    """What a batch of cells adds to the coefficients between its start and stop angles."""

    start: FloatArray
    stop: FloatArray
    coefficients: FloatArray  # (3, cells) constant, cosine, sine


@answers_other_names
def angular_score(
    x: Any,
    y: Any,
    p: float,
    *,
    method: Method = "sliced",
    x_weights: Any = None,
    y_weights: Any = None,
) -> AngularScore:
    """The score of every direction in the plane, as an exact piecewise function of its angle.

    Parameters
    ----------
    x, y
        Clouds `(n, 2)` and `(m, 2)` of any supported library.
    p
        The power, 1 or 2.
    method
        Whether couplings are priced on the line, ``"sliced"``, or in the plane, ``"projected"``.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.

    Returns
    -------
    AngularScore
        Of O(n^2 + m^2) pieces. Past 2**22 critical angles (two clouds of 2,048 points) a ValueError
        is raised: building takes about 0.3 kB a critical angle.

    Examples
    --------
    >>> angular_score([[0, 0], [1, 1]], [[0, 1], [1, 0]], 2, method="projected").mean()
    1.0
    """
    problem = check_plane("angular_score", x, y, p, x_weights, y_weights)
    shrunken = shrunken_score(problem, method)
    with np.errstate(over="ignore"):
        parts = (shrunken.constant, shrunken.cosine, shrunken.sine)
        grown = [np.ldexp(part, problem.p * problem.exponent) for part in parts]
    if not np.isfinite(grown).all():
        raise ValueError(
            f"`x` and `y` must be small enough for their p-th power to fit in float64; "
            f"got coordinates up to 2**{problem.exponent} and p = {problem.p}."
        )
    return replace(shrunken, constant=grown[0], cosine=grown[1], sine=grown[2])


def shrunken_score(problem: PlaneProblem, method: Method) -> AngularScore:
    """The angular score of clouds as they were scaled by :func:`check_plane`."""
    if method not in ("sliced", "projected"):
        raise ValueError(f'`method` must be "sliced" or "projected"; got {method!r}.')
    makers: dict[tuple[str, int], Callable[[Lifetimes], Iterator[_Waves]]] = {
        ("sliced", 1): _absolute_waves,
        ("sliced", 2): _square_waves,
        ("projected", 1): _whole_waves,
        ("projected", 2): _whole_square_waves,
    }
    make = makers[method, problem.p]
    cells = lifetimes(problem, MAX_CRITICAL_ANGLES_KEPT)
    # Cells with start == stop have no piece between breaks.
    lasting = (Lifetimes(*(part[cell.stop > cell.start] for part in cell)) for cell in cells)
    batches = [wave for cell in lasting for wave in make(cell)]
    angles = np.concatenate([batch.start for batch in batches] + [batch.stop for batch in batches])
    coefficients = np.concatenate([batch.coefficients for batch in batches], axis=1)
    del batches
    breaks, index = np.unique(angles, return_inverse=True)
    # A wave is added where it starts and taken away where it stops.
    steps = (np.bincount(index, np.concatenate([row, -row])) for row in coefficients)
    constant, cosine, sine = (np.cumsum(step, dtype=np.float64)[:-1] for step in steps)
    return AngularScore(breaks=breaks, constant=constant, cosine=cosine, sine=sine, frequency=problem.p)


def _square_waves(cell: Lifetimes) -> Iterator[_Waves]:
    """<v, delta>^2 = |delta|^2 / 2 + (a^2 - b^2) / 2 cos 2 phi + a b sin 2 phi for delta = (a, b)."""
    a, b = cell.delta.T
    waves = np.stack([(a * a + b * b) / 2, (a - b) * (a + b) / 2, a * b])
    yield _Waves(cell.start, cell.stop, cell.mass * waves)


def _absolute_waves(cell: Lifetimes) -> Iterator[_Waves]:
    """|<v, delta>| is a cos phi + b sin phi up to its zero, and the opposite beyond."""
    half, along, across = midway(cell)
    crosses = np.abs(along) * np.cos(half) < np.abs(across) * np.sin(half)
    waves = np.zeros((3, half.size))
    waves[1:] = cell.mass * cell.delta.T
    yield _Waves(cell.start[~crosses], cell.stop[~crosses], (np.sign(along) * waves)[:, ~crosses])
    start, stop = cell.start[crosses], cell.stop[crosses]
    zero = np.clip((start + stop) / 2 - np.arctan(along[crosses] / across[crosses]), start, stop)
    rising = (np.sign(across) * waves)[:, crosses]
    yield _Waves(start, zero, -rising)
    yield _Waves(zero, stop, rising)


def _whole_waves(cell: Lifetimes) -> Iterator[_Waves]:
    """|delta| at every angle."""
    length = cell.mass * np.hypot(cell.delta[:, 0], cell.delta[:, 1])
    yield _Waves(cell.start, cell.stop, length * np.array([[1.0], [0.0], [0.0]]))


def _whole_square_waves(cell: Lifetimes) -> Iterator[_Waves]:
    """|delta|^2 at every angle."""
    square = cell.mass * (cell.delta[:, 0] ** 2 + cell.delta[:, 1] ** 2)
    yield _Waves(cell.start, cell.stop, square * np.array([[1.0], [0.0], [0.0]]))
