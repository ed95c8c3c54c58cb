"""What this installation is made of."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform

from orthoslice.backend.caching import cache_directory, can_keep
from orthoslice.backend.kernels import numba_refusal
from orthoslice.backend.threads import default_workers

_PACKAGES = (
    "numpy",
    "scipy",
    "numba",
    "torch",
    "cuda-bindings",
    "jax",
    "pyarrow",
    "pillow",
    "anndata",
    "matplotlib",
)


def facts() -> dict[str, dict[str, str]]:
    """Versions, kernels in use and why others are not, and where things are kept."""
    from orthoslice import __version__

    versions = {"orthoslice": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    refused = {"numba": numba_refusal(), "cuda": _cuda_refusal()}
    kernels = {name: "in use" if why is None else f"not in use: {why}" for name, why in refused.items()}
    writable = "" if can_keep() else ", which cannot be written: nothing is kept"
    places = {"threads": str(default_workers()), "cache": f"{cache_directory()}{writable}"}
    return {"versions": versions, "kernels": kernels, "machine": places}


def _cuda_refusal() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed; the extra `gpu` brings it"
    import torch

    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    from orthoslice.backend.kernels.cuda import device_refusal

    return device_refusal(torch.cuda.current_device())
