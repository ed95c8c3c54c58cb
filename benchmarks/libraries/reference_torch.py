"""The right answers in float64 on the device of the data, a few directions at a time. Never timed.

For clouds of one size and p = 2. Gradients are written out: nothing here is left to autograd.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.agreement import COUPLING_TOLERANCE
from benchmarks.libraries import Answer, Job, NotOffered, Solver
from benchmarks.libraries.plain_torch import describe
from benchmarks.problems import Data

__all__ = ["describe", "prepare"]

_CHUNK_ELEMENTS = 1 << 25


def prepare(job: Job, data: Data) -> Solver:
    clouds = [data[name].double() for name in ("x", "y")]
    solve = {
        "sliced": _sliced,
        "gradient": _sliced,
        "gradients": _sliced,
        "projected": _projected,
        "projected_gradients": _projected,
        "matmul": _squares,
        "copy": _mean_square,
    }.get(job.task)
    is_weighted = "x_weights" in data
    if (
        solve is None
        or len(clouds[0]) != len(clouds[1])
        or job.p != 2
        or (is_weighted and solve is not _sliced)
    ):
        raise NotOffered(job.task)
    if is_weighted:
        weights = (data[f"{name}_weights"].double() for name in ("x", "y"))
        answer = _weighted(*clouds, data["theta"].double(), *(w / w.sum() for w in weights))
    else:
        answer = solve(*clouds, data["theta"].double())
    if job.task == "gradient":
        answer["vector"] = answer["vector"][: clouds[0].numel()]
    elif not job.task.endswith("gradients"):
        answer.pop("vector", None)
    return Solver(lambda seed: answer, lambda answer: answer)


def _orders(x: Any, y: Any, theta: Any, width: int = 1) -> Iterator[tuple[Any, ...]]:
    """Some directions at a time: they, projections sorted and where they came from, of both clouds."""
    rows = max(1, _CHUNK_ELEMENTS // (width * len(x)))
    for part in theta.split(rows):
        yield part, torch.sort(part @ x.T), torch.sort(part @ y.T)


def _sliced(x: Any, y: Any, theta: Any) -> Answer:
    """The mean of the scores, its standard error had the directions been drawn independently, and gradients."""
    scores, gradients = [], [torch.zeros_like(x), torch.zeros_like(y)]
    for part, px, py in _orders(x, y, theta):
        gap = px.values - py.values
        scores.append((gap**2).mean(1))
        for gradient, order, sign in zip(gradients, (px.indices, py.indices), (1, -1), strict=True):
            slopes = torch.empty_like(gap).scatter_(1, order, 2 * sign * gap)
            gradient.addmm_(slopes.T, part, alpha=1 / (len(x) * len(theta)))
    all_scores = torch.cat(scores)
    stderr = all_scores.std().item() / len(theta) ** 0.5
    return {"value": all_scores.mean().item(), "stderr": stderr, "vector": _flat(gradients)}


def _weighted(x: Any, y: Any, theta: Any, x_weights: Any, y_weights: Any) -> Answer:
    """As :func:`_sliced`, where points have weights."""
    scores, gradients = [], [torch.zeros_like(x), torch.zeros_like(y)]
    # About eight tables as long as both clouds stand beside each other.
    for part, px, py in _orders(x, y, theta, width=4):
        ends = [weights[one.indices].cumsum(1) for weights, one in ((x_weights, px), (y_weights, py))]
        cuts = torch.sort(torch.cat(ends, 1), 1).values
        mass = torch.diff(cuts, dim=1, prepend=torch.zeros_like(cuts[:, :1]))
        ranks = [torch.searchsorted(own, cuts).clamp_(max=own.shape[1] - 1) for own in ends]
        gap = px.values.gather(1, ranks[0]) - py.values.gather(1, ranks[1])
        scores.append((gap**2 * mass).sum(1))
        for gradient, one, rank, sign in zip(gradients, (px, py), ranks, (1, -1), strict=True):
            slopes = torch.zeros_like(one.values).scatter_add_(
                1, one.indices.gather(1, rank), sign * gap * mass
            )
            gradient.addmm_(slopes.T, part, alpha=2 / len(theta))
    return {"value": torch.cat(scores).mean().item(), "vector": _flat(gradients)}


def _projected(x: Any, y: Any, theta: Any) -> Answer:
    value, gradients = 0.0, [torch.zeros_like(x), torch.zeros_like(y)]
    count = len(x) * len(theta)
    for _, px, py in _orders(x, y, theta, width=x.shape[1]):
        i, j = px.indices.flatten(), py.indices.flatten()
        gap = x[i] - y[j]
        value += (gap**2).sum().item() / count
        gradients[0].index_add_(0, i, gap, alpha=2 / count)
        gradients[1].index_add_(0, j, gap, alpha=-2 / count)
    return {"value": value, "vector": _flat(gradients), "vector_tolerance": COUPLING_TOLERANCE}


def _squares(x: Any, y: Any, theta: Any) -> Answer:
    return {"value": sum((theta @ points.T).square().mean().item() for points in (x, y))}


def _mean_square(x: Any, y: Any, theta: Any) -> Answer:
    return {"value": torch.cat([x, y]).square().mean().item()}


def _flat(gradients: list[Any]) -> Any:
    return torch.cat([gradient.flatten() for gradient in gradients]).cpu().numpy()
