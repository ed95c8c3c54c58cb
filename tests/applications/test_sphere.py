"""Sliced distances on spheres: against POT, by their definition, their symmetries, gradients and error bars."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import ot
import pytest
import torch
from helpers import Backend, weights
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import orthoslice as osl

GEOMETRIES = ["great_circles", "stereographic"]


def unit(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def frames(rng: np.random.Generator, slices: int, dim: int) -> np.ndarray:
    """Random orthonormal pairs `(slices, 2, dim)`."""
    return np.swapaxes(np.linalg.qr(rng.normal(size=(slices, dim, 2)))[0], 1, 2)


def pot_sphere(x: Any, y: Any, p: float, planes: np.ndarray, a: Any = None, b: Any = None) -> float:
    """What POT makes of the same planes."""
    options = {"n_projections": len(planes), "projections": np.swapaxes(planes, 1, 2)}
    if isinstance(y, str):
        return float(ot.sliced_wasserstein_sphere_unif(x, a, **options))
    return float(ot.sliced_wasserstein_sphere(x, y, a, b, p=p, **options))


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dim", [2, 3, 6])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_pot_agrees(rng: np.random.Generator, p: float, dim: int, weighted: bool) -> None:
    x, y, planes = (
        unit(rng.normal(size=(40, dim)) + 0.4),
        unit(rng.normal(size=(33, dim))),
        frames(rng, 12, dim),
    )
    a, b = (weights(rng, 40), weights(rng, 33)) if weighted else (None, None)
    ours = osl.spherical_sliced_wasserstein(x, y, p, x_weights=a, y_weights=b, directions=planes)
    # POT stops its search at 1e-6 of a turn.
    assert float(ours.distance) == pytest.approx(pot_sphere(x, y, p, planes, a, b), rel=1e-5)
    assert ours.scores.shape == (12,)


def test_pot_agrees_on_the_uniform_law(rng: np.random.Generator) -> None:
    x, planes = unit(rng.normal(size=(40, 4))), frames(rng, 10, 4)
    ours = osl.spherical_sliced_wasserstein(x, "uniform", directions=planes)
    assert float(ours.distance) == pytest.approx(pot_sphere(x, "uniform", 2, planes), rel=1e-8)


def test_in_the_plane_it_is_the_distance_on_the_circle(rng: np.random.Generator) -> None:
    x, y, a = unit(rng.normal(size=(20, 2))), unit(rng.normal(size=(25, 2))), weights(rng, 20)
    angles = [np.arctan2(c[:, 1], c[:, 0]) for c in (x, y)]
    for p in (1, 2):
        exact = osl.circular_wasserstein(*angles, p, period=2 * math.pi, x_weights=a)
        found = osl.spherical_sliced_wasserstein(x, y, p, x_weights=a, rng=0)
        assert float(found.distance) * 2 * math.pi == pytest.approx(float(exact.distance), rel=1e-10)


def unrolled(x: np.ndarray, pole: np.ndarray) -> np.ndarray:
    """The stereographic projection from a pole, with the radius that makes a ball of the plane."""
    height = x @ pole
    flat = 2 * (x - height[:, None] * pole) / (1 - height)[:, None]
    square = (flat**2).sum(axis=1, keepdims=True)
    return np.arccos((1 - square) / (1 + square)) / math.pi * flat / np.sqrt(square)


@pytest.mark.parametrize("weighted", [False, True])
def test_stereographic_is_sliced_after_unrolling(rng: np.random.Generator, weighted: bool) -> None:
    x, y, planes = unit(rng.normal(size=(30, 4))), unit(rng.normal(size=(40, 4)) + 1), frames(rng, 9, 4)
    a = weights(rng, 30) if weighted else None
    found = osl.spherical_sliced_wasserstein(x, y, 2, x_weights=a, geometry="stereographic", directions=planes)
    by_hand = [
        float(
            osl.sliced_wasserstein(
                *(unrolled(c, pole) for c in (x, y)), 2, x_weights=a, directions=[line]
            ).value
        )
        for pole, line in planes
    ]
    np.testing.assert_allclose(found.scores, by_hand, rtol=1e-9)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_library_agrees(
    backend: Backend, rng: np.random.Generator, geometry: str, weighted: bool
) -> None:
    x, y = unit(rng.normal(size=(3, 20, 3))), unit(rng.normal(size=(24, 3)))
    own = {"x_weights": weights(rng, 20)} if weighted else {}
    options: dict[str, Any] = {"rng": 3, "n_directions": 24, "geometry": geometry}
    found = osl.spherical_sliced_wasserstein(
        backend.asarray(x), backend.asarray(y), **{k: backend.asarray(w) for k, w in own.items()}, **options
    )
    alone = [float(osl.spherical_sliced_wasserstein(c, y, **own, **options).value) for c in x]
    tolerance = backend.tolerance(400)
    np.testing.assert_allclose(backend.numpy(found.value), alone, **tolerance)
    assert backend.numpy(found.stderr).shape == (3,)


seeds = st.integers(0, 2**32)


@given(seeds, st.integers(2, 6), st.sampled_from(GEOMETRIES), st.sampled_from([1, 2, 3]))
def test_symmetric_turned_with_its_planes_and_zero_on_itself(
    seed: int, dim: int, geometry: str, p: float
) -> None:
    rng = np.random.default_rng(seed)
    x, y = (unit(rng.normal(size=(rng.integers(1, 9), dim))) for _ in range(2))
    planes, turn = frames(rng, 4, dim), np.linalg.qr(rng.normal(size=(dim, dim)))[0]

    def scores(x: np.ndarray, y: np.ndarray, planes: np.ndarray) -> np.ndarray:
        return np.asarray(
            osl.spherical_sliced_wasserstein(x, y, p, directions=planes, geometry=geometry).scores
        )

    found = scores(x, y, planes)
    np.testing.assert_allclose(scores(y, x, planes), found, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scores(x @ turn, y @ turn, planes @ turn), found, rtol=1e-6, atol=1e-9)
    assert not scores(x, rng.permutation(x), planes).any()


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_planes_are_uniform(geometry: str) -> None:
    """Turned clouds have the same law of scores (two-sample KS at 1e-4); other clouds do not."""
    rng = np.random.default_rng(1)
    x, y = (unit(rng.normal(size=(5, 3)) + 2 * np.eye(3)[k]) for k in range(2))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]

    def scores(x: np.ndarray, y: np.ndarray, rng: int) -> np.ndarray:
        # One plane of each block: rows of a block depend on each other.
        found = osl.spherical_sliced_wasserstein(x, y, rng=rng, n_directions=6000, geometry=geometry)
        return np.asarray(found.scores)[rng::3]

    assert stats.ks_2samp(scores(x, y, 0), scores(x @ turn, y @ turn, 1)).pvalue > 1e-4
    assert stats.ks_2samp(scores(x, y, 0), scores(x, x[:1] * [1, -1, 1], 2)).pvalue < 1e-4


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("target", ["cloud", "uniform"])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_gradients_are_those_of_finite_differences(
    rng: np.random.Generator, geometry: str, target: str, weighted: bool, p: float
) -> None:
    if target == "uniform" and geometry == "stereographic":
        return
    z, y, planes = rng.normal(size=(6, 4)), unit(rng.normal(size=(7, 4))), frames(rng, 5, 4)
    a = weights(rng, 6) if weighted else None

    def value(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return osl.spherical_sliced_wasserstein(
            torch.nn.functional.normalize(z, dim=-1),
            "uniform" if target == "uniform" else torch.nn.functional.normalize(y, dim=-1),
            p,
            x_weights=None if a is None else torch.tensor(a),
            geometry=geometry,
            directions=planes,
        ).value

    z, y = (torch.tensor(c, requires_grad=True) for c in (z, y))
    value(z, y).backward()
    step = 1e-6
    for cloud in (z, y)[: 1 if target == "uniform" else 2]:
        towards = torch.tensor(rng.normal(size=cloud.shape))
        with torch.no_grad():
            moved = [(z + s * towards, y) if cloud is z else (z, y + s * towards) for s in (step, -step)]
            slope = (value(*moved[0]) - value(*moved[1])).item() / (2 * step)
        assert (cloud.grad * towards).sum().item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_great_circles_pull_along_the_sphere(rng: np.random.Generator) -> None:
    x = torch.tensor(unit(rng.normal(size=(9, 3))), requires_grad=True)
    osl.spherical_sliced_wasserstein(x, torch.tensor(unit(rng.normal(size=(9, 3)))), rng=0).value.backward()
    np.testing.assert_allclose((x * x.grad).sum(dim=1).detach(), 0, atol=1e-12)


def test_points_at_right_angles_and_poles_have_finite_gradients() -> None:
    x = torch.eye(3, dtype=torch.float64, requires_grad=True)
    planes = np.stack([np.eye(3)[[0, 1]], np.eye(3)[[1, 2]], -np.eye(3)[[2, 0]]])
    for geometry in GEOMETRIES:
        found = osl.spherical_sliced_wasserstein(x, -x.detach(), geometry=geometry, directions=planes)
        (gradient,) = torch.autograd.grad(found.value, x)
        assert math.isfinite(found.value.item())
        assert torch.isfinite(gradient).all()


def test_jax_compiles_and_differentiates(rng: np.random.Generator) -> None:
    import jax
    import jax.numpy as jnp

    x, y = unit(rng.normal(size=(6, 3))).astype(np.float32), unit(rng.normal(size=(5, 3))).astype(np.float32)

    @jax.jit
    def value(x: Any) -> Any:
        return osl.spherical_sliced_wasserstein(x, jnp.asarray(y), rng=1, n_directions=6).value

    taped = torch.tensor(x, requires_grad=True)
    osl.spherical_sliced_wasserstein(taped, torch.tensor(y), rng=1, n_directions=6).value.backward()
    np.testing.assert_allclose(jax.grad(value)(jnp.asarray(x)), taped.grad.numpy(), rtol=2e-3, atol=1e-4)


def coverage(x: np.ndarray, y: Any, runs: int, **options: Any) -> tuple[float, int]:
    """How often a trusted interval holds the value of 30,000 planes, and how many are trusted."""
    exact = float(osl.spherical_sliced_wasserstein(x, y, rng=10**6, n_directions=30_000, **options).value)
    hits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", osl.UntrustedWarning)
        for seed in range(runs):
            found = osl.spherical_sliced_wasserstein(x, y, rng=seed, n_directions=48, **options)
            low, high = found.interval(0.95)
            if found.trusted:
                hits.append(low <= exact <= high)
    return float(np.mean(hits or [1.0])), len(hits)


@pytest.mark.parametrize("runs", [150, pytest.param(1000, marks=pytest.mark.full)])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("directions", ["orthogonal", "iid"])
def test_intervals_cover(geometry: str, directions: str, runs: int) -> None:
    """95% intervals from 48 planes: at least 92.5%, less three standard errors of the share."""
    rng = np.random.default_rng(5)
    x, y = unit(rng.normal(size=(20, 3)) + 0.5), unit(rng.normal(size=(25, 3)) * [0.5, 1, 2])
    share, trusted = coverage(x, y, runs, geometry=geometry, directions=directions)
    assert trusted > 0.9 * runs
    assert share > 0.925 - 3 * math.sqrt(0.05 * 0.95 / runs)


def test_an_interval_of_half_the_level_is_found_out() -> None:
    """The negative control: 50% intervals do not pass the test above."""
    rng = np.random.default_rng(5)
    x, y = unit(rng.normal(size=(20, 3)) + 0.5), unit(rng.normal(size=(25, 3)) * [0.5, 1, 2])
    exact = float(osl.spherical_sliced_wasserstein(x, y, rng=10**6, n_directions=30_000).value)
    hits = []
    for seed in range(150):
        low, high = osl.spherical_sliced_wasserstein(x, y, rng=seed, n_directions=48).interval(0.5)
        hits.append(low <= exact <= high)
    assert np.mean(hits) < 0.75


def test_nearly_equal_points_are_not_trusted() -> None:
    """Planes almost at right angles to them carry much of the value, and 48 planes do not meet these."""
    x = np.array([[0.0, 0.0, 1.0]])
    y = unit(np.array([[1e-4, 0, 1.0]]))
    for geometry in GEOMETRIES:
        found = osl.spherical_sliced_wasserstein(x, y, rng=0, n_directions=48, geometry=geometry)
        assert not found.trusted
    rng = np.random.default_rng(0)
    x, y = unit(rng.normal(size=(200, 3))), unit(rng.normal(size=(200, 3)))
    assert osl.spherical_sliced_wasserstein(x, y, rng=0).trusted


def test_orthogonal_planes_err_less() -> None:
    """The mean over a block of three planes varies less than that of independent ones: a ninth, say a third."""
    rng = np.random.default_rng(2)
    x, y = unit(rng.normal(size=(30, 3)) + 1), unit(rng.normal(size=(30, 3)) * [0.5, 1, 2])
    variance = [
        np.asarray(osl.spherical_sliced_wasserstein(x, y, rng=0, n_directions=900, directions=d).scores)
        .reshape(300, 3)
        .mean(axis=1)
        .var()
        for d in ("orthogonal", "iid")
    ]
    assert variance[0] < variance[1] / 3


def test_tolerance_is_met() -> None:
    rng = np.random.default_rng(2)
    x, y = unit(rng.normal(size=(30, 4)) + 1), unit(rng.normal(size=(30, 4)))
    found = osl.spherical_sliced_wasserstein(x, y, rng=0, rtol=0.01)
    low, high = found.distance_interval()
    assert found.converged
    assert (high - low) / 2 <= 0.0101 * found.distance


def test_repeated_by_its_seed_and_shown() -> None:
    rng = np.random.default_rng(2)
    x, y = unit(rng.normal(size=(30, 4)) + 1), unit(rng.normal(size=(30, 4)))
    found = osl.spherical_sliced_wasserstein(x, y)
    again = osl.spherical_sliced_wasserstein(
        x, y, directions=found.directions, n_directions=found.n_directions, rng=found.seed
    )
    assert found.value == again.value
    assert "SSW_2 = " in repr(found)
    assert "spherical sliced" in found._repr_html_()
    with pytest.warns(osl.UntrustedWarning, match="flat|sliced distance"):
        assert math.isnan(found.data_stderr)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"x": np.ones((3, 3))}, "`x` must lie on the unit sphere; the point at .* has norm 1.73205"),
        ({"y": np.eye(4)}, "must share `dim`"),
        ({"x": [[1.0]], "y": [[1.0]]}, "must have dim 2 or more"),
        ({"y": "normal"}, "The only law"),
        ({"y": "uniform", "geometry": "stereographic"}, "goes with `geometry"),
        ({"geometry": "flat"}, "`geometry` must be one of"),
        ({"directions": "sobol"}, "`directions` must be one of"),
        ({"directions": np.eye(3)}, "must have shape"),
        ({"directions": np.ones((4, 2, 3))}, "must be orthonormal pairs"),
        ({"p": 20}, "`p` must be at most 19"),
    ],
)
def test_bad_input(change: dict, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        osl.spherical_sliced_wasserstein(**({"x": np.eye(3), "y": np.eye(3)} | change))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-5, 2e-4, 3e-3])
def test_points_near_the_pole_stay_in_the_ball(angle: float, dtype: str) -> None:
    """Where rounding hides the distance from the pole, a point could land thousands of radii away."""
    rng = np.random.default_rng(0)
    turns = rng.random(50) * 2 * np.pi
    x = np.stack([np.sin(angle) * np.cos(turns), np.sin(angle) * np.sin(turns), np.full(50, np.cos(angle))], 1)
    planes = np.stack([np.tile([0.0, 0, 1], (20, 1)), np.tile([1.0, 0, 0], (20, 1))], axis=1)
    points = torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True)
    origin = torch.tensor([[0.0, 0, -1]], dtype=points.dtype)
    found = osl.spherical_sliced_wasserstein(points, origin, 1, geometry="stereographic", directions=planes)
    assert 0 <= found.value.item() <= 1
    found.value.backward()
    here, gradient = points.detach().double(), points.grad.double()
    along = gradient - (gradient * here).sum(1, keepdim=True) * here
    assert along.abs().max() < np.finfo("float64" if dtype == "float64" else "float32").eps ** -0.5
    if dtype == "float64" and angle > 1e-6:
        # The mean of the radius, 1 at the pole itself, times a cosine.
        radius = 2 * math.atan2(2 * math.cos(angle / 2), math.sin(angle / 2)) / math.pi
        assert found.value.item() == pytest.approx(radius * np.abs(np.cos(turns)).mean(), rel=1e-4)


def test_given_planes_are_used_whole(rng: np.random.Generator) -> None:
    x, y, planes = unit(rng.normal(size=(9, 3))), unit(rng.normal(size=(8, 3))), frames(rng, 7, 3)
    with pytest.raises(ValueError, match="`n_directions` must be None or the number of rows"):
        osl.spherical_sliced_wasserstein(x, y, directions=planes, n_directions=5)
    with pytest.raises(ValueError, match="`rtol` and `atol` need an error bar"):
        osl.spherical_sliced_wasserstein(x, y, directions=planes, rtol=0.1)
