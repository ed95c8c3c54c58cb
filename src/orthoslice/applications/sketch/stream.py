"""Points that pass by once: their projections are summarised, and distances come with certain bounds.

:mod:`orthoslice.applications.sketch.summary` says what is kept of a direction, and why the bounds hold. Here
numbers are projections, rounded to multiples of a resolution. That moves W_p by at most half of the resolution
for each cloud; it, and the rounding of projections far from the origin, is part of the bounds.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from orthoslice.applications.sketch.summary import (
    BIN_BYTES,
    EMPTY,
    LARGEST,
    MOST_AT_ONCE,
    Bins,
    counted,
    joined,
    line_bounds,
    shape_of,
)
from orthoslice.backend.arrays import RNG, HostArray, Key, is_traced, library, resolve_rng
from orthoslice.check.frames import check_same_names, column_names, listed
from orthoslice.check.inputs import as_array, check_points, exact_floating, on_host
from orthoslice.check.options import check_directions, check_n_directions, check_p, is_real
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import rescaled
from orthoslice.costs.pools import mean_shortening
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Given, Sampler
from orthoslice.directions.base import DenseDirections, Directions, SteadyDirections, check_count, dense_rows
from orthoslice.directions.layout import Layout
from orthoslice.directions.walks import sweep_blocks
from orthoslice.estimates.passes import draw_lines
from orthoslice.estimates.request import plan_layout
from orthoslice.estimates.statistics import statistics

# Coordinates, and projections, that are worked on at a time.
_PIECE_ITEMS = 1 << 20

# A resolution at which no distance overflows.
_COARSEST = 2.0**960

# The relative rounding error of means of p-th powers, and of powers of their unit, is at most p _ROUNDING.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Summarised:
    """SW_p between the points of two streams, on their directions.

    Attributes
    ----------
    lower, upper
        Certain bounds of the mean over these directions of W_p^p: what :func:`orthoslice.sliced_wasserstein`
        with the same directions, `rng` and ``control=None`` gives for the points themselves, in float64, lies
        between them.
    value, stderr
        The middle of both, and its standard error over the choice of directions.
    distance, distance_lower, distance_upper
        Their p-th roots. Where p-th powers leave the range of float64, these do not.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> here, there = osl.Stream(2, n_directions=8), osl.Stream(2, n_directions=8)
    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> here.update(x)
    >>> there.update(x + 1)
    >>> found = here.compare(there)
    >>> found.lower <= found.value <= found.upper, round(found.distance, 6)
    (True, 1.0)
    """

    p: float
    n_directions: int
    _powers: dict[str, float]
    """In units of `_unit` to the power p."""
    _unit: float

    @property
    def lower(self) -> float:
        return self._power("lower")

    @property
    def upper(self) -> float:
        # An upper bound that underflows must not become 0.
        return max(self._power("upper"), math.ulp(0.0))

    @property
    def value(self) -> float:
        return self._power("value")

    @property
    def stderr(self) -> float:
        return self._power("stderr")

    @property
    def distance(self) -> float:
        return self._root("value")

    @property
    def distance_lower(self) -> float:
        return self._root("lower")

    @property
    def distance_upper(self) -> float:
        return self._root("upper")

    def _power(self, name: str) -> float:
        return float(rescaled(np.array([self._powers[name]]), self._unit, self.p)[0])

    def _root(self, name: str) -> float:
        return float(self._unit * self._powers[name] ** (1 / self.p))

    def __repr__(self) -> str:
        lower, upper = self.distance_lower, self.distance_upper
        # To the digits in which they differ, rounded outwards: what is printed are bounds too.
        digits = 2 - math.floor(math.log10(1 - lower / upper)) if lower < upper else 17
        texts = (
            decimal.Context(min(digits, 17), rounding).create_decimal_from_float(bound)
            for bound, rounding in ((lower, decimal.ROUND_FLOOR), (upper, decimal.ROUND_CEILING))
        )
        ends = " to ".join(str(text) for text in texts)
        return f"Summarised(SW_{self.p:g} certainly from {ends} on these {self.n_directions} directions)"


@dataclass(eq=False)
class _Seen:
    """What a stream keeps of its points so far."""

    bins: list[Bins]
    """One summary a direction."""
    n: int = 0
    reach: float = 0.0
    """How far from the origin points are, at most."""
    columns: list[Hashable] | None = None
    """Names of the coordinates, if points came in frames."""


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """A summary of points that pass by once, for sliced distances with certain bounds.

    Streams with the same options can be merged, in any order and however often: the numbers are the same as if
    all points had come to one. They are a few MB to send, and no point is kept.

    Parameters
    ----------
    dim
        Coordinates of a point.
    p
        The power of the distances to come, at least 1.
    directions, n_directions, rng
        As in :func:`orthoslice.sliced_wasserstein`, and with the same integer the same directions. Streams to
        be compared or merged need the same integer, so there is a default.
    resolution
        Projections are rounded to multiples of this power of two. At most about a millionth of the distances
        that matter, and more than 2^-61 of the largest coordinates to come: the default holds points up to
        3e7 from the origin, and others are refused. It cannot be changed later.
    bins
        The most bins to use on a direction, of 32 bytes each.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(5000, 3)), rng.normal(size=(4000, 3)) + 1
    >>> here, there, other = (osl.Stream(3, n_directions=8) for _ in range(3))
    >>> here.update(x[:1000])
    >>> there.update(x[1000:])
    >>> other.update(y)
    >>> found = here.merge(there).compare(other)
    >>> found
    Summarised(SW_2 certainly from 1.128814057799 to 1.128814057832 on these 8 directions)
    >>> true = osl.sliced_wasserstein(x, y, n_directions=8, rng=0, control=None)
    >>> bool(found.lower <= true.value <= found.upper)
    True
    """

    dim: int
    p: float = 2
    directions: Any = "auto"
    n_directions: int | None = None
    rng: RNG = 0
    resolution: float = 2.0**-36
    bins: int = 30_000
    _seen: _Seen = field(init=False)
    _projector: _Projector = field(init=False)

    def __post_init__(self) -> None:
        check_count("dim", self.dim)
        check_count("bins", self.bins, least=2)
        p = check_p(self.p)
        unit = self.resolution
        if not is_real(unit) or not (0 < unit <= _COARSEST) or math.frexp(unit)[0] != 0.5:
            raise ValueError(f"`resolution` must be a power of two, such as 2**-36; got {unit!r}.")
        given = self.directions
        if library(given) is not None:
            given = on_host("directions", given)
        sampler = check_directions(given, Cloud(np.zeros((1, self.dim))))
        count = check_n_directions(self.n_directions, sampler)
        sampler, layout = plan_layout(sampler, count, self.dim, Sliced(), p, adaptive=False)
        key, seed = resolve_rng(self.rng, np.zeros(1))
        for name, value in {
            "p": p,
            "directions": sampler,
            "n_directions": layout.n_directions,
            "rng": seed,
            "resolution": float(unit),
            "_seen": _Seen([EMPTY] * layout.n_directions),
            "_projector": _Projector(sampler, layout, key, self.dim),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        """How many points there were."""
        return self._seen.n

    @property
    def nbytes(self) -> int:
        """What the bins take, all directions together."""
        return sum(BIN_BYTES * len(bins.key) for bins in self._seen.bins)

    def update(self, points: Any) -> None:
        """Add points `(n, dim)`, perhaps 0 of them; none is kept.

        Columns of data frames stand in the order of the first one. Pass many points at a time: one takes nearly
        as long as a thousand.
        """
        columns, table = self._read(points)
        if not len(table):
            return
        largest = check_points("points", table) or 0.0
        reach = largest * math.sqrt(self.dim)
        if reach >= LARGEST * self.resolution:
            limit = LARGEST * self.resolution / math.sqrt(self.dim)
            raise ValueError(
                f"`points` must be below {limit:.3g} for a resolution of {self.resolution:.3g}; got "
                f"coordinates up to {largest:.3g}. Pass a coarser `resolution`."
            )
        seen = self._seen
        # A copy: if an error is raised below, no point has been added.
        bins = list(seen.bins)
        step = min(MOST_AT_ONCE, max(1, _PIECE_ITEMS // self.dim))
        for first in range(0, len(table), step):
            for k, numbers in self._projector.project(table[first : first + step].astype(np.float64)):
                places = np.rint(numbers / self.resolution).astype(np.int64)
                bins[k] = joined([bins[k], counted(places, bins[k].level)], self.bins)
        seen.bins, seen.n, seen.columns = bins, seen.n + len(table), columns
        seen.reach = max(seen.reach, reach)

    def _read(self, points: object) -> tuple[list[Hashable] | None, HostArray]:
        """Names of the columns from now on, and points in host memory, in their order."""
        columns, known = column_names("points", points), self._seen.columns
        array = as_array("points", points)
        if is_traced(array):
            raise TypeError("`Stream` needs values and cannot be traced (jit, grad or vmap). Call it outside.")
        table = on_host("points", array)
        exact_floating("points", table)
        if columns is not None and known is not None and columns != known:
            check_same_names(known, columns, ("earlier", "points"))
            place = {column: k for k, column in enumerate(columns)}
            table = table[:, [place[column] for column in known]]
        if table.shape != (len(table), self.dim):
            if table.ndim == 1:
                # Raises, with a hint for points on a line.
                check_points("points", table)
            raise ValueError(f"`points` must have shape (n, {self.dim}); got {table.shape}.")
        return (columns if known is None else known), table

    def merge(self, *others: Stream) -> Stream:
        """A stream of all points of this one and of others, which stay as they are."""
        for other in others:
            self._check_alike(other)
        merged, parts = replace(self), [stream._seen for stream in (self, *others)]
        for k in range(len(self._seen.bins)):
            merged._seen.bins[k] = joined([part.bins[k] for part in parts], self.bins)
        merged._seen.n = sum(part.n for part in parts)
        merged._seen.reach = max(part.reach for part in parts)
        merged._seen.columns = next((part.columns for part in parts if part.columns is not None), None)
        return merged

    def __copy__(self) -> Stream:
        return self.merge()

    def compare(self, other: Stream) -> Summarised:
        """SW_p between the points of two streams, with certain bounds."""
        self._check_alike(other)
        if not (self.n and other.n):
            raise ValueError("Streams must have seen points to be compared; one of them has not.")
        projector, reach = self._projector, (self._seen.reach + other._seen.reach) / self.resolution
        # In multiples of the resolution: 1/2 for each cloud, and the rounding of its projections, see
        # `clouds.ready.ready_for_ties`; each pass of a fast transform rounds its rows once more.
        passes = 4 * projector.sampler.ambient_dim(self.dim).bit_length()
        moved = 1 + (self.dim + 8 + passes) * 2.0**-53 * reach
        found = np.array(
            [
                line_bounds(shape_of(one), shape_of(two), self.p, moved)
                for one, two in zip(self._seen.bins, other._seen.bins, strict=True)
            ]
        )
        largest = float(found.max())
        shortening = mean_shortening(self.dim, projector.sampler.ambient_dim(self.dim), self.p)
        outwards = 1 + _ROUNDING * self.p * np.array([-1, 1])
        powers = (found / largest) ** self.p / shortening * outwards
        lower, upper = powers.mean(axis=0)
        middle = statistics(powers.mean(axis=1), projector.layout)
        told = {"lower": lower, "upper": upper, "value": middle.mean, "stderr": middle.stderr}
        return Summarised(
            self.p,
            projector.layout.n_directions,
            {name: float(quantity) for name, quantity in told.items()},
            largest * self.resolution,
        )

    def _check_alike(self, other: object) -> None:
        if not isinstance(other, Stream):
            raise TypeError(f"Streams go with streams; got {type(other).__name__}.")
        for name in ("dim", "p", "directions", "n_directions", "rng", "resolution", "bins"):
            own, given = getattr(self, name), getattr(other, name)
            if own != given and not (isinstance(own, Given) and _same_rows(own, given)):
                what = f"two {own!r} that differ" if repr(own) == repr(given) else f"{own!r} and {given!r}"
                raise ValueError(f"Streams must have the same `{name}`; got {what}.")
        columns = [stream._seen.columns for stream in (self, other)]
        if columns[0] is not None and columns[1] is not None and columns[0] != columns[1]:
            raise ValueError(
                "Streams must have seen frames with the same columns in the same order; got "
                f"{listed(columns[0])} and {listed(columns[1])}. The first frame of a stream says its order."
            )

    def __repr__(self) -> str:
        return (
            f"Stream({self.dim}: {self.n} points in {self.nbytes / 1e6:.3g} MB; "
            f"directions={self.directions!r}, n_directions={self.n_directions}, rng={self.rng})"
        )


def _same_rows(own: Given, given: object) -> bool:
    return isinstance(given, Given) and np.array_equal(own.theta, given.theta)


class _Projector(NamedTuple):
    """Draws the directions of a stream, and projects points on them."""

    sampler: Sampler
    layout: Layout
    key: Key
    dim: int

    def project(self, points: HostArray) -> Iterator[tuple[int, HostArray]]:
        """Projections of some points on every direction, with its number."""
        key = (int(word[0]) for word in self.key)
        step = max(1, _PIECE_ITEMS // len(points))
        for first, rows, directions in _drawn(self.sampler, self.layout, self.dim, *key):
            for row in range(rows.start, rows.stop, step):
                part = slice(row, min(row + step, rows.stop))
                yield from enumerate(directions.project(points, part), first + row - rows.start)


@functools.lru_cache(maxsize=16)
def _drawn(
    sampler: Sampler, layout: Layout, dim: int, high: int, low: int
) -> list[tuple[int, slice, Directions]]:
    """All directions, such that a point's projection depends on no other point: sites agree in every digit."""
    key = Key(*(np.array([word], dtype=np.int32) for word in (high, low)))
    drawn: list[tuple[int, slice, Directions]] = []
    for first, rows, blocks in sweep_blocks(
        sampler, layout, key, dim, np.dtype(np.float64), layout.n_directions
    ):
        directions = draw_lines(blocks, True)
        if not isinstance(directions, DenseDirections):
            # The rounding of a fast transform depends on the number of points; products with its rows do not.
            theta = dense_rows(directions, rows)
            rows, directions = slice(0, len(theta)), SteadyDirections(theta)
        drawn.append((first, rows, directions))
    return drawn
