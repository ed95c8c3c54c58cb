"""The counter-based generator, compiled. The plain reference is `orthoslice.backend.arrays.key.threefry`."""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Indices, Words
from orthoslice.backend.kernels.numba._compile import compiled

# Typed constants: to numba every literal number is a type, and `_mix` would be compiled for each.
_TURN_13, _TURN_15, _TURN_26, _TURN_6 = np.uint32(13), np.uint32(15), np.uint32(26), np.uint32(6)
_TURN_17, _TURN_29, _TURN_16, _TURN_24 = np.uint32(17), np.uint32(29), np.uint32(16), np.uint32(24)


@compiled
def _mix(x0: np.uint32, x1: np.uint32, turn: np.uint32) -> tuple[np.uint32, np.uint32]:
    x0 = np.uint32(x0 + x1)
    turned = np.uint32((x1 << turn) | (x1 >> np.uint32(np.uint32(32) - turn)))
    return x0, np.uint32(turned ^ x0)


@compiled
def threefry(
    k0: np.uint32, k1: np.uint32, k2: np.uint32, x0: np.uint32, x1: np.uint32
) -> tuple[np.uint32, np.uint32]:
    """Threefry-2x32 of 20 rounds; every step is cast, since sums of 32-bit words would grow to 64 bits.

    Written out: with a loop over rounds, loops around it would not be vector code.
    """
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1)
    x0, x1 = _mix(x0, x1, _TURN_13)
    x0, x1 = _mix(x0, x1, _TURN_15)
    x0, x1 = _mix(x0, x1, _TURN_26)
    x0, x1 = _mix(x0, x1, _TURN_6)
    x0, x1 = np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(1))
    x0, x1 = _mix(x0, x1, _TURN_17)
    x0, x1 = _mix(x0, x1, _TURN_29)
    x0, x1 = _mix(x0, x1, _TURN_16)
    x0, x1 = _mix(x0, x1, _TURN_24)
    x0, x1 = np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(2))
    x0, x1 = _mix(x0, x1, _TURN_13)
    x0, x1 = _mix(x0, x1, _TURN_15)
    x0, x1 = _mix(x0, x1, _TURN_26)
    x0, x1 = _mix(x0, x1, _TURN_6)
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1 + np.uint32(3))
    x0, x1 = _mix(x0, x1, _TURN_17)
    x0, x1 = _mix(x0, x1, _TURN_29)
    x0, x1 = _mix(x0, x1, _TURN_16)
    x0, x1 = _mix(x0, x1, _TURN_24)
    x0, x1 = np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(4))
    x0, x1 = _mix(x0, x1, _TURN_13)
    x0, x1 = _mix(x0, x1, _TURN_15)
    x0, x1 = _mix(x0, x1, _TURN_26)
    x0, x1 = _mix(x0, x1, _TURN_6)
    return np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(5))


@compiled
def third_key(k0: np.uint32, k1: np.uint32) -> np.uint32:
    """The third word of a key: `k0 ^ k1 ^ 0x1BD11BDA`."""
    return np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA))


@compiled
def _fill(high: Words, low: Words, first: Words, second: Words) -> None:
    """Two words of every (row, column) under every key; arrays of uint32."""
    for key in range(first.shape[0]):
        k0, k1 = high[key], low[key]
        k2 = third_key(k0, k1)
        for row in range(first.shape[1]):
            for column in range(first.shape[2]):
                found = threefry(k0, k1, k2, np.uint32(row), np.uint32(column))
                first[key, row, column], second[key, row, column] = found


def threefry_words(high: Indices, low: Indices, rows: int, columns: int) -> tuple[Indices, Indices]:
    """Two random words for each key `(keys,)`, row and column, as int32 arrays `(keys, rows, columns)`."""
    shape = (len(high), rows, columns)
    first, second = np.empty(shape, dtype=np.uint32), np.empty(shape, dtype=np.uint32)
    _fill(high.view(np.uint32), low.view(np.uint32), first, second)
    return first.view(np.int32), second.view(np.int32)
