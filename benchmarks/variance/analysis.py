"""From rows to errors: the truth of every cell, squared errors relative to iid, and what targets ask."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from benchmarks.targets import Target
from benchmarks.variance.measure import EXACT, Row
from benchmarks.variance.problems import SHOWN_SETS

Cell: TypeAlias = tuple[Any, ...]

# Fewer data sets do not show how they differ.
_ENOUGH_SETS = 5


class Ratio(NamedTuple):
    """The squared error of a method over that of as many iid directions, and its standard error."""

    value: float
    stderr: float
    seconds: float
    """Its time over that of iid directions."""


class Truth(NamedTuple):
    value: float
    stderr: float
    source: str


def cell_of(row: Row) -> Cell:
    """Rows that estimate the same number."""
    return tuple(row[k] for k in ("group", "problem", "dim", "directions", "set", "score", "p"))


def by_cell(rows: Iterable[Row]) -> dict[Cell, dict[str, Row]]:
    cells: dict[Cell, dict[str, Row]] = {}
    for row in rows:
        cells.setdefault(cell_of(row), {})[row["method"]] = row
    return cells


def truth_of(methods: dict[str, Row]) -> Truth:
    """The exact value, or the mean of the unbiased method that knows it best, over all of its repetitions."""
    if EXACT in methods:
        return Truth(methods[EXACT]["mean"], 0.0, EXACT)
    best = min(
        (row for row in methods.values() if row["unbiased"] and row["repetitions"] > 1),
        key=lambda row: row["variance"] / row["repetitions"],
    )
    return Truth(best["mean"], math.sqrt(best["variance"] / best["repetitions"]), best["method"])


def ratios_of(methods: dict[str, Row]) -> dict[str, Ratio]:
    """Of one cell; empty where iid directions have not been measured."""
    base = methods.get("iid")
    if base is None:
        return {}
    gradients = base["group"] == "gradients"
    iid = base["variance"] if base["score_variance"] is None else base["score_variance"] / base["directions"]
    if not iid > 0:
        return {}
    truth = None if gradients else truth_of(methods)
    found = {}
    for name, row in methods.items():
        if name == EXACT:
            continue
        error, n = row["variance"], row["repetitions"]
        square = 0.0 if n < 2 else math.sqrt(max(row["fourth_moment"] - error**2, 0.0) / n)
        if not row["unbiased"] and truth is not None:
            gap = row["mean"] - truth.value
            noise = error / n + truth.stderr**2
            error += max(gap**2 - noise, 0.0)
            square = math.hypot(square, 2 * abs(gap) * math.sqrt(noise))
        found[name] = Ratio(error / iid, square / iid, row["seconds"] / base["seconds"])
    return found


class Median(NamedTuple):
    """Over the data sets of a problem, with a standard error and a 95% interval."""

    value: float
    stderr: float
    low: float
    high: float
    seconds: float
    n_sets: int


def medians(rows: Iterable[Row]) -> dict[Cell, dict[str, Median]]:
    """Ratios of every problem (a cell without its data set), the median over its data sets."""
    gathered: dict[Cell, dict[str, list[Ratio]]] = {}
    for cell, methods in by_cell(rows).items():
        problem = (*cell[:4], *cell[5:])
        for name, ratio in ratios_of(methods).items():
            gathered.setdefault(problem, {}).setdefault(name, []).append(ratio)
    return {
        problem: {name: _median(found) for name, found in methods.items()}
        for problem, methods in gathered.items()
    }


def _median(found: Sequence[Ratio]) -> Median:
    values = np.array([ratio.value for ratio in found])
    errors = np.array([ratio.stderr for ratio in found])
    # Data sets and directions drawn anew both move the median. Ratios are positive: their errors are factors.
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(values), size=(2000, len(values)))
    factors = errors / np.where(values > 0, values, 1.0)
    if len(values) < _ENOUGH_SETS:
        noise = np.exp(rng.standard_normal(chosen.shape) * np.log1p(factors)[chosen])
        resampled = np.median(values[chosen] * noise, axis=1)
    else:
        # Sets differ by more than that, and what they differ by includes it.
        resampled = np.median(values[chosen], axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    seconds = float(np.median([ratio.seconds for ratio in found]))
    return Median(
        float(np.median(values)), float(resampled.std()), float(low), float(high), seconds, len(values)
    )


ASKED = {
    ("Gaussians M=1000", 2): (60, 30),
    ("Gaussians M=1000", 3): (30, 24),
    ("Gaussians M=1000", 5): (25, 23),
    ("Gaussians M=1000", 16): (6, 5),
    ("Gaussians M=1000", 64): (4.5, 4.5),
    ("digits 0 and 1", 64): (300, 7000),
    ("two noisy tori", 3): (1500, 15000),
}
"""How many times less squared error than iid directions, for p = 1 and p = 2."""

CHOSEN = "auto, 1 replicate"


def evaluate(rows: Sequence[Row]) -> list[Target]:
    """The targets, each met or not; those of problems that have not been run are left open."""
    found = medians(row for row in rows if row["group"] == "shown" and row["score"] == "SW")
    targets = []
    for (name, dim), asked in ASKED.items():
        for p, least in zip((1, 2), asked, strict=True):
            what = f"SW_{p}, {name}, d={dim}: squared error of iid over that of {CHOSEN}"
            cells = [m for cell, m in found.items() if (cell[1], cell[2], cell[-1]) == (name, dim, p)]
            ours = cells[0].get(CHOSEN) if cells else None
            if ours is None:
                targets.append(Target(what, f">= {least:g}x", "not run", None))
                continue
            text = gain_text(ours)
            if name.startswith(("Gaussians", "two")) and ours.n_sets < SHOWN_SETS:
                text += f", {ours.n_sets} of {SHOWN_SETS} data sets"
            if 1 / ours.value < least <= 1 / ours.low:
                text += ", within noise"
            targets.append(Target(what, f">= {least:g}x", text, 1 / ours.low >= least))
    return targets


def gain_text(found: Median) -> str:
    """How many times less error than iid, and its 95% interval."""
    if not found.low > 0:
        return "exact"
    return f"{_short(1 / found.value)}x ({_short(1 / found.high)} to {_short(1 / found.low)})"


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}" if value < 1e4 else f"{round(value, -2):,.0f}"
