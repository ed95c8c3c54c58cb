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
    *("minus iid, final", "minus iid, over all sweeps", "seconds a sweep"),
)


def tables(rows: list[Row]) -> str:
    """Markdown: final log losses, how they differ from those of iid, and what convolutions in TF32 change."""
    curves = make_curves(rows)
    parts = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    others = []
    for kind, group in curves.items():
        if kind.precision == Config.precision:
            parts += [_line(kind, curve, group["iid"]) for curve in group.values()]
        else:
            base = curves[kind._replace(precision=Config.precision)]
            others += [_other_line(kind, curve, base[name]) for name, curve in group.items()]
    if others:
        parts += [
            "",
            "| data | learning rate | TF32 - bf16, final | over all sweeps |",
            "| --- " * 4 + "|",
            *others,
        ]
    return "\n".join(parts)


def _other_line(kind: Kind, curve: Curve, base: Curve) -> str:
    alike = base._replace(log_loss=base.log_loss[:, : curve.log_loss.shape[1]])
    cells = [f"{kind.data}, {ESTIMATORS[curve.estimator]}", f"{kind.learning_rate:g}"]
    cells += [_gap(curve.final, alike.final), _gap(curve.whole, alike.whole)]
    return f"| {' | '.join(cells)} |"


def _line(kind: Kind, curve: Curve, iid: Curve) -> str:
    cells = [kind.data, str(kind.n_directions), f"{kind.learning_rate:g}", str(curve.log_loss.shape[1])]
    cells += [ESTIMATORS[curve.estimator], str(len(curve.log_loss))]
    cells.append(f"{curve.final.mean():.4f} ± {curve.final.std(ddof=1):.4f}")
    if curve is iid:
        cells += ["", ""]
    else:
        cells += [_gap(curve.final, iid.final), _gap(curve.whole, iid.whole)]
    return f"| {' | '.join([*cells, f'{curve.sweep_seconds.mean():.3f}'])} |"


def _gap(a: object, b: object) -> str:
    mean, low, high = difference(a, b)  # type: ignore[arg-type]
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


if __name__ == "__main__":
    print(tables(read_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "fig3_swae.csv")))
