"""The tables of the page: ``python -m experiments.fig3_swae.tables [ROWS.csv]`` prints them."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.common import RESULTS
from experiments.fig3_swae.config import ESTIMATORS, Config
from experiments.fig3_swae.curves import Curve, Kind, difference, make_curves
from experiments.trainings import Row, read_rows

HEAD = (
    *("data", "directions", "learning rate", "sweeps", "estimator", "seeds", "final log loss"),
    *("minus iid, final", "minus iid, over all sweeps"),
)


def tables(rows: list[Row]) -> str:
    """Markdown: final log losses, what they are less than those of iid, and what a step costs."""
    curves = make_curves(rows)
    parts = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    for kind, group in curves.items():
        if kind.precision == Config.precision:
            parts += [_line(kind, curve, group["iid"]) for curve in group.values()]
    parts += ["", "| data | learning rate | TF32 - bf16, final | over all sweeps |", "| --- " * 4 + "|"]
    for kind, group in curves.items():
        other = curves.get(kind._replace(precision=Config.precision), {})
        for name, curve in group.items() if kind.precision != Config.precision else ():
            n = curve.log_loss.shape[1]
            base = other[name]._replace(log_loss=other[name].log_loss[:, :n])
            cells = [f"{kind.data}, {ESTIMATORS[name]}", f"{kind.learning_rate:g}"]
            cells += [_gap(curve.final, base.final), _gap(curve.whole, base.whole)]
            parts.append(f"| {' | '.join(cells)} |")
    parts += ["", "| directions | estimator | ms a step | ms of the distance alone |", "| --- " * 4 + "|"]
    parts += _times(curves)
    return "\n".join(parts)


def _line(kind: Kind, curve: Curve, iid: Curve) -> str:
    cells = [kind.data, str(kind.n_directions), f"{kind.learning_rate:g}", str(curve.log_loss.shape[1])]
    cells += [ESTIMATORS[curve.estimator], str(len(curve.log_loss))]
    cells.append(f"{curve.final.mean():.4f} ± {curve.final.std(ddof=1):.4f}")
    if curve is iid:
        cells += ["", ""]
    else:
        cells += [_gap(curve.final, iid.final), _gap(curve.whole, iid.whole)]
    return f"| {' | '.join(cells)} |"


def _gap(a: object, b: object) -> str:
    mean, low, high = difference(a, b)  # type: ignore[arg-type]
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


def _times(curves: dict[Kind, dict[str, Curve]]) -> list[str]:
    seen: dict[tuple[int, str], str] = {}
    for kind, group in curves.items():
        for name, curve in group.items():
            if curve.times.get("step_ms") is not None:
                cells = [
                    f"{curve.times[column]:.3f} ± {curve.times[f'{column}_stderr']:.3f}"
                    for column in ("step_ms", "distance_ms")
                ]
                line = f"| {kind.n_directions} | {ESTIMATORS[name]} | {' | '.join(cells)} |"
                seen.setdefault((kind.n_directions, name), line)
    return list(seen.values())


if __name__ == "__main__":
    print(tables(read_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "fig3_swae.csv")))
