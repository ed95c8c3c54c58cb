"""The same for gradients: how far the gradient by the points of a cloud is from its mean, squared."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.variance.measure import POWERS, SCORES, Effort, Row, key_of
from benchmarks.variance.methods import DISTANCES, METHODS, Case, Method
from benchmarks.variance.problems import Problem, Unavailable

FULL = Effort(seconds=3.0, least=12, most=64)
SMOKE = Effort(seconds=0.05, least=4, most=6)

# Losses take no control variate, and a fixed set is the same at every step: neither has a place here.
_GRADIENTS = [m for m in METHODS if m.unbiased and "gaussian" not in m.name and (m.sampler or m.draw)]


def measure_gradients(
    problems: Iterable[Problem],
    known: Sequence[Row],
    keep: Callable[[Row], None],
    say: Callable[[str], None],
    *,
    smoke: bool = False,
) -> None:
    """Run what is not known yet on the first data set of each problem."""
    torch = importlib.import_module("torch")
    done = {key_of(row) for row in known}
    for problem in problems:
        try:
            clouds = problem.make(0)
        except Unavailable as error:
            say(f"gradients, {problem.title}: skipped, {error}")
            continue
        for score in SCORES:
            for p in POWERS:
                case = Case(*clouds, score, p, problem.n_directions)
                for method in _GRADIENTS:
                    about = {
                        "group": "gradients",
                        "problem": problem.name,
                        "dim": problem.dim,
                        "n": len(case.x),
                        "m": len(case.y),
                        "directions": problem.n_directions,
                        "set": 0,
                        "score": score,
                        "p": p,
                        "method": method.name,
                    }
                    if method.takes(case) and key_of(about) not in done:
                        keep(about | _repeat(torch, method, case, SMOKE if smoke else FULL))
        say(f"gradients, {problem.title}")


def _repeat(torch: Any, method: Method, case: Case, effort: Effort) -> Row:
    x, y = torch.as_tensor(case.x).requires_grad_(), torch.as_tensor(case.y)
    _gradient(torch, method, case, x, y, 0)
    start = time.process_time()
    found: list[np.ndarray[Any, Any]] = []
    while len(found) < effort.least or (
        len(found) < effort.most and time.process_time() - start < effort.seconds
    ):
        found.append(_gradient(torch, method, case, x, y, 1 + len(found)))
    seconds = (time.process_time() - start) / len(found)
    table = np.stack(found)
    # Squared distances from the mean, one a repetition; their mean is the trace of the covariance.
    n = len(table)
    squares = ((table - table.mean(axis=0)) ** 2).sum(axis=1) * n / (n - 1)
    return {
        "ours": method.ours,
        "unbiased": True,
        "exact": False,
        "repetitions": n,
        "mean": float(np.linalg.norm(table.mean(axis=0))),
        "variance": float(squares.mean()),
        "fourth_moment": float(np.mean(squares**2)),
        "seconds": seconds,
        "score_variance": None,
    }


def _gradient(torch: Any, method: Method, case: Case, x: Any, y: Any, seed: int) -> np.ndarray[Any, Any]:
    if method.sampler is not None:
        options = {"directions": method.sampler, "n_directions": case.n_directions, "rng": seed}
    else:
        assert method.draw is not None
        options = {"directions": torch.as_tensor(method.draw(case.n_directions, case.dim, seed))}
    value = DISTANCES[case.score](x, y, case.p, control=None, workers=1, **options).value
    (gradient,) = torch.autograd.grad(value, x)
    return np.ravel(gradient.numpy())
