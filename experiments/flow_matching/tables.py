"""The tables of the page: ``python -m experiments.flow_matching.tables [ROWS.csv]`` prints them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import RESULTS, student
from experiments.flow_matching.claims import values_of
from experiments.flow_matching.config import EULER_STEPS
from experiments.flow_matching.jobs import NAME, TARGET
from experiments.trainings import read_rows

HEAD = (
    *("problem", "pairs", "distance of pairs", "s a pool", "bend", "length"),
    *(f"W_2, {steps} step{'s' if steps > 1 else ''}" for steps in EULER_STEPS),
    f"SW_2, {EULER_STEPS[0]} step",
    f"SW_2, {EULER_STEPS[-1]} steps",
)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: means over seeds, and half the width of their 95% intervals."""
    lines = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    for problem in dict.fromkeys(row["problem"] for row in rows):
        part = [row for row in rows if row["problem"] == problem]
        for pairing in dict.fromkeys(row["pairing"] for row in part if row["kind"] == "paired"):
            cost = np.sqrt(values_of(part, "paired", pairing, "pair_cost")).mean()
            seconds = np.median(values_of(part, "paired", pairing, "pair_seconds"))
            wanted = [(column, EULER_STEPS[-1]) for column in ("bend", "length")]
            wanted += [("w2", steps) for steps in EULER_STEPS]
            wanted += [("sw2", steps) for steps in (EULER_STEPS[0], EULER_STEPS[-1])]
            cells = [problem, pairing, f"{cost:.4g}", f"{seconds:.2g}"]
            cells += [_interval(values_of(part, "measured", pairing, *which)) for which in wanted]
            lines.append(f"| {' | '.join(cells)} |")
        floors = {column: _interval(values_of(part, "measured", TARGET, column)) for column in ("w2", "sw2")}
        line = (
            problem,
            "two samples of data",
            *[""] * 4,
            *[floors["w2"]] * len(EULER_STEPS),
            *[floors["sw2"]] * 2,
        )
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines)


def _interval(values: Any) -> str:
    mean, low, _ = student(values)
    return f"{mean:.3g} ± {mean - low:.1g}"


if __name__ == "__main__":
    print(table(read_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / f"{NAME}.csv")))
