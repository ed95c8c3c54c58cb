"""The table of the page: ``python -m experiments.swae_gradients.tables [ROWS.csv]`` prints it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from experiments.common import RESULTS
from experiments.swae_gradients.claims import Case, compare, list_cases
from experiments.swae_gradients.config import Config
from experiments.trainings import Row, read_rows

HEAD = (
    *("sweeps", "gradient by", "what varies", "directions", "variance of iid / squared mean"),
    *("orthogonal / iid", "at equal time", "HD / iid", "at equal time"),
)


def table(rows: list[Row]) -> str:
    """Markdown, a row a case: ratios of variances with 95% intervals over seeds."""
    lines = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    for case in list_cases(rows):
        if case.n_directions in Config.encoder_counts:
            cells = [str(case.sweep), case.of, case.varies, str(case.n_directions), _size(rows, case)]
            for name in ("orthogonal", "hadamard"):
                # The time of a call is that of the distance and its gradient by the codes.
                timed = str(compare(rows, case, name, timed=True)) if case.of == "codes" else ""
                cells += [str(compare(rows, case, name)), timed]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _size(rows: list[Row], case: Case) -> str:
    part = [row for row in rows if case._asdict().items() <= row.items() and row["estimator"] == "iid"]
    return f"{np.mean([row['variance'] for row in part]) / np.mean([row['squared_mean'] for row in part]):.3g}"


if __name__ == "__main__":
    print(table(read_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "swae_gradients.csv")))
