"""What the pictures of results show, worked out once: :mod:`orthoslice.plot` and the report draw it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from orthoslice.applications.bounds import Bounds
from orthoslice.applications.explain.explain import explain
from orthoslice.applications.explain.explanation import DifferentDirection, Explanation, sum_of
from orthoslice.applications.two_sample.testing import TwoSampleResult
from orthoslice.backend.arrays import HostArray, detach, is_traced, namespace, to_numpy
from orthoslice.check.options import check_direction, check_level
from orthoslice.clouds.cloud import Cloud, detached, single_clouds
from orthoslice.directions.base import DenseDirections, projection_dtype
from orthoslice.directions.layout import Layout
from orthoslice.estimates.result import Estimate, root
from orthoslice.estimates.statistics import interval_arms, unit_means, unit_statistics, with_variance

UNIT = "units of the data"

# What a mark stands for, which decides its colour: what was found, what to hold it against, and the rest.
Role: TypeAlias = Literal["found", "against", "quiet"]

_MOST_BINS, _FEWEST_BINS = 40, 8
_MOST_QUANTILES = 99
_MOST_SHOWN = 200

# Numbers whose relative difference is smaller than this are drawn as one.
_SAME = 1e-6


class Bars(NamedTuple):
    """A histogram: `counts (bins,)` between `edges (bins + 1,)`."""

    edges: HostArray
    counts: HostArray
    label: str
    role: Role = "found"


class Rows(NamedTuple):
    """Horizontal bars from 0, one a named row of the y axis, with texts at their ends."""

    first: int
    """The row of the first one."""
    lengths: HostArray
    ends: tuple[str, ...]
    role: Role = "found"
    label: str = ""
    lane: int | None = None
    """The upper (0) or the lower (1) half of each row, where two bars share it."""


class Span(NamedTuple):
    """From one number to another in a row of the y axis, with a dot between them unless it is None."""

    row: int
    low: float
    high: float
    at: float | None
    role: Role = "found"


class Line(NamedTuple):
    """A curve through `xs` and `ys`."""

    xs: HostArray
    ys: HostArray
    label: str
    role: Role = "found"


class Dots(NamedTuple):
    """Points at `xs` and `ys`."""

    xs: HostArray
    ys: HostArray
    label: str
    role: Role = "found"


class Band(NamedTuple):
    """The area between `low` and `high` over `xs`."""

    xs: HostArray
    low: HostArray
    high: HostArray
    label: str
    role: Role = "found"


class Rule(NamedTuple):
    """A vertical line at a number that others are held against."""

    at: float
    label: str
    role: Role = "against"


Mark: TypeAlias = Bars | Rows | Span | Line | Dots | Band | Rule


class Axis(NamedTuple):
    """What an axis counts, and from where to where."""

    label: str
    low: float
    high: float
    names: tuple[str, ...] = ()
    """The names of its rows, from the top, if it has rows instead of numbers."""


@dataclass(frozen=True)
class Picture:
    """A picture as data: title, axes and marks."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    told: str
    """A description of the picture in words, for screen readers."""
    is_square: bool = False
    """Whether both axes have the same length, so that y = x is the diagonal."""


def picture_directions(estimate: Estimate, *, unit: str = UNIT) -> Picture:
    """How far apart two clouds are along each direction that was drawn."""
    scores = _scores_of(estimate, estimate._raw)
    lengths = _floats(estimate._scaled(root(scores, estimate.p)))
    name, value, limits = f"{estimate.name}_{estimate.p:g}", _distance_of(estimate), estimate._told_interval()
    bars = _histogram(lengths, value, "directions")
    along = "along a direction" if estimate.name == "SW" else "by the coupling of a direction"
    sure = "" if limits is None else f" (95% interval {limits[0]:.4g} to {limits[1]:.4g})"
    return Picture(
        title="Distance direction by direction",
        x=Axis(f"distance {along} ({unit})", *_ends(bars.edges, value)),
        y=Axis("number of directions", 0, _headroom(bars.counts)),
        marks=(bars, Rule(value, f"{name} = {value:.4g}")),
        told=f"Histogram of the distance {along} for {len(lengths):,} directions: from {lengths.min():.4g} to "
        f"{lengths.max():.4g}, half of them above {float(np.median(lengths)):.4g}. Their power mean is "
        f"{name} = {value:.4g}{sure}.",
    )


def picture_quantiles(
    x: object,
    y: object,
    direction: object = None,
    *,
    x_weights: object = None,
    y_weights: object = None,
    labels: tuple[str, str] = ("x", "y"),
    unit: str = UNIT,
    rng: object = None,
) -> Picture:
    """The quantiles of two clouds along a direction, held against each other; see :func:`plot.quantiles`."""
    if direction is None:
        found = explain(x, y, x_weights=x_weights, y_weights=y_weights, n_found=1, n_points=1, rng=rng)
        direction = found.directions[0]
    title = "One direction"
    if isinstance(direction, DifferentDirection):
        (name, *others), title = direction.loadings, sum_of(direction)
        title, direction = title if others else str(name), direction.theta.tolist()
    clouds = [detached(cloud) for cloud in single_clouds(x, y, x_weights, y_weights)]
    row = check_direction(direction, clouds[0])
    theta = DenseDirections(namespace(row).astype(row, projection_dtype(clouds[0].points)))
    levels = _levels(max(cloud.n for cloud in clouds))
    qx, qy = (_quantiles(cloud, theta, levels) for cloud in clouds)
    low, high = _ends(np.array([min(qx.min(), qy.min()), max(qx.max(), qy.max())]))
    ends = np.array([low, high])
    above = float((qy > qx).mean())
    (a, b), middle = labels, len(levels) // 2
    return Picture(
        title=title,
        x=Axis(f"{a} ({unit})", low, high),
        y=Axis(f"{b} ({unit})", low, high),
        marks=(
            Line(ends, ends, "where both would be the same", "quiet"),
            Dots(qx, qy, "quantiles, the lowest with the lowest"),
        ),
        told=f"Quantiles of {b} against those of {a} along {title}: {above:.0%} of them are higher in {b}. The "
        f"medians are {qx[middle]:.4g} in {a} and {qy[middle]:.4g} in {b}.",
        is_square=True,
    )


def picture_features(explanation: Explanation, *, n_shown: int = 10) -> Picture:
    """The part of each feature in the difference, the largest first."""
    features = explanation.features
    # A single feature left over is named, not called "others".
    shown = features[: n_shown if len(features) > n_shown + 1 else n_shown + 1]
    names = [str(feature.name) for feature in shown]
    shares = [feature.share for feature in shown]
    many = len(shown)
    if many < len(features):
        names.append(f"the {len(features) - many} others together")
        shares.append(math.fsum(feature.share for feature in features[many:]))
    ends = tuple(f"{share:.0%}" for share in shares)
    listed = ", ".join(f"{name} {end}" for name, end in zip(names, ends, strict=True))
    return Picture(
        title="Which features differ",
        x=Axis("part of the difference (%)", 0, 100 * max(1e-3, *shares, 0) * 1.12),
        y=Axis("feature", 0, len(names), tuple(names)),
        marks=(
            Rows(0, 100 * np.array(shares[:many]), ends[:many]),
            Rows(many, 100 * np.array(shares[many:]), ends[many:], "quiet"),
        ),
        told=f"Bars for the part of each feature in the difference: {listed}.",
    )


def picture_bounds(
    bounds: Bounds, *, sliced: Estimate | None = None, projected: Estimate | None = None, unit: str = UNIT
) -> Picture:
    """Where the Wasserstein distance must lie, with the estimates below and above it where they are given."""
    name, low, high = f"W_{bounds.p:g}", f"{bounds.lower:.4g}", f"{bounds.upper:.4g}"
    names = [f"{name}, for certain: " + (low if low == high else f"{low} to {high}")]
    spans: list[tuple[float, float, float | None]] = [(bounds.lower, bounds.upper, None)]
    told = [
        f"{name} is {low} for certain." if low == high else f"{name} lies between {low} and {high} for certain."
    ]
    for estimate, place in ((sliced, 0), (projected, len(names) + (sliced is not None))):
        if estimate is None:
            continue
        if estimate.p != bounds.p:
            raise ValueError(
                f"Bounds and estimates must have the same `p`; got {bounds.p:g} and {estimate.p:g}."
            )
        value, limits = _distance_of(estimate), estimate._told_interval()
        kind = "sliced" if estimate.name == "SW" else "projected"
        ends = limits or (value, value)
        sure = f", 95% interval {ends[0]:.4g} to {ends[1]:.4g}" if limits else ""
        names.insert(place, f"{estimate.name}_{estimate.p:g}, {kind}: {value:.4g}")
        spans.insert(place, (*ends, value))
        told.append(f"The {kind} distance is {value:.4g}{sure}.")
    return Picture(
        title="Where the distance lies",
        x=Axis(f"distance ({unit})", 0, 1.08 * (max(span[1] for span in spans) or 1.0)),
        y=Axis("", 0, len(names), tuple(names)),
        marks=tuple(
            Span(row, *span, "found" if span[2] is None else "against") for row, span in enumerate(spans)
        ),
        told=" ".join(told),
    )


def picture_null(test: TwoSampleResult, *, unit: str = UNIT) -> Picture:
    """The distances that permuted labels give, or their smallest p-values, with the one that was observed."""
    null, name = np.asarray(test.null_distribution, dtype=np.float64), test.label
    label, observed = f"{name} ({unit})", f"observed: {test.statistic:.4g} (p = {test.pvalue:.3g})"
    if test.method == "auto":
        # Smaller than the p-value of the test, which it would be taken for.
        label, observed = name, f"observed (p = {test.pvalue:.3g})"
    bars = _histogram(null, test.statistic, f"{test.n_permutations:,} random relabellings")
    return Picture(
        title="Could it be chance?",
        x=Axis(label, *_ends(bars.edges, test.statistic)),
        y=Axis("number of relabellings", 0, _headroom(bars.counts)),
        marks=(bars, Rule(test.statistic, observed)),
        told=f"Histogram of {name} for {test.n_permutations:,} random relabellings, from {null.min():.4g} to "
        f"{null.max():.4g}. The observed {name} is {test.statistic:.4g}; {test._n_reached:,} of them reach it, "
        f"so that p = {test.pvalue:.3g}.",
    )


def picture_convergence(estimate: Estimate, *, level: float = 0.95, unit: str = UNIT) -> Picture:
    """How an estimate and its error bar settled, from its first blocks to all of them."""
    check_level(level)
    counts, values, lows, highs = _running(estimate, level)
    name = f"{estimate.name}_{estimate.p:g}"
    has_band = ~np.isnan(lows)
    marks: list[Mark] = [Line(counts, values, f"{name} so far", "found")]
    told = f"{name} after {counts[0]:,.0f} directions is {values[0]:.4g}, after all {counts[-1]:,.0f} it is "
    told += f"{values[-1]:.4g}"
    if has_band.any():
        band = Band(counts[has_band], lows[has_band], highs[has_band], f"{level:.0%} interval over directions")
        marks.insert(0, band)
        told += f", with a {level:.0%} interval from {lows[-1]:.4g} to {highs[-1]:.4g}"
    # The first intervals rest on two or three blocks and may be so wide that the rest would be a flat line.
    settled = np.flatnonzero(has_band)[len(np.flatnonzero(has_band)) // 4 :]
    seen = np.concatenate([values, lows[settled], highs[settled]])
    return Picture(
        title="How the estimate settled",
        x=Axis("directions used", 0, float(counts[-1])),
        y=Axis(f"{name} ({unit})", *_ends(seen)),
        marks=tuple(marks),
        told=told + ".",
    )


def _running(estimate: Estimate, level: float) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    """Directions used, the distance and its limits after the first units, `(looks,)` each."""
    scores, layout = _scores_of(estimate, estimate._scores), estimate._layout
    means = unit_means(detach(scores), layout)
    found = []
    for units in _shown_units(layout):
        part = layout.first(units)
        told = unit_statistics(means[:units, ...], part)._replace(jump=estimate._statistics.jump)
        told = with_variance(told, estimate._variance)
        down, up = interval_arms(told, part, level, estimate._looks)
        distances = (
            estimate._scaled(root(value, estimate.p)) for value in (told.mean, told.mean - down, told.mean + up)
        )
        found.append((float(part.n_directions), *(float(_floats(distance)) for distance in distances)))
    counts, values, lows, highs = np.array(found).T
    return counts, values, lows, highs


def _shown_units(layout: Layout) -> list[int]:
    """Numbers of units to show an estimate for: all up to `_MOST_SHOWN`, or as many spread evenly."""
    spread = np.linspace(1, layout.n_units, min(layout.n_units, _MOST_SHOWN))
    return [int(units) for units in spread.round()]


def _scores_of(estimate: Estimate, scores: object) -> Any:
    """Scores of a single pair of clouds; or an error that says why there are none."""
    if scores is None or is_traced(estimate._value):
        raise ValueError(
            "The picture takes the scores of the directions, which are gone once an estimate was traced or "
            "went through a pytree. Draw the estimate as the function gave it."
        )
    if estimate._value.ndim:
        raise ValueError(
            "The picture takes the estimate of one pair of clouds; got a batch of shape "
            f"{tuple(estimate._value.shape)}. Estimate the pair that you want to see."
        )
    return scores


def _levels(n: int) -> HostArray:
    """Levels at which quantiles are compared, none of them at the ends."""
    count = min(n, _MOST_QUANTILES)
    levels: HostArray = (np.arange(count) + 0.5) / count
    return levels


def _quantiles(cloud: Cloud, theta: DenseDirections, levels: HostArray) -> HostArray:
    """Quantiles of the projected points: for each level the first value whose cumulative mass exceeds it."""
    values = _floats(cloud.project(theta, slice(0, 1), widely=True))[0]
    if cloud.weights is None:
        places = np.floor(levels * cloud.n).astype(int)
        # Only the values at these places are needed: a partition is enough.
        found: HostArray = np.partition(values, places)[places]
        return found
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(_floats(cloud.weights)[order])
    places = np.searchsorted(mass, levels * mass[-1], side="right")
    return np.asarray(values[order][np.minimum(places, cloud.n - 1)])


def _floats(array: object) -> HostArray:
    return np.asarray(to_numpy(detach(array)), dtype=np.float64)


def _distance_of(estimate: Estimate) -> float:
    return float(_floats(estimate.distance))


def _histogram(values: HostArray, beside: float, label: str) -> Bars:
    """Counts in `_FEWEST_BINS` to `_MOST_BINS` bins, by the rule of Freedman and Diaconis."""
    low, high = float(values.min()), float(values.max())
    if high - low <= _SAME * max(abs(high), abs(beside)):
        # One bar that can be seen.
        half = 0.02 * (max(abs(high), abs(beside)) or 1.0)
        return Bars(np.array([low - half, low + half]), np.array([len(values)]), label)
    quarter, three = np.quantile(values, [0.25, 0.75])
    width = 2 * (three - quarter) / len(values) ** (1 / 3)
    many = _MOST_BINS if width <= 0 else math.ceil(min(_MOST_BINS, (high - low) / width))
    counts, edges = np.histogram(values, bins=max(_FEWEST_BINS, many))
    return Bars(edges, counts, label)


def _ends(values: HostArray, *others: float) -> tuple[float, float]:
    """A range that holds all these numbers, with some room; not below 0 if no number is."""
    low, high = min(float(values.min()), *others, math.inf), max(float(values.max()), *others, -math.inf)
    size = max(abs(low), abs(high))
    # Numbers that differ by rounding only count as equal.
    room = 0.05 * (high - low if high - low > _SAME * size else size) or 1.0
    return (max(0.0, low - room) if low >= 0 else low - room), high + room


def _headroom(counts: HostArray) -> float:
    return 1.08 * float(counts.max())
