"""What the paper says of figure 3, judged with intervals over seeds."""

from __future__ import annotations

import statistics

import numpy as np

from experiments.common import Claim
from experiments.fig3_swae.config import ESTIMATORS, Config
from experiments.fig3_swae.curves import Curve, Kind, difference, make_curves
from experiments.trainings import Row

SIMILAR = 0.01
"""Of the log loss: curves that differ by no more than 1% in loss behave similarly."""


def judge(rows: list[Row], timed: list[Row]) -> list[Claim]:
    """That all runs are whole and learn; and what the paper says of its own runs, and of steps timed since.

    Differences are of the same seeds, with Student's 95% intervals; two that are judged together have a level
    that leaves 95% for both.
    """
    curves = make_curves(rows)
    claims = [_wholeness(rows), _learning(curves)]
    paper = Config.data, Config.precision, Config.n_directions
    fast, slow = (curves.get(Kind(*paper, rate), {}) for rate in Config.learning_rates)
    if fast and slow:
        claims += [_similar(fast), _faster(slow)]
        claims += _cheaper(timed) if timed else [_cheaper_sweeps(fast)]
    return claims


def _wholeness(rows: list[Row]) -> Claim:
    reached: dict[tuple[Kind, str], dict[int, int]] = {}
    for row in rows:
        kind = Kind(*(row[name] for name in Kind._fields))
        reached.setdefault((kind, row["estimator"]), {})[row["seed"]] = row["sweep"]
    seeds = {frozenset(ends) for ends in reached.values()}
    lengths = [set(ends.values()) for ends in reached.values()]
    ends = sorted(set().union(*lengths))
    return Claim(
        "All kinds of runs have the same seeds, and all seeds of a kind went equally far.",
        len(seeds) == 1 and all(len(length) == 1 for length in lengths),
        f"{sum(map(len, reached.values()))} runs of {len(reached)} kinds; they end at "
        f"{', '.join(map(str, ends))} sweeps",
    )


def _learning(curves: dict[Kind, dict[str, Curve]]) -> Claim:
    every = [curve for group in curves.values() for curve in group.values()]
    falls = [float((curve.log_loss[:, -1] - curve.log_loss[:, 0]).max()) for curve in every]
    return Claim(
        "The loss of every run falls.",
        max(falls) < 0,
        f"log loss changes by {min(falls):.3f} to {max(falls):.3f}",
    )


def _similar(paper: dict[str, Curve]) -> Claim:
    found = difference(paper["orthogonal"].final, paper["iid"].final)
    return Claim(
        f"Learning rate {Config.learning_rates[0]:g}: orthogonal and iid behave similarly: final log losses "
        f"differ by less than {SIMILAR}.",
        found[1] > -SIMILAR and found[2] < SIMILAR,
        f"orthogonal - iid: {_interval(found)}",
    )


def _faster(paper: dict[str, Curve]) -> Claim:
    found = difference(paper["orthogonal"].whole, paper["iid"].whole)
    return Claim(
        f"Learning rate {Config.learning_rates[1]:g}: orthogonal converges faster than iid: "
        "lower log loss on average over training.",
        found[2] < 0,
        f"orthogonal - iid: {_interval(found)}",
    )


def _cheaper_sweeps(paper: dict[str, Curve]) -> Claim:
    """Of the trainings themselves, which shared a machine with others."""
    mean, low, high = difference(paper["hadamard"].sweep_seconds, paper["orthogonal"].sweep_seconds)
    parts = [f"{ESTIMATORS[name]} {curve.sweep_seconds.mean():.3f}" for name, curve in paper.items()]
    return Claim(
        "A sweep takes less time with HD than with orthogonal directions.",
        high < 0,
        f"seconds: {', '.join(parts)}; HD - orthogonal: {mean:.3f} ({low:.3f} to {high:.3f})",
    )


def _cheaper(timed: list[Row]) -> list[Claim]:
    """Of rounds in which the estimators took turns alone on a machine, with the paper's count of directions."""
    claims = []
    for what, column in (("The distance and its gradient take", "distance_ms"), ("A step takes", "step_ms")):
        found: dict[str, list[float]] = {}
        for row in timed:
            if row["n_directions"] == Config.n_directions:
                found.setdefault(row["estimator"], []).append(row[column])
        mean, low, high = difference(np.array(found["hadamard"]), np.array(found["orthogonal"]))
        medians = [f"{label} {statistics.median(found[name]):.4g}" for name, label in ESTIMATORS.items()]
        claims.append(
            Claim(
                f"{what} less time with HD than with orthogonal directions.",
                high < 0,
                f"ms: {', '.join(medians)}; HD - orthogonal: {mean:.4f} ({low:.4f} to {high:.4f})",
            )
        )
    return claims


def _interval(found: tuple[float, float, float]) -> str:
    mean, low, high = found
    return f"{mean:.4f} ({low:.4f} to {high:.4f})"
