"""Find where two clouds differ: features one by one, directions by ascent, points by their moves."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.applications.ascent import Found, Landscape, line_scores, most_different
from orthoslice.applications.columns import adjust, kolmogorov_pvalue
from orthoslice.applications.explain.explanation import DifferentDirection, Explanation, Feature, MovedPoint
from orthoslice.backend.arrays import RNG, HostArray, Key, resolve_rng
from orthoslice.backend.memory import share_memory
from orthoslice.backend.threads import default_workers, ordered_map
from orthoslice.check.frames import feature_names
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_level, check_memory, check_p
from orthoslice.clouds.cloud import numpy_clouds
from orthoslice.clouds.conditioning import centred, rescaled, unit_scale
from orthoslice.clouds.ready import ReadyCloud, as_given, with_masses
from orthoslice.costs.lines import differences, powered, scatter_slopes, weigh
from orthoslice.costs.pools import mean_power
from orthoslice.costs.scores import Sliced
from orthoslice.couplings.coupling import couple, couples_ranks
from orthoslice.directions import Orthogonal, Sampler
from orthoslice.directions.base import DenseDirections, check_count
from orthoslice.directions.layout import Layout
from orthoslice.directions.walks import Piece, sweep_directions
from orthoslice.estimates.request import plan_layout
from orthoslice.estimates.underflow import check_underflow, have_other_points

# A feature dominates if its variance is at least _DOMINANT_SHARE of the sum over all features, and at least
# _DOMINANT_RATIO times the median over the others.
_DOMINANT_SHARE, _DOMINANT_RATIO = 0.5, 10.0

# With weights there are no p-values: a feature is "about the same" if W_2 is at most _NOTABLE standard
# deviations, or W_2^2 at most _BY_CHANCE times the variance of the difference of means, as for samples of one
# normal law.
_NOTABLE, _BY_CHANCE = 0.02, 4.0

# The most values of a cloud at which distribution functions are compared.
_MOST_EDGES = 4096

# The text leaves out parts of a change (mean, spread, shape) below this share of W_2^2.
_TOLD_SHARE = 0.2


@answers_other_names
def explain(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    names: Sequence[Hashable] | None = None,
    x_weights: Any = None,
    y_weights: Any = None,
    n_found: int = 3,
    n_points: int = 10,
    n_directions: int = 128,
    level: float = 0.05,
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
) -> Explanation:
    """Say where two clouds differ: in which features, along which directions, and at which points.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`: arrays of any library, lists or data frames, whose columns are matched
        by name. The work is done by NumPy.
    p
        The power, at least 1. Higher powers look more at the tails.
    names
        The names of the features of arrays; ``x0``, ``x1``, ... by default. Those of data frames are their
        columns.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.
    n_found
        How many directions to look for, `dim` at most.
    n_points
        How many points of x to name.
    n_directions
        How many directions are drawn: to begin searches with, and to see how far points move.
    level
        The adjusted p-value up to which a feature is told to have changed: of samples of one law, any feature
        is with at most this probability.
    rng, workers
        As in :func:`sliced_wasserstein`.
    memory
        Working memory in bytes or as text, beyond the clouds. A direction takes 64 (n + m) bytes, twice as many
        with weights or where n and m differ; there is always room for one.

    Returns
    -------
    Explanation
        `features`, `directions`, `points` and `notes`; printed, it is a short text.

    Notes
    -----
    *Features.* The score is W_p^p of a feature alone, by sorting, without error. What changes is told by the
    parts of W_2^2 on a line: the squared difference of means, that of standard deviations, and the rest, which
    is shape. It is told only where the feature changed by the test of Kolmogorov and Smirnov, adjusted for the
    number of features: the scores of samples of one law are not 0 either.

    *Directions* are found by ascent from the best of those drawn, the axes and the difference of the means:
    local maxima, never worse than where the search began. Searches go over up to 4,096 points of each cloud,
    and what they find is improved on all. They are **chosen** to be different: along them even two samples of
    one law lie apart, the more so the more features and the fewer points there are.

    *Points.* Along every drawn direction a point is matched with its place in the other cloud. How far it moves
    is `(mean |move|^p / E|theta_1|^p)^(1/p)` over directions: about the length of a vector, if every direction
    moves the point by the projection of that vector.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 3)) + [40, 3, 0]
    >>> y = rng.normal(size=(400, 3)) * [1, 2, 1] + [42, 3, 0]
    >>> found = osl.explain(x, y, names=["age", "income", "height"], rng=0)
    >>> [(f.name, f.change.split(":")[0]) for f in found.features[:2]]
    [('age', 'higher in y'), ('income', 'more spread in y')]
    >>> found.directions[0].distance > 1.9
    True
    """
    p = check_p(p)
    check_level(level)
    labels, rows = feature_names("names", names, x, y), _row_labels(x)
    cloud_x, cloud_y = numpy_clouds("explain", x, y, x_weights, y_weights)
    if labels is None:
        labels = [f"x{k}" for k in range(cloud_x.dim)]
    elif len(labels) != cloud_x.dim:
        raise ValueError(f"`names` must have one name a feature, {cloud_x.dim}; got {len(labels)}.")
    n_found, n_points = (check_count(k, v) for k, v in (("n_found", n_found), ("n_points", n_points)))
    sampler, layout = plan_layout(
        Orthogonal(), check_count("n_directions", n_directions), cloud_x.dim, Sliced(), p, adaptive=False
    )
    key, seed = resolve_rng(rng, np.zeros(1))
    room = check_memory(memory)
    many = default_workers() if workers is None else check_count("workers", workers)
    cloud_x, cloud_y, scale = unit_scale(cloud_x, cloud_y, p)
    job = ExplainJob(*with_masses(as_given(cloud_x), as_given(cloud_y)), p, room, many)
    told = _compare_features(job)
    check_underflow(p, cloud_x.dtype, told.scores, lambda: have_other_points(cloud_x, cloud_y))
    job = ExplainJob(*centred(job.x, job.y), p, room, many)
    theta, scores, costs = _move_points(job, sampler, layout, key)
    sizes = cloud_x.n, cloud_y.n
    found = most_different(Landscape(job.x, job.y, p, room), theta, told.scores, n_found, key)
    moves = scale * (costs / mean_power(cloud_x.dim, p)) ** (1 / p)
    far = [int(k) for k in np.argsort(-moves, kind="stable")[:n_points] if moves[k] > 0]
    return Explanation(
        p=p,
        features=_name_features(labels, told, scale, p, sizes, level),
        directions=tuple(_name_direction(labels, f, scale, p) for f in sorted(found, key=_by_score)),
        points=tuple(MovedPoint(k if rows is None else rows[k], float(moves[k])) for k in far),
        notes=_notes(labels, told, sizes),
        distance=float(scale * float(scores.mean()) ** (1 / p)),
        typical_move=float(np.median(moves)),
        n_directions=layout.n_directions,
        seed=seed,
        _sizes=sizes,
    )


class ExplainJob(NamedTuple):
    """What the workers need: the clouds, the power, memory and the number of threads."""

    x: ReadyCloud
    y: ReadyCloud
    p: float
    memory: int
    workers: int

    def shared(self, many: int) -> tuple[int, int]:
        """The number of workers, and how many of `many` rows each takes at a time: within the memory."""
        row = (64 if couples_ranks(self.x, self.y) else 128) * (self.x.n + self.y.n)
        workers, rows = share_memory(self.memory, row, self.workers)
        return workers, min(rows, -(-many // workers))


class Compared(NamedTuple):
    """Scores, means and standard deviations of all features, `(dim,)` each."""

    scores: HostArray
    squared: HostArray
    """W_2^2, which is the sum of a part for the means, one for the spreads and one for the shape."""
    x_mean: HostArray
    y_mean: HostArray
    x_spread: HostArray
    y_spread: HostArray
    gaps: HostArray
    """The largest differences of the distribution functions; NaN with weights."""


def _row_labels(x: object) -> Any:
    """The labels of the rows of a pandas frame, or None; lists have an `index` too."""
    labels = getattr(x, "index", None)
    return labels if hasattr(labels, "equals") else None


def _compare_features(job: ExplainJob) -> Compared:
    """Every feature alone, a few columns at a time."""
    dim = job.x.dim
    workers, step = job.shared(dim)
    work = (functools.partial(_compare_columns, job, slice(k, k + step)) for k in range(0, dim, step))
    return Compared(*(np.concatenate(part) for part in zip(*ordered_map(work, workers), strict=True)))


def _compare_columns(job: ExplainJob, columns: slice) -> Compared:
    x, y, p = job.x, job.y, job.p
    # Copies, which are sorted: of a table by columns the transpose is a view of what the user passed.
    rows = [np.array(c.points[:, columns].T, dtype=np.float64, order="C") for c in (x, y)]
    means: list[HostArray] = []
    spreads: list[HostArray] = []
    for cloud, table in zip((x, y), rows, strict=True):
        mean = np.average(table, axis=1, weights=cloud.weights)
        means.append(mean)
        spreads.append(np.sqrt(np.average((table - mean[:, None]) ** 2, axis=1, weights=cloud.weights)))
    gaps = np.full(len(rows[0]), np.nan)
    if x.weights is None and y.weights is None:
        for table in rows:
            table.sort(axis=1)
        gaps = _largest_gaps(*rows)
    squared = line_scores(x, y, 2.0, *(table.copy() for table in rows))
    scores = squared if p == 2 else line_scores(x, y, p, *rows)
    return Compared(scores, squared, means[0], means[1], spreads[0], spreads[1], gaps)


def _largest_gaps(x: HostArray, y: HostArray) -> HostArray:
    """The largest difference of the distribution functions of sorted rows `(columns, n)` and `(columns, m)`.

    They are compared at up to _MOST_EDGES values of each, and at all values of smaller clouds.
    """
    n, m = x.shape[1], y.shape[1]
    some = [table[:, :: max(1, table.shape[1] // _MOST_EDGES)] for table in (x, y)]
    found = np.empty(len(x))
    for k, edges in enumerate(np.concatenate(some, axis=1)):
        below = [np.searchsorted(table[k], edges, side="right") for table in (x, y)]
        found[k] = np.abs(below[0] / n - below[1] / m).max()
    return found


def _move_points(
    job: ExplainJob, sampler: Sampler, layout: Layout, key: Key
) -> tuple[HostArray, HostArray, HostArray]:
    """Directions `(slices, dim)`, their scores `(slices,)`, and of each point of x its mean |move|^p `(n,)`."""
    workers, step = job.shared(layout.n_directions)
    pieces = sweep_directions(sampler, layout, key, job.x.dim, np.dtype(np.float64), step)
    theta, scores, costs = [], [], np.zeros(job.x.n)
    work = (functools.partial(_move_along, job, piece) for piece in pieces)
    for rows, found, total in ordered_map(work, workers):
        theta.append(rows)
        scores.append(found)
        costs += total
    weight = np.full(job.x.n, 1 / job.x.n) if job.x.weights is None else job.x.weights
    there = np.where(weight > 0, weight, 1.0)
    return np.concatenate(theta), np.concatenate(scores), costs / there / layout.n_directions


def _move_along(job: ExplainJob, piece: Piece) -> tuple[HostArray, HostArray, HostArray]:
    """Rows of the directions, their scores, and what the pairs of each point of x cost along all of them."""
    assert isinstance(piece.directions, DenseDirections)
    px, py = (c.project(piece.directions, piece.rows, widely=True) for c in (job.x, job.y))
    pairs = couple(px, py, job.x, job.y)
    costs = powered(differences(px, py, pairs), job.p)
    by_point = scatter_slopes(pairs.mass * costs, pairs.ix, job.x.n)
    return (
        cast(HostArray, piece.directions.theta)[piece.rows],
        cast(HostArray, weigh(costs, pairs)),
        cast(HostArray, by_point).sum(axis=0),
    )


def _name_features(
    names: list[Hashable], told: Compared, scale: float, p: float, sizes: tuple[int, int], level: float
) -> tuple[Feature, ...]:
    total = math.fsum(told.scores)
    scores = rescaled(told.scores, scale, p)
    pvalues: list[float | None] = [None] * len(names)
    if not np.isnan(told.gaps).any():
        pvalues = [*adjust(kolmogorov_pvalue(told.gaps, *sizes).tolist())]
    features = []
    for k in np.argsort(-told.scores, kind="stable"):
        means = float(scale * told.x_mean[k]), float(scale * told.y_mean[k])
        spreads = float(scale * told.x_spread[k]), float(scale * told.y_spread[k])
        share = float(told.scores[k] / total) if total > 0 else 0.0
        change = "no change found"
        if pvalues[k] is None or pvalues[k] <= level:
            change = _change(means, spreads, scale * math.sqrt(told.squared[k]), sizes, pvalues[k] is None)
        features.append(Feature(names[k], float(scores[k]), share, *means, *spreads, change, pvalues[k]))
    return tuple(features)


def _change(
    means: tuple[float, float],
    spreads: tuple[float, float],
    distance: float,
    sizes: tuple[int, int],
    is_open: bool,
) -> str:
    """What changes from x to y, the parts that matter, the largest first; `distance` is W_2.

    Where it is open whether anything does, small differences are none.
    """
    (x_mean, y_mean), (x_spread, y_spread) = means, spreads
    spread = math.hypot(x_spread, y_spread) / math.sqrt(2)
    if is_open and distance <= spread * max(_NOTABLE, math.sqrt(_BY_CHANCE * (1 / sizes[0] + 1 / sizes[1]))):
        return "about the same"
    moved, widened = y_mean - x_mean, y_spread - x_spread
    by = f" ({moved / spread:+.2g} standard deviations)" if spread > 0 else ""
    higher, wider = "higher" if moved > 0 else "lower", "more" if widened > 0 else "less"
    shares = [(moved / distance) ** 2, (widened / distance) ** 2]
    parts = [
        (shares[0], f"{higher} in y: mean {x_mean:.4g} -> {y_mean:.4g}{by}"),
        (shares[1], f"{wider} spread in y: standard deviation {x_spread:.4g} -> {y_spread:.4g}"),
        (1 - sum(shares), "another shape"),
    ]
    return "; ".join(words for share, words in sorted(parts, reverse=True) if share >= _TOLD_SHARE)


def _name_direction(names: list[Hashable], found: Found, scale: float, p: float) -> DifferentDirection:
    # theta and -theta are one direction: make the largest loading positive.
    theta = found.theta * np.sign(found.theta[np.argmax(np.abs(found.theta))])
    order = np.argsort(-np.abs(theta), kind="stable")
    loadings = {names[k]: float(theta[k]) for k in order}
    return DifferentDirection(loadings, float(scale * found.score ** (1 / p)), theta)


def _by_score(found: Found) -> float:
    return -found.score


def _notes(names: list[Hashable], told: Compared, sizes: tuple[int, int]) -> tuple[str, ...]:
    """A note on the feature that dominates the pooled variance, if one does."""
    part = sizes[0] / sum(sizes)
    between = part * (1 - part) * (told.y_mean - told.x_mean) ** 2
    variance = part * told.x_spread**2 + (1 - part) * told.y_spread**2 + between
    total = variance.sum()
    if len(names) == 1 or total == 0:
        return ()
    largest = int(np.argmax(variance))
    share = variance[largest] / total
    others = np.delete(variance, largest)
    if share < _DOMINANT_SHARE or variance[largest] < _DOMINANT_RATIO * np.median(others):
        return ()
    return (
        f"{names[largest]!r} has {math.floor(1000 * share) / 10:g}% of the variance of all features, so that "
        "distances are mostly about it. If its units are not meant to count more, pass `*osl.scaled([x, y])`.",
    )
