"""Clouds as vectors: their distances are those of the clouds, within what the vectors say they leave out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from helpers import weights

import orthoslice as osl

SIZES = (30, 30, 45, 60, 101, 7, 1)


def ragged(rng, dim=4, sizes=SIZES):
    return [rng.normal(size=(n, dim)) * (1 + k / 4) + 0.1 * k for k, n in enumerate(sizes)]


def norms(vectors, p):
    return np.linalg.norm(vectors[:, None] - vectors, ord=p, axis=-1)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("directions", ["auto", "iid", "hadamard"])
@pytest.mark.parametrize("dim", [1, 4])
def test_even_cells_are_exact_if_sizes_divide_them(p, directions, dim, rng):
    clouds = ragged(rng, dim, (30, 30, 60, 12, 1))
    options = {"p": p, "directions": directions, "n_directions": 23, "rng": 4}
    found = osl.embed(clouds, n=60, cells="even", **options)
    expected = osl.pairwise(clouds, **options).distance
    np.testing.assert_allclose(norms(found.vectors, p), expected, rtol=1e-11, atol=1e-12)
    assert found.residual.max() < 1e-12
    # Negative control: with fewer cells they are not.
    few = osl.embed(clouds, n=20, cells="even", **options)
    assert (norms(few.vectors, p)[0, 1:4] < expected[0, 1:4] * (1 - 1e-6)).all()
    assert few.residual[:3].min() > 1e-3


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize("cells", ["tails", "even"])
@pytest.mark.parametrize("n", [1, 8, 50])
def test_bounds_are_certain(p, cells, n, rng):
    clouds = ragged(rng)
    clouds[2] = np.round(clouds[2])  # ties
    clouds[3] = clouds[3] ** 5  # far tails
    found = osl.embed(clouds, n=n, p=p, cells=cells, n_directions=16, rng=0)
    true = osl.pairwise(clouds, p=p, n_directions=16, rng=0).distance
    lower, upper = found.bounds()
    np.testing.assert_allclose(lower, norms(found.vectors, p), atol=1e-12)
    assert (lower <= true * (1 + 1e-12)).all()
    assert (true <= upper * (1 + 1e-12)).all()
    # Negative control: without what is left out, vectors are no upper bound.
    assert (true > lower * (1 + 1e-9)).any()


def test_the_error_falls_with_the_number_of_cells(rng):
    clouds = ragged(rng, sizes=(301, 257, 198, 420))
    true = osl.pairwise(clouds, n_directions=32, rng=0).distance[np.triu_indices(4, 1)]
    errors = {}
    for cells in ("tails", "even"):
        for n in (8, 32, 128):
            found = osl.embed(clouds, n=n, cells=cells, n_directions=32, rng=0).bounds()[0]
            errors[cells, n] = np.max(1 - found[np.triu_indices(4, 1)] / true)
    assert errors["tails", 32] < errors["tails", 8] / 3
    assert errors["tails", 128] < errors["tails", 32] / 3
    assert errors["tails", 128] < 0.01
    # Negative control, and why they are the default: even cells blur the tails.
    assert errors["even", 128] > 2 * errors["tails", 128]


def test_weights_are_as_good_as_copies(rng):
    clouds = ragged(rng, sizes=(20, 31))
    counts = rng.integers(1, 4, size=20)
    weighted = osl.embed(clouds, point_weights=[counts / counts.sum(), None], rng=0)
    copied = osl.embed([np.repeat(clouds[0], counts, axis=0), clouds[1]], rng=0)
    np.testing.assert_allclose(weighted.vectors, copied.vectors, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(weighted.residual, copied.residual, rtol=1e-9)
    named = osl.embed(
        dict(zip("ab", clouds, strict=True)), point_weights={"b": None, "a": counts / counts.sum()}, rng=0
    )
    assert named.labels == ["a", "b"]
    np.testing.assert_array_equal(named.vectors, weighted.vectors)
    general = weights(rng, 20)
    found = osl.embed(clouds, point_weights=[general, None], n=200, rng=0)
    true = osl.sliced_wasserstein(*clouds, x_weights=general, n_directions=64, control=None, rng=0).distance
    lower, upper = (bound[0, 1] for bound in found.bounds())
    assert lower <= true <= upper < lower * 1.01
    assert np.abs(found.vectors - weighted.vectors[:, :1]).max() > 0


def test_it_does_not_matter_how_the_work_is_cut(rng, tmp_path):
    clouds = ragged(rng)
    found = osl.embed(clouds, rng=0, workers=1)
    for other in (
        osl.embed(clouds, rng=0, workers=3, memory=1000),
        osl.embed([torch.tensor(c) for c in clouds], rng=0),
    ):
        np.testing.assert_allclose(other.vectors, found.vectors, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(other.residual, found.residual, rtol=1e-9, atol=1e-12)
    alone = np.concatenate([osl.embed([c], rng=found.seed).vectors for c in clouds])
    np.testing.assert_allclose(alone, found.vectors, rtol=1e-12, atol=1e-12)
    np.save(tmp_path / "x.npy", clouds[4])
    mapped = osl.embed([np.load(tmp_path / "x.npy", mmap_mode="r")], rng=0)
    np.testing.assert_allclose(mapped.vectors, found.vectors[4:5], rtol=1e-12, atol=1e-12)
    small = osl.embed([c.astype(np.float32) for c in clouds], rng=0)
    assert small.vectors.dtype == np.float32
    np.testing.assert_allclose(small.vectors, found.vectors, atol=1e-5)
    again = osl.embed(clouds, directions=found.directions, n_directions=found.n_directions, rng=found.seed)
    np.testing.assert_array_equal(again.vectors, found.vectors)
    assert repr(found).startswith("Embedding(7 clouds as vectors of 2048: 32 levels on 64 directions of ")


def test_neighbours_of_digits():
    """Images as clouds of their pixels: nearest vectors are mostly nearest clouds."""
    rng = np.random.default_rng(0)
    clouds = []
    for k in range(120):
        image = osl.datasets.digits(k % 10)[k // 10]
        size = rng.integers(40, 81)
        place = rng.choice(64, size=size, p=image / image.sum())
        clouds.append(np.stack(np.divmod(place, 8), axis=1) + rng.random((size, 2)))
    true = osl.pairwise(clouds, n_directions=256, rng=1).distance
    found = norms(osl.embed(clouds, n=16, n_directions=32, rng=0).vectors, 2)
    nearest = []
    for distance in (true, found):
        np.fill_diagonal(distance, np.inf)
        nearest.append(np.argsort(distance, axis=1)[:, :5])
    shared = [len({*a} & {*b}) / 5 for a, b in zip(*nearest, strict=True)]
    assert np.mean(shared) > 0.85
    # Negative control: means and spreads alone are not as good.
    rough = norms(np.array([[*c.mean(axis=0), *c.std(axis=0)] for c in clouds]), 2)
    np.fill_diagonal(rough, np.inf)
    rough = np.argsort(rough, axis=1)[:, :5]
    assert np.mean([len({*a} & {*b}) / 5 for a, b in zip(nearest[0], rough, strict=True)]) < 0.8


def test_refusals(rng):
    clouds = ragged(rng)
    with pytest.raises(ValueError, match="`cells` must be 'tails' or 'even'; got 'odd'"):
        osl.embed(clouds, cells="odd")
    with pytest.raises(ValueError, match="must hold at least one cloud"):
        osl.embed([])
    with pytest.raises(ValueError, match="`point_weights` must have an entry a cloud"):
        osl.embed(clouds, point_weights=[None])
    with pytest.raises(ValueError, match="`n` must be at least 1"):
        osl.embed(clouds, n=0)
    with pytest.raises(TypeError, match="cannot be traced"):
        jax.jit(lambda c: osl.embed([c]).vectors)(jnp.ones((3, 2)))


@pytest.mark.parametrize("power", [-300, -150, 150, 300])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 10])
def test_bounds_in_any_unit(p, power, rng):
    """Powers of small lengths underflow, and an upper bound of 0 would be a wrong one."""
    clouds, unit = ragged(rng, sizes=(30, 17, 45)), 2.0 ** int(power * 3.32)
    plain, found = (
        osl.embed([u * c for c in clouds], n=8, p=p, n_directions=16, rng=0).bounds() for u in (1, unit)
    )
    np.testing.assert_allclose(np.array(found) / unit, plain, rtol=1e-9)


def test_directions_given_and_refused(rng):
    clouds, rows = ragged(rng), np.eye(4)[:3]
    assert osl.embed(clouds, n=5, directions=rows).vectors.shape == (7, 15)
    assert osl.embed(clouds[:2], n=5, rng=0).n_directions == 64
    with pytest.raises(ValueError, match="`n_directions` must be None or the number of rows"):
        osl.embed(clouds, directions=rows, n_directions=64)
    with pytest.raises(ValueError, match="shared by all clouds; got Stratified"):
        osl.embed(clouds, directions=osl.directions.Stratified(clouds[0][:2], clouds[6]))
