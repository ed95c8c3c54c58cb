"""Losses for PyTorch: their values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_rounded, unit_rows, weights
from nn.plain import (
    COUNT,
    DIM,
    DISTANCES,
    LOSSES,
    SEED,
    assert_half,
    assert_same_step,
    both,
    drawn,
    plain,
    points,
)

import orthoslice as osl
from orthoslice.backend.arrays import STEPS, Key
from orthoslice.directions import IID, HadamardRademacher, Orthogonal

torch = pytest.importorskip("torch")
forward_ad = torch.autograd.forward_ad
nn = osl.nn


@both
@pytest.mark.parametrize("p", [1, 1.5, 2])
@pytest.mark.parametrize("m", [20, 13])
def test_values_and_gradients(rng, kind, p, m, place):
    loss = LOSSES[kind](COUNT, p=p, seed=SEED).to(place)
    for step in range(2):
        x, y = points(rng, place, 20), points(rng, place, m) + 0.5
        assert_same_step(loss, kind, x, y, drawn(step), p)


@both
@pytest.mark.parametrize("sampler", [IID(), Orthogonal(block_size=3), HadamardRademacher()])
def test_value_is_that_of_the_public_function(clouds, kind, sampler, place):
    loss = LOSSES[kind](COUNT, directions=sampler, seed=SEED).to(place)
    arrays = [c.cpu().double().numpy() for c in clouds]
    for step in range(2):
        key = Key.from_seed(SEED, np.zeros(1)).fold(step, STEPS)
        expected = DISTANCES[kind](*arrays, directions=sampler, n_directions=COUNT, rng=key).value
        assert_rounded(loss(*clouds), torch.tensor(expected), np.float32, DIM * COUNT)


@pytest.mark.parametrize("cost", ["pooled", "independent"])
def test_costs_of_projected_losses(clouds, cost, place):
    loss = nn.ProjectedWassersteinLoss(COUNT, cost=cost).to(place)
    options = {"directions": "orthogonal", "n_directions": COUNT, "rng": 3, "cost": cost}
    expected = osl.projected_wasserstein(*(c.cpu().double().numpy() for c in clouds), **options).value
    assert_rounded(loss(*clouds, rng=3), torch.tensor(expected), np.float32, DIM * COUNT)


@both
def test_number_of_directions_by_default(clouds, kind, place):
    """As many as the public function takes."""
    expected = DISTANCES[kind](*(c.cpu().double() for c in clouds), directions="orthogonal", rng=3)
    value = LOSSES[kind]().to(place)(*clouds, rng=3)
    assert_rounded(value, expected.value, np.float32, DIM * expected.n_directions)


@both
def test_a_batch_gives_the_mean(rng, kind, place):
    """Leading axes broadcast, and share the directions."""
    x, y = (torch.stack([points(rng, place, n) for _ in range(3)]) for n in (20, 13))
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    x.requires_grad_()
    value = loss(x, y[1])
    parts = [plain(kind, a, y[1], drawn(0)) for a in x]
    assert value.shape == ()
    assert_rounded(value, sum(v for v, _ in parts) / 3, np.float32, DIM * COUNT)
    (gradient,) = torch.autograd.grad(value, x)
    assert_rounded(gradient, torch.stack([g for _, (g, _) in parts]) / 3, np.float32, DIM * COUNT)
    parts = [plain(kind, a, b, drawn(1))[0] for a, b in zip(x, y, strict=True)]
    assert_rounded(loss(x, y), sum(parts) / 3, np.float32, DIM * COUNT)


@both
@pytest.mark.parametrize("form", ["float32", "float64", "array", "list"])
def test_given_directions(rng, clouds, kind, form, place):
    theta = unit_rows(rng, 7, DIM).astype(np.float64 if form == "float64" else np.float32)
    given = {"array": theta, "list": theta.tolist()}.get(form, torch.tensor(theta))
    loss = LOSSES[kind](directions=given, p=1.5).to(place)
    assert sorted(loss.state_dict()) == ["key_high", "key_low", "step", "theta"]
    for _ in range(2):
        assert_same_step(loss, kind, *clouds, torch.tensor(theta).double(), 1.5)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(clouds, kind, dtype, place):
    """Summed in single precision; only the gradient is rounded to the type of the clouds."""
    x, y = (c.to(dtype) for c in clouds)
    x.requires_grad_()
    value = LOSSES[kind](COUNT, seed=SEED).to(place)(x, y)
    expected, (gradient, _) = plain(kind, x, y, drawn(0))
    assert value.dtype == torch.float32
    assert_rounded(value, expected, np.float32, DIM * COUNT)
    assert_half(torch.autograd.grad(value, x)[0], gradient, dtype)


@both
def test_double_precision(clouds, kind, place):
    x, y = (c.double() for c in clouds)
    value = LOSSES[kind](COUNT, seed=SEED).to(place)(x, y)
    assert value.dtype == torch.float64
    assert_rounded(value, plain(kind, x, y, drawn(0))[0], np.float64, DIM * COUNT)


@both
@pytest.mark.parametrize("p", [1, 2])
def test_finite_differences(clouds, kind, p, place):
    """Along a random move, with the directions held."""
    x, y = (c.double() for c in clouds)
    loss = LOSSES[kind](COUNT, p=p).to(place)
    move = points(np.random.default_rng(1), place, 20).double()
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x, y, rng=3), x)
    h = 1e-6
    with torch.no_grad():
        numeric = (loss(x + h * move, y, rng=3) - loss(x - h * move, y, rng=3)) / (2 * h)
    torch.testing.assert_close((gradient * move).sum(), numeric, rtol=h, atol=h)


@both
def test_equal_clouds_cost_and_pull_nothing(clouds, kind, place):
    x = clouds[0].clone().requires_grad_()
    for p in (1, 2):
        value = LOSSES[kind](COUNT, p=p).to(place)(x, clouds[0].flip(0))
        assert value.item() == 0
        assert (torch.autograd.grad(value, x)[0] == 0).all()


@both
def test_moves_points_to_the_target(rng, kind, place):
    """A few steps of gradient descent, which is what losses are for."""
    x, target = points(rng, place, 40, 2).requires_grad_(), points(rng, place, 40, 2) + 3
    loss = LOSSES[kind](8, target=target, seed=0).to(place)
    optimizer = torch.optim.SGD([x], lr=10)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.1 * values[0]
    assert loss.step.item() == 30


@both
def test_no_gradient_is_kept_where_none_is_wanted(clouds, kind, place):
    loss = LOSSES[kind](COUNT).to(place)
    assert not loss(*clouds).requires_grad
    with torch.no_grad():
        assert not loss(clouds[0].clone().requires_grad_(), clouds[1]).requires_grad
    with torch.inference_mode():
        assert loss(*clouds).item() > 0
    assert loss.step.item() == 3


@both
@pytest.mark.parametrize("p", [1, 2, 3])
def test_distances(clouds, kind, p, place):
    """The root of the loss, and its gradients by both clouds."""
    x, y = (c.clone().requires_grad_() for c in clouds)
    value = LOSSES[kind](COUNT, p=p, distance=True, seed=SEED).to(place)(x, y)
    power, gradients = plain(kind, x, y, drawn(0), p)
    expected = power ** (1 / p)
    assert_rounded(value, expected, np.float32, DIM * COUNT)
    for found, gradient in zip(torch.autograd.grad(value, (x, y)), gradients, strict=True):
        assert_rounded(found, gradient * expected.detach() / (p * power.detach()), np.float32, DIM * COUNT)


@both
def test_distances_of_equal_clouds_pull_nothing(clouds, kind, place):
    """Where the root taken outside pulls with NaN."""
    x = clouds[0].clone().requires_grad_()
    for p in (1, 2, 3):
        value = LOSSES[kind](COUNT, p=p, distance=True).to(place)(x, clouds[0].flip(0))
        assert value.item() == 0
        assert (torch.autograd.grad(value, x)[0] == 0).all()
    outside = LOSSES[kind](COUNT).to(place)(x, clouds[0].flip(0)) ** 0.5
    assert torch.autograd.grad(outside, x)[0].isnan().any()


@both
def test_distances_of_a_batch_give_their_mean(rng, kind, place):
    x, y = (torch.stack([points(rng, place, 9) for _ in range(3)]) for _ in "xy")
    value = LOSSES[kind](COUNT, distance=True, seed=SEED).to(place)(x, y)
    parts = [plain(kind, a, b, drawn(0))[0] ** 0.5 for a, b in zip(x, y, strict=True)]
    assert_rounded(value, sum(parts) / 3, np.float32, DIM * COUNT)


@both
@pytest.mark.parametrize("has_target", [False, True])
def test_weights(rng, clouds, kind, has_target, place):
    """As the public function takes them, with gradients by all."""
    x, y = clouds
    given = [torch.tensor(weights(rng, 20), dtype=torch.float32, device=place) for _ in "xy"]
    x_weights, y_weights = (w.requires_grad_() for w in given)
    loss = LOSSES[kind](COUNT, seed=SEED, target=y if has_target else None).to(place)
    options = {"directions": "orthogonal", "n_directions": COUNT, "rng": 3}
    arrays = [a.detach().cpu().double().numpy() for a in (x, y, x_weights, y_weights)]
    expected = DISTANCES[kind](*arrays[:2], x_weights=arrays[2], y_weights=arrays[3], **options).value
    rest = () if has_target else (y,)
    value = loss(x, *rest, x_weights=x_weights, y_weights=y_weights, rng=3)
    assert_rounded(value, torch.tensor(expected), np.float32, DIM * COUNT)
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(value, (x_weights, y_weights)))
    assert loss(x, *rest, rng=3) != value
    assert loss(x, *rest, x_weights=x_weights.detach()).item() > 0
    assert loss.step.item() == 1


VARIETIES = {
    "single": {},
    "unequal": {"m": 13},
    "batch": {"batch": 3},
    "half": {"dtype": torch.float16},
    "distance": {"distance": True},
    "weights": {"weighted": True},
    "target": {"has_target": True},
}


@both
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("variety", VARIETIES)
def test_value_and_grad(rng, kind, variety, mode, place):
    """What autograd gives, in one call and with no tape, and a step like any other."""
    given = {"m": 20, "batch": 1, "dtype": torch.float32} | VARIETIES[variety]
    x, y = (
        torch.stack([points(rng, place, n) for _ in range(given["batch"])]).to(given["dtype"])
        for n in (20, given["m"])
    )
    x, y = (a[0] if given["batch"] == 1 else a for a in (x, y))
    options = {}
    if "weighted" in given:
        options["x_weights"] = torch.tensor(weights(rng, 20), dtype=torch.float32, device=place)
    has_target, distance = "has_target" in given, "distance" in given
    loss, taped = (
        LOSSES[kind](COUNT, seed=SEED, distance=distance, target=y if has_target else None).to(place)
        for _ in range(2)
    )
    rest = () if has_target else (y,)
    with mode():
        found = loss.value_and_grad(x, *rest, **options)
    x.requires_grad_()
    value = taped(x, *rest, **options)
    expected = value, *torch.autograd.grad(value, x)
    assert loss.step.item() == 1
    for one, other in zip(found, expected, strict=True):
        assert not one.requires_grad
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        # A GPU adds some gradients in any order.
        rounding = np.float16 if one.dtype == torch.float16 else np.float32
        assert_rounded(one.clone(), other, rounding, DIM * COUNT)


@both
def test_value_and_grad_of_both_clouds(clouds, kind, place):
    x, y = (c.clone().requires_grad_() for c in clouds)
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    found = loss.value_and_grad(x, y, y_grad=True, rng=5)
    value = loss(x, y, rng=5)
    for one, other in zip(found, (value, *torch.autograd.grad(value, (x, y))), strict=True):
        assert not one.requires_grad
        assert_rounded(one, other, np.float32, DIM * COUNT)
    assert loss.step.item() == 0
    with pytest.raises(ValueError, match="Pass it as `y`"):
        LOSSES[kind](target=y.detach()).to(place).value_and_grad(x, y_grad=True)


# Torch uses its own script compiler for it.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_derivatives_forwards(clouds, kind, dtype, place):
    """Along a move of both clouds: what the gradients say of it."""
    x, y = (c.to(dtype) for c in clouds)
    move, other = x.flip(0), y.flip(1)
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    with forward_ad.dual_level():
        value = loss(forward_ad.make_dual(x, move), forward_ad.make_dual(y, other))
        found = forward_ad.unpack_dual(value).tangent
        one = forward_ad.unpack_dual(loss(forward_ad.make_dual(x, move), y, rng=1)).tangent
    _, (by_x, by_y) = plain(kind, x, y, drawn(0))
    expected = (by_x * move.cpu()).sum() + (by_y * other.cpu()).sum()
    assert_rounded(found, expected, np.float32, 20 * DIM * COUNT)
    _, (by_x, _) = plain(kind, x, y, drawn(seed=1))
    assert_rounded(one, (by_x * move.cpu()).sum(), np.float32, 20 * DIM * COUNT)


@both
def test_views_that_stand_for_their_negative(clouds, kind, place):
    x = torch.complex(clouds[0], clouds[0]).conj().imag
    assert x.is_neg()
    loss = LOSSES[kind](COUNT).to(place)
    assert torch.equal(loss(x, clouds[1], rng=1), loss(-clouds[0], clouds[1], rng=1))


@both
def test_default_device_of_torch(clouds, kind, place):
    """Results are where the clouds are, whatever new tensors are put on."""
    loss = LOSSES[kind](COUNT).to(place)
    x = clouds[0].clone().requires_grad_()
    torch.set_default_device("meta")
    try:
        value = loss(x, clouds[1])
        (gradient,) = torch.autograd.grad(value, x)
    finally:
        torch.set_default_device(None)
    assert value.device == gradient.device == x.device
