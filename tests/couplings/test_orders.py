"""Ties of projections: what PW says depends on points, weights and directions, and on nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import Backend, unit_rows, weights

import orthoslice as osl
from orthoslice.backend.arrays import lexsort_rows
from orthoslice.backend.kernels.numba.sorting import SHORTEST_SPLIT
from orthoslice.clouds.cloud import make_clouds
from orthoslice.clouds.ready import make_ready
from orthoslice.couplings.coupling import meeting_slack
from orthoslice.couplings.orders import tied_order

DIAGONALS = np.array([[1, 1], [1, -1], [2, 1]]) / np.sqrt([[2.0], [2.0], [5.0]])


def grid(side: int, dim: int) -> np.ndarray:
    """All points of {0, ..., side - 1}^dim: directions with rational ratios tie many of them."""
    return np.stack(np.meshgrid(*[np.arange(float(side))] * dim), axis=-1).reshape(-1, dim)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projected_does_not_depend_on_memory_or_workers(dtype: type, rng: np.random.Generator) -> None:
    """Products of other shapes round otherwise; points that tie exactly tie all the same."""
    points = grid(12, 2).astype(dtype)
    other = points[rng.integers(0, len(points), 300)] + rng.integers(0, 3, (300, 2)).astype(dtype)
    # As many rows as there are, so that they are cut into chunks of different sizes.
    theta = np.repeat(DIAGONALS, 7, axis=0).astype(dtype)
    for x, y in ((points, other), (points, points[::-1] + 1)):
        found = {
            float(osl.projected_wasserstein(x, y, directions=theta, memory=memory, workers=workers).value)
            for memory in ("20kB", "100kB", "1MB", "1GB")
            for workers in (1, 2)
        }
        assert len(found) == 1, found


def test_three_dimensional_diagonal_ties_in_every_shape(rng: np.random.Generator) -> None:
    """x1 t + x2 t + x3 t rounds by the order of its terms; one direction or several, together or in parts."""
    x, y = grid(6, 3), rng.permutation(grid(6, 3))[:150]
    theta = np.ones((8, 3)) / np.sqrt(3)
    found = {
        round(float(osl.projected_wasserstein(x, y, directions=theta[:k], memory=memory).value), 12)
        for k in (1, 2, 3, 5, 8)
        for memory in ("20kB", "1MB")
    }
    assert len(found) == 1, found
    coupling = osl.induced_coupling(x, y, theta[0])
    assert float(coupling.cost(2)) == pytest.approx(found.pop(), rel=1e-12)


def exact_order(x: np.ndarray) -> np.ndarray:
    """The order by coordinate sums of integers, then by coordinates."""
    return np.lexsort((*x.T[::-1], x.sum(axis=1)))


def test_ties_on_a_diagonal_are_those_of_exact_arithmetic(backend: Backend, rng: np.random.Generator) -> None:
    """Points with the same sum of integer coordinates are taken in lexicographic order."""
    x, y = grid(5, 3), rng.permutation(grid(5, 3)) * 2
    x = rng.permutation(x)
    theta = np.ones(3) / np.sqrt(3)
    if not backend.wide:
        pytest.skip("float32 alone does not tell ties from neighbours")
    coupling = osl.induced_coupling(*(backend.asarray(a) for a in (x, y, theta)))
    np.testing.assert_array_equal(backend.numpy(coupling.ix), exact_order(x))
    np.testing.assert_array_equal(backend.numpy(coupling.iy), exact_order(y))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("cost", ["exact", "independent", "pooled"])
@pytest.mark.parametrize("directions", ["orthogonal", "hadamard"])
@pytest.mark.parametrize(("dim", "jitter"), [(3, 1e-5), (1000, 1e-5)])
def test_float32_is_coupled_as_float64(
    kind: str, cost: str, directions: str, dim: int, jitter: float, rng: np.random.Generator
) -> None:
    """Directions and projections rounded to float32 exchange neighbours: that alone costs up to 2%."""
    convert: Any = np.asarray if kind == "numpy" else pytest.importorskip("torch").asarray
    x = rng.normal(size=(1000, dim)).astype(np.float32)
    y = (x + jitter * rng.normal(size=x.shape)).astype(np.float32)
    options: dict[str, Any] = {"rng": 0, "n_directions": 16, "cost": cost, "directions": directions}
    if cost == "pooled":
        options["directions"] = osl.directions.IID()
    narrow = osl.projected_wasserstein(convert(x), convert(y), 1, **options).value
    wide = osl.projected_wasserstein(
        convert(x.astype(np.float64)), convert(y.astype(np.float64)), 1, **options
    ).value
    assert narrow.dtype == convert(x).dtype
    assert float(narrow) == pytest.approx(float(wide), rel=1e-6)


def test_float32_gradients_of_every_cost(rng: np.random.Generator) -> None:
    """Directions are float64 there; gradients are of the type of the points and right to its accuracy."""
    torch = pytest.importorskip("torch")
    x, y = (torch.tensor(rng.normal(size=(60, 5)).astype(np.float32)) for _ in range(2))
    for cost in ("exact", "independent", "pooled", "paper_pooled"):
        found = []
        for dtype in (torch.float32, torch.float64):
            moving = x.detach().to(dtype).clone().requires_grad_()
            options: dict[str, Any] = {"directions": osl.directions.IID(), "n_directions": 64, "rng": 0}
            osl.projected_wasserstein(moving, y.to(dtype), 1.5, cost=cost, **options).value.backward()
            assert moving.grad.dtype == dtype
            found.append(moving.grad.double().numpy())
        np.testing.assert_allclose(*found, rtol=0, atol=1e-5 * np.abs(found[1]).max())


def test_an_outlier_does_not_tie_the_others(rng: np.random.Generator) -> None:
    """Its own projection is off by more than the spread of the others, and theirs are not."""
    x, y = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    far = np.array([[1e18, 0.0]])
    theta = np.array([[0.6, 0.8]])
    alone = osl.projected_wasserstein(x, y, directions=theta).value
    joined = osl.projected_wasserstein(np.r_[x, far], np.r_[y, far], directions=theta).value
    assert float(joined) * 41 == pytest.approx(float(alone) * 40, rel=1e-9)


@pytest.mark.thin
@pytest.mark.parametrize("distance", [osl.sliced_wasserstein, osl.projected_wasserstein])
@pytest.mark.parametrize("kind", ["distinct", "duplicates"])
def test_shuffled_weighted_rows_cost_nothing(
    backend: Backend, distance: Any, kind: str, rng: np.random.Generator
) -> None:
    """Exactly: equal points with different weights and masses that round are the same in any order."""
    # JAX compiles for every size.
    for n in (7,) if backend.name == "jax" else (2, 3, 7, 50):
        x = rng.normal(size=(n, 3)) if kind == "distinct" else rng.integers(0, 2, (n, 3)).astype(float)
        w, order = weights(rng, n), rng.permutation(n)
        given = [backend.asarray(a) for a in (x, x[order], w, w[order])]
        value = distance(*given[:2], x_weights=given[2], y_weights=given[3], rng=n).value
        if backend.name == "jax" and distance is osl.sliced_wasserstein:
            # Masses are rounded one after the other, and ordering points takes as many sorts as dimensions.
            assert float(value) < 1e-6
        else:
            assert float(value) == 0


@pytest.mark.parametrize("n", [1, 2, 3, 32, 47, 48, 49, 64, 640, 641, 4096, 4097, 5001])
@pytest.mark.parametrize("kind", ["normal", "rounded", "crowded", "sizes", "near", "huge"])
def test_tied_order_against_the_reference(n: int, kind: str, rng: np.random.Generator) -> None:
    rows = rng.normal(size=(4, n))
    if kind == "rounded":
        rows = rows.round(1)
    elif kind == "crowded":
        rows = 1e-60 * rows + (rng.random((4, n)) < 0.5)
    elif kind == "sizes":
        rows = rows * 10.0 ** rng.integers(-300, 300, size=(4, n))
    elif kind == "near":
        rows = rows.round(1) * (1 + rng.integers(-2, 3, size=(4, n)) * 2.0**-52)
    elif kind == "huge":
        rows = 1e200 * rows
    for rounding in (np.zeros(n), 2.0**-51 * np.abs(rows).max(axis=0), np.full(n, 1e-4)):
        found = []
        for name in ("numba", "reference"):
            with tied_order.using(name):
                found.append(tied_order(rows, rounding))
        np.testing.assert_array_equal(*found)
        if not rounding.any():
            np.testing.assert_array_equal(found[0], np.argsort(rows, axis=-1, kind="stable"))
    if kind == "near" and n > 3:
        # The ties that rounding had pulled apart are ties again.
        with tied_order.using("numba"):
            joined = tied_order(rows, np.full(n, 1e-12))
        np.testing.assert_array_equal(joined, np.argsort(rows.round(1), axis=-1, kind="stable"))


def test_tied_order_of_batches(rng: np.random.Generator) -> None:
    rows, rounding = rng.normal(size=(3, 2, 5, 40)).round(2), rng.random((2, 5, 40)) * 0.01
    found = []
    for name in ("numba", "reference"):
        with tied_order.using(name):
            found.append(tied_order(rows, rounding))
    np.testing.assert_array_equal(*found)
    with tied_order.using("numba"), pytest.raises(TypeError, match="float64"):
        tied_order(rows.astype(np.float32), rounding)


def test_tied_order_goes_on_after_a_crowded_row(rng: np.random.Generator) -> None:
    """Rows that take a radix sort come in the middle of others, at different places of the batch."""
    rows, rounding = rng.normal(size=(5, 3, 200)), rng.random((3, 200)) * [[1e-3], [1e-9], [0.0]]
    rows[1, 2] *= 1e-60
    rows[3, 0] = 1 + 1e-9 * rows[3, 0]
    found = []
    for name in ("numba", "reference"):
        with tied_order.using(name):
            found.append(tied_order(rows, rounding))
    np.testing.assert_array_equal(*found)


def test_tied_order_of_more_close_numbers_than_fit_the_cache(rng: np.random.Generator) -> None:
    """Rounded to float32 they are all the same, so that the sort of those in full has to be split too."""
    rows = 1 + 1e-9 * rng.random((1, SHORTEST_SPLIT + 1))
    with tied_order.using("numba"):
        found = tied_order(rows, np.zeros(rows.shape[1]))
    np.testing.assert_array_equal(found, np.argsort(rows, axis=-1, kind="stable"))


@pytest.mark.parametrize("distance", [osl.sliced_wasserstein, osl.projected_wasserstein])
@pytest.mark.parametrize("n", range(2, 9))
def test_weight_gradients_at_equal_weights_are_two_sided(
    distance: Any, n: int, rng: np.random.Generator
) -> None:
    """Where ends of points meet the value has a kink; the gradient is the mean slope, as of finite steps."""
    torch = pytest.importorskip("torch")
    step = 1e-4
    for m in range(2, 9):
        x, y = torch.tensor(rng.normal(size=(n, 3))), torch.tensor(rng.normal(size=(m, 3)))

        def value(a: Any, b: Any, x: Any = x, y: Any = y) -> Any:
            return distance(x, y, x_weights=a, y_weights=b, rng=0, n_directions=4).value

        equal = [torch.full((k,), 1 / k, dtype=torch.float64) for k in (n, m)]
        wanted = [w.clone().requires_grad_() for w in equal]
        total = value(*wanted)
        uniform = float(distance(x, y, rng=0, n_directions=4).value)
        assert float(total.detach()) == pytest.approx(uniform, rel=1e-12)
        for side, gradient in enumerate(torch.autograd.grad(total, wanted)):
            slopes = []
            for k in range(len(gradient)):
                # Weights stay on the simplex.
                along = torch.full((len(gradient),), -1 / len(gradient), dtype=torch.float64)
                along[k] += 1
                ends = []
                for sign in (1, -1):
                    moved = list(equal)
                    moved[side] = equal[side] + sign * step * along
                    ends.append(float(value(*moved)))
                slopes.append((ends[0] - ends[1]) / (2 * step))
            np.testing.assert_allclose(gradient.numpy(), slopes, rtol=0, atol=1e-8)


def test_weight_gradients_at_equal_weights_in_jax(rng: np.random.Generator) -> None:
    """Masses are rounded to 2**-30 there; the slack allows for it."""
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    for n, m, distance in ((3, 3, osl.projected_wasserstein), (3, 6, osl.sliced_wasserstein)):
        x, y = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
        theta = unit_rows(rng, 4, 3)

        def value(w: Any, x: Any = x, y: Any = y, theta: Any = theta, distance: Any = distance) -> Any:
            arrays = [jax.numpy.asarray(a, dtype="float32") for a in (x, y, theta)]
            return distance(arrays[0], arrays[1], directions=arrays[2], x_weights=w).value

        found = jax.grad(value)(jax.numpy.full(n, 1 / n, dtype="float32"))
        w = torch.full((n,), 1 / n, dtype=torch.float64, requires_grad=True)
        tensors = [torch.tensor(a) for a in (x, y, theta)]
        distance(tensors[0], tensors[1], directions=tensors[2], x_weights=w).value.backward()
        np.testing.assert_allclose(np.asarray(found), w.grad.numpy(), atol=1e-4)


def test_slack_is_far_below_the_weight_of_a_point(rng: np.random.Generator) -> None:
    clouds = make_clouds(rng.normal(size=(300, 2)), rng.normal(size=(200, 2)), weights(rng, 300))
    assert meeting_slack(*make_ready(*clouds, for_ties=False)) < 2**62 / 300 * 1e-12


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 8])
def test_lexicographic_order_of_tied_points(dim: int, rng: np.random.Generator) -> None:
    """On the host only points that tie are sorted by further coordinates; zeros of both signs are equal.

    Whole numbers are sorted in 16 bits where these hold them.
    """
    whole = [np.r_[-0.0, 0.0, np.arange(1, values)] for values in (2, 3, 50)]
    others = [[-32768.0, 32767.0, 0.0], [-40000.0, 1.0, 65536.0], [0.5, 0.25, 0.0], [1e300, 2.0]]
    # The last two are sorted in steps, few points at once.
    for n, values in itertools.product((0, 1, 30, 60, 3000, 10_000), [*whole, *others]):
        points = rng.choice(values, size=(2, n, dim))
        with lexsort_rows.using("host"):
            found = lexsort_rows(points)
        np.testing.assert_array_equal(found, [np.lexsort(cloud.T[::-1]) for cloud in points])
        with lexsort_rows.using("passes"):
            np.testing.assert_array_equal(found, lexsort_rows(points))
