"""What a stranger adds without touching the library: samplers, controls, implementations, clouds in files."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers import Backend

import orthoslice as osl
from orthoslice.costs.lines import sliced_scores, sorted_scores
from orthoslice.directions import PointSet
from orthoslice.estimates.control import Control, KnownMean

DISTANCES = [osl.sliced_wasserstein, osl.projected_wasserstein]


@dataclass(frozen=True, kw_only=True, repr=False)
class Octagon(PointSet):
    """Directions of the plane at even angles; with `uneven`, one of them twice, at half the weight."""

    uneven: bool = False
    name = "octagon"

    def points(self, rows: int, dim: int) -> np.ndarray:
        angle = np.pi * np.arange(rows) / (rows - self.uneven)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def weights(self, rows: int, dim: int) -> np.ndarray | None:
        if not self.uneven:
            return None
        # The first and the last direction are opposites: together they count as much as one of the others.
        weights = np.full(rows, rows / (rows - 1))
        weights[[0, -1]] /= 2
        return weights


def test_steps_weigh_directions(clouds):
    """A direction that is drawn twice at half the weight counts as one."""
    found, expected = (
        osl.barycenter(
            clouds, directions=Octagon(replicates=1, uneven=uneven), n_directions=8 + uneven, fresh=False, rng=0
        )
        for uneven in (True, False)
    )
    assert found.converged
    np.testing.assert_allclose(found.points, expected.points, atol=1e-9)


@pytest.fixture
def clouds(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(30, 2)), 1.5 * rng.normal(size=(20, 2)) + 0.5


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("distance", DISTANCES)
def test_a_point_set_with_replicates_and_weights(
    distance: Any, uneven: bool, backend: Backend, clouds: tuple[np.ndarray, np.ndarray]
) -> None:
    """Equal to the mean over directions that are written out; a closed set weighs as the open one."""
    x, y = clouds
    sampler, n = Octagon(uneven=uneven), 34
    est = distance(backend.asarray(x), backend.asarray(y), directions=sampler, n_directions=n, rng=3)
    sample = sampler.sample(n, 2, rng=3)
    assert np.bincount(sample.block).tolist() == [9, 9, 8, 8]
    plain = distance(x, y, directions=sample.theta)
    expected = np.mean(sample.weight * plain.scores)
    np.testing.assert_allclose(backend.numpy(est.value), expected, rtol=1e-5)
    assert est.n_blocks == 4
    assert float(est.stderr) > 0
    exact = osl.exact.sliced_plane if distance is osl.sliced_wasserstein else osl.exact.projected_plane
    assert abs(float(est.value) / exact(x, y, 2) - 1) < 0.1


def test_weights_reach_the_gradients(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    """By central differences; without weights the same check fails."""
    torch = pytest.importorskip("torch")
    x, y = (torch.as_tensor(c) for c in clouds)
    move = torch.as_tensor(np.random.default_rng(0).normal(size=x.shape))

    def value(points: Any, sampler: Any) -> Any:
        return osl.sliced_wasserstein(points, y, directions=sampler, n_directions=20, rng=1).value

    for sampler in (Octagon(uneven=True), Octagon()):
        moving = x.clone().requires_grad_()
        value(moving, sampler).backward()
        step = 1e-6
        slope = (value(x + step * move, sampler) - value(x - step * move, sampler)) / (2 * step)
        assert float((moving.grad * move).sum()) == pytest.approx(float(slope), rel=1e-5)
    other = Octagon()
    assert float(value(x, other)) != pytest.approx(float(value(x, Octagon(uneven=True))), rel=1e-5)


def test_a_point_set_in_jax_under_jit_and_in_a_loss(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    x, y = clouds
    sampler = Octagon(uneven=True)

    def value(points: Any) -> Any:
        return osl.sliced_wasserstein(
            points, jax.numpy.asarray(y), directions=sampler, n_directions=10, rng=1
        ).value

    expected = osl.sliced_wasserstein(x, y, directions=sampler, n_directions=10, rng=1).value
    found, gradient = jax.jit(jax.value_and_grad(value))(jax.numpy.asarray(x))
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    cloud = torch.as_tensor(x).requires_grad_()
    osl.sliced_wasserstein(
        cloud, torch.as_tensor(y), directions=sampler, n_directions=10, rng=1
    ).value.backward()
    np.testing.assert_allclose(gradient, cloud.grad, rtol=1e-4, atol=1e-6)
    loss = osl.nn.SlicedWassersteinLoss(10, directions=sampler, seed=0)
    assert float(loss(torch.as_tensor(x), torch.as_tensor(y), rng=1)) == pytest.approx(
        float(expected), rel=1e-12
    )


def antithetic(rows: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    half = rng.normal(size=(-(-rows // 2), dim))
    half /= np.linalg.norm(half, axis=1, keepdims=True)
    return np.concatenate([half, -half])[:rows]


def test_a_function(backend: Backend, clouds: tuple[np.ndarray, np.ndarray]) -> None:
    """On every library, compiled by JAX too, with the same directions."""
    x, y = (backend.asarray(c) for c in clouds)
    sampler = osl.directions.from_function(antithetic, block_rows=4)
    est = osl.sliced_wasserstein(x, y, directions=sampler, n_directions=18, rng=5)
    sample = sampler.sample(18, 2, rng=5)
    assert np.bincount(sample.block).tolist() == [4, 4, 4, 4, 2]
    np.testing.assert_allclose(sample.theta[:2], -sample.theta[2:4])
    expected = osl.sliced_wasserstein(*clouds, directions=sample.theta).value
    np.testing.assert_allclose(backend.numpy(est.value), expected, rtol=1e-5)


def test_a_function_without_blocks_has_no_error_bar(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    est = osl.sliced_wasserstein(*clouds, directions=osl.directions.from_function(antithetic), rng=0)
    assert "from_function(antithetic, block_rows=None) draws all directions in one block" in repr(est)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows, dim, rng: np.ones((rows, dim)), "must give rows of unit length"),
        (lambda rows, dim, rng: np.eye(dim)[:1], "must give 4 rows of dim 2"),
        (lambda rows, dim, rng: np.tile(np.eye(dim)[:1], (rows, 1)), "every block rows of its own"),
    ],
)
def test_functions_that_break_their_promise(
    function: Any, message: str, clouds: tuple[np.ndarray, np.ndarray]
) -> None:
    sampler = osl.directions.from_function(function, block_rows=4)
    with pytest.raises(ValueError, match=message):
        osl.sliced_wasserstein(*clouds, directions=sampler, n_directions=16, rng=0)


@dataclass(frozen=True)
class MeanShift(Control):
    """<theta, mean x - mean y>^2, whose mean is |mean x - mean y|^2 / dim."""

    off: float = 0.0
    """How wrong its mean is said to be."""

    def _gap(self, x: Any, y: Any) -> Any:
        return x.points.mean(-2) - y.points.mean(-2)

    def evaluate(self, x: Any, y: Any, p: float, directions: Any, rows: Any) -> Any:
        return directions.project(self._gap(x, y)[None, :], rows)[:, 0] ** 2

    def mean(self, x: Any, y: Any, p: float) -> KnownMean:
        gap = self._gap(x, y)
        return KnownMean((gap * gap).sum() / x.dim + self.off)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_a_control_variate(library: str, rng: np.random.Generator) -> None:
    """Shifted clouds: errors fall by more than 5, and 95% intervals hold the truth in 85 of 100 runs or more.

    False alarms: coverage of 95% falls to 85% or less in fewer than 1 of 10,000 draws of the seeds. Negative
    control: a control whose mean is wrong is seen in the mean.
    """
    module = pytest.importorskip(library)
    asarray = {
        "numpy": np.asarray,
        "torch": lambda a: module.as_tensor(a),
        "jax": lambda a: module.numpy.asarray(a),
    }
    x, y = rng.normal(size=(40, 3)), rng.normal(size=(40, 3)) + 3
    truth = osl.sliced_wasserstein(x, y, n_directions=60_000, rng=0).value
    options = {"directions": "iid", "n_directions": 64}
    runs = 100 if library == "numpy" else 3
    plain, controlled, wrong, held = [], [], [], 0
    for seed in range(runs):
        a, b = (asarray[library](c) for c in (x, y))
        plain.append(float(osl.sliced_wasserstein(a, b, rng=seed, **options).value) / truth - 1)
        est = osl.sliced_wasserstein(a, b, control=MeanShift(), rng=seed, **options)
        controlled.append(float(est.value) / truth - 1)
        low, high = est.interval()
        held += float(low) <= truth <= float(high)
        est = osl.sliced_wasserstein(a, b, control=MeanShift(off=1.0), rng=seed, **options)
        wrong.append(float(est.value) / truth - 1)
    assert np.square(controlled).mean() < np.square(plain).mean() / 25
    if library == "numpy":
        assert held >= 85
        assert abs(np.mean(controlled)) < 4 * np.std(controlled) / runs**0.5
    assert abs(np.mean(wrong)) > 0.05


def test_controls_are_for_values(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x = torch.as_tensor(rng.normal(size=(5, 2))).requires_grad_()
    with pytest.raises(ValueError, match="`control` has no gradient"):
        osl.sliced_wasserstein(x, x.detach() + 1, control=MeanShift(), n_directions=16, directions="iid", rng=0)
    with pytest.raises(ValueError, match="`control` must be 'auto', None or a control variate"):
        osl.sliced_wasserstein(x, x, control="gauss")


def test_few_blocks_have_no_control(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)) + 2
    options = {"directions": "orthogonal", "n_directions": 9, "rng": 0}
    with_control = osl.sliced_wasserstein(x, y, control=MeanShift(), **options)
    assert with_control.value == osl.sliced_wasserstein(x, y, **options).value


def test_an_implementation_of_an_operation(
    monkeypatch: pytest.MonkeyPatch, clouds: tuple[np.ndarray, np.ndarray]
) -> None:
    """Ahead of ours, where it accepts the arguments; a forced choice never falls back."""
    for operation in (sliced_scores, sorted_scores):
        monkeypatch.setattr(operation, "_implementations", list(operation._implementations))
    calls = []

    @sorted_scores.implementation(
        "slow", lambda px, py, p: None if p == 2 else "it takes p = 2", before=sorted_scores.names[0]
    )
    def slow(px: Any, py: Any, p: float) -> Any:
        calls.append(px.shape)
        with sorted_scores.using("reference"):
            return sorted_scores(px, py, p)

    expected = [
        osl.sliced_wasserstein(*clouds, p, directions="hadamard", rng=0, workers=1).value for p in (2, 3)
    ]
    assert calls
    calls.clear()
    osl.sliced_wasserstein(*clouds, 3, directions="hadamard", rng=0, workers=1)
    assert not calls
    with sorted_scores.using("slow"), pytest.raises(TypeError, match="slow: it takes p = 2"):
        osl.sliced_wasserstein(*clouds, 3, directions="hadamard", rng=0, workers=1)
    monkeypatch.undo()
    again = [osl.sliced_wasserstein(*clouds, p, directions="hadamard", rng=0, workers=1).value for p in (2, 3)]
    np.testing.assert_allclose(again, expected, rtol=1e-12)


@pytest.mark.thin
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("distance", DISTANCES)
def test_a_cloud_in_a_file(
    tmp_path: Any, distance: Any, weighted: bool, dtype: str, rng: np.random.Generator
) -> None:
    """A map answers as an array does, also far from the origin and with ties."""
    x, y = (rng.integers(-9, 9, size=(n, 5)).astype(dtype) + 1000 for n in (3000, 2500))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    files = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy"]
    options: dict[str, Any] = {"n_directions": 20, "rng": 0, "memory": "1MB"}
    if weighted:
        options["x_weights"] = rng.dirichlet(np.ones(3000))
    expected = distance(x, y, **options)
    # A file beside an array, too: what is taken off the points of one is taken off those of the other.
    for clouds in (files, (files[0], y), (x, files[1])):
        found = distance(*clouds, **options)
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_a_file_larger_than_its_budget_is_never_copied(tmp_path: Any) -> None:
    """80 MB of points within 30 MB: the least that two rows of projections and their pairs take."""
    n, dim = 200_000, 50
    for name, shift in (("x", 1000.0), ("y", 1001.0)):
        file = np.lib.format.open_memmap(tmp_path / f"{name}.npy", mode="w+", dtype=np.float64, shape=(n, dim))
        rng = np.random.default_rng(ord(name))
        for first in range(0, n, 20_000):
            file[first : first + 20_000] = rng.normal(size=(20_000, dim)) + shift
        file.flush()
    x, y = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    options: dict[str, Any] = {"n_directions": 2, "rng": 0, "memory": "8MB", "workers": 1, "directions": "iid"}
    for distance in DISTANCES:
        small = distance(x[:500], y[:500], **options)  # what is compiled or loaded does not count
        assert small.n_directions == 2
        tracemalloc.start()
        est = distance(x, y, **options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40e6, distance
        assert float(est.distance) > 0.5
