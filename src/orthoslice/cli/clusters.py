"""Work for the workers of a Dask scheduler: tables in chunks that they read or are sent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from orthoslice.applications.compare.compare import PreparedComparison
from orthoslice.backend.arrays import HostArray
from orthoslice.cli.formats.source import need
from orthoslice.cli.render import say
from orthoslice.clouds.cloud import Cloud

# What a chunk of a table takes.
_CHUNK_BYTES = 1 << 26

# Seconds after which a scheduler that does not answer is given up.
_PATIENCE = 10


@contextlib.contextmanager
def on_cluster(ready: PreparedComparison, address: str) -> Iterator[PreparedComparison]:
    """The comparison with its clouds in chunks on the cluster that has its scheduler at this address."""
    distributed = need("distributed", "dask", "clusters")
    import dask

    # A new client becomes Dask's scheduler at once, and would stay so after a failed connection.
    with dask.config.set(scheduler=None), _connected(distributed, address) as client:
        if not client.nthreads():
            # Workers may start later.
            say(
                f"the scheduler at {address} has no workers yet, and waits: `dask worker {address}` starts one."
            )
        yield replace(ready, x=_spread(ready.x, client), y=_spread(ready.y, client))


def _connected(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise ValueError(
            "--scheduler must be the address of a Dask scheduler that answers, such as tcp://host:8786; got "
            f"{address!r} ({error})."
        ) from error


def _spread(cloud: Cloud, client: Any) -> Cloud:
    import dask
    import dask.array as da

    points = cloud.points
    n, dim = points.shape
    step = max(1, _CHUNK_BYTES // (points.itemsize * dim))
    is_read = _is_in_a_file(points) and _is_seen(points.filename, client)
    pieces = []
    for first in range(0, n, step):
        stop = min(n, first + step)
        if is_read:
            place = (points.filename, points.dtype, points.offset, points.shape)
            piece = dask.delayed(_read)(*place, first, stop)
        else:
            # One after the other: a file that workers cannot open is in memory here one piece at a time.
            piece = dask.delayed(client.scatter(np.array(points[first:stop]), direct=False))
        pieces.append(da.from_delayed(piece, (stop - first, dim), dtype=points.dtype))
    weights = None if cloud.weights is None else da.from_array(np.asarray(cloud.weights), chunks=step)
    return Cloud(da.concatenate(pieces), weights)


def _is_in_a_file(points: HostArray) -> bool:
    """Whether these are the rows of a file with a name, which others could open."""
    return (
        isinstance(points, np.memmap)
        and points.filename is not None
        and Path(points.filename).exists()
        and points.flags.c_contiguous
    )


def _is_seen(path: Any, client: Any) -> bool:
    """Whether all workers have a file of this path and size."""
    return set(client.run(_size, path).values()) <= {_size(path)}


def _size(path: Any) -> int | None:
    return Path(path).stat().st_size if Path(path).is_file() else None


def _read(path: Any, dtype: Any, offset: int, shape: tuple[int, int], first: int, stop: int) -> HostArray:
    return np.array(np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)[first:stop])
