"""What is said of the estimators' gradients, judged with intervals over seeds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from experiments.common import Claim, student
from experiments.swae_gradients.config import Config
from experiments.trainings import Row


class Ratio(NamedTuple):
    """How an estimator's variance compares to another's: a geometric mean over seeds, with 95% limits."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3f} ({self.low:.3f} to {self.high:.3f})"


class Case(NamedTuple):
    """What two estimators are compared in."""

    sweep: int
    of: str
    varies: str
    n_directions: int


def list_cases(rows: list[Row]) -> list[Case]:
    """All of them, in their order."""
    return list(dict.fromkeys(Case(*(row[name] for name in Case._fields)) for row in rows))


def compare(rows: list[Row], case: Case, estimator: str, base: str = "iid", *, timed: bool = False) -> Ratio:
    """The ratio of variances, or of variances times milliseconds, which counts at equal time.

    The mean of k independent gradients has 1 / k of the variance and takes k times as long.
    """
    values: dict[str, dict[int, float]] = {estimator: {}, base: {}}
    for row in rows:
        if row["estimator"] in values and all(row[name] == part for name, part in case._asdict().items()):
            cost = row["ms"] if timed else 1.0
            values[row["estimator"]][row["seed"]] = math.log(row["variance"] * cost)
    gaps = [values[estimator][seed] - values[base][seed] for seed in sorted(values[base])]
    return Ratio(*map(math.exp, student(np.array(gaps))))


def judge(rows: list[Row]) -> list[Claim]:
    """Gradients by codes and by weights where directions alone vary; all cases of a claim must hold."""
    cases = [case for case in list_cases(rows) if case.varies == "directions"]
    by_codes = [case for case in cases if case.of == "codes"]
    # Times of a small run say nothing.
    timed = [case for case in by_codes if case.n_directions in Config.encoder_counts]
    claims = [
        _less(rows, cases, "Orthogonal directions make gradients vary less than iid ones.", "orthogonal"),
        _less(rows, by_codes, "HD makes gradients by the codes vary less than iid directions.", "hadamard"),
        _alike(rows, by_codes),
    ]
    if timed:
        same = "At equal time gradients by the codes vary less"
        claims += [
            _less(
                rows, timed, f"{same} with orthogonal directions than with iid ones.", "orthogonal", timed=True
            ),
            _less(
                rows, timed, f"{same} with HD than with orthogonal directions.", "hadamard", "orthogonal", True
            ),
        ]
    return claims


def _less(
    rows: list[Row], cases: list[Case], claim: str, estimator: str, base: str = "iid", timed: bool = False
) -> Claim:
    found = [compare(rows, case, estimator, base, timed=timed) for case in cases]
    return Claim(claim, all(ratio.high < 1 for ratio in found), _range(found))


def _alike(rows: list[Row], cases: list[Case]) -> Claim:
    found = [compare(rows, case, "hadamard", "orthogonal") for case in cases]
    return Claim(
        "HD is as good as orthogonal: its gradients by the codes vary as much, within 10%.",
        all(ratio.low > 0.9 and ratio.high < 1.1 for ratio in found),
        _range(found),
    )


def _range(found: list[Ratio]) -> str:
    return f"ratios from {min(found)} to {max(found)}, in {len(found)} cases"
