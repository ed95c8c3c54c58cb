"""Clouds as vectors of one length, between which the Euclidean distance is a sliced Wasserstein distance."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import RNG, HostArray, is_traced, resolve_rng, to_numpy
from orthoslice.backend.memory import share_memory
from orthoslice.backend.threads import ordered_map
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
from orthoslice.clouds.ready import ReadyCloud, as_given, with_masses
from orthoslice.costs.lines import scatter_slopes
from orthoslice.costs.pools import mean_shortening
from orthoslice.costs.scores import Sliced
from orthoslice.couplings.coupling import couple_orders, coupling_bytes
from orthoslice.couplings.orders import order_points
from orthoslice.directions import Given, Sampler
from orthoslice.directions.base import check_count
from orthoslice.directions.walks import Piece, sweep_directions
from orthoslice.estimates.request import plan_layout

_DIRECTIONS = 64


@dataclass(frozen=True, eq=False, repr=False)
class Embedding:
    """Vectors of clouds, and how far their distances may be from SW_p.

    Attributes
    ----------
    labels
        The names of the clouds, in the order of the rows.
    vectors
        `(clouds, n_directions * n)`: the p-norm of a difference is at most SW_p on these directions.
    residual
        What the vectors leave out, `(clouds,)`: SW_p of clouds i and j is at most
        ``(distance**2 + (residual[i] + residual[j])**2)**0.5`` for p = 2, and
        ``distance + residual[i] + residual[j]`` otherwise.
    levels
        Where the cells of levels begin and end, `(n + 1,)`, from 0 to 1.
    directions, n_directions, seed
        With ``rng=result.seed`` and the same options, other clouds get vectors that go with these.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> found = osl.embed({"x": x, "moved": x + 1}, rng=0)
    >>> found.labels, round(float(np.linalg.norm(found.vectors[0] - found.vectors[1])), 6)
    (['x', 'moved'], 1.0)
    """

    p: float
    labels: list[Hashable]
    vectors: HostArray
    residual: HostArray
    levels: HostArray
    n_directions: int
    directions: Sampler
    seed: int | None

    def bounds(self) -> tuple[HostArray, HostArray]:
        """For all pairs, `(clouds, clouds)` each: bounds on SW_p on these directions, certain to rounding.

        The lower ones are the distances of the vectors.

        Examples
        --------
        >>> import numpy as np, orthoslice as osl
        >>> clouds = np.random.default_rng(0).normal(size=(3, 50, 2)) + [[[0]], [[1]], [[3]]]
        >>> lower, upper = osl.embed(clouds, rng=0).bounds()
        >>> true = osl.pairwise(clouds, n_directions=64, rng=0).distance
        >>> bool((lower <= true + 1e-12).all() and (true <= upper + 1e-12).all())
        True
        """
        from scipy.spatial.distance import pdist, squareform

        # Powers of numbers of another size would underflow or overflow.
        unit = 2.0 ** math.floor(math.log2(float(np.abs(self.vectors).max()) or 1.0))
        lower = unit * squareform(pdist(self.vectors.astype(np.float64) / unit, "minkowski", p=self.p))
        slack = self.residual[:, None] + self.residual
        np.fill_diagonal(slack, 0)
        return lower, np.hypot(lower, slack) if self.p == 2 else lower + slack

    def __repr__(self) -> str:
        clouds, length = self.vectors.shape
        return (
            f"Embedding({clouds} clouds as vectors of {length}: {len(self.levels) - 1} levels on "
            f"{self.n_directions} directions of {self.directions!r}, p={self.p:g}, rng={self.seed})"
        )


@answers_other_names
def embed(
    clouds: Any,
    *,
    n: int = 32,
    p: float = 2,
    cells: Literal["tails", "even"] = "tails",
    point_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
) -> Embedding:
    """Vectors of one length for clouds of any sizes: their Euclidean distance is SW_2 on the directions drawn.

    For nearest neighbours, vector databases, principal components and kernels, all of which take vectors and no
    matrix of pairs: the work is one pass over each cloud. On a line, W_p is the L_p distance of quantile
    functions. A vector has, for each direction, the means of the quantile function over `n` cells of levels,
    each times the root of the cell's length.

    Parameters
    ----------
    clouds
        One or more clouds `(n, dim)`, as in :func:`pairwise`; points may lie in files (memory maps).
    n
        How many cells: the vectors have ``n * n_directions`` numbers.
    p
        The power, at least 1: 2 for Euclidean distances, 1 for city block distances.
    cells
        ``"tails"``: cells that narrow towards levels 0 and 1, where quantile functions are steep. ``"even"``:
        cells of one length, by which clouds without weights are exact if their sizes divide `n`.
    point_weights
        For each cloud, in order or by name, the weights `(n,)` of its points, with sum 1, or None where they
        weigh the same.
    directions, n_directions, rng, workers
        As in :func:`sliced_wasserstein`, and 64 directions by default. All clouds share them, and so do those
        of another call with the same integer `rng` and options. On a line there is only one.
    memory
        Working memory in bytes or as text, beyond the clouds, the directions and the answer.

    Returns
    -------
    Embedding
        `vectors`, `residual`, `labels`, and :meth:`Embedding.bounds`.

    Notes
    -----
    Means over cells are the best approximation by steps, so distances of vectors are **never above** SW_p on
    these directions, and `residual` says for certain how far below they may be. With p = 2, neighbours within
    a radius can be looked up without missing any: pairs with ``distance > radius`` are farther apart.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> clouds = {name: rng.normal(size=(size, 3)) + size / 50 for name, size in [("a", 60), ("b", 90)]}
    >>> found = osl.embed(clouds, rng=0)
    >>> found.vectors.shape
    (2, 2048)
    >>> distance = np.linalg.norm(found.vectors[0] - found.vectors[1])
    >>> true = osl.pairwise(clouds, n_directions=64, rng=0).distance[0, 1]
    >>> bool(0.99 * true < distance <= true)
    True
    """
    p, n = check_p(p), check_count("n", n)
    if cells not in ("tails", "even"):
        raise ValueError(f"`cells` must be 'tails' or 'even'; got {cells!r}.")
    labels, points = _check_clouds(clouds, point_weights)
    dim, workers = points[0].dim, check_workers(workers)
    sampler = check_shared_directions(directions, points[0])
    count = check_n_directions(n_directions, sampler)
    if not isinstance(sampler, Given):
        # On a line all directions are one.
        count = 1 if dim == 1 else _DIRECTIONS if count is None else count
    sampler, layout = plan_layout(sampler, count, dim, Sliced(), p, adaptive=False)
    key, seed = resolve_rng(rng, np.zeros(1))
    pieces = tuple(sweep_directions(sampler, layout, key, dim, np.dtype(np.float64), layout.n_directions))
    levels = np.arange(n + 1) / n
    if cells == "tails":
        levels = np.sin(np.pi / 2 * levels) ** 2
    factor = 1 / mean_shortening(dim, sampler.ambient_dim(dim), p)
    job = EmbeddingJob(
        pieces, levels, cells == "even", p, factor / layout.n_directions, check_memory(memory), workers
    )
    dtype = np.result_type(*(cloud.dtype for cloud in points))
    vectors, residual = np.empty((len(points), layout.n_directions * n), dtype=dtype), np.empty(len(points))
    work = (functools.partial(_steps_of, job, cloud) for cloud in points)
    for k, (vector, left) in enumerate(ordered_map(work, workers)):
        vectors[k], residual[k] = vector, left
    return Embedding(p, labels, vectors, residual, levels, layout.n_directions, sampler, seed)


class EmbeddingJob(NamedTuple):
    """What the workers need: directions, cells, the power, a direction's weight, memory and their number."""

    pieces: tuple[Piece, ...]
    levels: HostArray
    is_even: bool
    p: float
    share: float
    memory: int
    workers: int


def _check_clouds(clouds: Any, point_weights: Any) -> tuple[list[Hashable], list[Cloud]]:
    named, _ = named_clouds(clouds)
    if not named:
        raise ValueError("`clouds` must hold at least one cloud; got none.")
    points = []
    for cloud in agreeing_clouds(named, point_weights):
        if is_traced(cloud.points, cloud.weights):
            raise TypeError("`embed` needs values and cannot be traced (jit, grad or vmap). Call it outside.")
        weights = None if cloud.weights is None else to_numpy(cloud.weights)
        points.append(Cloud(to_numpy(cloud.points), weights))
    return list(named), points


def _steps_of(job: EmbeddingJob, cloud: Cloud) -> tuple[HostArray, float]:
    """The vector of a cloud, and the distance of its quantile functions from those with these steps."""
    widths = np.diff(job.levels)
    line = np.zeros((len(widths), 1))
    ready, steps = with_masses(as_given(cloud), ReadyCloud(line, None if job.is_even else widths))
    row = coupling_bytes(ready, steps) + 64 * (ready.n + steps.n)
    _, most = share_memory(job.memory, row, job.workers)
    parts, left = [], []
    for piece in job.pieces:
        for first in range(piece.rows.start, piece.rows.stop, most):
            rows = slice(first, min(first + most, piece.rows.stop))
            px = cast(HostArray, ready.project(piece.directions, rows, widely=True))
            means, missed = _steps_along(ready, steps, px, job.p)
            parts.append((means * (job.share * widths) ** (1 / job.p)).ravel())
            left.append(missed * job.share ** (1 / job.p))
    return np.concatenate(parts), _norm(np.array(left), np.ones(1), job.p)


def _steps_along(cloud: ReadyCloud, steps: ReadyCloud, px: HostArray, p: float) -> tuple[HostArray, float]:
    """Means of quantile functions over cells, `(slices, cells)`, and the p-norm of what they leave out."""
    n_cells = steps.n
    order = np.broadcast_to(np.arange(n_cells), (len(px), n_cells))
    pairs = couple_orders(order_points(px, cloud), order, cloud, steps)
    ix, iy, mass = (np.broadcast_to(cast(HostArray, a), (len(px), pairs.ix.shape[-1])) for a in pairs[:3])
    values = np.take_along_axis(px, ix, axis=-1)
    means = cast(HostArray, scatter_slopes(mass * values, iy, n_cells) / scatter_slopes(mass, iy, n_cells))
    return means, _norm(np.abs(values - np.take_along_axis(means, iy, axis=-1)), mass, p)


def _norm(lengths: HostArray, mass: HostArray, p: float) -> float:
    """The p-norm, of which no power underflows or overflows."""
    largest = float(lengths.max())
    return largest * float(np.sum(mass * (lengths / largest) ** p)) ** (1 / p) if largest else 0.0
