"""Compile CUDA kernels for the processor, so that they can be tested without a GPU."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from orthoslice.backend.kernels import cuda
from orthoslice.backend.kernels.cuda import directions

_HEADER = Path(__file__).with_name("cuda_on_host.h")
# Libraries are kept for later runs and other test processes: to compile takes longer than most tests.
_KEPT = Path(__file__).parent / "__pycache__" / "cuda_on_host"
_COMPILER = "g++"
# Fortified, a jump to another stack would count as an attack.
_FLAGS = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-U_FORTIFY_SOURCE"]
_STUB = """\
extern "C" int start_{name}(int grid, int size, long shared, char* arguments) {{
    return cuda_on_host::run([](char* a) {{ cuda_on_host::call({name}, a); }}, grid, size, shared, arguments);
}}
"""


def missing() -> str | None:
    """Why nothing can be compiled here, or None if it can."""
    return None if shutil.which(_COMPILER) else f"{_COMPILER} is missing: it compiles CUDA kernels for the host"


@functools.cache
def _library(program: cuda.Program) -> ctypes.CDLL:
    options = [_COMPILER, *_FLAGS, *program.flags]
    kept = _folder() / f"{program.source}-{_digest(*map(str.encode, options))}.so"
    if not kept.exists():
        _compile(program, options, kept)
    return ctypes.CDLL(str(kept))


def _compile(program: cuda.Program, options: list[str], kept: Path) -> None:
    source = program.path.read_text()
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(', source)
    stubs = "".join(_STUB.format(name=name) for name in names)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        (Path(folder) / "kernels.cpp").write_text(f'#include "{_HEADER}"\n{source}{stubs}')
        command = [*options, f"-I{program.path.parent}", "kernels.cpp", "-o", "kernels.so"]
        subprocess.run(command, cwd=folder, check=True)
        # Other processes see a whole library or none.
        (Path(folder) / "kernels.so").replace(kept)


@functools.cache
def _folder() -> Path:
    """For libraries made from the sources as they are now; those made from others are removed."""
    sources = [Path(__file__), _HEADER, *sorted(Path(cuda.__file__).parent.glob("*.cu*"))]
    version = subprocess.run([_COMPILER, "--version"], check=True, capture_output=True).stdout
    folder = _KEPT / _digest(version, *(path.read_bytes() for path in sources))
    for other in set(_KEPT.glob("*")) - {folder}:
        shutil.rmtree(other, ignore_errors=True)
    return folder


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def starter(
    name: str, program: cuda.Program, device: int, grid: int, threads: int, shared_bytes: int
) -> cuda.Start:
    """As the function of this name in `orthoslice.backend.kernels.cuda`, for tensors in host memory."""
    function = getattr(_library(program), f"start_{name}")
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]

    def start(stream: int, packed: cuda.Packed) -> None:
        problem = function(grid, threads, shared_bytes, ctypes.addressof(packed.room))
        assert not problem, f"{name} loaded or stored four numbers at an address that is no multiple of 16"

    return start


def hook(patch: pytest.MonkeyPatch) -> None:
    """Have every launch of a CUDA kernel run on the processor."""
    patch.setattr(cuda, "starter", starter)
    # Blocks of many threads are slow to follow one by one.
    patch.setattr(directions, "_MOST_AHEAD", 2)
    patch.setattr(directions, "_MOST_SHARED", 2)
    for module in (cuda, directions):
        patch.setattr(module, "current_stream", lambda device: 0)


def take_host_tensors(patch: pytest.MonkeyPatch) -> None:
    """Have operations take tensors in host memory for such on a GPU."""
    patch.setattr(cuda, "is_on_gpu", lambda array: type(array).__module__.split(".")[0] == "torch")
    patch.setattr(cuda, "device_refusal", lambda device: None)
