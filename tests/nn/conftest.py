"""Clouds, and places for losses to run."""

from __future__ import annotations

import importlib.util

import pytest

import orthoslice as osl

PLACES = ["cpu"]
if importlib.util.find_spec("torch") is not None:
    import torch

    PLACES += ["cuda"] if torch.cuda.is_available() else []


@pytest.fixture(params=PLACES)
def place(request):
    torch.set_num_threads(1)
    return request.param


@pytest.fixture
def whole_step(cuda_device, monkeypatch):
    """Where the sliced loss runs by the kernels of a whole step: on a GPU, or in host memory as if on one."""
    loss = osl.nn.SlicedWassersteinLoss
    if cuda_device == "cpu":
        from nn.plain import as_if_on_a_gpu

        as_if_on_a_gpu(monkeypatch)
    plans, make_plan = [], loss._make_plan

    def noted(*arguments):
        plans.append(make_plan(*arguments))
        return plans[-1]

    monkeypatch.setattr(loss, "_make_plan", noted)
    yield cuda_device
    assert any(plan is not None for plan in plans), "no loss went through the kernels"


@pytest.fixture
def clouds(rng, place):
    from nn.plain import points

    return points(rng, place, 20), points(rng, place, 20) + 0.5
