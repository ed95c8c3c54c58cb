"""The choice of directions: what is chosen where, why, and that it can be repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import Backend

import orthoslice as osl
from orthoslice.directions import Auto, Equispaced, Kerdock, Optimized, Orthogonal, Sampler


@pytest.mark.parametrize(
    ("dim", "n", "sampler"),
    [
        (1, 8, Orthogonal()),
        (2, 8, Orthogonal()),
        (2, 24, Equispaced()),
        (2, None, Equispaced()),
        (3, 12, Orthogonal()),
        (3, 16, Optimized()),
        (3, 4, Orthogonal(block_size=1)),
        (5, None, Optimized()),
        (9, None, Optimized()),
        (10, None, Orthogonal()),
        (10, 400, Optimized()),
        (16, None, Orthogonal()),
        (16, 4 * 144, Kerdock()),
        (16, 4 * 145, Optimized()),
        (16, 4 * 500, Optimized()),
        (64, None, Orthogonal()),
        (64, 4 * 2112, Kerdock()),
        (50, 4 * 2112, Kerdock()),
        (50, 4 * 1000, Optimized()),
        (30, 10**5, Optimized()),
        (64, 256, Orthogonal()),
        (64, 255, Orthogonal(block_size=63)),
        (64, 4 * 96, Orthogonal()),
        (100, 10**5, Orthogonal()),
        (784, None, Orthogonal(block_size=128)),
        (784, 3, Orthogonal(block_size=1)),
    ],
)
def test_what_is_chosen(dim: int, n: int | None, sampler: Sampler) -> None:
    choice = Auto().choose(dim, n)
    assert choice.sampler == sampler
    assert choice.n_directions == (n or choice.sampler.with_default_size(dim)[1])
    blocks = sum(run.n_blocks for run in sampler.runs(choice.n_directions, dim))
    assert blocks >= min(4, choice.n_directions)
    assert f"SW in dimension {dim} with" in choice.why


@pytest.mark.parametrize(
    ("dim", "n", "sampler"),
    [
        (2, 8, Equispaced(replicates=1)),
        (3, 12, Optimized(replicates=1)),
        (64, 96, Optimized(replicates=1)),
        (64, 128, Orthogonal()),
        (64, 40, Orthogonal()),
    ],
)
def test_the_least_error(dim: int, n: int, sampler: Sampler) -> None:
    for method in ("sliced", "projected"):
        assert Auto(replicates=1).choose(dim, n, method).sampler == sampler


def test_projected() -> None:
    """As for SW, in more sets."""
    for dim, sampler in ((2, Equispaced()), (3, Optimized(replicates=8)), (10, Orthogonal())):
        choice = Auto().choose(dim, method="projected")
        assert choice.sampler == sampler
        assert f"PW in dimension {dim}" in choice.why


def test_wrong_wishes() -> None:
    with pytest.raises(ValueError, match="`method` must be 'sliced' or 'projected'; got 'SW'"):
        Auto().choose(3, method="SW")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`replicates` must be at least 1; got 0"):
        Auto(replicates=0)
    with pytest.raises(TypeError, match="`dim` must be an integer"):
        Auto().choose(2.5)  # type: ignore[arg-type]


@pytest.mark.thin
@pytest.mark.parametrize("dim", [3, 16])
@pytest.mark.parametrize("distance", [osl.sliced_wasserstein, osl.projected_wasserstein])
def test_estimates_say_what_ran(distance: Any, dim: int, backend: Backend, rng: np.random.Generator) -> None:
    """The sampler that was chosen, which gives the same again."""
    x, y = (backend.asarray(rng.normal(size=(20, dim))) for _ in range(2))
    method = "sliced" if distance is osl.sliced_wasserstein else "projected"
    est = distance(x, y, directions=Auto(), rng=3)
    choice = Auto().choose(dim, method=method)
    assert (est.directions, est.n_directions) == (choice.sampler, choice.n_directions)
    assert float(est.stderr) > 0
    again = distance(x, y, directions=est.directions, n_directions=est.n_directions, rng=est.seed)
    assert float(again.value) == float(est.value)


@pytest.mark.parametrize("dim", [2, 3, 16])
def test_tolerances(dim: int, rng: np.random.Generator) -> None:
    """At least 8 sets, until the tolerance is met, also where one was wished for; the run can be repeated."""
    x, y = rng.normal(size=(40, dim)), rng.normal(size=(40, dim)) + 0.5
    for auto in (Auto(), Auto(replicates=1)):
        est = osl.sliced_wasserstein(x, y, directions=auto, rtol=0.02, rng=0)
        assert est.converged
        assert est.n_blocks >= 8
        again = osl.sliced_wasserstein(
            x, y, directions=est.directions, n_directions=est.n_directions, rng=est.seed
        )
        assert again.value == pytest.approx(est.value, rel=1e-13)


def test_tolerances_with_few_directions(rng: np.random.Generator) -> None:
    """Sets shrink so that there are 8 of them."""
    x, y = rng.normal(size=(40, 3)), rng.normal(size=(40, 3)) + 0.5
    est = osl.sliced_wasserstein(x, y, directions=Auto(), rtol=1e-9, n_directions=101, rng=0)
    assert (est.n_directions, est.n_blocks) == (101, 8)


def test_pooled_prices_take_bases(rng: np.random.Generator) -> None:
    """Blocks of one size, which price each other."""
    x, y = rng.normal(size=(10, 3)), rng.normal(size=(10, 3))
    for p in (1, 2):
        ests = [
            osl.projected_wasserstein(x, y, p, cost="pooled", directions=d, n_directions=50, rng=0)
            for d in (Auto(), "orthogonal")
        ]
        assert ests[0].directions == Orthogonal()
        assert ests[0].value == ests[1].value


def test_as_a_sampler() -> None:
    """It samples what it would choose for SW."""
    for dim, n in ((2, 10), (3, 30), (16, 50)):
        sample, chosen = (s.sample(n, dim, rng=1) for s in (Auto(), Auto().choose(dim, n).sampler))
        np.testing.assert_array_equal(sample.theta, chosen.theta)
        np.testing.assert_array_equal(sample.block, chosen.block)
        np.testing.assert_allclose(Auto().row(7, n, dim, rng=1), sample.theta[7], atol=1e-12)
        assert Auto().block_rows(n, dim) == np.bincount(sample.block).max()
    assert Auto().sample(0, 3, rng=0).theta.shape == (0, 3)
    assert hash(Auto()) == hash(Auto(replicates=4))


def test_elsewhere(rng: np.random.Generator) -> None:
    """Tests and matrices of distances choose as SW does; bounds and couplings stay with bases."""
    x, y = rng.normal(size=(12, 3)), rng.normal(size=(12, 3)) + 0.5
    for directions, same in ((Auto(), Optimized()), (Auto(replicates=1), Optimized(replicates=1))):
        matrix = osl.pairwise([x, y], directions=directions, n_directions=32, rng=0)
        assert matrix.directions == same
        test = osl.two_sample_test(x, y, directions=directions, n_directions=32, n_permutations=19, rng=0)
        assert test.directions == same
    bounds = [osl.wasserstein_bounds(x, y, directions=d, rng=0) for d in (Auto(), "orthogonal")]
    assert bounds[0].lower == bounds[1].lower
    assert bounds[0].upper == bounds[1].upper
    costs = [osl.match(x, y, directions=d, n_sweeps=0, rng=0).cost() for d in (Auto(), "orthogonal")]
    assert costs[0] == costs[1]


def test_in_losses(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x, y = (torch.as_tensor(rng.normal(size=(12, 3))) for _ in range(2))
    loss = osl.nn.SlicedWassersteinLoss(32, directions=Auto(), seed=0)
    value, gradient = loss.value_and_grad(x, y, rng=4)
    expected = osl.sliced_wasserstein(x, y, directions=Optimized(), n_directions=32, rng=4).value
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    assert gradient.shape == x.shape


def test_compiled(rng: np.random.Generator) -> None:
    jax = pytest.importorskip("jax")
    x, y = (jax.numpy.asarray(rng.normal(size=(12, 3))) for _ in range(2))

    @jax.jit
    def value(x: Any, key: Any) -> Any:
        return osl.sliced_wasserstein(x, y, directions=Auto(), n_directions=32, rng=key).value

    expected = osl.sliced_wasserstein(*map(np.asarray, (x, y)), directions=Optimized(), n_directions=32, rng=4)
    assert float(value(x, jax.random.key(4))) == pytest.approx(float(expected.value), rel=1e-5)
