"""From rows to directions: chunks are projected where they lie, and one task gets all of a direction."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import Array, HostArray
from orthoslice.backend.threads import single_threaded_blas
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.pieces import order_roughly
from orthoslice.directions.base import Directions
from orthoslice.directions.drawing import Blocks
from orthoslice.estimates.passes import draw_lines
from orthoslice.parallel.chunks import LazyCloud
from orthoslice.parallel.reading import Reading, compute, delayed_calls

COPIES = 4 / 3
"""How much more memory a direction takes here than by the kernels: what was sent lies beside what it makes."""


class Lines(NamedTuple):
    """Some rows of directions, by what they are drawn from: a few numbers to send, whatever their length."""

    blocks: Blocks
    rows: slice
    steady: bool = False

    def project(self, points: HostArray) -> HostArray:
        """Projections `(slices, n)` of some points."""
        return cast(HostArray, Cloud(points).project(self.draw(), self.rows))

    def draw(self) -> Directions:
        """All rows of the blocks."""
        return draw_lines(self.blocks, self.steady)


class Cluster(NamedTuple):
    """The workers of a Dask cluster, or threads of this process."""

    client: Any
    """The client of `distributed`; None where Dask's local threads work."""
    n_workers: int
    """Processes that share no memory."""
    n_slots: int
    """Tasks that can be worked on at once."""

    def compute(self, *delayed: object) -> tuple[Any, ...]:
        """Results, from the scheduler in use."""
        options = {} if self.client is not None else {"num_workers": self.n_slots}
        return compute(*delayed, **options)

    def spread(self, persisted: object) -> None:
        """Copy what one worker has made to all: otherwise all tasks that need it would run there.

        To be called before every use, since Dask drops copies that no task waits for.
        """
        if self.client is not None:
            from distributed import futures_of

            self.client.replicate(futures_of(persisted))


def current_cluster(workers: int) -> Cluster:
    """The cluster of Dask's scheduler in use, or `workers` threads of this process."""
    client = _client_in_use()
    if client is None:
        return Cluster(None, 1, workers)
    threads = client.nthreads()
    return Cluster(client, max(1, len(threads)), max(1, sum(threads.values())))


def _client_in_use() -> Any:
    """The client of `distributed` that Dask would ask, or None.

    Dask does not promise how it tells. If it does not tell, tasks go where Dask sends them, but are cut as
    if threads of this process worked on them.
    """
    try:
        from dask.base import get_scheduler
    except ImportError:
        return None
    # A method of a client; other schedulers are functions.
    client = getattr(get_scheduler(), "__self__", None)
    return client if hasattr(client, "nthreads") else None


def shuffle(
    clouds: Sequence[LazyCloud],
    lines: Sequence[Lines],
    work: Sequence[Callable[..., Any]],
    *,
    roughly: bool = False,
) -> list[Any]:
    """What `work[k]` makes of the projections of every cloud on `lines[k]`, and of its weights or None.

    Projections are a list of pieces `(slices, points)` a cloud, one of every chunk; in rough order, if
    `roughly`. Each chunk is read once, and gives a piece for every entry of `lines`; pieces of one entry meet
    in one task. Nothing but these pieces moves, and the rows of directions are drawn where they are used.
    """
    import dask

    told = dask.delayed(tuple(lines), pure=False, traverse=False)
    finish = dask.delayed(_finish, pure=False)
    calls = [(_project_chunk, chunk, told, c.reading, roughly) for c in clouds for chunk in c.chunks]
    split = [(operator.getitem, made, k) for made in delayed_calls(calls) for k in range(len(lines))]
    pieces = iter(delayed_calls(split))
    table = [[list(itertools.islice(pieces, len(lines))) for _ in cloud.chunks] for cloud in clouds]
    weights = [None if c.weight_chunks is None else list(c.weight_chunks) for c in clouds]
    return [finish(one, [[piece[k] for piece in own] for own in table], weights) for k, one in enumerate(work)]


def _project_chunk(
    chunk: object, lines: tuple[Lines, ...], reading: Reading, roughly: bool
) -> tuple[HostArray, ...]:
    with single_threaded_blas():
        points = reading.points(chunk)
        pieces = tuple(np.ascontiguousarray(one.project(points)) for one in lines)
    if roughly:
        # Here, where a piece is no longer than a chunk.
        for piece in pieces:
            order_roughly(piece)
    return pieces


def _finish(work: Callable[..., Any], pieces: list[list[HostArray]], weights: list[list[Any] | None]) -> Any:
    shares = [None if own is None else np.concatenate([np.asarray(w) for w in own]) for own in weights]
    with single_threaded_blas():
        return work(*zip(pieces, shares, strict=True))


class Known(Directions):
    """Directions that return known projections, whatever the points."""

    def __init__(self, projections: HostArray) -> None:
        self.projections = projections

    def project(self, points: Array, rows: Rows) -> HostArray:
        return self.projections

    def adjoint(self, slopes: Array, rows: Rows) -> HostArray:
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class Received(ReadyCloud):
    """A cloud known only by its projections on some directions and its weights."""

    projections: HostArray

    @property
    def has_table(self) -> bool:
        return False

    def project(self, directions: object, rows: Rows, *, widely: bool = False) -> HostArray:
        return self.projections
