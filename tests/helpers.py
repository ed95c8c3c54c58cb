"""What the tests share: array libraries, tolerances, and whether to run statistical tests in full."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

FULL = bool(os.environ.get("ORTHOSLICE_FULL_TESTS"))


@dataclass(frozen=True)
class Backend:
    name: str
    asarray: Callable[[Any], Any]
    numpy: Callable[[Any], np.ndarray]
    wide: bool
    """Whether float64 arrays stay float64."""
    bridged: bool = True
    """Whether torch tensors may be worked on as NumPy arrays."""

    def tolerance(self, n: int = 1) -> dict[str, float]:
        """For answers that agree up to rounding: a modest multiple of the accuracy of sums over n terms."""
        eps = np.finfo(np.float64 if self.wide else np.float32).eps
        return {"rtol": float(50 * eps * max(1, n) ** 0.5), "atol": float(50 * eps)}


def _numpy() -> Backend:
    return Backend("numpy", np.asarray, np.asarray, True)


def _strict() -> Backend:
    import array_api_strict

    return Backend("array_api_strict", array_api_strict.asarray, np.from_dlpack, True)


def _torch() -> Backend:
    torch = pytest.importorskip("torch")

    torch.set_num_threads(1)
    return Backend("torch", torch.asarray, lambda a: a.detach().numpy(), True)


def _torch_native() -> Backend:
    """Torch's own functions, which other devices go through."""
    return replace(_torch(), name="torch_native", bridged=False)


def _jax() -> Backend:
    import jax.numpy as jnp

    # JAX keeps float32 unless told otherwise, which is how most people run it.
    return Backend("jax", lambda a: jnp.asarray(np.asarray(a)), np.asarray, False)


BACKENDS: dict[str, Callable[[], Backend]] = {
    "numpy": _numpy,
    "array_api_strict": _strict,
    "torch": _torch,
    "torch_native": _torch_native,
    "jax": _jax,
}


def bridge_torch(monkeypatch: pytest.MonkeyPatch, bridged: bool) -> None:
    """Work on torch tensors as NumPy arrays, or with torch's own functions."""
    # By its full name: the package has a function called `namespace` too.
    module = importlib.import_module("orthoslice.backend.arrays.namespace")
    monkeypatch.setattr(module, "BRIDGE_TORCH", bridged)


def unit_rows(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    theta = rng.normal(size=(n, dim))
    return theta / np.linalg.norm(theta, axis=1, keepdims=True)


def weights(rng: np.random.Generator, n: int) -> np.ndarray:
    w = rng.random(n) + 0.05
    return w / w.sum()


def both_rows(operation: Any, *arguments: Any, kernel: str = "cuda") -> tuple[Any, Any]:
    """What a kernel and the plain reference answer, each to its own copy of the tensors."""
    answers = []
    for row in (kernel, "reference"):
        with operation.using(row):
            answers.append(operation(*(a.clone() if hasattr(a, "clone") else a for a in arguments)))
    return answers[0], answers[1]


def assert_rounded(found: Any, exact: Any, dtype: type, terms: int = 1) -> None:
    """Compare an array that sums about `terms` numbers with a float64 answer, on the scale of the largest."""
    found, expected = (a.detach().cpu().numpy() if hasattr(a, "detach") else a for a in (found, exact))
    scale = np.abs(expected).max(initial=0)
    atol = float(8 * np.finfo(dtype).eps * scale * max(1, terms) ** 0.5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
