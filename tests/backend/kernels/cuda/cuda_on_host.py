"""Compile CUDA kernels for the processor, so that they can be tested without a GPU."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from orthoslice.backend.kernels import cuda
from orthoslice.backend.kernels.cuda import directions

_HEADER = Path(__file__).with_name("cuda_on_host.h")
_COMPILER = "g++"
_FLAGS = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC"]
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
    source = program.path.read_text()
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(', source)
    stubs = "".join(_STUB.format(name=name) for name in names)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.cpp").write_text(f'#include "{_HEADER}"\n{source}{stubs}')
        command = [
            _COMPILER,
            *_FLAGS,
            f"-I{program.path.parent}",
            *program.flags,
            "kernels.cpp",
            "-o",
            "kernels.so",
        ]
        subprocess.run(command, cwd=folder, check=True)
        return ctypes.CDLL(f"{folder}/kernels.so")


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
