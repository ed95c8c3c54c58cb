"""Noise paired with data, pool by pool: at random, by `osl.match`, or as cheaply as can be.

Pairs depend on nothing that is trained, so they are made first, and how long that takes is measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import orthoslice as osl
from experiments.flow_matching.config import Config, PairingName, ProblemName, Run, list_runs
from experiments.flow_matching.problems import Floats, Problem, make_problem, noise_and_data
from experiments.trainings import replacing

Partners = NDArray[np.int64]


class Pairs(NamedTuple):
    """How the pools of a seed are paired."""

    partner: NDArray[np.uint16]
    """(pools, pool_size): which point of a pool's data every point of its noise goes to"""
    cost: NDArray[np.float64]
    """(pools,): mean squared distance of pairs"""
    seconds: NDArray[np.float64]
    """(pools,)"""


def _independent(x: Floats, y: Floats, seed: int) -> Partners:
    # Both are independent draws as they stand.
    return np.arange(len(x))


def _match(x: Floats, y: Floats, seed: int) -> Partners:
    return np.asarray(osl.match(x, y, rng=seed).iy)


def _exact(x: Floats, y: Floats, seed: int) -> Partners:
    """With the matrix of costs, as is usual for minibatches."""
    return np.asarray(linear_sum_assignment(cdist(x, y, "sqeuclidean"))[1])


PAIRINGS: dict[PairingName, Callable[[Floats, Floats, int], Partners]] = {
    "independent": _independent,
    "match": _match,
    "exact": _exact,
}


def pair_pools(
    pairings: tuple[PairingName, ...], problem: Problem, config: Config, seed: int
) -> dict[str, Pairs]:
    """Pair all pools of a seed in every way, in turn, so that times can be compared."""
    noise, data = (
        part.reshape(config.n_pools, config.pool_size, problem.dim)
        for part in noise_and_data(problem, config, seed)
    )
    found: dict[str, list[tuple[Any, float, float]]] = {name: [] for name in pairings}
    for pool, (x, y) in enumerate(zip(noise, data, strict=True)):
        for name in pairings:
            start = time.perf_counter()
            partner = PAIRINGS[name](x, y, pool)
            seconds = time.perf_counter() - start
            cost = float(np.square(x - y[partner], dtype=np.float64).sum(axis=1).mean())
            found[name].append((partner.astype(np.uint16), cost, seconds))
    return {name: Pairs(*map(np.array, zip(*parts, strict=True))) for name, parts in found.items()}


def make_pairs(config: Config, folder: Path) -> None:
    """Make all pairs that are not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    # Kernels are compiled or read from disk at the first call.
    for pair in PAIRINGS.values():
        pair(*np.zeros((2, 300, 2), np.float32), 0)
    for name in config.problems:
        problem = None
        for seed in range(config.n_seeds):
            missing = tuple(
                run.pairing
                for run in list_runs(config)
                if run.seed == seed and not _path(name, run, folder).exists()
            )
            if not missing:
                continue
            problem = problem or make_problem(name, config)
            for pairing, pairs in pair_pools(missing, problem, config, seed).items():
                with replacing(_path(name, Run(pairing, seed), folder)) as partial, partial.open("wb") as file:
                    np.savez_compressed(file, **pairs._asdict())
            print(f"{name}, seed {seed}: paired", file=sys.stderr, flush=True)


def read_pairs(problem: ProblemName, run: Run, folder: Path) -> Pairs:
    """The pairs of a run."""
    path = _path(problem, run, folder)
    if not path.exists():
        raise FileNotFoundError(
            f"Noise must be paired with data before training; there is no {path}. Run "
            "`python -m experiments.flow_matching --pair` first."
        )
    with np.load(path) as file:
        return Pairs(**file)


def paired(problem: Problem, config: Config, run: Run, folder: Path) -> tuple[Floats, Floats]:
    """Noise and data of a run, `(n_pairs, dim)`, row by row in pairs."""
    noise, data = noise_and_data(problem, config, run.seed)
    first = config.pool_size * np.arange(config.n_pools)[:, None]
    return noise, data[(first + read_pairs(problem.name, run, folder).partner).ravel()]


def _path(problem: ProblemName, run: Run, folder: Path) -> Path:
    return folder / f"pairs_{problem}_{run.pairing}_{run.seed}.npz"
