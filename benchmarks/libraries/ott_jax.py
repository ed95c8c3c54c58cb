"""OTT-JAX: `ott.tools.sliced.sliced_wasserstein`, compiled beforehand for the shapes of the problem."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import jax
import jax.numpy as jnp
import ott
from ott.geometry import costs
from ott.tools import sliced

from benchmarks.libraries import Job, NotOffered, Solver, read_value
from benchmarks.libraries.plain_jax import read_gradients
from benchmarks.problems import Data


def describe() -> dict[str, Any]:
    try:
        version = importlib.metadata.version("ott-jax")
    except importlib.metadata.PackageNotFoundError:
        # A copy that was not installed.
        version = getattr(ott, "__version__", "unknown")
    return {"version": f"{version} on JAX {jax.__version__}", "threads": {}}


def prepare(job: Job, data: Data) -> Solver:
    if job.task not in ("sliced", "gradient", "gradients"):
        raise NotOffered(job.task)
    x, y, theta = (jnp.asarray(data[name]) for name in ("x", "y", "theta"))
    # The default cost is |x - y|^2; PNormP is |x - y|^p / p.
    cost = {} if job.p == 2 else {"cost_fn": costs.PNormP(job.p)}
    scale = 1.0 if job.p == 2 else job.p

    def given(x: Any, y: Any, theta: Any) -> Any:
        return scale * sliced.sliced_wasserstein(x, y, proj_fn=_project, theta=theta, **cost)[0]

    def drawn(x: Any, y: Any, key: Any) -> Any:
        return scale * sliced.sliced_wasserstein(x, y, n_proj=job.n_directions, rng=key, **cost)[0]

    if job.directions != "given":
        compiled = jax.jit(drawn).lower(x, y, jax.random.key(0)).compile()
        return Solver(lambda seed: compiled(x, y, jax.random.key(seed)), read_value, jax.block_until_ready)
    function, read = given, read_value
    if job.task != "sliced":
        clouds = (0,) if job.task == "gradient" else (0, 1)
        function, read = jax.value_and_grad(given, argnums=clouds), read_gradients
    compiled = jax.jit(function).lower(x, y, theta).compile()
    return Solver(lambda seed: compiled(x, y, theta), read, jax.block_until_ready)


def _project(points: Any, theta: Any) -> Any:
    # JAX's default on NVIDIA GPUs keeps 10 bits of the factors, which is not float32.
    return jnp.matmul(points, theta.T, precision=jax.lax.Precision.HIGHEST)
