"""What one writes in NumPy without a library: project, sort, mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.libraries import Job, NotOffered, Solver, read_projections, read_value
from benchmarks.problems import Data


def describe() -> dict[str, Any]:
    return {"version": np.__version__, "threads": blas_threads()}


def blas_threads() -> dict[str, int]:
    """Threads of the BLAS library that NumPy loaded."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return {}
    counts = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {"blas": max(counts)} if counts else {}


def prepare(job: Job, data: Data) -> Solver:
    x, y, theta = data["x"], data["y"], data["theta"]
    if job.task == "project":
        return Solver(lambda seed: _orthogonal(job.n_directions, x, seed) @ x.T, read_projections)
    if job.task == "matmul":
        return Solver(lambda seed: (theta @ x.T, theta @ y.T), _read_pair)
    if job.task == "sort":
        px, py = theta @ x.T, theta @ y.T
        return Solver(lambda seed: (np.sort(px), np.sort(py)), _read_pair)
    if job.task == "projected":
        return Solver(lambda seed: projected(x, y, theta), read_value)
    if job.task != "sliced":
        raise NotOffered(job.task)
    if job.directions == "iid":
        return Solver(lambda seed: sliced(x, y, _iid(job.n_directions, x, seed), job.p), read_value)
    if len(x) == len(y):
        return Solver(lambda seed: sliced(x, y, theta, job.p), read_value)
    pairs = quantile_pairs(len(x), len(y))
    return Solver(lambda seed: sliced_unequal(x, y, theta, job.p, pairs), read_value)


def sliced(x: Any, y: Any, theta: Any, p: float) -> Any:
    gap = np.sort(theta @ x.T) - np.sort(theta @ y.T)
    return _power(gap, p).mean()


def sliced_unequal(x: Any, y: Any, theta: Any, p: float, pairs: tuple[Any, Any, Any]) -> Any:
    ix, iy, mass = pairs
    gap = np.sort(theta @ x.T)[:, ix] - np.sort(theta @ y.T)[:, iy]
    return (_power(gap, p) @ mass.astype(gap.dtype)).mean()


def _power(gap: Any, p: float) -> Any:
    if p == 1:
        return np.abs(gap)
    return gap**2 if p == 2 else np.abs(gap) ** p


def quantile_pairs(n: int, m: int) -> tuple[Any, Any, Any]:
    """Which ranks of n and of m points meet, and the mass they share.

    Quantile functions are constant between the cuts i / n and j / m; in integers these are exact.
    """
    cuts = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    return (cuts - 1) // m, (cuts - 1) // n, np.diff(cuts, prepend=0) / (n * m)


def projected(x: Any, y: Any, theta: Any) -> Any:
    """Squared full-space cost of the couplings, one direction at a time, as memory asks."""
    orders = zip(np.argsort(theta @ x.T), np.argsort(theta @ y.T), strict=True)
    return np.mean([((x[i] - y[j]) ** 2).sum(dtype=np.float64) for i, j in orders]) / len(x)


def _iid(count: int, x: Any, seed: int) -> Any:
    theta = np.random.default_rng(seed).standard_normal((count, x.shape[1]), dtype=x.dtype)
    return theta / np.linalg.norm(theta, axis=1, keepdims=True)


def _orthogonal(count: int, x: Any, seed: int) -> Any:
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((x.shape[1], count), dtype=x.dtype))
    return (q * np.sign(np.diagonal(r))).T


def _read_pair(pair: Any) -> dict[str, float]:
    return {"value": sum(float((part.astype(np.float64) ** 2).mean()) for part in pair)}
