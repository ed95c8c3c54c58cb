"""Samplers of the paper: independent, orthogonal and Hadamard-Rademacher directions; and given ones."""

from __future__ import annotations

import numpy as np
import pytest
from sampler_contract import SamplerContract, coordinate_law
from scipy import stats

import orthoslice as osl
from orthoslice.backend.arrays import Key
from orthoslice.directions import IID, Given, HadamardRademacher, Orthogonal, Sampler, drawing
from orthoslice.directions.base import DenseDirections


class TestIID(SamplerContract):
    sampler = IID()

    def test_every_row_is_a_block(self) -> None:
        assert IID().sample(4, 3, rng=0).block.tolist() == [0, 1, 2, 3]


class TestOrthogonal(SamplerContract):
    sampler = Orthogonal()

    def test_blocks_are_orthonormal(self) -> None:
        sample = Orthogonal().sample(18, 5, rng=0)
        for block in range(4):
            theta = sample.theta[sample.block == block]
            np.testing.assert_allclose(theta @ theta.T, np.eye(len(theta)), atol=1e-13)

    def test_first_rows_of_a_block_are_its_prefix(self) -> None:
        np.testing.assert_allclose(
            Orthogonal().sample(3, 8, rng=0).theta, Orthogonal().sample(8, 8, rng=0).theta[:3], atol=1e-13
        )

    def test_both_orientations_are_as_likely(self) -> None:
        """Haar on O(dim), not SO(dim): the sign of the determinant is a fair coin (4 sigma)."""
        theta = Orthogonal().sample(4000 * 3, 3, rng=0).theta.reshape(-1, 3, 3)
        assert abs(np.sign(np.linalg.det(theta)).mean()) < 4 / 4000**0.5

    def test_sign_convention_of_qr_would_be_caught(self) -> None:
        """Negative control: LAPACK's QR without the sign correction is not Haar."""
        gaussian = np.random.default_rng(0).normal(size=(2000, 3, 3))
        q = np.linalg.qr(gaussian)[0]
        assert stats.kstest(q[:, 0, 0], coordinate_law(3).cdf).pvalue < 1e-10

    def test_block_size(self) -> None:
        sampler = Orthogonal(block_size=4)
        assert sampler.sample(10, 50, rng=0).block.tolist() == [0] * 4 + [1] * 4 + [2] * 2
        assert sampler.block_rows(100, 3) == 3
        assert Orthogonal().with_default_size(784) == (Orthogonal(block_size=128), 1024)
        for given in (Orthogonal(block_size=784), Orthogonal(block_size=10**6)):
            assert given.with_default_size(784) == (given, 8 * 784)
        assert Orthogonal(block_size=200).with_default_size(784) == (Orthogonal(block_size=200), 1600)


class TestHadamardRademacher(SamplerContract):
    sampler = HadamardRademacher()
    # Approximate, except in the plane; in dimension 4 the bias of SW shows it.
    uniform_dims = (2, 8, 16, 64, 100)

    @pytest.mark.parametrize("factors", ["reflections", "signs"])
    @pytest.mark.parametrize("rounds", [1, 2, 3])
    def test_blocks_are_orthonormal(self, rounds: int, factors: str) -> None:
        theta = HadamardRademacher(rounds=rounds, factors=factors).sample(16, 16, rng=0).theta
        np.testing.assert_allclose(theta @ theta.T, np.eye(16), atol=1e-13)

    def test_a_line(self) -> None:
        assert set(HadamardRademacher().sample(40, 1, rng=0).theta[:, 0]) == {-1, 1}

    @pytest.mark.parametrize(
        ("dim", "sampler"),
        [
            (64, HadamardRademacher(rounds=1)),
            (64, HadamardRademacher(rounds=1, factors="signs")),
            (16, HadamardRademacher(factors="signs")),
        ],
    )
    def test_too_little_mixing_is_not_uniform(self, dim: int, sampler: HadamardRademacher) -> None:
        """Negative controls for the marginals: one round has entries of one size, signs have few sizes."""
        theta = sampler.sample(1000 * dim, dim, rng=0).theta[::dim]
        assert stats.kstest(theta[:, 0], coordinate_law(dim).cdf).pvalue < 1e-6

    @pytest.mark.parametrize("kind", ["one-hot", "3-sparse"])
    def test_data_on_the_grid_of_coordinates(self, rng: np.random.Generator, kind: str) -> None:
        """SW_2^2 of 0/1 data in dim 16 is right to 2% and 4 errors (false alarms 6e-5), with signs not."""
        active = 1 if kind == "one-hot" else 3
        x, y = (rng.permuted(np.tile(np.arange(16) < active, (40, 1)), axis=1) for _ in range(2))
        truth = osl.sliced_wasserstein(x, y, directions="orthogonal", n_directions=16 * 6000, rng=0)
        estimates = [
            osl.sliced_wasserstein(
                x, y, directions=HadamardRademacher(factors=f), n_directions=16 * 6000, rng=1
            )
            for f in ("reflections", "signs")
        ]
        off = [e.value / truth.value - 1 for e in estimates]
        allowed = [0.02 + 4 * np.hypot(e.stderr, truth.stderr) / truth.value for e in estimates]
        assert abs(off[0]) < allowed[0] < 0.05
        assert off[1] > 0.1 > allowed[1]

    def test_padded_sliced_value_is_unbiased(self, rng: np.random.Generator) -> None:
        """Dim 20 in 32: SW agrees with orthogonal within 4 errors, and would not without the factor."""
        x, y = rng.normal(size=(20, 20)), rng.normal(size=(20, 20)) + 0.3
        for p in (1, 2, 3):
            padded = osl.sliced_wasserstein(x, y, p, directions="hadamard", n_directions=32 * 300, rng=0)
            plain = osl.sliced_wasserstein(x, y, p, directions="orthogonal", n_directions=20 * 480, rng=1)
            error = np.hypot(padded.stderr, plain.stderr)
            assert abs(padded.value - plain.value) < 4 * error
            assert abs(padded.value * 20 / 32 - plain.value) > 4 * error

    def test_matches_dense_projection(self, rng: np.random.Generator) -> None:
        points = rng.normal(size=(7, 16))
        key = Key.from_seed(0, points)
        drawn = HadamardRademacher().blocks(key, np.arange(2, dtype=np.int32), 16, 16, points.dtype)
        theta = HadamardRademacher().sample(32, 16, rng=0).theta
        np.testing.assert_allclose(drawn.project(points, slice(0, 32)), theta @ points.T, atol=1e-13)

    def test_deterministic_in_the_plane(self) -> None:
        """The docstring's warning: with signs every seed gives the same directions, up to sign and order."""
        sampler = HadamardRademacher(factors="signs")
        directions = {
            tuple(sorted(map(tuple, np.abs(sampler.sample(2, 2, rng=s).theta).round(6)))) for s in range(40)
        }
        assert len(directions) <= 2


def test_given_rows_are_used_as_they_are(rng: np.random.Generator) -> None:
    theta = Orthogonal().sample(10, 4, rng=0).theta
    x, y = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    est = osl.sliced_wasserstein(x, y, directions=theta)
    assert isinstance(est.directions, Given)
    assert np.isnan(est.stderr)
    assert est.n_blocks == 1
    same = osl.sliced_wasserstein(x, y, directions="orthogonal", n_directions=10, rng=0)
    assert est.value == pytest.approx(same.value, rel=1e-13)
    assert "nothing is known" in repr(est)


@pytest.mark.parametrize("base", [IID, Orthogonal])
def test_kernels_leave_derived_samplers_alone(base: type[Sampler], monkeypatch: pytest.MonkeyPatch) -> None:
    """What such a sampler draws on a GPU is its own choice."""
    torch = pytest.importorskip("torch")
    for refusal in ("cuda_refusal", "room_refusal"):
        monkeypatch.setattr(drawing, refusal, lambda *_, **__: None)

    class Fixed(base):  # type: ignore[misc, valid-type]
        def draw(self, key: Key, rows: int, dim: int, dtype: object) -> DenseDirections:
            return DenseDirections(torch.eye(dim, dtype=dtype)[:rows])

    key = Key.from_seed(0, torch.zeros(1))
    blocks = [drawing.Blocks(s, key, 0, 1, 1, 3, torch.float32) for s in (base(), Fixed())]
    assert drawing.draw_blocks.chosen(blocks[0]).__name__ == "_draw_blocks_cuda"
    assert torch.equal(drawing.draw_blocks(blocks[1]).theta, torch.eye(3)[:1])
    assert not drawing.can_draw_ahead(blocks[1], 1)
