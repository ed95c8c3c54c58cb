"""The conjecture that orthogonal directions never hurt PW: false from three points a side on.

All errors are exact. The ratio of the errors is 1 plus the correlation of the scores of two orthogonal
directions, for every even number of directions, so two directions tell it for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from experiments.common import GREY, IID_COLOUR, ORTHOGONAL_COLOUR, Claim, Row, plane_errors, wilson
from orthoslice.exact import angular_score, projected_plane

X = ((1.32, 1.29), (-0.42, 0.65), (0.97, -0.98))
Y = ((-2.04, -0.46), (1.04, 0.84), (-0.38, -0.54))
EXPECTED = {
    1: (1.555558, 0.0497682896671, 0.0649576280193),
    2: (3.033351, 0.590811410697, 0.917991136665),
}
"""PW_p^p to six decimals, and the errors from a separate calculation in 40-digit arithmetic."""

WORSE = 1 + 1e-9
"""A ratio above this is worse and not rounding."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How many data sets are searched, of how many points a side."""

    sizes: tuple[int, ...] = (2, 3, 4, 5, 8, 10, 20, 30)
    n_data_sets: int = 4000
    seed: int = 2019


SMOKE = Config(sizes=(2, 3, 10), n_data_sets=100)


def run(config: Config) -> list[Row]:
    """A row for the counterexample and a row a size, both for p = 1 and 2."""
    rows = []
    for p in (1, 2):
        iid, orthogonal = plane_errors(X, Y, p, "projected")
        row = {"kind": "counterexample", "p": p, "m": 3, "value": projected_plane(X, Y, p)}
        rows.append(_row(row | {"mse_iid": iid, "mse_orthogonal": orthogonal, "worst_ratio": orthogonal / iid}))
    for p in (1, 2):
        rows.extend(search(m, p, config) for m in config.sizes)
    return rows


def search(m: int, p: int, config: Config) -> Row:
    """How often, and by how much, orthogonal is worse on clouds of `m` standard normal points."""
    rng = np.random.default_rng([config.seed, m])
    ratios = np.empty(config.n_data_sets)
    for index in range(config.n_data_sets):
        x, y = rng.standard_normal((2, m, 2))
        iid, orthogonal = plane_errors(x, y, p, "projected")
        ratios[index] = orthogonal / iid if iid > 0 else 1.0
    n_worse = int((ratios > WORSE).sum())
    low, high = wilson(n_worse, ratios.size)
    row = {"kind": "search", "p": p, "m": m, "n_data_sets": ratios.size, "n_worse": n_worse}
    row |= {"share_worse": n_worse / ratios.size, "low": low, "high": high}
    return _row(row | {"median_ratio": float(np.median(ratios)), "worst_ratio": float(ratios.max())})


def _row(known: Row) -> Row:
    columns = ("kind", "p", "m", "value", "mse_iid", "mse_orthogonal", "n_data_sets", "n_worse", "share_worse")
    return {column: known.get(column) for column in (*columns, "low", "high", "median_ratio", "worst_ratio")}


def check(rows: list[Row]) -> list[Claim]:
    """The counterexample, and what the search says of each size."""
    examples = [row for row in rows if row["kind"] == "counterexample"]
    pairs = [row for row in rows if row["kind"] == "search" and row["m"] == 2]
    others = [row for row in rows if row["kind"] == "search" and row["m"] > 2]
    shares = [row["share_worse"] for row in others]
    worst = max(others, key=lambda row: row["worst_ratio"])
    return [
        Claim(
            "The conjecture fails at M = 3: orthogonal is worse than iid for PW on a given data set.",
            all(row["mse_orthogonal"] > row["mse_iid"] for row in examples),
            "; ".join(
                f"p = {row['p']}: PW_p^p {row['value']:.6f}, MSE iid {row['mse_iid']:.6f}, "
                f"orthogonal {row['mse_orthogonal']:.6f}"
                for row in examples
            ),
        ),
        Claim(
            "Its errors agree with a 40-digit calculation to 1e-11, its values with six known decimals.",
            all(_agrees(row) for row in examples),
            "both p",
        ),
        Claim(
            "The proposition holds: for M = 2 orthogonal is never worse.",
            all(row["n_worse"] == 0 for row in pairs),
            "; ".join(
                f"p = {row['p']}: {row['n_worse']} of {row['n_data_sets']}, "
                f"largest ratio {row['worst_ratio']:.4f}"
                for row in pairs
            ),
        ),
        Claim(
            "For every M tried from 3 on, orthogonal is worse on some data sets, but on a minority.",
            all(0 < share < 0.5 for share in shares),
            f"shares from {min(shares):.1%} to {max(shares):.1%}; largest ratio {worst['worst_ratio']:.3f} "
            f"(M = {worst['m']}, p = {worst['p']}), the bound is 2",
        ),
    ]


def _agrees(row: Row) -> bool:
    value, *errors = EXPECTED[row["p"]]
    found = [row["mse_iid"], row["mse_orthogonal"]]
    return abs(row["value"] - value) <= 5.1e-7 and bool(np.allclose(found, errors, rtol=1e-11, atol=0))


def plot(rows: list[Row]) -> Figure:
    """The counterexample, its score over all directions, and how often the conjecture fails."""
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    points, scores, shares = figure.subplots(1, 3)
    _draw_points(points)
    _draw_scores(scores, next(row for row in rows if row["kind"] == "counterexample" and row["p"] == 2))
    _draw_shares(shares, [row for row in rows if row["kind"] == "search"])
    return figure


def _draw_points(axes: Axes) -> None:
    for name, cloud, marker, colour in (("x", X, "o", "black"), ("y", Y, "s", GREY)):
        axes.plot(*np.array(cloud).T, marker=marker, linestyle="", color=colour, label=f"${name}$")
        for index, point in enumerate(cloud, start=1):
            axes.annotate(f"${name}_{index}$", point, xytext=(7, 4), textcoords="offset points")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set(xlabel="first coordinate", ylabel="second coordinate")
    axes.set_title("A data set on which orthogonal loses")
    axes.margins(0.15)
    axes.grid(alpha=0.3)


def _draw_scores(axes: Axes, row: Row) -> None:
    score = angular_score(X, Y, 2, method="projected")
    degrees = np.linspace(0, 180, 1441)
    angles = np.deg2rad(degrees)
    pair = (score(angles) + score(angles + np.pi / 2)) / 2
    axes.plot(degrees, score(angles), color=IID_COLOUR, label="score of one direction")
    axes.plot(degrees, pair, color=ORTHOGONAL_COLOUR, label="mean of an orthogonal pair")
    axes.axhline(row["value"], color=GREY, linestyle="--", linewidth=1, label="PW$_2^2$")
    axes.set(
        xlim=(0, 180),
        xticks=range(0, 181, 45),
        xlabel="angle of the (first) direction (degrees)",
        ylabel="score",
    )
    axes.set_title(f"PW$_2^2$, $N = 2$: MSE iid {row['mse_iid']:.4f}, orthogonal {row['mse_orthogonal']:.4f}")
    axes.set_ylim(top=axes.get_ylim()[1] * 1.25)
    axes.legend(loc="upper right")


def _draw_shares(axes: Axes, rows: list[Row]) -> None:
    sizes = sorted({row["m"] for row in rows})
    for p, marker, colour, shift in ((1, "o", "black", 0.97), (2, "s", GREY, 1.03)):
        part = [row for row in rows if row["p"] == p]
        share = np.array([row["share_worse"] for row in part])
        # Rounding may put a bound a hair on the wrong side of the share.
        low = np.maximum(share - [row["low"] for row in part], 0)
        high = np.maximum(np.array([row["high"] for row in part]) - share, 0)
        at = shift * np.array([row["m"] for row in part])
        axes.errorbar(
            at, share, yerr=[low, high], marker=marker, color=colour, capsize=3, linewidth=1, label=f"$p = {p}$"
        )
    axes.set(xscale="log", xticks=sizes, xticklabels=sizes, xlabel="M, points a side", ylim=(-0.005, None))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("share of data sets where orthogonal is worse")
    axes.set_title("How often, on Gaussian data (95% intervals)")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
