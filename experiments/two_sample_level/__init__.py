"""How often two samples of one law are called different, by the combined test and by the tests of columns.

Both samples of every simulation are drawn from one law, so every p-value of 5% or less is a false alarm. The
combined test is ``osl.two_sample_test(x, y, method="auto")``; a column is a false alarm if any of its adjusted
p-values is 5% or less. What is not adjusted is counted too, to see that the count can fail.
``python -m experiments two_sample_level`` uses all cores, and goes on where it was stopped.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.trainings import WORK, Row, claim_folder
from experiments.two_sample_level.simulating import METHODS, SMOKE, TABLES, UNADJUSTED, Config, count_rejections

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["REFUTED", "SMOKE", "Config", "check", "plot", "run"]

LEVEL = 0.05
TIED = "tied"
"""The table whose statistics tie, so that fewer than 5% are rejected."""
NEAR = "Of samples of one law 5% are called different, to within one percent."
REFUTED = (NEAR,)
"""Claims that failed in the kept results; the page says where."""
FEW = 2000
"""Below this number of simulations chance explains more than one percent."""


def run(config: Config) -> list[Row]:
    """One row a table and method."""
    from experiments.common import wilson

    with contextlib.ExitStack() as stack:
        folder = WORK / "two_sample_level"
        if not config.is_kept:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        claim_folder(folder, config, {"n_simulations", "is_kept"})
        hits = count_rejections(config, folder)
    rows: list[Row] = []
    for table in TABLES:
        for method in METHODS:
            count = hits[table][method]
            low, high = wilson(count, config.n_simulations)
            row: Row = {"table": table, "method": method, "n_simulations": config.n_simulations}
            share = count / config.n_simulations
            rows.append(row | {"n_rejected": count, "share": share, "low": low, "high": high})
    return rows


def check(rows: list[Row]) -> list[Claim]:
    """Whether the level is kept, and whether that could have failed."""
    from experiments.common import Claim

    n = rows[0]["n_simulations"]
    # With 2,000 simulations or more one percent: chance leaves these limits in 4% of seeds, for each share.
    # With fewer four standard errors: once in 15,000.
    margin = 0.01 if n >= FEW else 4 * np.sqrt(LEVEL * (1 - LEVEL) / n)
    adjusted = [row for row in rows if row["method"] != UNADJUSTED]
    smooth, tied = ([r for r in adjusted if (r["table"] == TIED) is ties] for ties in (False, True))
    plain = [row for row in rows if row["method"] == UNADJUSTED]
    return [
        Claim(
            NEAR,
            all(abs(row["share"] - LEVEL) <= margin for row in smooth),
            _shares(smooth),
        ),
        Claim(
            "Where statistics tie no more than 6% are called different.",
            all(row["share"] <= LEVEL + margin for row in tied),
            _shares(tied),
        ),
        Claim(
            "The smallest p-value of all parts, not adjusted, would be 5% or less far too often.",
            float(np.mean([row["share"] for row in plain])) > LEVEL + 0.02,
            _shares(plain),
        ),
    ]


def _shares(rows: list[Row]) -> str:
    return "; ".join(f"{row['table']}, {row['method']} {row['share']:.4f}" for row in rows)


def plot(rows: list[Row]) -> Figure:
    """The share of rejections with its interval, for every table and method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for k, (method, colour) in enumerate(zip(METHODS, ("#0072b2", "#009e73", "#d55e00"), strict=True)):
        mine = [row for row in rows if row["method"] == method]
        shares = np.array([row["share"] for row in mine])
        arms = np.abs(np.array([[row["low"], row["high"]] for row in mine]).T - shares)
        places = np.arange(len(mine)) + 0.15 * (k - 1)
        axes.errorbar(places, shares, arms, fmt="o", color=colour, capsize=3, label=method)
    axes.axhline(LEVEL, color="black", linewidth=0.6)
    axes.axhspan(0.04, 0.06, color="black", alpha=0.06, linewidth=0)
    axes.set(xticks=range(len(TABLES)), xticklabels=list(TABLES), ylabel="share of rejections at 5%")
    axes.set_ylim(bottom=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))
    return figure
