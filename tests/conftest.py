"""One `xp` fixture runs a test on every array library."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from backend.kernels.cuda import cuda_on_host
from helpers import BACKENDS, Backend, bridge_torch
from hypothesis import settings
from thinning import thin

from orthoslice.backend.kernels import when_to_compile
from orthoslice.backend.kernels.cuda import device_refusal

# Tests see kernels from the first call on, whatever the cache holds: some compare calls to the last bit.
when_to_compile.PLAIN_NUMBERS = when_to_compile.LOADING_NUMBERS = 0

# Each test process has one core: threads of torch would fight over it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("quick" if config.option.markexpr == "not full" else "full")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark before pytest looks at marks."""
    thin(items)


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """An array library: how to make its arrays and how to read them."""
    backend = BACKENDS[request.param]()
    bridge_torch(monkeypatch, backend.bridged)
    return backend


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
def kernel_device(cuda_device: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """As `cuda_device`, where operations take tensors for their CUDA kernels that lie there."""
    if cuda_device == "cpu":
        cuda_on_host.take_host_tensors(monkeypatch)
    return cuda_device


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
