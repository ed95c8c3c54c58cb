"""What a step costs with each estimator: ``python -m experiments.fig3_swae.timing``, on a machine at rest.

Steps of all estimators take turns in one process, so that a busy machine slows all of them alike. Beside the
whole step, the distance alone is timed: its value and its gradient by the codes, directions drawn. Images are
the digits of the package, as large as the others: what is on them does not change the time.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.fig3_swae.config import ESTIMATORS, FREE, SMOKE, Config, Run, make_training
from experiments.trainings import Place, Row, command, read_rows, rounded, write_rows

FILE = "timing.csv"
KEPT = Path(__file__).resolve().parents[1] / "results" / "fig3_swae_timing.csv"
"""Rows of a GPU, where they were kept: claims on time rest on them."""

# Of the digits of the package.
_IMAGES = 1500


def measure(config: Config, place: Place) -> list[Row]:
    """A row for each count of directions, estimator and round: milliseconds a step, and of the distance."""
    import torch

    config = dataclasses.replace(config, data="digits", n_images=min(config.n_images, _IMAGES))
    wait: Callable[[], Any] = torch.cuda.synchronize if place.device.startswith("cuda") else int
    trainings: dict[tuple[int, str], Any] = {}
    for count in (config.n_directions, *config.extra_counts):
        for estimator in config.estimators:
            run = Run(config.data, config.precision, count, config.learning_rates[0], estimator, 0)
            trainings[count, estimator] = make_training(run, config, place)

    def seconds(call: Callable[[], Any]) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(config.n_timing_steps):
            call()
        wait()
        return (time.perf_counter() - start) / config.n_timing_steps

    rows: list[Row] = []
    # The first round only warms up.
    for number in range(config.n_timing_rounds + 1):
        for (count, estimator), training in trainings.items():
            chosen = torch.arange(config.batch_size, device=place.device)
            codes = training.encode(config.batch_size)
            prior = training.draw_prior(training.generator)
            step = seconds(lambda chosen=chosen, training=training: training.step(chosen))
            distance = seconds(
                lambda codes=codes, prior=prior, loss=training.loss: loss.value_and_grad(codes, prior)
            )
            row = {"device": place.device.split(":")[0], "n_directions": count, "estimator": estimator}
            row |= {"round": number, "step_ms": 1e3 * step, "distance_ms": 1e3 * distance}
            rows += [rounded(row)] if number else []
    return rows


def measure_into(config: Config, folder: Path, place: Place) -> None:
    """Measure, keep the rows beside those of the trainings, and print what they say."""
    write_rows(folder / FILE, measure(config, place))
    print(table(read_rows(folder / FILE)))


def summarize(rows: list[Row]) -> dict[tuple[int, str], dict[str, float]]:
    """Medians over rounds, and their standard errors, for each count of directions and estimator."""
    found: dict[tuple[int, str], dict[str, float]] = {}
    for key in dict.fromkeys((row["n_directions"], row["estimator"]) for row in rows):
        part = [row for row in rows if (row["n_directions"], row["estimator"]) == key]
        found[key] = {}
        for name in ("step_ms", "distance_ms"):
            values = [row[name] for row in part]
            found[key][name] = statistics.median(values)
            # Of the median of normal values; 0 for a single one.
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            found[key][f"{name}_stderr"] = 1.2533 * spread / len(values) ** 0.5
    return found


def table(rows: list[Row]) -> str:
    """Markdown, a row a count of directions and estimator."""
    head = ("directions", "estimator", "ms a step", "ms of it for the distance")
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for (count, estimator), found in summarize(rows).items():
        cells = [f"{found[name]:.3g} ± {found[f'{name}_stderr']:.1g}" for name in ("step_ms", "distance_ms")]
        lines.append(f"| {count} | {ESTIMATORS[estimator]} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    # Nothing is trained here.
    none = lambda config, place: []  # noqa: E731
    sys.exit(command("fig3_swae", __doc__, (Config(), SMOKE), none, FREE, measure_into))
