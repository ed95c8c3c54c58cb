"""Paths from noise to data, distances against the number of Euler steps, and digits."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from experiments.common import GREY
from experiments.flow_matching.claims import values_of
from experiments.flow_matching.config import EULER_STEPS
from experiments.flow_matching.jobs import TARGET
from experiments.mixture import MODES

LOOKS = {"independent": "#d55e00", "match": "#0072b2", "exact": "#009e73"}
TITLES = {"sixteen": "16 Gaussians", "mnist": "MNIST, 64 components", "small_digits": "small digits"}
_SHIFT = {"independent": 0.9, "match": 1.0, "exact": 1.1}
"""Factors that keep bars of one number of steps apart."""


def draw(rows: list[dict[str, Any]]) -> Figure:
    """A line for paths, one for distances and bends, and one for digits."""
    figure = Figure(figsize=(9.6, 8.6), layout="constrained")
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=(1.05, 1, 1.2))
    for axes, pairing in zip(top.subplots(1, len(LOOKS)), LOOKS, strict=True):
        _draw_paths(axes, rows, pairing)
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    panels = middle.subplots(1, len(problems) + 1)
    for axes, problem in zip(panels, problems, strict=False):
        _draw_distances(axes, [row for row in rows if row["problem"] == problem], TITLES[problem])
    panels[0].legend(loc="best")
    _draw_bends(panels[-1], rows, problems)
    _draw_digits(bottom, rows)
    return figure


def _draw_paths(axes: Axes, rows: list[dict[str, Any]], pairing: str) -> None:
    drawn: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        if (row["kind"], row["pairing"]) == ("path", pairing):
            drawn.setdefault(row["number"], []).append((row["x"], row["y"]))
    for path in drawn.values():
        places = np.array(path).T
        axes.plot(*places, color=LOOKS[pairing], linewidth=0.8)
        axes.scatter(*places[:, :1], s=9, color=GREY, linewidths=0)
        axes.scatter(*places[:, -1:], s=9, color=LOOKS[pairing], linewidths=0)
    axes.scatter(*MODES.T, s=18, color="black", marker="+", linewidths=0.7)
    axes.set(
        title=f"paths: {pairing}", xlim=(-2.4, 2.4), ylim=(-2.4, 2.4), aspect="equal", xticks=[], yticks=[]
    )


def _draw_distances(axes: Axes, rows: list[dict[str, Any]], title: str) -> None:
    """Means and all seeds."""
    for pairing, colour in LOOKS.items():
        values = np.array([values_of(rows, "measured", pairing, "w2", steps) for steps in EULER_STEPS])
        at = _SHIFT[pairing] * np.array(EULER_STEPS)
        axes.plot(at, values.mean(axis=1), color=colour, linewidth=1, label=pairing)
        axes.vlines(at, values.min(axis=1), values.max(axis=1), color=colour, linewidth=4, alpha=0.5)
    axes.axhline(
        values_of(rows, "measured", TARGET, "w2").mean(),
        color=GREY,
        linestyle=":",
        linewidth=1,
        label="two samples",
    )
    axes.set(xscale="log", xlabel="Euler steps", title=f"{title}: exact W$_2$ to data", xticks=EULER_STEPS)
    axes.set_xticklabels([str(steps) for steps in EULER_STEPS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def _draw_bends(axes: Axes, rows: list[dict[str, Any]], problems: list[str]) -> None:
    for at, problem in enumerate(problems):
        part = [row for row in rows if row["problem"] == problem]
        for offset, (pairing, colour) in zip((-0.25, 0, 0.25), LOOKS.items(), strict=True):
            values = values_of(part, "measured", pairing, "bend", EULER_STEPS[-1])
            axes.bar(at + offset, values.mean(), 0.22, color=colour, alpha=0.8)
            axes.vlines(at + offset, values.min(), values.max(), color="black", linewidth=1)
    axes.set(yscale="log", title="how bent paths are", xticks=range(len(problems)))
    axes.set_xticklabels([TITLES[problem].split(",")[0] for problem in problems])
    axes.grid(alpha=0.3, axis="y")


def _draw_digits(figure: SubFigure, rows: list[dict[str, Any]]) -> None:
    """A line a pairing; digits from the same noise after one, five and a hundred steps."""
    found = [row for row in rows if row["kind"] == "image"]
    panels = figure.subplots(1, len(EULER_STEPS))
    for axes, steps in zip(panels, EULER_STEPS, strict=True):
        lines = [
            np.hstack(
                [_pixels(row) for row in found if (row["pairing"], row["euler_steps"]) == (pairing, steps)]
            )
            for pairing in LOOKS
        ]
        axes.imshow(np.vstack(lines), cmap="gray_r", vmin=0, vmax=255, interpolation="nearest")
        axes.set(title=f"{steps} Euler step{'s' if steps > 1 else ''}", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    side = len(lines[0])
    panels[0].set_yticks([side * (at + 0.5) for at in range(len(LOOKS))], list(LOOKS))
    panels[0].tick_params(length=0)


def _pixels(row: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    flat = np.frombuffer(base64.b64decode(row["pixels"]), np.uint8)
    side = math.isqrt(flat.size)
    return flat.reshape(side, side)
