"""What the paper says of figure 5, judged with intervals over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.common import Claim, student
from experiments.fig5_hidden_codes.config import Config
from experiments.fig5_hidden_codes.measures import Floats
from experiments.trainings import Row

MATCHING = 0.1
"""Largest W_2 to the disc's law of codes that generally match it, beyond that of the law to itself."""


def by_kind(rows: list[Row], kind: str) -> dict[float, dict[str, list[Row]]]:
    """Rows of a kind for each learning rate and distance."""
    found: dict[float, dict[str, list[Row]]] = {}
    for row in rows:
        if row["kind"] == kind:
            found.setdefault(row["learning_rate"], {}).setdefault(row["distance"], []).append(row)
    return found


def ends(rows: list[Row]) -> dict[float, dict[str, list[Row]]]:
    """The last sweep that all runs of a learning rate have, a row a seed, for each rate and distance."""
    found = by_kind(rows, "sweep")
    for group in found.values():
        reached = [{row["seed"]: row["sweep"] for row in part} for part in group.values()]
        last = min(sweep for part in reached for sweep in part.values())
        for distance, part in group.items():
            group[distance] = [row for row in part if row["sweep"] == last]
    return found


def column(rows: list[Row], name: str) -> Floats:
    """The numbers of a column."""
    return np.array([row[name] for row in rows], dtype=float)


def judge(rows: list[Row]) -> list[Claim]:
    """That all runs are whole and learn; and for the paper's learning rate what it says."""
    claims = check_trainings(rows)
    paper = ends(rows).get(Config.learning_rates[0])
    if paper:
        gap = column(paper["projected"], "mean_radius") - column(paper["sliced"], "mean_radius")
        mean, low, high = student(gap)
        detail = f"mean radius, PW - SW: {mean:.4f} ({low:.4f} to {high:.4f}); 2/3 is the disc's"
        claims += [
            _matching(by_kind(rows, "codes")[Config.learning_rates[0]]),
            Claim("As the caption says, codes trained with PW lie nearer to the centre.", high < 0, detail),
            Claim("As the text says, codes trained with SW lie nearer to the centre.", low > 0, detail),
        ]
    return claims


def check_trainings(rows: list[Row]) -> list[Claim]:
    """That all runs are whole and learn."""
    return [_wholeness(rows), _learning(rows)]


def _wholeness(rows: list[Row]) -> Claim:
    reached = {
        (row["learning_rate"], row["distance"], row["seed"]): row["sweep"]
        for row in rows
        if row["kind"] == "sweep"
    }
    kinds: dict[float, set[int]] = {}
    seeds: dict[tuple[float, str], set[int]] = {}
    for (rate, distance, seed), sweep in reached.items():
        kinds.setdefault(rate, set()).add(sweep)
        seeds.setdefault((rate, distance), set()).add(seed)
    return Claim(
        "Both distances have the same seeds, and all runs with a learning rate went equally far.",
        len(set(map(frozenset, seeds.values()))) == 1 and all(len(ends) == 1 for ends in kinds.values()),
        f"{len(reached)} runs; they end at {', '.join(str(max(ends)) for ends in kinds.values())} sweeps",
    )


def _learning(rows: list[Row]) -> Claim:
    losses: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row["kind"] == "sweep":
            key = row["learning_rate"], row["distance"], row["seed"]
            losses.setdefault(key, []).append(row["loss"])
    falls = [values[-1] - values[0] for values in losses.values()]
    return Claim(
        "The loss of every run falls.", max(falls) < 0, f"it changes by {min(falls):.3g} to {max(falls):.3g}"
    )


def _matching(left: dict[str, list[Row]]) -> Claim:
    beyond = {name: column(part, "w2") - column(part, "w2_of_prior") for name, part in left.items()}
    parts = [f"{name}: {values.min():.4f} to {values.max():.4f}" for name, values in beyond.items()]
    return Claim(
        f"Codes of both generally match the prior: W_2 is less than {MATCHING} above the prior's to itself.",
        all(values.max() < MATCHING for values in beyond.values()),
        f"{'; '.join(parts)}, in {min(map(len, left.values()))} runs each",
    )
