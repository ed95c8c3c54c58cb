"""The kernels of `sliced.py` as calls of XLA on the CPU: compiled programs of JAX run them without Python.

XLA hands its arguments over in a stable C structure (`XLA_FFI_CallFrame` of `c_api.h`, which jaxlib ships). Its
fields are 64-bit words or are padded to such, so that it is read here as words; the numbers below are their
places. Only version 0 of the interface is read so: :func:`orthoslice.backend.kernels.xla.refusal` checks that.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias, cast

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from orthoslice.backend.array_types import Floats, Indices, IntArray, Words
from orthoslice.backend.kernels import LONGEST_COLUMN, LONGEST_INDEXED
from orthoslice.backend.kernels.numba._compile import compiled, compiled_for_c
from orthoslice.backend.kernels.numba.sliced import (
    _score_rows,
    _score_short_rows,
    _slope_rows,
    _slope_short_rows,
)
from orthoslice.backend.kernels.numba.sorting import SHORTEST_SPLIT
from orthoslice.backend.kernels.numba.splitting import piece_bounds

MAJOR_VERSION, MINOR_VERSION = 0, 1

# Places of words: in a call frame, a buffer, a scalar attribute, and the extension by which XLA asks for
# the version of a handler.
_EXTENSION, _STAGE, _ARGUMENTS, _RESULTS, _ATTRIBUTES = 1, 4, 9, 14, 20
_DTYPE, _DATA, _RANK, _DIMS = 2, 3, 4, 5
_SCALAR_VALUE = 1
_EXTENSION_TYPE, _METADATA, _VERSION, _TRAITS = 1, 3, 3, 4

_IS_METADATA, _EXECUTE, _FLOAT64 = 1, 3, 12

_LOW_WORD = 0xFFFFFFFF

Frame: TypeAlias = IntArray
"""A pointer to the words of a call frame, which is read as an array is."""


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing_context: Any, address: int) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@compiled
def _words(address: int, count: int) -> Any:
    return carray(_pointer(address), (count,), np.int64)


@compiled
def _is_to_run(frame: Frame, traits: int = 0) -> Any:
    """Whether a call is to be carried out; a question for the version, and for what it can do, is answered."""
    if frame[_EXTENSION] != 0:
        extension = _words(frame[_EXTENSION], 4)
        if extension[_EXTENSION_TYPE] & _LOW_WORD == _IS_METADATA:
            metadata = _words(extension[_METADATA], 5)
            metadata[_VERSION] = (MINOR_VERSION << 32) | MAJOR_VERSION
            metadata[_TRAITS] = (metadata[_TRAITS] & ~_LOW_WORD) | traits
            return False
    return frame[_STAGE] & _LOW_WORD == _EXECUTE


@compiled
def _buffer(entries: int, k: int) -> tuple[int, int, int, int]:
    """Of the k-th argument or result: its data, how many rows it has and how long they are, and its type."""
    words = _words(_words(entries, k + 1)[k], 6)
    rank = words[_RANK]
    dims = _words(words[_DIMS], rank)
    rows = 1
    for axis in range(rank - 1):
        rows *= dims[axis]
    return words[_DATA], rows, dims[rank - 1] if rank else 1, words[_DTYPE] & _LOW_WORD


@compiled
def _attribute(frame: Frame, k: int) -> Any:
    """The k-th number in the order of names."""
    scalar = _words(_words(frame[_ATTRIBUTES], k + 1)[k], 2)
    return carray(_pointer(scalar[_SCALAR_VALUE]), (1,), np.float64)[0]


@compiled
def _write_scores(entries: int, scores: Floats) -> None:
    data, _, _, dtype = _buffer(entries, 0)
    if dtype == _FLOAT64:
        carray(_pointer(data), scores.shape, np.float64)[:] = scores
    else:
        carray(_pointer(data), scores.shape, np.float32)[:] = scores.astype(np.float32)


@compiled
def _projections(frame: Frame, bits: Words) -> tuple[Words, Words]:
    """Both arguments of a call, as rows of words."""
    x, rows, n, _ = _buffer(frame[_ARGUMENTS], 0)
    y, _, m, _ = _buffer(frame[_ARGUMENTS], 1)
    return carray(_pointer(x), (rows, n), bits.dtype), carray(_pointer(y), (rows, m), bits.dtype)


@compiled
def _run_scores(frame: Frame, floats: Floats, bits: Words) -> None:
    """Scores of projections of the type of `floats`; `bits` has the unsigned type of that width."""
    if not _is_to_run(frame):
        return
    a, b = _projections(frame, bits)
    (rows, n), m = a.shape, b.shape[1]
    scores = np.empty(rows)
    if max(n, m) <= LONGEST_COLUMN:
        _score_short_rows(a.view(floats.dtype), b.view(floats.dtype), _attribute(frame, 1), scores)
    elif max(n, m) < SHORTEST_SPLIT:
        _score_rows(a, b, _attribute(frame, 1), scores, floats, None)
    else:
        _score_rows(a, b, _attribute(frame, 1), scores, floats, _room(bits))
    _write_scores(frame[_RESULTS], scores)


@compiled
def _run_slopes(frame: Frame, floats: Floats, bits: Words) -> None:
    """The same, and slopes."""
    if not _is_to_run(frame):
        return
    a, b = _projections(frame, bits)
    (rows, n), m = a.shape, b.shape[1]
    factor, p, scores = _attribute(frame, 0), _attribute(frame, 1), np.empty(rows)
    slopes_x = carray(_pointer(_buffer(frame[_RESULTS], 1)[0]), (rows, n), floats.dtype)
    slopes_y = carray(_pointer(_buffer(frame[_RESULTS], 2)[0]), (rows, m), floats.dtype)
    if max(n, m) <= LONGEST_INDEXED:
        rows = a.view(floats.dtype), b.view(floats.dtype)
        _slope_short_rows(*rows, p, factor, scores, slopes_x, slopes_y, bits)
    elif max(n, m) < SHORTEST_SPLIT:
        _slope_rows(a, b, p, factor, scores, slopes_x, slopes_y, None)
    else:
        _slope_rows(a, b, p, factor, scores, slopes_x, slopes_y, _room(bits))
    _write_scores(frame[_RESULTS], scores)


@compiled
def _room(bits: Words) -> Indices:
    return np.empty(_BUCKETS[bits.itemsize // 4 - 1], dtype=np.int64)


# Where the pieces of long rows begin, of keys of 32 and of 64 bits: see :func:`piece_bounds`.
_BUCKETS = tuple(cast(Indices, piece_bounds(SHORTEST_SPLIT, width)).size for width in (4, 8))


def _scores_float32(frame: Frame) -> Any:
    _run_scores(frame, np.empty(0, np.float32), np.empty(0, np.uint32))
    return _pointer(0)


def _scores_float64(frame: Frame) -> Any:
    _run_scores(frame, np.empty(0, np.float64), np.empty(0, np.uint64))
    return _pointer(0)


def _slopes_float32(frame: Frame) -> Any:
    _run_slopes(frame, np.empty(0, np.float32), np.empty(0, np.uint32))
    return _pointer(0)


def _slopes_float64(frame: Frame) -> Any:
    _run_slopes(frame, np.empty(0, np.float64), np.empty(0, np.uint64))
    return _pointer(0)


@functools.cache
def handlers() -> dict[str, Any]:
    """All calls by name, each with its `address`. They must outlive the programs that call them."""
    return {
        f"orthoslice{handler.__name__}": compiled_for_c(types.voidptr(types.CPointer(types.int64)), handler)
        for handler in (_scores_float32, _scores_float64, _slopes_float32, _slopes_float64)
    }
