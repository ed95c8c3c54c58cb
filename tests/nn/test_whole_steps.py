"""Losses for PyTorch by the kernels of a whole step."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import weakref

import numpy as np
import pytest
from backend.kernels.cuda.tf32 import round_products_to_tf32
from helpers import assert_rounded
from nn.plain import (
    COUNT,
    DIM,
    SEED,
    as_if_on_a_gpu,
    assert_half,
    assert_same_step,
    drawn,
    plain,
    points,
)

import orthoslice as osl
from orthoslice.backend.arrays import namespace
from orthoslice.directions import IID, Orthogonal
from orthoslice.directions.base import DenseDirections
from orthoslice.estimates.fused import whole_step as whole_step_operation

torch = pytest.importorskip("torch")
forward_ad = torch.autograd.forward_ad
nn = osl.nn


@pytest.mark.thin(pairs=True)
@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("directions", ["orthogonal", "iid"])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(("n", "m"), [(20, 20), (20, 13), (13, 20)])
def test_whole_steps(rng, directions, p, n, m, whole_step):
    """Against the plain loss, over several steps and for orders given by `rng`."""
    sampler = {"orthogonal": Orthogonal(), "iid": IID()}[directions]
    loss = nn.SlicedWassersteinLoss(COUNT, p=p, directions=directions, seed=SEED).to(whole_step)
    for step in range(3):
        x, y = points(rng, whole_step, n), points(rng, whole_step, m) + 0.5
        assert_same_step(loss, "sliced", x, y, drawn(step, sampler), p)
        assert loss.step.item() == step + 1
    assert_same_step(loss, "sliced", x, y, drawn(None, sampler), p, rng=SEED)
    assert loss.step.item() == 3


@pytest.mark.parametrize(
    ("options", "n"),
    [
        *[({}, 20), ({"directions": "iid", "p": 1}, 13), ({"p": 1.5}, 1), ({"directions": drawn(7)}, 20)],
        *[({"memory": 2500}, 20), ({"memory": 1}, 13)],
    ],
    ids=str,
)
def test_whole_projected_steps(rng, options, n, cuda_device, monkeypatch):
    """Against the plain loss, with points that tie on every line and so are matched by their coordinates."""
    if cuda_device == "cpu":
        as_if_on_a_gpu(monkeypatch)
    directions = options.get("directions")
    given = isinstance(directions, torch.Tensor)
    loss = nn.ProjectedWassersteinLoss(None if given else COUNT, seed=SEED, **options).to(cuda_device)
    sampler = IID() if not given and directions == "iid" else Orthogonal()
    for step in range(2):
        x, y = points(rng, cuda_device, n), points(rng, cuda_device, n) + 0.5
        theta = directions if given else drawn(step, sampler)
        assert_same_step(loss, "projected", x, y, theta, options.get("p", 2))
        assert loss.step.item() == step + 1
    shuffled = torch.as_tensor(rng.permutation(n), device=cuda_device)
    doubled, other = (torch.cat([a, a]) for a in (x, y))
    again = torch.cat([x[shuffled], x[shuffled]])
    assert torch.equal(loss(doubled, other, rng=1), loss(again, other, rng=1))


@pytest.mark.parametrize("given", [False, True])
def test_a_loss_that_is_not_referenced_is_freed_at_once(rng, given, whole_step):
    """With it go its target and directions, without waiting for the collector."""
    options = {"directions": drawn(0).float()} if given else {"n_directions": COUNT}
    loss = nn.SlicedWassersteinLoss(**options).to(whole_step)
    loss(points(rng, whole_step, 20), points(rng, whole_step, 20))
    watched = weakref.ref(loss)
    gc.disable()
    try:
        del loss
        assert watched() is None
    finally:
        gc.enable()


def test_plans_that_draw_alike_share_what_is_drawn_ahead(rng, whole_step):
    """A loss that gains nothing by drawing ahead draws at every step."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    for step, n in enumerate((20, 13, 9)):
        x, y = points(rng, whole_step, n), points(rng, whole_step, n) + 0.5
        assert_same_step(loss, "sliced", x, y, drawn(step))
    assert len(loss.caches.plans) == 3
    assert len(loss.caches.ahead) == 1
    many = nn.SlicedWassersteinLoss(40 * DIM, seed=SEED).to(whole_step)
    many(x, y)
    assert not many.caches.ahead


@pytest.mark.parametrize("away", [None, "stream", "graph"])
def test_what_is_drawn_ahead_stays_on_its_stream_and_out_of_graphs(rng, away, whole_step, monkeypatch):
    """What is held is spoilt here: that shows where it is used, and only there (the control)."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    loss(x, y)
    (ahead,) = loss.caches.ahead.values()
    ahead._kept.fill_(math.nan)
    if away == "stream":
        monkeypatch.setattr("orthoslice.backend.kernels.cuda.directions.current_stream", lambda device: -1)
    elif away == "graph":
        monkeypatch.setattr("orthoslice.nn._plans.is_captured", lambda tensor: True)
    value = loss(x, y)
    if away is None:
        assert value.isnan()
    else:
        assert_rounded(value, plain("sliced", x, y, drawn(1))[0], np.float32, DIM * COUNT)


def test_copies_that_share_plans_keep_their_own_directions(rng, whole_step):
    """As replicas of `DataParallel` do."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    loss(x, y)
    replica = loss._replicate_for_data_parallel()
    replica._buffers = {name: None if b is None else b.clone() for name, b in loss._buffers.items()}
    replica.load_state_dict(nn.SlicedWassersteinLoss(COUNT, seed=1).state_dict())
    expected, _ = plain("sliced", x, y, drawn(0, seed=1))
    assert_rounded(replica(x, y), expected, np.float32, DIM * COUNT)
    assert (replica.step.item(), loss.step.item()) == (1, 1)


def test_whole_steps_with_a_target_that_wants_a_gradient(rng, whole_step, monkeypatch):
    """A sorted target has forgotten where its points were."""
    monkeypatch.setattr("orthoslice.backend.kernels.cuda.loss._PROJECT_INSIDE", 0)
    theta, y = drawn(0).float(), points(rng, whole_step, 20) + 0.5
    loss = nn.SlicedWassersteinLoss(directions=theta, target=y).to(whole_step)
    x = points(rng, whole_step, 20)
    loss(x)
    loss.target = y.clone().requires_grad_()
    loss(x).backward()
    _, (_, expected) = plain("sliced", x, y, theta.double())
    assert_rounded(loss.target.grad, expected, np.float32, DIM * COUNT)


def test_whole_steps_have_no_second_derivative(rng, whole_step):
    """Asking for one is an error that says why; building a graph for it is not."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20).requires_grad_(), points(rng, whole_step, 20)
    (gradient,) = torch.autograd.grad(loss(x, y), x, create_graph=True)
    assert gradient.requires_grad
    with pytest.raises(RuntimeError, match="first derivatives"):
        gradient.pow(2).sum().backward()


def test_whole_steps_follow_the_number_of_directions(rng, whole_step):
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    loss(x, y)
    loss.n_directions = 3
    expected, _ = plain("sliced", x, y, drawn(1, count=3))
    assert_rounded(loss(x, y), expected, np.float32, DIM * COUNT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_whole_steps_on_directions_of_other_types(rng, dtype, whole_step):
    """Rounding to half precision changes their length, which is set right again."""
    theta = drawn(0).float()
    loss = nn.SlicedWassersteinLoss(directions=theta, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    loss(x, y)
    loss.to(dtype)
    rounded = torch.nn.functional.normalize(theta.to(dtype).double(), dim=1)
    expected, _ = plain("sliced", x, y, rounded)
    assert_rounded(loss(x, y), expected, np.float32, DIM * COUNT)


def test_whole_steps_on_directions_that_take_turns(rng, whole_step):
    """New tensors may lie where old ones did: what was worked out from those must not be taken for theirs."""
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    loss = nn.SlicedWassersteinLoss(directions=drawn(0).float()).to(whole_step)
    for step in range(4):
        theta = drawn(step)
        loss.theta = theta.float().to(whole_step)
        expected, _ = plain("sliced", x, y, theta)
        assert_rounded(loss(x, y), expected, np.float32, DIM * COUNT)


def test_whole_steps_in_inference_mode(rng, whole_step, monkeypatch):
    """A first call there leaves nothing behind that training could not use."""
    monkeypatch.setattr("orthoslice.backend.kernels.cuda.loss._PROJECT_INSIDE", 0)
    theta, y = drawn(0).float(), points(rng, whole_step, 20)
    loss = nn.SlicedWassersteinLoss(directions=theta, target=y).to(whole_step)
    x = points(rng, whole_step, 20).requires_grad_()
    with torch.inference_mode():
        value = loss(x)
    again = loss(x)
    again.backward()
    assert torch.equal(again.detach(), value.clone())
    assert x.grad.isfinite().all()


def test_what_is_kept_is_not_saved(rng, whole_step, monkeypatch):
    monkeypatch.setattr("orthoslice.backend.kernels.cuda.loss._PROJECT_INSIDE", 0)
    theta, y = drawn(0).float(), points(rng, whole_step, 500)
    loss = nn.SlicedWassersteinLoss(directions=theta, target=y, seed=SEED).to(whole_step)
    before = len(pickle.dumps(loss))
    loss(points(rng, whole_step, 500))
    assert len(pickle.dumps(loss)) < 1.1 * before


@pytest.mark.parametrize("memory", ["1GB", 2000, 1])
@pytest.mark.parametrize("fused", [True, False])
def test_whole_steps_in_chunks(rng, memory, fused, whole_step, monkeypatch):
    """Memory and the way to project change only rounding."""
    monkeypatch.setattr("orthoslice.backend.kernels.cuda.loss._PROJECT_INSIDE", 1 << 26 if fused else 0)
    monkeypatch.setattr("orthoslice.backend.kernels.cuda.loss._PROJECT_AT_ONCE", 0)
    loss = nn.SlicedWassersteinLoss(COUNT, memory=memory, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    assert_same_step(loss, "sliced", x, y, drawn(0))


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("dim", [1, 2, 4])
def test_whole_steps_of_few_directions(rng, count, dim, whole_step):
    """Less than a block, and a last block that is not full."""
    x, y = points(rng, whole_step, 9, dim), points(rng, whole_step, 9, dim)
    loss = nn.SlicedWassersteinLoss(count, seed=SEED).to(whole_step)
    expected, _ = plain("sliced", x, y, drawn(0, count=count, dim=dim))
    assert_rounded(loss(x, y), expected, np.float32, DIM * COUNT)


def test_whole_steps_of_one_loss_on_several_sizes(rng, whole_step):
    """What a loss remembers of one cloud does not reach the next."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    for step, (n, dim) in enumerate([(20, 5), (9, 3), (20, 3), (20, 5)]):
        x, y = points(rng, whole_step, n, dim), points(rng, whole_step, n, dim)
        assert_same_step(loss, "sliced", x, y, drawn(step, dim=dim))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_whole_steps_on_given_directions(rng, dtype, whole_step):
    """Of any type; and after other ones were loaded."""
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20)
    theta, other = drawn().to(dtype), drawn(1).to(dtype)

    def meant(theta):
        # Rounding to half precision changes their length, which is set right again.
        return (
            torch.nn.functional.normalize(theta.double(), dim=1) if dtype == torch.float16 else theta.double()
        )

    loss = nn.SlicedWassersteinLoss(directions=theta).to(whole_step)
    for _ in range(2):
        assert_same_step(loss, "sliced", x, y, meant(theta))
    loss.load_state_dict({**loss.state_dict(), "theta": other})
    assert_same_step(loss, "sliced", x, y, meant(other))
    assert_same_step(loss.double(), "sliced", x, y, meant(other))


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("m", [20, 13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_whole_steps_against_a_target(rng, given, m, dtype, whole_step):
    """Sorted once where the directions stay; sorted again when the target is written to or replaced."""
    x, y = points(rng, whole_step, 20).to(dtype).requires_grad_(), points(rng, whole_step, m).to(dtype)
    theta = drawn().float()
    options = {"directions": theta} if given else {"n_directions": COUNT, "seed": SEED}
    loss = nn.SlicedWassersteinLoss(target=y, memory=3000, **options).to(whole_step)
    for step in range(4):
        if step == 2:
            loss.target.mul_(2)
        if step == 3:
            loss.target = loss.target[1:] + 1
        now = theta.double() if given else drawn(step)
        expected, (gradient, _) = plain("sliced", x, loss.target, now)
        value = loss(x)
        assert_rounded(value, expected, np.float32, DIM * COUNT)
        (found,) = torch.autograd.grad(value, x)
        assert found.dtype == dtype
        assert_rounded(found, gradient, np.float32 if dtype == torch.float32 else np.float16, DIM * COUNT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_whole_steps_of_half_precision(rng, dtype, whole_step):
    x, y = points(rng, whole_step, 20).to(dtype).requires_grad_(), points(rng, whole_step, 20)
    value = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)(x, y)
    expected, (gradient, _) = plain("sliced", x, y, drawn(0))
    assert value.dtype == torch.float32
    assert_rounded(value, expected, np.float32, DIM * COUNT)
    assert_half(torch.autograd.grad(value, x)[0], gradient, dtype)


def test_whole_steps_of_any_layout(rng, whole_step):
    """Strided and transposed clouds, and views at odd addresses."""
    numbers = points(rng, whole_step, 1000, 1).reshape(-1)
    x, y = numbers[1 : 1 + 20 * 8].view(20, 8), numbers[300 : 300 + 8 * 20].view(8, 20).T
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    value, expected = loss(x, y), plain("sliced", x, y, drawn(0, dim=8))[0]
    assert_rounded(value, expected, np.float32, DIM * COUNT)


def test_whole_steps_of_equal_clouds(rng, whole_step):
    x = points(rng, whole_step, 20).requires_grad_()
    for p in (1, 2):
        value = nn.SlicedWassersteinLoss(COUNT, p=p).to(whole_step)(x, x.detach().flip(0))
        assert value.item() == 0
        assert (torch.autograd.grad(value, x)[0] == 0).all()


def test_nan_in_a_whole_step(rng, whole_step):
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20)
    x[3, 1] = math.nan
    assert nn.SlicedWassersteinLoss(COUNT).to(whole_step)(x, y).isnan()


def test_whole_steps_are_copied_with_what_they_remember(rng, whole_step):
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20)
    loss = nn.SlicedWassersteinLoss(directions=drawn().float(), target=y).to(whole_step)
    value = loss(x)
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert twin(x) == value
        twin.target.mul_(2)
        assert twin(x) != value
        assert loss(x) == value


def refusal(loss, x, y, kernels=None, **weights):
    """Why kernels cannot make a whole step of this loss."""
    kernels = kernels or {"SW": "cuda sliced", "PW": "cuda projected"}[loss._name]
    with whole_step_operation.using(kernels), pytest.raises(TypeError) as caught:
        loss(x, y, rng=0, **weights)
    return str(caught.value)


def test_whole_steps_are_refused_with_a_reason():
    loss, x = nn.SlicedWassersteinLoss(COUNT), torch.zeros(4, 3)
    cases = {
        "single and half precision": (x.double(), x.double()),
        "NVIDIA GPU": (x, x),
    }
    for reason, pair in cases.items():
        assert reason in refusal(loss, *pair)
    hadamard = nn.SlicedWassersteinLoss(COUNT, directions="hadamard")
    assert "independent, orthogonal or given" in refusal(hadamard, x, x)
    assert "device of the loss" in refusal(nn.SlicedWassersteinLoss(COUNT).to("meta"), x, x)
    weights = {"x_weights": torch.full((4,), 0.25)}
    assert "equal mass" in refusal(loss, x, x, **weights)
    assert "with weights" in refusal(loss, x, x, "cuda weighted")
    assert "NVIDIA GPU" in refusal(loss, x, x, "cuda weighted", **weights)
    projected = nn.ProjectedWassersteinLoss(COUNT)
    assert "equal mass" in refusal(projected, x, x, **weights)
    assert "own line" in refusal(projected, x, x, "cuda weighted", **weights)
    assert "equal size" in refusal(projected, x, x[:2])
    assert "NVIDIA GPU" in refusal(projected, x, x)
    assert "full distance" in refusal(nn.ProjectedWassersteinLoss(COUNT, cost="pooled"), x, x)


@pytest.mark.parametrize("kind", ["small", "large"])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_whole_steps_to_the_distance(rng, p, kind, whole_step):
    """The root of the loss and its gradients; at equal clouds both are 0, and NaN stays NaN."""
    memory = "512MB" if kind == "small" else 3000
    loss = nn.SlicedWassersteinLoss(COUNT, p=p, distance=True, memory=memory, seed=SEED).to(whole_step)
    x, y = (points(rng, whole_step, 20).requires_grad_() for _ in "xy")
    value = loss(x, y)
    power, gradients = plain("sliced", x, y, drawn(0), p)
    expected = (power ** (1 / p)).detach()
    assert_rounded(value, expected, np.float32, DIM * COUNT)
    for found, gradient in zip(torch.autograd.grad(value, (x, y)), gradients, strict=True):
        assert_rounded(found, gradient * expected / (p * power.detach()), np.float32, DIM * COUNT)
    assert_rounded(loss(x.detach(), y.detach(), rng=SEED), loss(x, y, rng=SEED), np.float32)
    value = loss(x, x.detach().flip(0))
    assert value.item() == 0
    assert (torch.autograd.grad(value, x)[0] == 0).all()
    value = loss(x, x.detach() * math.nan)
    assert value.isnan()
    assert torch.autograd.grad(value, x)[0].isnan().any()


def test_whole_steps_follow_a_change_to_the_distance(rng, whole_step):
    loss = nn.SlicedWassersteinLoss(COUNT).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20)
    value = loss(x, y, rng=1)
    loss.distance = True
    torch.testing.assert_close(loss(x, y, rng=1), value.sqrt())


@pytest.mark.parametrize("directions", ["orthogonal", "iid"])
def test_whole_steps_of_an_evaluation(rng, directions, whole_step):
    """With the directions of the current step, which stays; drawn ahead or not."""
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    loss = nn.SlicedWassersteinLoss(COUNT, directions=directions, seed=SEED).to(whole_step)
    loss(x, y)
    expected, _ = plain("sliced", x, y, drawn(1, IID() if directions == "iid" else None))
    for mode, after in ((loss.eval, 1), (loss.eval, 1), (loss.train, 2)):
        assert_rounded(mode()(x, y), expected, np.float32, DIM * COUNT)
        assert loss.step.item() == after


@pytest.mark.parametrize(("m", "dtype"), [(20, torch.float32), (20, torch.float16), (13, torch.float32)])
@pytest.mark.parametrize("y_grad", [False, True])
def test_whole_steps_give_value_and_gradients(rng, y_grad, m, dtype, whole_step, monkeypatch):
    """What the tape gives, in any mode, without touching it."""
    x, y = points(rng, whole_step, 20).to(dtype).requires_grad_(), points(rng, whole_step, m).to(dtype)
    y.requires_grad_(y_grad)
    loss, taped = (nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step) for _ in range(2))
    value = taped(x, y)
    expected = value, *torch.autograd.grad(value, (x, y) if y_grad else x)
    monkeypatch.setattr(torch.autograd, "grad", None)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        loss.step.zero_()
        with mode():
            found = loss.value_and_grad(x, y, y_grad=y_grad)
        assert loss.step.item() == 1
        for one, other in zip(found, expected, strict=True):
            assert one.grad_fn is None
            assert one.dtype == other.dtype
            assert_rounded(one.clone(), other.double(), np.float32, DIM * COUNT)


# Torch uses its own script compiler for it.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_whole_steps_forwards(rng, whole_step):
    """Derivatives along moves of one or both clouds; a second derivative is an error that says why."""
    x, y, move, other = (points(rng, whole_step, 20) for _ in range(4))
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    with forward_ad.dual_level():
        moved, also = forward_ad.make_dual(x, move), forward_ad.make_dual(y, other)
        values = [loss(moved, also, rng=SEED), loss(moved, y, rng=SEED), loss(x, also, rng=SEED)]
        found = [forward_ad.unpack_dual(value).tangent for value in values]
        taped = forward_ad.make_dual(x.clone().requires_grad_(), move)
        with pytest.raises(RuntimeError, match="first derivatives"):
            torch.autograd.grad(loss(taped, y), taped)
    _, (by_x, by_y) = plain("sliced", x, y, drawn())
    parts = (by_x * move.cpu()).sum(), (by_y * other.cpu()).sum()
    for one, expected in zip(found, (parts[0] + parts[1], *parts), strict=True):
        assert_rounded(one, expected, np.float32, 20 * DIM * COUNT)


def test_whole_steps_on_views_that_stand_for_their_negative(rng, whole_step):
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20)
    loss = nn.SlicedWassersteinLoss(COUNT).to(whole_step)
    for p, q in ((x, y), (y, x)):
        view = torch._neg_view(p)
        assert view.is_neg()
        assert view.is_contiguous()
        assert torch.equal(loss(view, q, rng=1), loss(-p, q, rng=1))


def test_whole_steps_leave_samplers_of_others_alone():
    """One derived from ours may draw something else."""

    class Fixed(Orthogonal):
        def draw(self, key, rows, dim, dtype):
            return DenseDirections(namespace(key.high).eye(dim, dtype=dtype)[:rows])

    x = torch.zeros(4, 3)
    loss = nn.SlicedWassersteinLoss(3, directions=Fixed())
    assert "independent, orthogonal or given" in refusal(loss, x, x)


@pytest.mark.parametrize("given", [False, True])
def test_whole_steps_are_not_rounded_to_tf32(rng, given, whole_step, monkeypatch):
    """Products of the library are made in double precision where it would round them."""
    for name in ("_PROJECT_INSIDE", "_PROJECT_AT_ONCE"):
        monkeypatch.setattr(f"orthoslice.backend.kernels.cuda.loss.{name}", 0)
    round_products_to_tf32(monkeypatch)
    theta, y = drawn(0).float(), points(rng, whole_step, 20)
    options = {"directions": theta, "target": y} if given else {"n_directions": COUNT, "seed": SEED}
    loss = nn.SlicedWassersteinLoss(memory=3000, **options).to(whole_step)
    x = points(rng, whole_step, 20).requires_grad_()
    value = loss(x) if given else loss(x, y)
    expected, (gradient, _) = plain("sliced", x, y, theta.double() if given else drawn(0))
    assert_rounded(value, expected, np.float32, DIM * COUNT)
    assert_rounded(torch.autograd.grad(value, x)[0], gradient, np.float32, DIM * COUNT)


def plain_weighted(x, y, theta, weights, p=2):
    """The loss of weighted clouds in float64 and its gradients, by the public function on the host."""
    x, y = (a.detach().cpu().double().requires_grad_() for a in (x, y))
    of_x, of_y = (None if w is None else w.detach().cpu().double() for w in weights)
    of_x, of_y = (None if w is None else w / w.sum() for w in (of_x, of_y))
    options = {"directions": theta, "p": p, "x_weights": of_x, "y_weights": of_y}
    value = osl.sliced_wasserstein(x, y, **options).value
    return value.detach(), torch.autograd.grad(value, (x, y))


def some_weights(rng, device, n, dtype=torch.float32):
    """A quarter of the points weigh nothing."""
    weights = rng.random(n) * (np.arange(n) % 4 > 0)
    return torch.tensor(weights / weights.sum(), dtype=dtype, device=device)


def plans_by_kernels(loss):
    return sum(plan is not None for plan in loss.caches.plans.values())


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(
    "types", [(torch.float32, torch.float32), (torch.float64, None), (None, torch.float16)]
)
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize(("n", "m"), [(20, 20), (20, 13), (13, 20)])
def test_weighted_whole_steps(rng, types, p, n, m, whole_step):
    """Of one cloud or both, in any floating type, over several steps and for orders given by `rng`."""
    loss = nn.SlicedWassersteinLoss(COUNT, p=p, seed=SEED).to(whole_step)
    for step in range(3):
        x, y = points(rng, whole_step, n).requires_grad_(), points(rng, whole_step, m).requires_grad_()
        tables = [
            None if d is None else some_weights(rng, whole_step, len(c), d)
            for d, c in zip(types, (x, y), strict=True)
        ]
        given = dict(zip(("x_weights", "y_weights"), tables, strict=True))
        value = loss(x, y, **given)
        expected, gradients = plain_weighted(x, y, drawn(step), tables, p)
        assert value.dtype == torch.float32
        assert_rounded(value, expected, np.float32, DIM * COUNT)
        for found, gradient in zip(torch.autograd.grad(value, (x, y)), gradients, strict=True):
            assert_rounded(found, gradient, np.float32, DIM * COUNT)
        assert loss.step.item() == step + 1
    value, *found = loss.value_and_grad(x, y, y_grad=True, rng=SEED, **given)
    expected, gradients = plain_weighted(x, y, drawn(), tables, p)
    assert_rounded(value, expected, np.float32, DIM * COUNT)
    for one, gradient in zip(found, gradients, strict=True):
        assert_rounded(one, gradient, np.float32, DIM * COUNT)
    assert loss.step.item() == 3
    assert plans_by_kernels(loss) == 1


@pytest.mark.parametrize("memory", ["1GB", 2000, 1])
@pytest.mark.parametrize("given", [False, True])
def test_weighted_whole_steps_against_a_target(rng, given, memory, whole_step):
    """A few directions at a time too; clouds of half precision keep their type in the gradient."""
    x, y = points(rng, whole_step, 20).half().requires_grad_(), points(rng, whole_step, 13)
    options = {"directions": drawn().float()} if given else {"n_directions": COUNT, "seed": SEED}
    loss = nn.SlicedWassersteinLoss(target=y, memory=memory, distance=True, **options).to(whole_step)
    tables = some_weights(rng, whole_step, 20), some_weights(rng, whole_step, 13)
    for step in range(2):
        value = loss(x, x_weights=tables[0], y_weights=tables[1])
        power, (gradient, _) = plain_weighted(x, y, drawn() if given else drawn(step), tables)
        assert_rounded(value, power.sqrt(), np.float32, DIM * COUNT)
        assert_half(torch.autograd.grad(value, x)[0], gradient / (2 * power.sqrt()), torch.float16)
    assert plans_by_kernels(loss) == 1


def test_weights_that_change_are_noticed(rng, whole_step):
    """Written to in place, replaced, or those of the other cloud."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    weights = some_weights(rng, whole_step, 20)
    theta = drawn()

    def assert_of(of_x, of_y):
        expected, _ = plain_weighted(x, y, theta, (of_x, of_y))
        assert_rounded(loss(x, y, x_weights=of_x, y_weights=of_y, rng=SEED), expected, np.float32, DIM * COUNT)

    for of_x, of_y in ((weights, None), (None, weights), (weights, weights), (weights, weights.clone())):
        assert_of(of_x, of_y)
    weights.mul_(1.1)
    assert loss(x, y, x_weights=weights, rng=SEED).isnan()
    weights.copy_(some_weights(rng, whole_step, 20).flip(0))
    assert_of(weights, None)
    weights.neg_()
    assert loss(x, y, x_weights=weights, rng=SEED).isnan()
    with torch.inference_mode():
        # Torch does not count writes to these.
        weights = torch.full((20,), 1 / 20, device=whole_step)
        assert loss(x, y, x_weights=weights, rng=SEED).isfinite()
        weights.neg_()
        assert loss(x, y, x_weights=weights, rng=SEED).isnan()


def test_even_weights_of_a_whole_step_change_nothing(rng, whole_step):
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20).requires_grad_(), points(rng, whole_step, 20)
    even = torch.full((20,), 1 / 20, device=whole_step)
    expected, found = (loss.value_and_grad(x, y, rng=1, x_weights=w, y_weights=w) for w in (None, even))
    for one, other in zip(found, expected, strict=True):
        assert_rounded(one, other.double(), np.float32, DIM)
    assert plans_by_kernels(loss) == 2
    assert loss(x, x.detach().flip(0), x_weights=even, y_weights=even).item() == 0


# Torch uses its own script compiler for tangents.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_weights_that_the_driver_takes(rng, whole_step):
    """Derivatives by weights, weights of a batch, and those with tangents are not for the kernels."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20)
    weights = some_weights(rng, whole_step, 20)
    by_kernels = loss(x, y, x_weights=weights, rng=1)
    assert plans_by_kernels(loss) == 1
    wanting = weights.clone().requires_grad_()
    value = loss(x, y, x_weights=wanting, rng=1)
    assert torch.autograd.grad(value, wanting)[0].abs().sum() > 0
    with forward_ad.dual_level():
        tangent = torch.ones_like(weights) / 20 - weights
        dual = loss(x, y, x_weights=forward_ad.make_dual(weights, tangent), rng=1)
        assert forward_ad.unpack_dual(dual).tangent is not None
    batch = loss(x[None], y[None], x_weights=weights[None], rng=1)
    for other in (value, dual, batch):
        assert_rounded(other.clone(), by_kernels.double(), np.float32, DIM * COUNT)
    with pytest.raises(ValueError, match="one weight a point"):
        loss(x, y, x_weights=weights[:7])
    assert plans_by_kernels(loss) == 1
