"""Our library through its public functions and losses; samplers directly where only directions are timed."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any

import numpy as np

import orthoslice as osl
from benchmarks.libraries import Job, NotOffered, Solver, read_projections, read_value
from benchmarks.libraries.plain_numpy import blas_threads
from benchmarks.machine import n_cores
from benchmarks.problems import Data

SAMPLERS = {"hadamard": osl.directions.HadamardRademacher, "orthogonal": osl.directions.Orthogonal}


def describe() -> dict[str, Any]:
    return {"version": f"{osl.__version__}, {_numba()}", "threads": {"workers": n_cores()} | blas_threads()}


def _numba() -> str:
    try:
        return f"numba {importlib.metadata.version('numba')}"
    except importlib.metadata.PackageNotFoundError:
        return "without numba"


def prepare(job: Job, data: Data) -> Solver:
    if job.task == "project":
        return _project(job, data)
    if job.task not in ("sliced", "gradient", "gradients", "projected", "projected_gradients"):
        raise NotOffered(job.task)
    if job.arrays == "jax":
        from benchmarks.libraries.plain_jax import solver_of_jax

        return solver_of_jax(_value_in_jax, job, data)
    if job.arrays == "torch":
        torch = importlib.import_module("torch")
        data = {name: torch.as_tensor(array) for name, array in data.items()}
    x, y, theta = data["x"], data["y"], data["theta"]
    is_projected = job.task.startswith("projected")
    distance = osl.projected_wasserstein if is_projected else osl.sliced_wasserstein

    def call(seed: int) -> Any:
        return distance(x, y, job.p, directions=theta, workers=job.threads).value

    def draw_and_call(seed: int) -> Any:
        options = {"directions": job.directions, "n_directions": job.n_directions, "control": None}
        return distance(x, y, job.p, rng=seed, workers=job.threads, **options).value

    solve = call if job.directions == "given" else draw_and_call
    if job.form in ("loss", "graph"):
        weights = {name: data[name] for name in data if name.endswith("weights")}
        solve = _loss(job, is_projected, x, y, theta, weights)
    if job.arrays != "torch":
        return Solver(solve, read_value)
    from benchmarks.libraries.plain_torch import solver_of

    return solver_of(job, x, y, solve)


def _value_in_jax(x: Any, y: Any, theta: Any, p: float) -> Any:
    return osl.sliced_wasserstein(x, y, p, directions=theta).value


def _loss(
    job: Job, is_projected: bool, x: Any, y: Any, theta: Any, weights: dict[str, Any]
) -> Callable[[int], Any]:
    """The loss of a training step; where it draws, it moves on to new directions by itself."""
    kind = osl.nn.ProjectedWassersteinLoss if is_projected else osl.nn.SlicedWassersteinLoss
    given = job.directions == "given"
    options = {"directions": theta} if given else {"directions": job.directions, "seed": 0}
    loss = kind(None if given else job.n_directions, p=job.p, **options).to(x.device)
    return lambda seed: loss(x, y, **weights)


def _project(job: Job, data: Data) -> Solver:
    from orthoslice.backend.arrays import resolve_rng

    x = data["x"]
    sampler = SAMPLERS[job.directions]()
    dim, count = x.shape[1], job.n_directions
    rows = sampler.block_rows(count, dim)
    index = np.arange(-(-count // rows), dtype=np.int32)

    def call(seed: int) -> Any:
        key, _ = resolve_rng(seed, x)
        return sampler.blocks(key, index, rows, dim, x.dtype).project(x, slice(0, count))

    return Solver(call, read_projections)
