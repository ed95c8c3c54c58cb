"""A counter-based generator of random numbers: the same key gives the same numbers on every library.

Threefry-2x32 with 20 rounds (Salmon et al., SC 2011) needs only 32-bit additions, exclusive ors and
rotations, so one implementation runs on every array library, under tracing, and on an accelerator without
talking to the host. Any number is reached directly from its position: nothing is drawn in sequence.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from orthoslice.backend.array_types import Array, DType, HostArray, Namespace, Tensor
from orthoslice.backend.arrays.namespace import device, namespace
from orthoslice.backend.arrays.operations import Operation, PlainWork
from orthoslice.backend.kernels import rows_refusal
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.kernels.cuda.random import folded_keys, normal_table, sign_table

# Purposes, folded into a key, keep the draws of one seed independent of each other.
DIRECTIONS = 0
PRICES = 1
STEPS = 2
LABELS = 3
TREES = 4
SAMPLES = 5
CONTROLS = 6

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class Key(NamedTuple):
    """Keys of the generator: two 32-bit words each, held as int32 arrays of shape `(keys,)`.

    Signed words are used because every library has them and all of them wrap on overflow.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> key = osl.directions.Key.from_seed(7, np.zeros(1))
    >>> key.high.dtype, key.fold(np.arange(3, dtype=np.int32), 0).low.shape
    (dtype('int32'), (3,))
    """

    high: Array
    low: Array

    @classmethod
    def from_seed(cls, seed: int, like: Array) -> Key:
        """One key from an integer in [0, 2**64), beside `like`."""
        xp = namespace(like)
        words = [(seed >> shift) & 0xFFFFFFFF for shift in (32, 0)]
        signed = [word - (1 << 32) if word >= 1 << 31 else word for word in words]
        return cls(*(xp.full((1,), word, dtype=xp.int32, device=device(like)) for word in signed))

    def fold(self, a: Array | int, b: int) -> Key:
        """Independent keys, one for each pair of integers; `a` may be an int32 array of shape `(keys,)`."""
        return Key(*folded(self, a, b))


def threefry(key: Key, c0: Array, c1: Array) -> tuple[Array, Array]:
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


def _key_refusal(key: Key, *_: object) -> str | None:
    return cuda_refusal(*key, dtype="int32")


def _draw_refusal(key: Key, rows: int, columns: int, dtype: DType) -> str | None:
    xp = namespace(key.high)
    if dtype not in (xp.float32, xp.float64):
        return f"it gives float32 and float64, not {dtype}"
    return _key_refusal(key)


folded: Operation[tuple[Array, Array]] = Operation("folded")
"""folded(key, a, b): the two words of the keys that :meth:`Key.fold` makes."""


@folded.implementation("cuda", _key_refusal)
def _folded_cuda(key: Key, a: Array | int, b: int) -> tuple[Array, Array]:
    return folded_keys(*key, a, b)


@folded.implementation("reference", lambda *_: None)
def _folded(key: Key, a: Array | int, b: int) -> tuple[Array, Array]:
    zero = namespace(key.high).zeros_like(key.high)
    return threefry(key, zero + a, zero + b)


words: Operation[tuple[Array, Array]] = Operation("words")
"""words(key, rows, columns): two random words for each, int32 arrays of shape `(keys, rows, columns)`."""


@words.implementation(
    "numba",
    lambda key, *_: rows_refusal(*key),
    plain_work=lambda key, rows, columns: PlainWork.of(key.high, times=rows * columns),
)
def _words_numba(key: tuple[HostArray, HostArray], rows: int, columns: int) -> tuple[Array, Array]:
    from orthoslice.backend.kernels.numba.random import threefry_words

    return threefry_words(*key, rows, columns)


@words.implementation("reference", lambda *_: None)
def _words(key: Key, rows: int, columns: int) -> tuple[Array, Array]:
    xp = namespace(key.high)
    place = device(key.high)
    row = xp.arange(rows, dtype=xp.int32, device=place)[None, :, None]
    column = xp.arange(columns, dtype=xp.int32, device=place)[None, None, :]
    key = Key(key.high[:, None, None], key.low[:, None, None])
    return threefry(key, row + xp.zeros_like(column), column + xp.zeros_like(row))


normals: Operation[Array] = Operation("normals")
"""normals(key, rows, columns, dtype): independent standard normals `(keys, rows, columns)`, by Box-Muller.

A larger `rows` extends a smaller one, so that part of a block is a prefix of the whole.
"""


@normals.implementation("cuda", _draw_refusal)
def _normals_cuda(key: Key, rows: int, columns: int, dtype: DType) -> Tensor:
    return normal_table(*key, rows, columns, dtype)


@normals.implementation("reference", lambda *_: None)
def _normals(key: Key, rows: int, columns: int, dtype: DType) -> Array:
    xp = namespace(key.high)
    radius_word, angle_word = words(key, rows, (columns + 1) // 2)
    below, above = unit_interval(xp, radius_word, dtype)
    # log(u) is inaccurate near 1 and log1p(u - 1) near 0: in float32 that would cost half the digits.
    radius = xp.sqrt(-2 * xp.where(below < 0.5, xp.log(below), xp.log1p(-above)))
    angle = 2 * math.pi * unit_interval(xp, angle_word, dtype)[0]
    pairs = xp.stack([radius * xp.cos(angle), radius * xp.sin(angle)], axis=-1)
    return xp.reshape(pairs, (pairs.shape[0], rows, -1))[:, :, :columns]


signs: Operation[Array] = Operation("signs")
"""signs(key, rows, columns, dtype): independent Rademacher signs `(keys, rows, columns)`."""


@signs.implementation("cuda", _draw_refusal)
def _signs_cuda(key: Key, rows: int, columns: int, dtype: DType) -> Tensor:
    return sign_table(*key, rows, columns, dtype)


@signs.implementation("reference", lambda *_: None)
def _signs(key: Key, rows: int, columns: int, dtype: DType) -> Array:
    xp = namespace(key.high)
    return xp.astype(1 - 2 * (words(key, rows, columns)[0] & 1), dtype)


def unit_interval(xp: Namespace, word: Array, dtype: DType) -> tuple[Array, Array]:
    """`u` and `1 - u` for u uniform on (0, 1), both with full relative accuracy.

    The word is used in halves because a 32-bit integer does not fit a float32 significand.
    """
    high = xp.astype((word >> 16) & 0xFFFF, dtype)
    low = xp.astype(word & 0xFFFF, dtype)
    below = high * 2.0**-16 + (low + 0.5) * 2.0**-32
    above = (65535 - high) * 2.0**-16 + (65535.5 - low) * 2.0**-32
    return below, above
