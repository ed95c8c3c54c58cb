"""What JAX does to a function: compile, map, differentiate either way, and be strict about shapes and types."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import weights

import orthoslice as osl
from orthoslice.costs.lines import sorted_scores, sorted_slopes

jax = pytest.importorskip("jax")
jnp = jax.numpy


def clouds(seed: int = 0, n: int = 6, dim: int = 3, scale: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return tuple(
        jnp.asarray(scale * (rng.normal(size=(n, dim)) + shift), dtype=jnp.float32) for shift in (0, 1)
    )


@pytest.mark.parametrize(("dim", "n_directions"), [(2, 128), (16, 512)])
def test_hadamard_blocks_are_no_longer_program(dim: int, n_directions: int) -> None:
    """The program has one transform, whatever the number of blocks: lines are counted, not seconds."""
    x, y = clouds(n=16, dim=dim)

    def lines(count: int) -> int:
        def value(a: Any) -> Any:
            return osl.sliced_wasserstein(a, y, directions="hadamard", n_directions=count, rng=0).value

        return len(jax.jit(jax.value_and_grad(value)).lower(x).as_text().splitlines())

    assert lines(n_directions) < 1.2 * lines(4 * dim)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_hadamard_of_part_blocks(rows: int) -> None:
    """Small blocks of a large transform, in a loop and cut by small memory, give what the host gives."""
    x, y = clouds(dim=6)
    sampler = osl.directions.HadamardRademacher(block_size=rows)
    options = {"directions": sampler, "n_directions": 13, "rng": 0}
    host = osl.sliced_wasserstein(np.asarray(x, dtype=float), np.asarray(y, dtype=float), **options)
    for memory in (2000, 10**8):
        value = jax.jit(lambda a, m=memory: osl.sliced_wasserstein(a, y, memory=m, **options).value)
        assert float(value(x)) == pytest.approx(float(host.value), rel=1e-5)


@pytest.mark.parametrize("scale", [1e-25, 1e20])
@pytest.mark.parametrize("distance", [osl.sliced_wasserstein, osl.projected_wasserstein])
def test_scales_at_the_ends_of_the_range(distance: Any, scale: float) -> None:
    """Squares of these do not fit float32; the distance, its error and its gradient do, also under vmap."""
    (x, y), (u, v) = clouds(scale=scale), clouds()
    host = distance(np.asarray(u, dtype=float), np.asarray(v, dtype=float), rng=0)
    est = jax.jit(lambda a, b: distance(a, b, rng=0))(x, y)
    assert float(est.distance) / scale == pytest.approx(float(host.distance), rel=1e-5)
    assert float(est.distance_stderr) / scale == pytest.approx(float(host.distance_stderr), rel=1e-3)
    # The value itself does not fit: it is 0 or marked, never a wrong number.
    assert float(est.value) == 0 if scale < 1 else np.isnan(est.value)
    slope = jax.grad(lambda a, b: distance(a, b, rng=0).distance)
    np.testing.assert_allclose(jax.jit(slope)(x, y), slope(u, v), rtol=1e-4, atol=1e-6)
    both = jax.vmap(lambda a, b: distance(a, b, rng=0).distance)(jnp.stack([x, u]), jnp.stack([y, v]))
    np.testing.assert_allclose(both / jnp.asarray([scale, 1]), float(host.distance), rtol=1e-5)


def test_scores_are_in_the_units_of_the_value() -> None:
    """Also where the program divided the clouds, because their powers are near the end of the range."""
    x, y = clouds(scale=1e12)

    def value_and_scores(a: Any, b: Any) -> Any:
        est = osl.sliced_wasserstein(a, b, rng=0)
        return est.value, est.scores

    value, scores = jax.jit(value_and_scores)(x, y)
    assert float(scores.mean()) == pytest.approx(float(value), rel=1e-5)
    np.testing.assert_allclose(scores, value_and_scores(x, y)[1], rtol=1e-4)


def test_ordinary_scales_change_no_digit() -> None:
    """Under jit the clouds are looked at by the program, and those that fit are left as they are."""
    x, y = clouds()
    est = osl.sliced_wasserstein(x, y, 1.5, rng=0)
    compiled = jax.jit(lambda a, b: osl.sliced_wasserstein(a, b, 1.5, rng=0))(x, y)
    assert float(compiled._exponent) == 0
    assert float(compiled.value) == pytest.approx(float(est.value), rel=1e-6)


def test_estimates_of_one_request_are_alike() -> None:
    """Seeds, scales and given directions differ; trees can still be mapped, stacked and averaged together."""
    from torch.utils import _pytree

    (x, y), far = clouds(), clouds(scale=1e20)
    ests = [osl.sliced_wasserstein(x, y, rng=seed) for seed in (0, 1)]
    ests.append(jax.jit(lambda a, b: osl.sliced_wasserstein(a, b, rng=2))(x, y))
    mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *ests)
    assert float(mean.value) == pytest.approx(np.mean([float(e.value) for e in ests]), rel=1e-6)
    assert (mean.seed, mean.converged) == (None, None)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), ests[0], osl.sliced_wasserstein(*far, rng=0))
    np.testing.assert_allclose(stacked.distance / jnp.asarray([1, 1e20]), float(ests[0].distance), rtol=1e-6)
    given = [osl.sliced_wasserstein(x, y, directions=jnp.eye(3)) for _ in "ab"]
    jax.tree.map(lambda a, b: a + b, *given)
    jax.tree.map(lambda a, b: a + b, *(replace(ests[0], converged=met) for met in (True, False)))
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(np.asarray(a)) for a in (x, y)]
    specs = [_pytree.tree_flatten(osl.sliced_wasserstein(*tensors, rng=seed))[1] for seed in (0, 1)]
    assert specs[0] == specs[1]


def test_vmap_returns_estimates() -> None:
    x, y = clouds()
    many = jnp.stack([x, x + 1, 2 * x])
    est = jax.jit(jax.vmap(lambda a: osl.sliced_wasserstein(a, y, rng=0)))(many)
    for k in range(3):
        one = osl.sliced_wasserstein(many[k], y, rng=0)
        single = jax.tree.map(lambda leaf, k=k: leaf[k], est)
        assert float(single.distance) == pytest.approx(float(one.distance), rel=1e-5)
        np.testing.assert_allclose(single.interval(), one.interval(), rtol=1e-4)


PROBLEMS = ["equal", "weighted", "batch"]


def problem(kind: str) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x, y = clouds()
    if kind == "weighted":
        return {
            "x": x,
            "y": y[:5],
            **{f"{k}_weights": jnp.asarray(weights(rng, n)) for k, n in (("x", 6), ("y", 5))},
        }
    return {"x": x, "y": y} if kind == "equal" else {"x": jnp.stack([x, x + 1])[:, None], "y": y[:4]}


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("distance", [osl.sliced_wasserstein, osl.projected_wasserstein])
def test_strict_about_shapes_and_types(distance: Any, kind: str) -> None:
    """Nothing is broadcast to a higher rank or promoted unasked: value, error bar and gradient are traced."""

    def loss(arrays: dict[str, Any]) -> Any:
        est = distance(**arrays, p=1.5, rng=0, n_directions=7)
        return jnp.sum(est.distance) + jnp.sum(est.stderr)

    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        jax.jit(jax.value_and_grad(loss)).lower(problem(kind))


def test_no_false_alarm_of_nans() -> None:
    """Equal clouds have a distance of 0 with a slope of 0: no step on the way there makes a NaN."""
    x, _ = clouds()

    def loss(a: Any) -> Any:
        est = osl.projected_wasserstein(a, x, 1.5, rng=0, n_directions=6)
        return est.distance + est.distance_stderr

    with jax.debug_nans(True):
        value, slope = jax.jit(jax.value_and_grad(loss))(x)
    assert float(value) == 0
    assert not slope.any()


def test_64_bits() -> None:
    """With 64 bits JAX agrees with NumPy to the last digits, and float32 clouds stay float32."""
    x, y = (np.asarray(a) for a in clouds())
    with jax.enable_x64(True):
        for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
            a, b = x.astype(dtype), y.astype(dtype)
            value = jax.jit(lambda u, v: osl.sliced_wasserstein(u, v, rng=0).value)(a, jnp.asarray(b))
            assert value.dtype == dtype
            assert float(value) == pytest.approx(
                float(osl.sliced_wasserstein(a, b, rng=0).value), rel=tolerance
            )


@pytest.mark.parametrize(("cost", "kind"), [(None, "weighted"), ("exact", "batch"), ("pooled", "equal")])
def test_forward_mode_agrees_with_reverse(cost: str | None, kind: str) -> None:
    inputs = problem(kind)
    rng = np.random.default_rng(2)
    moves = {k: jnp.asarray(rng.normal(size=a.shape), dtype=a.dtype) for k, a in inputs.items()}

    def loss(arrays: dict[str, Any]) -> Any:
        options = {"p": 1.5, "rng": 0, "n_directions": 6}
        if cost is None:
            return jnp.sum(osl.sliced_wasserstein(**arrays, **options).value)
        return jnp.sum(osl.projected_wasserstein(**arrays, cost=cost, **options).value)

    _, forward = jax.jvp(loss, (inputs,), (moves,))
    products = jax.tree.map(lambda g, m: jnp.sum(g * m), jax.grad(loss)(inputs), moves)
    assert float(forward) == pytest.approx(float(sum(products.values())), rel=1e-4)


def test_only_what_moves_has_a_gradient() -> None:
    """One sort a cloud in the compiled gradient, and none of the slopes of a target that stays where it is."""
    x, y = clouds(n=9, dim=4)

    def value(a: Any, b: Any) -> Any:
        return osl.sliced_wasserstein(a, b, rng=0, n_directions=4).value

    def count(function: Any, word: str) -> int:
        # Where our kernels sort, the program of the CPU says neither.
        with sorted_scores.using("reference"), sorted_slopes.using("reference"):
            return jax.jit(function).lower(x, y).compile().as_text().count(word)

    one, both = (jax.value_and_grad(value, argnums) for argnums in (0, (0, 1)))
    assert count(one, " sort(") == count(value, " sort(") == 2
    assert count(one, " scatter(") < count(both, " scatter(")


def test_hessians_both_ways() -> None:
    x, y = clouds(n=3, dim=2)

    def value(a: Any) -> Any:
        return osl.sliced_wasserstein(a, y, 3, rng=0, n_directions=2).value

    reverse = jax.jacfwd(jax.grad(value))(x)
    np.testing.assert_allclose(jax.jacrev(jax.grad(value))(x), reverse, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.jacfwd(jax.jacfwd(value))(x), reverse, rtol=1e-4, atol=1e-5)
    assert np.abs(reverse).max() > 0.1


SPREAD = """
import jax, numpy as np, orthoslice as osl
from jax.sharding import NamedSharding, PartitionSpec

assert len(jax.devices()) == 4
rng = np.random.default_rng(0)
tables = [rng.normal(size=(8, 4)).astype(np.float32) for _ in range(2)]
mesh = jax.make_mesh((4,), ("rows",))
for axes in (("rows",), (None, "rows"), ()):
    place = NamedSharding(mesh, PartitionSpec(*axes))
    for spread in ((0,), (0, 1)):
        x, y = (jax.device_put(t, place if k in spread else jax.devices()[0]) for k, t in enumerate(tables))
        theta = jax.device_put(np.eye(4, dtype=np.float32), place)
        for options in ({"rng": 0, "n_directions": 8}, {"directions": theta}):
            value = osl.sliced_wasserstein(x, y, **options).value
            plain = {k: np.asarray(v) if k == "directions" else v for k, v in options.items()}
            exact = osl.sliced_wasserstein(*tables, **plain).value
            assert abs(float(value) / float(exact) - 1) < 1e-5, (axes, spread, options)
            assert len(value.devices()) == 1
print("same")
"""


def test_arrays_that_are_spread_over_devices_are_gathered() -> None:
    """In a process of its own, which sees four devices on the CPU."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, **flags}
    done = subprocess.run(
        [sys.executable, "-c", SPREAD], capture_output=True, text=True, check=True, env=environment, timeout=300
    )
    assert done.stdout.strip() == "same"
