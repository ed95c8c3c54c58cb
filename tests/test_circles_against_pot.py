"""The calls of POT's own tests of circles and spheres: the answers, types, gradients and refusals are the same.

POT's linear circular transport and its sliced version are left out: there is no counterpart here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ot
import pytest
import torch
from helpers import weights

import orthoslice as osl

# POT's search ends within 1e-6 of a turn of the best cut.
SEARCH = 1e-5


def unit(points: Any) -> Any:
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def planes(rng: np.random.Generator, slices: int, dim: int) -> np.ndarray:
    """Orthonormal pairs as POT has them, `(slices, dim, 2)`."""
    return np.linalg.qr(rng.normal(size=(slices, dim, 2)))[0]


def ours_on(pot_planes: Any, x: Any, y: Any, p: float = 2, **options: Any) -> Any:
    directions = np.swapaxes(np.asarray(pot_planes), 1, 2)
    return osl.spherical_sliced_wasserstein(x, y, p, directions=directions, **options)


class TestCircle:
    @pytest.mark.parametrize("is_weighted", [False, True])
    @pytest.mark.parametrize("p", [1, 2])
    def test_all_of_pots_solvers_agree(self, rng: np.random.Generator, p: float, is_weighted: bool) -> None:
        """The network simplex is exact; both searches on the circle stop at their tolerance."""
        u, v = rng.random(20), rng.random(30)
        a, b = (weights(rng, 20), weights(rng, 30)) if is_weighted else (ot.unif(20), ot.unif(30))
        way = np.abs(u[:, None] - v)
        exact = ot.emd2(a, b, np.minimum(way, 1 - way) ** p)
        ours = float(osl.circular_wasserstein(u, v, p, period=1, x_weights=a, y_weights=b).value)
        assert ours == pytest.approx(exact, rel=1e-10)
        assert ours == pytest.approx(float(ot.binary_search_circle(u, v, a, b, p=p)[0]), rel=SEARCH)
        # For p = 1 this is the level median, which POT itself tests to 1e-2.
        assert ours == pytest.approx(
            float(ot.wasserstein_circle(u, v, a, b, p=p)[0]), rel=1e-3 if p == 1 else SEARCH
        )

    @pytest.mark.parametrize("p", [1, 2])
    def test_many_circles_at_once(self, rng: np.random.Generator, p: float) -> None:
        """POT has circles in columns, and here they are rows."""
        u, v = rng.random((25, 4)), rng.random((40, 4))
        ours = osl.circular_wasserstein(u.T, v.T, p, period=1).value
        np.testing.assert_allclose(ours, ot.binary_search_circle(u, v, p=p), rtol=SEARCH)

    def test_of_a_cloud_and_itself(self) -> None:
        u = np.linspace(0, 1, 10)
        for p in (1, 2):
            assert float(osl.circular_wasserstein(u, u, p, period=1).value) == 0
            assert float(ot.wasserstein_circle(u, u, p=p)[0]) == pytest.approx(0, abs=1e-12)

    @pytest.mark.parametrize("is_weighted", [False, True])
    def test_the_uniform_law(self, rng: np.random.Generator, is_weighted: bool) -> None:
        # POT sorts the points without their weights, so they come in order.
        u, v = np.sort(rng.random(20)), rng.random(1000)
        a = weights(rng, 20) if is_weighted else ot.unif(20)
        ours = float(osl.circular_wasserstein(u, "uniform", period=1, x_weights=a).value)
        assert ours == pytest.approx(float(ot.semidiscrete_wasserstein2_unif_circle(u, a)[0]), rel=1e-9)
        # A sample of the law is as near to it as 1,000 points are.
        assert ours == pytest.approx(float(ot.wasserstein_circle(u, v, a, p=2)[0]), abs=1e-2)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_types_and_gradients(self, rng: np.random.Generator, dtype: torch.dtype) -> None:
        u, v = (torch.tensor(rng.random(n), dtype=dtype) for n in (20, 30))
        found = []
        for distance in (
            lambda x: osl.circular_wasserstein(x, v, 2, period=1).value,
            lambda x: ot.binary_search_circle(x, v, p=2)[0],
            lambda x: osl.circular_wasserstein(x, "uniform", 2, period=1).value,
            lambda x: ot.semidiscrete_wasserstein2_unif_circle(x)[0],
        ):
            x = u.clone().requires_grad_()
            value = distance(x)
            assert value.dtype == dtype
            found.append(torch.autograd.grad(value, x)[0])
        for ours, theirs in (found[:2], found[2:]):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
            assert float(ours.norm()) > 1e-2

    def test_shapes_that_do_not_agree(self, rng: np.random.Generator) -> None:
        u, v = rng.random((20, 2)), rng.random((30, 1))
        with pytest.raises(ValueError, match="number of batches"):
            ot.wasserstein_circle(u, v)
        with pytest.raises(ValueError, match="shape"):
            osl.circular_wasserstein(u.T, np.stack([v[:, 0]] * 3), period=1)


class TestSphere:
    @pytest.mark.parametrize("is_weighted", [False, True])
    @pytest.mark.parametrize("dim", [3, 4])
    @pytest.mark.parametrize("p", [1, 2])
    def test_on_the_planes_that_pot_drew(
        self, rng: np.random.Generator, p: float, dim: int, is_weighted: bool
    ) -> None:
        """Distances, and what every plane comes to."""
        x, y = unit(rng.normal(size=(40, dim))), unit(rng.normal(size=(70, dim)))
        a, b = (weights(rng, 40), weights(rng, 70)) if is_weighted else (None, None)
        theirs, log = ot.sliced_wasserstein_sphere(x, y, a, b, 10, p=p, seed=42, log=True)
        ours = ours_on(log["projections"], x, y, p, x_weights=a, y_weights=b)
        assert float(ours.distance) == pytest.approx(float(theirs), rel=SEARCH)
        np.testing.assert_allclose(ours.scores, log["projected_emds"], rtol=1e-4)
        # Negative control: other planes have other costs.
        other = ours_on(planes(rng, 10, dim), x, y, p, x_weights=a, y_weights=b)
        assert float(other.distance) != pytest.approx(float(theirs), rel=SEARCH)

    @pytest.mark.parametrize("dim", [3, 4])
    def test_on_the_planes_that_pot_drew_for_the_uniform_law(self, rng: np.random.Generator, dim: int) -> None:
        x = unit(rng.normal(size=(40, dim)))
        theirs, log = ot.sliced_wasserstein_sphere_unif(x, n_projections=10, seed=42, log=True)
        ours = ours_on(log["projections"], x, "uniform")
        assert float(ours.distance) == pytest.approx(float(theirs), rel=1e-9)
        np.testing.assert_allclose(ours.scores, log["projected_emds"], rtol=1e-9)

    def test_of_a_cloud_and_itself(self, rng: np.random.Generator) -> None:
        x = unit(rng.normal(size=(100, 3)))
        assert float(osl.spherical_sliced_wasserstein(x, x, n_directions=12, rng=0).distance) == 0
        assert float(ot.sliced_wasserstein_sphere(x, x, n_projections=10, seed=0)) == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("p", [1, 2])
    def test_in_the_plane_it_is_the_circle(self, rng: np.random.Generator, p: float) -> None:
        x, y, a = unit(rng.normal(size=(100, 2))), unit(rng.normal(size=(120, 2))), weights(rng, 100)
        turns = [(np.arctan2(c[:, 1], c[:, 0]) / (2 * np.pi)) % 1 for c in (x, y)]
        expected = ot.binary_search_circle(*turns, a, ot.unif(120), p=p)[0] ** (1 / p)
        ours = osl.spherical_sliced_wasserstein(x, y, p, x_weights=a, n_directions=6, rng=0)
        assert float(ours.distance) == pytest.approx(float(expected), rel=SEARCH)

    def test_a_seed_repeats_itself(self, rng: np.random.Generator) -> None:
        x, y = unit(rng.normal(size=(50, 3))), unit(rng.normal(size=(50, 3)))
        one, same, other = (osl.spherical_sliced_wasserstein(x, y, n_directions=9, rng=k) for k in (42, 42, 43))
        assert float(one.distance) == float(same.distance) != float(other.distance)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_types_and_gradients(self, rng: np.random.Generator, dtype: torch.dtype) -> None:
        x, y = (torch.tensor(unit(rng.normal(size=(n, 3))), dtype=dtype) for n in (20, 40))
        drawn = torch.tensor(planes(rng, 30, 3), dtype=dtype)
        found = []
        for distance in (
            lambda z: ours_on(drawn, z, y).distance,
            lambda z: ot.sliced_wasserstein_sphere(z, y, n_projections=30, projections=drawn, p=2),
            lambda z: ours_on(drawn, z, "uniform").distance,
            lambda z: ot.sliced_wasserstein_sphere_unif(z, n_projections=30, projections=drawn),
        ):
            free = (2 * x).requires_grad_()
            value = distance(torch.nn.functional.normalize(free, dim=-1))
            assert value.dtype == dtype
            found.append(torch.autograd.grad(value, free)[0])
        for ours, theirs in (found[:2], found[2:]):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
            assert float(ours.norm()) > 1e-2

    def test_what_both_refuse(self, rng: np.random.Generator) -> None:
        x, other, off = unit(rng.normal(size=(10, 3))), unit(rng.normal(size=(10, 4))), rng.normal(size=(10, 3))
        for distance in (ot.sliced_wasserstein_sphere, osl.spherical_sliced_wasserstein):
            for pair in ((x, other), (x, off), (off, x)):
                with pytest.raises(ValueError, match=r"dim|sphere|shape"):
                    distance(*pair)
        for call in (
            lambda: ot.sliced_wasserstein_sphere_unif(off),
            lambda: osl.spherical_sliced_wasserstein(off, "uniform"),
        ):
            with pytest.raises(ValueError, match="sphere"):
                call()
