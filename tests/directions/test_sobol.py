"""Sobol's points on the sphere: uniform rows, balanced sets, and the same numbers on every library."""

from __future__ import annotations

import numpy as np
import pytest
from sampler_contract import PointSetContract
from scipy.special import ndtr
from scipy.stats import qmc

import orthoslice as osl
from orthoslice.directions import Sobol
from orthoslice.directions.sobol import _scrambled


class TestSobol(PointSetContract):
    sampler = Sobol()

    def test_most_dimensions(self) -> None:
        assert Sobol().runs(2, 21201) == ((2, 1),)
        assert Sobol().sample(4, 1000, rng=0).theta.shape == (4, 1000)
        with pytest.raises(ValueError, match=r"up to 21,201 dimensions; got dim 21202. Pass"):
            Sobol().sample(2, 21202, rng=0)
        x = np.zeros((1, 21202))
        with pytest.raises(ValueError, match="got dim 21202"):
            osl.sliced_wasserstein(x, x, directions="sobol")

    @pytest.mark.parametrize("dim", [1, 2, 7])
    def test_sets_are_nets(self, dim: int) -> None:
        """A fixed scrambling leaves what makes points a net: one of each 2^k intervals in every coordinate."""
        for rows in (1, 2, 16, 64):
            words = _scrambled(rows, dim).view(np.uint32)
            cells = np.sort(np.ldexp(words.astype(np.float64), -32) * rows, axis=0).astype(int)
            np.testing.assert_array_equal(cells, np.tile(np.arange(rows)[:, None], dim))

    def test_more_even_than_independent_points(self) -> None:
        """Also where unscrambled points are not: the first 64 in dimension 40."""
        words = _scrambled(64, 40).view(np.uint32)
        even = qmc.discrepancy(np.ldexp(words.astype(np.float64), -32), method="MD")
        rng = np.random.default_rng(0)
        independent = [qmc.discrepancy(rng.random((64, 40)), method="MD") for _ in range(20)]
        plain = qmc.discrepancy(qmc.Sobol(40, scramble=False).random(64), method="MD")
        assert even < min(independent) < plain

    def test_shifts_are_independent_and_uniform(self) -> None:
        """Rows of two sets are no nearer to each other than chance has it (4 standard errors)."""
        theta = Sobol(replicates=2000).sample(4000, 3, rng=0).theta.reshape(1000, 2, 2, 3)
        cosines = (theta[:, 0, 0] * theta[:, 1, 0]).sum(axis=1)
        assert abs(cosines.mean()) < 4 / (3 * 1000) ** 0.5
        # Two points of one set are in different halves of the first coordinate: that is what a set is for.
        within = theta[:, 0, 0, 0] * theta[:, 0, 1, 0]
        assert (within < 0).all()

    def test_normal_quantile(self) -> None:
        from orthoslice.directions.sobol import _normal_quantile

        u = np.concatenate([2.0 ** -np.arange(1, 34), np.linspace(0.001, 0.999, 997)])
        np.testing.assert_allclose(ndtr(_normal_quantile(np, u, 1 - u)), u, rtol=1e-13)
        np.testing.assert_allclose(_normal_quantile(np, 1 - u, u), -_normal_quantile(np, u, 1 - u), atol=1e-15)

    def test_better_than_iid(self, rng: np.random.Generator) -> None:
        """SW_2 of Gaussian clouds in dimension 5: less than 0.8 times the error, over 400 runs."""
        x, y = rng.normal(size=(100, 5)), rng.normal(size=(100, 5)) + 0.5
        truth = osl.sliced_wasserstein(x, y, directions="orthogonal", n_directions=50_000, rng=0).value
        errors = [
            np.mean(
                [
                    (osl.sliced_wasserstein(x, y, directions=d, n_directions=32, rng=s).value - truth) ** 2
                    for s in range(400)
                ]
            )
            for d in (Sobol(replicates=1), "iid")
        ]
        assert errors[0] < 0.8 * errors[1]
