"""CUDA C++ made into what a GPU runs, when it is first needed, and kept on disk.

NVRTC, NVIDIA's compiler as a library, comes with CUDA builds of PyTorch, and with newer ones so do its Python
bindings (the package ``cuda-bindings``): no toolkit is needed. What is compiled goes to a folder
(:mod:`orthoslice.backend.caching`); one that cannot be used means compiling again in every process.

Sources are compiled for classes of sizes; sizes themselves are arguments of kernels. Where the folder lacks a
program that is needed, the other programs that it lacks are compiled at the same time by threads in the
background, since clouds of other sizes will need them; NVRTC works without the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orthoslice.backend.caching import can_keep, find, keep
from orthoslice.backend.kernels.compile_notice import say_if_slow
from orthoslice.backend.threads import default_workers

# What the sources need to know of where they run.
_PRELUDE = """\
#define SHARED(type, name) extern __shared__ type name[]
// c (8, 8) += a (8, 4) b (4, 8) by the lanes of a warp: lane l holds a[l / 4, l % 4], b[l % 4, l / 4],
// c[l / 4, 2 (l % 4)] and the entry of c after that.
__device__ __forceinline__ void multiply_add(double& c0, double& c1, double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c0), "+d"(c1) : "d"(a), "d"(b));
}
// c (16, 8) += a (16, 16) b (16, 8): lane l holds a[l / 4 + 8 h, l % 4 + 4 k] as a[2 k + h] and
// b[l % 4 + 4 k, l / 4] as b[k]; of the upper and lower half of c what the function above has it hold.
// Hopper has an instruction for it.
__device__ __forceinline__ void multiply_add(
    double2& upper, double2& lower, const double (&a)[8], const double (&b)[4]) {
#if __CUDA_ARCH__ == 900
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(upper.x), "+d"(upper.y), "+d"(lower.x), "+d"(lower.y)
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
    for (int k = 0; k < 4; k++) {
        multiply_add(upper.x, upper.y, a[2 * k], b[k]);
        multiply_add(lower.x, lower.y, a[2 * k + 1], b[k]);
    }
#endif
}
// Start to copy two numbers from global to shared memory, past the cache of the multiprocessor.
__device__ __forceinline__ void start_copy(double* to, const double* from) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(at), "l"(from) : "memory");
}
// Wait for the copies that this thread has started.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }
// 1 / value, to 20 bits.
__device__ __forceinline__ double rough_inverse(double value) {
    double rough;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(rough) : "d"(value));
    return rough;
}
"""

# A kernel may use this much shared memory without raising its limit.
_FREE_SHARED_BYTES = 48 * 1024

# CUDA_ERROR_INVALID_CONTEXT: the thread has no current context.
_NO_CONTEXT = 201


# Threads that compile in the background, at most.
_MOST_THREADS = 16

_declared: list[Program] = []
"""Every program there is."""


# `eq=False`: programs are compared by identity, which is quick, and there is one object of each.
@dataclass(frozen=True, eq=False)
class Program:
    """A source in this folder and the numbers it is compiled with.

    To be made when a module is imported, so that it can be compiled together with the others.
    """

    source: str
    defines: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        _declared.append(self)

    @property
    def path(self) -> Path:
        return Path(__file__).with_name(f"{self.source}.cu")

    @property
    def flags(self) -> list[str]:
        return [f"-D{name}={value}" for name, value in self.defines]

    @property
    def effort(self) -> int:
        """Grows with the time that it takes to compile, where loops over a thread's numbers are written out."""
        defined = dict(self.defines)
        return defined.get("ITEMS", 0) * (1 + defined.get("PAIRS", 0))


_lock = threading.Lock()
_allowed_bytes: dict[tuple[str, Program, int], int] = {}


def compiled_function(name: str, program: Program, device: int, shared_bytes: int) -> int:
    """The driver's handle of a kernel, which may use `shared_bytes` of shared memory."""
    from cuda.bindings import driver

    code = machine_code(program, device)
    # One thread at a time: a module loaded twice would have two handles.
    with _lock, _made_current(device):
        function = checked(driver.cuModuleGetFunction(_module(program, device, code), name.encode()))
        key = name, program, device
        if shared_bytes > _allowed_bytes.get(key, _FREE_SHARED_BYTES):
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(driver.cuFuncSetAttribute(function, limit, shared_bytes))
            _allowed_bytes[key] = shared_bytes
    return int(function)


def machine_code(program: Program, device: int) -> bytes:
    """A program compiled for a device."""
    with say_if_slow("compiling GPU kernels, once for this GPU"):
        return _machine_code(program, "sm_{}{}".format(*capability(device)))


@functools.cache
def attribute(device: int, name: str) -> int:
    """What the driver says of a device, by the end of the name of a `CUdevice_attribute`."""
    from cuda.bindings import driver

    checked(driver.cuInit(0))
    which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(checked(driver.cuDeviceGetAttribute(which, checked(driver.cuDeviceGet(device)))))


def capability(device: int) -> tuple[int, int]:
    """The compute capability of a device."""
    major, minor = (attribute(device, f"COMPUTE_CAPABILITY_{which}") for which in ("MAJOR", "MINOR"))
    return major, minor


@functools.cache
def _primary_context(device: int) -> Any:
    """The context that libraries share on a device."""
    from cuda.bindings import driver

    checked(driver.cuInit(0))
    return checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(device))))


@contextlib.contextmanager
def _made_current(device: int) -> Iterator[None]:
    from cuda.bindings import driver

    checked(driver.cuCtxPushCurrent(_primary_context(device)))
    try:
        yield
    finally:
        checked(driver.cuCtxPopCurrent())


def in_context(device: int, call: Callable[[], Any]) -> Any:
    """Call the driver; if this thread has no context, make the device's primary one current and call again.

    Torch makes a context current when it allocates, but not when it reuses memory.
    """
    from cuda.bindings import driver

    answer = call()
    if answer[0].value == _NO_CONTEXT:
        checked(driver.cuCtxSetCurrent(_primary_context(device)))
        answer = call()
    return answer


@functools.cache
def _module(program: Program, device: int, code: bytes) -> Any:
    from cuda.bindings import driver

    return checked(driver.cuModuleLoadData(code))


_codes: dict[tuple[Program, str], Future[bytes]] = {}
_codes_lock = threading.Lock()
_started: set[str] = set()
"""Architectures for which programs have been compiled in the background."""


def _machine_code(program: Program, target: str) -> bytes:
    """Machine code for an architecture: from the folder, or compiled by the first thread that needs it."""
    with _codes_lock:
        code = _codes.get((program, target))
        is_first = code is None
        if code is None:
            code = _codes[program, target] = Future()
    if is_first:
        try:
            code.set_result(_find_or_compile(program, target))
        except BaseException as error:
            # Threads that wait for this code fail too; later calls try again.
            del _codes[program, target]
            code.set_exception(error)
    return code.result()


def _find_or_compile(program: Program, target: str) -> bytes:
    from cuda.bindings import nvrtc

    options = [f"--gpu-architecture={target}", "--std=c++17", *program.flags]
    source = _PRELUDE + program.path.read_text()
    headers = {path.name: path.read_text() for path in sorted(program.path.parent.glob("*.cuh"))}
    version = checked(nvrtc.nvrtcVersion())
    key = hashlib.sha256(repr((source, headers, options, version)).encode()).hexdigest()
    code = find(f"{key}.cubin")
    if code is None:
        _compile_others(target)
        code = _compile(program.path.name, source, headers, options)
        keep(f"{key}.cubin", code)
    return code


def _compile(name: str, source: str, headers: dict[str, str], options: list[str]) -> bytes:
    from cuda.bindings import nvrtc

    texts, names = ([text.encode() for text in part] for part in (headers.values(), headers.keys()))
    compiler = checked(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), len(names), texts, names))
    (status,) = nvrtc.nvrtcCompileProgram(compiler, len(options), [o.encode() for o in options])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(compiler))
        nvrtc.nvrtcGetProgramLog(compiler, log)
        raise RuntimeError(f"{name} could not be compiled with {options}:\n{log.decode()}")
    code: bytes = b" " * checked(nvrtc.nvrtcGetCUBINSize(compiler))
    checked(nvrtc.nvrtcGetCUBIN(compiler, code))
    nvrtc.nvrtcDestroyProgram(compiler)
    return code


def _compile_others(target: str) -> None:
    """Start threads that compile all programs for an architecture, once a process, if the cache is writable."""
    with _codes_lock:
        if target in _started or not can_keep():
            return
        _started.add(target)
    # The longest compilations come first, so that none of them is left to the end.
    waiting = deque(sorted(_declared, key=lambda program: -program.effort))
    for _ in range(min(_MOST_THREADS, default_workers() - 1)):
        threading.Thread(target=_compile_all, args=(waiting, target), name="orthoslice-compiler").start()


def _compile_all(waiting: deque[Program], target: str) -> None:
    # Python waits for these threads at exit: they begin nothing new once the main thread has ended.
    while waiting and threading.main_thread().is_alive():
        # IndexError: another thread took the last one. RuntimeError: raised again for a caller that needs it.
        with contextlib.suppress(IndexError, RuntimeError):
            _machine_code(waiting.popleft(), target)


def checked(answer: object) -> Any:
    """What a call of the bindings returned beside its status, or an error."""
    status, *rest = answer if isinstance(answer, tuple) else (answer,)
    if status.value != 0:
        raise RuntimeError(f"CUDA refused: {status!r}.")
    # Calls that return several values, such as a version, give a tuple.
    return rest[0] if len(rest) == 1 else tuple(rest)
