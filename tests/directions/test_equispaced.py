"""Directions at even angles: exact for smooth scores, at a loss on symmetric clouds."""

from __future__ import annotations

import numpy as np
import pytest
from sampler_contract import PointSetContract

import orthoslice as osl
from orthoslice.directions import Equispaced


def polygon(corners: int, radius: float = 1.0, turn: float = 0.0) -> np.ndarray:
    angle = turn + 2 * np.pi * np.arange(corners) / corners
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def mean_squared_errors(x: np.ndarray, y: np.ndarray, p: float, n: int, runs: int = 200) -> list[float]:
    """Of one equispaced set and of as many independent directions."""
    truth = osl.exact.sliced_plane(x, y, p)
    return [
        float(
            np.mean(
                [
                    (osl.sliced_wasserstein(x, y, p, directions=d, n_directions=n, rng=seed).value - truth) ** 2
                    for seed in range(runs)
                ]
            )
        )
        for d in (Equispaced(replicates=1), "iid")
    ]


class TestEquispaced(PointSetContract):
    sampler = Equispaced()
    dims = (2,)
    uniform_dims = (2,)

    def test_even_angles(self) -> None:
        theta = Equispaced(replicates=1).sample(8, 2, rng=0).theta
        angles = np.sort(np.arctan2(theta[:, 1], theta[:, 0]) % np.pi)
        np.testing.assert_allclose(np.diff(angles), np.pi / 8, rtol=1e-12)

    def test_only_the_plane(self, rng: np.random.Generator) -> None:
        x = rng.normal(size=(5, 3))
        with pytest.raises(ValueError, match="for clouds in the plane; got dim 3"):
            osl.sliced_wasserstein(x, x + 1, directions="equispaced")

    def test_polynomials_without_error(self) -> None:
        """SW_4 of two points is a polynomial of degree 2 in twice the angle: 3 lines are enough, 2 are not."""
        x, y = np.zeros((1, 2)), np.array([[3.0, 4.0]])
        for n, exact in ((3, True), (2, False)):
            est = osl.sliced_wasserstein(x, y, 4, directions=Equispaced(replicates=1), n_directions=n, rng=1)
            assert (abs(est.value / (3 / 8 * 5**4) - 1) < 1e-12) == exact

    @pytest.mark.parametrize("p", [1, 2])
    def test_far_better_than_iid(self, p: float, rng: np.random.Generator) -> None:
        """At 32 lines by a factor of more than 100 (in 200 runs, of which each alone would do)."""
        x, y = rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) @ np.diag([1.0, 1.5])
        ours, iid = mean_squared_errors(x, y, p, 32, runs=40)
        assert ours < iid / 100

    def test_symmetric_clouds_make_it_lose(self) -> None:
        """16-gons and 8 lines: 8 times the error of independent directions (within 4 standard errors).

        All lines of a set meet the polygons alike, so that a set says no more than one line. With 7 lines it
        is far better than independent ones. The standard error of each ratio is below a tenth of it.
        """
        x, y = polygon(16), polygon(16, radius=1.5, turn=0.1)
        ours, iid = mean_squared_errors(x, y, 2, 8)
        assert 5 < ours / iid < 11
        ours, iid = mean_squared_errors(x, y, 2, 7)
        assert ours < iid / 100

    def test_symmetric_clouds_show_in_the_error_bar(self) -> None:
        """Intervals of 8 sets hold the truth in 88 of 100 runs or more; false alarms at 95%: 1e-3.

        Negative control: intervals from all lines, as if they were independent, hold it in half of all runs.
        """
        x, y = polygon(16), polygon(16, radius=1.5, turn=0.1)
        truth = osl.exact.sliced_plane(x, y, 2)
        held = naive = 0
        for seed in range(100):
            est = osl.sliced_wasserstein(x, y, 2, directions=Equispaced(), n_directions=64, rng=seed)
            low, high = est.interval()
            held += low <= truth <= high
            naive += abs(est.value - truth) <= 2 * est.scores.std() / 64**0.5
        assert held >= 88
        assert naive < 70

    def test_few_sets_are_not_trusted(self) -> None:
        """Their means are too often alike: intervals of 4 hold the truth in fewer than 93 of 100 runs."""
        x, y = np.zeros((1, 2)), np.array([[3.0, 4.0]])
        est = osl.sliced_wasserstein(x, y, 1, directions=Equispaced(replicates=4), n_directions=64, rng=0)
        assert not est.trusted
        with pytest.warns(osl.UntrustedWarning, match="fewer than 8 often agree by chance"):
            est.interval()
        many = osl.sliced_wasserstein(x, y, 1, directions=Equispaced(block_size=16), n_directions=64_000, rng=0)
        assert many.trusted
        means = many.scores.reshape(1000, 4, 16).mean(axis=2)
        half_width = 3.182 * means.std(axis=1, ddof=1) / 2
        assert np.mean(np.abs(means.mean(axis=1) - 10 / np.pi) <= half_width) < 0.93
