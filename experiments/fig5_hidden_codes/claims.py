"""What the paper says of figure 5, judged with intervals over seeds."""

from __future__ import annotations

import numpy as np

from experiments.common import Claim, student
from experiments.fig5_hidden_codes.config import Config
from experiments.fig5_hidden_codes.measures import Floats
from experiments.trainings import Row

MATCHING = 0.1
"""Largest mean W_2 to the disc's law of codes that generally match it, beyond that of the law to itself."""


def ends(rows: list[Row]) -> dict[float, dict[str, list[Row]]]:
    """Rows of the ends of runs, a seed after the other, for each learning rate and distance."""
    found: dict[float, dict[str, list[Row]]] = {}
    for row in rows:
        if row["kind"] == "end":
            found.setdefault(row["learning_rate"], {}).setdefault(row["distance"], []).append(row)
    return found


def column(rows: list[Row], name: str) -> Floats:
    """The numbers of a column."""
    return np.array([row[name] for row in rows], dtype=float)


def judge(rows: list[Row]) -> list[Claim]:
    """That all runs are whole and learn; and for the paper's learning rate what it says."""
    found = ends(rows)
    claims = [_wholeness(found), _learning(rows)]
    paper = found.get(Config.learning_rates[0])
    if paper:
        gap = column(paper["projected"], "mean_radius") - column(paper["sliced"], "mean_radius")
        mean, low, high = student(gap)
        detail = f"mean radius, PW - SW: {mean:.4f} ({low:.4f} to {high:.4f}); 2/3 is the disc's"
        claims += [
            _matching(paper),
            Claim("As the caption says, codes trained with PW lie nearer to the centre.", high < 0, detail),
            Claim("As the text says, codes trained with SW lie nearer to the centre.", low > 0, detail),
        ]
    return claims


def _wholeness(found: dict[float, dict[str, list[Row]]]) -> Claim:
    kinds = [part for group in found.values() for part in group.values()]
    seeds = {tuple(row["seed"] for row in part) for part in kinds}
    lengths = [{row["sweep"] for group in found[rate].values() for row in group} for rate in found]
    return Claim(
        "Both distances have the same seeds, and all runs with a learning rate went equally far.",
        len(seeds) == 1 and all(len(length) == 1 for length in lengths),
        f"{sum(map(len, kinds))} runs; they end at {', '.join(str(max(length)) for length in lengths)} sweeps",
    )


def _learning(rows: list[Row]) -> Claim:
    first: dict[tuple[object, ...], float] = {}
    falls = []
    for row in rows:
        key = row["learning_rate"], row["distance"], row["seed"]
        if row["kind"] == "sweep":
            first.setdefault(key, row["loss"])
        elif row["kind"] == "end":
            falls.append(row["loss"] - first[key])
    return Claim(
        "The loss of every run falls.", max(falls) < 0, f"it changes by {min(falls):.3g} to {max(falls):.3g}"
    )


def _matching(paper: dict[str, list[Row]]) -> Claim:
    beyond = {name: student(column(part, "w2") - column(part, "w2_of_prior")) for name, part in paper.items()}
    parts = [f"{name}: {mean:.4f} ({low:.4f} to {high:.4f})" for name, (mean, low, high) in beyond.items()]
    return Claim(
        f"Codes of both generally match the prior: W_2 is less than {MATCHING} above the prior's to itself.",
        all(high < MATCHING for _, _, high in beyond.values()),
        "; ".join(parts),
    )
