"""Thirty changes as they happen to tables: each makes what a table would have been into what arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.planted_changes.tables import Column, Table, n_rows, some_rows

Change = Callable[[np.random.Generator, Table], Table]
OneColumn = Callable[[np.random.Generator, Column], Column]


class Planted(NamedTuple):
    """A change, and the table that it happens to."""

    table: str
    name: str
    apply: Change


def nothing(rng: np.random.Generator, table: Table) -> Table:
    """The table as it is."""
    return table


def to(*columns: str) -> Callable[[OneColumn], Change]:
    """A change of these columns, each alone; of all if none is named."""

    def make(change: OneColumn) -> Change:
        return lambda rng, table: table | {name: change(rng, table[name]) for name in columns or tuple(table)}

    return make


def shifted(by: float) -> OneColumn:
    """Higher by `by` standard deviations."""
    return lambda rng, values: values + by * np.nanstd(values)


def stretched(factor: float) -> OneColumn:
    """As far from the mean as before, times a factor."""
    return lambda rng, values: np.nanmean(values) + factor * (values - np.nanmean(values))


def multiplied(factor: float, share: float = 1.0) -> OneColumn:
    """Another unit, in a share of the rows."""
    return lambda rng, values: np.where(rng.random(len(values)) < share, factor * values, values)


def replaced(value: float | str, share: float) -> OneColumn:
    """One value in a share of the rows: a gap if it is NaN."""
    return lambda rng, values: np.where(rng.random(len(values)) < share, value, values)


def renamed(old: str, new: str, share: float) -> OneColumn:
    """Another value in a share of the rows that have the old one."""
    return lambda rng, values: np.where((values == old) & (rng.random(len(values)) < share), new, values)


def clipped(quantile: float) -> OneColumn:
    """No value above a quantile."""
    return lambda rng, values: np.minimum(values, np.nanquantile(values, quantile))


def emptied_above(quantile: float) -> OneColumn:
    """Gaps in the place of large values."""
    return lambda rng, values: np.where(values > np.nanquantile(values, quantile), np.nan, values)


def rounded(digits: int) -> OneColumn:
    return lambda rng, values: np.round(values, digits)


def noisy(size: float) -> OneColumn:
    """Noise of `size` standard deviations."""
    return lambda rng, values: values + size * np.nanstd(values) * rng.standard_normal(len(values))


def shuffled(rng: np.random.Generator, values: Column) -> Column:
    """The same values on other rows: what hung together no longer does."""
    return rng.permutation(values)


def two_humps(rng: np.random.Generator, values: Column) -> Column:
    """Another shape with the mean and the spread of a standard normal, and the same gaps."""
    sides = 0.9 * rng.choice([-1.0, 1.0], len(values)) + np.sqrt(1 - 0.9**2) * rng.standard_normal(len(values))
    return np.where(np.isnan(values), np.nan, sides)


def constant(rng: np.random.Generator, values: Column) -> Column:
    """A sensor that got stuck where it was."""
    return np.full_like(values, values[0])


def swapped(first: str, second: str) -> Change:
    """Two columns under each other's names."""
    return lambda rng, table: table | {first: table[second], second: table[first]}


def repeated(share: float, n_copied: int) -> Change:
    """A share of the rows are copies of a few."""

    def change(rng: np.random.Generator, table: Table) -> Table:
        rows = np.arange(n_rows(table))
        is_copy = rng.random(len(rows)) < share
        return some_rows(table, np.where(is_copy, rng.integers(0, n_copied, len(rows)), rows))

    return change


def kept_if(is_kept: Callable[[Table], Column], share: float) -> Change:
    """Rows that are left out elsewhere: in a share of the places stand rows of the kept kind."""

    def change(rng: np.random.Generator, table: Table) -> Table:
        others = np.flatnonzero(is_kept(table))
        is_other = rng.random(n_rows(table)) < share
        return some_rows(table, np.where(is_other, rng.choice(others, n_rows(table)), np.arange(n_rows(table))))

    return change


_MACHINES = tuple(f"sensor {k}" for k in range(10))
_ALL_WINE = ("alcohol", "malic_acid", "ash", "magnesium", "total_phenols", "hue", "proline")

CHANGES = (
    Planted("iris", "a shift of one column", to("sepal width")(shifted(0.6))),
    Planted("iris", "kinds confused", to("kind")(renamed("versicolor", "virginica", 0.6))),
    Planted("iris", "inches for centimetres, some rows", to("sepal length")(multiplied(1 / 2.54, 0.1))),
    Planted("wine", "a shift of one column", to("alcohol")(shifted(0.6))),
    Planted("wine", "small shifts of seven columns", to(*_ALL_WINE)(shifted(0.3))),
    Planted("wine", "two columns swapped", swapped("total_phenols", "flavanoids")),
    Planted("wine", "clipped values", to("color_intensity")(clipped(0.7))),
    Planted("wine", "rounded values", to("hue")(rounded(0))),
    Planted("cancer", "one column wider", to("mean texture")(stretched(1.4))),
    Planted("cancer", "feet for metres, some rows", to("mean radius")(multiplied(3.28, 0.04))),
    Planted("cancer", "two columns no longer together", to("mean radius", "worst radius")(shuffled)),
    Planted("cancer", "gaps at random", to("mean smoothness")(replaced(np.nan, 0.06))),
    Planted("cancer", "gaps for large values", to("mean concavity")(emptied_above(0.95))),
    Planted("cancer", "a rare value, -999", to("mean texture")(replaced(-999.0, 0.04))),
    Planted("digits", "a pixel got stuck", to("pixel 3 3")(constant)),
    Planted("digits", "a darker camera", to()(multiplied(0.95))),
    Planted("digits", "noise in all pixels", to()(noisy(0.3))),
    Planted("digits", "fewer of some images", kept_if(lambda t: t["pixel 3 3"] > 8, 0.25)),
    Planted("customers", "shares of a category", to("country")(renamed("de", "at", 0.2))),
    Planted("customers", "a new value of a category", to("country")(replaced("uk", 0.03))),
    Planted("customers", "shares of two values", to("plan")(renamed("basic", "pro", 0.22))),
    Planted("customers", "another shape", to("score")(two_humps)),
    Planted("customers", "heavier tails", to("balance")(multiplied(4.0, 0.1))),
    Planted("customers", "copied rows", repeated(0.3, 8)),
    Planted("customers", "a category no longer tells", to("plan")(shuffled)),
    Planted("sensors", "a shift of one of a hundred", to("sensor 17")(shifted(0.4))),
    Planted("sensors", "a machine warmer", to(*_MACHINES)(shifted(0.25))),
    Planted("sensors", "one of a hundred wider", to("sensor 17")(stretched(1.6))),
    Planted("many customers", "a tiny shift", to("balance")(shifted(0.04))),
    Planted("many customers", "a very rare value", to("tenure")(replaced(-1.0, 0.002))),
)
