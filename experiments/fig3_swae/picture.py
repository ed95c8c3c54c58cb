"""Training curves as the paper draws them, against time too, and differences that can be seen."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common import GREY, IID_COLOUR, ORTHOGONAL_COLOUR
from experiments.fig3_swae.config import ESTIMATORS, Config
from experiments.fig3_swae.curves import Curve, Kind, difference_by_sweep, make_curves
from experiments.trainings import Row

# Red, blue and green are the paper's.
COLOURS = {"iid": IID_COLOUR, "orthogonal": ORTHOGONAL_COLOUR, "hadamard": "#009e73"}


def draw(rows: list[Row]) -> Figure:
    """First curves and times of the first kind, then every kind's differences to iid, then other precisions."""
    curves = make_curves(rows)
    plain = {kind: group for kind, group in curves.items() if kind.precision == Config.precision}
    first = next(iter(plain))
    rates = list(dict.fromkeys(kind.learning_rate for kind in plain))
    others = [kind for kind in curves if kind.precision != Config.precision]
    n_panels = len(rates) + 2 + len(plain) + bool(others)
    n_columns = 3 if n_panels <= 9 else 4
    n_rows = math.ceil(n_panels / n_columns)
    figure = Figure(figsize=(3.4 * n_columns, 2.8 * n_rows), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes in grid[n_panels:]:
        axes.set_axis_off()
    panels = iter(grid)
    for rate in rates:
        _draw_curves(next(panels), plain[first._replace(learning_rate=rate)])
    _draw_against_time(next(panels), plain[first])
    _draw_times(next(panels), plain)
    for kind, group in plain.items():
        _draw_differences(next(panels), kind, group)
    if others:
        _draw_precision(next(panels), curves, others)
    return figure


def _draw_band(axes: Axes, x: object, middle: object, low: object, high: object, **look: object) -> None:
    axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)  # type: ignore[arg-type]
    axes.plot(x, middle, linewidth=1.2, **look)  # type: ignore[arg-type]
    axes.grid(alpha=0.3)


def _draw_curves(axes: Axes, group: dict[str, Curve], *, seconds: bool = False) -> None:
    for name, curve in group.items():
        mean, spread = curve.log_loss.mean(axis=0), curve.log_loss.std(axis=0)
        x = curve.sweeps * (curve.sweep_seconds.mean() if seconds else 1)
        _draw_band(axes, x, mean, mean - spread, mean + spread, color=COLOURS[name], label=ESTIMATORS[name])
    kind = next(iter(group.values())).kind
    axes.set(ylabel="log training loss", xlabel="seconds" if seconds else "iterations (sweeps)")
    axes.set_title(f"{kind.data}, {kind.n_directions} directions, rate {kind.learning_rate:g}")
    axes.legend()


def _draw_against_time(axes: Axes, group: dict[str, Curve]) -> None:
    _draw_curves(axes, group, seconds=True)
    axes.set_title(f"the same against time, rate {next(iter(group.values())).kind.learning_rate:g}")


def _draw_times(axes: Axes, plain: dict[Kind, dict[str, Curve]]) -> None:
    """Bars: seconds of a sweep, means over seeds of medians over sweeps, with standard deviations."""
    for place, group in enumerate(plain.values()):
        for offset, (name, curve) in enumerate(group.items()):
            seconds = curve.sweep_seconds
            y = place + 0.27 * (offset - 1)
            axes.barh(y, seconds.mean(), 0.25, color=COLOURS[name], xerr=seconds.std(ddof=1))
    labels = [f"{kind.data}\n{kind.n_directions}, {kind.learning_rate:g}" for kind in plain]
    axes.set_yticks(range(len(plain)), labels, fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="seconds", title="a sweep, other runs beside it")


def _draw_differences(axes: Axes, kind: Kind, group: dict[str, Curve]) -> None:
    for name, curve in group.items():
        if name != "iid":
            found = difference_by_sweep(curve, group["iid"])
            _draw_band(axes, curve.sweeps[: len(found[0])], *found, color=COLOURS[name], label=ESTIMATORS[name])
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="iterations (sweeps)", ylabel="log loss minus iid's")
    axes.set_title(f"{kind.data}, {kind.n_directions} directions, rate {kind.learning_rate:g}")
    axes.legend()


def _draw_precision(axes: Axes, curves: dict[Kind, dict[str, Curve]], others: list[Kind]) -> None:
    for line, kind in zip("-:", others, strict=False):
        for name, curve in curves[kind].items():
            base = curves[kind._replace(precision=Config.precision)][name]
            found = difference_by_sweep(curve, base)
            label = f"{ESTIMATORS[name]}, rate {kind.learning_rate:g}"
            look = {"color": COLOURS[name], "linestyle": line, "label": label}
            _draw_band(axes, curve.sweeps[: len(found[0])], *found, **look)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="iterations (sweeps)", ylabel="log loss, TF32 minus bf16")
    axes.set_title("convolutions more exact")
    axes.legend()
