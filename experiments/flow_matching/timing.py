"""What pairing takes: ``python -m experiments.flow_matching.timing [POOL_SIZE ...]`` prints a table."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

import orthoslice as osl
from experiments.flow_matching.config import Config, ProblemName
from experiments.flow_matching.pairs import PAIRINGS
from experiments.flow_matching.problems import Floats, make_problem, noise_and_data

SIZES = (256, 512, 1024, 2048, 4096)
HEAD = ("problem", "pool", "match, s", "exact, s", "match on the GPU, s", "excess of match", "on the GPU")


def measure(problem: ProblemName, size: int, config: Config, n_pools: int = 3) -> tuple[Any, ...]:
    """A line of the table: medians over pools, each paired in all ways in turn; excess is of W_2."""
    config = replace(config, pool_size=size, n_pools=n_pools)
    law = make_problem(problem, config)
    noise, data = (part.reshape(n_pools, size, -1) for part in noise_and_data(law, config, 0))
    on_gpu = _gpu()
    ways = {"match": PAIRINGS["match"], "exact": PAIRINGS["exact"]} | ({"gpu": on_gpu} if on_gpu else {})
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for x, y in zip(noise, data, strict=True):
        for name, pair in ways.items():
            start = time.perf_counter()
            partner = pair(x, y, 0)
            seconds[name].append(time.perf_counter() - start)
            costs[name].append(float(np.square(x - y[partner], dtype=np.float64).sum(axis=1).mean()))
    excess = {name: float(np.sqrt(np.divide(costs[name], costs["exact"])).max() - 1) for name in ways}
    taken = (f"{np.median(seconds[name]):.3f}" if name in ways else "" for name in ("match", "exact", "gpu"))
    above = (f"{excess[name]:.2%}" if name in ways else "" for name in ("match", "gpu"))
    return problem, f"{size:,}", *taken, *above


def _gpu() -> Any:
    """Pairs by a GPU, both ways of the data included; None where there is none."""
    import torch

    if not torch.cuda.is_available():
        return None

    def pair(x: Floats, y: Floats, seed: int) -> Any:
        return osl.match(*(torch.as_tensor(a, device="cuda") for a in (x, y)), rng=seed).iy.cpu().numpy()

    return pair


def main() -> None:
    """Print a line for every problem and size."""
    sizes = [int(size) for size in sys.argv[1:]] or SIZES
    config = Config()
    print(f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|", sep="\n")
    for problem in config.problems:
        # Kernels are compiled or read from disk at the first call.
        measure(problem, 300, config, 1)
        for size in sizes:
            print(f"| {' | '.join(measure(problem, size, config))} |", flush=True)


if __name__ == "__main__":
    main()
