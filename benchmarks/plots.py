"""Pictures of the rows: times side by side, growth, memory."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.runner import Row
from benchmarks.tables import name_of, short_problem
from benchmarks.targets import select

COLOURS = {
    "orthoslice": "#0072b2",
    "pot": "#d55e00",
    "ott": "#cc79a7",
    "numpy": "#009e73",
    "torch": "#e69f00",
    "jnp": "#56b4e9",
}
SECOND_FORMS = ("function", "compiled")
"""Drawn hollow, as a second sort path is."""
GROWTH = {
    "growth_n": ("n", "points"),
    "growth_dim": ("dim", "dimension"),
    "growth_directions": ("n_directions", "directions"),
    "threads": ("threads", "threads"),
}


def forward_figure(rows: Sequence[Row]) -> Figure:
    """Seconds a call: one place a problem, one marker a library and sort path."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    shown = [row for row in select(rows, group="forward") if row["median_s"] is not None]
    problems = list(dict.fromkeys(row["problem"] for row in shown))
    names = list(dict.fromkeys(name_of(row) for row in shown))
    for k, name in enumerate(names):
        mine = [row for row in shown if name_of(row) == name]
        # Side by side within a problem, so that bars of the spread do not cover each other.
        is_second = mine[0]["path"] == "other" or mine[0]["form"] in SECOND_FORMS
        x = [problems.index(row["problem"]) + 0.08 * (k - len(names) / 2) for row in mine]
        axes.errorbar(
            x,
            [row["median_s"] for row in mine],
            yerr=_spread(mine),
            linestyle="none",
            marker="s" if is_second else "o",
            markersize=6,
            markerfacecolor="white" if is_second else COLOURS[mine[0]["library"]],
            color=COLOURS[mine[0]["library"]],
            label=name,
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(problems)), [short_problem(problem) for problem in problems])
    axes.set_ylabel("seconds a call")
    axes.set_title("Sliced distance with given directions (float32); median and quartiles")
    axes.grid(axis="y", alpha=0.3)
    axes.set_xlabel("points, dimension, directions")
    if names:
        figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return figure


def growth_figure(rows: Sequence[Row]) -> Figure:
    """Seconds a call against one size at a time."""
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    panels = figure.subplots(2, 2)
    for axes, (group, (column, text)) in zip(panels.flat, GROWTH.items(), strict=True):
        _growth_panel(axes, select(rows, group=group), column, text)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def _growth_panel(axes: Axes, rows: Sequence[Row], column: str, text: str) -> None:
    shown = [row for row in rows if row["median_s"] is not None]
    for name in dict.fromkeys(name_of(row) for row in shown):
        mine = sorted((row for row in shown if name_of(row) == name), key=lambda row: row[column])
        axes.errorbar(
            [row[column] for row in mine],
            [row["median_s"] for row in mine],
            yerr=_spread(mine),
            marker="o",
            markersize=4,
            color=COLOURS[mine[0]["library"]],
            label=name,
        )
    if shown:
        axes.set_xscale("log", base=2 if column in ("threads", "dim") else 10)
        axes.set_yscale("log")
    if column == "threads":
        counts = sorted({row["threads"] for row in shown})
        axes.set_xticks(counts, [str(count) for count in counts], minor=False)
    axes.set_xlabel(text)
    axes.set_ylabel("seconds a call")
    axes.grid(alpha=0.3)


def memory_figure(rows: Sequence[Row]) -> Figure:
    """Bytes beyond the data at the peak of one call."""
    shown = [row for row in select(rows, group="memory") if row["peak_bytes"] is not None]
    labels = [f"{name_of(row)}\n{row['task']}, {short_problem(row['problem'])}" for row in shown]
    figure = Figure(figsize=(8, 1 + 0.5 * max(len(shown), 1)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(range(len(shown)), [row["peak_bytes"] / 1e6 for row in shown])
    for bar, row in zip(bars, shown, strict=True):
        bar.set_color(COLOURS[row["library"]])
    axes.bar_label(bars, [f" {row['peak_bytes'] / 1e6:.3g} MB" for row in shown], fontsize=8)
    axes.set_yticks(range(len(shown)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("megabytes beyond the data at the peak of a call")
    return figure


def _spread(rows: Sequence[Row]) -> list[list[float]]:
    return [
        [row["median_s"] - row["low_s"] for row in rows],
        [row["high_s"] - row["median_s"] for row in rows],
    ]
