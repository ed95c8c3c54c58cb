"""What one writes in torch without a library: project, sort, mean, and autograd."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.libraries import Answer, Job, NotOffered, Solver, read_value
from benchmarks.libraries.plain_numpy import quantile_pairs
from benchmarks.problems import Data


def describe() -> dict[str, Any]:
    return {"version": torch.__version__, "threads": {"torch": torch.get_num_threads()}}


def prepare(job: Job, data: Data) -> Solver:
    x, y, theta = (torch.from_numpy(data[name]) for name in ("x", "y", "theta"))
    pairs = None if len(x) == len(y) else tuple(map(torch.from_numpy, quantile_pairs(len(x), len(y))))
    if job.task not in ("sliced", "gradient"):
        raise NotOffered(job.task)

    def forward(seed: int) -> torch.Tensor:
        rows = theta if job.directions == "given" else _iid(job.n_directions, x, seed)
        px, py = torch.sort(rows @ x.T).values, torch.sort(rows @ y.T).values
        if pairs is not None:
            ix, iy, mass = pairs
            return (_power(px[:, ix] - py[:, iy], job.p) @ mass.to(px.dtype)).mean()
        return _power(px - py, job.p).mean()

    if job.task == "gradient":
        return gradient_of(x, forward)

    def call(seed: int) -> torch.Tensor:
        with torch.no_grad():
            return forward(seed)

    return Solver(call, read_value)


def _power(gap: torch.Tensor, p: float) -> torch.Tensor:
    if p == 1:
        return gap.abs()
    return gap**2 if p == 2 else gap.abs() ** p


def gradient_of(x: Any, forward: Any) -> Solver:
    """Forward and backward: a value and the gradient of the points."""
    x.requires_grad_()

    def call(seed: int) -> torch.Tensor:
        x.grad = None
        value: torch.Tensor = forward(seed)
        value.backward()
        return value

    def read(value: torch.Tensor) -> Answer:
        return {"value": value.item(), "vector": x.grad.numpy().ravel()}

    return Solver(call, read)


def _iid(count: int, x: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(count, x.shape[1], generator=generator, dtype=x.dtype)
    return theta / torch.linalg.norm(theta, dim=1, keepdim=True)
