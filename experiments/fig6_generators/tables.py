"""The table of the page: ``python -m experiments.fig6_generators.tables [ROWS.csv]`` prints it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from experiments.common import RESULTS, student
from experiments.fig6_generators.claims import steps_of, values_of
from experiments.fig6_generators.config import NAME
from experiments.fig6_generators.measures import TARGET
from experiments.mixture import N_CENTRAL, N_PERIMETER
from experiments.trainings import read_rows

HEAD = (
    *("distance", "exact W_2", "samples in the centre", "reach"),
    *(f"modes of {N_CENTRAL} in the centre", f"modes of {N_PERIMETER} on the perimeter"),
)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: means over seeds at the end of training, with 95% intervals, and the range of modes covered."""
    measured = [row for row in rows if row["kind"] == "measured"]
    last = steps_of(measured)[-1]
    kinds = [
        (f"{row['method'].upper()}_{row['p']}", row["method"], row["p"], last) for row in measured if row["p"]
    ]
    lines = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    for name, *which in (*dict.fromkeys(kinds), ("the mixture itself", TARGET, None, None)):
        cells = [name]
        for column, digits in (("w2", 4), ("central_share", 3), ("reach", 3)):
            mean, low, high = student(values_of(measured, *which, column))
            cells.append(f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
        for column in ("central_modes", "perimeter_modes"):
            covered = values_of(measured, *which, column)
            cells.append(f"{covered.mean():.1f} ({covered.min():.0f} to {covered.max():.0f})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(read_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / f"{NAME}.csv")))
