"""Columns of two tables by all their rows, in their own units: means, spreads, shares, gaps, and tests.

A pass over the rows of a table makes a :class:`Tally`, which does not grow with their number; two tallies tell
how every column differs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from orthoslice.applications.explain.explanation import Feature
from orthoslice.backend.arrays import HostArray

OTHERS, MISSING = "(other)", "(missing)"

# The most values at which distribution functions are compared, for one column and for all of them together.
_MOST_EDGES, _ALL_EDGES, _FEWEST_EDGES = 2048, 1 << 21, 16

# Of the values that are chosen by rank, as many are the same where one is to be counted by itself.
_OFTEN = 4

# Rows of each table that those values are chosen from.
_EDGE_ROWS = 20_000

# Numbers that are read at a time.
_PIECE_ITEMS = 1 << 20

# Levels that are expected to occur less often than this are counted together in a test of shares.
_FEWEST_EXPECTED = 5.0

# The share of one value is told if it makes up this part of the largest difference of distribution functions.
_TOLD_PART = 0.5

# A mean, a spread or such a share is told to have changed if it did by this many standard errors.
_TOLD_ERRORS = 3.0

# That of a value which changes the distribution function little: of 2,048 values one may by chance do by 4.
_RARE_ERRORS = 5.0

# That of one that is expected fewer than _FEWEST_EXPECTED times, which has no such error: its p-value is below
# this, and below that of the distribution function to the power at which _TOLD_ERRORS times its statistic is.
_FEW_LEVEL, _FEW_POWER = 0.01, _TOLD_ERRORS**2 / 4

# Where Kolmogorov's law has no mass left below, to rounding.
_LEAST_KOLMOGOROV = 0.1

# The share of gaps is tested besides, and told to have changed if it did by this many.
_GAP_ERRORS = 2.0


class TableColumn(NamedTuple):
    """A column of a table, and the features that stand for it in an array `(rows, features)`."""

    name: str
    place: int
    """Its first feature."""
    levels: tuple[str, ...] = ()
    """Of a category, the values whose rows are 1 in its features, one after the other; none for a number."""
    rest: str | None = None
    """The value of a category with two values that has no feature: those rows are 0."""
    missing: int | None = None
    """The feature that is 1 where a number is missing; the number itself is filled in then."""

    @property
    def features(self) -> range:
        """The places of its features, but for `missing`."""
        return range(self.place, self.place + max(1, len(self.levels)))

    @property
    def is_category(self) -> bool:
        return bool(self.levels)


@dataclass(frozen=True)
class Tally:
    """What all rows of a table come to: what two tables need to be compared column by column."""

    n_rows: int
    n_values: HostArray
    """How many rows have a value, of every feature, or the sum of their weights."""
    mean: HostArray
    squares: HostArray
    """Sums of squared deviations from the mean."""
    below: tuple[HostArray, ...]
    """Of every column of numbers, how many values lie between neighbouring edges."""
    edges: tuple[HostArray, ...]
    """Of every column of numbers, the values that `below` counts between."""

    def merged(self, other: Tally) -> Tally:
        """The tally of the rows of both."""
        n = self.n_values + other.n_values
        part = np.divide(other.n_values, n, out=np.zeros_like(n), where=n > 0)
        gap = other.mean - self.mean
        return Tally(
            self.n_rows + other.n_rows,
            n,
            self.mean + part * gap,
            # The root comes first: no row times an infinite square would be NaN.
            self.squares + other.squares + (np.sqrt(self.n_values * part) * gap) ** 2,
            tuple(a + b for a, b in zip(self.below, other.below, strict=True)),
            self.edges,
        )


@dataclass(frozen=True)
class ColumnChange:
    """How a column differs between two tables, in its own units and by all their rows.

    Attributes
    ----------
    name
        What it is called.
    kind
        "number" or "category".
    means, spreads
        Of numbers, in both tables; spreads are standard deviations. None for a category, NaN without a value.
    shares
        Of a category, the share of rows with each value, in both tables, those that changed most first.
    missing
        The share of rows without a value, in both tables.
    distance
        The largest difference of the two distribution functions (Kolmogorov and Smirnov), or half the sum of
        the differences of shares: from 0, the same, to 1, nothing in common.
    pvalue
        How often a column of one law differs as much, in its distribution function, a single value or its gaps,
        adjusted for the number of columns (Holm): the chance that any column without a change has a value of at
        most 0.05 is at most 5%. None for rows with weights.
    """

    name: str
    kind: str
    means: tuple[float, float] | None
    spreads: tuple[float, float] | None
    shares: dict[str, tuple[float, float]]
    missing: tuple[float, float]
    distance: float
    pvalue: float | None
    rows: tuple[int, int]
    features: tuple[int, ...]
    """The places of its features in the points."""
    levels: tuple[str, ...] = ()
    """Of a category, the values that its features count."""
    edges: HostArray | None = field(default=None, repr=False, compare=False)
    """Of numbers, values at which both distributions were compared: those that occur, or many of them."""
    below: tuple[HostArray, HostArray] | None = field(default=None, repr=False, compare=False)
    """How many values of each table lie up to the first edge, up to the next, and so on, and above the last."""

    @functools.cached_property
    def changed_value(self) -> tuple[float, tuple[float, float]] | None:
        """The value of a column of numbers whose share tells most of the change, and its shares of the values.

        A sensor that is stuck, -999 in the place of gaps, many zeros; None where no single value does.
        """
        if self.edges is None or self.below is None:
            return None
        n, m = (float(own.sum()) for own in self.below)
        if not (n > 0 and m > 0):
            return None
        a, b = (own[:-1] / own.sum() for own in self.below)
        pooled, gap = (n * a + m * b) / (n + m), b - a
        error = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        sure = np.divide(np.abs(gap), error, out=np.zeros_like(gap), where=error > 0)
        apart = float(np.abs(np.cumsum(gap)).max(initial=0.0))
        is_told = (np.abs(gap) >= _TOLD_PART * apart) & (sure > _TOLD_ERRORS)
        # A rare value may change much, and the distribution function hardly: by less than chance makes of it.
        is_told |= sure > np.maximum(_RARE_ERRORS, _TOLD_ERRORS * apart * math.sqrt(n * m / (n + m)))
        is_told &= pooled * min(n, m) >= _FEWEST_EXPECTED
        is_told |= _few_changed(*self.below, float(kolmogorov_pvalue(apart, n, m)))[:-1]
        if not is_told.any():
            return None
        # The rarer of two that change as much tells more.
        k = int(np.argmax(np.divide(gap**2, pooled, out=np.zeros_like(gap), where=is_told)))
        return float(self.edges[k]), (float(a[k]), float(b[k]))

    @property
    def has_other_gaps(self) -> bool:
        """Whether the share of rows without a value changed by more than chance makes it."""
        (a, b), (n, m) = self.missing, self.rows
        pooled = (n * a + m * b) / (n + m)
        return abs(b - a) > _GAP_ERRORS * math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))

    def in_words(self, x: str = "x", y: str = "y") -> str:
        """What changes from x to y, the parts that are larger than chance makes them."""
        parts = []
        if self.shares:
            there = {value: pair for value, pair in self.shares.items() if any(pair)}
            told = [f"{_shown_value(v)}: {percent(a)} -> {percent(b)}" for v, (a, b) in there.items()]
            left = len(told) - 3
            parts += told[:3] + ([f"{left} more value{'s' * (left > 1)}"] if left > 0 else [])
            for name, side in ((x, 0), (y, 1)):
                alone = [v for v, pair in self.shares.items() if pair[side] > 0 and pair[1 - side] == 0]
                if alone:
                    parts.append(f"only {name} has {', '.join(_shown_value(v) for v in alone[:3])}")
        elif self.means is not None and self.spreads is not None:
            parts += _numbers_in_words(self, y)
        if self.has_other_gaps and MISSING not in self.shares:
            parts.append(f"missing {percent(self.missing[0])} -> {percent(self.missing[1])}")
        return "; ".join(parts) or "the same"


def edges_of(tables: Sequence[HostArray], columns: Sequence[TableColumn]) -> tuple[HostArray, ...]:
    """Values of every column of numbers at which the distributions of all tables are compared."""
    numbers = [column for column in columns if not column.is_category]
    most = min(_MOST_EDGES, max(_FEWEST_EDGES, _ALL_EDGES // max(1, len(numbers))))
    some = [np.asarray(table[:: max(1, -(-len(table) // _EDGE_ROWS))]) for table in tables]
    found = []
    for column in numbers:
        values = np.sort(np.concatenate([rows[_has_value(rows, column), column.place] for rows in some]))
        # Values that occur, so that ties fall on one side of an edge.
        places = np.unique(np.linspace(0, max(0, len(values) - 1), most).astype(int))
        edges, counts = np.unique(values[places] if len(values) else values, return_counts=True)
        # The value before one that many rows have, which is then counted by itself.
        often = np.searchsorted(values, edges[counts >= _OFTEN])
        found.append(np.union1d(edges, values[often[often > 0] - 1]))
    return tuple(found)


def tally_rows(
    points: HostArray,
    columns: Sequence[TableColumn],
    edges: Sequence[HostArray],
    weights: HostArray | None = None,
) -> Tally:
    """One pass over the points `(rows, features)`; memory maps may be larger than memory."""
    n_features = points.shape[1]
    numbers = [column for column in columns if not column.is_category]
    none = np.zeros(n_features)
    total = Tally(0, none, none, none, tuple(np.zeros(len(edge) + 1) for edge in edges), tuple(edges))
    for rows, mass in row_pieces(points, weights):
        # 1 or the weight of a row, and 0 where there is no value.
        there = np.ones(rows.shape) if mass is None else np.repeat(mass[:, None], n_features, axis=1)
        below = []
        for column, edge in zip(numbers, edges, strict=True):
            has = _has_value(rows, column)
            there[~has, column.place] = 0
            bins = np.searchsorted(edge, rows[has, column.place], side="left")
            below.append(np.bincount(bins, None if mass is None else mass[has], len(edge) + 1).astype(float))
        n = there.sum(axis=0)
        mean = np.divide((there * rows).sum(axis=0), n, out=np.zeros(n_features), where=n > 0)
        with np.errstate(over="ignore"):  # the spread of numbers above 1e150 is told as infinite
            squares = ((np.sqrt(there) * (rows - mean)) ** 2).sum(axis=0)
            total = total.merged(Tally(len(rows), n, mean, squares, tuple(below), total.edges))
    return total


def compare_columns(
    x: Tally, y: Tally, columns: Sequence[TableColumn], *, test: bool = True
) -> tuple[ColumnChange, ...]:
    """Every column of two tables, the surest change first; without `test` there are no p-values."""
    found, place = [], 0
    for column in columns:
        if column.is_category:
            change, pvalue = _compare_shares(x, y, column)
        else:
            change, pvalue = _compare_numbers(x, y, column, place)
            place += 1
        found.append((change, pvalue))
    changes = [change for change, _ in found]
    if test:
        adjusted = adjust([pvalue for _, pvalue in found])
        changes = [replace(change, pvalue=pvalue) for change, pvalue in zip(changes, adjusted, strict=True)]
    return _in_order(changes)


def adjust(pvalues: Sequence[float]) -> list[float]:
    """p-values adjusted for their number, by Holm's method.

    Examples
    --------
    >>> adjust([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.04]
    """
    found, least = [0.0] * len(pvalues), 0.0
    for rank, k in enumerate(np.argsort(pvalues, kind="stable").tolist()):
        least = max(least, min(1.0, (len(pvalues) - rank) * pvalues[k]))
        found[k] = least
    return found


def with_pvalues(changes: Sequence[ColumnChange], pvalues: Any) -> tuple[ColumnChange, ...]:
    """The same columns with other adjusted p-values."""
    return _in_order([replace(c, pvalue=float(p)) for c, p in zip(changes, pvalues, strict=True)])


def in_own_units(
    features: Sequence[Feature], names: Sequence[Hashable], changes: Sequence[ColumnChange], level: float
) -> tuple[Feature, ...]:
    """Features as they were found in common units, told in the units of their columns and by all rows.

    Those of columns whose p-value is above the level are told not to have changed.
    """
    place = {name: k for k, name in enumerate(names)}
    owner = {k: change for change in changes for k in change.features}
    found = []
    for feature in features:
        k = place[feature.name]
        change = owner[k]
        if change.means is not None and change.spreads is not None and k == change.features[0]:
            means, spreads, words = change.means, change.spreads, change.in_words()
        else:
            means = _share_of(change, k)
            spreads = math.sqrt(means[0] * (1 - means[0])), math.sqrt(means[1] * (1 - means[1]))
            words = f"share {percent(means[0])} -> {percent(means[1])}"
        if change.pvalue is not None and change.pvalue > level:
            words = "no change found"
        found.append(
            feature._replace(
                x_mean=means[0],
                y_mean=means[1],
                x_spread=spreads[0],
                y_spread=spreads[1],
                change=words,
                pvalue=change.pvalue,
            )
        )
    return tuple(found)


def _share_of(change: ColumnChange, feature: int) -> tuple[float, float]:
    """The shares of rows that are 1 in a feature of a category, or of a gap."""
    if change.kind == "number":
        return change.missing
    return change.shares[change.levels[feature - change.features[0]]]


def _in_order(changes: Sequence[ColumnChange]) -> tuple[ColumnChange, ...]:
    """The surest change first, and of equally sure ones the largest."""
    return tuple(sorted(changes, key=lambda c: (1.0 if c.pvalue is None else c.pvalue, -c.distance)))


def _compare_numbers(x: Tally, y: Tally, column: TableColumn, number: int) -> tuple[ColumnChange, float]:
    """The column with this `number` among those of numbers."""
    k, (x_below, y_below) = column.place, (t.below[number] for t in (x, y))
    n_x, n_y = x.n_values[k], y.n_values[k]
    missing = _missing_shares(x, y, column)
    distance, looks = 0.0, []
    if n_x > 0 and n_y > 0:
        gaps = np.cumsum(x_below)[:-1] / n_x - np.cumsum(y_below)[:-1] / n_y
        distance = float(np.abs(gaps).max(initial=0.0))
        looks = [float(kolmogorov_pvalue(distance, n_x, n_y)), _value_pvalue(x_below, y_below)]
    if column.missing is not None:
        counts = (t.n_rows * np.array([m, 1 - m]) for t, m in zip((x, y), missing, strict=True))
        looks.append(_chi_square(*counts))
        distance = max(distance, abs(missing[0] - missing[1]))
    # All looks at one column count as one.
    pvalue = min(1.0, len(looks) * min(looks, default=1.0))
    # Of no values there is neither.
    means = tuple(float(t.mean[k]) if t.n_values[k] > 0 else math.nan for t in (x, y))
    spreads = tuple(math.sqrt(t.squares[k] / t.n_values[k]) if t.n_values[k] > 0 else math.nan for t in (x, y))
    change = ColumnChange(
        column.name,
        "number",
        (means[0], means[1]),
        (spreads[0], spreads[1]),
        {},
        missing,
        distance,
        None,
        (x.n_rows, y.n_rows),
        (k,) if column.missing is None else (k, column.missing),
        edges=x.edges[number],
        below=(x_below, y_below),
    )
    return change, pvalue


def _compare_shares(x: Tally, y: Tally, column: TableColumn) -> tuple[ColumnChange, float]:
    places = list(column.features)
    shares = [np.clip(t.mean[places], 0.0, 1.0) for t in (x, y)]
    levels = list(column.levels)
    if column.rest is not None:
        levels.append(column.rest)
        shares = [np.append(share, 1 - share.sum()) for share in shares]
    gaps = np.abs(shares[1] - shares[0])
    told = sorted(range(len(levels)), key=lambda k: -gaps[k])
    # The second share of two says nothing new, unless a table has only one of them.
    if column.rest is not None and np.min(shares) > 0:
        told = [0]
    missing = (0.0, 0.0)
    if MISSING in levels:
        k = levels.index(MISSING)
        missing = float(shares[0][k]), float(shares[1][k])
    pvalue = _chi_square(shares[0] * x.n_rows, shares[1] * y.n_rows)
    change = ColumnChange(
        column.name,
        "category",
        None,
        None,
        {levels[k]: (float(shares[0][k]), float(shares[1][k])) for k in told},
        missing,
        float(gaps.sum() / 2),
        None,
        (x.n_rows, y.n_rows),
        tuple(places),
        column.levels,
    )
    return change, pvalue


def _missing_shares(x: Tally, y: Tally, column: TableColumn) -> tuple[float, float]:
    if column.missing is None:
        return 0.0, 0.0
    return float(x.mean[column.missing]), float(y.mean[column.missing])


def kolmogorov_pvalue(distance: Any, n: float, m: float) -> Any:
    """The p-value of a largest difference of two distribution functions, which is too large with ties.

    As `scipy.special.kolmogorov`, whose module is slow to import: one of two series for the tail of the law.
    """
    x = np.maximum(distance * math.sqrt(n * m / (n + m)), _LEAST_KOLMOGOROV)[..., None]
    k = np.arange(1, 6)
    far = 2 * (np.exp(-2 * (k * x) ** 2) * (-1.0) ** (k - 1)).sum(axis=-1)
    near = 1 - math.sqrt(2 * math.pi) * (np.exp(-(((2 * k - 1) * math.pi / x) ** 2) / 8) / x).sum(axis=-1)
    return np.where(x[..., 0] < 1, near, far)[()]


def _value_pvalue(x: HostArray, y: HostArray) -> float:
    """The p-value of the counts that differ most, of one bin or several at an end, adjusted for their number.

    So rare values show, such as -999, and a few rows far out. Given how many rows of both tables are counted,
    those of y are at most as variable as a binomial number.
    """
    from scipy.special import bdtr, bdtrc

    part = y.sum() / (x.sum() + y.sum())
    there = np.rint(x + y) > 0
    total, own = (_with_ends(np.rint(counts[there])) for counts in (x + y, y))
    total = total.astype(np.int64)
    below, above = bdtr(own, total, part), np.where(own > 0, bdtrc(own - 1, total, part), 1.0)
    return min(1.0, 2 * max(1, len(total)) * float(np.minimum(below, above).min(initial=0.5)))


def _few_changed(x: HostArray, y: HostArray, pvalue: float) -> Any:
    """Which values occur too rarely for a standard error, and more often in one table than by chance.

    Their binomial p-values are multiplied by how many values occur as often, and must be below that of the
    distribution function by as much as those of other rare values are.
    """
    from scipy.special import bdtr, bdtrc

    total, part = np.rint(x + y).astype(np.int64), y.sum() / (x.sum() + y.sum())
    own = np.rint(y)
    two_sided = 2 * np.minimum(bdtr(own, total, part), np.where(own > 0, bdtrc(own - 1, total, part), 1.0))
    as_often = len(total) - np.searchsorted(np.sort(total), total)
    is_few = total * min(part, 1 - part) < _FEWEST_EXPECTED
    return is_few & (two_sided * as_often < min(_FEW_LEVEL, pvalue**_FEW_POWER))


def _with_ends(counts: HostArray) -> HostArray:
    """Counts of bins, and of the first and the last 2, 4, 8, ... of them together."""
    many = 2 ** np.arange(1, max(1, len(counts).bit_length() - 1))
    return np.concatenate([counts, np.cumsum(counts)[many - 1], np.cumsum(counts[::-1])[many - 1]])


def _chi_square(x: HostArray, y: HostArray) -> float:
    """The p-value of a chi-square test that two rows of counts have the same shares."""
    from scipy.special import chdtrc

    n, m = x.sum(), y.sum()
    if n == 0 or m == 0:
        return 1.0
    pooled = x + y
    is_rare = pooled * min(n, m) / (n + m) < _FEWEST_EXPECTED
    x, y = (np.append(c[~is_rare], c[is_rare].sum()) for c in (x, y))
    pooled = x + y
    # Rare values together may still be too few to be tested.
    kept = pooled * min(n, m) / (n + m) >= _FEWEST_EXPECTED
    if kept.sum() < 2:
        return 1.0
    x, y, pooled = x[kept], y[kept], pooled[kept]
    n, m = x.sum(), y.sum()
    expected = pooled / (n + m)
    statistic = ((x - n * expected) ** 2 / (n * expected) + (y - m * expected) ** 2 / (m * expected)).sum()
    return float(chdtrc(len(x) - 1, statistic))


def _numbers_in_words(change: ColumnChange, y: str) -> Iterator[str]:
    assert change.means is not None
    assert change.spreads is not None
    (a, b), (s, t), (n, m) = change.means, change.spreads, change.rows
    if math.isnan(a) or math.isnan(b):
        return
    spread = math.hypot(s, t) / math.sqrt(2)
    moved, error = b - a, math.sqrt(s * s / n + t * t / m)
    told = change.changed_value is not None
    if change.changed_value is not None:
        value, (before, after) = change.changed_value
        yield f"value {number(value, 6)}: {percent(before)} -> {percent(after)}"
    if abs(moved) > _TOLD_ERRORS * error:
        told = True
        by = f" ({'+' * (moved > 0)}{number(moved / spread, 2)} standard deviations)" if spread > 0 else ""
        yield f"{'higher' if moved > 0 else 'lower'} in {y}: mean {_pair(a, b)}{by}"
    # The standard error that a normal law would have.
    if abs(t - s) > _TOLD_ERRORS * spread * math.sqrt(0.5 / n + 0.5 / m):
        told = True
        yield f"{'more' if t > s else 'less'} spread in {y}: standard deviation {_pair(s, t)}"
    if not told:
        # Where gaps changed, what was found may be them.
        shape = "" if change.has_other_gaps else "another shape; "
        yield f"{shape}mean {_pair(a, b)}"


def _pair(a: float, b: float) -> str:
    """Two numbers with as many digits as tell them apart."""
    for digits in range(3, 10):
        first, second = (float(f"{value:.{digits}g}") for value in (a, b))
        # One digit beyond the first that differs says by how much.
        if first != second and abs(first - second) > 0.5 * abs(b - a):
            break
    return f"{number(a, digits)} -> {number(b, digits)}"


def number(value: float, digits: int = 3) -> str:
    """A number as people write it: 1,130 and 0.0123, not 1.13e+03.

    Examples
    --------
    >>> number(1131.4), number(0.01234), number(1.3e9), number(0.0)
    ('1,130', '0.0123', '1.3e+09', '0')
    """
    rounded = float(f"{value:.{digits}g}")
    if value == 0 or 1e-4 <= abs(rounded) < 1e7:
        places = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else 0
        text = f"{rounded:,.{places}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share as people write it, to three digits.

    Examples
    --------
    >>> percent(0.1), percent(0.000127)
    ('10%', '0.0127%')
    """
    return f"{100 * share:.3g}%"


def _shown_value(value: str) -> str:
    return value if value in (OTHERS, MISSING) else repr(value)


def _has_value(rows: HostArray, column: TableColumn) -> Any:
    return np.ones(len(rows), dtype=bool) if column.missing is None else rows[:, column.missing] == 0


def row_pieces(
    points: HostArray, weights: HostArray | None = None
) -> Iterator[tuple[HostArray, HostArray | None]]:
    """All rows in float64 and their weights, a few at a time: memory maps may be larger than memory."""
    step = max(1, _PIECE_ITEMS // max(1, points.shape[1]))
    for first in range(0, len(points), step):
        rows = np.asarray(points[first : first + step], dtype=np.float64)
        yield rows, None if weights is None else weights[first : first + step]
