"""Sources of randomness: every key means its own directions, and a compiled program never freezes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.backend.arrays import resolve_rng

jax = pytest.importorskip("jax")
jnp = jax.numpy

IMPLEMENTATIONS = ["threefry2x32", "rbg", "unsafe_rbg"]


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_every_jax_key_has_its_own_directions(impl: str) -> None:
    """Keys by seed, split and fold_in: 15 different keys, the same ones whether traced or not."""
    plain = [jax.random.key(k, impl=impl) for k in range(5)]
    # Of different keys, since JAX may give the same ones to `split` and `fold_in` of one.
    folded = [jax.random.fold_in(plain[4], k) for k in range(5)]
    keys = [*plain, *jax.random.split(plain[3], 5), *folded]
    like = jnp.zeros(1)
    resolved = [resolve_rng(key, like)[0] for key in keys]
    words = [(int(s.high[0]), int(s.low[0])) for s in resolved]
    assert len(set(words)) == 15
    traced = jax.jit(lambda key: resolve_rng(key, like)[0])
    assert [(int(s.high[0]), int(s.low[0])) for s in map(traced, keys)] == words
    theta = [osl.directions.IID().sample(2, 3, rng=key).theta for key in keys]
    assert min(np.abs(a - b).max() for i, a in enumerate(theta) for b in theta[:i]) > 1e-3


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_keys_of_a_loop_are_fresh(impl: str, rng: np.random.Generator) -> None:
    x, y = (jnp.asarray(rng.normal(size=(6, 2))) for _ in "xy")
    keys = jax.random.split(jax.random.key(0, impl=impl), 3)

    def value(key: Any) -> Any:
        return osl.sliced_wasserstein(x, y, n_directions=2, rng=key).value

    _, values = jax.lax.scan(lambda carry, key: (carry, value(key)), None, keys)
    assert len(set(np.asarray(values).tolist())) == 3
    np.testing.assert_allclose(values, [value(key) for key in keys], rtol=1e-5)


def test_threefry_keys_mean_their_seed() -> None:
    for seed in (0, 7, 2**31):
        assert resolve_rng(jax.random.key(seed), np.zeros(1))[1] == seed


def _generators() -> list[Any]:
    torch = pytest.importorskip("torch")
    return [None, np.random.default_rng(0), torch.Generator()]


def test_what_moves_on_is_refused_in_a_compiled_program(rng: np.random.Generator) -> None:
    """Also where the clouds come from outside and only something else is an argument."""
    x, y = (jnp.asarray(rng.normal(size=(6, 2))) for _ in "xy")
    for source in _generators():
        with pytest.raises(ValueError, match="`rng` must be an integer or a JAX key under tracing"):
            jax.jit(lambda a, s=source: osl.sliced_wasserstein(a, y, rng=s).value)(x)
        with pytest.raises(ValueError, match="would draw once, when the function is compiled"):
            jax.jit(lambda t, s=source: t * osl.sliced_wasserstein(x, y, rng=s).value)(1.0)
        assert osl.sliced_wasserstein(x, y, rng=source).value > 0
    # A value is no generator: it means the same whenever it is asked.
    fixed = np.random.SeedSequence(5)
    inside = jax.jit(lambda a: osl.sliced_wasserstein(a, y, rng=fixed).value)(x)
    assert float(inside) == pytest.approx(float(osl.sliced_wasserstein(x, y, rng=fixed).value), rel=1e-5)


@pytest.mark.parametrize("n", [8, 600])
def test_a_traced_key_is_for_jax_arrays(n: int, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    with pytest.raises(TypeError, match="traced JAX key only beside JAX arrays"):
        jax.jit(lambda key: osl.sliced_wasserstein(x, y, rng=key).value)(jax.random.key(0))
    # A key from outside has a value, even here.
    key = jax.random.key(7)
    value = jax.jit(lambda t: t * osl.sliced_wasserstein(x, y, rng=key).value)(1.0)
    assert float(value) == pytest.approx(float(osl.sliced_wasserstein(x, y, rng=7).value), rel=1e-6)
