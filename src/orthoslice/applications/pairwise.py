"""Distances between all pairs of many clouds, each of which is projected and sorted once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from orthoslice.backend.arrays import RNG, HostArray, Key, is_traced, resolve_rng, to_numpy
from orthoslice.backend.memory import check_room, share_memory
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.threads import ordered_map
from orthoslice.check.inputs import is_dask
from orthoslice.check.many_clouds import agreeing_clouds, named_clouds
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import (
    check_memory,
    check_n_directions,
    check_p,
    check_shared_directions,
    check_workers,
)
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import centred, rescaled, unit_scale
from orthoslice.clouds.pooling import pool_clouds
from orthoslice.clouds.ready import ReadyCloud, ready_for_ties
from orthoslice.costs.pools import mean_shortening
from orthoslice.costs.scores import Exact, Score, Sliced
from orthoslice.costs.segments import order_segments, segment_costs, segment_space_costs, sort_segments
from orthoslice.directions import Auto, Orthogonal, Sampler
from orthoslice.directions.base import DEFAULT_BLOCKS, check_count
from orthoslice.directions.layout import Layout
from orthoslice.directions.walks import Piece, sweep_directions
from orthoslice.estimates.request import plan_layout
from orthoslice.estimates.result import root, root_stderr
from orthoslice.estimates.statistics import Statistics, unit_statistics
from orthoslice.estimates.underflow import check_underflow, have_other_points

# Larger pieces fall out of the processor's caches and are slower, not faster.
_CACHED_BYTES = 4_000_000

# Pairs that are solved where W is predicted.
DEFAULT_EXACT, FEWEST_EXACT = 40, 10

_METHODS = ("sliced", "projected", "predicted")
QUANTITIES = ("distance", "distance_stderr", "value", "stderr")


@dataclass(frozen=True, eq=False, repr=False)
class Pairwise:
    """Distances between all pairs of clouds, with error bars.

    Attributes
    ----------
    labels
        The names of the clouds, in the order of rows and columns.
    value, distance
        SW_p^p and SW_p, or PW_p^p and PW_p, of every pair, `(clouds, clouds)`: symmetric, 0 on the diagonal.
    stderr, distance_stderr
        Their standard errors over the choice of directions; NaN where there is only one independent block. All
        pairs share the directions, so their errors are not independent of each other.
    n_directions, n_blocks
        How many directions were used, in how many independent blocks.
    directions, seed
        ``directions=result.directions, n_directions=result.n_directions, rng=result.seed`` repeats it.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> found = osl.pairwise({"a": x, "b": x + [3, 0], "c": x + [0, 4]}, rng=0)
    >>> found.labels, found.distance.round(2)[0].tolist(), found.to_frame().shape
    (['a', 'b', 'c'], [0.0, 2.12, 2.83], (3, 3))
    """

    name: str
    p: float
    labels: list[Hashable]
    n_directions: int
    n_blocks: int
    directions: Sampler
    seed: int | None
    _pairs: Statistics
    """Of the pairs (0, 1), (0, 2), ..., (1, 2), ..., in units of scale^p."""
    _scale: float

    @property
    def value(self) -> HostArray:
        return self._square(cast(HostArray, rescaled(self._pairs.mean, self._scale, self.p)))

    @property
    def stderr(self) -> HostArray:
        return self._square(cast(HostArray, rescaled(self._pairs.stderr, self._scale, self.p)))

    @property
    def distance(self) -> HostArray:
        return self._square(self._distances)

    @property
    def _distances(self) -> HostArray:
        """The distance of every pair."""
        return cast(HostArray, rescaled(root(self._pairs.mean, self.p), self._scale, 1))

    @property
    def distance_stderr(self) -> HostArray:
        errors = root_stderr(self._pairs.mean, self._pairs.stderr, self.p)
        return self._square(cast(HostArray, rescaled(errors, self._scale, 1)))

    def _square(self, pairs: HostArray) -> HostArray:
        """A symmetric matrix from its entries above the diagonal."""
        clouds = len(self.labels)
        matrix = np.zeros((clouds, clouds), dtype=pairs.dtype)
        matrix[np.triu_indices(clouds, 1)] = pairs
        return matrix + matrix.T

    def to_frame(self, what: str = "distance") -> Any:
        """A pandas frame: a labelled square of one quantity, or one row a pair with ``what="pairs"``.

        Parameters
        ----------
        what
            ``"distance"``, ``"distance_stderr"``, ``"value"``, ``"stderr"`` or ``"pairs"``.

        Examples
        --------
        >>> import numpy as np, orthoslice as osl
        >>> found = osl.pairwise({"a": np.zeros((3, 1)), "b": np.ones((2, 1))}, rng=0)
        >>> print(found.to_frame().round(12))
             a    b
        a  0.0  1.0
        b  1.0  0.0
        >>> list(found.to_frame("pairs").columns)
        ['first', 'second', 'distance', 'distance_stderr', 'value', 'stderr']
        """
        if what not in (*QUANTITIES, "pairs"):
            raise ValueError(f"`what` must be one of {[*QUANTITIES, 'pairs']}; got {what!r}.")
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("`to_frame` makes a pandas frame: pip install pandas.") from error
        if what != "pairs":
            index = pd.Index(self.labels, tupleize_cols=False)
            return pd.DataFrame(getattr(self, what), index=index, columns=index)
        i, j = np.triu_indices(len(self.labels), 1)
        named = {"first": [self.labels[k] for k in i], "second": [self.labels[k] for k in j]}
        return pd.DataFrame(named | {q: getattr(self, q)[i, j] for q in QUANTITIES})

    def __repr__(self) -> str:
        repeat = f"directions={self.directions!r}, n_directions={self.n_directions}, rng={self.seed}"
        found = self._distances
        told = f"{len(found)} pairs of {len(self.labels)} clouds, from {found.min():.6g} to {found.max():.6g}"
        return f"Pairwise({self.name}_{self.p:g} of {told}; {repeat})"


@answers_other_names
def pairwise(
    clouds: Any,
    *,
    method: Literal["sliced", "projected", "predicted"] = "sliced",
    p: float = 2,
    n_exact: int | None = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rng: RNG = None,
    memory: int | str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Pairwise:
    """Distances between all pairs of many clouds, with error bars.

    The same as :func:`sliced_wasserstein` of every pair with ``control=None`` and the same `rng`, to rounding,
    or as :func:`projected_wasserstein`, but each cloud is projected and sorted once, and not once a pair. For
    clustering, embedding and nearest neighbours of clouds: patients by their cells, texts by their words,
    batches by their rows.

    Parameters
    ----------
    clouds
        Two or more clouds `(n, dim)`, whose sizes may differ: a mapping from names to clouds, pairs
        ``(name, cloud)`` such as ``frame.groupby("donor")[columns]`` yields, a sequence of clouds, or an
        array `(clouds, n, dim)`. Arrays of any library, lists or data frames; columns of frames are
        matched by name with those of the first. The work is done by NumPy.
    method
        ``"sliced"``: SW_p, or ``"projected"``: PW_p, at the exact price in full space, which takes O(dim) times
        as long a pair. ``"predicted"``: W_p itself, solved for a few pairs and predicted for the others by a
        regression on SW_p, PW_p and certain bounds, which no prediction leaves
        (:class:`orthoslice.PredictedPairwise`).
    p
        The power, at least 1.
    n_exact
        How many pairs are solved for a prediction, 10 or more; 40 by default.
    directions, n_directions, rng, workers, progress
        As in :func:`sliced_wasserstein`; all pairs share the directions. For predictions ``"auto"`` is
        orthogonal bases, whose bounds are the best, with ``clip(dim, 32, 128)`` directions.
    memory
        Working memory in bytes or as text, beyond the clouds and the answer with a few numbers a pair for error
        bars. For N points in all clouds together a direction takes 3 N numbers of their type, of which there is
        always room for one. Projected distances hold all points twice in float64, and so take 16 N dim + 48 N
        bytes at least; with less they say so. None means ``"256MB"``, or as much as all workers take where
        points are held.

    Returns
    -------
    Pairwise
        `distance`, `value` and their standard errors as matrices, `labels`, and :meth:`Pairwise.to_frame`. For
        predictions also `lower`, `upper`, `is_exact`, and `held_out`, the errors of predictions of solved pairs
        from the others.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> batches = {"mon": rng.normal(size=(90, 3)), "tue": rng.normal(size=(70, 3)), "wed": rng.random((80, 3))}
    >>> found = osl.pairwise(batches, rng=0)
    >>> found.distance.shape, found.labels
    ((3, 3), ['mon', 'tue', 'wed'])
    >>> alone = osl.sliced_wasserstein(batches["mon"], batches["wed"], rng=0)
    >>> bool(np.isclose(found.distance[0, 2], alone.distance, rtol=1e-12))
    True

    The rows of a data frame by one of its columns:

    >>> import pandas as pd
    >>> cells = pd.DataFrame({"donor": [1, 1, 2, 2, 2], "cd4": [0.0, 1, 5, 6, 7], "cd8": [3.0, 2, 3, 1, 2]})
    >>> osl.pairwise(cells.groupby("donor")[["cd4", "cd8"]], rng=0).labels
    [1, 2]
    """
    p = check_p(p)
    _check_method(method, n_exact)
    is_predicted, is_projected = method == "predicted", method != "sliced"
    labels, points = _check_clouds(clouds)
    sampler = check_shared_directions(directions, points[0])
    count = check_n_directions(n_directions, sampler)
    if is_predicted:
        n_exact = check_count("n_exact", DEFAULT_EXACT if n_exact is None else n_exact, FEWEST_EXACT)
        if points[0].is_lazy:
            raise TypeError("`clouds` must not be Dask collections for method='predicted': W needs all points.")
        sampler, count = _bases(sampler, count, points[0].dim)
    workers = check_workers(workers)
    starts = np.cumsum([0, *(cloud.n for cloud in points)])
    given = room = check_memory("256MB" if memory is None else memory)
    if points[0].is_lazy:
        pool, scale = _lazy_pool(points, p)
    elif is_projected:
        room = _space_room(given, int(starts[-1]), points[0].dim, workers if memory is None else 0)
        pool, scale, room = pool_clouds(points, np.dtype(np.float64), p, room, copied=True)
        pool = each_ready_for_ties(pool, starts)
    else:
        pool, scale, room = pool_clouds(points, points[0].dtype, p, room)
    score: Score = Exact() if is_projected else Sliced()
    sampler, layout = plan_layout(sampler, count, pool.dim, score, p, adaptive=False)
    key, seed = resolve_rng(rng, np.zeros(1))
    layout = _with_few_units(layout, len(labels), given)
    job = PairwiseJob(pool, starts, p, layout, layout.unit_ends, room, workers)
    if n_exact is not None:
        from orthoslice.applications.prediction import predict_pairs

        return predict_pairs(job, points, labels, scale, (sampler, key, seed), n_exact, progress)
    factor = 1.0 if is_projected else 1 / mean_shortening(pool.dim, sampler.ambient_dim(pool.dim), p)
    sums = _lazy_sums(job, score, points, sampler, key) if pool.is_lazy else _sums(job, sampler, key)
    found = unit_statistics(factor * _unit_means(job, sums, progress), layout)
    if not pool.is_lazy:
        _check_values(job, points, cast(HostArray, found.mean))
    return Pairwise(
        name="PW" if is_projected else "SW",
        p=p,
        labels=labels,
        n_directions=layout.n_directions,
        n_blocks=layout.n_units,
        directions=sampler,
        seed=seed,
        _pairs=found,
        _scale=scale,
    )


def _check_method(method: object, n_exact: object) -> None:
    if not isinstance(method, str) or method not in _METHODS:
        raise ValueError(f"`method` must be 'sliced', 'projected' or 'predicted'; got {method!r}.")
    if n_exact is not None and method != "predicted":
        raise ValueError(f"`n_exact` is for method='predicted'; got {n_exact!r} with {method!r}.")


def _bases(sampler: Sampler, count: int | None, dim: int) -> tuple[Sampler, int | None]:
    """What is drawn for predictions, where nothing else was asked for."""
    if count is None and isinstance(sampler, Auto | Orthogonal):
        count = min(max(dim, 32), 128)
    return (Orthogonal() if isinstance(sampler, Auto) else sampler), count


UnitSums: TypeAlias = list[tuple[int, int, HostArray]]
"""Units, how many rows of theirs were scored, and the summed scores of all pairs, `(pairs,)`."""


class PairwiseJob(NamedTuple):
    """What the workers need: all clouds, the power, the layout, memory and the number of threads."""

    pool: Cloud
    """All clouds, one after the other; with roundings where pairs are priced in full space and ties count."""
    starts: HostArray
    """Where each cloud begins, and the number of points at the end, `(clouds + 1,)`."""
    p: float
    layout: Layout
    unit_ends: HostArray
    """`layout.unit_ends`, worked out once."""
    memory: int
    workers: int

    @property
    def rounding(self) -> HostArray | None:
        return cast("HostArray | None", self.pool.rounding) if isinstance(self.pool, ReadyCloud) else None

    @property
    def n_pairs(self) -> int:
        return (len(self.starts) - 1) * (len(self.starts) - 2) // 2

    def shared(self, ambient_dim: int) -> tuple[int, int]:
        """The number of workers, and the directions that each takes at a time: within memory and caches."""
        pool, own = self.pool, 8 * self.n_pairs
        row = 3 * pool.points.itemsize * pool.n
        if self.rounding is not None:
            row, points = _space_bytes(pool.n, pool.dim)
            own += points
        row += 96 * ambient_dim
        workers, rows = share_memory(self.memory, row, self.workers, own)
        rows = min(rows, max(4, _CACHED_BYTES // row))
        return workers, int(min(rows, -(-self.layout.n_directions // workers)))


def _space_bytes(n_points: int, dim: int) -> tuple[int, int]:
    """What a direction takes where pairs are priced in space, and all points in float64 with a number each."""
    return 32 * n_points, 8 * n_points * (dim + 1)


def _space_room(memory: int, n_points: int, dim: int, workers: int) -> int:
    """The memory for prices in space: as much as these workers take, where that is more."""
    row, own = _space_bytes(n_points, dim)
    room = max(memory, own + workers * (own + row)) if workers else memory
    check_room(room, 2 * own + row, "all points twice, in float64, where pairs are priced in space")
    return room


def _check_clouds(clouds: object) -> tuple[list[Hashable], list[Cloud]]:
    """Names and points of all clouds, in one floating type."""
    named, _ = named_clouds(clouds)
    if len(named) < 2:
        raise ValueError(f"`clouds` must hold two or more clouds; got {len(named)}.")
    if any(is_dask(given) for given in named.values()):
        from orthoslice.parallel.chunks import lazy_clouds

        return list(named), [
            *lazy_clouds(*((f"clouds[{name!r}]", given, None) for name, given in named.items()))
        ]
    points = []
    for cloud in agreeing_clouds(named):
        if is_traced(cloud.points):
            raise TypeError(
                "`pairwise` needs values and cannot be traced (jit, grad or vmap). Call it outside."
            )
        points.append(to_numpy(cloud.points))
    dtype = np.result_type(*points)
    return list(named), [Cloud(cloud.astype(dtype, copy=False)) for cloud in points]


def _lazy_pool(clouds: list[Cloud], p: float) -> tuple[Cloud, float]:
    """The outline of all chunked clouds together, and the scale that they are divided by."""
    from orthoslice.parallel.chunks import pool_outline

    outline: Cloud = pool_outline(clouds)
    pool, _, scale = unit_scale(outline, outline, p)
    return centred(pool, pool)[0], scale


def _with_few_units(layout: Layout, clouds: int, memory: int) -> Layout:
    """The layout with as many blocks to an independent unit as keep the means of units within the memory."""
    most = max(DEFAULT_BLOCKS, memory // 4 // (4 * clouds * (clouds - 1)))
    return Layout(layout.runs, -(-layout.n_blocks // most))


def _check_values(job: PairwiseJob, clouds: list[Cloud], values: HostArray) -> None:
    """Raise where p is so high that costs of different clouds underflow."""
    i, j = np.triu_indices(len(clouds), 1)
    for pair in np.flatnonzero(values < np.finfo(job.pool.dtype).eps):
        differ = functools.partial(have_other_points, clouds[i[pair]], clouds[j[pair]])
        check_underflow(job.p, job.pool.dtype, values[pair : pair + 1], differ)


def _sums(job: PairwiseJob, sampler: Sampler, key: Key) -> Iterator[UnitSums]:
    """Summed scores, a few directions at a time."""
    dim, dtype = job.pool.dim, job.pool.dtype
    workers, most = job.shared(sampler.ambient_dim(dim))
    pieces = sweep_directions(sampler, job.layout, key, dim, dtype, most)
    return ordered_map((functools.partial(unit_sums, job, piece) for piece in pieces), workers)


def _lazy_sums(
    job: PairwiseJob, score: Score, clouds: list[Cloud], sampler: Sampler, key: Key
) -> Iterator[UnitSums]:
    """As :func:`_sums`, for clouds in chunks."""
    from orthoslice.parallel.sweeping import lazy_unit_sums

    return lazy_unit_sums(job, score, clouds, sampler, key)


def _unit_means(job: PairwiseJob, sums: Iterator[UnitSums], progress: bool) -> HostArray:
    """The mean score of each unit of directions for all pairs, `(units, pairs)`."""
    layout = job.layout
    totals = np.zeros((layout.n_units, job.n_pairs))
    with progress_bar("directions", layout.n_directions, progress) as advance:
        for found in sums:
            for unit, rows, total in found:
                totals[unit] += total
                advance(rows)
    means: HostArray = totals / layout.unit_rows[:, None]
    return means


def unit_sums(job: PairwiseJob, piece: Piece) -> UnitSums:
    """Summed scores of all pairs for each unit that a piece has rows of, with the unit and how many rows."""
    rows = np.ascontiguousarray(job.pool.project(piece.directions, piece.rows))
    if job.rounding is None:
        sort_segments(rows, job.starts)
        price: Callable[..., HostArray] = segment_costs
    else:
        rows = order_segments(rows, job.rounding, job.starts)
        price = functools.partial(segment_space_costs, job.pool.points)
    unit = np.searchsorted(job.unit_ends, piece.first + np.arange(len(rows)), side="right") - 1
    cuts = np.flatnonzero(np.diff(unit, prepend=-1, append=-1))
    return [
        (int(unit[first]), int(stop - first), price(rows[first:stop], job.starts, job.p))
        for first, stop in itertools.pairwise(cuts)
    ]


def each_ready_for_ties(pool: Cloud, starts: HostArray) -> ReadyCloud:
    """All clouds of float64, the points of each in the order that ties are to keep, with their roundings.

    The pool is changed in place.
    """
    points, rounding = pool.points, np.empty(pool.n)
    for first, stop in itertools.pairwise(starts):
        cloud = ready_for_ties(Cloud(points[first:stop]))
        points[first:stop], rounding[first:stop] = cloud.points, cloud.rounding
    return ReadyCloud(points, rounding=rounding)
