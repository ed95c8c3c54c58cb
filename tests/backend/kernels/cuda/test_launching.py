"""Recipes of launches, followed by compiled programs of JAX, against plain array code."""

from __future__ import annotations

import numpy as np
import pytest
from backend.kernels.cuda import cuda_on_host, xla_on_host
from helpers import unit_rows

import orthoslice as osl
from orthoslice.backend.kernels import xla_launches
from orthoslice.backend.kernels.cuda import rows as cuda_rows
from orthoslice.costs.lines import sorted_scores, sorted_slopes

jax = pytest.importorskip("jax")
pytest.importorskip("numba")


@pytest.fixture
def driver(monkeypatch):
    """What stands for the driver where rows are launched on the processor; None on a GPU."""
    if jax.default_backend() == "gpu":
        if (reason := xla_launches.process_refusal()) is not None:
            pytest.skip(reason)
        yield None
        return
    if (reason := cuda_on_host.missing()) is not None:
        pytest.skip(reason)
    jax.clear_caches()
    with monkeypatch.context() as patch:
        yield xla_on_host.hook(patch)
    xla_launches._rows_recipe.cache_clear()
    xla_launches._small_recipe.cache_clear()
    xla_launches._check_recipe.cache_clear()
    jax.clear_caches()


def rows(rng, *shape):
    table = rng.normal(size=shape)
    table[..., ::3] = table[..., :1]  # ties
    return jax.numpy.asarray(table, dtype="float32")


def launched(px, py, p, factor, with_slopes):
    kind = "float64" if jax.config.jax_enable_x64 else "float32"
    return jax.jit(lambda a, b: xla_launches._on_rows((p, factor, with_slopes, kind), a, b))(px, py)


def expected_slopes(px, py, p, factor):
    """By plain code, in one program: operation by operation it takes long to compile."""
    with sorted_slopes.using("reference"):
        return jax.jit(lambda a, b: sorted_slopes(a, b, p, factor))(px, py)


@pytest.mark.thin
@pytest.mark.parametrize("p", [1.0, 2.0, 2.5])
@pytest.mark.parametrize(
    ("lead", "n", "m"), [((4,), 1, 1), ((3,), 257, 257), ((2, 3), 20, 33), ((2,), 700, 300)]
)
def test_rows(driver, rng, lead, n, m, p):
    px, py = rows(rng, *lead, n), rows(rng, *lead, m)
    expected = expected_slopes(px, py, p, 0.7)
    (scores,) = launched(px, py, p, 1.0, False)
    np.testing.assert_allclose(0.7 * scores, expected[0], rtol=1e-5, atol=1e-6)
    for ours, plain in zip(launched(px, py, p, 0.7, True), expected, strict=True):
        assert (ours.shape, ours.dtype) == (plain.shape, plain.dtype)
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)
    if driver is not None:
        assert driver.streams == {xla_on_host._STREAM}


@pytest.mark.parametrize("most_shares", [0, 100])
@pytest.mark.parametrize(("n", "m"), [(3000, 3000), (1500, 3000)])
def test_long_rows(driver, rng, monkeypatch, n, m, most_shares):
    """Longer than what a chip sorts in one go, dealt or shared: launches use each other's memory."""
    small = {
        "longest_on_chip": lambda device: 100,
        "BUCKET": 200,
        "_SHARE": 200,
        "_MOST_SHARES": most_shares,
        "_SHARES": cuda_rows.Source("shares", (("SAMPLE", 512), ("RESIDING", 64))),
        "_BUCKET_SHAPE": (64, 8),
        "_SAMPLE_SHAPE": (64, 8),
        "sorting_long_rows": cuda_rows.sorting_long_rows.__wrapped__,
    }
    for name, value in small.items():
        monkeypatch.setattr(cuda_rows, name, value)
    px, py = rows(rng, 2, n), rows(rng, 2, m)
    expected = expected_slopes(px, py, 2.0, 0.7)
    for ours, plain in zip(launched(px, py, 2.0, 0.7, True), expected, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)
    if driver is not None:
        assert ("sort_shares" if most_shares else "sort_buckets") in driver.launched


def test_public_functions_launch_under_all_transforms(driver, rng):
    x, y = (jax.numpy.asarray(rng.normal(size=(3, 24, 4)), dtype="float32") for _ in range(2))
    theta = jax.numpy.asarray(unit_rows(rng, 6, 4), dtype="float32")

    def value(a, b):
        return osl.sliced_wasserstein(a, b, directions=theta).value

    calls = {
        "jit": lambda: jax.jit(value)(x[0], y[0]),
        "vmap": lambda: jax.jit(jax.vmap(value))(x, y),
        "vmap of one": lambda: jax.jit(jax.vmap(value, in_axes=(0, None)))(x, y[0]),
        "batch": lambda: jax.jit(value)(x, y),
        "grad": lambda: jax.jit(jax.grad(value))(x[0], y[0]),
        "vmap of grad": lambda: jax.jit(jax.vmap(jax.grad(value)))(x, y),
        "jvp": lambda: jax.jit(lambda a: jax.jvp(value, (a, y[0]), (y[1], y[2]))[1])(x[0]),
        "grad of grad": lambda: jax.jit(jax.grad(lambda a: (jax.grad(value)(a, y[0]) ** 2).sum()))(x[0]),
    }
    for name, call in calls.items():
        jax.clear_caches()
        if driver is not None:
            driver.launched.clear()
        ours = np.asarray(call())
        # A derivative of slopes is found by plain code.
        if driver is not None:
            assert bool(driver.launched) == (name != "grad of grad"), name
        jax.clear_caches()
        with sorted_scores.using("reference"), sorted_slopes.using("reference"):
            np.testing.assert_allclose(ours, call(), rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
@pytest.mark.parametrize(("n", "dim"), [(5, 3), (300, 33)])
def test_steps_of_small_clouds(driver, rng, n, dim, argnums):
    """Projected, matched and carried back by launches alone."""
    x, y = (jax.numpy.asarray(rng.normal(size=(n, dim)) + 100.0, dtype="float32") for _ in range(2))
    theta = jax.numpy.asarray(unit_rows(rng, 7, dim), dtype="float32")

    def step(a, b):
        found = osl.sliced_wasserstein(a, b, directions=theta, p=1.5)
        return found.value, found.scores

    def answer():
        jax.clear_caches()
        return jax.tree.leaves(jax.jit(jax.value_and_grad(step, argnums=argnums, has_aux=True))(x, y))

    ours = [np.asarray(a) for a in answer()]
    if driver is not None:
        assert {"find_tops", "scale_rows", "finish_step"} <= set(driver.launched)
        assert not {"add_up", "sort_rows"} & set(driver.launched)
    with sorted_slopes.using("reference"):
        for a, b in zip(ours, answer(), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-36, 1e-25, 1.0, 1e25, 1e38])
def test_clouds_of_any_size(driver, rng, scale):
    """Squares of their distances, and for the last ones distances, are out of range."""
    x, y = (rng.uniform(-1, 1, size=(20, 3)) for _ in range(2))
    theta = jax.numpy.asarray(unit_rows(rng, 6, 3), dtype="float32")
    expected = scale * osl.sliced_wasserstein(x, y, directions=np.asarray(theta, dtype=float)).distance

    def distance(a, b):
        return osl.sliced_wasserstein(a, b, directions=theta).distance

    a, b = (jax.numpy.asarray(scale * c, dtype="float32") for c in (x, y))
    found = float(jax.jit(distance)(a, b))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    if driver is not None:
        assert "scale_rows" in driver.launched


def test_programs_with_double_precision(driver, rng):
    """Costs are then told in it, of float32 clouds too."""
    with jax.enable_x64(True):
        x, y = (jax.numpy.asarray(rng.normal(size=(40, 3)), dtype="float32") for _ in range(2))
        theta = jax.numpy.asarray(unit_rows(rng, 6, 3), dtype="float32")

        def scores(a, b):
            return osl.sliced_wasserstein(a, b, directions=theta).scores

        def answers():
            jax.clear_caches()
            return jax.jit(scores)(x, y), jax.jit(scores)(x, y[:30]), scores(x, y)

        ours = answers()
        with sorted_scores.using("reference"):
            for a, b in zip(ours, answers(), strict=True):
                assert a.dtype == b.dtype == "float64"
                np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_clouds_and_directions_are_told_by_nan(driver, rng, bad):
    x = jax.numpy.asarray(rng.normal(size=(20, 3)), dtype="float32")
    theta = jax.numpy.asarray(unit_rows(rng, 6, 3), dtype="float32")
    value = jax.jit(lambda a, b, rows: osl.sliced_wasserstein(a, b, directions=rows).value)
    assert np.isfinite(value(x, x + 1, theta))
    assert np.isnan(value(x.at[7, 1].set(bad), x, theta))
    assert np.isnan(value(x, x.at[7, 1].set(bad), theta))
    assert np.isnan(value(x, x + 1, theta.at[2, 0].set(bad)))
    assert np.isnan(value(x, x + 1, 1.01 * theta))


def test_what_is_not_a_number_stays_so(driver, rng):
    px = rows(rng, 2, 300).at[1, 17].set(np.nan)
    scores, *slopes = launched(px, px + 1, 2.0, 1.0, True)
    assert np.isfinite(scores[0])
    assert np.isnan(scores[1])
    assert np.isfinite(slopes[0][0]).all()


def test_errors_of_the_driver_are_told(driver, rng):
    if driver is None:
        pytest.skip("a GPU that refuses a launch may refuse all that follow")
    px = rows(rng, 2, 300)
    driver.status = 700
    with pytest.raises(Exception, match="CUDA refused to start a kernel of orthoslice"):
        launched(px, px, 2.0, 1.0, True)[0].block_until_ready()


def test_a_program_whose_kernels_are_not_loaded(driver, rng):
    """As one that another process compiled."""
    from orthoslice.backend.kernels.numba import launching

    px = rows(rng, 2, 300)
    program = jax.jit(lambda a: xla_launches.score_rows(a, a + 1, 2.0, "float32")).lower(px).compile()
    np.testing.assert_allclose(program(px), 1.0, rtol=1e-5)
    count, launching._table[launching._COUNT] = int(launching._table[launching._COUNT]), 0
    try:
        with pytest.raises(Exception, match="a kernel of orthoslice is not loaded in this process"):
            program(px).block_until_ready()
    finally:
        launching._table[launching._COUNT] = count
    np.testing.assert_allclose(program(px), 1.0, rtol=1e-5)
