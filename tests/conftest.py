"""One `xp` fixture runs a test on every array library."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers import BACKENDS, Backend, bridge_torch

# Deterministic examples: a failure on one machine fails on the next.
from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("default")

# Each test process has one core: threads of torch would fight over it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """An array library: how to make its arrays and how to read them."""
    backend = BACKENDS[request.param]()
    bridge_torch(monkeypatch, backend.bridged)
    return backend


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20190416)
