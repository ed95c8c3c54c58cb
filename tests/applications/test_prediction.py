"""W of all pairs, predicted: within bounds that are certain, and as good as it says."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import orthoslice as osl


def mixtures(rng, count=16, dim=6):
    """Clouds of two groups of points in various shares, and of various sizes."""
    centres = 3 * rng.normal(size=(2, dim))
    sizes = rng.integers(10, 30, size=count)
    return [rng.normal(size=(n, dim)) + centres[(rng.random(n) < rng.random()).astype(int)] for n in sizes]


def exact(clouds, p):
    matrix = np.zeros((len(clouds), len(clouds)))
    for i, j in zip(*np.triu_indices(len(clouds), 1), strict=True):
        matrix[i, j] = matrix[j, i] = osl.wasserstein(clouds[i], clouds[j], p).distance
    return matrix


def root_mean_square(errors):
    return np.sqrt(np.mean(np.square(errors)))


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize(
    ("directions", "n_directions"), [("auto", None), ("iid", 7), ("hadamard", 11), ("orthogonal", 10)]
)
def test_bounds_are_certain_and_kept(p, directions, n_directions, rng):
    clouds = mixtures(rng, 9)
    clouds[3] = np.round(clouds[3])  # ties
    options = {"p": p, "directions": directions, "n_directions": n_directions, "rng": 0}
    found = osl.pairwise(clouds, method="predicted", n_exact=10, **options)
    true, pairs = exact(clouds, p), np.triu_indices(9, 1)
    slack = 1 + 1e-12
    for low, high in (
        (found.lower, true),
        (true, found.upper),
        (found.lower, found.distance),
        (found.distance, found.upper),
    ):
        assert (low[pairs] <= slack * high[pairs]).all()
    np.testing.assert_allclose(found.distance[found.is_exact], true[found.is_exact], rtol=1e-9)
    assert found.is_exact[pairs].sum() == 10
    # Bounds that say something: above SW and below the mean price of couplings.
    open_pairs = ~found.is_exact[pairs]
    sliced = osl.pairwise(clouds, **options).distance
    projected = osl.pairwise(clouds, method="projected", **options).distance
    assert (found.lower[pairs] > sliced[pairs])[open_pairs].mean() > 0.9
    assert (found.upper[pairs] < projected[pairs])[open_pairs].all()


def test_whole_bases_bound_best(rng):
    """Of each block, and not of the mean over all directions: a mistaken cut of blocks would show here."""
    clouds = mixtures(rng, 8)
    found = osl.pairwise(clouds, method="predicted", n_exact=10, n_directions=12, rng=5)
    theta = osl.directions.Orthogonal().sample(12, 6, 5).theta
    i, j = np.argwhere(~found.is_exact & (np.arange(8)[:, None] < np.arange(8)))[0]
    scores = osl.sliced_wasserstein(clouds[i], clouds[j], directions=theta, control=None).scores
    expected = max(scores[:6].sum(), scores[6:].sum()) ** 0.5
    np.testing.assert_allclose(found.lower[i, j], expected, rtol=1e-9)


@pytest.mark.parametrize("p", [1, 2])
def test_predictions_are_as_good_as_they_say(p, rng):
    clouds = mixtures(rng, 30)
    found = osl.pairwise(clouds, method="predicted", p=p, rng=0)
    true, pairs = exact(clouds, p), np.triu_indices(30, 1)
    open_pairs = ~found.is_exact[pairs]
    error = (found.distance[pairs] / true[pairs] - 1)[open_pairs]
    assert root_mean_square(error) < 0.08
    assert len(found.held_out) == 40
    assert 0.5 < root_mean_square(found.held_out) / root_mean_square(error) < 2
    np.testing.assert_allclose(
        (found.distance_stderr / np.where(true > 0, found.distance, 1))[pairs],
        root_mean_square(found.held_out) * open_pairs,
        rtol=1e-9,
    )
    # Negative control: SW and PW times the best factors are worse.
    for method in ("sliced", "projected"):
        plain = osl.pairwise(clouds, method=method, p=p, rng=0).distance[pairs]
        ratio = (true[pairs] / plain)[found.is_exact[pairs]]
        scaled = plain * np.exp(np.log(ratio).mean())
        assert root_mean_square((scaled / true[pairs] - 1)[open_pairs]) > 1.2 * root_mean_square(error)


def test_few_pairs_are_all_solved(rng):
    clouds = mixtures(rng, 4)
    found = osl.pairwise(dict(zip("abcd", clouds, strict=True)), method="predicted", rng=0)
    np.testing.assert_allclose(found.distance, exact(clouds, 2), rtol=1e-9)
    assert found.is_exact[np.triu_indices(4, 1)].all()
    assert (found.distance_stderr == 0).all()
    assert found.labels == list("abcd")
    assert set(found.to_frame("pairs").columns) == {
        "first",
        "second",
        *("distance", "distance_stderr", "value", "stderr"),
    }
    assert repr(found).startswith("Pairwise(W_2 of 6 pairs of 4 clouds, from ")


def test_how_the_work_is_cut_does_not_matter(rng):
    clouds = mixtures(rng, 10)
    found = osl.pairwise(clouds, method="predicted", n_exact=12, rng=0, workers=1)
    other = osl.pairwise(clouds, method="predicted", n_exact=12, rng=0, workers=3, memory=120_000)
    for quantity in ("distance", "lower", "upper", "distance_stderr"):
        np.testing.assert_allclose(getattr(other, quantity), getattr(found, quantity), rtol=1e-9)
    large = osl.pairwise([1e200 * c for c in clouds], method="predicted", n_exact=12, rng=0)
    np.testing.assert_allclose(large.distance, 1e200 * found.distance, rtol=1e-9)
    np.testing.assert_allclose(large.lower, 1e200 * found.lower, rtol=1e-9)


def test_equal_clouds_are_at_no_distance(rng):
    clouds = mixtures(rng, 8)
    clouds[5] = clouds[2]
    found = osl.pairwise(clouds, method="predicted", n_exact=10, rng=0)
    assert found.distance[2, 5] < 1e-12
    assert np.isfinite(found.distance).all()
    same = osl.pairwise([clouds[0]] * 7, method="predicted", n_exact=10, rng=0)
    assert same.distance.max() < 1e-12
    assert len(same.held_out) == 0


def test_refusals(rng):
    clouds = mixtures(rng, 4)
    with pytest.raises(ValueError, match="`method` must be 'sliced', 'projected' or 'predicted'"):
        osl.pairwise(clouds, method="guessed")
    with pytest.raises(ValueError, match="`n_exact` is for method='predicted'; got 20 with 'sliced'"):
        osl.pairwise(clouds, n_exact=20)
    with pytest.raises(ValueError, match="`n_exact` must be at least 10"):
        osl.pairwise(clouds, method="predicted", n_exact=3)
    with pytest.raises(TypeError, match="must not be Dask collections"):
        osl.pairwise([da.asarray(c) for c in clouds], method="predicted")
