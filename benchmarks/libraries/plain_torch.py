"""What one writes in torch without a library: project, sort, mean, and autograd; on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.libraries import Answer, Job, NotOffered, Solver, read_value
from benchmarks.libraries.plain_numpy import quantile_pairs
from benchmarks.problems import COPIES, Data


def describe() -> dict[str, Any]:
    return {"version": torch.__version__, "threads": {"torch": torch.get_num_threads()}}


def prepare(job: Job, data: Data) -> Solver:
    x, y, theta = (torch.as_tensor(data[name]) for name in ("x", "y", "theta"))
    if job.task == "matmul":
        return Solver(lambda seed: (theta @ x.T, theta @ y.T), _read_pair, wait_on(x))
    if job.task == "copy":
        source = torch.cat([x, y] * COPIES)
        target = torch.empty_like(source)
        return Solver(lambda seed: target.copy_(source), _read_copy, wait_on(x))
    if job.task not in ("sliced", "gradient", "gradients", "projected", "projected_gradients"):
        raise NotOffered(job.task)
    distance: Any = projected if job.task.startswith("projected") else sliced
    options: tuple[Any, ...] = (job.p,)
    if "x_weights" in data:
        distance = weighted
        options = (job.p, *(torch.as_tensor(data[f"{name}_weights"]) for name in ("x", "y")))
    elif len(x) != len(y):
        pairs = quantile_pairs(len(x), len(y))
        options = (job.p, tuple(torch.as_tensor(part, device=x.device) for part in pairs))
    generator = torch.Generator(x.device).manual_seed(0)
    if job.form == "compiled":
        torch.compiler.reset()
        # Elsewhere only the way through the code is of interest, and no C++ compiler is asked for.
        distance = torch.compile(distance, dynamic=False, backend="inductor" if x.is_cuda else "eager")

    def forward(seed: int) -> torch.Tensor:
        rows = theta if job.directions == "given" else _iid(job.n_directions, x, generator)
        value: torch.Tensor = distance(x, y, rows, *options)
        return value

    return solver_of(job, x, y, forward)


def sliced(x: torch.Tensor, y: torch.Tensor, theta: torch.Tensor, p: float, pairs: Any = None) -> torch.Tensor:
    px, py = torch.sort(theta @ x.T).values, torch.sort(theta @ y.T).values
    if pairs is not None:
        ix, iy, mass = pairs
        return (_power(px[:, ix] - py[:, iy], p) @ mass.to(px.dtype)).mean()
    return _power(px - py, p).mean()


def weighted(
    x: torch.Tensor,
    y: torch.Tensor,
    theta: torch.Tensor,
    p: float,
    x_weights: torch.Tensor,
    y_weights: torch.Tensor,
) -> torch.Tensor:
    """Quantile functions meet between the cuts of both clouds, in float64: sums of a million weights round."""
    px, x_order = torch.sort(theta @ x.T)
    py, y_order = torch.sort(theta @ y.T)
    x_ends, y_ends = (
        weights.double()[order].cumsum(1) for weights, order in ((x_weights, x_order), (y_weights, y_order))
    )
    cuts = torch.sort(torch.cat([x_ends, y_ends], 1), 1).values
    i, j = (torch.searchsorted(ends, cuts).clamp_(max=ends.shape[1] - 1) for ends in (x_ends, y_ends))
    mass = torch.diff(cuts, dim=1, prepend=torch.zeros_like(cuts[:, :1]))
    gap = torch.gather(px, 1, i) - torch.gather(py, 1, j)
    return (_power(gap, p) * mass.to(gap.dtype)).sum(1).mean()


def projected(x: torch.Tensor, y: torch.Tensor, theta: torch.Tensor, p: float) -> torch.Tensor:
    """Squared full-space cost of the couplings, for p = 2."""
    i, j = torch.argsort(theta @ x.T), torch.argsort(theta @ y.T)
    return ((x[i] - y[j]) ** 2).sum(-1).mean()


def _power(gap: torch.Tensor, p: float) -> torch.Tensor:
    if p == 1:
        return gap.abs()
    return gap**2 if p == 2 else gap.abs() ** p


def solver_of(job: Job, x: torch.Tensor, y: torch.Tensor, forward: Callable[[int], Any]) -> Solver:
    """What solves a problem given what computes its value from torch tensors."""
    if job.task.endswith(("gradient", "gradients")):
        return _gradients_of((x,) if job.task == "gradient" else (x, y), forward)
    return Solver(forward, read_value, wait_on(x))


def _gradients_of(clouds: tuple[torch.Tensor, ...], forward: Callable[[int], Any]) -> Solver:
    """Forward and backward: a value and the gradients of the points of these clouds."""
    for cloud in clouds:
        cloud.requires_grad_()

    def call(seed: int) -> torch.Tensor:
        for cloud in clouds:
            cloud.grad = None
        value: torch.Tensor = forward(seed)
        value.backward()
        return value

    def read(value: torch.Tensor) -> Answer:
        vector = torch.cat([cloud.grad.flatten() for cloud in clouds])
        return {"value": value.item(), "vector": vector.cpu().numpy()}

    return Solver(call, read, wait_on(clouds[0]))


def wait_on(x: torch.Tensor) -> Any:
    """What waits for the device of a tensor."""
    return lambda result: torch.cuda.synchronize(x.device) if x.is_cuda else None


def _iid(count: int, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    theta = torch.randn(count, x.shape[1], generator=generator, dtype=x.dtype, device=x.device)
    return torch.nn.functional.normalize(theta)


def _read_pair(pair: tuple[torch.Tensor, ...]) -> Answer:
    return {"value": sum(part.double().square().mean().item() for part in pair)}


def _read_copy(copy: torch.Tensor) -> Answer:
    return {"value": copy.double().square().mean().item()}
