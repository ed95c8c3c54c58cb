"""What D costs, as a table: ``python -m experiments.fig4_trust_region.overhead TASK N_ROUNDS METHOD ...``.

Updates of all methods take turns in one process, so that a busy machine slows all of them alike; what counts is
the processor's time. An update is what PPO does with one rollout, D included.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence

import torch

from experiments.fig4_trust_region.config import Config, Run
from experiments.fig4_trust_region.ppo import TrustRegionPPO
from experiments.fig4_trust_region.training import make_model


def measure(task: str, n_rounds: int, methods: Sequence[str], config: Config) -> dict[str, list[float]]:
    """Seconds of an update with each method, one a round."""
    torch.set_num_threads(1)
    models: dict[str, TrustRegionPPO] = {}
    for method in methods:
        models[method], _ = make_model(Run(task, method, config.strength, 0), config)
        # One rollout and one update, after which everything is warm.
        models[method].learn(config.rollout_steps, log_interval=None)
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    for _ in range(n_rounds):
        for method, model in models.items():
            start = time.process_time()
            model.train()
            seconds[method].append(time.process_time() - start)
    return seconds


def main() -> None:
    """Print a row a method: medians, and the median of the ratios within rounds."""
    task, n_rounds, *methods = sys.argv[1:]
    seconds = measure(task, int(n_rounds), ["none", *methods], Config())
    print(f"| {task} | ms an update | least | more than without D | by the least |")
    print("| --- " * 5 + "|")
    for method, values in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(values, seconds["none"], strict=True))
        least, base = min(values), min(seconds["none"])
        print(
            f"| {method} | {1e3 * statistics.median(values):.0f} | {1e3 * least:.0f} "
            f"| {ratio - 1:.1%} | {least / base - 1:.1%} |"
        )


if __name__ == "__main__":
    main()
