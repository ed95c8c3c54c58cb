"""Distances by Triton kernels, with plain sorts, against the same distances of NumPy arrays."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from helpers import bridge_torch

import orthoslice as osl
from orthoslice.backend.arrays import normals, signs
from orthoslice.backend.arrays.hadamard import hadamard_adjoint, hadamard_project
from orthoslice.backend.arrays.stream import folded
from orthoslice.costs.space import price_in_space

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

OPERATIONS = [
    folded,
    normals,
    signs,
    hadamard_project,
    hadamard_adjoint,
    price_in_space,
]


@pytest.mark.parametrize("directions", ["orthogonal", "hadamard"])
@pytest.mark.parametrize("distance", [osl.sliced_wasserstein, osl.projected_wasserstein])
@pytest.mark.parametrize("m", [20, 13])
def test_values_and_gradients(rng, distance, directions, m, device, monkeypatch):
    bridge_torch(monkeypatch, False)
    clouds = [rng.normal(size=(n, 5)).astype(np.float32) for n in (20, m)]
    options = {"directions": directions, "n_directions": 12, "rng": 3}
    answers = []
    for kernels in (True, False):
        x, y = (torch.tensor(c, device=device if kernels else "cpu", dtype=torch.float32) for c in clouds)
        if not kernels:
            bridge_torch(monkeypatch, True)
            x, y = x.double(), y.double()
        x.requires_grad_()
        with contextlib.ExitStack() as forced:
            for operation in OPERATIONS if kernels else ():
                forced.enter_context(operation.using("triton"))
            plain = distance(x.detach(), y, 1.5, **options).value
            value = distance(x, y, 1.5, **options).value
        (gradient,) = torch.autograd.grad(value, x)
        answers.append([a.detach().cpu().double().numpy() for a in (plain, value, gradient)])
    for found, expected in zip(*answers, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
