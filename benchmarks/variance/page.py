"""Tables and pictures of the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from experiments.common import STYLE, save_figure, write_rows
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.tables import table, targets_table
from benchmarks.variance import GROUPS
from benchmarks.variance.analysis import (
    CHOSEN,
    Cell,
    Median,
    by_cell,
    evaluate,
    gain_text,
    medians,
    truth_of,
)
from benchmarks.variance.measure import EXACT, Row
from benchmarks.variance.methods import METHODS

NAMES = [method.name for method in METHODS]
PEERS = [method.name for method in METHODS if not method.ours]
OURS = [method.name for method in METHODS if method.ours and method.name != "iid"]

DRAWN = {
    "orthogonal": ("#0072b2", "o"),
    "orthogonal + gaussian": ("#56b4e9", "s"),
    "equispaced": ("#009e73", "D"),
    "optimized": ("#009e73", "^"),
    "kerdock": ("#cc79a7", "v"),
    "auto, 1 replicate": ("#000000", "o"),
    "RQMC (scrambled Sobol)": ("#e69f00", "x"),
    "upper control (Nguyen, Ho)": ("#999999", "+"),
    "harmonics (Leluc et al.)": ("#d55e00", "1"),
}
"""Methods in the pictures, with a colour and a marker each; ours are solid lines, peers dashed ones."""


def render(folder: Path, rows: Sequence[Row]) -> Path:
    """Write the page, the table of all ratios and the pictures."""
    found = medians(rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "variance.csv", list(_flat(found)))
    with mpl.rc_context(STYLE):
        for name, figure in (
            ("dimension", dimension_figure(found)),
            ("data", data_figure(found)),
            ("gradients", gradient_figure(found)),
        ):
            save_figure(figure, folder / f"variance_{name}")
    page = folder / "variance.md"
    page.write_text(page_text(rows, found), encoding="utf-8")
    return page


def _flat(found: Mapping[Cell, Mapping[str, Median]]) -> Iterable[Row]:
    for (group, problem, dim, directions, score, p), methods in found.items():
        for name, one in methods.items():
            yield {
                "group": group,
                "problem": problem,
                "dim": dim,
                "directions": directions,
                "score": score,
                "p": p,
                "method": name,
                "ratio": one.value,
                "stderr": one.stderr,
                "time_ratio": one.seconds,
                "sets": one.n_sets,
            }


def page_text(rows: Sequence[Row], found: Mapping[Cell, Mapping[str, Median]]) -> str:
    """The page as Markdown."""
    first = medians(row for row in rows if row["set"] == 0)
    parts = [
        "# Less error from as many directions",
        "Made by `python -m benchmarks variance` from `variance.jsonl`; "
        "[the README](../README.md#variance) says how it is measured. All figures are **squared error relative "
        "to as many iid directions** (lower is better) unless they end in x, which is how many times less it "
        "is. In brackets: the standard error in units of the last digit. What has not been run is not shown: "
        "the same command goes on where it stopped.",
        "![squared error against the dimension](variance_dimension.png)",
        "## Targets",
        targets_table(evaluate(rows)),
        "Medians over 20 data sets (digits are one data set), with 95% intervals. The truth is exact in the "
        "plane, and elsewhere the mean over all repetitions of the unbiased method that varies least. Its own "
        "squared error is that of the best method divided by its repetitions: at most "
        f"{_worst_truth(rows):.1%} of the least error shown in any cell.",
        _shown_table(found, first),
        "## The choice of `auto`",
        *_auto_text(first),
    ]
    for group, text in GROUPS.items():
        cells = {cell: methods for cell, methods in found.items() if cell[0] == group}
        if not cells:
            continue
        parts += [f"## {group.capitalize()}", f"{text}."]
        if group == "gradients":
            parts.append("![squared error of gradients](variance_gradients.png)")
        if group == "digits":
            parts.append("![squared error on other data](variance_data.png)")
        for score in ("SW", "PW"):
            parts += _group_tables(cells, score)
    return "\n\n".join(part for part in parts if part) + "\n"


def _worst_truth(rows: Sequence[Row]) -> float:
    shares = [0.0]
    for methods in by_cell(row for row in rows if row["group"] != "gradients").values():
        truth = truth_of(methods)
        least = min(
            (row["variance"] for row in methods.values() if row["unbiased"] and row["method"] != EXACT),
            default=0,
        )
        if least > 0:
            shares.append(truth.stderr**2 / least)
    return max(shares)


def number(value: float, stderr: float) -> str:
    """Two digits of the value, and its standard error in units of the last, rounded up.

    Examples
    --------
    >>> number(0.02234, 0.0012), number(0.98, 0.034), number(3.1e-5, 4e-6)
    ('.022(2)', '.98(4)', '3.1e-05(4)')
    """
    if not value > 0:
        return "0"
    places = max(1 - math.floor(math.log10(value)), 0)
    error = math.ceil(round(stderr * 10**places, 1))
    if value < 1e-3:
        return f"{value:.1e}({error})"
    return f"{value:.{places}f}({error})".replace("0.", ".", 1)


def _pair(found: Mapping[Cell, Mapping[str, Median]], head: Cell, name: str, timed: bool = False) -> str:
    """A method's ratios for p = 1 and p = 2, or a dash."""
    cells = [found.get((*head, p), {}).get(name) for p in (1, 2)]
    if not any(cells):
        return ""
    factor = [one.seconds if one and timed else 1.0 for one in cells]
    return " / ".join(
        "-" if one is None else number(one.value * f, one.stderr * f)
        for one, f in zip(cells, factor, strict=True)
    )


def _title(head: Cell) -> str:
    return f"{head[1]}, d={head[2]}, N={head[3]}"


def _group_tables(cells: Mapping[Cell, Mapping[str, Median]], score: str) -> list[str]:
    heads = list(dict.fromkeys(cell[:5] for cell in cells if cell[4] == score))
    if not heads:
        return []
    present = [
        name
        for name in NAMES
        if name != "iid" and any(name in cells.get((*h, p), {}) for h in heads for p in (1, 2))
    ]
    parts = []
    for timed, text in ((False, "the same number of directions"), (True, "the same time")):
        lines = [[name, *(_pair(cells, head, name, timed) for head in heads)] for name in present]
        parts.append(f"{score}_1 / {score}_2 at {text}:")
        parts.append(table(["", *(_title(head) for head in heads)], lines))
    return parts


def _shown_table(found: Mapping[Cell, Mapping[str, Median]], first: Mapping[Cell, Mapping[str, Median]]) -> str:
    """How many times less error, for the problems of the targets; peers ran on the first data set only."""
    heads = list(dict.fromkeys(cell[:5] for cell in found if cell[0] == "shown" and cell[4] == "SW"))
    if not heads:
        return ""
    columns = ((found, [CHOSEN]), (found, ["auto"]), (first, [CHOSEN]), (first, PEERS))
    lines = []
    for head in heads:
        line = [_title(head)]
        for source, names in columns:
            best = [_least(source.get((*head, p), {}), names) for p in (1, 2)]
            texts = (
                "-" if b is None else gain_text(b[1]) + (f" {b[0]}" if len(names) > 1 else "") for b in best
            )
            line.append(" / ".join(texts))
        lines.append(line)
    heading = [
        CHOSEN,
        "auto: the cost of an error bar",
        f"first data set: {CHOSEN}",
        "first data set: best peer",
    ]
    return table(["p = 1 / p = 2", *heading], lines)


def _least(methods: Mapping[str, Median], names: Sequence[str]) -> tuple[str, Median] | None:
    there = [(name, methods[name]) for name in names if name in methods]
    return min(there, key=lambda pair: pair[1].value) if there else None


def _auto_text(found: Mapping[Cell, Mapping[str, Median]]) -> list[str]:
    """How `auto` compares with the best sampler and with the peers, over all cells of values, on equal data."""
    # No peer runs in the group `default`.
    cells = {cell: m for cell, m in found.items() if cell[0] not in ("gradients", "default") and CHOSEN in m}
    if not cells:
        return ["Not run yet."]
    samplers = [name for name in OURS if "4 rotations" not in name and name != "auto"]
    plain = [name for name in samplers if "gaussian" not in name]
    near, near_any, behind = 0, 0, []
    for cell, methods in cells.items():
        own = methods[CHOSEN]
        near += _is_near(own, _least(methods, plain))
        near_any += _is_near(own, _least(methods, samplers))
        peer = _least(methods, PEERS)
        if peer is not None and own.value > peer[1].value + 2 * math.hypot(own.stderr, peer[1].stderr):
            behind.append(
                f"{cell[4]}_{cell[5]} of {_title(cell)}: {peer[0]} {number(*peer[1][:2])}, "
                f"{CHOSEN} {number(*own[:2])}"
            )
    haar = [
        (cell, methods["orthogonal"])
        for cell, methods in found.items()
        if "orthogonal" in methods and cell[0] != "gradients"
    ]
    over = [cell for cell, one in haar if one.value > (cell[2] + 4) / (cell[2] + 1) + 3 * one.stderr]
    n = len(cells)
    text = (
        f'`{CHOSEN}`, with `control="auto"`, is within 1.5x of the best sampler with one set, within two '
        f"standard errors, in {near} of {n} cells ({near / n:.0%}). It is within 1.5x of the best with or "
        f"without the control in {near_any} ({near_any / n:.0%}): by itself the library does not use the "
        "control for small clouds, which are scored in less time than it takes, nor in few dimensions. "
        f"A peer's method is ahead by more than two standard errors in {len(behind)} cells, where chance alone "
        "would make about "
        f"{0.023 * n:.0f}" + (":" if behind else ".")
    )
    bound = (
        f"Haar blocks are above (d + 4) / (d + 1) times iid by more than three standard errors in {len(over)} "
        f"of {len(haar)} cells."
    )
    return [text, "\n".join(f"- {line}" for line in behind), bound]


def _is_near(own: Median, best: tuple[str, Median] | None) -> bool:
    return best is None or own.value <= 1.5 * best[1].value + 2 * math.hypot(own.stderr, best[1].stderr)


def dimension_figure(found: Mapping[Cell, Mapping[str, Median]]) -> Figure:
    """Squared error against the dimension, on the paper's Gaussians with 1,000 points a cloud and N = 4 d."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, p in zip(axes, (1, 2), strict=True):
        cells = (
            sorted(
                (cell[2], methods)
                for cell, methods in found.items()
                if cell[0] in ("shown", "gaussians") and cell[1] == "Gaussians M=1000" and cell[4:] == ("SW", p)
            )
            if found
            else []
        )
        _lines(axis, cells)
        axis.set_title(f"SW$_{p}$ of two samples of one Gaussian, 1,000 points each")
        axis.set_xlabel("dimension $d$ (log); directions $N = 4d$")
    axes[0].set_ylabel("squared error relative to iid directions")
    if axes[1].get_legend_handles_labels()[0]:
        axes[1].legend(loc="lower right", fontsize=8)
    return figure


def _lines(axis: Axes, cells: Sequence[tuple[int, Mapping[str, Median]]]) -> None:
    axis.axhline(1, color="#d55e00", linewidth=1)
    for name in DRAWN:
        _draw(axis, name, [(dim, m[name]) for dim, m in cells if name in m], line=True)
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = [dim for dim, _ in cells]
    axis.set_xticks(ticks, [str(dim) for dim in ticks])
    axis.minorticks_off()


def _draw(axis: Axes, name: str, points: Sequence[tuple[float, Median]], *, line: bool) -> None:
    """One method, with 95% intervals; what `auto` takes is a ring around it."""
    points = [(place, one) for place, one in points if one.value > 0]
    if not points:
        return
    colour, marker = DRAWN[name]
    ring = name == CHOSEN
    values = [one.value for _, one in points]
    down, up = [one.value - one.low for _, one in points], [one.high - one.value for _, one in points]
    style = "none" if ring or not line else "--" if name in PEERS else "-"
    axis.errorbar(
        [place for place, _ in points],
        values,
        yerr=None if ring else [[max(d, 0.0) for d in down], [max(u, 0.0) for u in up]],
        color=colour,
        marker=marker,
        markerfacecolor="none" if ring else colour,
        markersize=12 if ring else 5,
        linestyle=style,
        linewidth=1,
        elinewidth=0.7,
        label=f"what auto takes ({name.split(', ')[1]})" if ring else name,
    )


def data_figure(found: Mapping[Cell, Mapping[str, Median]]) -> Figure:
    """Squared error of every method on data that people have, one row a method."""
    heads = [
        head
        for head in dict.fromkeys(cell[:5] for cell in found if cell[4] == "SW")
        if (head[0] in ("shown", "shapes") and "Gaussians" not in head[1] and head[3] != 192)
        or head[0] in ("cells", "mnist")
    ]
    columns = max(len(heads), 1)
    figure = Figure(figsize=(3.4 + 2.1 * columns, 5), layout="constrained")
    axes = figure.subplots(1, columns, sharey=True, squeeze=False)[0]
    names = [name for name in NAMES if any(name in found.get((*h, p), {}) for h in heads for p in (1, 2))][::-1]
    for axis, head in zip(axes, heads, strict=False):
        for p, marker, colour in ((1, "o", "#0072b2"), (2, "s", "#e69f00")):
            methods = found.get((*head, p), {})
            for place, name in enumerate(names):
                if name in methods and methods[name].value > 0:
                    axis.plot(methods[name].value, place, marker, color=colour, markersize=5)
            axis.plot([], [], marker, color=colour, label=f"SW$_{p}$")
        axis.set_xscale("log")
        axis.axvline(1, color="#d55e00", linewidth=1)
        axis.grid(axis="y", color="#eeeeee")
        axis.set_title(f"{head[1]}\n$d={head[2]}$, $N={head[3]}$", fontsize=9)
    axes[0].set_yticks(range(len(names)), names)
    for label in axes[0].get_yticklabels():
        if label.get_text() in PEERS:
            label.set_color("#888888")
    axes[-1].legend(loc="lower left", fontsize=8)
    figure.supxlabel("squared error relative to iid directions (log); in grey: peers' methods", fontsize=9)
    return figure


def gradient_figure(found: Mapping[Cell, Mapping[str, Median]]) -> Figure:
    """The same for gradients, for both distances."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, score in zip(axes, ("SW", "PW"), strict=True):
        heads = list(dict.fromkeys(cell[:5] for cell in found if cell[0] == "gradients" and cell[4] == score))
        for name in DRAWN:
            points = [
                (place, found[(*head, 2)][name])
                for place, head in enumerate(heads)
                if name in found.get((*head, 2), {})
            ]
            _draw(axis, name, points, line=False)
        axis.axhline(1, color="#d55e00", linewidth=1)
        axis.set_yscale("log")
        axis.set_xticks(range(len(heads)), [f"{h[1]}\nd={h[2]}" for h in heads], fontsize=7, rotation=20)
        axis.set_title(f"gradient of {score}$_2^2$ by the points")
    axes[0].set_ylabel("squared error relative to iid directions")
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(loc="lower left", fontsize=8)
    return figure
