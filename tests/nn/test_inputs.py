"""Losses for PyTorch: what they refuse, and what they say of it."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from nn.plain import COUNT, DIM, LOSSES, SEED, both

import orthoslice as osl
from orthoslice.directions import IID

torch = pytest.importorskip("torch")
nn = osl.nn


BAD_OPTIONS = [
    ({"n_directions": 0}, ValueError, "`n_directions` must be at least 1; got 0"),
    ({"n_directions": 2.5}, TypeError, r"`n_directions` must be an integer; got 2\.5"),
    ({"p": 0.5}, ValueError, r"`p` must be at least 1 .*got 0\.5"),
    ({"p": "2"}, TypeError, "`p` must be a real number.*got '2'"),
    ({"directions": "nope"}, ValueError, "`directions` must be one of .*got 'nope'"),
    ({"directions": None}, TypeError, "`directions` must be .*got None"),
    ({"directions": IID}, TypeError, "`directions` must be a name, a sampler .*IID"),
    ({"directions": torch.eye(3), "n_directions": 4}, ValueError, "`n_directions` must be None or .*3; got 4"),
    ({"seed": -1}, ValueError, r"`seed` must be an integer from 0 to 2\*\*64 - 1; got -1"),
    ({"seed": 2**64}, ValueError, "`seed` must be .*got 18446744073709551616"),
    ({"seed": True}, ValueError, "`seed` must be an integer .*got True"),
    ({"seed": 1.5}, TypeError, r"`seed` must be an integer or None; got 1\.5"),
    ({"memory": "much"}, ValueError, "`memory` must be a positive number of bytes .*got 'much'"),
    ({"target": [[1.0, 2.0]]}, TypeError, "`target` must be a torch tensor .*got list"),
    ({"target": np.zeros((2, 3))}, TypeError, "`target` must be a torch tensor .*got ndarray"),
    ({"target": torch.nn.Parameter(torch.zeros(2, 3))}, ValueError, "`target` must be fixed.* Pass it as `y`"),
    ({"target": torch.zeros(2, 3, requires_grad=True) + 1}, ValueError, "`target` must be fixed"),
    ({"directions": torch.eye(3, requires_grad=True)}, ValueError, "`directions` have no gradient here"),
]


@both
@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS)
def test_bad_options(kind, options, error, message):
    with pytest.raises(error, match=message):
        LOSSES[kind](**options)


def test_bad_cost():
    with pytest.raises(ValueError, match=r"`cost` must be one of .*got 'nope'"):
        nn.ProjectedWassersteinLoss(cost="nope")


BAD_CALLS = [
    (lambda x, y: (x, y[:, :2]), ValueError, r"`x` and `y` must share `dim`; got .*\(20, 5\) and \(20, 2\)"),
    (lambda x, y: (x[0], y), ValueError, r"`x` must have shape \(n, dim\).*got \(5,\)"),
    (lambda x, y: (x[:0], y), ValueError, r"`x` must hold at least one point .*got shape \(0, 5\)"),
    (lambda x, y: (x + 1j, y), TypeError, "`x` must hold real numbers; got type torch.complex64"),
    (lambda x, y: (x.tolist(), y), TypeError, "`x` must be a torch tensor .*got list"),
    (lambda x, y: (x, y.cpu().numpy()), TypeError, "`y` must be a torch tensor .*got ndarray"),
    (lambda x, y: (x.to("meta"), y), ValueError, "`x` must be on the device of this loss.*got meta"),
]


@both
@pytest.mark.parametrize(("change", "error", "message"), BAD_CALLS)
def test_bad_calls(clouds, kind, change, error, message, place):
    loss = LOSSES[kind](COUNT).to(place)
    with pytest.raises(error, match=message):
        loss(*change(*clouds))
    assert loss.step.item() == 0


@both
@pytest.mark.parametrize("bad", [-1, 2**64, True, 1.5, "1"])
def test_bad_rng(clouds, kind, bad, place):
    with pytest.raises((ValueError, TypeError), match="`rng` must be an integer"):
        LOSSES[kind](COUNT).to(place)(*clouds, rng=bad)


@both
@pytest.mark.parametrize(
    ("theta", "message"),
    [
        (torch.eye(4), r"with dim = 5; got shape \(4, 4\)"),
        (torch.ones(5), r"dim\) with dim = 5; got shape \(5,\)"),
    ],
)
def test_bad_shapes_of_given_directions(clouds, kind, theta, message, place):
    with pytest.raises(ValueError, match=f"`directions` must be .*{message}"):
        LOSSES[kind](directions=theta).to(place)(*clouds)


@both
def test_rows_that_are_not_of_unit_length(clouds, kind, place):
    """An error where values can be looked at, NaN where that would make the host wait."""
    loss = LOSSES[kind](directions=torch.ones(2, DIM)).to(place)
    if place == "cpu":
        with pytest.raises(ValueError, match="`directions` must be of unit length"):
            loss(*clouds)
    else:
        assert loss(*clouds).isnan()


@both
def test_nan_is_refused_or_reaches_the_value(clouds, kind, place):
    x = clouds[0].clone()
    x[3, 1] = math.nan
    loss = LOSSES[kind](COUNT).to(place)
    if place == "cpu":
        with pytest.raises(ValueError, match="`x` must be finite"):
            loss(x, clouds[1])
    else:
        assert loss(x, clouds[1]).isnan()


@both
def test_integers_have_no_gradient(clouds, kind, place):
    loss = LOSSES[kind](COUNT).to(place)
    with pytest.raises(
        TypeError, match=r"`x` must be of a floating type .* got torch.int64. Pass `x.float\(\)`"
    ):
        loss.value_and_grad(clouds[0].long(), clouds[1])
    with pytest.raises(TypeError, match=r"`y` must be of a floating type"):
        loss.value_and_grad(clouds[0], clouds[1].long(), y_grad=True)
    assert loss.value_and_grad(clouds[0], clouds[1].long())[1].shape == clouds[0].shape


@both
def test_images_are_read_as_rows_of_pixels_with_a_word(rng, kind, place):
    """The warning comes once for a loss, not for a batch of clouds, nor for the input that it recommends."""
    images = torch.tensor(rng.random(size=(3, 2, 4, 5)), dtype=torch.float32, device=place)
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(images[0], images[1])
        loss(images.flatten(1), images.flatten(1) + 1)
        meant = loss(images.flatten(0, -3), images.flatten(0, -3) + 1, rng=1)
    with pytest.warns(UserWarning, match=r"\(3, 2, 4, 5\) is read as 3 x 2 clouds of 4 points in 5 dim"):
        value = loss(images, images + 1, rng=1)
    torch.testing.assert_close(value, meant)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(images, images + 1)
    other = LOSSES[kind](COUNT).to(place)
    with pytest.warns(UserWarning, match=r"pass `y\.flatten\(1\)`; if clouds are meant") as said:
        other.value_and_grad(images[0], images + 1)
    assert said[0].filename == __file__


# Torch uses its own script compiler for derivatives forwards.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@both
def test_transforms_of_torch_that_a_loss_cannot_follow(clouds, kind, place):
    x, y = clouds
    loss = LOSSES[kind](COUNT).to(place)
    transformed = {
        "jvp": lambda: torch.func.jvp(loss, (x, y), (x, y)),
        "hessian": lambda: torch.func.hessian(loss)(x, y),
        "no tape": lambda: torch.func.grad(lambda a: loss.value_and_grad(a, y)[0])(x),
    }
    for call in transformed.values():
        with pytest.raises(TypeError, match=r"`torch.func` cannot transform.*`loss.value_and_grad\(x, y\)`"):
            call()
    assert loss.step.item() == 0
