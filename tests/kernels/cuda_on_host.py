"""Compile CUDA kernels for the processor, so that they can be tested without a GPU."""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import tempfile
from pathlib import Path

from orthoslice.kernels import cuda

_HEADER = Path(__file__).with_name("cuda_on_host.h")


@functools.cache
def _library(program: cuda.Program) -> ctypes.CDLL:
    source = program.path.read_text()
    names = re.findall(r"(\w+)\(", " ".join(re.findall(r'extern "C" __global__.*?\) (\w+\()', source)))
    stubs = [
        f'extern "C" void start_{name}(int grid, int size, long shared, char* arguments) {{\n'
        f"    cuda_on_host::run([](char* a) {{ cuda_on_host::call({name}, a); }}, grid, size, shared, arguments);\n}}\n"
        for name in names
    ]
    folder = Path(tempfile.mkdtemp())
    (folder / "kernels.cpp").write_text(f'#include "{_HEADER}"\n' + source + "".join(stubs))
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-w",
        "-shared",
        "-fPIC",
        f"-I{program.path.parent}",
        *program.flags,
        "kernels.cpp",
        "-o",
        "kernels.so",
    ]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


def compiled_kernel(name: str, program: cuda.Program, device: int) -> cuda.Launch:
    """As the function of this name in `orthoslice.kernels.cuda`, for tensors in host memory."""
    function = getattr(_library(program), f"start_{name}")
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    function.restype = None

    def start(grid: int, threads: int, shared_bytes: int, stream: int, packed: cuda.Packed) -> None:
        function(grid, threads, shared_bytes, ctypes.addressof(packed.room))

    return start
