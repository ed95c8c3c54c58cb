"""CUDA C++ kernels, compiled when first used for tensors on an NVIDIA GPU, and kept on disk.

NVRTC, NVIDIA's compiler as a library, comes with CUDA builds of PyTorch, and with newer ones so do its Python
bindings (the package ``cuda-bindings``): no toolkit is needed. What is compiled goes to a folder, by default
``~/.cache/orthoslice`` and otherwise ``$ORTHOSLICE_CACHE_DIR``; one that cannot be used means compiling again
in every process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias


class Packed:
    """Room for the arguments of a kernel, laid out as it reads them: addresses, then numbers."""

    def __init__(self, addresses: int, layout: str, numbers: tuple[Any, ...]) -> None:
        whole = struct.Struct(f"{addresses}P{layout}")
        self.room = ctypes.create_string_buffer(whole.size)
        whole.pack_into(self.room, 0, *(0,) * addresses, *numbers)
        self.addresses = struct.Struct(f"{addresses}P")
        self._size = ctypes.c_size_t(whole.size)
        # What the driver asks for: "the buffer is", "its size is", "end".
        self._extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(self.room), 2, ctypes.addressof(self._size), 0)
        self.extra = ctypes.addressof(self._extra)


Start: TypeAlias = Callable[[int, int, int, int, Packed], None]
"""Start a kernel: blocks, threads a block, bytes of shared memory, stream, arguments."""

# What the sources need to know of where they run.
_PRELUDE = """\
#define SHARED(type, name) extern __shared__ type name[]
// c (8, 8) += a (8, 4) b (4, 8) by the lanes of a warp: lane l holds a[l / 4, l % 4], b[l % 4, l / 4],
// c[l / 4, 2 (l % 4)] and the entry of c after that.
__device__ __forceinline__ void multiply_add(double& c0, double& c1, double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c0), "+d"(c1) : "d"(a), "d"(b));
}
// 1 / value, to 20 bits.
__device__ __forceinline__ double rough_inverse(double value) {
    double rough;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(rough) : "d"(value));
    return rough;
}
"""

BUCKET = 3584
"""Numbers that a bucket of a long row holds on average: less than half of what a block sorts."""

LONGEST_CUDA_ROW = BUCKET * 2048
"""Longer rows would be dealt to more buckets than a block has room for."""

# Warp-wide maxima and matrix products of double precision came with Ampere.
_LEAST_CAPABILITY = (8, 0)

# A block may use this much shared memory without asking, and on every GPU taken here this much if it asks.
_FREE_SHARED_BYTES = 48 * 1024
_SHARED_BYTES = 99 * 1024

# The driver's word for a thread that talks to no device.
_NO_CONTEXT = 201


# Told apart by identity, which is quick: there is one of each.
@dataclass(frozen=True, eq=False)
class Program:
    """A source in this folder and the numbers it is compiled with."""

    source: str
    defines: tuple[tuple[str, int], ...] = ()

    @property
    def path(self) -> Path:
        return Path(__file__).with_name(f"{self.source}.cu")

    @property
    def flags(self) -> list[str]:
        return [f"-D{name}={value}" for name, value in self.defines]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel of a program: how many addresses it takes, and the numbers after them, as :mod:`struct`."""

    name: str
    addresses: int
    numbers: str = ""


class Launch:
    """A kernel ready to be started again and again: all that it is told but for where its tensors are."""

    def __init__(
        self,
        kernel: Kernel,
        program: Program,
        device: int,
        grid: int,
        threads: int,
        shared_bytes: int,
        numbers: tuple[Any, ...],
    ) -> None:
        self._start = compiled_kernel(kernel.name, program, device)
        self._device = device
        self._shape = grid, threads, shared_bytes
        self._arguments = kernel.addresses, kernel.numbers, numbers
        # Threads must not write over each other's arguments.
        self._here = threading.local()

    def __call__(self, *where: Any) -> None:
        """Start it on the current stream of its device.

        Takes tensors or addresses; None is the null pointer.
        """
        try:
            packed = self._here.packed
        except AttributeError:
            packed = self._here.packed = Packed(*self._arguments)
        addresses = [a if type(a) is int else 0 if a is None else a.data_ptr() for a in where]
        packed.addresses.pack_into(packed.room, 0, *addresses)
        device = self._device
        # The driver must talk to the device: streams are numbered for each apart.
        if device < 0 or sys.modules["torch"]._C._cuda_getDevice() == device:
            self._start(*self._shape, current_stream(device), packed)
            return
        with sys.modules["torch"].cuda.device(device):
            self._start(*self._shape, current_stream(device), packed)


@functools.lru_cache(maxsize=4096)
def bind(
    kernel: Kernel, program: Program, device: int, grid: int, threads: int, shared_bytes: int, *numbers: Any
) -> Launch:
    """A kernel with `grid` blocks and these numbers, kept for the next time."""
    return Launch(kernel, program, device, grid, threads, shared_bytes, numbers)


@functools.cache
def most_shared_bytes(device: int) -> int:
    """Shared memory that a block may have on a device; as much as it likes in host memory."""
    if device < 0:
        return 1 << 30
    known = sys.modules["torch"].cuda.get_device_properties(device)
    return int(getattr(known, "shared_memory_per_block_optin", _SHARED_BYTES))


def empty(like: Any, shape: tuple[int, ...], kind: str) -> Any:
    """Memory beside a tensor, of a type by its name."""
    return like.new_empty(shape, dtype=getattr(sys.modules["torch"], kind))


def cuda_refusal(*arrays: Any, dtype: str = "float32") -> str | None:
    """Why the kernels cannot take these arrays, or None if they can."""
    for array in arrays:
        if not getattr(array, "is_cuda", False):
            return "it takes torch tensors on an NVIDIA GPU"
        if array.dtype != getattr(sys.modules["torch"], dtype):
            return f"it takes {dtype}, not {array.dtype}"
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            return "it leaves no trace on a gradient tape"
    return device_refusal(arrays[0].get_device())


@functools.cache
def device_refusal(device: int) -> str | None:
    """Why nothing can be compiled for a device in this process, or None if it can."""
    import torch

    if sys.platform != "linux":
        return "it runs on Linux"
    try:
        _checked(importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion())
    except (ImportError, OSError, RuntimeError) as error:
        # Also where the bindings are there, but for another version of CUDA than torch's.
        return f"NVRTC cannot be reached ({error}); `pip install cuda-bindings` of torch's version of CUDA"
    if torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return "it takes GPUs of compute capability 8.0 (Ampere) or newer"
    return None


def current_stream(device: int) -> int:
    """The stream that torch would use next on a device."""
    return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device))


@functools.cache
def compiled_kernel(name: str, program: Program, device: int) -> Start:
    """What starts a kernel on a device, which the driver must talk to."""
    from cuda.bindings import driver

    function = _checked(driver.cuModuleGetFunction(_module(program, device), name.encode()))
    # A number is passed on faster than an object of the bindings.
    handle, start_kernel, lock = int(function), driver.cuLaunchKernel, threading.Lock()
    allowed = _FREE_SHARED_BYTES

    def allow(shared_bytes: int) -> None:
        nonlocal allowed
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with lock:
            if shared_bytes > allowed:
                _checked(driver.cuFuncSetAttribute(function, limit, shared_bytes))
                allowed = shared_bytes

    def start(grid: int, threads: int, shared_bytes: int, stream: int, packed: Packed) -> None:
        if shared_bytes > allowed:
            allow(shared_bytes)
        rest = (grid, 1, 1, threads, 1, 1, shared_bytes, stream, 0, packed.extra)
        status = start_kernel(handle, *rest)[0].value
        if status == _NO_CONTEXT:
            # A thread that has not met the driver yet, though torch served it memory that it had.
            _bind(device)
            status = start_kernel(handle, *rest)[0].value
        if status:
            raise RuntimeError(f"CUDA refused to start `{name}`: {driver.CUresult(status)!r}.")

    return start


def _bind(device: int) -> None:
    """Have this thread talk to the context of a device that torch shares with everybody."""
    from cuda.bindings import driver

    context = _checked(driver.cuDevicePrimaryCtxRetain(_checked(driver.cuDeviceGet(device))))
    _checked(driver.cuCtxSetCurrent(context))


@functools.cache
def _module(program: Program, device: int) -> Any:
    import torch
    from cuda.bindings import driver

    with torch.cuda.device(device):
        # The driver loads into the context that the thread talks to. Torch sees to that with an allocation,
        # unless it has the memory already.
        torch.empty(1, device="cuda")
        code = _machine_code(program, torch.cuda.get_device_capability(device))
        answer = driver.cuModuleLoadData(code)
        if answer[0].value == _NO_CONTEXT:
            _bind(device)
            answer = driver.cuModuleLoadData(code)
        return _checked(answer)


def _machine_code(program: Program, capability: tuple[int, int]) -> bytes:
    from cuda.bindings import nvrtc

    options = ["--gpu-architecture=sm_{}{}".format(*capability), "--std=c++17", *program.flags]
    source = _PRELUDE + program.path.read_text()
    headers = {path.name: path.read_text() for path in sorted(program.path.parent.glob("*.cuh"))}
    version = _checked(nvrtc.nvrtcVersion())
    key = hashlib.sha256(repr((source, headers, options, version)).encode()).hexdigest()
    kept = _find(f"{key}.cubin")
    if kept is not None:
        return kept
    texts, names = ([text.encode() for text in part] for part in (headers.values(), headers.keys()))
    name = program.path.name.encode()
    compiler = _checked(nvrtc.nvrtcCreateProgram(source.encode(), name, len(names), texts, names))
    (status,) = nvrtc.nvrtcCompileProgram(compiler, len(options), [o.encode() for o in options])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(compiler))
        nvrtc.nvrtcGetProgramLog(compiler, log)
        raise RuntimeError(f"{program.path.name} could not be compiled with {options}:\n{log.decode()}")
    code: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(compiler))
    _checked(nvrtc.nvrtcGetCUBIN(compiler, code))
    nvrtc.nvrtcDestroyProgram(compiler)
    _keep(f"{key}.cubin", code)
    return code


def _cache_directory() -> Path:
    chosen = os.environ.get("ORTHOSLICE_CACHE_DIR")
    return Path(chosen) if chosen else Path.home() / ".cache" / "orthoslice"


# What cannot be read or written, for whatever reason, is compiled again: no home, no permission, no room.
_UNUSABLE = (OSError, RuntimeError)


def _find(name: str) -> bytes | None:
    try:
        return (_cache_directory() / name).read_bytes() or None
    except _UNUSABLE:
        return None


def _keep(name: str, code: bytes) -> None:
    """Store what was compiled, whole or not at all: other processes may be doing the same."""
    with contextlib.suppress(*_UNUSABLE):
        folder = _cache_directory()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as draft:
            path = Path(draft) / name
            path.write_bytes(code)
            path.replace(folder / name)


def _checked(answer: Any) -> Any:
    """What a call of the bindings returned beside its status, or an error."""
    status, *rest = answer if isinstance(answer, tuple) else (answer,)
    if status.value != 0:
        raise RuntimeError(f"CUDA refused: {status!r}.")
    # A tuple is returned where a call answers with more than one thing, such as a version.
    return rest[0] if len(rest) == 1 else tuple(rest)
