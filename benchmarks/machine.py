"""What the figures depend on: processor, cores, versions, and NumPy's choice of a sort."""

from __future__ import annotations

import os
import platform
import re
import threading
from pathlib import Path
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
DISABLE = "NPY_DISABLE_CPU_FEATURES"
# NumPy named the AVX-512 group AVX512_SKX before it named it X86_V4.
_AVX512, _AVX2 = ("X86_V4", "AVX512_SKX"), ("X86_V3", "AVX2")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory and system, and how busy the machine was."""
    return {
        "cpu": cpu_model(),
        "cores": n_cores(),
        "memory_gib": memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "thread_variables": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    }


def cpu_model() -> str:
    """The name, with family and model where the kernel tells: cloud machines hide the name."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = dict(re.findall(r"^([\w ]+?)\s*: (.+)$", text, re.MULTILINE))
    if "model name" not in found:
        return platform.machine()
    return f"{found['model name']} (family {found.get('cpu family')}, model {found.get('model')})"


def n_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def numpy_features() -> dict[str, bool]:
    """Which processor features this process's NumPy uses."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as features
    except ImportError:
        return {}
    return dict(features)


def wait_for_compilers() -> None:
    """Return when no thread of ours compiles GPU kernels that other sizes will need."""
    for thread in threading.enumerate():
        if thread.name == "orthoslice-compiler":
            thread.join()


def numpy_sort_path() -> str:
    """Which sort `np.sort` runs on 32- and 64-bit keys."""
    features = numpy_features()
    if any(features.get(name) for name in _AVX512):
        return "AVX-512"
    if any(features.get(name) for name in _AVX2):
        return "AVX2"
    return "baseline" if features else "unknown"


def other_path_environment() -> dict[str, str] | None:
    """What to set so that NumPy does not use AVX-512; None where it does not anyway."""
    features = numpy_features()
    names = [name for name in _AVX512 if features.get(name)]
    return {DISABLE: names[0]} if names else None
