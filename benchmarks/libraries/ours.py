"""Our library through its public functions; samplers directly where only directions are timed."""

from __future__ import annotations

import importlib
import importlib.metadata
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
    if job.arrays == "torch":
        torch = importlib.import_module("torch")
        data = {name: torch.from_numpy(array) for name, array in data.items()}
    x, y, theta = data["x"], data["y"], data["theta"]
    distance = {"projected": osl.projected_wasserstein}.get(job.task, osl.sliced_wasserstein)

    def call(seed: int) -> Any:
        return distance(x, y, job.p, directions=theta, workers=job.threads).value

    def draw_and_call(seed: int) -> Any:
        options = {"directions": job.directions, "n_directions": job.n_directions}
        return distance(x, y, job.p, rng=seed, workers=job.threads, **options).value

    if job.task == "gradient":
        from benchmarks.libraries.plain_torch import gradient_of

        return gradient_of(x, call)
    if job.task not in ("sliced", "projected"):
        raise NotOffered(job.task)
    return Solver(call if job.directions == "given" else draw_and_call, read_value)


def _project(job: Job, data: Data) -> Solver:
    from orthoslice.arrays import resolve_rng

    x = data["x"]
    sampler = SAMPLERS[job.directions]()
    dim, count = x.shape[1], job.n_directions
    rows = sampler.block_rows(count, dim)
    index = np.arange(-(-count // rows), dtype=np.int32)

    def call(seed: int) -> Any:
        stream, _ = resolve_rng(seed, x)
        return sampler.blocks(stream, index, rows, dim, x.dtype).project(x, slice(0, count))

    return Solver(call, read_projections)
