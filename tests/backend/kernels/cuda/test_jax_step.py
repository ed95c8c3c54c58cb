"""What programs of JAX launch besides the kernels of a step, on torch tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import unit_rows

from orthoslice.backend.kernels.cuda.jax_step import add_parts, scaled_rows, small_program
from orthoslice.clouds.conditioning import _by_field, scaling_rule
from orthoslice.costs.lines import sorted_slopes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("cuda_device", "empty_is_nan")


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "parts"), [(1, 1), (5, 1), (3, 129), (2, 1000)])
def test_parts_of_rows(cuda_device, rng, rows, parts, kind):
    sums = rng.normal(size=(rows, parts))
    found = add_parts(torch.as_tensor(sums, device=cuda_device), kind)
    assert str(found.dtype) == f"torch.{kind}"
    np.testing.assert_allclose(found.cpu(), sums.sum(axis=1), rtol=1e-12 if kind == "float64" else 1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, 7.5])
@pytest.mark.parametrize("largest", [0.0, 1e-44, 1e-30, 1e-3, 1.0, 1e6, 1e9, 1e20, 3e38, math.inf, math.nan])
def test_exponents_are_those_of_the_table(cuda_device, rng, largest, p):
    """As `scale_on_device` looks them up; the largest number may be anywhere, in either cloud."""
    theta = unit_rows(rng, 5, 3).astype(np.float32)
    field = int(np.abs(np.float32(largest)).view(np.int32) >> 23)
    down, expected = _by_field(32, 3, p)[field]
    for cloud, point, axis in ((0, 0, 0), (0, 699, 2), (1, 0, 2), (1, 899, 1)):
        clouds = [np.zeros((n, 3), dtype=np.float32) for n in (700, 900)]
        clouds[cloud][point, axis] = -largest
        x, y, rows = (torch.as_tensor(a, device=cuda_device) for a in (*clouds, theta))
        scaled, exponent = scaled_rows(x, y, rows, scaling_rule(32, 3, p))
        assert float(exponent) == expected
        np.testing.assert_array_equal(scaled.cpu(), theta * np.float32(down))


@pytest.mark.parametrize("wanted", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("n", "dim", "slices"), [(1, 1, 1), (33, 5, 7), (300, 130, 70)])
def test_small_steps(cuda_device, rng, n, dim, slices, wanted):
    x, y = (rng.normal(size=(n, dim)).astype(np.float32) for _ in range(2))
    theta = unit_rows(rng, slices, dim).astype(np.float32)
    tensors = [torch.as_tensor(a, device=cuda_device) for a in (x, y, theta)]
    mean, scores, *rest = small_program(*tensors, 2.0, wanted, scaling_rule(32, dim, 2.0), "float32")
    with sorted_slopes.using("reference"):
        expected, *slopes = sorted_slopes(*(theta.astype(float) @ c.T for c in (x, y)), 2.0, 1.0)
    np.testing.assert_allclose(scores.cpu(), expected, rtol=1e-4)
    np.testing.assert_allclose(mean.cpu(), expected.mean(), rtol=1e-5)
    assert float(rest.pop(0)) == 0.0
    gradients = [side.T @ theta / slices for side, want in zip(slopes, wanted, strict=True) if want]
    if gradients:
        np.testing.assert_allclose(rest.pop().cpu(), np.concatenate(gradients), rtol=1e-3, atol=1e-4)
    assert not rest
