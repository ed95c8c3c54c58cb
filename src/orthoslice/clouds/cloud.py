"""Clouds: points with weights, made from what users pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import (
    Array,
    DType,
    HostArray,
    detach,
    is_traced,
    library,
    namespace,
    to_numpy,
)
from orthoslice.check.inputs import (
    as_array,
    as_floating,
    check_points,
    check_same_library,
    check_weights,
    exact_dtype,
    is_uniform,
    match_frames,
    on_host,
)
from orthoslice.clouds.mapped import MappedPoints, Points, is_file
from orthoslice.clouds.projection import Projector, project


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points `(..., n, dim)` with weights `(..., n)` that sum to 1, or None where all weigh the same."""

    points: Points
    """An array, or :class:`orthoslice.clouds.mapped.MappedPoints`."""
    weights: Array | None = None
    largest: float | None = None
    """The largest magnitude of a coordinate, where it was looked up."""

    @property
    def held(self) -> list[Array | None]:
        """The arrays of the cloud."""
        return [self.points, self.weights]

    def __sizeof__(self) -> int:
        # For Dask, which weighs what it keeps and sends. Arrays that only have a shape have strides of 0.
        held = sum(getattr(a, "nbytes", 0) for a in self.held if any(getattr(a, "strides", (1,))))
        return object.__sizeof__(self) + held

    @property
    def n(self) -> int:
        return int(self.points.shape[-2])

    @property
    def dim(self) -> int:
        return int(self.points.shape[-1])

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes."""
        return tuple(self.points.shape[:-2])

    @property
    def dtype(self) -> DType:
        return self.points.dtype

    @property
    def is_mapped(self) -> bool:
        """Whether the points lie in a file, perhaps larger than memory: they are read in pieces."""
        return isinstance(self.points, MappedPoints) or is_file(self.points)

    @property
    def is_lazy(self) -> bool:
        """Whether the points are in the chunks of a Dask collection, to be worked on where those lie."""
        return False

    def divided(self, exponent: int) -> Self:
        """The same cloud in units of 2**exponent."""
        # In two steps: 2**exponent itself may be out of range.
        halves = (exponent // 2, exponent - exponent // 2)
        points = self.points * 2.0 ** -halves[0] * 2.0 ** -halves[1]
        return replace(self, points=points, largest=None)

    def less(self, origin: Array, *, lazily: bool) -> Self:
        """The same cloud with another origin, which is subtracted when points are read if `lazily`."""
        if lazily:
            return replace(self, points=MappedPoints(self.points, origin=cast(HostArray, origin)))
        return replace(self, points=self.points - origin)

    def astype(self, dtype: DType) -> Self:
        """The same cloud in another floating type."""
        return replace(self, points=namespace(self.points).astype(self.points, dtype))

    def project(self, directions: Projector, rows: Rows, *, widely: bool = False) -> Array:
        """Projections `(slices, ..., n)` of the points: see :func:`orthoslice.clouds.projection.project`."""
        return project(self.points, directions, rows, widely=widely)


class Seen(NamedTuple):
    """Facts found in the one pass over points that lie elsewhere."""

    mean: HostArray
    """`(dim,)`"""
    spread: HostArray
    """The mean squared distance from the mean."""
    drawn: dict[bytes, HostArray]
    """Points `(draws, dim)` that were drawn at random, by the bytes of the numbers that chose them."""
    covariance: HostArray | None = None
    """`(dim, dim)`, where a control variate needs it."""


@dataclass(frozen=True, eq=False)
class DistantCloud(Cloud):
    """A cloud whose points lie elsewhere: `points` and `weights` only have their shape and type."""

    seen: Seen | None = None


def detached(cloud: Cloud) -> Cloud:
    """The same cloud without a gradient tape."""
    weights = None if cloud.weights is None else detach(cloud.weights)
    return replace(cloud, points=detach(cloud.points), weights=weights)


def make_clouds(
    x: object, y: object, x_weights: object = None, y_weights: object = None
) -> tuple[Cloud, Cloud]:
    """Two clouds of one library, device, `dim` and floating type, from what the user gave.

    Shapes, types and libraries are always checked. Values are checked where they can be looked at without
    waiting for an accelerator; elsewhere bad values come out as NaN. Two clouds that were made here are not
    checked again: what calls several public functions hands them on.
    """
    if isinstance(x, Cloud) and isinstance(y, Cloud):
        return x, y
    x, y = match_frames(x, y, x_weights, y_weights)
    named = _read({"x": x, "y": y, "x_weights": x_weights, "y_weights": y_weights})
    dtype = exact_dtype(named["x"], named["y"])
    clouds = [_checked(name, named, dtype) for name in ("x", "y")]
    if clouds[0].dim != clouds[1].dim:
        raise ValueError(f"`x` and `y` must share `dim`; got shapes {_shapes(clouds)}.")
    if clouds[0].batch == clouds[1].batch:
        return clouds[0], clouds[1]
    try:
        shared_batch(clouds[0], clouds[1])
    except ValueError:
        raise ValueError(
            f"The leading axes of `x` and `y` must broadcast; got shapes {_shapes(clouds)}."
        ) from None
    axes = max(len(c.batch) for c in clouds)
    return _with_batch_axes(clouds[0], axes), _with_batch_axes(clouds[1], axes)


def one_cloud(x: object, weights: object = None, named: str = "x_weights") -> Cloud:
    """As :func:`make_clouds`, where the user gave no second cloud; `named` is what the weights are called."""
    x, _ = match_frames(x, x, weights, None)
    found = _read({"x": x, named: weights})
    return _checked("x", found, exact_dtype(found["x"], found["x"]), named)


def _read(given: dict[str, object]) -> dict[str, Array]:
    """Arrays of one library and device by name, without those that are None; points come before weights."""
    named: dict[str, Array] = {}
    for name, value in given.items():
        if value is not None or not name.endswith("weights"):
            like = named["x"] if name.endswith("weights") and library(value) is None else None
            named[name] = as_array(name, value, like=like)
    check_same_library(named)
    return named


def _checked(name: str, named: dict[str, Array], dtype: DType, of_weights: str | None = None) -> Cloud:
    points = as_floating(name, named[name], dtype)
    largest = check_points(name, points)
    of_weights = of_weights or f"{name}_weights"
    weights = named.get(of_weights)
    if weights is not None:
        weights = check_weights(of_weights, weights, name, points)
        points, weights = _share_batch(name, points, of_weights, weights)
        if is_uniform(weights):
            weights = None
    return Cloud(points, weights, largest)


def single_clouds(
    x: object, y: object, x_weights: object = None, y_weights: object = None
) -> tuple[Cloud, Cloud]:
    """As :func:`make_clouds`, of clouds without leading axes."""
    return _check_single("here", make_clouds(x, y, x_weights, y_weights))


def host_clouds(
    what: str, x: object, y: object, x_weights: object = None, y_weights: object = None
) -> tuple[Cloud, Cloud]:
    """Two single clouds of float64 NumPy arrays, whatever library they came from; errors name `what`.

    Integers come over as they are, and so without rounding. Weights sum to 1 to the last digit, and equal ones
    become None: uniform clouds are coupled in exact ranks.

    Examples
    --------
    >>> x, y = host_clouds("this", [[1, 2]], [[3, 4], [5, 6]], y_weights=[0.5, 0.5])
    >>> x.points.dtype, y.weights is None
    (dtype('float64'), True)
    """
    if isinstance(x, Cloud) and isinstance(y, Cloud):
        return _in_float64(x), _in_float64(y)
    x, y = match_frames(x, y, x_weights, y_weights)
    given = {"x": x, "y": y, "x_weights": x_weights, "y_weights": y_weights}
    arrays = {name: as_array(name, value) for name, value in given.items() if value is not None}
    # Weights in a list or a frame go with any library.
    check_same_library(
        {name: a for name, a in arrays.items() if name in ("x", "y") or library(given[name]) is not None}
    )
    if is_traced(*arrays.values()):
        raise TypeError(
            f"`{what}` needs values and cannot be traced (jit, grad or vmap). Call it outside, or estimate "
            "with `osl.sliced_wasserstein` or `osl.projected_wasserstein`."
        )
    tables = {name: on_host(name, a) for name, a in arrays.items()}
    clouds = _check_single(f"for `{what}`", make_clouds(*(tables.get(name) for name in given)))
    return _in_float64(clouds[0]), _in_float64(clouds[1])


def numpy_clouds(
    what: str, x: object, y: object, x_weights: object = None, y_weights: object = None
) -> tuple[Cloud, Cloud]:
    """Two single clouds of NumPy arrays in the type they came in: a copy of all points may be too much.

    As :func:`host_clouds` otherwise; memory maps stay maps.
    """
    clouds = _check_single(f"for `{what}`", make_clouds(x, y, x_weights, y_weights))
    arrays = [c.points for c in clouds] + [c.weights for c in clouds]
    if is_traced(*arrays):
        raise TypeError(f"`{what}` needs values and cannot be traced (jit, grad or vmap). Call it outside.")
    if all(a is None or isinstance(a, np.ndarray) for a in arrays):
        return clouds
    # Again: on an accelerator values could not be checked.
    return make_clouds(*(None if a is None else to_numpy(a) for a in arrays))


def _check_single(where: str, clouds: tuple[Cloud, Cloud]) -> tuple[Cloud, Cloud]:
    if clouds[0].batch or clouds[1].batch:
        raise ValueError(f"`x` and `y` must be single clouds (n, dim) {where}; got shapes {_shapes(clouds)}.")
    return clouds


def _in_float64(cloud: Cloud) -> Cloud:
    return Cloud(cloud.points.astype(np.float64), _normalised(cloud.weights), cloud.largest)


def _normalised(weights: Any) -> HostArray | None:
    if weights is None:
        return None
    values = weights.astype(np.float64)
    return None if values.min() == values.max() else values / math.fsum(values.tolist())


def shared_batch(x: Cloud, y: Cloud) -> tuple[int, ...]:
    """The leading axes of both, broadcast."""
    a, b = x.batch, y.batch
    return a if a == b else np.broadcast_shapes(a, b)


def _with_batch_axes(cloud: Cloud, axes: int) -> Cloud:
    """The same clouds with this many leading axes, so that those of x and y line up behind a slice axis."""
    if len(cloud.batch) == axes:
        return cloud
    xp = namespace(cloud.points)
    batch = (*(1,) * (axes - len(cloud.batch)), *cloud.batch)
    points = xp.reshape(cloud.points, (*batch, cloud.n, cloud.dim))
    weights = None if cloud.weights is None else xp.reshape(cloud.weights, (*batch, cloud.n))
    return Cloud(points, weights, cloud.largest)


def _share_batch(name: str, points: Points, of_weights: str, weights: Array) -> tuple[Array, Array]:
    """Points and weights repeated along leading axes that only the other has."""
    xp = namespace(points)
    try:
        batch = np.broadcast_shapes(tuple(points.shape[:-2]), tuple(weights.shape[:-1]))
    except ValueError:
        raise ValueError(
            f"The leading axes of `{name}` and `{of_weights}` must broadcast; "
            f"got shapes {tuple(points.shape)} and {tuple(weights.shape)}."
        ) from None
    if batch == tuple(points.shape[:-2]) == tuple(weights.shape[:-1]):
        return points, weights
    return (
        xp.broadcast_to(points, (*batch, *points.shape[-2:])),
        xp.broadcast_to(weights, (*batch, weights.shape[-1])),
    )


def _shapes(clouds: Sequence[Cloud]) -> str:
    return f"{tuple(clouds[0].points.shape)} and {tuple(clouds[1].points.shape)}"
