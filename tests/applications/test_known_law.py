"""A test of a sample against a known law: its level is exact, since the law is simulated."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import FULL

import orthoslice as osl

laws = osl.laws
OPTIONS = {"n_permutations": 39, "n_directions": 8, "workers": 1}
REPETITIONS = 2000 if FULL else 200

CASES = {
    "normal": (laws.Normal(3), 1, 30),
    "ball": (laws.Ball(2), 2, 20),
    "cube": (laws.Cube(2), 1, 20),
    "affine": (laws.Normal(2).affine([[1.0, 0], [1, 2], [0, 1]], 1.0), 2, 20),
}


def rejected(law: laws.Law, p: float, n: int, scale: float = 1.0) -> float:
    """The share of samples, stretched by `scale`, that are rejected at a level of 5%."""
    rng = np.random.default_rng(0)
    tests = (
        osl.two_sample_test(scale * law.sample(n, rng), law, p, rng=seed, **OPTIONS)
        for seed in range(REPETITIONS)
    )
    return sum(test.pvalue <= 0.05 for test in tests) / REPETITIONS


@pytest.mark.parametrize("name", CASES)
def test_level(name: str) -> None:
    """False alarms: 0.4% a case; at 5%, 2,000 nulls are rejected in 3.6 to 6.4%, 200 in 0.9 to 10.1%."""
    rate = rejected(*CASES[name])
    assert (0.036 if FULL else 0.009) <= rate <= (0.064 if FULL else 0.101)


def test_power() -> None:
    """The negative control of the level: samples that are wider by 3/10 are rejected far more often."""
    assert rejected(*CASES["normal"], scale=1.3) > 0.3


def test_is_repeated_and_tells_what_it_did(rng: np.random.Generator) -> None:
    law, x = laws.Normal(4).affine(2.0), 2 * rng.normal(size=(50, 4))
    found = osl.two_sample_test(x, law, 2, rng=0)
    again = osl.two_sample_test(x, law, 2, rng=0, workers=2, memory="1MB")
    np.testing.assert_allclose(again.null_distribution, found.null_distribution, rtol=1e-12)
    assert again.pvalue == found.pvalue
    # The null does not depend on the data.
    other = osl.two_sample_test(x + 5, law, 2, rng=0)
    np.testing.assert_allclose(other.null_distribution, found.null_distribution, rtol=1e-12)
    assert other.pvalue == 0.001
    est = osl.sliced_wasserstein(
        x, law, 2, directions=found.directions, n_directions=found.n_directions, rng=found.seed
    )
    assert found.statistic == pytest.approx(float(est.distance), rel=1e-9)
    assert "SW_2 of 50 points and Normal(dim=4).affine(2, shift=0)" in repr(found)
    assert "simulated samples reach it" in repr(found)
    assert "50 points and Normal(dim=4)" in found._repr_html_()
    assert found.n_labellings == np.inf
    assert found.column_pvalues is None


@pytest.mark.parametrize("power", [-200, 200])
def test_units(rng: np.random.Generator, power: int) -> None:
    law, x = laws.Ball(3), rng.normal(size=(20, 3))
    plain = osl.two_sample_test(x, law, 2, rng=0, n_permutations=19)
    scaled = osl.two_sample_test(x * 10.0**power, law.affine(10.0**power), 2, rng=0, n_permutations=19)
    assert scaled.pvalue == plain.pvalue
    assert scaled.statistic / 10.0**power == pytest.approx(plain.statistic, rel=1e-9)


@pytest.mark.parametrize("directions", ["hadamard", "iid", "orthogonal"])
def test_kinds_of_directions_and_libraries(rng: np.random.Generator, directions: str) -> None:
    import torch

    law, x = laws.Cube(5), rng.uniform(-1, 1, (30, 5))
    options = {"directions": directions, "n_directions": 24, "rng": 0, "n_permutations": 49}
    found = osl.two_sample_test(x, law, **options)
    assert osl.two_sample_test(torch.as_tensor(x), law, **options).pvalue == found.pvalue
    est = osl.sliced_wasserstein(x, law, 1, directions=directions, n_directions=24, rng=0)
    assert found.statistic == pytest.approx(float(est.distance), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "auto"}, "`method` must be left out where `y` is a law"),
        ({"method": "projected", "p": 2}, "`method` must be left out"),
        ({"columns": True}, "`columns` must be left out"),
        ({"groups": ([1], [2])}, "`groups` must be left out"),
        ({"stop_early": True}, "`stop_early` must be left out"),
        ({"y_weights": [1.0]}, "`y_weights` must be left out"),
    ],
)
def test_refusals(rng: np.random.Generator, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        osl.two_sample_test(rng.normal(size=(9, 2)), laws.Normal(2), **options)


def test_refuses_other_dimensions_and_laws_without_points(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="`x` and `y` must share `dim`; got 3 and a law in 2 dimensions"):
        osl.two_sample_test(rng.normal(size=(9, 3)), laws.Normal(2))
    arcsine = laws.from_quantiles(lambda u: np.sin(np.pi * (u - 0.5)), 2)
    with pytest.raises(NotImplementedError, match="knows its law on lines only"):
        osl.two_sample_test(rng.normal(size=(9, 2)), arcsine)


def test_moments_and_weights_are_checked(rng):
    x = rng.normal(size=(20, 1))
    with pytest.raises(ValueError, match="moments are infinite"):
        osl.two_sample_test(x, osl.laws.from_quantiles(lambda u: np.tan(np.pi * (u - 0.5)), 1), rng=0)
    with pytest.raises(ValueError, match="`x_weights` must be left out where `y` is a law"):
        osl.two_sample_test(x, osl.laws.Normal(1), x_weights=np.full(20, 0.05))
