"""Quantiles of weighted points: as NumPy and POT have them, on every library, with gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import Backend, weights
from hypothesis import given
from hypothesis import strategies as st
from ot.lp.solver_1d import quantile_function as pot_quantiles

import orthoslice as osl
from orthoslice.couplings.quantiles import count_below


@given(
    st.lists(st.integers(-4, 4), min_size=1, max_size=9),
    st.lists(st.integers(0, 12), min_size=1, max_size=8),
    st.data(),
)
def test_the_least_point_that_reaches_the_level(points: list, twelfths: list, data: st.DataObject) -> None:
    masses = np.asarray(data.draw(st.lists(st.integers(0, 3), min_size=len(points), max_size=len(points))))
    masses[0] += 1
    x, levels, total = np.asarray(points, dtype=float), np.asarray(twelfths) / 12, masses.sum()
    found = osl.quantile_function(x, levels, weights=masses / total)
    for q, quantile in zip(twelfths, found, strict=True):
        # Whole numbers: 12 times the mass up to a point reaches q times all mass.
        reached = [t for t in x if 12 * masses[x <= t].sum() >= q * total and masses[x <= t].sum()]
        assert quantile == min(reached)


@pytest.mark.parametrize("weighted", [False, True])
def test_numpy_and_pot_agree(rng: np.random.Generator, weighted: bool) -> None:
    x, levels = rng.normal(size=30), rng.random(50)
    a = weights(rng, 30) if weighted else np.full(30, 1 / 30)
    order = np.argsort(x)
    ours = osl.quantile_function(x, levels, weights=a)
    np.testing.assert_array_equal(ours, np.quantile(x, levels, method="inverted_cdf", weights=a))
    np.testing.assert_array_equal(ours, pot_quantiles(levels, np.cumsum(a[order]), x[order]))


@pytest.mark.parametrize("weighted", [False, True])
def test_every_library_agrees(backend: Backend, rng: np.random.Generator, weighted: bool) -> None:
    x, levels, a = rng.normal(size=(3, 9)), np.linspace(0, 1, 10), weights(rng, 9) if weighted else None
    own = None if a is None else backend.asarray(a)
    found = osl.quantile_function(backend.asarray(x), backend.asarray(levels), weights=own)
    alone = [osl.quantile_function(row, levels, weights=a) for row in x]
    np.testing.assert_allclose(backend.numpy(found), alone, **backend.tolerance())


def test_levels_between_equal_points_are_exact() -> None:
    """Level k / n is the cumulative weight of k points, for every k and n: none is taken for the next."""
    for n in range(1, 60):
        np.testing.assert_array_equal(
            osl.quantile_function(np.arange(n), np.arange(1, n + 1) / n), np.arange(n)
        )


def test_the_difference_of_quantiles_is_what_sw_prices(rng: np.random.Generator) -> None:
    x, y, levels = rng.normal(size=8), rng.normal(size=8), (np.arange(8) + 0.5) / 8
    gaps = osl.quantile_function(x, levels) - osl.quantile_function(y, levels)
    exact = osl.sliced_wasserstein(x[:, None], y[:, None], 2, directions=[[1.0]])
    assert float((gaps**2).mean()) == pytest.approx(float(exact.value))


def test_gradients_go_to_the_points_that_are_quantiles() -> None:
    x = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    osl.quantile_function(x, torch.tensor([0.4, 0.5])).sum().backward()
    assert x.grad.tolist() == [0, 0, 2]


def test_counts_leave_out_equal_ends() -> None:
    assert count_below(np.array([2, 5, 0]), np.array([1, 2, 2, 4])).tolist() == [1, 4, 0]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((1.0, [0.5]), "`x` must have shape"),
        (([1.0], [1.5]), "`levels` must lie between 0 and 1"),
        (([1.0], [float("nan")]), "`levels` must lie between 0 and 1"),
        (([1.0], [[0.5]]), "`levels` must have shape"),
    ],
)
def test_bad_input(arguments: tuple, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        osl.quantile_function(*arguments)


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [0.5], [0.5, 0.6]])
def test_errors_name_the_weights(weights: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^`weights` must"):
        osl.quantile_function([1.0, 2.0], [0.5], weights=weights)
