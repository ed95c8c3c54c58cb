"""Losses against a known law: those of the public function, in one call with one argument."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import orthoslice as osl  # noqa: E402
from orthoslice import nn  # noqa: E402
from orthoslice.costs.laws import law_slopes  # noqa: E402
from orthoslice.parallel import torch as ranks  # noqa: E402

laws = osl.laws
LAWS = {
    "normal": laws.Normal(3),
    "ball": laws.Ball(3).affine(1.5, 0.5),
    "cube": laws.Cube(3),
    "affine": laws.Sphere(2).affine([[1.0, 0.0], [0.5, 1.0], [0.0, 2.0]], 1.0),
}


@pytest.mark.thin
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", [False, True])
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("name", LAWS)
def test_is_the_public_function(rng, name, p, distance, dtype):
    """Whole steps and the driver agree with it, with and without a tape; so do their gradients."""
    law, x = LAWS[name], torch.as_tensor(rng.normal(size=(40, 3)), dtype=dtype)
    theta = torch.as_tensor(np.linalg.qr(rng.normal(size=(3, 3)))[0], dtype=dtype)
    loss = nn.SlicedWassersteinLoss(p=p, directions=theta, target=law, distance=distance)
    expected = osl.sliced_wasserstein(x, law, p, directions=theta)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-9
    value, gradient = loss.value_and_grad(x)
    assert value.item() == pytest.approx(
        float(expected.distance if distance else expected.value), rel=tolerance
    )
    assert loss(x).item() == pytest.approx(value.item(), rel=tolerance)
    with law_slopes.using("reference"):
        taped = x.clone().requires_grad_()
        loss(taped).backward()
    np.testing.assert_allclose(gradient, taped.grad, rtol=0, atol=10 * tolerance * float(gradient.abs().max()))
    assert gradient.dtype == dtype
    assert gradient.abs().max() > 0


def test_takes_steps_and_one_argument(rng):
    loss = nn.SlicedWassersteinLoss(24, target=laws.Normal(4), seed=3)
    x = torch.as_tensor(rng.normal(size=(30, 4)))
    first, second = loss(x).item(), loss(x).item()
    assert first != second
    assert loss.step.item() == 2
    assert nn.SlicedWassersteinLoss(24, target=laws.Normal(4), seed=3)(x).item() == first
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        other.step.zero_()
        assert other(x).item() == first
    assert "target=Normal(dim=4)" in repr(loss)
    assert "target" not in loss.state_dict()
    with pytest.raises(TypeError, match="made with a `target`"):
        loss(x, x)


def test_batches_weights_and_types(rng):
    law, x = laws.Ball(3), torch.as_tensor(rng.normal(size=(2, 20, 3)))
    theta = torch.as_tensor(np.linalg.qr(rng.normal(size=(3, 3)))[0])
    loss = nn.SlicedWassersteinLoss(directions=theta, target=law)
    alone = [loss(cloud).item() for cloud in x]
    assert loss(x).item() == pytest.approx(np.mean(alone), rel=1e-12)
    w = torch.rand(20, dtype=torch.float64).softmax(0).requires_grad_()
    value = loss(x[0], x_weights=w)
    value.backward()
    expected = osl.sliced_wasserstein(x[0], law, x_weights=w.detach(), directions=theta).value
    assert value.item() == pytest.approx(float(expected), rel=1e-12)
    assert w.grad.abs().max() > 0
    half = loss.to(torch.float32)(x[0].to(torch.bfloat16))
    assert half.item() == pytest.approx(alone[0], rel=0.02)


def test_moves_points_to_the_law(rng):
    """A descent ends as near the law as points can be: below a fresh sample of it, by far."""
    law = laws.Ball(2).affine(2.0, [1.0, -1.0])
    x = torch.as_tensor(rng.normal(size=(60, 2)))
    loss = nn.SlicedWassersteinLoss(32, target=law, seed=0)
    for _ in range(60):
        _, gradient = loss.value_and_grad(x)
        x = x - 60 * gradient
    assert (x - torch.tensor([1.0, -1.0])).norm(dim=1).max() < 2.2
    sample = torch.as_tensor(law.sample(60, rng=0))
    theta = osl.directions.Equispaced().sample(64, 2, 0).theta
    values = [
        float(osl.sliced_wasserstein(points, law, directions=torch.as_tensor(theta)).value)
        for points in (x, sample)
    ]
    assert values[0] < values[1] / 3


def test_less_noise_than_a_sampled_target(rng):
    """The gradient's variance over steps is smaller than with as many points of the law.

    At 100 repetitions the ratio, about 3, is known to 10%.
    """
    law, x = laws.Normal(4), torch.as_tensor(0.9 * rng.normal(size=(64, 4)))
    exact = nn.SlicedWassersteinLoss(64, target=law, seed=0)
    sampled = nn.SlicedWassersteinLoss(64, seed=0)
    gradients = {"exact": [], "sampled": []}
    for _ in range(100):
        gradients["exact"].append(exact.value_and_grad(x)[1])
        gradients["sampled"].append(sampled.value_and_grad(x, torch.as_tensor(law.sample(64, rng)))[1])
    variance = {name: float(torch.stack(own).var(dim=0).sum()) for name, own in gradients.items()}
    assert variance["sampled"] > 1.5 * variance["exact"]


def test_refusals(rng):
    with pytest.raises(TypeError, match=r"`target` can be a law in .* alone"):
        nn.ProjectedWassersteinLoss(target=laws.Normal(3))
    with pytest.raises(TypeError, match="in one process"):
        ranks.SlicedWassersteinLoss(target=laws.Normal(3))
    loss = nn.SlicedWassersteinLoss(target=laws.Normal(3), seed=0)
    with pytest.raises(ValueError, match="`x` and `y` must share `dim`; got 2"):
        loss(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="`y_grad` asks for a gradient"):
        loss.value_and_grad(torch.zeros(5, 3), y_grad=True)
    with pytest.raises(TypeError, match="`y_weights` must be None"):
        loss(torch.zeros(5, 3), y_weights=torch.ones(2) / 2)


@pytest.mark.parametrize("name", ["normal", "cube"])
def test_transforms_and_compilers(rng, name):
    """Of a call with one argument there is no derivative by another; a compiler reads no tables of laws."""
    x = torch.as_tensor(rng.normal(size=(12, 3)))
    loss = nn.SlicedWassersteinLoss(24, target=LAWS[name], seed=0)
    value, gradient = loss.value_and_grad(x, rng=5)
    np.testing.assert_allclose(torch.func.grad(lambda z: loss(z, rng=5))(x), gradient, rtol=1e-9, atol=1e-14)
    compiled = torch.compile(lambda z: loss(z, rng=5), backend="eager", fullgraph=True)
    taped = x.clone().requires_grad_()
    found = compiled(taped)
    found.backward()
    assert found.item() == pytest.approx(value.item(), rel=1e-12)
    np.testing.assert_allclose(taped.grad, gradient, rtol=1e-9, atol=1e-14)


def test_units_in_which_products_overflow(rng):
    """No warning of NumPy's either: the first point, taken for a direction, would be no unit vector."""
    x = torch.as_tensor(rng.normal(size=(30, 3)), dtype=torch.float32)
    plain = nn.SlicedWassersteinLoss(24, target=laws.Normal(3), seed=0, distance=True)(x).item()
    far = nn.SlicedWassersteinLoss(24, target=laws.Normal(3).affine(1e25), seed=0, distance=True)(x * 1e25)
    assert far.item() == pytest.approx(1e25 * plain, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_laws_beyond_the_range_of_points(rng, dtype):
    """Half precision is worked on in single, the law too: it may lie beyond the type of the points."""
    x = torch.as_tensor(rng.normal(size=(30, 3)), dtype=dtype)
    law = laws.Normal(3).affine(1.0, 1e5)
    found, wide = (nn.SlicedWassersteinLoss(24, target=law, seed=0)(z).item() for z in (x, x.double()))
    assert found == pytest.approx(wide, rel=1e-4)
    with pytest.raises(ValueError, match=r"`y` must be within the range .* up to 3\.4e"):
        nn.SlicedWassersteinLoss(24, target=law.affine(1e39), seed=0)(x)
