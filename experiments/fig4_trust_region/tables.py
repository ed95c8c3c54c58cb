"""The tables of the page: ``python -m experiments.fig4_trust_region.tables [ROWS.csv]`` prints them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from experiments.common import RESULTS
from experiments.fig4_trust_region.curves import Curve, Floats, bootstrap, interquartile_mean, make_curves
from experiments.trainings import read_rows

HEAD = (
    *("method", "lambda", "seeds", "final: mean ± sd", "IQM (95%)", "area: mean ± sd", "IQM (95%)"),
    *("below its best", "move of an action"),
)


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown, a table a task and length: final return, area under the curve, what an update does.

    Where some curves of a task are shorter, a table compares all of them over that length.
    """
    curves = make_curves(rows)
    parts = []
    for task in dict.fromkeys(curve.task for curve in curves):
        group = [curve for curve in curves if curve.task == task]
        for length in sorted({curve.steps[-1] for curve in group}):
            parts += [f"{task}, {length:,.0f} steps\n", f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
            parts += [_line(curve.until(length)) for curve in group if curve.steps[-1] >= length]
            parts.append("")
    return "\n".join(parts)


def _line(curve: Curve) -> str:
    cells = [curve.method, f"{curve.strength:g}", str(curve.returns.shape[0])]
    for scores in (curve.final, curve.area):
        cells += [f"{scores.mean():.0f} ± {scores.std(ddof=1):.0f}", _interval(scores)]
    cells += [f"{curve.drawdown.mean():.0f}", f"{curve.mean('shift').mean():.3g}"]
    return f"| {' | '.join(cells)} |"


def _interval(scores: Floats) -> str:
    low, high = bootstrap([scores])
    return f"{interquartile_mean(scores):.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    print(tables(read_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "fig4_trust_region.csv")))
