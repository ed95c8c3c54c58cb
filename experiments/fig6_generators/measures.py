"""What is measured of the points that generators make."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import mixture
from experiments.fig6_generators.config import NAME, Config, Run, list_runs

COLUMNS = (
    *("kind", "method", "p", "seed", "steps", "w2", "central_modes", "perimeter_modes"),
    *("central_share", "reach", "x", "y"),
)
"""Rows are of two kinds: what is `measured` of a run after some steps, and single points that are `drawn`."""

TARGET = "target"
"""The method of rows that compare the target with another sample of itself."""


def collect(config: Config, folder: Path) -> list[dict[str, Any]]:
    """Rows of the points that a finished training left in its folder."""
    with np.load(folder / f"{NAME}.npz") as file:
        return measure(config, file["points"])


def measure(config: Config, points: NDArray[np.floating]) -> list[dict[str, Any]]:
    """Rows of the points `(units, runs, n, 2)` that a training left."""
    rows = [
        _row("measured", TARGET, None, seed, None, **_compare(config, seed)) for seed in range(config.n_seeds)
    ]
    runs = list_runs(config)
    for unit, of_runs in zip(config.measured_units, points, strict=True):
        steps = unit * config.unit_steps
        rows += [
            _row("measured", *run, steps, **_compare(config, run.seed, made))
            for run, made in zip(runs, of_runs, strict=True)
        ]
    return rows + list(_drawn(config, runs, points[-1]))


def _compare(config: Config, seed: int, made: NDArray[np.floating] | None = None) -> dict[str, float | int]:
    """Points beside a sample of the mixture that was not trained on; by default those of another sample."""
    import orthoslice as osl

    fresh, other = _fresh_samples(config, seed)
    made = other if made is None else made
    return {"w2": float(osl.wasserstein(made, fresh).distance), **mixture.describe(made)}


@functools.lru_cache(maxsize=64)
def _fresh_samples(config: Config, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    from experiments.stacked import generator_of

    first, second = (
        mixture.sample(config.n_points, generator_of("cpu", config.seed, seed, 100 + part)).numpy()
        for part in range(2)
    )
    return first, second


def _drawn(config: Config, runs: list[Run], made: NDArray[np.floating]) -> Iterator[dict[str, Any]]:
    """Points of the first seed, for the picture."""
    fresh, _ = _fresh_samples(config, 0)
    clouds = [((TARGET, None, 0), fresh), *((run, cloud) for run, cloud in zip(runs, made, strict=True))]
    for (method, p, seed), cloud in clouds:
        if seed == 0:
            for x, y in cloud[: config.n_drawn]:
                # Four digits are more than a picture shows.
                yield _row("drawn", method, p, seed, None, x=round(float(x), 4), y=round(float(y), 4))


def _row(kind: str, method: str, p: int | None, seed: int, steps: int | None, **values: Any) -> dict[str, Any]:
    known = {"kind": kind, "method": method, "p": p, "seed": seed, "steps": steps, **values}
    return {name: known.get(name) for name in COLUMNS}
