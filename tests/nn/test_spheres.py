"""The loss for unit vectors: the value and the gradient of the public function, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import orthoslice as osl

Loss = osl.nn.SphericalSlicedWassersteinLoss


def cloud(seed: int, n: int = 30, dim: int = 3) -> torch.Tensor:
    drawn = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return normalize(drawn + 0.3 * seed, dim=-1)


@pytest.mark.parametrize("geometry", ["great_circles", "stereographic"])
@pytest.mark.parametrize("distance", [False, True])
def test_it_is_the_public_function(geometry: str, distance: bool) -> None:
    x, y = cloud(0).requires_grad_(), cloud(1, 25)
    loss = Loss(12, p=2, geometry=geometry, distance=distance, seed=3)
    found = loss(x, y, rng=5)
    public = osl.spherical_sliced_wasserstein(
        x, y, geometry=geometry, directions="orthogonal", n_directions=12, rng=5
    )
    value = public.distance if distance else public.value
    assert found.item() == pytest.approx(value.item(), rel=1e-12)
    gradients = [torch.autograd.grad(v, x)[0].numpy() for v in (found, value)]
    np.testing.assert_allclose(*gradients, rtol=1e-10)


def test_the_uniform_law_as_a_target() -> None:
    x, loss = cloud(2).requires_grad_(), Loss(12, target="uniform", seed=3)
    value, gradient = loss.value_and_grad(x, rng=1)
    public = osl.spherical_sliced_wasserstein(x, "uniform", directions="orthogonal", n_directions=12, rng=1)
    assert value.item() == pytest.approx(public.value.item(), rel=1e-12)
    np.testing.assert_allclose(gradient, torch.autograd.grad(public.value, x)[0], rtol=1e-10)
    with pytest.raises(TypeError, match="pass `x` alone"):
        loss(x, cloud(1))


def test_fresh_planes_at_every_step_and_again_by_the_seed() -> None:
    x, y = cloud(0), cloud(1)
    runs = [[loss(x, y).item() for _ in range(3)] for loss in (Loss(6, seed=1), Loss(6, seed=1))]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3


def test_descent_spreads_a_cap_over_the_sphere() -> None:
    z = cloud(3, 100).requires_grad_()
    loss = Loss(24, target="uniform", seed=0)

    def unevenness() -> float:
        return float(osl.spherical_sliced_wasserstein(normalize(z.detach(), dim=-1), "uniform", rng=0))

    before = unevenness()
    optimizer = torch.optim.Adam([z], lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss(normalize(z, dim=-1)).backward()
        optimizer.step()
    assert unevenness() < before / 5


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"geometry": "flat"}, "`geometry` must be one of"),
        ({"target": "uniform", "geometry": "stereographic"}, "goes with `geometry"),
        ({"target": "normal"}, "The only law"),
        ({"directions": "sobol"}, "`directions` must be one of"),
        ({"p": 30}, "`p` must be at most"),
    ],
)
def test_bad_options(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Loss(**options)


def test_points_must_lie_on_the_sphere() -> None:
    with pytest.raises(ValueError, match="`y` must lie on the unit sphere"):
        Loss(8)(cloud(0), 2 * cloud(1))


def test_given_planes() -> None:
    planes = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 3, 2)))[0].swapaxes(1, 2)
    x, y = cloud(0), cloud(1)
    value = Loss(directions=planes)(x, y)
    assert value.item() == osl.spherical_sliced_wasserstein(x, y, directions=planes).value.item()


def test_transforms_with_the_uniform_law(rng):
    x = normalize(torch.as_tensor(rng.normal(size=(12, 3))), dim=1)
    loss = osl.nn.SphericalSlicedWassersteinLoss(24, target="uniform", seed=0)
    expected = loss.value_and_grad(x, rng=5)[1]
    np.testing.assert_allclose(torch.func.grad(lambda z: loss(z, rng=5))(x), expected, rtol=1e-9, atol=1e-14)
