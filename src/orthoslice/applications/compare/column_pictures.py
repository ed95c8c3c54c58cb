"""A column of two tables as a picture: both histograms over each other, or the shares of its values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from orthoslice.applications.columns import MISSING, ColumnChange, percent
from orthoslice.applications.compare.pictures import Axis, Bars, Line, Picture, Rows
from orthoslice.backend.arrays import HostArray

_FEWEST_BINS, _MOST_BINS = 8, 30

# Numbers with at most this many values are shown value by value.
_FEW_VALUES = 8
_MOST_ROWS = 8

# The outer _OUTER_SHARE of the values at either end are counted in the outer bars if they would stretch the
# axis to more than _STRETCHED times what the others need.
_OUTER_SHARE, _STRETCHED = 0.005, 2.0


class Counted(NamedTuple):
    """Values of a column in ascending order, and how often each table has them."""

    values: HostArray
    x: HostArray
    y: HostArray


def picture_change(change: ColumnChange, names: tuple[str, str]) -> Picture:
    """A column by all rows, in its own units."""
    if change.edges is None or change.below is None:
        return _shares(change.name, change.shares, names)
    if not len(change.edges):
        return _shares(change.name, {MISSING: change.missing}, names)
    # What lies above the last value counts as that value.
    x, y = (np.append(below[:-2], below[-2:].sum()) for below in change.below)
    return picture_counts(change.name, Counted(change.edges, x, y), names)


def picture_values(name: str, x: HostArray, y: HostArray, names: tuple[str, str], unit: str) -> Picture:
    """Numbers `(n,)` and `(m,)` of two tables."""
    values = np.unique(np.concatenate([x, y]))
    counts = (np.bincount(np.searchsorted(values, own), minlength=len(values)) for own in (x, y))
    return picture_counts(name, Counted(values, *counts), names, unit)


def picture_counts(name: str, counted: Counted, names: tuple[str, str], unit: str = "") -> Picture:
    """Two histograms, or the share of every value where they are few."""
    values = np.asarray(counted.values, dtype=np.float64)
    x, y = (100 * own / max(1.0, own.sum()) for own in (counted.x, counted.y))
    if len(values) <= _FEW_VALUES:
        rows = {f"{value:.6g}": (a / 100, b / 100) for value, a, b in zip(values, x, y, strict=True)}
        return _shares(name, rows, names)
    edges = _bins(values, x + y)
    inside = np.clip(values, edges[0], edges[-1])
    heights = [np.histogram(inside, edges, weights=own)[0] for own in (x, y)]
    a, b = names
    cut = " Values further out count in the outer bars." if (inside != values).any() else ""
    top = 1.08 * max(float(own.max()) for own in heights)
    stairs = np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(heights[1], 2), [0.0]])
    middles = [float(np.average(values, weights=own)) if own.sum() else math.nan for own in (x, y)]
    return Picture(
        title=name,
        x=Axis(f"{name} ({unit})" if unit else name, float(edges[0]), float(edges[-1])),
        y=Axis("% of rows", 0, top),
        marks=(Bars(edges, heights[0], a, "quiet"), Line(*stairs, b, "found")),
        told=f"Histograms of {name} in {a} and in {b}, from {edges[0]:.4g} to {edges[-1]:.4g}. Their means are "
        f"{middles[0]:.4g} and {middles[1]:.4g}.{cut}",
    )


def _bins(values: HostArray, mass: HostArray) -> HostArray:
    """Edges of bins of one width by the rule of Freedman and Diaconis; whole numbers are not split."""
    below = np.cumsum(mass) / mass.sum()
    low, quarter, three, high = values[np.searchsorted(below, [_OUTER_SHARE, 0.25, 0.75, 1 - _OUTER_SHARE])]
    if values[-1] - values[0] <= _STRETCHED * (high - low):
        low, high = values[0], values[-1]
    if not high > low:
        low, high = values[0], values[-1]
    width = 2 * (three - quarter) / len(values) ** (1 / 3)
    width = float(np.clip(width, (high - low) / _MOST_BINS, (high - low) / _FEWEST_BINS))
    if np.array_equal(values, np.round(values)) and high - low >= _FEWEST_BINS:
        width = float(math.ceil(width))
        low = low - 0.5
        high = high + 0.5
    many = max(1, math.ceil((high - low) / width - 1e-9))
    return np.asarray(low + width * np.arange(many + 1))


def _shares(name: str, shares: dict[str, tuple[float, float]], names: tuple[str, str]) -> Picture:
    told = list(shares.items())[:_MOST_ROWS]
    rows = tuple(f"{value}: {percent(a)} \u2192 {percent(b)}" for value, (a, b) in told)
    left = len(shares) - len(told)
    more = f" {left} more values changed less." if left else ""
    lengths = [np.array([100 * pair[side] for _, pair in told]) for side in (0, 1)]
    blank = ("",) * len(told)
    return Picture(
        title=name,
        x=Axis("% of rows", 0, 1.08 * max(1e-3, float(np.max(lengths)))),
        y=Axis(name, 0, len(rows), rows),
        marks=(
            Rows(0, lengths[0], blank, "quiet", names[0], 0),
            Rows(0, lengths[1], blank, "found", names[1], 1),
        ),
        told=f"Shares of the values of {name} in {names[0]} and in {names[1]}: {'; '.join(rows)}.{more}",
    )
