"""The coupling of the single best direction."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from helpers import Backend, unit_rows, weights

import orthoslice as osl


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [30, 23])
def test_it_costs_the_least_score(backend: Backend, rng: np.random.Generator, m: int, weighted: bool) -> None:
    x, y = backend.asarray(rng.normal(size=(30, 3))), backend.asarray(rng.normal(size=(m, 3)) + 1)
    own = {"x_weights": backend.asarray(weights(rng, 30))} if weighted else {}
    plan = osl.cheapest_coupling(x, y, rng=4, n_directions=48, **own)
    scores = osl.projected_wasserstein(x, y, rng=4, n_directions=48, **own).scores
    # Neighbours on a line that rounding exchanges change the cost in float32.
    np.testing.assert_allclose(float(plan.cost()), float(backend.numpy(scores).min()), rtol=1e-4)
    assert plan.direction.shape == (3,)
    again = osl.induced_coupling(x, y, plan.direction, **own)
    assert float(again.cost()) == float(plan.cost())


def test_pot_agrees_on_given_directions(rng: np.random.Generator) -> None:
    x, y, theta = rng.normal(size=(25, 4)), rng.normal(size=(25, 4)), unit_rows(rng, 20, 4)
    plan = osl.cheapest_coupling(x, y, directions=theta)
    theirs, _ = ot.sliced.min_sliced_transport_plan(x, y, projections=theta.T)
    np.testing.assert_allclose(plan.to_dense(), np.asarray(theirs), atol=1e-12)
    assert any(np.array_equal(plan.direction, row) for row in theta)


def test_batches_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="must be single clouds"):
        osl.cheapest_coupling(rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5, 3)))


@pytest.mark.parametrize("power", [-200, -130, 130, 200])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_any_unit(rng: np.random.Generator, p: float, power: int) -> None:
    """Where p-th powers underflow, all scores are 0, and the first direction would be as good as any."""
    x, y, unit = rng.normal(size=(30, 3)), rng.normal(size=(25, 3)), 2.0 ** (power * 3.3219 // 1)
    plan, scaled = (osl.cheapest_coupling(u * x, u * y, p, rng=0, n_directions=64) for u in (1, unit))
    np.testing.assert_array_equal(scaled.direction, plan.direction)
    scores = osl.projected_wasserstein(x, y, p, rng=0, n_directions=64).scores
    assert np.argmin(scores) != 0
