"""Losses for PyTorch: their values, gradients, directions from step to step, and life as modules."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
from helpers import assert_rounded, bridge_torch, unit_rows

import orthoslice as osl
from orthoslice.arrays import STEPS, Stream
from orthoslice.directions import IID, HadamardRademacher, Orthogonal, drawing

torch = pytest.importorskip("torch")
nn = osl.nn

LOSSES = {"sliced": nn.SlicedWassersteinLoss, "projected": nn.ProjectedWassersteinLoss}
DISTANCES = {"sliced": osl.sliced_wasserstein, "projected": osl.projected_wasserstein}
SEED = 2**63 + 2**31 + 5
DIM, COUNT = 5, 12

both = pytest.mark.parametrize("kind", sorted(LOSSES))
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture(params=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def place(request):
    torch.set_num_threads(1)
    return request.param


@pytest.fixture
def whole_step(cuda_device, monkeypatch):
    """Where the sliced loss runs by the kernels of a whole step: on a GPU, or in host memory as if on one."""
    if cuda_device == "cpu":
        bridge_torch(monkeypatch, False)
        monkeypatch.setattr(nn.SlicedWassersteinLoss, "_whole_step_refusal", lambda self, x, y: None)
        for refusal in ("cuda_refusal", "room_refusal"):
            monkeypatch.setattr(drawing, refusal, lambda *_, **__: None)
    plans, make_plan = [], nn.SlicedWassersteinLoss._make_plan

    def noted(*arguments):
        plans.append(make_plan(*arguments))
        return plans[-1]

    monkeypatch.setattr(nn.SlicedWassersteinLoss, "_make_plan", noted)
    yield cuda_device
    assert any(plan is not None for plan in plans), "no loss went through the kernels"


@pytest.fixture
def clouds(rng, place):
    return points(rng, place, 20), points(rng, place, 20) + 0.5


def points(rng, place, n, dim=DIM):
    return torch.tensor(rng.normal(size=(n, dim)), dtype=torch.float32, device=place)


def drawn(step=None, sampler=None, count=COUNT, dim=DIM, seed=SEED):
    """The directions of a step, or of an `rng=`, in float64."""
    stream = Stream.from_seed(seed, np.zeros(1))
    stream = stream if step is None else stream.fold(step, STEPS)
    return torch.tensor((sampler or Orthogonal()).sample(count, dim, stream).theta)


def plain(kind, x, y, theta, p=2):
    """The loss in float64 and its gradients, in a few lines of torch."""
    x, y = (a.detach().cpu().double().requires_grad_() for a in (x, y))
    most = math.lcm(len(x), len(y))
    orders = [torch.argsort(theta @ a.T, dim=1, stable=True) for a in (x, y)]
    i, j = (o.repeat_interleave(most // o.shape[1], dim=1) for o in orders)
    if kind == "sliced":
        difference = torch.gather(theta @ x.T, 1, i) - torch.gather(theta @ y.T, 1, j)
        value = (difference.abs() ** p).mean()
    else:
        value = ((x[i] - y[j]).square().sum(dim=-1) ** (p / 2)).mean()
    return value, torch.autograd.grad(value, (x, y))


def assert_same_step(loss, kind, x, y, theta, p=2, **options):
    """One call against the plain one: value, and gradients by both clouds."""
    x, y = (a.detach().clone().requires_grad_() for a in (x, y))
    value = loss(x, y, **options)
    expected, gradients = plain(kind, x, y, theta, p)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert value.device == x.device
    assert_rounded(value, expected, np.float32, DIM * COUNT)
    for found, gradient in zip(torch.autograd.grad(value, (x, y)), gradients, strict=True):
        assert_rounded(found, gradient, np.float32, DIM * COUNT)


def assert_half(found, exact, dtype):
    """One rounding to half precision, on the scale of the largest; NumPy has no bfloat16."""
    assert found.dtype == dtype
    assert (found.cpu().double() - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()


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
        stream = Stream.from_seed(SEED, np.zeros(1)).fold(step, STEPS)
        expected = DISTANCES[kind](*arrays, directions=sampler, n_directions=COUNT, rng=stream).value
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
    assert not LOSSES[kind](target=y.clone().requires_grad_()).target.requires_grad


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
# The compiler looks at gradients of what it goes on with, and hides the warning in a way that errors escape.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@both
def test_compiled(clouds, kind, place):
    """A break in the graph at most; every call of what is compiled is a step."""
    loss = LOSSES[kind](COUNT, seed=SEED).to(place)
    x, y = clouds[0].clone().requires_grad_(), clouds[1]

    def twice(a, b):
        return 2 * loss(2 * a, b)

    torch._dynamo.reset()
    compiled = torch.compile(twice, backend="eager")
    for step in range(3):
        value = compiled(x, y)
        expected, (gradient, _) = plain(kind, 2 * x, y, drawn(step))
        assert_rounded(value, 2 * expected, np.float32, DIM * COUNT)
        (found,) = torch.autograd.grad(value, x)
        assert_rounded(found, 4 * gradient, np.float32, DIM * COUNT)
    assert loss.step.item() == 3


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
    assert repr(nn.SlicedWassersteinLoss(8, p=1)) == (
        "SlicedWassersteinLoss(n_directions=8, p=1, directions=Orthogonal())"
    )
    assert "(3, 3) given" in repr(nn.ProjectedWassersteinLoss(directions=torch.eye(3)))


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


# By the kernels of a whole step.


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
    [({}, 20), ({"directions": "iid", "p": 1}, 13), ({"p": 1.5}, 1), ({"directions": drawn(7)}, 20)],
    ids=str,
)
def test_whole_projected_steps(rng, options, n, cuda_device, monkeypatch):
    """Against the plain loss, with points that tie on every line and so are matched by their coordinates."""
    if cuda_device == "cpu":
        bridge_torch(monkeypatch, False)
        monkeypatch.setattr(nn.ProjectedWassersteinLoss, "_whole_step_refusal", lambda self, x, y: None)
        for refusal in ("cuda_refusal", "room_refusal"):
            monkeypatch.setattr(drawing, refusal, lambda *_, **__: None)
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
def test_a_loss_goes_as_soon_as_nobody_holds_it(rng, given, whole_step):
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
    """And one that gains nothing by it draws for itself."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    for step, n in enumerate((20, 13, 9)):
        x, y = points(rng, whole_step, n), points(rng, whole_step, n) + 0.5
        assert_same_step(loss, "sliced", x, y, drawn(step))
    assert len(loss._plans) == 3
    assert len(loss._all_ahead) == 1
    many = nn.SlicedWassersteinLoss(40 * DIM, seed=SEED).to(whole_step)
    many(x, y)
    assert not many._all_ahead


@pytest.mark.parametrize("away", [None, "stream", "graph"])
def test_what_is_drawn_ahead_stays_on_its_stream_and_out_of_graphs(rng, away, whole_step, monkeypatch):
    """What is held is spoilt here: that shows where it is used, and only there (the control)."""
    loss = nn.SlicedWassersteinLoss(COUNT, seed=SEED).to(whole_step)
    x, y = points(rng, whole_step, 20), points(rng, whole_step, 20) + 0.5
    loss(x, y)
    (ahead,) = loss._all_ahead.values()
    ahead._kept.fill_(math.nan)
    if away == "stream":
        monkeypatch.setattr("orthoslice.kernels.cuda.directions.current_stream", lambda device: -1)
    elif away == "graph":
        monkeypatch.setattr("orthoslice.nn._loss.is_captured", lambda tensor: True)
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
    monkeypatch.setattr("orthoslice.kernels.cuda.loss._PROJECT_INSIDE", 0)
    theta, y = drawn(0).float(), points(rng, whole_step, 20) + 0.5
    loss = nn.SlicedWassersteinLoss(directions=theta, target=y).to(whole_step)
    x = points(rng, whole_step, 20)
    loss(x)
    loss.target = y.clone().requires_grad_()
    loss(x).backward()
    _, (_, expected) = plain("sliced", x, y, theta.double())
    assert_rounded(loss.target.grad, expected, np.float32, DIM * COUNT)


def test_whole_steps_have_no_second_derivative(rng, whole_step):
    """It is refused with a word, and only if somebody asks for it."""
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
    monkeypatch.setattr("orthoslice.kernels.cuda.loss._PROJECT_INSIDE", 0)
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
    monkeypatch.setattr("orthoslice.kernels.cuda.loss._PROJECT_INSIDE", 0)
    theta, y = drawn(0).float(), points(rng, whole_step, 500)
    loss = nn.SlicedWassersteinLoss(directions=theta, target=y, seed=SEED).to(whole_step)
    before = len(pickle.dumps(loss))
    loss(points(rng, whole_step, 500))
    assert len(pickle.dumps(loss)) < 1.1 * before


@pytest.mark.parametrize("memory", ["1GB", 2000, 1])
@pytest.mark.parametrize("fused", [True, False])
def test_whole_steps_in_chunks(rng, memory, fused, whole_step, monkeypatch):
    """Memory and the way to project change only rounding."""
    monkeypatch.setattr("orthoslice.kernels.cuda.loss._PROJECT_INSIDE", 1 << 26 if fused else 0)
    monkeypatch.setattr("orthoslice.kernels.cuda.loss._PROJECT_AT_ONCE", 0)
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
    assert_same_step(loss.double(), "sliced", x, y, other.double())


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


def test_whole_steps_are_refused_with_a_reason():
    loss, x = nn.SlicedWassersteinLoss(COUNT), torch.zeros(4, 3)
    cases = {
        "two clouds": (x[None], x),
        "single and half precision": (x.double(), x),
        "NVIDIA GPU": (x, x),
    }
    for reason, pair in cases.items():
        assert reason in loss._whole_step_refusal(*pair)
    hadamard = nn.SlicedWassersteinLoss(COUNT, directions="hadamard")
    assert "independent, orthogonal or given" in hadamard._whole_step_refusal(x, x)
    assert "device of the loss" in loss._whole_step_refusal(x, x.to("meta"))
    projected = nn.ProjectedWassersteinLoss(COUNT)
    assert "equal size" in projected._whole_step_refusal(x, x[:2])
    assert "NVIDIA GPU" in projected._whole_step_refusal(x, x)
    pooled = nn.ProjectedWassersteinLoss(COUNT, cost="pooled")
    assert "full distance" in pooled._whole_step_refusal(x, x)
    assert nn.ProjectedWassersteinLoss(COUNT, memory=1)._choose_run(x, x, COUNT) is None


# On a GPU only.


@pytest.fixture
def strict_gpu():
    """Complain of whatever makes the host wait for the GPU."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(params=[300, 257])
def gpu_clouds(rng, request):
    return points(rng, "cuda", 300).requires_grad_(), points(rng, "cuda", request.param)


def gpu_losses(target):
    theta = drawn().float()
    options = [{}, {"directions": "iid"}, {"p": 1}, {"memory": 20_000}]
    losses = [nn.SlicedWassersteinLoss(COUNT, seed=SEED, **given).to("cuda") for given in options]
    fixed = nn.SlicedWassersteinLoss(directions=theta, target=target).to("cuda")
    return [*((loss, (target,)) for loss in losses), (fixed, ())]


# The eager run keeps nodes of the graph alive on another stream than the one captured, on purpose.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@on_gpu
def test_replays_of_a_graph_draw_anew(gpu_clouds):
    """Values and gradients of replays are those of the steps of an eager run."""
    x, y = gpu_clouds
    for loss, rest in gpu_losses(y):
        eager = copy.deepcopy(loss)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                torch.autograd.grad(loss(x, *rest), x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value = loss(x, *rest)
            (gradient,) = torch.autograd.grad(value, x)
        eager.load_state_dict(loss.state_dict())
        values = []
        for _ in range(3):
            graph.replay()
            expected = eager(x, *rest)
            assert_rounded(value, expected, np.float32, DIM * COUNT)
            assert_rounded(gradient, torch.autograd.grad(expected, x)[0], np.float32, DIM * COUNT)
            assert loss.step.item() == eager.step.item()
            values.append(value.item())
        assert len(set(values)) == (3 if rest else 1)


@on_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_step_does_not_wait_for_the_gpu(gpu_clouds, request):
    x, y = gpu_clouds
    losses = gpu_losses(y)
    for loss, rest in losses:
        loss(x, *rest).backward()
    request.getfixturevalue("strict_gpu")
    for loss, rest in losses:
        loss(x, *rest).backward()


@on_gpu
def test_streams_of_their_own(gpu_clouds):
    """Kernels run on the stream that is current, in order with what it does before and after."""
    x, y = gpu_clouds
    for loss, rest in gpu_losses(y):
        eager = copy.deepcopy(loss)
        expected = [(k + 1) * eager((k + 1) * x, *rest) for k in range(3)]
        streams = [torch.cuda.Stream() for _ in range(3)]
        values = []
        for k, stream in enumerate(streams):
            # One step after the other: the number of the step is written to by each.
            stream.wait_stream(streams[k - 1] if k else torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(10_000_000)
                values.append((k + 1) * loss((k + 1) * x, *rest))
        for found, wanted, stream in zip(values, expected, streams, strict=True):
            torch.cuda.current_stream().wait_stream(stream)
            assert_rounded(found, wanted, np.float32, DIM * COUNT)
