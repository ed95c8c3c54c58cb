"""Thirty changes planted in tables: how often each method finds them, and how often it cries wolf.

Tables have 5 to 100 columns and 75 to 20,000 rows; four are real. Every method gets the same pairs. What counts
for ours is what the command line decides. ``python -m experiments planted_changes`` uses all cores, and goes on
where it was stopped.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.planted_changes.detectors import ANY_COLUMN, LEVEL, METHODS, OURS
from experiments.planted_changes.simulating import (
    NOTHING,
    SMOKE,
    Config,
    cases,
    count_found,
    n_pairs,
)
from experiments.planted_changes.tables import TABLES
from experiments.trainings import WORK, Row, claim_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["SMOKE", "Config", "check", "plot", "run"]

FIRST = (
    "Of the methods that keep the level, ours is first in every row, "
    "or within two standard errors of the first."
)
REFUTED = (FIRST,)
"""Claims that failed in the kept results; the page says in which rows."""
MANY = 1000
"""With this many pairs without a change, one percent is no longer chance."""


def run(config: Config) -> list[Row]:
    """One row a table, change and method; those of methods that are not installed have no share."""
    from experiments.common import wilson

    with contextlib.ExitStack() as stack:
        folder = WORK / "planted_changes"
        if not config.is_kept:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sizes = {field.name for field in fields(config) if field.name.startswith("n_unchanged")}
        claim_folder(folder, config, {"n_pairs", "tables", "is_kept", *sizes})
        found = count_found(config, folder)
    rows: list[Row] = []
    for case in cases(config):
        size = TABLES[case.table].n_rows
        for method in METHODS:
            side = "ours" if method == OURS else "others"
            count, many = found[case][method], n_pairs(config, case, side)
            row: Row = {"table": case.table, "n_rows": size, "change": case.name, "method": method}
            row |= {"n_pairs": many, "n_found": count, "share": None, "low": None, "high": None}
            if count is not None:
                low, high = wilson(count, many)
                row |= {"share": count / many, "low": low, "high": high}
            rows.append(row)
    return rows


def check(rows: list[Row]) -> list[Claim]:
    """Whether ours keeps its level, finds what others find, and whether the level says something."""
    from experiments.common import Claim

    alarms = {m: false_alarms(rows, m) for m in METHODS}
    shares = {m: hits / many for m, (hits, many) in alarms.items() if many}
    # A rule that is not adjusted for the number of columns has no level, even where its alarms are few.
    fair = [m for m in shares if shares[m] <= LEVEL + _margin(alarms[m][1]) and m != ANY_COLUMN]
    behind = list(_behind(rows, fair))
    return [
        Claim(
            "Ours cries wolf in 5% of pairs without a change, to within one percent or four standard errors.",
            abs(shares[OURS] - LEVEL) <= _margin(alarms[OURS][1]),
            "; ".join(f"{m} {share:.3f}" for m, share in shares.items()),
        ),
        Claim(
            FIRST,
            not behind,
            "; ".join(behind) or "in every row",
        ),
        Claim(
            "A rule of 5% a column, not adjusted, cries wolf far too often.",
            shares[ANY_COLUMN] > 2 * LEVEL,
            f"{ANY_COLUMN} {shares[ANY_COLUMN]:.3f}",
        ),
    ]


def false_alarms(rows: list[Row], method: str) -> tuple[int, int]:
    """How many pairs without a change a method calls different, and of how many."""
    mine = [r for r in rows if (r["change"], r["method"]) == (NOTHING, method) and r["share"] is not None]
    return sum(r["n_found"] for r in mine), sum(r["n_pairs"] for r in mine)


def _margin(n_unchanged: int) -> float:
    """How far from the level a share of alarms may be; chance is beyond four standard errors once in 30,000."""
    return 0.01 if n_unchanged >= MANY else 4 * math.sqrt(LEVEL * (1 - LEVEL) / n_unchanged)


def _behind(rows: list[Row], fair: list[str]) -> Iterator[str]:
    """The changes that a method which keeps the level finds more often than ours, by two standard errors."""
    for key in dict.fromkeys((r["table"], r["change"]) for r in rows if r["change"] != NOTHING):
        own = {
            r["method"]: r for r in rows if (r["table"], r["change"]) == key and r["method"] in (*fair, OURS)
        }
        best = max(own.values(), key=lambda r: r["n_found"])
        gap = best["share"] - own[OURS]["share"]
        if gap > 2 * math.hypot(_stderr(best), _stderr(own[OURS])):
            yield f"{', '.join(key)}: {own[OURS]['share']:.2f}, {best['method']} {best['share']:.2f}"


def _stderr(row: Row) -> float:
    """The standard error of a share, which is not 0 for a share of 0 or 1."""
    share = (row["n_found"] + 1) / (row["n_pairs"] + 2)
    return math.sqrt(share * (1 - share) / row["n_pairs"])


def plot(rows: list[Row]) -> Figure:
    """The shares as a table of shades, a line a change and a column a method."""
    from matplotlib.figure import Figure

    lines = list(dict.fromkeys((r["table"], r["change"]) for r in rows))
    shares = {(r["table"], r["change"], r["method"]): r["share"] for r in rows}
    figure = Figure(figsize=(8.4, 1.6 + 0.24 * len(lines)), layout="constrained")
    axes = figure.subplots()
    grid = [[shares[*line, m] for m in METHODS] for line in lines]
    axes.imshow(
        [[math.nan if s is None else s for s in line] for line in grid], "Blues", aspect="auto", vmin=0, vmax=1
    )
    for i, line in enumerate(grid):
        for j, share in enumerate(line):
            if share is not None:
                axes.text(
                    j,
                    i,
                    f"{100 * share:.0f}",
                    ha="center",
                    va="center",
                    color="white" if share > 0.6 else "black",
                )
    axes.set_yticks(range(len(lines)), [f"{table}: {change}" for table, change in lines])
    axes.set_xticks(range(len(METHODS)), METHODS, rotation=30, ha="left")
    axes.xaxis.tick_top()
    axes.set_xlabel(f"called different, in % of pairs; the lines of “{NOTHING}” should be {100 * LEVEL:.0f}")
    axes.axhline(sum(change != NOTHING for _, change in lines) - 0.5, color="black", linewidth=1)
    return figure
