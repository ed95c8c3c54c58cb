"""The table of the page: ``python -m experiments.fig5_hidden_codes.tables [ROWS.csv]`` prints it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from experiments.common import RESULTS, student
from experiments.fig5_hidden_codes.claims import by_kind, column, ends
from experiments.fig5_hidden_codes.config import DISTANCES
from experiments.trainings import Row, read_rows

MEASURES = {
    "mean_radius": "mean radius",
    "radius_95": "95% lie within",
    "share_outside": "share outside the disc",
    "w2": "W_2 to the prior",
    "reconstruction": "reconstruction",
}


def table(rows: list[Row]) -> str:
    """Markdown, a row a learning rate and distance, means with 95% intervals over seeds."""
    head = ("learning rate", "distance", "sweeps", "seeds", *MEASURES.values())
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    # Codes of some runs may have been kept at another sweep than that where all of them end.
    codes = by_kind(rows, "codes")
    for found in (ends(rows), codes) if _ends(ends(rows)) != _ends(codes) else (codes,):
        for rate, group in found.items():
            for distance, part in group.items():
                cells = [f"{rate:g}", DISTANCES[distance].replace("$", "")]
                cells += [str(part[0]["sweep"]), str(len(part)), *(_cell(part, name) for name in MEASURES)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ends(found: Mapping[float, Mapping[str, list[Row]]]) -> list[tuple[int, int]]:
    """At which sweep, and for how many seeds."""
    return [(part[0]["sweep"], len(part)) for group in found.values() for part in group.values()]


def _cell(part: list[Row], name: str) -> str:
    """A mean with its interval; the numbers themselves where there are too few for one."""
    if part[0][name] is None:
        return ""
    values = column(part, name)
    return _interval(student(values)) if len(values) > 2 else ", ".join(f"{value:.3f}" for value in values)


def _interval(found: tuple[float, float, float]) -> str:
    mean, low, high = found
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    print(table(read_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "fig5_hidden_codes.csv")))
