"""The contract of samplers: every sampler's test class inherits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import Backend
from scipy import stats

import orthoslice as osl
from orthoslice.backend.arrays import Key
from orthoslice.directions import PointSet, Sampler

# Kolmogorov-Smirnov tests reject at 1e-4, with fixed seeds.
FALSE_ALARM = 1e-4


def coordinate_law(dim: int) -> stats.rv_continuous:
    """The law of one coordinate of a uniform unit vector."""
    return stats.beta((dim - 1) / 2, (dim - 1) / 2, loc=-1, scale=2)


class SamplerContract:
    """What holds for every sampler."""

    sampler: Sampler
    dims: tuple[int, ...] = (2, 3, 5, 16)
    uniform_dims: tuple[int, ...] = (2, 3, 16)

    @property
    def steady(self) -> Sampler:
        """The sampler with blocks of a size that does not depend on the number of directions."""
        return self.sampler

    @pytest.mark.parametrize("n", [1, 2, 7, 40])
    def test_unit_rows_in_blocks(self, n: int) -> None:
        for dim in self.dims:
            sample = self.sampler.sample(n, dim, rng=0)
            assert sample.theta.shape == (n, dim)
            assert sample.block.shape == (n,)
            np.testing.assert_allclose(np.linalg.norm(sample.theta, axis=1), 1, rtol=1e-12)
            sizes = np.bincount(sample.block)
            assert sizes[0] == self.sampler.block_rows(n, dim)
            self.check_sizes(sizes)

    def check_sizes(self, sizes: np.ndarray) -> None:
        """Whole blocks, and one with what is left."""
        assert (sizes[:-1] == sizes[0]).all()
        assert sizes[-1] <= sizes[0]

    def test_no_directions(self) -> None:
        assert self.sampler.sample(0, self.dims[0], rng=0).theta.shape == (0, self.dims[0])

    def test_reproducible_and_fresh(self) -> None:
        dim = self.dims[-1]
        first, again, other = (self.sampler.sample(20, dim, rng=seed).theta for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.isclose(first, other).all(axis=1).any()
        assert (self.sampler.sample(20, dim).theta != self.sampler.sample(20, dim).theta).any()

    def test_prefix_of_whole_blocks(self) -> None:
        """More directions extend fewer, once there is a whole block."""
        for dim in self.dims:
            rows = self.steady.block_rows(10**6, dim)
            few, many = (self.steady.sample(n, dim, rng=3).theta for n in (2 * rows, 3 * rows + 1))
            np.testing.assert_allclose(many[: 2 * rows], few, atol=1e-12)

    def test_random_access(self) -> None:
        dim = self.dims[-1]
        sample = self.sampler.sample(37, dim, rng=9)
        for row in (0, 6, 36):
            np.testing.assert_allclose(self.sampler.row(row, 37, dim, rng=9), sample.theta[row], atol=1e-12)

    def test_projection_and_adjoint(self, rng: np.random.Generator) -> None:
        """<project(points), slopes> = <points, adjoint(slopes)>, also for some rows only."""
        for dim in self.dims:
            points, slopes = rng.normal(size=(2, 6, dim)), rng.normal(size=(8, 2, 6))
            rows_of_block = self.sampler.block_rows(20, dim)
            blocks = np.arange(-(-20 // rows_of_block), dtype=np.int32)
            key = Key.from_seed(0, points)
            drawn = self.sampler.blocks(key, blocks, rows_of_block, dim, points.dtype)
            rows = slice(3, 11)
            forth = (drawn.project(points, rows) * slopes).sum()
            back = (drawn.adjoint(slopes, rows) * points).sum()
            assert forth == pytest.approx(back, rel=1e-12)

    def test_marginals_are_uniform(self) -> None:
        """Each coordinate of one row a block, over many blocks, follows the law of the sphere."""
        for dim in self.uniform_dims:
            rows = self.steady.block_rows(10**9, dim)
            for row in {0, rows - 1}:
                theta = self.steady.sample(800 * rows, dim, rng=row).theta[row::rows]
                for column in {0, dim - 1}:
                    assert stats.kstest(theta[:, column], coordinate_law(dim).cdf).pvalue > FALSE_ALARM

    def test_value_semantics(self) -> None:
        assert hash(self.sampler) == hash(type(self.sampler)())
        assert self.sampler == type(self.sampler)()
        with pytest.raises(AttributeError):
            self.sampler.name = "other"  # type: ignore[misc]

    def test_default_size_has_eight_blocks(self) -> None:
        for dim in (1, 2, 3, 16, 100, 500):
            sampler, n = self.sampler.with_default_size(dim)
            rows = sampler.block_rows(n, dim)
            assert n % rows == 0
            assert n // rows >= 8
            assert 128 <= n <= 8 * 128 + 16


class PointSetContract(SamplerContract):
    """What holds for fixed sets under random rotations besides."""

    sampler: PointSet

    @property
    def steady(self) -> Sampler:
        return replace(self.sampler, block_size=6)

    def check_sizes(self, sizes: np.ndarray) -> None:
        """The replicates share the directions, and none has fewer by more than one."""
        assert len(sizes) == min(self.sampler.replicates, sizes.sum())
        assert sizes[0] >= sizes[-1] >= sizes[0] - 1
        assert (np.diff(sizes) <= 0).all()

    def test_default_size_has_eight_blocks(self) -> None:
        """Four or eight, for large sets err little; runs that stop at a tolerance begin with eight quarters."""
        for dim in self.dims:
            sampler, n = self.sampler.with_default_size(dim)
            assert [run.n_blocks for run in sampler.runs(n, dim)] == [self.sampler.replicates]
            assert 128 <= n <= 8 * 128
            for_tolerance = sampler.for_tolerance(dim, 10**5)
            assert for_tolerance.block_rows(10**6, dim) == n // 4
            assert for_tolerance.for_tolerance(dim, 8) == for_tolerance
            assert sampler.for_tolerance(dim, 80).block_rows(80, dim) == 10

    def test_replicates(self) -> None:
        dim = self.dims[0]
        one = replace(self.sampler, replicates=1)
        assert one.sample(20, dim, rng=0).block.tolist() == [0] * 20
        x = np.random.default_rng(0).normal(size=(9, dim))
        est = osl.sliced_wasserstein(x, 2 * x, directions=one, n_directions=10, rng=0)
        assert np.isnan(est.stderr)
        assert "no error bar: all directions are one set; with `replicates=8`" in repr(est)
        with pytest.raises(ValueError, match="`replicates` must be at least 1; got 0"):
            replace(self.sampler, replicates=0)
        with pytest.raises(ValueError, match="`block_size` must be at least 1; got 0"):
            replace(self.sampler, block_size=0)

    def test_same_directions_on_every_library(self, backend: Backend) -> None:
        dim = self.dims[0]
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(20, dim)), rng.normal(size=(25, dim)) + 0.5
        theta = self.sampler.sample(42, dim, rng=5).theta
        for distance in (osl.sliced_wasserstein, osl.projected_wasserstein):
            est = distance(*map(backend.asarray, (x, y)), directions=self.sampler, n_directions=42, rng=5)
            assert (est.n_blocks, est.n_directions) == (self.sampler.replicates, 42)
            expected = distance(x, y, directions=theta)
            np.testing.assert_allclose(backend.numpy(est.scores), expected.scores, rtol=1e-4, atol=1e-6)

    def test_compiled_and_in_losses(self) -> None:
        """Under `jax.jit` with a traced key, with gradients, and in a loss: all as on NumPy arrays."""
        jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
        dim = self.dims[0]
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(20, dim)), rng.normal(size=(20, dim)) + 0.5
        options: dict[str, Any] = {"directions": self.sampler, "n_directions": 42}
        loss = osl.nn.SlicedWassersteinLoss(42, directions=self.sampler, seed=0)
        value, gradient = loss.value_and_grad(*map(torch.as_tensor, (x, y)), rng=7)
        expected = osl.sliced_wasserstein(x, y, rng=7, **options).value
        assert float(value) == pytest.approx(float(expected), rel=1e-12)
        move = rng.normal(size=x.shape)
        near = [osl.sliced_wasserstein(x + s * move, y, rng=7, **options).value for s in (1e-6, -1e-6)]
        assert float((gradient.numpy() * move).sum()) == pytest.approx((near[0] - near[1]) / 2e-6, rel=1e-5)

        def compiled(points: Any, key: Any) -> Any:
            return osl.sliced_wasserstein(points, jax.numpy.asarray(y), rng=key, **options).value

        both = jax.jit(jax.value_and_grad(compiled))(jax.numpy.asarray(x), jax.random.key(7))
        assert float(both[0]) == pytest.approx(float(expected), rel=1e-5)
        np.testing.assert_allclose(both[1], gradient, rtol=1e-3, atol=1e-5)
        assert float(loss(*map(torch.as_tensor, (x, y)))) != float(loss(*map(torch.as_tensor, (x, y))))

    def test_adaptive_runs(self) -> None:
        """They begin with 8 sets, go on until the tolerance is met, and can be repeated."""
        dim = self.dims[0]
        rng = np.random.default_rng(1)
        x, y = rng.normal(size=(30, dim)), rng.normal(size=(30, dim)) + 0.5
        options: dict[str, Any] = {"directions": self.sampler, "rng": 0}
        est = osl.sliced_wasserstein(x, y, rtol=0.05, **options)
        assert est.converged
        assert est.n_blocks >= 8
        low, high = est.distance_interval()
        assert (high - low) / 2 <= 0.06 * est.distance
        options["directions"] = est.directions
        again = osl.sliced_wasserstein(x, y, n_directions=est.n_directions, **options)
        assert again.value == pytest.approx(est.value, rel=1e-13)

    def test_bounds_are_certain(self) -> None:
        dim = self.dims[0]
        rng = np.random.default_rng(2)
        x, y = rng.normal(size=(12, dim)), rng.normal(size=(12, dim)) + 0.5
        for p in (1, 2):
            bounds = osl.wasserstein_bounds(x, y, p, directions=self.sampler, n_directions=42, rng=0)
            exact = osl.wasserstein(x, y, p).distance
            assert 0.3 * exact < bounds.lower <= exact * (1 + 1e-12)
            assert exact * (1 - 1e-12) <= bounds.upper
