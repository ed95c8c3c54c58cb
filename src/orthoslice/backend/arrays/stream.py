"""A counter-based stream of random numbers: the same key gives the same numbers on every library.

Threefry-2x32 with 20 rounds (Salmon et al., SC 2011) needs only 32-bit additions, exclusive ors and
rotations, so one implementation runs on every array library, under tracing, and on an accelerator without
talking to the host. Any number is reached directly from its position: nothing is drawn in sequence.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from orthoslice.backend.arrays.namespace import Array, DType, Namespace, device, namespace
from orthoslice.backend.arrays.operations import Operation
from orthoslice.backend.kernels import rows_refusal, triton_refusal

# Purposes keep streams of one seed apart from each other.
DIRECTIONS = 0
PRICES = 1
STEPS = 2
LABELS = 3
TREES = 4
SAMPLES = 5
CONTROLS = 6

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class Stream(NamedTuple):
    """Keys of the generator: two 32-bit words each, held as int32 arrays of shape `(keys,)`.

    Signed words are used because every library has them and all of them wrap on overflow.
    """

    high: Array
    low: Array

    @classmethod
    def from_seed(cls, seed: int, like: Array) -> Stream:
        """One key from an integer in [0, 2**64), beside `like`."""
        xp = namespace(like)
        words = [(seed >> shift) & 0xFFFFFFFF for shift in (32, 0)]
        signed = [word - (1 << 32) if word >= 1 << 31 else word for word in words]
        return cls(*(xp.full((1,), word, dtype=xp.int32, device=device(like)) for word in signed))

    def fold(self, a: Array | int, b: int) -> Stream:
        """Independent keys, one for each pair of integers; `a` may be an int32 array of shape `(keys,)`."""
        return Stream(*folded(self, a, b))


def threefry(key: Stream, c0: Array, c1: Array) -> tuple[Array, Array]:
    """Encrypt the counters `(c0, c1)` under `key`; everything is int32 and broadcasts."""
    keys = (key.high, key.low, key.high ^ key.low ^ _PARITY)
    x0, x1 = c0 + keys[0], c1 + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            # A right shift of a signed word drags its sign along; the mask takes it off again.
            x1 = ((x1 << rotation) | ((x1 >> (32 - rotation)) & ((1 << rotation) - 1))) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + (keys[(group + 2) % 3] + (group + 1))
    return x0, x1


def _stream_refusal(stream: Stream, *_: Any) -> str | None:
    return triton_refusal(*stream, dtypes=("int32",))


def _draw_refusal(stream: Stream, rows: int, columns: int, dtype: DType) -> str | None:
    xp = namespace(stream.high)
    if dtype not in (xp.float32, xp.float64):
        return f"it gives float32 and float64, not {dtype}"
    return _stream_refusal(stream)


folded = Operation("folded")
"""folded(stream, a, b): the two words of the keys that :meth:`Stream.fold` makes."""


@folded.implementation("triton", _stream_refusal)
def _folded_triton(stream: Stream, a: Array | int, b: int) -> tuple[Array, Array]:
    from orthoslice.backend.kernels.triton.random import folded_keys

    return folded_keys(*stream, a, b)


@folded.implementation("reference", lambda *_: None)
def _folded(stream: Stream, a: Array | int, b: int) -> tuple[Array, Array]:
    zero = namespace(stream.high).zeros_like(stream.high)
    return threefry(stream, zero + a, zero + b)


words = Operation("words")
"""words(stream, rows, columns): two random words for each, int32 arrays of shape `(keys, rows, columns)`."""


@words.implementation("numba", lambda stream, *_: rows_refusal(*stream))
def _words_numba(stream: Stream, rows: int, columns: int) -> tuple[Array, Array]:
    from orthoslice.backend.kernels.numba.random import threefry_words

    return threefry_words(*stream, rows, columns)


@words.implementation("reference", lambda *_: None)
def _words(stream: Stream, rows: int, columns: int) -> tuple[Array, Array]:
    xp = namespace(stream.high)
    place = device(stream.high)
    row = xp.arange(rows, dtype=xp.int32, device=place)[None, :, None]
    column = xp.arange(columns, dtype=xp.int32, device=place)[None, None, :]
    key = Stream(stream.high[:, None, None], stream.low[:, None, None])
    return threefry(key, row + xp.zeros_like(column), column + xp.zeros_like(row))


normals = Operation("normals")
"""normals(stream, rows, columns, dtype): independent standard normals `(keys, rows, columns)`, by Box-Muller.

A larger `rows` extends a smaller one, so that part of a block is a prefix of the whole.
"""


@normals.implementation("triton", _draw_refusal)
def _normals_triton(stream: Stream, rows: int, columns: int, dtype: DType) -> Array:
    from orthoslice.backend.kernels.triton.random import normal_table

    return normal_table(*stream, rows, columns, dtype)


@normals.implementation("reference", lambda *_: None)
def _normals(stream: Stream, rows: int, columns: int, dtype: DType) -> Array:
    xp = namespace(stream.high)
    radius_word, angle_word = words(stream, rows, (columns + 1) // 2)
    below, above = unit_interval(xp, radius_word, dtype)
    # log(u) is inaccurate near 1 and log1p(u - 1) near 0: in float32 that would cost half the digits.
    radius = xp.sqrt(-2 * xp.where(below < 0.5, xp.log(below), xp.log1p(-above)))
    angle = 2 * math.pi * unit_interval(xp, angle_word, dtype)[0]
    pairs = xp.stack([radius * xp.cos(angle), radius * xp.sin(angle)], axis=-1)
    return xp.reshape(pairs, (pairs.shape[0], rows, -1))[:, :, :columns]


signs = Operation("signs")
"""signs(stream, rows, columns, dtype): independent Rademacher signs `(keys, rows, columns)`."""


@signs.implementation("triton", _draw_refusal)
def _signs_triton(stream: Stream, rows: int, columns: int, dtype: DType) -> Array:
    from orthoslice.backend.kernels.triton.random import sign_table

    return sign_table(*stream, rows, columns, dtype)


@signs.implementation("reference", lambda *_: None)
def _signs(stream: Stream, rows: int, columns: int, dtype: DType) -> Array:
    xp = namespace(stream.high)
    return xp.astype(1 - 2 * (words(stream, rows, columns)[0] & 1), dtype)


def unit_interval(xp: Namespace, word: Array, dtype: DType) -> tuple[Array, Array]:
    """`u` and `1 - u` for u uniform on (0, 1), both with full relative accuracy.

    The word is used in halves because a 32-bit integer does not fit a float32 significand.
    """
    high = xp.astype((word >> 16) & 0xFFFF, dtype)
    low = xp.astype(word & 0xFFFF, dtype)
    below = high * 2.0**-16 + (low + 0.5) * 2.0**-32
    above = (65535 - high) * 2.0**-16 + (65535.5 - low) * 2.0**-32
    return below, above
