"""A wrong answer on purpose: the sort along the wrong axis, a slip found in the wild."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.libraries import Job, Solver, read_value
from benchmarks.libraries.plain_numpy import describe
from benchmarks.problems import Data

__all__ = ["describe", "prepare"]


def prepare(job: Job, data: Data) -> Solver:
    x, y, theta = data["x"], data["y"], data["theta"]

    def call(seed: int) -> Any:
        return ((np.sort(theta @ x.T, axis=0) - np.sort(theta @ y.T, axis=0)) ** 2).mean()

    return Solver(call, read_value)
