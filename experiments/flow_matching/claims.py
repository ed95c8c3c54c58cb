"""What pairs by `osl.match` are good for, judged with intervals over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common import Claim, student
from experiments.flow_matching.config import EULER_STEPS

MOST_EXCESS = 0.02
"""Of W_2, by which pairs of `match` may exceed it."""

AS_GOOD = 0.05
"""By how much distances may differ and still be called alike."""


def judge(rows: list[dict[str, Any]]) -> list[Claim]:
    """For every problem: pairs are near the cheapest, paths straight, few steps enough, and nothing is lost.

    Seeds are compared one by one, since runs of one seed share pools, weights and batches. Intervals hold with
    95% each, or with 95% for all that a sentence speaks of.
    """
    claims = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        part = [row for row in rows if row["problem"] == problem]
        claims += [sentence(problem, part) for sentence in (_cheap, _straight, _one_step, _as_exact)]
    return claims


def values_of(
    rows: list[dict[str, Any]], kind: str, pairing: str, column: str, euler_steps: int | None = None
) -> NDArray[np.float64]:
    """A column of all seeds of a problem."""
    wanted = (kind, pairing, euler_steps)
    return np.array(
        [row[column] for row in rows if (row["kind"], row["pairing"], row["euler_steps"]) == wanted]
    )


def _cheap(problem: str, rows: list[dict[str, Any]]) -> Claim:
    match, exact = (values_of(rows, "paired", name, "pair_cost") for name in ("match", "exact"))
    excess = np.sqrt(match / exact) - 1
    seconds = {name: np.median(values_of(rows, "paired", name, "pair_seconds")) for name in ("match", "exact")}
    return Claim(
        f"{problem}: the root mean square distance of pairs by `match` is within {MOST_EXCESS:.0%} of W_2.",
        bool(excess.max() < MOST_EXCESS),
        f"{excess.min():.2%} to {excess.max():.2%} above it; a pool takes {seconds['match']:.2g} s, and "
        f"{seconds['exact']:.2g} s by linear_sum_assignment",
    )


def _straight(problem: str, rows: list[dict[str, Any]]) -> Claim:
    bends = {
        name: values_of(rows, "measured", name, "bend", EULER_STEPS[-1])
        for name in ("independent", "match", "exact")
    }
    found = student(bends["match"] / bends["independent"])
    means = ", ".join(f"{name} {values.mean():.3g}" for name, values in bends.items())
    return Claim(
        f"{problem}: paths are straighter with pairs by `match` than with independent ones.",
        found[2] < 1,
        f"bend: {means}; match / independent: {_interval(found)}",
    )


def _one_step(problem: str, rows: list[dict[str, Any]]) -> Claim:
    match, independent = (values_of(rows, "measured", name, "w2", 1) for name in ("match", "independent"))
    found = student(match / independent)
    return Claim(
        f"{problem}: one Euler step leads nearer to the data with pairs by `match` than with independent ones.",
        found[2] < 1,
        f"W_2: {match.mean():.4g} and {independent.mean():.4g}; match / independent: {_interval(found)}",
    )


def _as_exact(problem: str, rows: list[dict[str, Any]]) -> Claim:
    found = []
    for steps in EULER_STEPS:
        match, exact = (values_of(rows, "measured", name, "w2", steps) for name in ("match", "exact"))
        found.append(student(match / exact, 1 - 0.05 / len(EULER_STEPS)))
    parts = zip(EULER_STEPS, found, strict=True)
    return Claim(
        f"{problem}: pairs by `match` do as well as the cheapest ones: W_2 within {AS_GOOD:.0%}.",
        all(low > 1 - AS_GOOD and high < 1 + AS_GOOD for _, low, high in found),
        "match / exact: " + "; ".join(f"{steps} steps {_interval(each)}" for steps, each in parts),
    )


def _interval(found: tuple[float, float, float]) -> str:
    value, low, high = found
    return f"{value:.3g} ({low:.3g} to {high:.3g})"
