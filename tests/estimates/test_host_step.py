"""Whole steps of small clouds in host memory: the same as the general way, and taken where they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import assert_rounded

import orthoslice as osl
from orthoslice.backend.arrays.hadamard import hadamard_project
from orthoslice.couplings.orders import tied_order
from orthoslice.directions.drawing import draw_blocks
from orthoslice.estimates.host_step import HadamardStep, ProjectedStep

pytest.importorskip("numba")


def apart(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 3))


def on_a_grid(rng: np.random.Generator, n: int) -> np.ndarray:
    """Points many of which are equal, and most of which tie on an axis."""
    return rng.integers(-1, 2, size=(n, 3)).astype(float)


def doubled(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(-(-n // 2), 3)).repeat(2, axis=0)[:n]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Which gradients projected steps were asked for, one entry a step."""
    made, price = [], ProjectedStep._price

    def noted(self: ProjectedStep, *arguments: Any) -> Any:
        made.append(arguments[-1])
        return price(self, *arguments)

    monkeypatch.setattr(ProjectedStep, "_price", noted)
    return made


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(40, 40), (40, 25), (25, 40)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("draw", [apart, on_a_grid, doubled])
def test_projected_functions(
    draw: Callable[..., np.ndarray],
    dtype: type,
    sizes: tuple[int, int],
    p: float,
    steps: list[bool],
    rng: np.random.Generator,
) -> None:
    """A forced operation takes the general way (the reference); steps leave ties to its parts."""
    x, y = (draw(rng, n).astype(dtype) for n in sizes)
    for directions in ("orthogonal", "iid", np.eye(3, dtype=dtype)):
        options = {"directions": directions, "rng": 0}
        found = osl.projected_wasserstein(x, y, p, **options)
        assert steps.pop() == (False, False)
        with tied_order.using("reference"):
            expected = osl.projected_wasserstein(x, y, p, **options)
        assert not steps
        assert found.value.dtype == expected.value.dtype == dtype
        assert_rounded(found.value, expected.value, dtype, 1)
        assert_rounded(found._scores, expected._scores, np.float64, 200)
        assert str(found.directions) == str(expected.directions)
    shuffled = rng.permutation(len(x))
    assert_rounded(
        osl.projected_wasserstein(x[shuffled], y, p, rng=0).value,
        osl.projected_wasserstein(x, y, p, rng=0).value,
        dtype,
    )


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True), (False, False)], ids=str)
@pytest.mark.parametrize("sizes", [(40, 40), (40, 25)], ids=str)
@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("draw", [apart, on_a_grid, doubled])
def test_projected_losses(
    draw: Callable[..., np.ndarray],
    name: str,
    sizes: tuple[int, int],
    wanted: tuple[bool, bool],
    steps: list[bool],
    rng: np.random.Generator,
) -> None:
    """Values and gradients of steps, and of the driver, with the same directions."""
    torch = pytest.importorskip("torch")
    x, y = (torch.tensor(draw(rng, n), dtype=getattr(torch, name)) for n in sizes)
    for options in ({}, {"p": 1, "directions": "iid"}, {"distance": True, "p": 3}):
        found = []
        for is_general in (False, True):
            loss = osl.nn.ProjectedWassersteinLoss(8, seed=3, **options)
            for _ in range(2):
                own = [a.clone().requires_grad_(want) for a, want in zip((x, y), wanted, strict=True)]
                if is_general:
                    with tied_order.using("reference"):
                        value = loss(*own)
                else:
                    value = loss(*own)
                if any(wanted):
                    value.backward()
            found.append((value.detach(), *(a.grad for a in own)))
            assert loss.step.item() == 2
        assert steps == [wanted] * 2
        steps.clear()
        for ours, expected, want in zip(*found, (True, *wanted), strict=True):
            assert (ours is not None) == (expected is not None) == want
            if want:
                assert ours.dtype == expected.dtype
                assert_rounded(ours, expected.double(), np.dtype(name).type, 16)


def test_projected_losses_on_given_directions(steps: list[bool], rng: np.random.Generator) -> None:
    """They are as wide as the clouds, and are made float64, in which points are ordered."""
    torch = pytest.importorskip("torch")
    x, y = (torch.tensor(rng.normal(size=(30, 3)), dtype=torch.float32) for _ in range(2))
    loss = osl.nn.ProjectedWassersteinLoss(directions=torch.eye(3))
    value, gradient = loss.value_and_grad(x, y)
    assert steps == [(True, False)]
    with tied_order.using("reference"):
        expected, slope = loss.value_and_grad(x, y)
    assert_rounded(value, expected.double(), np.float32)
    assert_rounded(gradient, slope.double(), np.float32, 4)


def test_directions_are_wide_where_orders_count(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Rounded to float32, they exchange some neighbours of large clouds."""
    torch = pytest.importorskip("torch")
    x, y = (rng.normal(size=(30, 3)).astype(np.float32) for _ in range(2))
    theta, price = [], ProjectedStep._price

    def noted(self: ProjectedStep, *arguments: Any) -> Any:
        theta.append(arguments[2])
        return price(self, *arguments)

    monkeypatch.setattr(ProjectedStep, "_price", noted)
    osl.projected_wasserstein(x, y, directions="orthogonal", n_directions=6, rng=0)
    osl.nn.ProjectedWassersteinLoss(6)(*map(torch.from_numpy, (x, y)), rng=0)
    expected = osl.directions.Orthogonal().sample(6, 3, rng=0).theta
    assert [t.dtype == np.float64 for t in theta] == [True, True]
    for found in theta:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("cost", ["pooled", "independent"])
def test_other_prices_take_the_general_way(cost: Any, steps: list[bool], rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 3))
    assert osl.projected_wasserstein(x, y, cost=cost, rng=0).value > 0
    assert osl.projected_wasserstein(x, y, x_weights=np.full(30, 1 / 30), rng=0).value > 0
    assert not steps


def test_far_clouds_take_the_general_way(steps: list[bool], rng: np.random.Generator) -> None:
    """They are moved to the origin before they are projected."""
    x, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 3))
    near = osl.projected_wasserstein(x, y, rng=0).value
    assert steps.pop() == (False, False)
    far = osl.projected_wasserstein(x + 2**20, y + 2**20, rng=0).value
    assert not steps
    np.testing.assert_allclose(far, near, rtol=1e-8)


@pytest.mark.parametrize(("dim", "is_whole"), [(16, True), (12, False)])
def test_rows_of_hadamard_blocks(
    dim: int, is_whole: bool, steps: list[tuple[bool, bool]], rng: np.random.Generator
) -> None:
    """Where pairs are priced in space, a matrix of them does; those of a padded space are not such rows."""
    x, y = rng.normal(size=(2, 40, dim))
    for count in (5, 16, 40):
        options: dict[str, Any] = {"directions": "hadamard", "n_directions": count, "rng": 0}
        found = osl.projected_wasserstein(x, y, **options)
        assert steps == [(False, False)] * is_whole
        steps.clear()
        with tied_order.using("reference"):
            expected = osl.projected_wasserstein(x, y, **options)
        assert not steps
        assert_rounded(found._scores, expected._scores, np.float64, 200)


@pytest.fixture
def transformed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which methods of steps on Hadamard blocks were called."""
    made: list[str] = []
    for name in ("scores", "mean_and_gradients"):
        method = getattr(HadamardStep, name)

        def noted(*given: Any, method: Any = method, name: str = name) -> Any:
            made.append(name)
            return method(*given)

        monkeypatch.setattr(HadamardStep, name, noted)
    return made


SAMPLERS = [
    "hadamard",
    osl.directions.HadamardRademacher(rounds=2, factors="signs"),
    osl.directions.HadamardRademacher(block_size=3),
]


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "m"), [(40, 40), (40, 25), (17, 33)])
@pytest.mark.parametrize("dim", [1, 2, 12, 16, 300])
def test_functions_on_hadamard_blocks(
    dim: int, n: int, m: int, dtype: type, sampler: Any, transformed: list[str], rng: np.random.Generator
) -> None:
    """Less than a block, a whole one, several and a part; the reference transforms in float64."""
    x, y = (rng.normal(size=(k, dim)).astype(dtype) for k in (n, m))
    for count, p in ((1, 1), (dim, 2), (2 * dim + 5, 2.5)):
        options: dict[str, Any] = {"directions": sampler, "n_directions": count, "rng": 0}
        found = osl.sliced_wasserstein(x, y, p, **options)
        assert transformed == ["scores"]
        with hadamard_project.using("reference"), draw_blocks.using("reference"):
            expected = osl.sliced_wasserstein(*(a.astype(np.float64) for a in (x, y)), p, **options)
        assert transformed == ["scores"]
        transformed.clear()
        assert found.value.dtype == dtype
        assert_rounded(found.value, expected.value, dtype, 30)
        assert_rounded(found._scores, expected._scores, dtype, 200)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize(("n", "m", "dim"), [(40, 40, 16), (40, 25, 12), (17, 33, 300), (5, 5, 1)])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_losses_on_hadamard_blocks(
    wanted: tuple[bool, bool],
    n: int,
    m: int,
    dim: int,
    name: str,
    sampler: Any,
    transformed: list[str],
    rng: np.random.Generator,
) -> None:
    """Values and gradients of steps, and of the driver in float64, with the same directions."""
    torch = pytest.importorskip("torch")
    x, y = (torch.tensor(rng.normal(size=(k, dim)), dtype=getattr(torch, name)) for k in (n, m))
    for options in ({}, {"p": 1, "distance": True}, {"p": 3}):
        found: list[tuple[Any, ...]] = []
        for is_general in (False, True):
            loss = osl.nn.SlicedWassersteinLoss(20, directions=sampler, seed=3, **options)
            for _ in range(2):
                own = [a.clone().requires_grad_(want) for a, want in zip((x, y), wanted, strict=True)]
                if is_general:
                    with hadamard_project.using("reference"):
                        value = loss(*(a.double() for a in own))
                else:
                    value = loss(*own)
                if any(wanted):
                    value.backward()
            found.append((value.detach(), *(a.grad for a in own)))
            assert loss.step.item() == 2
        assert transformed == ["mean_and_gradients" if any(wanted) else "scores"] * 2
        transformed.clear()
        for ours, expected, want in zip(*found, (True, *wanted), strict=True):
            assert (ours is not None) == (expected is not None) == want
            if want:
                assert ours.dtype == getattr(torch, name)
                assert_rounded(ours, expected.double(), np.dtype(name).type, 200)
