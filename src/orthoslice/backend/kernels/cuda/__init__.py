"""CUDA C++ kernels for tensors on an NVIDIA GPU: how they are started, and why they are refused."""

from __future__ import annotations

import ctypes
import functools
import importlib
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda.compiling import (
    Program,
    attribute,
    capability,
    checked,
    compiled_function,
    in_context,
)
from orthoslice.backend.kernels.cuda.recording import Recorded, is_recorded, real_device, recording_starter
from orthoslice.backend.torch_internals import current_device, current_stream

__all__ = [
    "BUCKET",
    "LONGEST_CUDA_ROW",
    "Kernel",
    "Launch",
    "Packed",
    "Program",
    "Start",
    "bind",
    "cuda_refusal",
    "current_stream",
    "device_and_stream",
    "device_refusal",
    "empty",
    "free_bytes",
    "most_shared_bytes",
    "starter",
]

BUCKET = 3584
"""Numbers that a bucket of a long row holds on average: less than half of what a block sorts."""

LONGEST_CUDA_ROW = BUCKET * 2048
"""Longer rows would be dealt to more buckets than a block has room for."""

# Warp-wide maxima and matrix products of double precision came with Ampere.
_LEAST_CAPABILITY = (8, 0)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel of a program: how many addresses it takes, and the numbers after them, as :mod:`struct`.

    Numbers are settled when a kernel is bound. One that changes from call to call, such as the first of the
    blocks to draw, stands among the addresses, as an integer of 64 bits.
    """

    name: str
    addresses: int
    numbers: str = ""


class Packed:
    """Room for the arguments of a kernel, laid out as it reads them: addresses, then numbers."""

    def __init__(self, addresses: int, layout: str, numbers: tuple[float, ...]) -> None:
        whole = struct.Struct(f"{addresses}P{layout}")
        self.room = ctypes.create_string_buffer(whole.size)
        whole.pack_into(self.room, 0, *(0,) * addresses, *numbers)
        self.addresses = struct.Struct(f"{addresses}P")
        self._size = ctypes.c_size_t(whole.size)
        # CU_LAUNCH_PARAM_BUFFER_POINTER is 1, CU_LAUNCH_PARAM_BUFFER_SIZE is 2, CU_LAUNCH_PARAM_END is 0.
        self._extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(self.room), 2, ctypes.addressof(self._size), 0)
        self.extra = ctypes.addressof(self._extra)


Start: TypeAlias = Callable[[int, Packed], None]
"""Start a kernel on a stream with these arguments."""


class Launch:
    """A kernel bound to all its arguments but the addresses of tensors, to be started many times."""

    def __init__(
        self,
        kernel: Kernel,
        program: Program,
        device: int,
        grid: int,
        threads: int,
        shared_bytes: int,
        numbers: tuple[float, ...],
    ) -> None:
        self._start = starter(kernel.name, program, device, grid, threads, shared_bytes)
        self._device = device
        self._arguments = kernel.addresses, kernel.numbers, numbers
        # Threads must not write over each other's arguments.
        self._here = threading.local()

    def __call__(self, *where: Tensor) -> None:
        """Start it on the current stream of its device.

        Takes tensors, addresses or other integers of 64 bits; None is the null pointer.
        """
        try:
            packed = self._here.packed
        except AttributeError:
            packed = self._here.packed = Packed(*self._arguments)
        addresses = [a if type(a) is int else 0 if a is None else a.data_ptr() for a in where]
        packed.addresses.pack_into(packed.room, 0, *addresses)
        device = self._device
        # The device must be current: one stream number, such as 0, means another stream on each device.
        if device < 0 or current_device() == device:
            self._start(0 if device < 0 else current_stream(device), packed)
            return
        with sys.modules["torch"].cuda.device(device):
            self._start(current_stream(device), packed)


@functools.lru_cache(maxsize=1024)
def bind(
    kernel: Kernel, program: Program, device: int, grid: int, threads: int, shared_bytes: int, *numbers: float
) -> Launch:
    """A kernel with `grid` blocks and these numbers, kept for the next time."""
    return Launch(kernel, program, device, grid, threads, shared_bytes, numbers)


@functools.cache
def most_shared_bytes(device: int) -> int:
    """Bytes of shared memory that a block may have on a device; 2**30 in host memory (-1)."""
    device = real_device(device)
    if device < 0:
        return 1 << 30
    return attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


def free_bytes(tensor: Tensor) -> int:
    """Bytes of free memory on the device of a tensor."""
    free, _ = sys.modules["torch"].cuda.mem_get_info(tensor.device)
    return int(free)


def device_and_stream(tensor: Tensor) -> tuple[int, int]:
    """Where kernels for a tensor would be started now."""
    device = tensor.get_device()
    return device, current_stream(device)


def empty(like: Tensor, shape: tuple[int, ...], kind: str) -> Tensor:
    """An uninitialised tensor on the device of `like`; `kind` names its type."""
    if isinstance(like, Recorded):
        return like.new_empty(shape, kind)
    return like.new_empty(shape, dtype=getattr(sys.modules["torch"], kind))


def is_on_gpu(array: object) -> bool:
    """Whether this is a tensor in the memory of an NVIDIA GPU."""
    return bool(getattr(array, "is_cuda", False))


def cuda_refusal(*arrays: Any, dtype: str | tuple[str, ...] = "float32") -> str | None:
    """Why the kernels cannot take these arrays, of a type or of one of several types; None if they can."""
    names = (dtype,) if isinstance(dtype, str) else dtype
    for array in arrays:
        if not is_on_gpu(array):
            return "it takes torch tensors on an NVIDIA GPU"
        if all(array.dtype != getattr(sys.modules["torch"], name) for name in names):
            return f"it takes {' and '.join(names)}, not {array.dtype}"
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            return "it leaves no trace on a gradient tape"
    return device_refusal(arrays[0].get_device())


@functools.cache
def device_refusal(device: int) -> str | None:
    """Why nothing can be compiled for a device in this process, or None if it can."""
    if sys.platform != "linux":
        return "it runs on Linux"
    try:
        checked(importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion())
        is_old = capability(device) < _LEAST_CAPABILITY
    except (ImportError, OSError, RuntimeError) as error:
        # Also where the bindings are there, but for another version of CUDA than that of torch or JAX.
        return f"NVRTC cannot be reached ({error}); `pip install cuda-bindings` of the version of CUDA in use"
    if is_old:
        return "it takes GPUs of compute capability 8.0 (Ampere) or newer"
    return None


def starter(name: str, program: Program, device: int, grid: int, threads: int, shared_bytes: int) -> Start:
    """A function that starts a kernel with `grid` blocks on a device, which must be current."""
    if is_recorded(device):
        return recording_starter(name, program, device, grid, threads, shared_bytes)
    from cuda.bindings import driver

    # Numbers are passed on faster than objects of the bindings.
    handle = compiled_function(name, program, device, shared_bytes)
    shape = handle, grid, 1, 1, threads, 1, 1, shared_bytes
    start_kernel, success = driver.cuLaunchKernel, driver.CUresult.CUDA_SUCCESS

    def start(stream: int, packed: Packed) -> None:
        (status,) = start_kernel(*shape, stream, 0, packed.extra)
        if status is not success:
            (status,) = in_context(device, lambda: start_kernel(*shape, stream, 0, packed.extra))
            if status is not success:
                raise RuntimeError(f"CUDA refused to start `{name}`: {status!r}.")

    return start
