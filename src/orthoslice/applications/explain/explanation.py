"""The answer of `explain`: the features, directions and points in which two clouds differ, and its text."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from orthoslice.backend.arrays import HostArray
from orthoslice.backend.markup import card, shown

# How many of each are shown.
_SHOWN_FEATURES, _SHOWN_LOADINGS, _SHOWN_POINTS = 5, 4, 5


class Feature(NamedTuple):
    """How one feature differs between two clouds, looked at alone."""

    name: Hashable
    score: float
    """W_p^p of its values, exact."""
    share: float
    """The score of this feature as a share of the sum over all features; 0 where nothing differs."""
    x_mean: float
    y_mean: float
    x_spread: float
    """The standard deviation of its values in x."""
    y_spread: float
    change: str
    """What changes from x to y, in words, where the p-value says that something does."""
    pvalue: float | None = None
    """How often a feature of one law differs as much: of Kolmogorov and Smirnov, adjusted for the number of
    features (Holm). None for clouds with weights."""


class DifferentDirection(NamedTuple):
    """A weighted sum of features along which two clouds differ much."""

    loadings: dict[Hashable, float]
    """The weight of every feature, the largest first; their squares sum to 1."""
    distance: float
    """W_p of the clouds along it, in units of the data."""
    theta: HostArray
    """The weights in the order of the features, `(dim,)`."""


class MovedPoint(NamedTuple):
    """A point of x that has far to go."""

    row: Hashable
    """Its label in the data frame, or its index."""
    distance: float
    """How far it moves where x becomes y: see :func:`explain`."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Where two clouds differ.

    Attributes
    ----------
    features
        A :class:`Feature` for each, the most different first: `name`, `score`, `share`, means and spreads, and
        the `change` in words.
    directions
        A few mutually orthogonal directions along which the clouds differ most, each with its `loadings`, the
        `distance` along it and `theta`.
    points
        The points of x that move most: `row` and `distance`.
    notes
        What to keep in mind, such as a feature whose units dwarf the others.
    distance
        SW_p of the clouds, from the directions that were drawn.
    typical_move
        The median of how far points of x move.
    n_directions, seed
        ``n_directions=result.n_directions, rng=result.seed`` repeats it.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.random.default_rng(0).normal(size=(2, 200, 2)) + [[[0, 0]], [[1, 0]]]
    >>> found = osl.explain(x, y, names=["age", "income"], rng=0)
    >>> found.features[0].name, found.directions[0].theta.shape, len(found.points)
    ('age', (2,), 10)
    """

    p: float
    features: tuple[Feature, ...]
    directions: tuple[DifferentDirection, ...]
    points: tuple[MovedPoint, ...]
    notes: tuple[str, ...]
    distance: float
    typical_move: float
    n_directions: int
    seed: int | None
    _sizes: tuple[int, int]

    def to_frame(self) -> Any:
        """The features as a pandas frame, one row each.

        Examples
        --------
        >>> import numpy as np, orthoslice as osl
        >>> x, y = np.zeros((3, 2)), np.zeros((3, 2)) + [0, 1]
        >>> osl.explain(x, y, names=["age", "income"], rng=0).to_frame()[["name", "score", "share"]]
             name  score  share
        0  income    1.0    1.0
        1     age    0.0    0.0
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("`to_frame` makes a pandas frame: pip install pandas.") from error
        return pd.DataFrame(self.features, columns=list(Feature._fields))

    def __repr__(self) -> str:
        n, m = self._sizes
        many = len(self.features)
        lines = [f"How y ({m} points) differs from x ({n} points), {many} feature{'s' * (many > 1)}"]
        if self.distance == 0:
            lines.append("Not at all: both hold the same points.")
            return "\n".join(lines)
        lines.append("Features that differ most, each alone, and their part of the difference:")
        most = [f for f in self.features[:_SHOWN_FEATURES] if f.score > 0]
        width = max(len(shown(f.name)) for f in most)
        lines += [f"  {shown(f.name):{width}}  {f.share:4.0%}  {f.change}" for f in most]
        rest = sum(f.share for f in self.features[len(most) :])
        if many > len(most):
            lines.append(f"  the {many - len(most)} others: {rest:.0%} together")
        lines.append("Combinations of features that differ most, and how far apart x and y are along them:")
        lines += [f"  {sum_of(d)}: {d.distance:.3g}" for d in self.directions]
        far = ", ".join(f"{q.row!r} ({q.distance:.3g})" for q in self.points[:_SHOWN_POINTS])
        if far:
            lines.append(f"Points of x that move most to become y (typically {self.typical_move:.3g}): {far}")
        lines += [f"Note: {note}" for note in self.notes]
        lines.append("Any two samples differ a little. Could it be chance? Ask `osl.two_sample_test(x, y)`.")
        return "\n".join(shown(line) for line in lines)

    def _repr_html_(self) -> str:
        n, m = self._sizes
        title = f"How y ({m:,} points) differs from x ({n:,} points)"
        if self.distance == 0:
            return card(title, [], ["Not at all: both hold the same points."])
        rows = [(str(f.name), f"{f.share:.0%}: {f.change}") for f in self.features[:_SHOWN_FEATURES]]
        left = len(self.features) - len(rows)
        if left:
            rest = sum(f.share for f in self.features[len(rows) :])
            rows.append((f"the {left} others", f"{rest:.0%} together"))
        rows += [(f"along {sum_of(d)}", f"{d.distance:.3g} apart") for d in self.directions]
        return card(title, rows, self.notes)


def sum_of(direction: DifferentDirection) -> str:
    """The largest loadings as a sum: "0.8 age - 0.6 income"."""
    largest = list(direction.loadings.items())[:_SHOWN_LOADINGS]
    terms = [f"{'-' if w < 0 else '+'} {abs(w):.2g} {name}" for name, w in largest if round(w, 2)]
    more = " + ..." if 1 - sum(w * w for _, w in largest) > 1e-3 else ""
    return " ".join(terms).removeprefix("+ ") + more
