"""Blocks of orthonormal directions, drawn in one compiled call: small blocks would be lost in NumPy's overhead.

The plain references are `orthoslice.backend.arrays.normals` and `orthonormal_rows`, whose triangular factor has
a positive diagonal, so that both make the same rows up to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels.numba._compile import compiled, summing
from orthoslice.backend.kernels.numba.random import third_key, threefry

_LOG_2 = math.log(2.0)

# The bits of sqrt(1/2), and how many of a float's are its fraction; an eighth of 2^32, a quarter's bits.
_ROOT_HALF, _FRACTION_BITS = np.int64(0x3FE6A09E667F3BCD), np.int64(52)
_EIGHTH, _QUARTER_BITS, _ONE, _TWO = np.int64(1 << 29), np.int64(30), np.int64(1), np.int64(2)

# A row that is half as long after its parts along others were taken off, or less, is rounded too much.
_LITTLE = 1 / 4


@compiled
def _draw_words(high: np.uint32, low: np.uint32, row: int, radii: Words, angles: Words) -> None:
    third = third_key(high, low)
    for k in range(radii.size):
        radii[k], angles[k] = threefry(high, low, third, np.uint32(row), np.uint32(k))


@compiled
def _split(words: Words, bits: Indices, powers: Floats) -> None:
    """Bits of (word + 1/2) / 2^32 over the power of two that leaves sqrt(1/2) to sqrt(2); and that power."""
    numbers = bits.view(np.float64)
    for k in range(words.size):
        numbers[k] = (np.float64(words[k]) + 0.5) * 2.0**-32
    for k in range(words.size):
        power = (bits[k] - _ROOT_HALF) >> _FRACTION_BITS
        bits[k] -= power << _FRACTION_BITS
        powers[k] = power


@compiled
def _lengths(numbers: Floats, powers: Floats, out: Floats) -> None:
    """sqrt(-2 log(number 2^power)); the logarithm is 2 atanh(s), and what its series leaves out is rounding."""
    for k in range(numbers.size):
        s = (numbers[k] - 1.0) / (numbers[k] + 1.0)
        t = s * s
        series = 1 / 15 + t * (1 / 17 + t * (1 / 19 + t * (1 / 21 + t * (1 / 23))))
        series = 1 / 7 + t * (1 / 9 + t * (1 / 11 + t * (1 / 13 + t * series)))
        series = 1 / 3 + t * (1 / 5 + t * series)
        out[k] = math.sqrt(-2.0 * (powers[k] * _LOG_2 + 2.0 * (s + s * t * series)))


@compiled
def _turn(lengths: Floats, words: Words, out: Floats) -> None:
    """Both coordinates of points that far from 0, at an angle of (word + 1/2) / 2^32 of a whole turn."""
    for k in range(words.size):
        word = np.int64(words[k])
        quarter = (word + _EIGHTH) >> _QUARTER_BITS
        # At most an eighth of a turn is left, for which the series of sine and cosine are short.
        angle = (np.float64(word - (quarter << _QUARTER_BITS)) + 0.5) * (2.0**-31 * math.pi)
        t = angle * angle
        sine = 1 / 362880 + t * (-1 / 39916800 + t * (1 / 6227020800 + t * (-1 / 1307674368000)))
        sine = angle + angle * t * (-1 / 6 + t * (1 / 120 + t * (-1 / 5040 + t * sine)))
        cosine = -1 / 3628800 + t * (1 / 479001600 + t * (-1 / 87178291200 + t * (1 / 20922789888000)))
        cosine = 1.0 + t * (-1 / 2 + t * (1 / 24 + t * (-1 / 720 + t * (1 / 40320 + t * cosine))))
        across, along = (cosine, sine) if quarter & _ONE else (sine, cosine)
        out[2 * k] = lengths[k] * (-along if (quarter + _ONE) & _TWO else along)
        out[2 * k + 1] = lengths[k] * (-across if quarter & _TWO else across)


@compiled
def _row_of_normals(dim: int) -> tuple[Words, Words, Indices, Floats, Floats, Floats]:
    """What :func:`_fill_normals` works in."""
    pairs = (dim + 1) // 2
    radii, angles = np.empty(pairs, dtype=np.uint32), np.empty(pairs, dtype=np.uint32)
    bits, powers = np.empty(pairs, dtype=np.int64), np.empty(pairs)
    return radii, angles, bits, powers, np.empty(pairs), np.empty(2 * pairs)


@compiled
def _fill_normals(
    high: np.uint32, low: np.uint32, rows: Floats, room: tuple[Words, Words, Indices, Floats, Floats, Floats]
) -> None:
    """Standard normals `rows (rows, dim)` of one key, by Box-Muller: two words for two numbers.

    Logarithm, sine and cosine are written out: calls of them would not be vector code.
    """
    radii, angles, bits, powers, lengths, out = room
    for row in range(rows.shape[0]):
        _draw_words(high, low, row, radii, angles)
        _split(radii, bits, powers)
        _lengths(bits.view(np.float64), powers, lengths)
        _turn(lengths, angles, out)
        # `rows[row] = ...` would take seconds to compile: it could say that lengths differ.
        for k in range(rows.shape[1]):
            rows[row, k] = out[k]


@summing
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@summing
def _dots(row: Floats, a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[float, float, float, float]:
    in_a = in_b = in_c = in_d = 0.0
    for k in range(row.size):
        in_a += row[k] * a[k]
        in_b += row[k] * b[k]
        in_c += row[k] * c[k]
        in_d += row[k] * d[k]
    return in_a, in_b, in_c, in_d


@compiled
def _clean(row: Floats, rows: Floats) -> None:
    """Take off `row` its parts along orthonormal `rows`, four at a time: numbers are then read less often."""
    whole = rows.shape[0] - rows.shape[0] % 4
    for j in range(0, whole, 4):
        a, b, c, d = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        in_a, in_b, in_c, in_d = _dots(row, a, b, c, d)
        for k in range(row.size):
            row[k] -= (in_a * a[k] + in_b * b[k]) + (in_c * c[k] + in_d * d[k])
    for j in range(whole, rows.shape[0]):
        part = _dot(row, rows[j])
        for k in range(row.size):
            row[k] -= part * rows[j, k]


@compiled
def _orthonormalise(rows: Floats) -> None:
    """Gram-Schmidt on the rows in turn. A row of which little is left is cleaned again, of what was rounded."""
    for i in range(rows.shape[0]):
        row, square = rows[i], _dot(rows[i], rows[i])
        _clean(row, rows[:i])
        left = _dot(row, row)
        while left < _LITTLE * square:
            square = left
            _clean(row, rows[:i])
            left = _dot(row, row)
        length = math.sqrt(left)
        for k in range(row.size):
            row[k] /= length


@compiled
def _step_key(k0: np.uint32, k1: np.uint32, step: int, steps: int) -> tuple[np.uint32, np.uint32]:
    """The key of a step of a training run; without one, which is a negative number, the key itself."""
    if step >= 0:
        k0, k1 = threefry(k0, k1, third_key(k0, k1), np.uint32(step), np.uint32(steps))
    return k0, k1


@compiled
def _draw(
    high: Words, low: Words, step: int, steps: int, purpose: int, first: int, size: int, theta: Floats
) -> None:
    """Blocks of `size` rows into `theta (slices, dim)`, whose last block may be cut short."""
    k0, k1 = _step_key(high[0], low[0], step, steps)
    third = third_key(k0, k1)
    block, room = np.empty((size, theta.shape[1])), _row_of_normals(theta.shape[1])
    for start in range(0, theta.shape[0], size):
        some = block[: min(size, theta.shape[0] - start)]
        own = threefry(k0, k1, third, np.uint32(first + start // size), np.uint32(purpose))
        _fill_normals(own[0], own[1], some, room)
        _orthonormalise(some)
        for row in range(some.shape[0]):
            for k in range(some.shape[1]):
                theta[start + row, k] = some[row, k]


def draw_rows(
    high: Indices,
    low: Indices,
    step: int | None,
    steps: int,
    purpose: int,
    first: int,
    size: int,
    theta: Floats,
) -> None:
    """Fill `theta (slices, dim)` with blocks of `size` orthonormal rows, from block `first` of the key on.

    `high` and `low` are the key, int32 of shape `(1,)`. It is folded with `step` and `steps` before, unless the
    step is None, and for each block with its number and `purpose`. Blocks of one row are independent.
    """
    words = high.view(np.uint32), low.view(np.uint32)
    _draw(*words, -1 if step is None else step & 0xFFFFFFFF, steps, purpose, first, size, theta)


@compiled
def _draw_factors(
    high: Words, low: Words, step: int, steps: int, purpose: int, first: int, paired: bool, factors: Floats
) -> None:
    """Cosines and sines of angles side by side, or signs, into `factors (blocks, rounds, dim)`."""
    k0, k1 = _step_key(high[0], low[0], step, steps)
    third = third_key(k0, k1)
    count = factors.shape[2] // 2 if paired else factors.shape[2]
    radii, angles = np.empty(count, dtype=np.uint32), np.empty(count, dtype=np.uint32)
    lengths, out = np.ones(count), np.empty(2 * count)
    for block in range(factors.shape[0]):
        own = threefry(k0, k1, third, np.uint32(first + block), np.uint32(purpose))
        for turn in range(factors.shape[1]):
            _draw_words(own[0], own[1], turn, radii, angles)
            row = factors[block, turn]
            if paired:
                _turn(lengths, angles, out)
                for k in range(2 * count):
                    row[k] = out[k]
            else:
                for k in range(count):
                    row[k] = -1.0 if radii[k] & np.uint32(1) else 1.0


def draw_factors(
    high: Indices,
    low: Indices,
    step: int | None,
    steps: int,
    purpose: int,
    first: int,
    paired: bool,
    factors: Floats,
) -> None:
    """As :func:`draw_rows`, the factors of blocks of Walsh-Hadamard transforms."""
    words = high.view(np.uint32), low.view(np.uint32)
    _draw_factors(*words, -1 if step is None else step & 0xFFFFFFFF, steps, purpose, first, paired, factors)
