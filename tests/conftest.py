"""One `xp` fixture runs a test on every array library."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from backend.kernels.cuda import cuda_on_host
from helpers import BACKENDS, Backend, bridge_torch

# Deterministic examples: a failure on one machine fails on the next.
from hypothesis import settings

from orthoslice.backend.kernels.cuda import device_refusal

settings.register_profile("default", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("default")

# Each test process has one core: threads of torch would fight over it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _import_triton_kernels() -> None:
    """Where there is no GPU, have Triton interpret kernels: that is settled when they are imported."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        return
    import torch

    if torch.cuda.is_available():
        return
    with pytest.MonkeyPatch.context() as patch:
        # Not for longer: tests that do not ask for the interpreter shall go the way users go.
        patch.setenv("TRITON_INTERPRET", "1")
        for name in ("hadamard", "pairs", "random"):
            importlib.import_module(f"orthoslice.backend.kernels.triton.{name}")


_import_triton_kernels()


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """An array library: how to make its arrays and how to read them."""
    backend = BACKENDS[request.param]()
    bridge_torch(monkeypatch, backend.bridged)
    return backend


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where Triton kernels run: on a GPU, or interpreted in host memory."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return "cuda"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    _hasten_interpreter(monkeypatch)
    return "cpu"


def _hasten_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have exclusive ors, by which transforms swap numbers, reduced by NumPy, not number by number."""
    from triton import language
    from triton.runtime.interpreter import ReduceOps

    one_by_one = ReduceOps.generic_reduce

    def reduce(self: Any, operands: Any) -> Any:
        if self.combine_fn != language.standard._xor_combine:
            return one_by_one(self, operands)
        total = np.bitwise_xor.reduce(operands[0].handle.data, axis=self.axis, keepdims=self.keep_dims)
        return [self.to_tensor(total, operands[0].dtype)]

    monkeypatch.setattr(ReduceOps, "generic_reduce", reduce)


@pytest.fixture
def cuda_device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where CUDA kernels run: on a GPU, or compiled for the processor in host memory."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        refusal = device_refusal(torch.cuda.current_device())
        if refusal is not None:
            pytest.skip(refusal)
        return "cuda"
    if (reason := cuda_on_host.missing()) is not None:
        pytest.skip(reason)
    cuda_on_host.hook(monkeypatch)
    return "cpu"


@pytest.fixture
def empty_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill new memory of torch with NaN, or -1 where that is integer: what a kernel does not write is seen."""
    torch = pytest.importorskip("torch")

    def filled(make: Callable[..., Any]) -> Callable[..., Any]:
        def make_filled(*args: Any, **options: Any) -> Any:
            tensor = make(*args, **options)
            return tensor.fill_(float("nan") if tensor.is_floating_point() else -1)

        return make_filled

    monkeypatch.setattr(torch, "empty", filled(torch.empty))
    monkeypatch.setattr(torch.Tensor, "new_empty", filled(torch.Tensor.new_empty))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20190416)
