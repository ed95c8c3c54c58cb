"""The right answers, in float64 and a few directions at a time. Never timed."""

from __future__ import annotations

import numpy as np

from benchmarks.libraries import Answer, Job, Solver
from benchmarks.libraries.plain_numpy import describe, quantile_pairs
from benchmarks.problems import Data

__all__ = ["describe", "prepare"]

_CHUNK_ELEMENTS = 10_000_000


def prepare(job: Job, data: Data) -> Solver:
    wide = {name: array.astype(np.float64) for name, array in data.items()}
    tasks = {"projected": _projected, "gradient": _gradient, "project": _lengths}
    solve = tasks.get(job.task) or (_sliced if job.task == "sliced" else _squares)
    return Solver(lambda seed: solve(wide, job.p), lambda answer: answer)


def _chunks(data: Data) -> list[Data]:
    rows = max(1, _CHUNK_ELEMENTS // (len(data["x"]) + len(data["y"])))
    theta = data["theta"]
    return [data | {"theta": theta[k : k + rows]} for k in range(0, len(theta), rows)]


def _sliced(data: Data, p: float) -> Answer:
    """The mean of the scores, and its standard error had the directions been drawn independently."""
    ix, iy, mass = quantile_pairs(len(data["x"]), len(data["y"]))
    scores = np.concatenate(
        [
            np.abs(np.sort(part["theta"] @ part["x"].T)[:, ix] - np.sort(part["theta"] @ part["y"].T)[:, iy])
            ** p
            @ mass
            for part in _chunks(data)
        ]
    )
    return {"value": scores.mean(), "stderr": scores.std(ddof=1) / len(scores) ** 0.5}


def _gradient(data: Data, p: float) -> Answer:
    x, n, count = data["x"], len(data["x"]), len(data["theta"])
    value, gradient = 0.0, np.zeros_like(x)
    for part in _chunks(data):
        px, py = part["theta"] @ x.T, np.sort(part["theta"] @ part["y"].T)
        order = np.argsort(px)
        gap = np.take_along_axis(px, order, axis=1) - py
        slopes = np.empty_like(gap)
        np.put_along_axis(slopes, order, p * np.abs(gap) ** (p - 1) * np.sign(gap), axis=1)
        value += (np.abs(gap) ** p).sum()
        gradient += slopes.T @ part["theta"]
    return {"value": value / (n * count), "vector": gradient.ravel() / (n * count)}


def _projected(data: Data, p: float) -> Answer:
    x, y = data["x"], data["y"]
    px, py = data["theta"] @ x.T, data["theta"] @ y.T
    orders = zip(np.argsort(px), np.argsort(py), strict=True)
    costs = [(np.linalg.norm(x[i] - y[j], axis=1) ** p).mean() for i, j in orders]
    return {"value": np.mean(costs)}


def _lengths(data: Data, p: float) -> Answer:
    lengths = (data["x"] ** 2).sum(axis=1)
    return {"value": lengths.sum(), "vector": lengths}


def _squares(data: Data, p: float) -> Answer:
    """Mean squares of the projections, which sorting does not change."""
    parts = [(part["theta"] @ part[cloud].T) for part in _chunks(data) for cloud in ("x", "y")]
    return {"value": sum(float((part**2).sum()) / part.shape[1] for part in parts) / len(data["theta"])}
