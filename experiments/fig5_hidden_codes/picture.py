"""Codes in the plane, their radii against the disc's, and the mean radius over training."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from experiments.common import GREY, ORTHOGONAL_COLOUR
from experiments.fig5_hidden_codes.config import DISTANCES
from experiments.trainings import Row

COLOURS = {"sliced": ORTHOGONAL_COLOUR, "projected": "#009e73", "law": "#cc79a7"}


def draw(rows: list[Row]) -> Figure:
    """A row a learning rate: codes of each distance, the law of their radius, and mean radii of all seeds."""
    rates = list(dict.fromkeys(row["learning_rate"] for row in rows))
    distances = _distances(rows)
    figure = Figure(figsize=(12.5, 3.2 * len(rates)), layout="constrained")
    grid = figure.subplots(len(rates), len(distances) + 2, squeeze=False)
    for (*scatters, radii, training), rate in zip(grid, rates, strict=True):
        part = [row for row in rows if row["learning_rate"] == rate]
        for axes, distance in zip(scatters, distances, strict=True):
            _draw_codes(axes, [row for row in part if row["distance"] == distance], distance)
        _draw_radii(radii, part)
        _draw_training(training, part)
    return figure


def _distances(rows: list[Row]) -> dict[str, str]:
    """Those that were trained with, and what they are called."""
    trained = {row["distance"] for row in rows}
    return {distance: label for distance, label in DISTANCES.items() if distance in trained}


def _codes(rows: list[Row], distance: str) -> np.ndarray:
    return np.array([(r["x"], r["y"]) for r in rows if r["kind"] == "code" and r["distance"] == distance])


def _draw_codes(axes: Axes, rows: list[Row], distance: str) -> None:
    x, y = _codes(rows, distance).T
    axes.scatter(x, y, s=3, color=COLOURS[distance], alpha=0.6, linewidths=0, rasterized=True)
    axes.add_patch(Circle((0, 0), 1, fill=False, color="black", linewidth=0.8))
    left = next(row for row in rows if row["kind"] == "codes")
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.75, 1.75), aspect="equal")
    axes.set_title(f"{DISTANCES[distance]}, rate {left['learning_rate']:g}, {left['sweep']} sweeps")


def _draw_radii(axes: Axes, rows: list[Row]) -> None:
    for distance, label in _distances(rows).items():
        radius = np.sort(np.linalg.norm(_codes(rows, distance), axis=1))
        axes.plot(radius, np.linspace(0, 1, radius.size), color=COLOURS[distance], label=label)
    disc = np.linspace(0, 1, 50)
    axes.plot(disc, disc**2, "--", color=GREY, label="uniform on the disc")
    axes.set(xlabel="radius", ylabel="share of codes within", title="radii of these codes", xlim=(0, 1.75))
    axes.grid(alpha=0.3)
    axes.legend()


def _draw_training(axes: Axes, rows: list[Row]) -> None:
    """A line a seed."""
    for distance, label in _distances(rows).items():
        part = [row for row in rows if row["kind"] == "sweep" and row["distance"] == distance]
        for seed in sorted({row["seed"] for row in part}):
            line = [(row["sweep"], row["mean_radius"]) for row in part if row["seed"] == seed]
            name = label if seed == 0 else None
            axes.plot(*zip(*line, strict=True), color=COLOURS[distance], linewidth=0.9, label=name)
    axes.axhline(2 / 3, color=GREY, linestyle="--")
    axes.set(xlabel="iterations (sweeps)", ylabel="mean radius of codes", title="all seeds")
    axes.grid(alpha=0.3)
    axes.legend()
