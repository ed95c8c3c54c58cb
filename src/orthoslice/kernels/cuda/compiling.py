"""CUDA C++ made into what a GPU runs, when it is first needed, and kept on disk.

NVRTC, NVIDIA's compiler as a library, comes with CUDA builds of PyTorch, and with newer ones so do its Python
bindings (the package ``cuda-bindings``): no toolkit is needed. What is compiled goes to a folder, by default
``~/.cache/orthoslice`` and otherwise ``$ORTHOSLICE_CACHE_DIR``; one that cannot be used means compiling again
in every process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

# A block may use this much shared memory without asking.
_FREE_SHARED_BYTES = 48 * 1024

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


_lock = threading.Lock()
_allowed_bytes: dict[tuple[str, Program, int], int] = {}


def compiled_function(name: str, program: Program, device: int, shared_bytes: int) -> int:
    """The driver's handle of a kernel that may have as much shared memory."""
    import torch
    from cuda.bindings import driver

    # One at a time: what is loaded twice has two handles.
    with _lock, torch.cuda.device(device):
        module = _module(program, device)
        function = checked(in_context(device, lambda: driver.cuModuleGetFunction(module, name.encode())))
        key = name, program, device
        if shared_bytes > _allowed_bytes.get(key, _FREE_SHARED_BYTES):
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(in_context(device, lambda: driver.cuFuncSetAttribute(function, limit, shared_bytes)))
            _allowed_bytes[key] = shared_bytes
    return int(function)


def in_context(device: int, call: Callable[[], Any]) -> Any:
    """What a call of the driver answers, asked again if it is the first that this thread has to do with it.

    Torch sees to a context when it allocates, but not if it has the memory already.
    """
    from cuda.bindings import driver

    answer = call()
    if answer[0].value == _NO_CONTEXT:
        context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(device))))
        checked(driver.cuCtxSetCurrent(context))
        answer = call()
    return answer


@functools.cache
def _module(program: Program, device: int) -> Any:
    import torch
    from cuda.bindings import driver

    code = _machine_code(program, torch.cuda.get_device_capability(device))
    return checked(in_context(device, lambda: driver.cuModuleLoadData(code)))


def _machine_code(program: Program, capability: tuple[int, int]) -> bytes:
    from cuda.bindings import nvrtc

    options = ["--gpu-architecture=sm_{}{}".format(*capability), "--std=c++17", *program.flags]
    source = _PRELUDE + program.path.read_text()
    headers = {path.name: path.read_text() for path in sorted(program.path.parent.glob("*.cuh"))}
    version = checked(nvrtc.nvrtcVersion())
    key = hashlib.sha256(repr((source, headers, options, version)).encode()).hexdigest()
    kept = _find(f"{key}.cubin")
    if kept is not None:
        return kept
    texts, names = ([text.encode() for text in part] for part in (headers.values(), headers.keys()))
    name = program.path.name.encode()
    compiler = checked(nvrtc.nvrtcCreateProgram(source.encode(), name, len(names), texts, names))
    (status,) = nvrtc.nvrtcCompileProgram(compiler, len(options), [o.encode() for o in options])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(compiler))
        nvrtc.nvrtcGetProgramLog(compiler, log)
        raise RuntimeError(f"{program.path.name} could not be compiled with {options}:\n{log.decode()}")
    code: bytes = b" " * checked(nvrtc.nvrtcGetCUBINSize(compiler))
    checked(nvrtc.nvrtcGetCUBIN(compiler, code))
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


def checked(answer: Any) -> Any:
    """What a call of the bindings returned beside its status, or an error."""
    status, *rest = answer if isinstance(answer, tuple) else (answer,)
    if status.value != 0:
        raise RuntimeError(f"CUDA refused: {status!r}.")
    # A tuple is returned where a call answers with more than one thing, such as a version.
    return rest[0] if len(rest) == 1 else tuple(rest)
