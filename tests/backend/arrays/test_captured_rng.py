"""Sources of randomness while a CUDA graph is captured."""

from __future__ import annotations

import types

import numpy as np
import pytest
from helpers import bridge_torch

import orthoslice as osl
from orthoslice.backend.arrays import is_captured, rng

torch = pytest.importorskip("torch")


def test_what_is_captured(monkeypatch):
    on_gpu = types.SimpleNamespace(is_cuda=True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert is_captured(on_gpu)
    assert not is_captured(torch.zeros(1))
    assert not is_captured(np.zeros(1))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert not is_captured(on_gpu)


@pytest.mark.parametrize("distance", [osl.sliced_wasserstein, osl.projected_wasserstein])
@pytest.mark.parametrize(
    ("source", "named"),
    [
        (lambda: None, "None"),
        (lambda: np.random.default_rng(0), "a numpy Generator"),
        (lambda: torch.Generator().manual_seed(0), "a torch Generator"),
    ],
)
def test_graphs_do_not_freeze_what_is_drawn_on_the_host(distance, source, named, monkeypatch):
    bridge_torch(monkeypatch, False)
    x = torch.ones(3, 2)
    distance(x, x, rng=source())
    monkeypatch.setattr(rng, "is_captured", lambda array: isinstance(array, torch.Tensor))
    with pytest.raises(
        ValueError, match=f"`rng` must be an integer while a CUDA graph is captured; got {named}"
    ):
        distance(x, x, rng=source())
    distance(x, x, rng=7)
    distance(x, x, rng=np.random.SeedSequence(7))
    distance(x, x, directions=torch.eye(2))
    distance(x.numpy(), x.numpy())
