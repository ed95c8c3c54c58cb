"""Losses for PyTorch: their life as modules, copied, moved, saved and shown."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from helpers import assert_rounded
from nn.plain import COUNT, DIM, LOSSES, SEED, assert_same_step, both, drawn, plain

import orthoslice as osl

torch = pytest.importorskip("torch")
nn = osl.nn


@both
@pytest.mark.parametrize("given", [True, False])
def test_targets(clouds, kind, given, place):
    x, y = clouds
    theta = drawn().float()
    options = {"directions": theta} if given else {"n_directions": COUNT, "seed": SEED}
    loss = LOSSES[kind](target=y, **options).to(place)
    for step in range(2):
        expected, _ = plain(kind, x, y, theta.double() if given else drawn(step))
        assert_rounded(loss(x), expected, np.float32, DIM * COUNT)
    assert "target" not in loss.state_dict()
    with pytest.raises(TypeError, match="made with a `target`"):
        loss(x, y)
    with pytest.raises(TypeError, match="Pass `y`"):
        LOSSES[kind](**options).to(place)(x)


@both
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
@pytest.mark.parametrize("given", [True, False])
def test_copies(clouds, kind, copied, given, place):
    options = {"directions": drawn().float()} if given else {"n_directions": COUNT}
    loss = LOSSES[kind](target=clouds[1], seed=SEED, **options).to(place)
    loss(clouds[0])
    twin = copied(loss)
    assert repr(twin) == repr(loss)
    assert [twin(clouds[0]).item() for _ in range(2)] == [loss(clouds[0]).item() for _ in range(2)]
    assert twin.step.item() == loss.step.item() == 3
    twin(clouds[0])
    assert loss.step.item() == 3


@both
@pytest.mark.parametrize(
    "change",
    [lambda m: m.double(), lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.double().float()],
)
def test_types_of_the_module_leave_key_and_step_alone(clouds, kind, change, place):
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    loss(*clouds)
    words = loss.key_high.clone(), loss.key_low.clone()
    loss = change(loss)
    assert (loss.key_high.dtype, loss.key_low.dtype, loss.step.dtype) == (*(torch.int32,) * 2, torch.int64)
    assert (loss.key_high, loss.key_low) == words
    assert_same_step(loss, kind, *clouds, drawn(1))


@both
def test_modules_within_modules(clouds, kind, place):
    """Buffers are found, moved and saved with the model that the loss is part of."""
    model = torch.nn.ModuleDict({"loss": LOSSES[kind](COUNT, target=clouds[1])}).to(place)
    assert sorted(model.state_dict()) == ["loss.key_high", "loss.key_low", "loss.step"]
    assert not list(model.parameters())
    assert {name for name, _ in model.named_buffers()} > {"loss.target", "loss.step"}


def test_repr():
    assert repr(nn.SlicedWassersteinLoss(8, p=1, seed=SEED)) == (
        f"SlicedWassersteinLoss(n_directions=8, p=1, directions=Orthogonal(), seed={SEED})"
    )
    shown = repr(nn.ProjectedWassersteinLoss(directions=torch.eye(3), target=torch.ones(7, 3), distance=True))
    assert "(3, 3) given" in shown
    assert "target=(7, 3)" in shown
    assert "distance=True" in shown
    assert "seed" not in repr(nn.SlicedWassersteinLoss(8).to("meta"))


@both
def test_seeds_that_were_drawn_can_be_repeated(clouds, kind, place):
    """Also those that came with a state."""
    loss = LOSSES[kind](COUNT).to(place)
    assert LOSSES[kind](COUNT, seed=loss.seed).to(place)(*clouds) == loss(*clouds)
    other = LOSSES[kind](COUNT, seed=SEED).to(place)
    loss.load_state_dict(other.state_dict())
    assert loss.seed == other.seed == SEED


@both
def test_targets_and_directions_are_copies(clouds, kind, place):
    """What a caller writes to them afterwards, in whatever way, changes nothing."""
    x, y = clouds
    theta = drawn().float().to(place)
    loss = LOSSES[kind](target=y, directions=theta).to(place)
    before = loss(x)
    y.data.mul_(2)
    theta.data.zero_()
    assert loss(x) == before
    loss.target.copy_(y)
    assert loss(x) != before


def test_all_buffers_are_in_one_place():
    """That of the target, or else of given directions."""
    theta, y = torch.eye(3), torch.ones(4, 3)
    for options in (
        {"directions": theta.to("meta")},
        {"target": y.to("meta")},
        {"directions": theta, "target": y.to("meta")},
        {"directions": theta.tolist(), "target": y.to("meta")},
    ):
        loss = nn.SlicedWassersteinLoss(**options)
        assert {b.device.type for b in loss.buffers()} == {"meta"}
    assert {b.device.type for b in nn.SlicedWassersteinLoss(target=y).buffers()} == {"cpu"}


@both
def test_functional_calls(clouds, kind, place):
    """With other buffers in the place of its own: another key and step."""
    loss = LOSSES[kind](COUNT, seed=1).to(place)
    other = {name: b.clone() for name, b in LOSSES[kind](COUNT, seed=SEED).to(place).named_buffers()}
    other["step"] += 4
    value = torch.func.functional_call(loss, other, clouds)
    assert_rounded(value, plain(kind, *clouds, drawn(4))[0], np.float32, DIM * COUNT)
    assert (loss.step.item(), other["step"].item()) == (0, 5)


def test_torch_is_imported_only_for_losses():
    code = """
import sys
import orthoslice as osl
assert "torch" not in sys.modules
osl.nn.SlicedWassersteinLoss
assert "torch" in sys.modules
try:
    osl.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
