"""The counter-based generator: known answers, the same numbers everywhere, and the right law."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import Backend
from scipy import stats

import orthoslice as osl
from orthoslice.backend.arrays import RNG, Key, full_precision, normals, resolve_rng, signs, wide_float
from orthoslice.backend.arrays.key import threefry

# Known answers of Threefry-2x32, 20 rounds, from the authors of Random123: counter, key, result.
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(backend: Backend, counter: tuple, key: tuple, result: tuple) -> None:
    def words(values: tuple) -> list:
        return [backend.asarray(np.array([v], dtype=np.uint32).view(np.int32)) for v in values]

    got = threefry(Key(*words(key)), *words(counter))
    assert [int(backend.numpy(w).view(np.uint32)[0]) for w in got] == list(result)


def test_same_integer_same_directions_everywhere(backend: Backend) -> None:
    like = backend.asarray(np.zeros(1))
    for sampler in (osl.directions.IID(), osl.directions.Orthogonal(), osl.directions.HadamardRademacher()):
        reference = sampler.sample(12, 8, rng=2**40 + 5).theta
        rows = sampler.block_rows(12, 8)
        index = backend.asarray(np.arange(12 // rows + 1, dtype=np.int32))
        key = Key.from_seed(2**40 + 5, like)
        drawn = sampler.blocks(key, index, rows, 8, wide_float(like))
        # As the library projects: products of JAX on a GPU are rounded to 10 bits otherwise.
        with full_precision(like):
            theta = backend.numpy(drawn.project(backend.asarray(np.eye(8)), slice(0, 12)))
        np.testing.assert_allclose(theta, reference, atol=1e-13 if backend.wide else 3e-6)


def test_same_integer_same_estimate_everywhere(backend: Backend, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(3, 30, 6)), rng.normal(size=(20, 6))
    for distance in (osl.sliced_wasserstein, osl.projected_wasserstein):
        for directions in ("iid", "orthogonal", "hadamard")[: 3 if distance is osl.sliced_wasserstein else 1]:
            reference = distance(x, y, 1.5, directions=directions, rng=11, n_directions=40)
            est = distance(
                backend.asarray(x), backend.asarray(y), 1.5, directions=directions, rng=11, n_directions=40
            )
            np.testing.assert_allclose(backend.numpy(est.value), reference.value, **backend.tolerance(50))
            np.testing.assert_allclose(
                backend.numpy(est.stderr), reference.stderr, rtol=1e-9 if backend.wide else 1e-3
            )
            assert est.seed == 11
            assert est.value.shape == (3,)
            assert est.value.dtype == backend.asarray(x).dtype


def test_normals_are_normal() -> None:
    """KS at 1e-4, moments within 4 errors; the tail and neighbours are independent."""
    like = np.zeros(1)
    draw = normals(Key.from_seed(1, like).fold(np.arange(50, dtype=np.int32), 0), 40, 51, like.dtype)
    assert draw.shape == (50, 40, 51)
    flat = draw.ravel()
    assert stats.kstest(flat, "norm").pvalue > 1e-4
    assert abs((flat**4).mean() - 3) < 4 * (96 / flat.size) ** 0.5
    for axis in range(3):
        pairs = np.moveaxis(draw, axis, 0)
        correlation = (pairs[1:] * pairs[:-1]).mean()
        assert abs(correlation) < 4 / pairs[1:].size ** 0.5
    assert np.abs(flat).max() < 7


def test_signs_are_fair() -> None:
    like = np.zeros(1)
    draw = signs(Key.from_seed(1, like), 100, 100, like.dtype)
    assert set(np.unique(draw)) == {-1.0, 1.0}
    assert abs(draw.mean()) < 4 / 100


def _sources() -> list[RNG]:
    return [7, np.int64(7), np.random.SeedSequence(7), np.random.default_rng(7), 2**80]


def test_sources_of_randomness(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(10, 3)), rng.normal(size=(10, 3))
    for source, same in zip(_sources(), _sources(), strict=True):
        first, again = (osl.sliced_wasserstein(x, y, rng=r) for r in (source, same))
        assert first.value == again.value
        assert osl.sliced_wasserstein(x, y, rng=first.seed).value == first.value
    generator = np.random.default_rng(0)
    assert osl.sliced_wasserstein(x, y, rng=generator).seed != osl.sliced_wasserstein(x, y, rng=generator).seed


def test_no_global_state_is_touched(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x, y = rng.normal(size=(10, 3)), rng.normal(size=(10, 3))
    before = np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()  # noqa: NPY002
    first, second = (osl.sliced_wasserstein(x, y) for _ in range(2))
    after = np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()  # noqa: NPY002
    assert before == after
    assert first.seed != second.seed
    assert osl.sliced_wasserstein(x, y, rng=first.seed).value == first.value


def test_torch_generators_and_jax_keys(rng: np.random.Generator) -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    x, y = rng.normal(size=(10, 3)), rng.normal(size=(10, 3))
    seeds = [osl.sliced_wasserstein(x, y, rng=torch.Generator().manual_seed(3)).seed for _ in range(2)]
    assert seeds[0] == seeds[1]
    for key in (jax.random.key(7), jax.random.PRNGKey(7)):
        assert resolve_rng(key, x)[1] == 7
    wide = resolve_rng(jax.random.key(7, impl="rbg"), x)[1]
    assert wide != 7
    with pytest.raises(TypeError, match="single JAX key"):
        resolve_rng(jax.random.split(jax.random.key(0), 3), x)
