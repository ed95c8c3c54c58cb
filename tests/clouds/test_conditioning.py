"""Points of very different sizes in one cloud: right to the accuracy of the type, or an error."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import orthoslice as osl
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import centred, far_centre, scale_on_device

METHODS = {
    "sliced": osl.sliced_wasserstein,
    "projected": osl.projected_wasserstein,
    "hadamard": lambda *a, **o: osl.sliced_wasserstein(*a, directions="hadamard", **o),
}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 3)), RNG.normal(size=(50, 3)) + 1
# A usual fill value among them, and nearly the largest of its type.
FAR32 = [1e20, 1e22, 9.97e36, -3.4e38]


def with_far_point(far, dtype):
    """Clouds that share a point that is far from all others, not in the same row."""
    x, y = X.astype(dtype), Y.astype(dtype)
    x[0] = y[31] = far
    return x, y


def without(x, y):
    return x[1:], np.delete(y, 31, axis=0)


# PW has good reason to doubt: on directions across the far point it is matched with another.
@pytest.mark.thin(pairs=True)
@pytest.mark.filterwarnings("ignore::orthoslice.UntrustedWarning")
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("far", FAR32)
@pytest.mark.parametrize("make", [np.asarray, torch.asarray], ids=["numpy", "torch"])
def test_a_shared_far_point_costs_no_digits(method, p, far, make):
    x, y = with_far_point(far, np.float32)
    got = method(make(x), make(y), p, rng=0)
    # Matched with itself on every line, it only takes a share of the mass.
    expected = method(*(c.astype(np.float64) for c in without(x, y)), p, rng=0)
    share = 49 / 50
    assert got.distance.dtype == make(x).dtype
    assert float(got.distance) == pytest.approx(float(expected.distance) * share ** (1 / p), rel=1e-6)
    assert float(got.value) == pytest.approx(float(expected.value) * share, rel=1e-6)
    assert [float(v) for v in got.interval()] == pytest.approx([float(v) * share for v in expected.interval()])


def test_gradients_come_back_in_the_type_of_the_clouds():
    x, y = (torch.tensor(c) for c in with_far_point(1e22, np.float32))
    x.requires_grad_()
    osl.sliced_wasserstein(x, y, rng=0).value.backward()
    near_x, near_y = (torch.tensor(c) for c in without(*with_far_point(1e22, np.float32)))
    near_x.requires_grad_()
    osl.sliced_wasserstein(near_x, near_y, rng=0).value.backward()
    assert x.grad.dtype == torch.float32
    torch.testing.assert_close(x.grad[1:], near_x.grad * 49 / 50, rtol=1e-5, atol=1e-7)
    assert not x.grad[0].any()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("far", [1e20, 1e100])
def test_float64_has_room_for_many_scales(method, far):
    x, y = with_far_point(far, np.float64)
    expected = method(*without(x, y), rng=0).distance * 0.98**0.5
    assert method(x, y, rng=0).distance == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("far", [1e200, 5e307, 1.7e308])
def test_float64_refuses_what_it_has_no_room_for(method, far):
    with pytest.raises(OverflowError, match=r"`p` is too high .* \|x - y\|\^2 underflows in float64"):
        method(*with_far_point(far, np.float64), rng=0)


def test_jax_in_float32_is_right_or_refuses():
    """In host memory: values on a GPU are not looked at."""
    with jax.default_device(jax.devices("cpu")[0]):
        x, y = (jnp.asarray(c) for c in with_far_point(1e30, np.float32))
        with pytest.raises(OverflowError, match="underflows in float32"):
            osl.sliced_wasserstein(x, y, rng=0)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_what_is_truly_zero_is_not_refused(method):
    x, _ = with_far_point(1e300, np.float64)
    assert method(x, x[::-1].copy(), rng=0).distance == 0
    # The same points twice each, and a direction on which clouds agree.
    assert method(x, np.repeat(x, 2, axis=0), rng=0).distance == 0
    moved = x + np.array([0, 0, 1])
    assert osl.sliced_wasserstein(x, moved, directions=np.eye(3)[:2]).distance == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("part", [4, 2])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_near_the_end_of_the_range(dtype, part, p):
    largest = float(np.finfo(dtype).max) / part
    x = np.array([[largest, 0], [0, largest]], dtype=dtype)
    unit = np.eye(2, dtype=dtype)
    expected = float(osl.sliced_wasserstein(unit, -unit, p, rng=0).distance) * largest
    distance = float(osl.sliced_wasserstein(x, -x, p, rng=0).distance)
    assert distance == pytest.approx(expected, rel=50 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_distance_beyond_the_range_is_an_error(dtype):
    x = np.full((2, 4), np.finfo(dtype).max, dtype=dtype)
    for call in (osl.projected_wasserstein, osl.sliced_wasserstein):
        est = call(x, -x, rng=0)
        with pytest.raises(OverflowError, match=f"exceeds the range of {np.dtype(dtype).name}"):
            _ = est.distance
    if dtype == np.float64:
        with pytest.raises(OverflowError, match="range of float64"):
            osl.wasserstein_bounds(x, -x, rng=0)
        with pytest.raises(OverflowError, match="range of float64"):
            _ = osl.wasserstein(x, -x).distance


@pytest.mark.parametrize("dim", [1, 3, 512, 600])
@pytest.mark.parametrize("n", [1, 170, 171, 1025])
def test_far_centres_of_folded_rows(n: int, dim: int, rng: np.random.Generator) -> None:
    """Every other coordinate is far from the origin; the answer has the digits of the reference."""
    points = rng.normal(size=(n, dim)) + 1e3 * (np.arange(dim) % 2)
    with far_centre.using("folded"):
        found = far_centre(points, (-2,))
    with far_centre.using("reference"):
        np.testing.assert_array_equal(found, far_centre(points, (-2,)))
    assert found.any() == (n == 1 or dim > 1)


def test_rows_in_order_do_not_look_far_away(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of sorted rows alone are far from 0 for their range, and then a centre would be looked for."""
    points = np.sort(rng.normal(size=(10_000, 1)), axis=0)
    monkeypatch.setattr("orthoslice.clouds.conditioning.far_centre", None)
    centred(Cloud(points), Cloud(points))
    with pytest.raises(TypeError):
        centred(Cloud(points + 100), Cloud(points))


def test_a_device_is_sent_its_tables_once() -> None:
    """What is sent again at every call makes the host wait for the device."""
    kept = sys.modules["orthoslice.backend.arrays.namespace"]._kept
    x = Cloud(torch.ones(5, 3))
    scale_on_device(x, x, 2.0)
    before = kept.cache_info()
    scale_on_device(x, x, 2.0)
    after = kept.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)
