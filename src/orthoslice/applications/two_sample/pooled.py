"""Both samples of a test as one, in as much memory as there is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orthoslice.applications.two_sample.permutations import Statistic
from orthoslice.backend.arrays import Array, HostArray
from orthoslice.backend.kernels.cuda import device_refusal, free_bytes
from orthoslice.backend.memory import check_room
from orthoslice.check.options import check_memory
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import unit_scale
from orthoslice.clouds.pooling import pieces_of, pool_clouds
from orthoslice.clouds.ready import ReadyCloud

# Bytes a point besides the points, where pairs are priced in space: labels, and a direction in order.
_SPACE_BYTES = 112


class Pooled(NamedTuple):
    """Both samples as one; from here on only the labels tell points of x from points of y."""

    cloud: ReadyCloud
    """Of Dask collections it only has the shape."""
    scale: float
    """What the points were divided by."""
    memory: int
    lazy: tuple[Cloud, Cloud] | None
    """Dask collections, scaled."""


def pool_samples(
    clouds: tuple[Cloud, Cloud],
    statistics: tuple[Statistic, ...],
    memory: int | str | None,
    home: Array | None,
    *,
    is_lazy: bool,
) -> Pooled:
    power = max(own.p for own in statistics)
    room = _default_memory(home) if memory is None else check_memory(memory)
    n_points, dim = sum(cloud.n for cloud in clouds), clouds[0].dim
    if is_lazy:
        *scaled, scale = unit_scale(*clouds, power)
        outline = ReadyCloud(np.broadcast_to(np.zeros(()), (n_points, dim)))
        return Pooled(outline, scale, room, (scaled[0], scaled[1]))
    in_space = any(own.method == "projected" for own in statistics)
    if in_space and home is None:
        takes = n_points * (2 * 8 * dim + _SPACE_BYTES)
        room = max(room, takes) if memory is None else room
        check_room(room, takes, "all points twice, in float64, where pairs are priced in space")
    copied = in_space or home is not None
    pooled, scale, left = pool_clouds(clouds, np.dtype(np.float64), power, room, copied=copied)
    if home is None:
        # `ready_to_order` holds the points again, in the order that decides ties, with that order and their
        # roundings.
        room = left - (n_points * (8 * dim + 16) if in_space else 0)
    return Pooled(pooled, scale, room, None)


def points_of(cloud: ReadyCloud) -> HostArray:
    """All points, which are few enough to be held."""
    pieces = list(pieces_of(cloud))
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def gathered(x: Any, y: Any) -> HostArray:
    """The points of two collections, of which one is Dask's, with columns in the order of the first."""
    if hasattr(x, "columns") and hasattr(y, "columns"):
        y = y[list(x.columns)]
    return np.concatenate([np.asarray(x), np.asarray(y)])


def lazy_samples(x: object, y: object) -> tuple[Cloud, Cloud]:
    from orthoslice.parallel.chunks import lazy_clouds

    cloud_x, cloud_y = lazy_clouds(("x", x, None), ("y", y, None))
    return cloud_x.astype(np.dtype(np.float64)), cloud_y.astype(np.dtype(np.float64))


def gpu_home(x: Any) -> Array | None:
    """`x` if it lies on a GPU whose kernels can test it, else None: the work is then done in host memory."""
    return x if getattr(x, "is_cuda", False) and device_refusal(x.get_device()) is None else None


def _default_memory(home: Array | None) -> int:
    return check_memory("256MB") if home is None else free_bytes(home) // 2
