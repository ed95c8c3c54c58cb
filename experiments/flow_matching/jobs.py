"""Pairs, trainings, and what is measured of them afterwards."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.flow_matching.config import EULER_STEPS, Config, ProblemName, list_runs
from experiments.flow_matching.pairs import make_pairs, read_pairs
from experiments.flow_matching.problems import Problem, fresh_samples, make_problem
from experiments.trainings import WORK, Job, Place, claim_folder, note_machine, train_all

NAME = "flow_matching"
FOLDER = WORK / NAME

FREE = ("problems", "pairings", "n_seeds", "is_kept")
"""Settings that say which runs there are; the others say what a run is."""

COLUMNS = (
    *("kind", "problem", "pairing", "seed", "euler_steps", "w2", "sw2", "bend", "length"),
    *("pair_cost", "pair_seconds", "number", "t", "x", "y", "pixels"),
)
"""Rows are of four kinds.

- ``measured``: distances to data after a number of Euler steps, and how bent paths are;
- ``paired``: the mean squared distance of pairs, and the median of seconds that a pool took;
- ``path``: a place of a path, drawn;
- ``image``: pixels of a digit, row by row, a byte each, in base 64.
"""

TARGET = "target"
"""The pairing of rows that compare data to train with and data to compare with."""


def prepare(config: Config, folder: Path) -> None:
    """Pair noise with data, as far as that is not done."""
    claim_folder(folder, config, FREE)
    make_pairs(config, folder)


def train(config: Config, folder: Path, place: Place, *, minutes: float | None = None) -> bool:
    """Train what is not trained yet; returns whether all is."""
    claim_folder(folder, config, FREE)
    jobs = [_make_job(name, config, folder, place.device) for name in config.problems]
    if not train_all(jobs, folder, minutes=0):
        return True
    note_machine(folder, place)
    return not train_all(jobs, folder, minutes=minutes)


def _make_job(name: ProblemName, config: Config, folder: Path, device: str) -> Job:
    """All runs of a problem are one job."""
    make = functools.partial(_make_training, name, config, folder, device)
    return Job(_stem(name), {}, config.n_units, make)


def _make_training(name: ProblemName, config: Config, folder: Path, device: str) -> Any:
    # Late, so that what only draws loads no torch.
    from experiments.flow_matching.training import FlowTraining

    return FlowTraining(name, config, folder, device)


def _stem(name: ProblemName) -> str:
    return f"flow_{name}"


def measure(config: Config, folder: Path) -> list[dict[str, Any]]:
    """Rows of what pairs and trainings left in a folder."""
    return [row for name in config.problems for row in _measure(make_problem(name, config), config, folder)]


def _measure(problem: Problem, config: Config, folder: Path) -> Iterator[dict[str, Any]]:
    with np.load(folder / f"{_stem(problem.name)}.npz") as file:
        left = dict(file)
    runs = list_runs(config)
    make = functools.partial(_row, problem=problem.name)
    for run in runs:
        pairs = read_pairs(problem.name, run, folder)
        seconds = float(np.median(pairs.seconds))
        yield make(kind="paired", **run._asdict(), pair_cost=float(pairs.cost.mean()), pair_seconds=seconds)
    for seed in range(config.n_seeds):
        target, other = fresh_samples(problem, config, seed)
        yield make(kind="measured", pairing=TARGET, seed=seed, **_distances(other, target))
        for number, run in enumerate(runs):
            if run.seed != seed:
                continue
            bent = {name: float(left[name][number]) for name in ("bend", "length")}
            for steps, points in zip(EULER_STEPS, left["points"][:, number], strict=True):
                found = _distances(points, target)
                yield make(kind="measured", **run._asdict(), euler_steps=steps, **found, **bent)
    yield from _drawn(make, problem, config, left)


def _distances(points: NDArray[np.float32], target: NDArray[np.float32]) -> dict[str, float]:
    import orthoslice as osl

    sliced = osl.sliced_wasserstein(points, target, 2, n_directions=1024, directions="orthogonal", rng=0)
    return {"w2": float(osl.wasserstein(points, target).distance), "sw2": float(sliced.distance)}


def _drawn(make: Any, problem: Problem, config: Config, left: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Paths in the plane, and digits, of the first seed."""
    for at, pairing in enumerate(config.pairings):
        if problem.to_images is None:
            paths = left["paths"][:, at]
            for number in range(paths.shape[1]):
                for t, (x, y) in zip(np.linspace(0, 1, len(paths)), paths[:, number], strict=True):
                    # More digits than a picture shows.
                    place = {"t": round(float(t), 4), "x": round(float(x), 3), "y": round(float(y), 3)}
                    yield make(kind="path", pairing=pairing, seed=0, number=number, **place)
            continue
        for steps, images in zip(EULER_STEPS, left["images"][:, at], strict=True):
            for number, image in enumerate(images):
                pixels = base64.b64encode(image.tobytes()).decode()
                yield make(
                    kind="image", pairing=pairing, seed=0, euler_steps=steps, number=number, pixels=pixels
                )


def _row(**known: Any) -> dict[str, Any]:
    return {name: known.get(name) for name in COLUMNS}
