"""Training curves, with spread as the paper draws it and with intervals, and what lies beyond the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common import GREY
from experiments.fig4_trust_region.config import METHODS
from experiments.fig4_trust_region.curves import Curve, bootstrap, interquartile_mean, make_curves

# Red, blue and green are the paper's; a method with other directions has the same colour and a broken line.
LOOKS = {
    "none": ("#d55e00", "-"),
    "sw": ("#0072b2", "-"),
    "pw": ("#009e73", "-"),
    "sw_iid": ("#0072b2", "--"),
    "pw_iid": ("#009e73", "--"),
    "sw_joint": ("#0072b2", ":"),
    "pw_joint": ("#009e73", ":"),
    "kl": ("#cc79a7", "-"),
    "clip": ("black", "-"),
}


def draw(rows: list[dict[str, Any]]) -> Figure:
    """A column a task, and one for other penalties and strengths where there are any."""
    curves = make_curves(rows)
    tasks = list(dict.fromkeys(curve.task for curve in curves))
    beyond = [curve for curve in curves if not curve.is_in_paper]
    figure = Figure(figsize=(3.4 * (len(tasks) + bool(beyond)), 5.8), layout="constrained")
    axes = figure.subplots(2, len(tasks) + bool(beyond), squeeze=False)
    for (top, bottom), task in zip(axes.T, tasks, strict=False):
        paper = [curve for curve in curves if curve.task == task and curve.is_in_paper]
        _draw_spread(top, paper)
        _draw_intervals(bottom, paper)
        top.set_title(f"{task}: mean ± sd")
        bottom.set_title("interquartile mean, 95% bootstrap")
        top.legend(loc="best")
    if beyond:
        task, length = beyond[0].task, min(curve.steps[-1] for curve in beyond)
        of_task = [curve for curve in curves if curve.task == task]
        _draw_intervals(axes[0, -1], [c for c in of_task if c.method not in ("sw", "pw")])
        axes[0, -1].set_title(f"{task}: other penalties")
        axes[0, -1].legend(loc="best")
        _draw_strengths(axes[1, -1], [curve.until(length) for curve in of_task])
    return figure


def _draw_spread(axes: Axes, curves: list[Curve]) -> None:
    for curve in curves:
        mean, spread = curve.returns.mean(axis=0), curve.returns.std(axis=0)
        _draw_band(axes, curve, mean, mean - spread, mean + spread)


def _draw_intervals(axes: Axes, curves: list[Curve]) -> None:
    for curve in curves:
        _draw_band(axes, curve, interquartile_mean(curve.returns), *bootstrap([curve.returns]))


def _draw_band(axes: Axes, curve: Curve, middle: Any, low: Any, high: Any) -> None:
    colour, line = LOOKS[curve.method]
    axes.fill_between(curve.steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(curve.steps, middle, line, color=colour, linewidth=1.2, label=METHODS[curve.method].label)
    axes.set(xlabel="steps", ylabel="return")
    axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    axes.grid(alpha=0.3)


def _draw_strengths(axes: Axes, curves: list[Curve]) -> None:
    """Final return, and how far an update moves the policy, against the strength of the penalty."""
    right = axes.twinx()
    none = [curve for curve in curves if curve.method == "none"]
    for method in ("sw", "pw", "kl"):
        part = sorted((c for c in curves if c.method == method), key=lambda curve: curve.strength)
        if len(part) > 1:
            strengths = [curve.strength for curve in part]
            middle = [interquartile_mean(curve.final) for curve in part]
            ends = np.array([bootstrap([curve.final]) for curve in part]).T
            colour = LOOKS[method][0]
            # Rounding may put a bound a hair on the wrong side.
            errors = np.maximum([middle - ends[0], ends[1] - middle], 0)
            axes.errorbar(
                strengths, middle, yerr=errors, color=colour, marker="o", capsize=3, label=METHODS[method].label
            )
            moves = [curve.mean("shift").mean() for curve in part]
            right.plot(strengths, moves, "--s", color=GREY, markersize=3, linewidth=1)
    if none:
        axes.axhline(interquartile_mean(none[0].final), color=LOOKS["none"][0], linewidth=1)
        right.axhline(none[0].mean("shift").mean(), color=GREY, linestyle=":", linewidth=1)
    axes.set(xscale="log", xlabel=r"strength $\lambda$", ylabel="final return (dots)")
    right.set_ylabel("move of an action (grey)")
    right.spines["right"].set_visible(True)
    axes.set_title("where the strength starts to matter")
