"""Gradients against finite differences, through torch and JAX, and what they cost in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import bridge_torch, weights
from thinning import every

import orthoslice as osl

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy

SCORES = ["sliced", "exact", "pooled", "independent", "paper_pooled"]


def distance(score: str, x: Any, y: Any, p: float, **options: Any) -> osl.Estimate:
    options = {"rng": 3, "n_directions": 11, **options}
    if score == "sliced":
        return osl.sliced_wasserstein(x, y, p, **options)
    return osl.projected_wasserstein(x, y, p, cost=score, **options)


def problem(kind: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"equal": ((9, 4), (9, 4)), "unequal": ((9, 4), (6, 4)), "weighted": ((9, 4), (6, 4))}
    shapes["batch"] = ((2, 1, 9, 4), (3, 6, 4))
    inputs = {name: rng.normal(size=shape) for name, shape in zip("xy", shapes[kind], strict=True)}
    if kind == "weighted":
        inputs |= {"x_weights": weights(rng, 9), "y_weights": weights(rng, 6)}
    return inputs


def finite_difference(
    score: str, p: float, inputs: dict[str, np.ndarray], name: str, move: np.ndarray
) -> float:
    values = [
        np.sum(distance(score, **{**inputs, name: inputs[name] + h * move}, p=p).distance)
        for h in (1e-6, -1e-6)
    ]
    return float(values[0] - values[1]) / 2e-6


@pytest.mark.parametrize("bridge", [True, False])
@pytest.mark.parametrize("kind", ["equal", "unequal", "weighted", "batch"])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize("score", SCORES)
def test_torch_gradients(
    score: str, p: float, kind: str, bridge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of the summed distance by every input, along a random move of each."""
    bridge_torch(monkeypatch, bridge)
    inputs = problem(kind)
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in inputs.items()}
    distance(score, **tensors, p=p).distance.sum().backward()
    rng = np.random.default_rng(1)
    for name, tensor in tensors.items():
        move = rng.normal(size=tensor.shape)
        if "weights" in name:
            move = 1e-2 * (move - move.mean())
        slope = float((tensor.grad.numpy() * move).sum())
        assert slope == pytest.approx(finite_difference(score, p, inputs, name, move), rel=2e-5, abs=1e-8)


@pytest.mark.thin
@pytest.mark.parametrize("kind", ["equal", "unequal", "weighted", "batch"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("jit", [False, True])
def test_jax_gradients_equal_torch(score: str, kind: str, jit: bool) -> None:
    inputs = problem(kind)
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in inputs.items()}
    distance(score, **tensors, p=2).value.sum().backward()

    def loss(arrays: dict[str, Any]) -> Any:
        return distance(score, **arrays, p=2).value.sum()

    gradient = jax.grad(loss)
    arrays = {k: jnp.asarray(v) for k, v in inputs.items()}
    for name, g in (jax.jit(gradient) if jit else gradient)(arrays).items():
        np.testing.assert_allclose(g, tensors[name].grad.numpy(), rtol=2e-4, atol=2e-5)


def test_only_wanted_gradients(rng: np.random.Generator) -> None:
    """A fixed target takes no gradient, and values do not depend on whether one is asked for."""
    x, y = (torch.tensor(rng.normal(size=(8, 3))) for _ in "xy")
    for score in SCORES:
        plain = distance(score, x, y, 2)
        assert not plain.value.requires_grad
        moving = x.clone().requires_grad_()
        traced = distance(score, moving, y, 2)
        torch.testing.assert_close(traced.value.detach(), plain.value)
        assert not traced.stderr.requires_grad
        (g,) = torch.autograd.grad(traced.value, moving)
        (h,) = torch.autograd.grad(distance(score, y, moving, 2).value, moving)
        assert g.abs().sum() > 0
        assert h.abs().sum() > 0


def test_second_derivatives_are_refused_not_wrong(rng: np.random.Generator) -> None:
    """A gradient penalty in torch must not silently count as zero."""
    x = torch.tensor(rng.normal(size=(8, 3)), requires_grad=True)
    y = torch.tensor(rng.normal(size=(8, 3)))
    loss = distance("sliced", x, y, 2).value
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="a second one was asked for"):
        (loss + (g**2).sum()).backward()


def test_second_derivatives_in_jax(rng: np.random.Generator) -> None:
    x, y = (jnp.asarray(rng.normal(size=(5, 2))) for _ in "xy")
    for score in ("sliced", "exact"):

        def value(x: Any, score: str = score) -> Any:
            return distance(score, x, y, 3, n_directions=4).value

        move = jnp.asarray(rng.normal(size=(5, 2)))
        twice = jax.grad(lambda a: (jax.grad(value)(a) * move).sum())(x)  # noqa: B023
        h = 1e-2
        change = (jax.grad(value)(x + h * move) - jax.grad(value)(x - h * move)) / (2 * h)
        np.testing.assert_allclose(twice, change, rtol=2e-2, atol=2e-3)


def test_gradient_moves_a_cloud_onto_another(rng: np.random.Generator) -> None:
    x = torch.tensor(rng.normal(size=(30, 2)), requires_grad=True)
    y = torch.tensor(rng.normal(size=(30, 2)) + 3)
    optimizer = torch.optim.Adam([x], lr=0.1)
    for step in range(150):
        optimizer.zero_grad()
        osl.sliced_wasserstein(x, y, n_directions=8, rng=step).value.backward()
        optimizer.step()
    assert float(osl.sliced_wasserstein(x.detach(), y, rng=0).distance) < 0.1


def test_gradient_memory_does_not_grow_with_the_directions(rng: np.random.Generator) -> None:
    """What autograd keeps is of the size of the clouds: saved tensors are counted."""
    x = torch.tensor(rng.normal(size=(200, 3)), requires_grad=True)
    y = torch.tensor(rng.normal(size=(200, 3)), requires_grad=True)
    saved: list[int] = []

    def pack(tensor: Any) -> Any:
        saved.append(tensor.numel())
        return tensor

    for score in ("sliced", "exact"):
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            distance(score, x, y, 1, n_directions=5000)
        assert 0 < sum(saved) <= 4 * 200 * 3 + 4


def test_vmap_shares_directions(rng: np.random.Generator) -> None:
    x, y = jnp.asarray(rng.normal(size=(4, 8, 3))), jnp.asarray(rng.normal(size=(8, 3)))
    for score in ("sliced", "exact"):

        def value(cloud: Any, score: str = score) -> Any:
            return distance(score, cloud, y, 2).value

        np.testing.assert_allclose(jax.vmap(value)(x), distance(score, x, y, 2).value, rtol=1e-5)
        np.testing.assert_allclose(
            jax.vmap(jax.grad(value))(x),
            jax.grad(lambda c: value(c).sum())(x),
            rtol=1e-4,
            atol=1e-6,
        )


@pytest.mark.parametrize("score", every(2, SCORES[:4]))
def test_jit_loops_over_many_chunks(score: str, rng: np.random.Generator) -> None:
    """Small memory makes a loop of the compiled program; the answer is the same.

    In float64: of 30,000 projections in float32 some tie but for rounding, which is a GPU's choice.
    """

    def loss(x: Any, y: Any, memory: Any) -> Any:
        return distance(score, x, y, 2, n_directions=100, memory=memory).value

    with jax.enable_x64(True):
        x, y = jnp.asarray(rng.normal(size=(2, 300, 3)))
        small, large = (jax.jit(jax.grad(lambda a, b, m=m: loss(a, b, m)))(x, y) for m in (80_000, 10**9))
        assert small.dtype == np.float64
        np.testing.assert_allclose(small, large, rtol=1e-11, atol=1e-14)


def test_fresh_directions_are_refused_whatever_is_traced(rng: np.random.Generator) -> None:
    x, y = jnp.asarray(rng.normal(size=(8, 3))), jnp.asarray(rng.normal(size=(8, 3)))
    with pytest.raises(ValueError, match="`rng` must be an integer or a JAX key under tracing"):
        jax.grad(lambda b: osl.sliced_wasserstein(x, b).value)(y)
    theta = jnp.eye(3)
    jax.jit(lambda b: osl.sliced_wasserstein(x, b, directions=theta).value)(y)


def test_directions_have_no_gradient(rng: np.random.Generator) -> None:
    """Refused in torch, NaN in JAX: never a silent zero."""
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 3))
    with pytest.raises(ValueError, match="`directions` have no gradient"):
        osl.sliced_wasserstein(
            torch.tensor(x), torch.tensor(y), directions=torch.eye(3, dtype=torch.float64, requires_grad=True)
        )
    x, y = jnp.asarray(x), jnp.asarray(y)
    slope = jax.grad(lambda t: osl.sliced_wasserstein(x, y, directions=t).value)(jnp.eye(3))
    assert np.isnan(slope).all()
    est = jax.jit(lambda t: osl.sliced_wasserstein(x, y, directions=t))(jnp.eye(3))
    assert repr(est.directions) == "Given(traced)"


def test_estimates_are_pytrees(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 3))
    est = jax.jit(lambda a, b: osl.sliced_wasserstein(a, b, rng=jax.random.key(7)))(
        jnp.asarray(x), jnp.asarray(y)
    )
    assert est.directions == osl.directions.Optimized()
    np.testing.assert_allclose(est.value, osl.sliced_wasserstein(x, y, rng=7).value, rtol=1e-5)
    np.testing.assert_allclose(est.stderr, osl.sliced_wasserstein(x, y, rng=7).stderr, rtol=1e-3)
    low, high = est.interval()
    assert low < est.value < high
    doubled = jax.tree.map(lambda leaf: 2 * leaf, est)
    np.testing.assert_allclose(doubled.value, 2 * est.value)
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten(osl.sliced_wasserstein(torch.tensor(x), torch.tensor(y), rng=7))
    assert len(leaves) == 5
    assert float(_pytree.tree_unflatten(leaves, spec).value) == float(leaves[0])


# Torch uses its own script compiler for it.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("bridge", [True, False])
@pytest.mark.parametrize("kind", ["equal", "unequal", "weighted", "batch"])
@pytest.mark.parametrize("score", ["sliced", "exact"])
def test_torch_derivatives_forwards(
    score: str, kind: str, bridge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Along a random move of every input: what gradients say of it, and zero for inputs that stay."""
    bridge_torch(monkeypatch, bridge)
    rng, inputs = np.random.default_rng(1), problem(kind)
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in inputs.items()}
    moves = {name: torch.tensor(rng.normal(size=array.shape)) for name, array in inputs.items()}
    value = distance(score, **tensors, p=2).distance
    one = torch.autograd.grad(value.sum(), list(tensors.values()))
    slope = sum((g * m).sum() for g, m in zip(one, moves.values(), strict=True))
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        plain = {name: torch.tensor(array) for name, array in inputs.items()}
        dual = {name: forward_ad.make_dual(plain[name], move) for name, move in moves.items()}
        moved = forward_ad.unpack_dual(distance(score, **dual, p=2).distance)
        only_y = forward_ad.unpack_dual(distance(score, **{**plain, "y": dual["y"]}, p=2).distance)
        assert forward_ad.unpack_dual(distance(score, **plain, p=2).distance).tangent is None
    torch.testing.assert_close(moved.primal, value.detach())
    torch.testing.assert_close(moved.tangent.sum(), slope)
    assert moved.tangent.shape == value.shape
    torch.testing.assert_close(only_y.tangent.sum(), (one[1] * moves["y"]).sum())


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_second_derivatives_forwards_are_refused_not_wrong(rng: np.random.Generator) -> None:
    x, move, y = (torch.tensor(rng.normal(size=(8, 3))) for _ in range(3))
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.requires_grad_(), move)
        value = distance("sliced", dual, y, 2).value
        with pytest.raises(RuntimeError, match="a second one was asked for"):
            torch.autograd.grad(value, dual)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("bridge", [True, False])
def test_transforms_of_torch_are_refused(
    bridge: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge_torch(monkeypatch, bridge)
    x, y = (torch.tensor(rng.normal(size=(8, 3))) for _ in "xy")
    for score in ("sliced", "exact"):

        def value(x: Any, score: str = score) -> Any:
            return distance(score, x, y, 2).value

        for transformed in (
            lambda f: torch.func.grad(f)(x),
            lambda f: torch.func.vmap(f)(torch.stack([x, y])),
            lambda f: torch.func.jvp(f, (x,), (y,)),
        ):
            with pytest.raises(TypeError, match=r"cannot be transformed by `torch\.func`.*leading axes"):
                transformed(value)


@pytest.mark.parametrize("bridge", [True, False])
def test_views_of_torch_that_stand_for_their_negative(
    bridge: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge_torch(monkeypatch, bridge)
    x, y = (torch.tensor(rng.normal(size=(8, 3))) for _ in "xy")
    source = torch.complex(x, x).requires_grad_()
    view = source.conj().imag
    assert view.is_neg()
    value = distance("exact", view, y, 2).value
    minus = (-x).requires_grad_()
    expected = distance("exact", minus, y, 2).value
    assert value == expected
    (found,), (gradient,) = torch.autograd.grad(value, source), torch.autograd.grad(expected, minus)
    assert torch.equal(found.imag, -gradient)
    assert osl.wasserstein(view, y).distance == osl.wasserstein(minus, y).distance


@pytest.mark.parametrize("bridge", [True, False])
@pytest.mark.parametrize("kind", ["equal", "unequal", "weighted", "batch"])
@pytest.mark.parametrize("score", SCORES)
def test_results_are_where_the_clouds_are(
    score: str, kind: str, bridge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever device torch puts new tensors on; nothing can be computed on this one."""
    bridge_torch(monkeypatch, bridge)
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in problem(kind).items()}
    torch.set_default_device("meta")
    try:
        est = distance(score, **tensors, p=2)
        answers = (est.value, est.stderr, est.scores, *torch.autograd.grad(est.value.sum(), tensors.values()))
    finally:
        torch.set_default_device(None)
    assert {a.device.type for a in answers} == {"cpu"}
