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
    arrays = {"x": data["x"], "y": data["y"], "projections": np.ascontiguousarray(data["theta"].T)}
    if job.arrays == "torch":
        torch = importlib.import_module("torch")
        arrays = {name: torch.from_numpy(array) for name, array in arrays.items()}
    x, y, projections = arrays["x"], arrays["y"], arrays["projections"]

    def given(seed: int) -> Any:
        return ot.sliced_wasserstein_distance(x, y, p=job.p, projections=projections) ** job.p

    def drawn(seed: int) -> Any:
        return ot.sliced_wasserstein_distance(x, y, p=job.p, n_projections=job.n_directions, seed=seed) ** job.p

    def plan(seed: int) -> Any:
        # With beta = 0, the plain mean of the plans, the cost is <plan, cost matrix>.
        return ot.sliced.expected_sliced_plan(x, y, projections=projections, beta=0.0)[1]

    if job.task == "gradient":
        from benchmarks.libraries.plain_torch import gradient_of

        return gradient_of(x, given)
    if job.task == "projected":
        return Solver(plan, read_value)
    if job.task != "sliced":
        raise NotOffered(job.task)
    return Solver(given if job.directions == "given" else drawn, read_value)
