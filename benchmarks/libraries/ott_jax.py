"""OTT-JAX: `ott.tools.sliced.sliced_wasserstein`, compiled beforehand for the shapes of the problem."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ott.geometry import costs
from ott.tools import sliced

from benchmarks.libraries import Answer, Job, NotOffered, Solver, read_value
from benchmarks.problems import Data


def describe() -> dict[str, Any]:
    version = f"{importlib.metadata.version('ott-jax')} on JAX {jax.__version__}"
    return {"version": version, "threads": {}}


def prepare(job: Job, data: Data) -> Solver:
    if job.task not in ("sliced", "gradient"):
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
        return Solver(lambda seed: compiled(x, y, jax.random.key(seed)).block_until_ready(), read_value)
    if job.task == "gradient":
        compiled = jax.jit(jax.value_and_grad(given)).lower(x, y, theta).compile()
        return Solver(lambda seed: jax.block_until_ready(compiled(x, y, theta)), _read_gradient)
    compiled = jax.jit(given).lower(x, y, theta).compile()
    return Solver(lambda seed: compiled(x, y, theta).block_until_ready(), read_value)


def _project(points: Any, theta: Any) -> Any:
    return points @ theta.T


def _read_gradient(result: Any) -> Answer:
    value, gradient = result
    return {"value": float(value), "vector": np.asarray(gradient).ravel()}
