"""Samples over the target for every distance, and what was measured while they were trained."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common import GREY
from experiments.fig6_generators.claims import steps_of, values_of
from experiments.fig6_generators.measures import TARGET
from experiments.mixture import MODES, SPACING

# Red and blue are the paper's.
TARGET_COLOUR = "#d55e00"
LOOKS = {"sw": ("SW", "#0072b2"), "pw": ("PW", "#009e73")}
LINES = {1: "--", 2: "-"}
_EDGE = 0.85


def draw(rows: list[dict[str, Any]]) -> Figure:
    """A row of samples a power, and a row of measurements."""
    measured = [row for row in rows if row["kind"] == "measured"]
    powers = sorted({row["p"] for row in measured if row["p"] is not None})
    figure = Figure(
        figsize=(max(8.0, 4.4 * len(powers)), 5.6 if len(powers) > 1 else 6.8), layout="constrained"
    )
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.1, 1))
    panels = top.subplots(1, 2 * len(powers), squeeze=False)[0]
    wanted = [(method, p) for p in powers for method in LOOKS]
    for axes, (method, p) in zip(panels, wanted, strict=True):
        _draw_samples(axes, rows, method, p)
    for axes, (column, label, at_target) in zip(bottom.subplots(1, 3), _MEASURES, strict=True):
        _draw_measure(axes, measured, powers, column, label, at_target)
    return figure


def _draw_samples(axes: Axes, rows: list[dict[str, Any]], method: str, p: int) -> None:
    for name, power, colour in ((TARGET, None, TARGET_COLOUR), (method, p, LOOKS[method][1])):
        drawn = [
            (row["x"], row["y"])
            for row in rows
            if (row["kind"], row["method"], row["p"]) == ("drawn", name, power)
        ]
        axes.scatter(*np.array(drawn).T, s=4, color=colour, alpha=0.5, linewidths=0, rasterized=True)
    axes.scatter(*MODES.T, s=18, color="black", marker="+", linewidths=0.7)
    # What counts as the centre.
    axes.plot(*(SPACING * np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]])), color=GREY, linewidth=0.7)
    axes.set(
        title=f"{LOOKS[method][0]}$_{p}$",
        xlim=(-_EDGE, _EDGE),
        ylim=(-_EDGE, _EDGE),
        aspect="equal",
        xticks=[],
        yticks=[],
    )


_MEASURES = (
    ("w2", "exact W$_2$ to the mixture", None),
    ("central_share", "share in the centre", 0.25),
    ("perimeter_modes", "perimeter modes covered", None),
)


def _draw_measure(
    axes: Axes,
    measured: list[dict[str, Any]],
    powers: list[int],
    column: str,
    label: str,
    at_target: float | None,
) -> None:
    """The mean over seeds and all of them, against steps."""
    steps = steps_of(measured)
    for method, (name, colour) in LOOKS.items():
        for p in powers:
            values = np.array([values_of(measured, method, p, step, column) for step in steps])
            axes.fill_between(
                steps, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15, linewidth=0
            )
            axes.plot(steps, values.mean(axis=1), LINES[p], color=colour, linewidth=1.2, label=f"{name}$_{p}$")
    of_target = values_of(measured, TARGET, None, None, column).mean() if at_target is None else at_target
    axes.axhline(of_target, color=TARGET_COLOUR, linewidth=1, linestyle=":", label="the mixture itself")
    axes.set(xscale="log", xlabel="steps", title=label)
    axes.grid(alpha=0.3)
    if column == "w2":
        axes.legend(loc="best")
