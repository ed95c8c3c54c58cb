"""Variance of gradients against directions and time, and what part of all variance directions make."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.common import GREY, IID_COLOUR, ORTHOGONAL_COLOUR
from experiments.trainings import Row

LOOKS = {
    "iid": (IID_COLOUR, "iid"),
    "orthogonal": (ORTHOGONAL_COLOUR, "orthogonal"),
    "hadamard": ("#009e73", "HD"),
}


def draw(rows: list[Row]) -> Figure:
    """A column a moment of training: by codes against directions and against time, and by weights."""
    sweeps = list(dict.fromkeys(row["sweep"] for row in rows))
    figure = Figure(figsize=(3.4 * len(sweeps), 7.8), layout="constrained")
    for column, sweep in zip(figure.subplots(3, len(sweeps), squeeze=False).T, sweeps, strict=True):
        part = [row for row in rows if row["sweep"] == sweep]
        codes = [row for row in part if row["of"] == "codes"]
        _draw_lines(column[0], codes, "n_directions")
        column[0].set(xlabel="directions", title=f"by codes, after {sweep} sweeps")
        counts = sorted({row["n_directions"] for row in codes})
        column[0].set_xticks(counts, counts)
        column[0].minorticks_off()
        _draw_lines(column[1], codes, "ms")
        column[1].set(xlabel="milliseconds a call", title="by codes, against time")
        weights = [row for row in part if row["of"] == "encoder"]
        if weights:
            _draw_weights(column[2], weights)
        else:
            column[2].set_axis_off()
        column[0].legend()
    return figure


def _mean(rows: list[Row], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def _draw_lines(axes: Axes, rows: list[Row], x: str) -> None:
    """Means over seeds, relative to the squared mean gradient, with standard errors over seeds."""
    counts = sorted({row["n_directions"] for row in rows})
    for name, (colour, label) in LOOKS.items():
        parts = [[r for r in rows if r["estimator"] == name and r["n_directions"] == n] for n in counts]
        noise = [[row["variance"] / row["squared_mean"] for row in part] for part in parts]
        middle = np.array([np.mean(values) for values in noise])
        error = np.array([np.std(values, ddof=1) / len(values) ** 0.5 for values in noise])
        at = [_mean(part, x) for part in parts]
        axes.errorbar(at, middle, yerr=error, color=colour, marker="o", markersize=3, linewidth=1, label=label)
    axes.set(xscale="log", yscale="log", ylabel="variance / squared mean")
    axes.grid(alpha=0.3, which="both")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _draw_weights(axes: Axes, rows: list[Row]) -> None:
    """Bars: variance by the weights where everything varies, and dark where directions alone do."""
    counts = sorted({row["n_directions"] for row in rows})
    for place, count in enumerate(counts):
        for offset, (name, (colour, _)) in enumerate(LOOKS.items()):
            part = [row for row in rows if row["estimator"] == name and row["n_directions"] == count]
            for varies, alpha in (("everything", 0.35), ("directions", 1.0)):
                values = [row["variance"] for row in part if row["varies"] == varies]
                error = np.std(values, ddof=1) / len(values) ** 0.5
                look = {"color": colour, "alpha": alpha, "ecolor": GREY}
                axes.bar(place + 0.27 * (offset - 1), np.mean(values), 0.25, yerr=error, **look)
    axes.set_xticks(range(len(counts)), [f"{count} directions" for count in counts])
    axes.set(ylabel="variance", title="by weights: all; dark: by directions")
