"""Costs and pulls of pairs against plain loops in float64."""

from __future__ import annotations

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.backend.arrays import to_numpy
from orthoslice.backend.kernels.numba import pairs as kernels
from orthoslice.clouds.cloud import Cloud
from orthoslice.costs.space import price_in_space
from orthoslice.couplings.coupling import Pairs

SIZES = [1, 2, 3, 63, 64, 257]
DIMS = [1, 2, 3, 17, 64, 1000]
DTYPES = [np.float32, np.float64]
POWERS = [1, 1.5, 2, 3, 4]

pytest.importorskip("numba")


def problem(rng, n, m, dim, dtype, slices=3, weighted=False):
    """Clouds that share a few points, any pairs of them, and masses that sum to 1."""
    x, y = (rng.normal(size=(k, dim)).astype(dtype) for k in (n, m))
    y[: min(n, m) // 3] = x[: min(n, m) // 3]
    n_pairs = max(n, m)
    ix, iy = (np.argsort(rng.random((slices, n_pairs)), axis=1) % k for k in (n, m))
    mass = rng.random((slices, n_pairs) if weighted else n_pairs)
    return x, y, ix, iy, mass / mass.sum(axis=-1, keepdims=True)


def expected_prices(x, y, ix, iy, mass, p):
    """Scores and both gradients, by the definition."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    scores, gx, gy = np.zeros(len(ix)), np.zeros(x.shape), np.zeros(y.shape)
    for s, masses in enumerate(np.broadcast_to(mass, ix.shape)):
        for i, j, share in zip(ix[s], iy[s], masses, strict=True):
            difference = x[i] - y[j]
            length = np.sqrt(np.sum(difference**2))
            scores[s] += share * length**p
            if length > 0:
                pull = share * p * length ** (p - 2) * difference
                gx[i] += pull
                gy[j] -= pull
    return scores, gx, gy


def close(found, expected, terms):
    """Whether float64 sums of `terms` numbers of about 1 agree up to rounding."""
    scale = 1 + np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=16 * np.finfo(float).eps * scale * terms**0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("n", SIZES)
def test_prices(rng, n, dim, dtype):
    """Float32 points are priced as exactly as float64 ones; what is not written would stay NaN."""
    for p in POWERS:
        for m in {n, max(1, n - 2)}:
            arguments = problem(rng, n, m, dim, dtype, weighted=p == 1.5)
            scores, gx, gy = expected_prices(*arguments, p)
            out = np.full(3, np.nan)
            kernels.pair_costs(*arguments, float(p), out)
            close(out, scores, n * dim)
            again, moved_x, moved_y = np.full(3, np.nan), np.ones((n, dim)), np.ones((m, dim))
            kernels.pair_gradients(*arguments, float(p), again, moved_x, moved_y)
            np.testing.assert_array_equal(again, out)
            close(moved_x, 1 + gx, n * dim)
            close(moved_y, 1 + gy, n * dim)


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_only_wanted_gradients(rng, wanted, dtype):
    arguments = problem(rng, 9, 7, 5, dtype)
    scores, *expected = expected_prices(*arguments, 3)
    found, gradients = kernels.price_pairs(*arguments, p=3, wanted=wanted)
    close(found, scores, 45)
    assert len(gradients) == sum(wanted)
    for g, e in zip(gradients, [e for e, want in zip(expected, wanted, strict=True) if want], strict=True):
        assert g.dtype == dtype
        np.testing.assert_allclose(g, e, rtol=0, atol=8 * np.finfo(dtype).eps * (1 + np.abs(e).max()))


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_coinciding_points_cost_and_pull_nothing(rng, p, dtype):
    x = 1e4 * rng.normal(size=(20, 17)).astype(dtype)
    same = np.argsort(rng.random((4, 20)), axis=1)
    scores, gradients = kernels.price_pairs(x, x.copy(), same, same, np.ones(1), p=p, wanted=(True, True))
    for found in (scores, *gradients):
        np.testing.assert_array_equal(found, np.zeros(found.shape))


@pytest.mark.parametrize("p", [1, 2])
def test_close_points_far_away_lose_no_digits(rng, p):
    """Through inner products nothing would be left: the squares are 10^9 times the cost."""
    x = (1e3 + rng.normal(size=(30, 64))).astype(np.float32)
    y = x + rng.normal(scale=1e-2, size=x.shape).astype(np.float32)
    index = np.arange(30)[None, :]
    scores, _ = kernels.price_pairs(x, y, index, index, np.full(30, 1 / 30), p=p, wanted=(False, False))
    exact = np.mean(np.linalg.norm(x.astype(float) - y.astype(float), axis=1) ** p)
    np.testing.assert_allclose(scores, exact, rtol=1e-14)
    inner = (x**2).sum(1) + (y**2).sum(1) - 2 * (x * y).sum(1)
    assert abs(np.mean(np.abs(inner) ** (p / 2)) / exact - 1) > 1e-2


def test_nan_is_not_swallowed():
    x, index = np.array([[0.0, np.nan], [1.0, 2.0]]), np.array([[0, 1], [1, 1]])
    for p in POWERS:
        scores, gradients = kernels.price_pairs(
            x, np.ones((2, 2)), index, index, np.full(2, 0.5), p=p, wanted=(True, True)
        )
        assert np.isnan(scores).tolist() == [True, False]
        assert np.isnan(gradients[0]).any(axis=1).tolist() == [True, False]


def both_rows(x, y, p, pairs, wanted):
    found = []
    for row in ("numba", "reference"):
        with price_in_space.using(row):
            found.append(price_in_space(x, y, p, pairs, wanted))
    return found


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("mass", ["one", "shared", "own"])
@pytest.mark.parametrize("p", POWERS)
def test_rows_of_the_operation_agree(rng, kind, mass, p):
    """On arrays that are not contiguous; the arguments are left as they were."""
    torch = pytest.importorskip("torch")
    convert = torch.asarray if kind == "torch" else np.asarray
    x, y, ix, iy, share = problem(rng, 21, 21, 6, np.float64, weighted=mass == "own")
    if mass == "one":
        # One mass for all means a matching.
        ix, iy = (np.argsort(rng.random((ix.shape[0], 21)), axis=1) for _ in range(2))
        share = np.full((1,), 1 / 21)
    tables = [np.repeat(a, 2, axis=-1)[..., ::2] for a in (x, y, ix, iy)]
    given = [convert(a) for a in (*tables, share)]
    pairs = Pairs(*given[2:], None)
    for moves in (False, True):
        wanted = (moves, moves, False, False)
        numba, reference = both_rows(Cloud(given[0]), Cloud(given[1]), p, pairs, wanted)
        for found, expected in zip((numba[0], *numba[1]), (reference[0], *reference[1]), strict=True):
            assert type(found) is type(given[0])
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12, atol=1e-15)
    for a, b in zip(given, (x, y, ix, iy, share), strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.parametrize("shape", ["equal", "unequal", "weighted"])
@pytest.mark.parametrize("p", POWERS)
def test_public_values_and_gradients(rng, shape, p):
    torch = pytest.importorskip("torch")
    n, m = (40, 40) if shape == "equal" else (40, 23)
    x, y = torch.tensor(rng.normal(size=(n, 3))), torch.tensor(rng.normal(size=(m, 3)))
    options = {"n_directions": 9, "rng": 0}
    if shape == "weighted":
        w = rng.random(n)
        options["x_weights"] = torch.tensor(w / w.sum())
    found = []
    for row in ("numba", "reference"):
        moving = x.clone().requires_grad_()
        with price_in_space.using(row):
            value = osl.projected_wasserstein(moving, y, p, **options).value
        (gradient,) = torch.autograd.grad(value, moving)
        found.append((value.detach(), gradient))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("directions", ["orthogonal", "hadamard"])
def test_a_cloud_and_its_shuffled_rows(rng, dtype, directions):
    """Exactly 0, with the kernel and no other."""
    x = rng.normal(size=(50, 20)).astype(dtype)
    with price_in_space.using("numba"):
        for p in POWERS:
            clouds = (rng.permutation(x), x + 1)
            same, other = (osl.projected_wasserstein(x, y, p, directions=directions, rng=0) for y in clouds)
            assert float(same.value) == 0
            assert float(other.value) > 0


def test_refusals(rng):
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    x, index = rng.normal(size=(4, 2)), np.arange(4)[None, :]
    nothing = (False,) * 4

    def pairs(convert, shape=(1, 4)):
        at = convert(index.reshape(shape))
        return Pairs(at, at, convert(np.full(1, 0.25)), convert(np.ones((1, 4), dtype=bool)))

    tape = torch.tensor(x, requires_grad=True)
    cases = {
        "gradients by weights": (Cloud(x), Cloud(x + 1), 2, pairs(np.asarray), (False, False, True, False)),
        "without a batch": (Cloud(x[None]), Cloud(x[None] + 1), 2, pairs(np.asarray, (1, 1, 4)), nothing),
        "NumPy arrays and torch": (
            Cloud(jnp.asarray(x)),
            Cloud(jnp.asarray(x + 1)),
            2,
            pairs(jnp.asarray),
            nothing,
        ),
        "gradient tape": (Cloud(tape), Cloud(tape.detach() + 1), 2, pairs(torch.asarray), nothing),
    }
    for reason, arguments in cases.items():
        with price_in_space.using("numba"), pytest.raises(TypeError, match=reason):
            price_in_space(*arguments)
        np.testing.assert_allclose(to_numpy(price_in_space(*arguments)[0]).item(), 2, rtol=1e-6)
