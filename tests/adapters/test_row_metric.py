"""Distances of clouds in scikit-learn: as a callable on rows, and precomputed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

import orthoslice as osl
from orthoslice.adapters import CloudMetric

cluster = pytest.importorskip("sklearn.cluster", reason="pip install scikit-learn")
neighbors = pytest.importorskip("sklearn.neighbors")
pairwise_distances = pytest.importorskip("sklearn.metrics").pairwise_distances


def rows(rng, kinds=2, each=6, n=15, dim=3):
    """Flattened clouds of a few kinds, which differ in spread, and what kind each is."""
    kind = np.repeat(np.arange(kinds), each)
    clouds = rng.normal(size=(len(kind), n, dim)) * (1 + 3 * kind)[:, None, None]
    return clouds.reshape(len(kind), -1), kind


@pytest.mark.parametrize("dim", [1, 3])
def test_pairwise_distances(dim, rng):
    table, _ = rows(rng, dim=dim)
    metric = CloudMetric(dim=dim, n_directions=20, rng=7)
    found = pairwise_distances(table, metric=metric)
    clouds = table.reshape(len(table), -1, dim)
    np.testing.assert_allclose(found, osl.pairwise(clouds, n_directions=20, rng=7).distance, rtol=1e-9)


def test_rows_that_are_samples(rng):
    a, b = rng.normal(size=(2, 30))
    np.testing.assert_allclose(CloudMetric(p=1)(a, b), wasserstein_distance(a, b), rtol=1e-12)


def test_rows_that_are_histograms(rng):
    """Distances know which bins are near each other; Euclidean ones of the same rows do not."""
    masses, bins = np.eye(6) * 0.5 + 0.5 / 6, np.array([0.0, 1, 2, 3, 5, 9])
    metric = CloudMetric(p=1, support=bins)
    found = pairwise_distances(masses, metric=metric)
    expected = [[wasserstein_distance(bins, bins, a, b) for b in masses] for a in masses]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert found[0, 1] < found[0, 5] / 4
    np.testing.assert_allclose(pairwise_distances(masses)[0, 1:], pairwise_distances(masses)[0, 1])
    plane = CloudMetric(support=np.column_stack([bins, bins]), n_directions=50)
    assert plane(masses[0], masses[1]) < plane(masses[0], masses[5])


def test_neighbours_by_trees_and_by_brute_force(rng):
    """Trees rest on the triangle inequality; a tree that left out a branch wrongly would differ."""
    table, kind = rows(rng, each=15, n=8)
    metric = CloudMetric(dim=3, n_directions=6)
    found = [
        neighbors.NearestNeighbors(n_neighbors=4, metric=metric, algorithm=how, leaf_size=2)
        .fit(table)
        .kneighbors(table)[0]
        for how in ("ball_tree", "brute")
    ]
    np.testing.assert_allclose(*found, rtol=1e-9)
    guess = neighbors.KNeighborsClassifier(3, metric=metric).fit(table[::2], kind[::2]).predict(table[1::2])
    assert (guess == kind[1::2]).mean() > 0.9


def test_clustering_of_precomputed_distances(rng):
    """Clouds of different sizes, which no table of rows holds."""
    kind = np.repeat([0, 1, 2], 5)
    clouds = [rng.normal(size=(20 + k, 2)) + 10 * kind[k] for k in range(15)]
    distance = osl.pairwise(clouds, rng=0).distance
    for estimator in (
        cluster.AgglomerativeClustering(3, metric="precomputed", linkage="average"),
        cluster.DBSCAN(eps=3, min_samples=2, metric="precomputed"),
    ):
        labels = estimator.fit_predict(distance)
        assert len({(a, b) for a, b in zip(labels, kind, strict=True)}) == 3


def test_it_can_be_sent_to_workers():
    metric = pickle.loads(pickle.dumps(CloudMetric(support=[0, 1, 2])))
    assert metric(np.array([1, 0, 0]), np.array([0, 0, 1])) == 2


def test_refusals():
    with pytest.raises(ValueError, match=r"points with 3 coordinates; got a row of shape \(4,\).*`dim`"):
        CloudMetric(dim=3)(np.zeros(4), np.zeros(4))
    with pytest.raises(ValueError, match="must sum to 1"):
        CloudMetric(support=[0, 1])(np.array([1, 1]), np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="`support` must have shape"):
        CloudMetric(support=np.zeros((2, 2, 2)))
    with pytest.raises(TypeError, match="`rng` must be an integer"):
        CloudMetric(rng=None)
