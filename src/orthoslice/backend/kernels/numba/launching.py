"""Recipes of launches (:mod:`orthoslice.backend.kernels.cuda.recording`) followed by XLA, without Python.

A recipe travels in the compiled program. What belongs to the process alone, the handles of kernels and the
addresses of the driver's functions, is in a table that the machine code below finds by its name. A program that
another process compiled finds its kernels there by their keys, or fails in words.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any, cast

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orthoslice.backend.array_types import IntArray
from orthoslice.backend.kernels.cuda.recording import OFFSET_BITS
from orthoslice.backend.kernels.numba._compile import compiled, compiled_for_c
from orthoslice.backend.kernels.numba.xla import (
    _ARGUMENTS,
    _ATTRIBUTES,
    _DATA,
    _RESULTS,
    Frame,
    _is_to_run,
    _pointer,
    _words,
)

# Places of words in a call frame, in XLA's table of functions, and in an attribute that is an array.
_API, _CONTEXT, _ARGUMENT_COUNT = 2, 3, 7
_ERROR_CREATE, _STREAM_GET = 6, 10
_ARRAY_SIZE, _ARRAY_DATA = 1, 2

# XLA may make a graph of the launches of a whole program, and start that.
_FITS_GRAPHS = 1

_INTERNAL_ERROR = 13

# The table: the driver's functions, what to say of errors, how many entries there are; and entries of three
# words each, a kernel's key, a device and the handle there.
_LAUNCH, _DEVICE, _FILL, _UNKNOWN, _REFUSED, _COUNT, _FIRST = range(7)
_MOST_ENTRIES = 4096
_TABLE = "orthoslice_kernels"

_ERRORS = (
    b"a kernel of orthoslice is not loaded in this process: trace the function here, or clear JAX's cache",
    b"CUDA refused to start a kernel of orthoslice",
)

_table = np.zeros(_FIRST + 3 * _MOST_ENTRIES, dtype=np.int64)
_said = [ctypes.create_string_buffer(text) for text in _ERRORS]
_lock = threading.Lock()

llvm.add_symbol(_TABLE, _table.ctypes.data)


def set_driver(*functions: Any) -> None:
    """Have recipes use these: cuLaunchKernel, cuCtxGetDevice and cuMemsetD32Async, as `ctypes` has them."""
    _table[[_LAUNCH, _DEVICE, _FILL]] = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]
    _table[[_UNKNOWN, _REFUSED]] = [ctypes.addressof(text) for text in _said]


def enter(key: int, device: int, handle: int) -> None:
    """Have recipes find a kernel."""
    with _lock:
        count = int(_table[_COUNT])
        entries = _table[_FIRST : _FIRST + 3 * count].reshape(-1, 3)
        if (entries[:, :2] == (key, device)).all(axis=1).any():
            return
        if count == _MOST_ENTRIES:
            raise RuntimeError(f"There is room for {_MOST_ENTRIES} kernels of programs of JAX.")
        _table[_FIRST + 3 * count : _FIRST + 3 * (count + 1)] = key, device, handle
        # Last: threads of XLA read the table meanwhile.
        _table[_COUNT] = count + 1


@intrinsic  # type: ignore[untyped-decorator]
def _table_address(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        variable = builder.module.globals.get(_TABLE)
        if variable is None:
            variable = ir.GlobalVariable(builder.module, ir.IntType(64), _TABLE)
        return builder.ptrtoint(variable, ir.IntType(64))

    return types.int64(), generate


def _caller(kinds: str) -> Any:
    """An intrinsic that calls the C function at an address; `kinds`: bytes of its arguments and its answer."""
    wide = [ir.IntType(8 * int(kind)) for kind in kinds]

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing_context: Any, address: int, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            numbers = [builder.extract_value(given[1], k) for k in range(len(wide) - 1)]
            numbers = [n if t.width == 64 else builder.trunc(n, t) for n, t in zip(numbers, wide, strict=False)]
            function = builder.inttoptr(given[0], ir.FunctionType(wide[-1], wide[:-1]).as_pointer())
            answer = builder.call(function, numbers)
            return answer if wide[-1].width == 64 else builder.sext(answer, ir.IntType(64))

        return types.int64(types.int64, types.UniTuple(types.int64, len(wide) - 1)), generate

    return call


_ask = _caller("88")  # XLA's functions: a structure, and an error or null
_get_device = _caller("84")
_fill = _caller("84884")
_launch = _caller("844444448884")


@compiled
def _error(frame: Frame, message: int) -> int:
    asked = np.zeros(4, dtype=np.int64)
    asked[0], asked[2], asked[3] = 32, message, _INTERNAL_ERROR
    error: int = _ask(_words(frame[_API], _STREAM_GET + 1)[_ERROR_CREATE], (asked.ctypes.data,))
    asked[0] = 0  # It is in use until here.
    return error


@compiled
def _handle(table: IntArray, key: int, device: int) -> int:
    for k in range(table[_COUNT]):
        at = _FIRST + 3 * k
        if table[at] == key and table[at + 1] == device:
            return int(table[at + 2])
    return 0


@compiled
def _address(frame: Frame, word: int) -> int:
    """Where an address of a recipe is in this run."""
    source, offset = word >> OFFSET_BITS, word & ((1 << OFFSET_BITS) - 1)
    if source == 0:
        return 0
    entries, k, n_arguments = frame[_ARGUMENTS], source - 1, frame[_ARGUMENT_COUNT]
    if k >= n_arguments:
        entries, k = frame[_RESULTS], k - n_arguments
    return int(_words(_words(entries, k + 1)[k], _DATA + 1)[_DATA]) + offset


@compiled
def _start(table: IntArray, launch: IntArray, packed: IntArray, device: int, stream: int) -> int:
    """Make one launch, with its arguments: the driver's status, or -1 where the kernel is unknown."""
    key, grid, threads, shared_bytes = launch[0], launch[1], launch[2], launch[3]
    if key == 0:
        return int(_fill(table[_FILL], (packed[0], 0, grid, stream)))
    handle = _handle(table, key, device)
    if handle == 0:
        return -1
    size, extra = np.empty(1, dtype=np.int64), np.zeros(5, dtype=np.int64)
    size[0] = 8 * launch[4] + launch[5]
    # As `Packed` in `kernels.cuda`.
    extra[0], extra[1], extra[2], extra[3] = 1, packed.ctypes.data, 2, size.ctypes.data
    status: int = _launch(
        table[_LAUNCH],
        (handle, grid, 1, 1, threads, 1, 1, shared_bytes, stream, 0, extra.ctypes.data),
    )
    # They are in use until here.
    size[0] = extra[0] = 0
    return status


@compiled
def _follow(frame: Frame) -> int:
    """Follow the recipe of a call; an error of XLA, or 0."""
    table = _words(_table_address(), _FIRST + 3 * _MOST_ENTRIES)
    asked = np.zeros(4, dtype=np.int64)
    asked[0], asked[2] = 32, frame[_CONTEXT]
    error: int = _ask(_words(frame[_API], _STREAM_GET + 1)[_STREAM_GET], (asked.ctypes.data,))
    stream = asked[3]
    if error != 0:
        return error
    asked[0] = 0
    if _get_device(table[_DEVICE], (asked.ctypes.data,)) != 0:
        return _error(frame, table[_REFUSED])
    device = asked[0]
    array = _words(_words(frame[_ATTRIBUTES], 1)[0], _ARRAY_DATA + 1)
    words, at = _words(array[_ARRAY_DATA], array[_ARRAY_SIZE]), 1
    for _ in range(words[0]):
        launch = words[at : at + 6]
        count = launch[4] + (launch[5] + 7) // 8
        packed = words[at + 6 : at + 6 + count].copy()
        for k in range(launch[4]):
            packed[k] = _address(frame, packed[k])
        status = _start(table, launch, packed, device, stream)
        packed[:] = 0
        if status != 0:
            return _error(frame, table[_UNKNOWN] if status < 0 else table[_REFUSED])
        at += 6 + count
    return 0


def _launches(frame: Frame) -> Any:
    if _is_to_run(frame, _FITS_GRAPHS):
        return _pointer(_follow(frame))
    return _pointer(0)


@functools.cache
def handler() -> Any:
    """The call that follows recipes, with its `address`. It must outlive the programs that call it."""
    return cast(Any, compiled_for_c(types.voidptr(types.CPointer(types.int64)), _launches))
