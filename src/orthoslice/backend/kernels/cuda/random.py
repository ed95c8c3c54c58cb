"""The counter-based stream on an NVIDIA GPU: one launch a draw, without synchronising with the host.

The plain references are the implementations of that name in `orthoslice.backend.arrays.key`.
"""

from __future__ import annotations

import sys

from orthoslice.backend.array_types import DType, Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty

_THREADS = 256
_PROGRAM = Program("random", (("THREADS", _THREADS),))
_DRAW_NORMALS = Kernel("draw_normals", 4, "iii")
_DRAW_SIGNS = Kernel("draw_signs", 4, "iii")
_FOLD_KEYS = Kernel("fold_keys", 6, "ii")


def normal_table(high: Tensor, low: Tensor, rows: int, columns: int, dtype: DType) -> Tensor:
    """Standard normals `(keys, rows, columns)`, worked out in float64 and rounded to `dtype`."""
    return _table(_DRAW_NORMALS, (columns + 1) // 2, high, low, rows, columns, dtype)


def sign_table(high: Tensor, low: Tensor, rows: int, columns: int, dtype: DType) -> Tensor:
    """Rademacher signs `(keys, rows, columns)`."""
    return _table(_DRAW_SIGNS, columns, high, low, rows, columns, dtype)


def _table(
    kernel: Kernel, row_threads: int, high: Tensor, low: Tensor, rows: int, columns: int, dtype: DType
) -> Tensor:
    """Fill a table with `row_threads` threads for each of its rows."""
    out = high.new_empty((high.shape[0], rows, columns), dtype=dtype)
    count = high.shape[0] * rows * row_threads
    if count:
        numbers = rows, columns, out.element_size() == 8
        draw = bind(kernel, _PROGRAM, high.get_device(), -(-count // _THREADS), _THREADS, 0, *numbers)
        draw(high.contiguous(), low.contiguous(), out, count)
    return out


def folded_keys(high: Tensor, low: Tensor, a: Tensor, b: int) -> tuple[Tensor, Tensor]:
    """Keys encrypted from the counters `(a, b)`; `a` is an integer or an int32 tensor `(keys,)`."""
    is_table, n_keys = sys.modules["torch"].is_tensor(a), high.shape[0]
    count = max(n_keys, a.shape[0]) if is_table else n_keys
    table, number = (a.int().expand(count).contiguous(), 0) if is_table else (None, int(a))
    out = empty(high, (2, count), "int32")
    fold = bind(_FOLD_KEYS, _PROGRAM, high.get_device(), -(-count // _THREADS), _THREADS, 0, count, n_keys)
    fold(high.contiguous(), low.contiguous(), table, out, number, b)
    return out[0], out[1]
