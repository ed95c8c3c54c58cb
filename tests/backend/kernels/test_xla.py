"""Rows priced by our kernels within programs of JAX, against the same programs without them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import unit_rows

import orthoslice as osl
from orthoslice.backend.kernels import xla
from orthoslice.costs.lines import sorted_scores, sorted_slopes

jax = pytest.importorskip("jax")
pytest.importorskip("numba")

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="they are kernels of the CPU")


def rows(rng, shape, dtype):
    table = rng.normal(size=shape)
    table[..., ::3] = table[..., :1]  # ties
    return jax.numpy.asarray(table, dtype=dtype)


def both(operation, *arguments):
    """What a compiled program finds by our kernels, and by plain array code."""
    found = {}
    for name in ("xla", "reference"):

        def run(px, py, name=name):
            with operation.using(name):
                return operation(px, py, *arguments[2:])

        found[name] = jax.jit(run)(*arguments[:2])
    return jax.tree.leaves(found["xla"]), jax.tree.leaves(found["reference"])


@pytest.mark.parametrize("p", [1.0, 2.0, 2.5])
@pytest.mark.parametrize(("lead", "n", "m"), [((4,), 1, 1), ((3,), 17, 17), ((2, 3), 20, 33), ((2,), 700, 300)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows(rng, dtype, lead, n, m, p):
    with jax.enable_x64(dtype == "float64"):
        px, py = rows(rng, (*lead, n), dtype), rows(rng, (*lead, m), dtype)
        close = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-13}
        for operation, rest in ((sorted_scores, ()), (sorted_slopes, (0.7,))):
            for ours, plain in zip(*both(operation, px, py, p, *rest), strict=True):
                assert ours.dtype == plain.dtype
                assert ours.shape == plain.shape
                np.testing.assert_allclose(ours, plain, **close)


def test_long_rows(rng):
    """Longer than what is sorted in one piece."""
    px, py = (jax.numpy.asarray(rng.normal(size=(1, 300_000)), dtype="float32") for _ in range(2))
    (ours,), (plain,) = both(sorted_scores, px, py, 2.0)
    np.testing.assert_allclose(ours, plain, rtol=1e-5)


def test_public_functions_use_them_under_all_transforms(rng):
    x, y = (jax.numpy.asarray(rng.normal(size=(3, 24, 4)), dtype="float32") for _ in range(2))
    theta = jax.numpy.asarray(unit_rows(rng, 6, 4), dtype="float32")

    def value(a, b):
        return osl.sliced_wasserstein(a, b, directions=theta).value

    def answers():
        jax.clear_caches()
        return (
            jax.jit(value)(x[0], y[0]),
            jax.jit(jax.vmap(value))(x, y),
            jax.jit(jax.vmap(value, in_axes=(0, None)))(x, y[0]),
            jax.jit(jax.grad(value))(x[0], y[0]),
            jax.jit(jax.vmap(jax.grad(value)))(x, y),
            jax.jit(jax.jvp, static_argnums=0)(lambda a: value(a, y[0]), (x[0],), (y[1],))[1],
            jax.jit(jax.grad(lambda a: (jax.grad(value)(a, y[0]) ** 2).sum()))(x[0]),
        )

    assert xla.refusal(x, y) is None
    ours = answers()
    with sorted_scores.using("reference"), sorted_slopes.using("reference"):
        plain = answers()
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_not_a_number_stays_so(rng):
    x = jax.numpy.asarray(rng.normal(size=(8, 2)), dtype="float32").at[3, 0].set(np.nan)
    found = jax.jit(lambda a: osl.sliced_wasserstein(a, a + 1, n_directions=4, rng=0).value)(x)
    assert bool(jax.numpy.isnan(found))


def test_another_version_of_the_interface_is_left_alone(monkeypatch, tmp_path, rng):
    """And the library works without. When JAX has one, read its header and adapt `numba/xla.py`."""
    header = tmp_path / "xla/ffi/api/c_api.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define XLA_FFI_API_MAJOR 1\n")
    monkeypatch.setattr(jax.ffi, "include_dir", lambda: str(tmp_path))
    xla._interface_refusal.cache_clear()
    try:
        x = jax.numpy.asarray(rng.normal(size=(8, 2)), dtype="float32")
        assert xla.refusal(x, x) == "it knows version 0 of XLA's interface"
        assert float(jax.jit(lambda a: osl.sliced_wasserstein(a, a + 1, n_directions=4, rng=0).value)(x)) > 0
    finally:
        monkeypatch.undo()
        xla._interface_refusal.cache_clear()
    assert xla.refusal(x, x) is None
