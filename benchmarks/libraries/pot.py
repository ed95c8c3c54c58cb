"""POT: `ot.sliced_wasserstein_distance` and `ot.sliced.expected_sliced_plan`, on NumPy or torch."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import ot

from benchmarks.libraries import Job, NotOffered, Solver, read_value
from benchmarks.libraries.plain_numpy import blas_threads
from benchmarks.problems import Data


def describe() -> dict[str, Any]:
    return {"version": ot.__version__, "threads": blas_threads()}


def prepare(job: Job, data: Data) -> Solver:
    x, y, theta = data["x"], data["y"], data["theta"]
    if job.arrays == "torch":
        torch = importlib.import_module("torch")
        x, y, theta = (torch.as_tensor(array) for array in (x, y, theta))
        projections = theta.T.contiguous()
    else:
        projections = np.ascontiguousarray(theta.T)

    def given(seed: int) -> Any:
        return ot.sliced_wasserstein_distance(x, y, p=job.p, projections=projections) ** job.p

    def drawn(seed: int) -> Any:
        return ot.sliced_wasserstein_distance(x, y, p=job.p, n_projections=job.n_directions, seed=seed) ** job.p

    def plan(seed: int) -> Any:
        # With beta = 0, the plain mean of the plans, the cost is <plan, cost matrix>.
        return ot.sliced.expected_sliced_plan(x, y, projections=projections, beta=0.0)[1]

    if job.task == "projected":
        return Solver(plan, read_value)
    if job.task not in ("sliced", "gradient", "gradients"):
        raise NotOffered(job.task)
    solve = given if job.directions == "given" else drawn
    if job.arrays != "torch":
        return Solver(solve, read_value)
    from benchmarks.libraries.plain_torch import solver_of

    return solver_of(job, x, y, solve)
