"""Mutually unbiased bases: verified in integers, and what they do to errors."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from sampler_contract import PointSetContract

import orthoslice as osl
from orthoslice.backend.arrays import Key
from orthoslice.directions import Kerdock, Orthogonal
from orthoslice.directions import kerdock as module
from orthoslice.directions.kerdock import KerdockDirections, basis_signs


def transformed(rows: np.ndarray) -> np.ndarray:
    """The unnormalised Walsh-Hadamard transform of rows of integers, in integers."""
    rows, half = rows.astype(np.int16), 1
    while half < rows.shape[-1]:
        pairs = rows.reshape(len(rows), -1, 2, half)
        rows = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        rows, half = rows.reshape(len(rows), -1), 2 * half
    return rows


@pytest.mark.parametrize("dim", [4, 16, 64, 256, 1024])
def test_bases_are_unbiased(dim: int) -> None:
    """In integers: entries of sqrt(dim) times a basis are signs, and products of two bases are +-sqrt(dim).

    With H the Hadamard matrix of signs, row j of H diag(s) times row k of H diag(t) is the transform of s t at
    j xor k. So bases are orthogonal if the transform of all ones is dim at 0 and 0 elsewhere, and two bases
    are unbiased if all entries of the transform of s t are +-sqrt(dim). Each row of H diag(s) is unbiased to
    the identity, since its entries are signs.
    """
    signs = np.stack([basis_signs(dim, k) for k in range(dim // 2)])
    assert signs.shape == (dim // 2, dim)
    assert set(np.unique(signs)) <= {-1, 1}
    assert transformed(np.ones((1, dim))).tolist() == [[dim, *[0] * (dim - 1)]]
    root = round(dim**0.5)
    assert root**2 == dim
    for k in range(1, dim // 2):
        assert (np.abs(transformed(signs[:k] * signs[k])) == root).all()


def test_other_signs_would_be_caught() -> None:
    """Negative control: two bases with random signs are not unbiased, nor with one sign of ours flipped."""
    signs = np.stack([basis_signs(16, k) for k in range(2)])
    assert (np.abs(transformed(signs[:1] * signs[1])) == 4).all()
    signs[0, 3] *= -1
    assert not (np.abs(transformed(signs[:1] * signs[1])) == 4).all()


class TestKerdock(PointSetContract):
    sampler = Kerdock()
    dims = (16, 4, 3, 5)
    uniform_dims = (3, 4, 16)

    def check_sizes(self, sizes: np.ndarray) -> None:
        if len(sizes) <= 4:
            super().check_sizes(sizes)

    def test_default_size_has_eight_blocks(self) -> None:
        """Whole bases: four sets of them, or more where all bases are too few."""
        for dim in (3, 16, 50, 64, 100, 256):
            sampler, n = self.sampler.with_default_size(dim)
            (run,) = sampler.runs(n, dim)
            assert run.n_blocks >= 4
            assert 128 <= n <= 8 * 128 + 16
            if dim > 4:
                assert run.rows % sampler.ambient_dim(dim) == 0
            for_tolerance = sampler.for_tolerance(dim, 10**5)
            assert for_tolerance.block_rows(10**6, dim) == run.rows

    @pytest.mark.parametrize(("dim", "ambient"), [(1, 4), (3, 4), (4, 4), (5, 16), (17, 64), (257, 1024)])
    def test_padding(self, dim: int, ambient: int) -> None:
        assert Kerdock().ambient_dim(dim) == ambient

    def test_sets_are_mutually_unbiased(self) -> None:
        """All D / 2 + 1 bases of one rotation, and no more than that in a set."""
        for dim in (4, 16):
            n = dim * (dim // 2 + 1)
            sample = Kerdock(replicates=1).sample(n, dim, rng=0)
            bases = sample.theta.reshape(-1, dim, dim)
            cosines = np.abs(np.einsum("aik,bjk->abij", bases, bases))
            for a in range(len(bases)):
                for b in range(len(bases)):
                    np.testing.assert_allclose(cosines[a, b], np.eye(dim) if a == b else dim**-0.5, atol=1e-13)
            assert np.bincount(Kerdock(replicates=1).sample(n + 1, dim, rng=0).block).tolist() in (
                [n // 2 + 1, n // 2],
                [(n + 2) // 2, n // 2],
            )
            with pytest.raises(ValueError, match=f"`block_size` must be at most {n} in dim {dim}"):
                Kerdock(block_size=n + 1).sample(4, dim)

    def test_design(self) -> None:
        """All bases give the mean of <v, u>^4 without error, which orthogonal blocks do not."""
        u = np.random.default_rng(0).normal(size=16)
        exact = 3 / (16 * 18) * (u @ u) ** 2
        for seed in range(3):
            theta = Kerdock(replicates=1).sample(144, 16, rng=seed).theta
            assert np.mean((theta @ u) ** 4) == pytest.approx(exact, rel=1e-12)
            theta = Orthogonal().sample(144, 16, rng=seed).theta
            assert np.mean((theta @ u) ** 4) != pytest.approx(exact, rel=1e-3)

    def test_too_many_dimensions(self) -> None:
        x = np.zeros((1, 1025))
        with pytest.raises(ValueError, match=r"up to 1,024 dimensions; got dim 1025. Pass"):
            osl.sliced_wasserstein(x, x, directions="kerdock")

    def test_padded_sliced_value_is_unbiased(self, rng: np.random.Generator) -> None:
        """Dim 11 in 16: SW agrees with orthogonal within 4 errors, and would not without the factor."""
        x, y = rng.normal(size=(20, 11)), rng.normal(size=(20, 11)) + 0.3
        for p in (1, 2, 3):
            kerdock = Kerdock(block_size=32)
            padded = osl.sliced_wasserstein(x, y, p, directions=kerdock, n_directions=32 * 200, rng=0)
            plain = osl.sliced_wasserstein(x, y, p, directions="orthogonal", n_directions=11 * 600, rng=1)
            error = np.hypot(padded.stderr, plain.stderr)
            assert abs(padded.value - plain.value) < 4 * error
            assert abs(padded.value * (11 / 16) ** (p / 2) - plain.value) > 4 * error

    @pytest.mark.parametrize("rows", [20, 144, 100])
    @pytest.mark.parametrize("dim", [13, 16])
    def test_rows_formed_late_are_the_same(
        self, rows: int, dim: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
    ) -> None:
        """By slices, by indices within a set, and all at once; projections and their transposes."""
        key = Key.from_seed(0, np.zeros(1))
        index = np.arange(2, dtype=np.int32)
        drawn = [Kerdock().blocks(key, index[:k], rows, dim, np.dtype(np.float64)) for k in (1, 2)]
        frames = [
            module.orthonormal_rows(module.normals(key.fold(index[:k], 0), dim, 16, np.dtype(np.float64)))
            for k in (1, 2)
        ]
        whole = KerdockDirections(frames[1], rows, np.dtype(np.float64)).all_formed()
        points, slopes = rng.normal(size=(5, dim)), rng.normal(size=(2 * rows - 3, 5))
        part = slice(3, 2 * rows)
        late = KerdockDirections(frames[1], rows, np.dtype(np.float64))
        for directions in (drawn[1], late):
            np.testing.assert_allclose(directions.project(points, part), whole[part] @ points.T, atol=1e-13)
            np.testing.assert_allclose(directions.adjoint(slopes, part), slopes.T @ whole[part], atol=1e-12)
        some = np.array([0, 7, rows - 1])
        one = KerdockDirections(frames[0], rows, np.dtype(np.float64))
        np.testing.assert_allclose(one.project(points, some), whole[some] @ points.T, atol=1e-13)

    def test_memory_does_not_grow_with_the_set(self) -> None:
        """A set of 524,288 rows in dimension 1,024 would take 4 GB; single rows are made without it."""
        key = Key.from_seed(0, np.zeros(1))
        start = time.process_time()
        drawn = Kerdock().blocks(key, np.zeros(1, dtype=np.int32), 524_288, 1000, np.dtype(np.float32))
        theta = drawn.project(np.eye(1000, dtype=np.float32), slice(400_000, 400_010))
        assert theta.shape == (10, 1000)
        assert time.process_time() - start < 20

    @pytest.mark.parametrize("p", [1, 2])
    def test_better_than_orthogonal(self, p: float, rng: np.random.Generator) -> None:
        """All bases in dimension 16: less than 0.6 times the error, over 300 runs (about 0.4)."""
        x, y = rng.normal(size=(200, 16)), rng.normal(size=(200, 16))
        truth = osl.sliced_wasserstein(
            x, y, p, directions=Kerdock(block_size=144), n_directions=144 * 200, control=None, rng=99
        )

        def mean_squared_error(directions: Any) -> float:
            options = {"directions": directions, "n_directions": 144, "control": None}
            values = [osl.sliced_wasserstein(x, y, p, **options, rng=s).value for s in range(300)]
            return float(np.mean((np.array(values) - truth.value) ** 2))

        assert mean_squared_error(Kerdock(replicates=1)) < 0.6 * mean_squared_error("orthogonal")
