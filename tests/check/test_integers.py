"""Integers become floating point exactly, or not at all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import torch

import orthoslice as osl

# Seconds since 1970: float32 holds them to two minutes.
SECONDS = np.array([[1_700_000_000], [1_700_000_100], [1_700_000_200]])
MAKERS = {"numpy": np.asarray, "torch": torch.tensor, "jax": lambda a: jnp.asarray(a, dtype=jnp.int32)}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_exact_and_certain_functions_take_them_exactly(make):
    x, y = make(SECONDS), make(SECONDS + 30)
    bounds = osl.wasserstein_bounds(x, y, rng=0)
    assert 30 * (1 - 1e-12) < bounds.lower <= 30 <= bounds.upper < 30 * (1 + 1e-12)
    assert osl.wasserstein(x, y).distance == 30
    # One cloud of integers, the other not.
    assert osl.wasserstein(x, make(SECONDS) + 30.0).distance == pytest.approx(30, abs=200)
    plane = [make(np.repeat(c, 2, axis=1)) for c in (SECONDS, SECONDS + 30)]
    assert osl.exact.projected_plane(*plane, 2) == pytest.approx(1800, rel=1e-12)


@pytest.mark.parametrize("method", [osl.sliced_wasserstein, osl.projected_wasserstein])
def test_estimates_widen_where_they_must(method):
    x, y = torch.tensor(SECONDS), torch.tensor(SECONDS + 30)
    assert method(x, y, rng=0).distance == 30
    assert method(x, y, rng=0).value.dtype == torch.float64
    small = method(x % 1000, y % 1000, rng=0)
    assert small.value.dtype == torch.float32
    assert float(small.distance) == pytest.approx(30)
    limit = torch.tensor([[2**24], [-(2**24)]])
    assert method(limit, limit, rng=0).value.dtype == torch.float32
    assert method(limit, limit + 1, rng=0).value.dtype == torch.float64


@pytest.mark.parametrize("method", [osl.sliced_wasserstein, osl.projected_wasserstein])
def test_jax_without_float64_refuses_or_marks_them(method):
    x, y = jnp.asarray(SECONDS, dtype=jnp.int32), jnp.asarray(SECONDS + 30, dtype=jnp.int32)
    with pytest.raises(ValueError, match=r"`x` must hold integers .* up to 1700000200, .*`jax_enable_x64`"):
        method(x, y, rng=0)
    run = jax.jit(lambda a, b: method(a, b, rng=0).distance)
    assert np.isnan(run(x, y))
    assert run(x % 1000, y % 1000) == pytest.approx(30)


@pytest.mark.parametrize(
    "beyond",
    [
        np.array([[2**53 + 1]]),
        np.array([[2**63 - 1]]),
        np.array([[2**64 - 1]], dtype=np.uint64),
        torch.tensor([[2**53 + 1]]),
        pd.DataFrame([[2**53 + 1]]).astype("Int64"),
        [[2**53 + 1]],
    ],
    ids=["int64", "largest int64", "uint64", "torch", "nullable", "list"],
)
@pytest.mark.parametrize("call", [osl.wasserstein, osl.wasserstein_bounds, osl.sliced_wasserstein])
def test_what_float64_would_round_is_refused(call, beyond):
    zero = torch.zeros((1, 1)) if isinstance(beyond, torch.Tensor) else np.zeros((1, 1))
    for x, y, name in ((beyond, zero, "x"), (zero, beyond, "y")):
        with pytest.raises(ValueError, match=f"`{name}` must hold integers that floating point holds exactly"):
            call(x, y)


def test_large_integers_that_float64_holds_are_welcome():
    for dtype, top in ((np.int64, 2**62), (np.int64, -(2**63)), (np.uint64, 2**63)):
        x, y = np.array([[top], [top]], dtype=dtype), np.array([[top + 2048], [top]], dtype=dtype)
        assert osl.wasserstein(x, y, 1).distance == 1024
