"""Distances by CUDA kernels, with plain sorts, against the same distances of NumPy arrays."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from helpers import bridge_torch

import orthoslice as osl
from orthoslice.backend.arrays import Key, normals, signs
from orthoslice.backend.arrays.hadamard import hadamard_adjoint, hadamard_project
from orthoslice.backend.arrays.key import folded
from orthoslice.clouds.cloud import Cloud
from orthoslice.costs.space import price_in_space
from orthoslice.couplings.coupling import couple_ranks

torch = pytest.importorskip("torch")

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
def test_values_and_gradients(rng, distance, directions, m, kernel_device, monkeypatch):
    bridge_torch(monkeypatch, False)
    clouds = [rng.normal(size=(n, 5)).astype(np.float32) for n in (20, m)]
    options = {"directions": directions, "n_directions": 12, "rng": 3}
    answers = []
    for kernels in (True, False):
        x, y = (
            torch.tensor(c, device=kernel_device if kernels else "cpu", dtype=torch.float32) for c in clouds
        )
        if not kernels:
            bridge_torch(monkeypatch, True)
            x, y = x.double(), y.double()
        x.requires_grad_()
        with contextlib.ExitStack() as forced:
            for operation in OPERATIONS if kernels else ():
                forced.enter_context(operation.using("cuda"))
            plain = distance(x.detach(), y, 1.5, **options).value
            value = distance(x, y, 1.5, **options).value
        (gradient,) = torch.autograd.grad(value, x)
        answers.append([a.detach().cpu().double().numpy() for a in (plain, value, gradient)])
    for found, expected in zip(*answers, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("dim", [100, 2048, 8192])
def test_kernels_in_a_cuda_graph(rng, dim):
    """Nothing waits for the host, and whatever a kernel needs is in its arguments."""
    x, y = (torch.tensor(rng.normal(size=(300, dim)), dtype=torch.float32, device="cuda") for _ in "xy")
    pairs = couple_ranks(x.T[:3], y.T[:3])
    key = Key.from_seed(7, x)
    ambient = 1 << (dim - 1).bit_length()
    parts = [(0, slice(0, dim)), (1, slice(0, dim))]

    def draw_and_price():
        with contextlib.ExitStack() as forced:
            for operation in OPERATIONS:
                forced.enter_context(operation.using("cuda"))
            factors = signs(key.fold(5, 0), 6, ambient, torch.float32).reshape(2, 3, ambient)
            projected = hadamard_project(x, factors, parts, False)
            back = hadamard_adjoint(projected, factors, parts, dim, False)
            scores, (gradient,) = price_in_space(Cloud(x), Cloud(y), 2, pairs, (True, False, False, False))
            return normals(key, 3, 5, torch.float64), projected, back, scores, gradient

    expected = [a.clone() for a in draw_and_price()]
    # Blocks of orthonormal rows: there and back again, from two of them, is twice the point.
    if dim == ambient:
        torch.testing.assert_close(expected[2], 2 * x, rtol=1e-4, atol=1e-4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = draw_and_price()
    for _ in range(2):
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
