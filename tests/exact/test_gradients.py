"""Gradients of W_p^p by points and weights against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import weights

from orthoslice.exact import wasserstein, wasserstein_value

STEP = 1e-6


def problem(rng):
    x, y = rng.normal(size=(7, 3)), rng.normal(size=(5, 3)) + 1
    return [x, y, weights(rng, 7), weights(rng, 5)]


def value(arrays, p):
    x, y, a, b = arrays
    return wasserstein(x, y, p, x_weights=a, y_weights=b).value


def moves(rng, arrays):
    """A direction for every input; those of weights keep their sum."""
    along = [rng.normal(size=array.shape) for array in arrays]
    for k in (2, 3):
        along[k] = arrays[k] * (along[k] - arrays[k] @ along[k])
    return along


def finite_differences(arrays, along, p):
    slopes = []
    for k, move in enumerate(along):
        ends = [
            [array + sign * STEP * move if k == j else array for j, array in enumerate(arrays)]
            for sign in (1, -1)
        ]
        slopes.append((value(ends[0], p) - value(ends[1], p)) / (2 * STEP))
    return slopes


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_torch(rng, p):
    import torch

    arrays = problem(rng)
    along = moves(rng, arrays)
    x, y, a, b = tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    found = wasserstein_value(x, y, p, x_weights=a, y_weights=b)
    found.backward()
    assert found.item() == pytest.approx(value(arrays, p), rel=1e-12)
    slopes = [float((t.grad.numpy() * move).sum()) for t, move in zip(tensors, along, strict=True)]
    np.testing.assert_allclose(slopes, finite_differences(arrays, along, p), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_jax(rng, p):
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        arrays = problem(rng)
        along = moves(rng, arrays)

        def function(x, y, a, b):
            return wasserstein_value(x, y, p, x_weights=a, y_weights=b)

        gradients = jax.grad(function, argnums=(0, 1, 2, 3))(*map(jnp.asarray, arrays))
        slopes = [float((np.asarray(g) * move).sum()) for g, move in zip(gradients, along, strict=True)]
    np.testing.assert_allclose(slopes, finite_differences(arrays, along, p), rtol=1e-5, atol=1e-8)


def test_equal_clouds_have_no_gradient(rng):
    import torch

    x = torch.tensor(rng.normal(size=(6, 2)), requires_grad=True)
    wasserstein_value(x, x.detach().clone(), 1).backward()
    assert (x.grad == 0).all()


def test_no_tracing():
    import jax
    import jax.numpy as jnp

    with pytest.raises(TypeError, match="cannot be compiled"):
        jax.jit(lambda a: wasserstein_value(a, jnp.zeros((2, 2))))(jnp.ones((2, 2)))
