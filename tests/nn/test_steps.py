"""Losses for PyTorch: their directions from step to step."""

from __future__ import annotations

import concurrent.futures
import copy
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from helpers import assert_rounded
from nn.plain import COUNT, DIM, LOSSES, SEED, assert_same_step, both, drawn, plain

import orthoslice as osl
from orthoslice.backend import threads
from orthoslice.estimates.entry import estimate_distance
from orthoslice.estimates.host_step import SlicedStep

torch = pytest.importorskip("torch")
nn = osl.nn


@both
@pytest.mark.parametrize("directions", ["orthogonal", "iid", "hadamard"])
def test_directions_are_fresh_at_every_step(clouds, kind, directions, place):
    loss = LOSSES[kind](COUNT, directions=directions, seed=1).to(place)
    again = LOSSES[kind](COUNT, directions=directions, seed=1).to(place)
    other = LOSSES[kind](COUNT, directions=directions, seed=2).to(place)
    values = [loss(*clouds).item() for _ in range(4)]
    assert len(set(values)) == 4
    assert loss.step.item() == 4
    assert [again(*clouds).item() for _ in range(4)] == values
    assert other(*clouds).item() not in values


@both
def test_seeds_by_default_differ(clouds, kind, place):
    values = {LOSSES[kind](COUNT).to(place)(*clouds).item() for _ in range(3)}
    assert len(values) == 3


@both
def test_state_resumes_the_sequence(clouds, kind, place):
    loss, resumed = (LOSSES[kind](COUNT, seed=seed).to(place) for seed in (1, 2))
    for _ in range(2):
        loss(*clouds)
    state = loss.state_dict()
    assert sorted(state) == ["key_high", "key_low", "step"]
    resumed.load_state_dict(copy.deepcopy(state))
    assert resumed.step.item() == 2
    assert [resumed(*clouds).item() for _ in range(2)] == [loss(*clouds).item() for _ in range(2)]


@both
def test_rng_repeats_and_does_not_advance(clouds, kind, place):
    loss = LOSSES[kind](COUNT, seed=1).to(place)
    assert_same_step(loss, kind, *clouds, drawn(), rng=SEED)
    assert loss(*clouds, rng=7) == loss(*clouds, rng=np.int64(7))
    assert loss(*clouds, rng=7) != loss(*clouds, rng=8)
    assert loss.step.item() == 0
    untouched = LOSSES[kind](COUNT, seed=1).to(place)
    assert loss(*clouds) == untouched(*clouds)


@both
def test_a_refused_call_is_no_step(clouds, kind, place):
    loss = LOSSES[kind](COUNT, seed=1).to(place)
    with pytest.raises(ValueError, match="`x` and `y` must share `dim`"):
        loss(clouds[0], clouds[1][:, :2])
    assert loss.step.item() == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
# The compiler looks at gradients of what it goes on with, and hides the warning in a way that errors escape.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@both
def test_compiled(clouds, kind, place):
    """No break in the graph; every call of what is compiled is a step."""
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    x, y = clouds[0].clone().requires_grad_(), clouds[1]

    def twice(a, b):
        return 2 * loss(2 * a, b)

    torch._dynamo.reset()
    compiled = torch.compile(twice, backend="aot_eager", fullgraph=True)
    for step in range(3):
        value = compiled(x, y)
        expected, (gradient, _) = plain(kind, 2 * x, y, drawn(step))
        assert_rounded(value, 2 * expected, np.float32, DIM * COUNT)
        (found,) = torch.autograd.grad(value, x)
        assert_rounded(found, 4 * gradient, np.float32, DIM * COUNT)
    assert loss.step.item() == 3


class Model(torch.nn.Module):
    """A loss at the end of something."""

    def __init__(self):
        super().__init__()
        self.loss = LOSSES["sliced"](COUNT, seed=SEED)

    def forward(self, x, y):
        return self.loss(2 * x, y)


@pytest.mark.parametrize(
    "record",
    [
        lambda model, clouds: torch.export.export(model, clouds),
        lambda model, clouds: torch.jit.trace(model, clouds),
        lambda model, clouds: torch.jit.script(model),
    ],
    ids=["export", "trace", "script"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_graphs_that_would_freeze_directions_are_refused(record):
    torch._dynamo.reset()
    clouds = torch.randn(20, DIM), torch.randn(20, DIM)
    for model in (Model(), Model().loss):
        with pytest.raises((TypeError, RuntimeError), match=r"draws new directions.* without the loss, or"):
            record(model, clouds)
        assert int(model.state_dict()["loss.step" if isinstance(model, Model) else "step"]) == 0


@both
def test_activation_checkpoints(clouds, kind, place):
    """With `rng` what runs twice sees the same directions; without, the second run is another step."""
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    x, y = clouds[0].clone().requires_grad_(), clouds[1]

    def checkpointed(**options):
        run = torch.utils.checkpoint.checkpoint(lambda a: loss(2 * a, y, **options), x, use_reentrant=False)
        return torch.autograd.grad(run, x)[0]

    (now, _), (first, _) = (plain(kind, 2 * x, y, drawn(step))[1] for step in (None, 0))
    assert_rounded(checkpointed(rng=SEED), 2 * now, np.float32, DIM * COUNT)
    assert loss.step.item() == 0
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_rounded(checkpointed(), 2 * first, np.float32, DIM * COUNT)


@both
def test_evaluation_leaves_the_step_alone(clouds, kind, place):
    """It sees the directions that training would take next, and training then takes those."""
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    loss(*clouds)
    loss.eval()
    values = [loss(*clouds).item() for _ in range(2)] + [loss.value_and_grad(*clouds)[0].item()]
    assert len(set(values)) == 1
    assert loss.step.item() == 1
    assert_same_step(loss.train(), kind, *clouds, drawn(1))
    assert loss.step.item() == 2
    assert loss.eval()(*clouds).item() not in values


@both
def test_threads_that_share_a_loss_get_steps_of_their_own(clouds, kind, place):
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    x, y = (c.repeat(20, 1) for c in clouds)
    start = threading.Barrier(8)

    def train(_):
        start.wait()
        return [loss(x, y).item() for _ in range(8)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        values = [value for part in pool.map(train, range(8)) for value in part]
    again = LOSSES[kind](COUNT, seed=SEED).to(place)
    assert sorted(values) == sorted(again(x, y).item() for _ in range(64))
    assert len(set(values)) == 64
    assert loss.step.item() == 64


@both
def test_a_refused_call_among_others_does_not_take_their_steps_back(clouds, kind, place, monkeypatch):
    """Here one call fails after the next has begun: the step of that one must not be used again."""
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    x, y = (c.double()[None] for c in clouds)  # what the public function does on every device
    estimate, within = estimate_distance, []

    def fail_after_another(*arguments, **options):
        monkeypatch.setattr("orthoslice.nn._loss.estimate_distance", estimate)
        within.append(loss(x, y).item())
        raise ZeroDivisionError

    monkeypatch.setattr("orthoslice.nn._loss.estimate_distance", fail_after_another)
    with pytest.raises(ZeroDivisionError):
        loss(x, y)
    assert loss.step.item() == 2
    assert loss(x, y).item() not in within


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_child_does_not_wait_for_a_thread_it_does_not_have():
    code = """
import os, signal, threading, warnings
import torch, orthoslice as osl
from orthoslice.nn import _loss
warnings.simplefilter("ignore")
torch.set_num_threads(1)
loss, x = osl.nn.SlicedWassersteinLoss(4), torch.zeros(2, 2)
held, done = threading.Event(), threading.Event()
def hold():
    with _loss._STEP_LOCK:
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)
    loss(x, x)
    os._exit(7)
status = os.waitpid(child, 0)[1]
done.set()
thread.join()
assert os.waitstatus_to_exitcode(status) == 7
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("n", "users"), [(16, 0), (600, 1)])
def test_large_products_in_host_memory_leave_torch_its_threads(monkeypatch, rng, n, users):
    """One thread of BLAS: others would wait for those of torch, which look for work for milliseconds."""
    seen, plain = [], SlicedStep.mean_and_gradients

    def spy(*arguments):
        seen.append(threads._blas_use.users)
        return plain(*arguments)

    monkeypatch.setattr(SlicedStep, "mean_and_gradients", spy)
    x = torch.tensor(rng.normal(size=(n, 128)), dtype=torch.float32, requires_grad=True)
    nn.SlicedWassersteinLoss(64, seed=0)(x, torch.ones(n, 128)).backward()
    assert seen == [users]
    assert threads._blas_use.users == 0
