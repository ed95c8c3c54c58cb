"""The counter-based stream on a GPU: one launch a draw, and nothing waits for the host.

The plain references are the implementations of that name in `orthoslice.backend.arrays.stream`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from orthoslice.backend.kernels.triton._shared import on_device_of

_BLOCK = 256


@triton.jit
def _turn(x0, x1, count: tl.constexpr):
    # Words wrap on overflow, which Triton's debug mode would take for a mistake.
    x0 = tl.add(x0, x1, sanitize_overflow=False)
    return x0, ((x1 << count) | (x1 >> (32 - count))) ^ x0


@triton.jit
def _threefry(key0, key1, x0, x1):
    """Threefry-2x32, 20 rounds, of the counters `(x0, x1)`; everything is uint32."""
    key2 = key0 ^ key1 ^ 0x1BD11BDA
    x0 = tl.add(x0, key0, sanitize_overflow=False)
    x1 = tl.add(x1, key1, sanitize_overflow=False)
    for group in tl.static_range(5):
        if group % 2 == 0:
            x0, x1 = _turn(x0, x1, 13)
            x0, x1 = _turn(x0, x1, 15)
            x0, x1 = _turn(x0, x1, 26)
            x0, x1 = _turn(x0, x1, 6)
        else:
            x0, x1 = _turn(x0, x1, 17)
            x0, x1 = _turn(x0, x1, 29)
            x0, x1 = _turn(x0, x1, 16)
            x0, x1 = _turn(x0, x1, 24)
        key0, key1, key2 = key1, key2, key0
        x0 = tl.add(x0, key0, sanitize_overflow=False)
        x1 = tl.add(tl.add(x1, key1, sanitize_overflow=False), group + 1, sanitize_overflow=False)
    return x0, x1


@triton.jit
def _load_word(pointer, place, live):
    return tl.load(pointer + place, mask=live, other=0).to(tl.uint32, bitcast=True)


@triton.jit
def _words_at(high, low, place, live, rows, columns):
    """The words of entry `place` of a table `(keys, rows, columns)`, its row of all rows and its column."""
    row_of_all = place // columns
    column = place % columns
    key = row_of_all // rows
    counter = (row_of_all % rows).to(tl.uint32)
    key0, key1 = _load_word(high, key, live), _load_word(low, key, live)
    first, second = _threefry(key0, key1, counter, column.to(tl.uint32))
    return first, second, row_of_all, column


@triton.jit(do_not_specialize=["n_pairs", "rows", "columns", "pair_columns"])
def _normals_kernel(high, low, out, n_pairs, rows, columns, pair_columns, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = place < n_pairs
    radius_word, angle_word, row, column = _words_at(high, low, place, live, rows, pair_columns)
    # A word and a half fit a float64 exactly, so its logarithm is accurate near 1 as well.
    radius = tl.sqrt(-2.0 * tl.log((radius_word.to(tl.float64) + 0.5) * 2.0**-32))
    angle = (angle_word.to(tl.float64) + 0.5) * (2.0**-31 * 3.141592653589793)
    at = out + row * columns + 2 * column
    tl.store(at, radius * tl.cos(angle), mask=live)
    tl.store(at + 1, radius * tl.sin(angle), mask=live & (2 * column + 1 < columns))


@triton.jit(do_not_specialize=["n_signs", "rows", "columns"])
def _signs_kernel(high, low, out, n_signs, rows, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = place < n_signs
    word, _, _, _ = _words_at(high, low, place, live, rows, columns)
    tl.store(out + place, 1.0 - 2.0 * (word & 1).to(tl.float32), mask=live)


@triton.jit(do_not_specialize=["a", "b", "n_keys", "key_step"])
def _fold_kernel(high, low, a, b, out, n_keys, key_step, A_IS_TABLE: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = place < n_keys
    key0, key1 = _load_word(high, place * key_step, live), _load_word(low, place * key_step, live)
    if A_IS_TABLE:
        x0 = _load_word(a, place, live)
    else:
        x0 = tl.full([BLOCK], a, tl.int32).to(tl.uint32, bitcast=True)
    x1 = tl.full([BLOCK], b, tl.int32).to(tl.uint32, bitcast=True)
    x0, x1 = _threefry(key0, key1, x0, x1)
    tl.store(out + place, x0.to(tl.int32, bitcast=True), mask=live)
    tl.store(out + n_keys + place, x1.to(tl.int32, bitcast=True), mask=live)


def normal_table(high: Any, low: Any, rows: int, columns: int, dtype: Any) -> Any:
    """Standard normals `(keys, rows, columns)`, worked out in float64 and rounded to `dtype`."""
    out = torch.empty((high.shape[0], rows, columns), dtype=dtype, device=high.device)
    pair_columns = (columns + 1) // 2
    n_pairs = high.shape[0] * rows * pair_columns
    if n_pairs:
        with on_device_of(high):
            _normals_kernel[(triton.cdiv(n_pairs, _BLOCK),)](
                high.contiguous(), low.contiguous(), out, n_pairs, rows, columns, pair_columns, BLOCK=_BLOCK
            )
    return out


def sign_table(high: Any, low: Any, rows: int, columns: int, dtype: Any) -> Any:
    """Rademacher signs `(keys, rows, columns)`."""
    out = torch.empty((high.shape[0], rows, columns), dtype=dtype, device=high.device)
    if out.numel():
        with on_device_of(high):
            _signs_kernel[(triton.cdiv(out.numel(), _BLOCK),)](
                high.contiguous(), low.contiguous(), out, out.numel(), rows, columns, BLOCK=_BLOCK
            )
    return out


def folded_keys(high: Any, low: Any, a: Any, b: int) -> tuple[Any, Any]:
    """Keys encrypted from the counters `(a, b)`; `a` is an integer or an int32 tensor `(keys,)`."""
    is_table = isinstance(a, torch.Tensor)
    n_keys = max(high.shape[0], a.shape[0] if is_table else 1)
    out = torch.empty((2, n_keys), dtype=torch.int32, device=high.device)
    with on_device_of(high):
        _fold_kernel[(triton.cdiv(n_keys, _BLOCK),)](
            high.contiguous(),
            low.contiguous(),
            a.expand(n_keys).contiguous() if is_table else a,
            b,
            out,
            n_keys,
            int(high.shape[0] > 1),
            A_IS_TABLE=is_table,
            BLOCK=_BLOCK,
        )
    return out[0], out[1]
