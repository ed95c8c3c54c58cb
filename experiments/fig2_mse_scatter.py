"""Figure 2: orthogonal against iid error of SW_1 on random problems, with as many directions as dimensions.

Both clouds come from N(mu, I) with the same mu. It cancels, so mu = 0. In the plane errors are exact. In 50
dimensions they are variances over many independent blocks, with standard errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

import orthoslice as osl
from experiments.common import GREY, IID_COLOUR, ORTHOGONAL_COLOUR, Claim, Row, plane_errors, wilson
from orthoslice.exact import sliced_plane, sliced_two_points

PANELS = ((2, 2), (50, 2), (2, 10), (50, 10))
"""Dimension and points a side, in the order of the paper's panels."""
ANSWERS = (
    "mse_iid",
    "mse_iid_stderr",
    "mse_orthogonal",
    "mse_orthogonal_stderr",
    "value",
    "value_stderr",
    "value_exact",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """How many problems, and how many blocks and directions a simulated error rests on."""

    n_problems_plane: int = 1000
    n_problems_simulated: int = 300
    n_blocks: int = 8000
    n_iid: int = 50_000
    n_together: int = 25
    seed: int = 2019


SMOKE = Config(n_problems_plane=60, n_problems_simulated=6, n_blocks=400, n_iid=4000, n_together=3)


def run(config: Config) -> list[Row]:
    """One row a problem."""
    rows: list[Row] = []
    for dim, m in PANELS:
        rng = np.random.default_rng([config.seed, dim, m])
        exact = dim == 2
        n_problems = config.n_problems_plane if exact else config.n_problems_simulated
        x, y = rng.standard_normal((2, n_problems, m, dim))
        answers = _exact(x, y) if exact else _simulated(x, y, config)
        rows.extend({"dim": dim, "m": m, "problem": index} | answer for index, answer in enumerate(answers))
    return rows


def _exact(x: NDArray[np.float64], y: NDArray[np.float64]) -> Iterator[Row]:
    for one, other in zip(x, y, strict=True):
        iid, orthogonal = plane_errors(one, other, 1)
        value = sliced_plane(one, other, 1)
        yield dict(zip(ANSWERS, (iid, 0.0, orthogonal, 0.0, value, 0.0, value), strict=True))


def _simulated(x: NDArray[np.float64], y: NDArray[np.float64], config: Config) -> Iterator[Row]:
    """Problems a few at a time; those of one batch share their directions, batches do not."""
    m, dim = x.shape[1:]
    for first in range(0, len(x), config.n_together):
        batch = slice(first, first + config.n_together)
        seeds = np.random.SeedSequence([config.seed, dim, m, first]).spawn(2)
        single = _scores(x[batch], y[batch], osl.directions.IID(), config.n_iid, seeds[0])
        blocks = _scores(x[batch], y[batch], osl.directions.Orthogonal(), config.n_blocks * dim, seeds[1])
        means = blocks.reshape(config.n_blocks, dim, -1).mean(axis=1)
        spread, spread_stderr = variance(single)
        mse, mse_stderr = variance(means)
        value, value_stderr = means.mean(axis=0), np.sqrt(mse / config.n_blocks)
        for k in range(means.shape[1]):
            truth = sliced_two_points(x[first + k], y[first + k], 1) if m == 2 else None
            errors = (spread[k] / dim, spread_stderr[k] / dim, mse[k], mse_stderr[k])
            numbers = [float(number) for number in (*errors, value[k], value_stderr[k])]
            yield dict(zip(ANSWERS, (*numbers, truth), strict=True))


def _scores(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    sampler: osl.directions.Sampler,
    n_directions: int,
    seed: np.random.SeedSequence,
) -> NDArray[np.float64]:
    """Scores `(n_directions, problems)` of SW_1."""
    est = osl.sliced_wasserstein(x, y, 1, directions=sampler, n_directions=n_directions, control=None, rng=seed)
    return np.asarray(est.scores)


def variance(sample: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Unbiased variance of independent rows, and its standard error by the fourth moment."""
    n = len(sample)
    centred = sample - sample.mean(axis=0)
    spread = (centred**2).sum(axis=0) / (n - 1)
    fourth = (centred**4).mean(axis=0)
    return spread, np.sqrt((fourth - spread**2 * (n - 3) / (n - 1)) / n)


def _panel(rows: list[Row], dim: int, m: int) -> list[Row]:
    return [row for row in rows if (row["dim"], row["m"]) == (dim, m)]


def _n_iid_wins(rows: list[Row]) -> int:
    return sum(row["mse_iid"] < row["mse_orthogonal"] for row in rows)


def _columns(rows: list[Row], *names: str) -> list[NDArray[np.float64]]:
    return [np.array([row[name] for row in rows], dtype=float) for name in names]


def check(rows: list[Row]) -> list[Claim]:
    """What the paper says of its panels, and two checks of the numbers themselves."""
    plane = [_panel(rows, dim, m) for dim, m in PANELS if dim == 2]
    high = [_panel(rows, dim, m) for dim, m in PANELS if dim > 2]
    shares = [_n_iid_wins(part) / len(part) for part in plane]
    simulated = [row for part in high for row in part]
    iid, iid_stderr, orthogonal, stderr = _columns(
        simulated, "mse_iid", "mse_iid_stderr", "mse_orthogonal", "mse_orthogonal_stderr"
    )
    clearance = (iid - orthogonal) / np.hypot(iid_stderr, stderr)
    known = [row for row in simulated if row["value_exact"] is not None]
    value, value_stderr, truth = _columns(known, "value", "value_stderr", "value_exact")
    deviation = np.abs(value - truth) / value_stderr
    excess = {dim: _largest_ratio([row for row in rows if row["dim"] == dim]) for dim in (2, 50)}
    return [
        Claim(
            "d = 2: orthogonality does not always help, but does in the vast majority of cases.",
            all(0 < share < 0.2 for share in shares),
            "; ".join(f"M = {part[0]['m']}: {_share(part)}" for part in plane),
        ),
        Claim(
            "d = 50: the improvement is robust: orthogonal wins on every problem, by five standard errors.",
            bool(clearance.min() > 5),
            "; ".join(f"M = {part[0]['m']}: {_share(part)}, {_ratios(part)}" for part in high)
            + f"; smallest clearance {clearance.min():.1f} standard errors",
        ),
        Claim(
            "No ratio of errors exceeds (d + 4) / (d + 1).",
            excess[2] <= 2 + 1e-9 and excess[50] <= 54 / 51,
            f"largest: d = 2 {excess[2]:.3f} (bound 2), d = 50 {excess[50]:.3f} (bound 1.059)",
        ),
        Claim(
            "d = 50, M = 2: simulated values agree with the closed form within five standard errors.",
            bool(deviation.max() < 5),
            f"largest deviation {deviation.max():.2f} standard errors over {len(known)} problems",
        ),
    ]


def _share(rows: list[Row]) -> str:
    n_wins = _n_iid_wins(rows)
    low, high = wilson(n_wins, len(rows))
    return (
        f"iid wins on {n_wins} of {len(rows)} ({n_wins / len(rows):.1%}, 95% interval {low:.1%} to {high:.1%})"
    )


def _ratios(rows: list[Row]) -> str:
    iid, orthogonal = _columns(rows, "mse_iid", "mse_orthogonal")
    ratio = orthogonal / iid
    return f"orthogonal / iid {ratio.min():.2f} to {ratio.max():.2f}, median {np.median(ratio):.2f}"


def _largest_ratio(rows: list[Row]) -> float:
    iid, orthogonal = _columns(rows, "mse_iid", "mse_orthogonal")
    return float((orthogonal / iid).max())


def plot(rows: list[Row]) -> Figure:
    """Four panels as in the paper: d = 2 on the left, M = 2 on top."""
    figure = Figure(figsize=(8.6, 8), layout="constrained")
    for axes, (dim, m) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        _draw(axes, _panel(rows, dim, m))
        axes.set_title(f"$d = {dim}$, $M = {m}$, $N = {dim}$, {'exact' if dim == 2 else 'simulated'}")
    figure.suptitle("Error of SW$_1$: each point is a problem, below the line orthogonal is better")
    return figure


def _draw(axes: Axes, rows: list[Row]) -> None:
    iid, iid_stderr, orthogonal, stderr = _columns(
        rows, "mse_iid", "mse_iid_stderr", "mse_orthogonal", "mse_orthogonal_stderr"
    )
    for part, colour, who in (
        (iid >= orthogonal, ORTHOGONAL_COLOUR, "orthogonal"),
        (iid < orthogonal, IID_COLOUR, "iid"),
    ):
        label = f"{who} better: {part.mean():.1%}"
        axes.plot(
            iid[part],
            orthogonal[part],
            ".",
            color=colour,
            alpha=0.6,
            markersize=4,
            label=label,
            rasterized=True,
        )
    if stderr.any():
        bars = axes.errorbar(
            iid, orthogonal, xerr=iid_stderr, yerr=stderr, fmt="none", ecolor=ORTHOGONAL_COLOUR, elinewidth=0.5
        )
        for lines in bars[2]:
            lines.set_rasterized(True)
    both = np.concatenate([iid, orthogonal])
    ends = np.array([both.min() / 2, both.max() * 1.5])
    axes.plot(ends, ends, color=GREY, linewidth=1, label="equal errors")
    axes.set(xscale="log", yscale="log", xlabel="MSE iid", ylabel="MSE orthogonal", xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.set_aspect("equal")
    axes.legend(loc="upper left", markerscale=2)
    axes.grid(alpha=0.3)
