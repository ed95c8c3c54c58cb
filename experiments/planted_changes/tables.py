"""Tables of real and of made-up rows: columns of numbers, with gaps where they are NaN, and of text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orthoslice.datasets import digits

Column = NDArray[Any]
Table = dict[str, Column]
"""Columns `(rows,)` by their names: float64, or text for a category."""

_FILE = Path(__file__).with_name("tables.npz")


class Origin(NamedTuple):
    """Where the rows of a table come from."""

    draw: Callable[[np.random.Generator, int], Table]
    """`draw(rng, n)`: n independent rows, or n different rows of a real table at random."""
    n_rows: int
    """Rows of each of two tables that are compared."""


def some_rows(table: Table, rows: Any) -> Table:
    """The rows at these places, copied."""
    return {name: values[rows].copy() for name, values in table.items()}


def n_rows(table: Table) -> int:
    return len(next(iter(table.values())))


def is_text(column: Column) -> bool:
    return column.dtype.kind == "U"


@functools.cache
def _kept(name: str) -> Table:
    """A real table: its numbers, and the kind of each row as text.

    Iris (Fisher, 1936), Wine (Aeberhard and Forina, 1992) and Breast Cancer Wisconsin (Wolberg, Mangasarian,
    Street and Street, 1993) are from the UCI Machine Learning Repository, CC BY 4.0.
    """
    with np.load(_FILE) as archive:
        columns, values = archive[f"{name}_columns"].tolist(), archive[name]
        return dict(zip(columns, values.T, strict=True)) | {"kind": archive[f"{name}_kind"]}


def _real(name: str) -> Callable[[np.random.Generator, int], Table]:
    return lambda rng, n: some_rows(_kept(name), rng.permutation(n_rows(_kept(name)))[:n])


@functools.cache
def _pixels() -> Table:
    images = np.concatenate([digits(label) for label in range(10)])
    return {f"pixel {row} {column}": images[:, 8 * row + column] for row in range(8) for column in range(8)}


def images(rng: np.random.Generator, n: int) -> Table:
    """Handwritten digits, a column a pixel."""
    return some_rows(_pixels(), rng.permutation(n_rows(_pixels()))[:n])


def customers(rng: np.random.Generator, n: int) -> Table:
    """What a table of customers has: amounts, counts, categories, gaps, and columns that hang together."""
    country = rng.choice(["at", "ch", "de", "fr", "it"], size=n, p=[0.1, 0.1, 0.4, 0.25, 0.15])
    plan = np.where(rng.random(n) < 0.5, "basic", "pro")
    age = np.clip(rng.normal(45, 14, n), 18, 95).round()
    income = np.exp(10 + 0.5 * rng.standard_normal(n) + 0.4 * (country == "ch") + 0.2 * (plan == "pro"))
    score = rng.standard_normal(n)
    score[rng.random(n) < 0.05] = np.nan
    return {
        "age": age,
        "income": income.round(),
        "visits": rng.poisson(3 + 2 * (plan == "pro")).astype(np.float64),
        "balance": 500 * rng.standard_t(4, n),
        "height": rng.normal(1.72, 0.09, n).round(2),
        "tenure": rng.exponential(4, n),
        "rating": rng.integers(1, 6, n).astype(np.float64),
        "score": score,
        "country": country,
        "plan": plan,
    }


def sensors(rng: np.random.Generator, n: int) -> Table:
    """A hundred sensors, ten to a machine, whose machines are at times warmer."""
    values = rng.standard_normal((n, 100)) + np.repeat(rng.standard_normal((n, 10)), 10, axis=1)
    return {f"sensor {k}": column for k, column in enumerate(values.T)}


TABLES = {
    "iris": Origin(_real("iris"), 75),
    "wine": Origin(_real("wine"), 89),
    "cancer": Origin(_real("cancer"), 200),
    "digits": Origin(images, 400),
    "customers": Origin(customers, 300),
    "sensors": Origin(sensors, 300),
    "many customers": Origin(customers, 20_000),
}
