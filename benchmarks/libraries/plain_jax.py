"""What one writes in JAX without a library: project, sort, mean, under `jax.jit`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.libraries import Answer, Job, NotOffered, Solver, read_value
from benchmarks.problems import Data


def describe() -> dict[str, Any]:
    return {"version": jax.__version__, "threads": {}}


def prepare(job: Job, data: Data) -> Solver:
    return solver_of_jax(sliced, job, data)


def sliced(x: Any, y: Any, theta: Any, p: float) -> Any:
    # JAX's default on NVIDIA GPUs keeps 10 bits of the factors, which is not float32.
    px, py = (jnp.sort(jnp.matmul(theta, c.T, precision=jax.lax.Precision.HIGHEST)) for c in (x, y))
    gap = px - py
    return (gap**2 if p == 2 else jnp.abs(gap) ** p).mean()


def solver_of_jax(function: Callable[..., Any], job: Job, data: Data) -> Solver:
    """What solves a problem given a function of two clouds, unit rows and the power."""
    if job.task not in ("sliced", "gradient", "gradients") or job.directions != "given" or len(data) > 3:
        raise NotOffered(job.task)
    x, y, theta = (jnp.asarray(data[name]) for name in ("x", "y", "theta"))
    compiled = _compiled(function, job.task, job.p)
    # The first call compiles, and is not one that is timed.
    read = read_value if job.task == "sliced" else read_gradients
    return Solver(lambda seed: compiled(x, y, theta), read, jax.block_until_ready)


@functools.cache
def _compiled(function: Callable[..., Any], task: str, p: float) -> Any:
    """Kept, so that clouds of one shape are compiled for once."""

    def value(x: Any, y: Any, theta: Any) -> Any:
        return function(x, y, theta, p)

    if task == "sliced":
        return jax.jit(value)
    return jax.jit(jax.value_and_grad(value, argnums=(0,) if task == "gradient" else (0, 1)))


def read_gradients(result: Any) -> Answer:
    """Read a value and the gradients by clouds."""
    value, gradients = result
    return {"value": float(value), "vector": np.concatenate([np.ravel(part) for part in gradients])}
