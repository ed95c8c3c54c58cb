"""Programs of JAX that launch CUDA kernels, run on the processor: its driver and XLA's stream are made up."""

from __future__ import annotations

import ctypes
import functools
import hashlib

import pytest
from backend.kernels.cuda import cuda_on_host

from orthoslice.backend.kernels import cuda, xla, xla_launches
from orthoslice.backend.kernels.cuda import compiling, recording

_STREAM = 4321
_LAUNCHED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
_DEVICE_GOT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
_FILLED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p)
_CALLED = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))


_kept: list[object] = []


class Driver:
    """What happened, and the functions of a driver that note it."""

    def __init__(self) -> None:
        self.kernels: list[tuple[str, cuda.Program]] = []
        self.launched: list[str] = []
        self.streams: set[int] = set()
        self.status = 0
        self.functions = _LAUNCHED(self._launch), _DEVICE_GOT(self._get_device), _FILLED(self._fill)

    def handle(self, name: str, program: cuda.Program, device: int, shared_bytes: int) -> int:
        self.kernels.append((name, program))
        return len(self.kernels)

    def _launch(self, handle, grid, gy, gz, threads, by, bz, shared, stream, none, extra):
        name, program = self.kernels[handle - 1]
        assert (gy, gz, by, bz, none) == (1, 1, 1, 1, None)
        self.launched.append(name)
        self.streams.add(stream)
        if self.status:
            return self.status
        first, packed, second, size, end = (ctypes.c_int64 * 5).from_address(extra)
        assert (first, second, end) == (1, 2, 0)
        assert ctypes.c_size_t.from_address(size).value > 0
        function = getattr(cuda_on_host._library(program), f"start_{name}")
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
        return function(grid, threads, shared, packed)

    def _get_device(self, device):
        device[0] = 0
        return 0

    def _fill(self, to, value, words, stream):
        assert value == 0
        self.streams.add(stream)
        ctypes.memset(to, 0, 4 * words)
        return 0


@_CALLED
def _get_stream(asked):
    asked[3] = _STREAM
    return


@functools.cache
def _register() -> None:
    """Have XLA call the handler on the CPU, with a table of functions that has a stream."""
    from orthoslice.backend.kernels.numba import launching

    handler = _CALLED(launching.handler().address)

    @_CALLED
    def call(frame):
        theirs = frame[launching._API]
        if theirs:
            functions = (ctypes.c_int64 * 32)()
            ctypes.memmove(functions, theirs, 8 * 24)
            functions[launching._STREAM_GET] = ctypes.cast(_get_stream, ctypes.c_void_p).value
            frame[launching._API] = ctypes.addressof(functions)
        try:
            return handler(frame)
        finally:
            frame[launching._API] = theirs

    _kept.append(call)
    xla_launches.register_handler(xla_launches._TARGET, ctypes.cast(call, ctypes.c_void_p).value, "cpu")


def hook(patch: pytest.MonkeyPatch) -> Driver:
    """Have recipes be written for a GPU that there is not, and followed on the processor."""
    from orthoslice.backend.kernels.numba import launching

    driver = Driver()
    xla_launches._rows_recipe.cache_clear()
    xla_launches._small_recipe.cache_clear()
    xla_launches._check_recipe.cache_clear()
    patch.setattr(xla_launches, "gpus", lambda: (0,))
    patch.setattr(xla_launches, "process_refusal", lambda: None)
    patch.setattr(xla, "_interface_refusal", lambda: None)
    patch.setattr(xla_launches, "PLATFORM", "cpu")
    patch.setattr(cuda, "attribute", lambda device, name: 227 * 1024)
    patch.setattr(compiling, "compiled_function", driver.handle)
    patch.setattr(recording, "kernel_key", _key)
    launching._table[launching._COUNT] = 0
    launching.set_driver(*driver.functions)
    _register()
    return driver


def _key(name: str, program: cuda.Program, device: int) -> int:
    digest = hashlib.sha256(repr((name, program.source, program.defines)).encode()).digest()
    return int.from_bytes(digest[:7], "big")
