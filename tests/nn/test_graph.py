"""Losses in graphs of `torch.compile` and transforms of `torch.func`: numbers and steps as of plain calls."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import orthoslice as osl  # noqa: E402

SEED, COUNT, DIM = 7, 6, 3
LOSSES = {"sliced": osl.nn.SlicedWassersteinLoss, "projected": osl.nn.ProjectedWassersteinLoss}
both = pytest.mark.parametrize("kind", LOSSES)


def made(kind, step=0):
    loss = LOSSES[kind](COUNT, seed=SEED)
    loss.step.fill_(step)
    return loss


@pytest.fixture
def points(rng: np.random.Generator):
    """Three clouds of 20 points."""
    return torch.from_numpy(rng.normal(size=(3, 20, DIM))).float()


def gradients(loss, x, y, **options):
    """By x and y, on an ordinary tape."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    return torch.autograd.grad(loss(x, y, **options), (x, y))


@pytest.fixture
def compiled():
    """A compiler without breaks in graphs, that forgets what it did."""
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()


pytestmark = [
    # The compiler looks at gradients of what it goes on with, and hides the warning in a way that fails.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]


@both
def test_compiled_gradients_by_points_and_weights(kind, points, compiled):
    x, y, _ = points
    weights = torch.full((20,), 1 / 20, dtype=torch.float32).requires_grad_()
    call = compiled(made(kind))
    for step in range(2):
        found = torch.autograd.grad(call(x, y, x_weights=weights), weights)
        plain = torch.autograd.grad(made(kind, step)(x, y, x_weights=weights), weights)
        torch.testing.assert_close(found, plain)
    torch.testing.assert_close(gradients(compiled(made(kind)), x, y), gradients(made(kind), x, y))


@both
def test_compiled_batches_evaluation_and_seeds(kind, points, compiled):
    x, y = points, points[:1] + 1
    loss = made(kind, 4)
    call = compiled(lambda a, b: (loss(a, b, rng=2**64 - 1), loss(a, b)))
    for mode in (True, False, True):
        loss.train(mode)
        step = loss.step.item()
        by_seed, by_step = call(x, y)
        torch.testing.assert_close(by_seed, made(kind)(x, y, rng=2**64 - 1))
        torch.testing.assert_close(by_step, made(kind, step)(x, y))
        assert loss.step.item() == step + mode


@both
def test_copies_have_graphs_of_their_own(kind, points, compiled):
    x, y, _ = points
    loss = made(kind)
    other = copy.deepcopy(loss)
    other.step.fill_(9)
    assert loss.serial != other.serial
    assert compiled(loss)(x, y) == made(kind)(x, y)
    assert compiled(other)(x, y) == made(kind, 9)(x, y)


def test_a_graph_of_a_loss_that_is_gone(points):
    from orthoslice.nn._steps import find_loss

    loss = made("sliced")
    serial = loss.serial
    assert find_loss(serial) is loss
    del loss
    gc.collect()
    with pytest.raises(RuntimeError, match="a loss that is gone"):
        find_loss(serial)


@both
def test_grad_and_vjp(kind, points):
    x, y, _ = points
    loss = made(kind)
    torch.testing.assert_close(torch.func.grad(loss, argnums=(0, 1))(x, y), gradients(made(kind), x, y))
    value, pull = torch.func.vjp(loss, x, y)
    torch.testing.assert_close(value, made(kind, 1)(x, y))
    torch.testing.assert_close(pull(torch.tensor(1.0)), gradients(made(kind, 1), x, y))
    assert loss.step.item() == 2
    by_call = torch.func.grad(lambda a: torch.func.functional_call(loss, {}, (a, y)))(x)
    torch.testing.assert_close(by_call, gradients(made(kind, 2), x, y)[0])


@both
def test_vmap_uses_the_same_directions_for_all(kind, points):
    y = points[0] + 1
    plain = [made(kind)(x, y) for x in points]
    loss = made(kind)
    torch.testing.assert_close(torch.func.vmap(loss, (0, None))(points, y), torch.stack(plain))
    assert loss.step.item() == 1
    slopes = torch.stack([gradients(made(kind, 1), x, y)[0] for x in points])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss), (0, None))(points, y), slopes)
    assert loss.step.item() == 2
    sums = torch.func.grad(lambda some: torch.func.vmap(lambda x: loss(x, y, rng=5))(some).sum())(points)
    torch.testing.assert_close(sums, torch.stack([gradients(made(kind), x, y, rng=5)[0] for x in points]))


@both
@pytest.mark.parametrize("way", ["tape", "compiled", "transformed"])
def test_second_derivatives_are_refused(kind, way, points, compiled):
    x, y, _ = points
    loss = made(kind)

    def slope(a):
        if way == "transformed":
            return torch.func.grad(loss)(a, y)
        call = torch.compile(loss, backend="eager", fullgraph=True) if way == "compiled" else loss
        return torch.autograd.grad(call(a, y), a, create_graph=True)[0]

    a = x.clone().requires_grad_()
    first = slope(a)
    with pytest.raises(RuntimeError, match="gives first derivatives in torch"):
        first.sum().backward()
