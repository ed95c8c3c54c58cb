"""The counter-based stream, compiled. The plain reference is `orthoslice.arrays.stream.threefry`."""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.kernels.numba._compile import compiled


@compiled
def _rotate(word: Any, count: Any) -> Any:
    return np.uint32((word << np.uint32(count)) | (word >> np.uint32(32 - count)))


@compiled
def _fill(high: Any, low: Any, first: Any, second: Any) -> None:
    """Threefry-2x32, 20 rounds, of every (row, column) under every key; arrays of uint32."""
    for key in range(first.shape[0]):
        k0, k1 = high[key], low[key]
        # Every step is cast: sums of 32-bit words would otherwise grow to 64 bits.
        keys = (k0, k1, np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA)))
        for row in range(first.shape[1]):
            for column in range(first.shape[2]):
                x0, x1 = np.uint32(row + keys[0]), np.uint32(column + keys[1])
                for group in range(5):
                    turns = (13, 15, 26, 6) if group % 2 == 0 else (17, 29, 16, 24)
                    for turn in turns:
                        x0 = np.uint32(x0 + x1)
                        x1 = np.uint32(_rotate(x1, turn) ^ x0)
                    x0 = np.uint32(x0 + keys[(group + 1) % 3])
                    x1 = np.uint32(x1 + keys[(group + 2) % 3] + np.uint32(group + 1))
                first[key, row, column] = x0
                second[key, row, column] = x1


def threefry_words(high: Any, low: Any, rows: int, columns: int) -> tuple[Any, Any]:
    """Two random words for each key `(keys,)`, row and column, as int32 arrays `(keys, rows, columns)`."""
    shape = (len(high), rows, columns)
    first, second = np.empty(shape, dtype=np.uint32), np.empty(shape, dtype=np.uint32)
    _fill(high.view(np.uint32), low.view(np.uint32), first, second)
    return first.view(np.int32), second.view(np.int32)
