"""What this installation is made of, and its kernels compiled ahead of the first call."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys

from orthoslice.backend.caching import cache_directory, can_keep
from orthoslice.backend.kernels import numba_refusal
from orthoslice.backend.threads import default_workers

_PACKAGES = ("numpy", "scipy", "numba", "torch", "triton", "jax", "pyarrow", "pillow", "anndata", "matplotlib")

# Sizes on both sides of where one kernel takes over from another, and one of rows that are sorted otherwise.
# Kernels for rows of more than 2^18 numbers are left to their first use, where the work takes long anyway.
_SIZES = ((40, 50, 3), (600, 580, 3), (1100, 1080, 12))
_MANY = (4200, 4100, 2)


def facts() -> dict[str, dict[str, str]]:
    """Versions, kernels in use and why others are not, and where things are kept."""
    from orthoslice import __version__

    versions = {"orthoslice": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    refused = {"numba": numba_refusal(), "cuda": _cuda_refusal(), "triton": _triton_refusal()}
    kernels = {name: "in use" if why is None else f"not in use: {why}" for name, why in refused.items()}
    writable = "" if can_keep() else ", which cannot be written: nothing is kept"
    places = {"threads": str(default_workers()), "cache": f"{cache_directory()}{writable}"}
    return {"versions": versions, "kernels": kernels, "machine": places}


def _torch_refusal() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed; the extra `gpu` brings it"
    import torch

    return None if torch.cuda.is_available() else "torch finds no CUDA device"


def _cuda_refusal() -> str | None:
    why = _torch_refusal()
    if why is not None:
        return why
    from orthoslice.backend.kernels.cuda import cuda_refusal

    return cuda_refusal(sys.modules["torch"].zeros(1, device="cuda"))


def _triton_refusal() -> str | None:
    why = _torch_refusal()
    if why is not None:
        return why
    from orthoslice.backend.kernels import triton_refusal

    return triton_refusal(sys.modules["torch"].zeros(1, device="cuda"))


def compile_kernels() -> str:
    """Make the calls that commands make, on clouds of several sizes and types; or say why that is of no use."""
    import numpy as np

    import orthoslice as osl
    from orthoslice.applications.compare.compare import PARTS, plan_comparison

    why = numba_refusal()
    if why is not None:
        return f"there is nothing to compile: {why}."
    draw = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        for n, m, dim in (*_SIZES, _MANY):
            x, y = (draw.normal(size=(k, dim)).astype(dtype) for k in (n, m))
            weights = draw.random(n)
            ready = plan_comparison(x, y, rng=0, n_permutations=9)
            weighted = plan_comparison(x, y, x_weights=weights / weights.sum(), rng=0)
            for part in PARTS if n < _MANY[0] else ("sliced", "test", "projected"):
                ready.work_out(part)
                weighted.work_out(part)
            osl.pairwise([x, y], rng=0)
    return ""
