"""How far out codes lie, and how far they are from the disc's law."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import orthoslice as osl
from experiments.fig5_hidden_codes.config import Config, Run
from experiments.fig5_hidden_codes.training import codes_path
from experiments.trainings import Files, Row, read_rows, rounded

Floats = NDArray[np.float64]

COLUMNS = (
    *("kind", "learning_rate", "distance", "seed", "sweep", "loss", "reconstruction", "penalty"),
    *("mean_radius", "radius_95", "share_outside", "w2", "w2_of_prior", "x", "y"),
)
"""Rows are of three kinds: a sweep of a run, the codes that a run has left, and one code of them.

Of the disc's law the mean radius is 2/3, 95% lie within a radius of 0.975, and none is outside. `w2` is the
exact W_2 between clouds of `Config.n_exact` codes and of as many points of the disc's law, a mean over clouds.
`w2_of_prior` is the same between two clouds of that law: codes that follow it would get that.
"""


def collect(rows: list[Row], runs: list[Run], folder: Path, config: Config) -> list[Row]:
    """Rows of all kinds; single codes are those of the first run of a distance that has left any."""
    made = [_complete({"kind": "sweep"} | row) for row in rows]
    rng = np.random.default_rng(config.seed)
    n_clouds = config.n_codes // config.n_exact
    references = [draw_disc(2 * config.n_exact, rng).reshape(2, -1, 2) for _ in range(n_clouds)]
    of_prior = float(np.mean([osl.wasserstein(a, b).distance for a, b in references]))
    drawn: set[tuple[float, str]] = set()
    for run in runs:
        path = codes_path(folder / run.name)
        if not path.exists():
            continue
        codes = np.load(path).astype(float)
        # The same points of the disc for all runs.
        clouds = zip(np.split(codes, n_clouds), references, strict=True)
        w2 = float(np.mean([osl.wasserstein(cloud, prior).distance for cloud, (prior, _) in clouds]))
        last = read_rows(Files.of(run.name, folder).rows)[-1]
        made.append(_complete({"kind": "codes"} | last | measure(codes) | {"w2": w2, "w2_of_prior": of_prior}))
        if run[:2] not in drawn:
            drawn.add(run[:2])
            points = codes[: config.n_drawn].tolist()
            made += [_complete({"kind": "code"} | run._asdict() | {"x": x, "y": y}) for x, y in points]
    return made


def measure(codes: Floats) -> Row:
    """Numbers for the spread of codes `(n, 2)`."""
    radius = np.linalg.norm(codes, axis=1)
    return {
        "mean_radius": float(radius.mean()),
        "radius_95": float(np.quantile(radius, 0.95)),
        "share_outside": float((radius > 1).mean()),
    }


def draw_disc(n: int, rng: np.random.Generator) -> Floats:
    """Points of the uniform law on the unit disc."""
    radius, angle = np.sqrt(rng.random(n)), 2 * np.pi * rng.random(n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _complete(row: Row) -> Row:
    """All columns, None for what a row of its kind does not have; four digits for codes, which are many."""
    digits = 4 if row["kind"] == "code" else 6
    return rounded({name: row.get(name) for name in COLUMNS}, digits)
