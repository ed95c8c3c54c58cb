"""Options by the names that other libraries have for them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import orthoslice as osl

X = np.arange(12.0).reshape(6, 2)

OTHER = {"n_projections": "n_directions", "projections": "directions", "seed": "rng", "a": "x_weights"}
OTHER |= {"b": "y_weights", "tol": "rtol"}


def test_distances_are_chosen_by_method_alone():
    """Every function that can choose SW or PW takes `method=`, and says so when asked for a `score=`."""
    calls = {
        "two_sample_test": lambda **o: osl.two_sample_test(X, X + 1, n_permutations=3, n_directions=2, **o),
        "pairwise": lambda **o: osl.pairwise([X, X + 1], n_directions=2, **o),
        "barycenter": lambda **o: osl.barycenter([X, X + 1], n_steps=1, **o),
        "flow": lambda **o: osl.flow(X, X + 1, n_steps=1, **o),
        "value_and_grad": lambda **o: osl.value_and_grad(X, X + 1, n_directions=2, **o),
        "angular_score": lambda **o: osl.exact.angular_score(X, X + 1, 2, **o),
        "estimator_mse_plane": lambda **o: osl.exact.estimator_mse_plane(X, X + 1, 2, n_directions=2, **o),
        "Auto.choose": lambda **o: osl.directions.Auto().choose(3, **o),
    }
    for name, call in calls.items():
        call(method="projected")
        with pytest.raises(TypeError, match=f"`{name}` takes `method=`; got `score=`"):
            call(score="projected")


@pytest.mark.parametrize("theirs", OTHER)
def test_other_names_are_answered_with_ours(theirs):
    """Every public function that has the option says our name of it; the others do not."""
    functions = [f for name in osl.__all__ if inspect.isfunction(f := getattr(osl, name))]
    able = [f for f in functions if OTHER[theirs] in inspect.signature(f).parameters]
    assert osl.sliced_wasserstein in able
    for function in functions:
        said = f"`{function.__name__}` takes `{OTHER[theirs]}=`.*; got `{theirs}=`"
        with pytest.raises(TypeError, match=said if function in able else "unexpected keyword argument"):
            function(X, X, **{theirs: 3})


def test_losses_answer_too():
    with pytest.raises(TypeError, match="`ProjectedWassersteinLoss` takes `n_directions=`; got"):
        osl.nn.ProjectedWassersteinLoss(n_projections=3)
    assert osl.nn.SlicedWassersteinLoss(seed=3).seed == 3
    with pytest.raises(TypeError, match="`SlicedWassersteinLoss` takes `seed=`; got `rng=`"):
        osl.nn.SlicedWassersteinLoss(rng=3)


def test_weights_by_position_are_answered_with_their_names():
    uniform = np.full(6, 1 / 6)
    for function in (osl.sliced_wasserstein, osl.wasserstein):
        with pytest.raises(TypeError, match="Weights are passed by name, as `x_weights=` and `y_weights=`"):
            function(X, X + 1, uniform, uniform)


def test_errors_of_other_calls_are_left_alone():
    def noisy(rows, dim, rng):
        return np.asarray(seed=0)

    with pytest.raises(TypeError, match="asarray"):
        osl.sliced_wasserstein(X, X + 1, directions=osl.directions.from_function(noisy))
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        osl.sliced_wasserstein(X, X, colour=1)
