"""How near `osl.match` comes to the optimal coupling, and in what time: Gaussians, digits, 100,000 points."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import orthoslice as osl
from experiments.common import GREY, IID_COLOUR, ORTHOGONAL_COLOUR, Claim, Row
from orthoslice import datasets

LIMITS = {2: 1.01, 10: 1.07, 50: 1.04, 64: 1.003}
"""By dimension: what the root of a matching's cost may be, over W_2."""

MOST_SECONDS = 2.0
MOST_SECONDS_OF_MANY = 20.0
MOST_OVER_LONG_RUN = 1.1

_TIMED_FROM = 2000
"""Points from which on times are judged: those of small runs say nothing."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes, and how often each is matched with other directions and trees."""

    n: int = 2000
    dims: tuple[int, ...] = (2, 10, 50)
    n_many: int = 100_000
    dim_of_many: int = 3
    long_sweeps: int = 60
    """Sweeps of the run that `n_many` points are compared with, since their W_2 would take too long."""
    n_repeats: int = 3
    seed: int = 2019


SMOKE = Config(n=1300, dims=(2, 10), n_many=1500, long_sweeps=30, n_repeats=2)


def run(config: Config) -> list[Row]:
    """A row for every matching."""
    # Kernels are compiled or read from disk at the first call.
    osl.match(*np.random.default_rng(0).normal(size=(2, 1100, 2)), rng=0)
    return [row for name, x, y in _problems(config) for row in _measure(name, x, y, config)]


def _problems(config: Config) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    sizes = [(config.n, dim) for dim in config.dims]
    for n, dim in sizes:
        x, y = np.random.default_rng([config.seed, dim]).normal(size=(2, n, dim))
        yield "Gaussians", x, y
    yield "digits 0/1", datasets.digits(0), datasets.digits(1)[:178]
    x, y = np.random.default_rng([config.seed, 0]).normal(size=(2, config.n_many, config.dim_of_many))
    yield "many", x, y


def _measure(name: str, x: NDArray[np.float64], y: NDArray[np.float64], config: Config) -> Iterator[Row]:
    """Rows of distances, which are roots of costs. `least` is W_2, or that of a long run."""
    if name == "many":
        least = _distance(osl.match(x, y, n_sweeps=config.long_sweeps, rng=config.n_repeats))
    else:
        least = float(osl.wasserstein(x, y).distance)
    for repeat in range(config.n_repeats):
        start = time.perf_counter()
        found = osl.match(x, y, rng=repeat)
        seconds = time.perf_counter() - start
        theta = osl.directions.Orthogonal().sample(32, x.shape[1], repeat).theta
        yield {
            "problem": name,
            "n": len(x),
            "dim": x.shape[1],
            "repeat": repeat,
            "least": least,
            "best_direction": min(_distance(osl.induced_coupling(x, y, row)) for row in np.asarray(theta)),
            "merged": _distance(osl.match(x, y, directions=theta, n_sweeps=0, rng=repeat)),
            "match": _distance(found),
            "seconds": seconds,
        }


def _distance(coupling: osl.Coupling) -> float:
    return float(coupling.cost()) ** 0.5


def check(rows: list[Row]) -> list[Claim]:
    """Limits of cost and time, and that nothing is above the best direction."""
    claims = []
    for problem, dim in dict.fromkeys((row["problem"], row["dim"]) for row in rows):
        part = [row for row in rows if (row["problem"], row["dim"]) == (problem, dim)]
        ratios = [row["match"] / row["least"] for row in part]
        is_many = problem == "many"
        limit = MOST_OVER_LONG_RUN if is_many else LIMITS[dim]
        name = f"{problem}, n = {part[0]['n']:,}, dim {dim}"
        claims.append(
            Claim(
                f"{name}: at most {limit:g} times {'a long run' if is_many else 'W_2'}.",
                max(ratios) <= limit,
                f"{min(ratios):.4f} to {max(ratios):.4f}",
            )
        )
        most = MOST_SECONDS_OF_MANY if is_many else MOST_SECONDS
        if part[0]["n"] >= _TIMED_FROM or problem == "digits 0/1":
            seconds = [row["seconds"] for row in part]
            claims.append(
                Claim(
                    f"{name}: in less than {most:g} s.",
                    max(seconds) < most,
                    f"{min(seconds):.2g} to {max(seconds):.2g} s",
                )
            )
    gaps = [row["best_direction"] / row["match"] for row in rows]
    steps = [row["best_direction"] / row["merged"] for row in rows]
    claims.append(
        Claim(
            "Never above the best single direction, merged or at the end.",
            min(*gaps, *steps) >= 1 - 1e-12,
            f"that is {min(gaps):.3f} to {max(gaps):.1f} times the matching's",
        )
    )
    return claims


def plot(rows: list[Row]) -> Figure:
    """By how much the best direction, what is merged, and the matching exceed the least distance."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    kinds: dict[str, tuple[str, str]] = {
        "best_direction": ("best of 32 directions", IID_COLOUR),
        "merged": ("32 directions and trees, merged", GREY),
        "match": ("match", ORTHOGONAL_COLOUR),
    }
    names: dict[tuple[Any, ...], str] = {}
    for row in rows:
        label = "digits 0/1" if row["problem"] == "digits 0/1" else f"{row['n']:,}\ndim {row['dim']}"
        names[row["problem"], row["dim"]] = label
    for column, (label, colour) in kinds.items():
        for at, key in enumerate(names):
            excess = [row[column] / row["least"] - 1 for row in rows if (row["problem"], row["dim"]) == key]
            # A logarithm has no zero.
            axes.plot(
                [at] * len(excess),
                np.maximum(excess, _FLOOR),
                "o",
                color=colour,
                alpha=0.8,
                label=None if at else label,
            )
    axes.axhline(_FLOOR, color=GREY, linewidth=0.7, linestyle=":")
    axes.set(yscale="log", ylabel="distance over the least, minus 1", xticks=range(len(names)))
    axes.set_xticklabels(list(names.values()))
    axes.grid(alpha=0.3, axis="y")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


_FLOOR = 1e-5
