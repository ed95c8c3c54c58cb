"""Clouds made fit for arithmetic: moved to the origin, and scaled by powers of two."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    DType,
    HostArray,
    Operation,
    Tensor,
    constant,
    detach,
    float_info,
    is_readable,
    library,
    namespace,
    to_numpy,
    wide_float,
)
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.check.inputs import largest_magnitude
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.mapped import MappedPoints

# Up to this many coordinates one block of a GPU is quicker than the library.
_SMALL_CLOUD = 1 << 21

# Numbers of a row long enough for NumPy to go through it in vectors.
_FOLDED_ITEMS = 512

# Exponents e for which 2.0**e is a normal float64.
_SMALLEST_SCALE, _LARGEST_SCALE = -1022, 1023

# Room at both ends of the range, so that a gradient divided by the scale does not underflow either.
_ROOM = 9

# Factors 2**exponent that a number is multiplied by in turn: together they reach from one end of the range
# to the other, and none of them leaves it.
_STEPS = 3


def unit_scale(x: Cloud, y: Cloud, p: float) -> tuple[Cloud, Cloud, float]:
    """Clouds divided by a power of two, where p-th powers of their distances might leave the floating range.

    Powers of two change no digit. Where values cannot be read, nothing is scaled here: see
    :func:`orthoslice.clouds.conditioning.scale_on_device`.

    Examples
    --------
    >>> import numpy as np
    >>> from orthoslice.clouds.cloud import Cloud
    >>> unit_scale(Cloud(np.array([[1e200]])), Cloud(np.array([[0.0]])), 2)[2] > 1e100
    True
    """
    if not (is_readable(x.points) and is_readable(y.points)):
        return x, y, 1.0
    largest = largest_coordinate(x, y)
    # No two points are further apart than 2**reach.
    reach = math.log2(largest) + math.log2(x.dim) / 2 + 1 if largest else 0.0
    room = exponent_room(p, math.log2(float(float_info(namespace(x.points), x.dtype).max)))
    if abs(reach) < room:
        return x, y, 1.0
    # The least exponent that does: coordinates stay as large as possible, and small ones do not underflow.
    exponent = max(math.ceil(reach - room), _SMALLEST_SCALE)
    if exponent > _LARGEST_SCALE:
        raise OverflowError(
            f"`x` and `y` must be smaller for p = {p:g}; got coordinates up to {largest:.3g} in {x.dtype}. "
            "Pass smaller units."
        )
    return x.divided(exponent), y.divided(exponent), 2.0**exponent


def exponent_room(p: float, max_exponent: float) -> float:
    """Clouds of extent 2**e with |e| below this need no scaling for p, in a type up to 2**max_exponent."""
    # Error bars square p-th powers, norms square distances; a quarter of the range is left for sums.
    return 0.75 * max_exponent / (2 * p)


def unscaled_extents(p: float, dim: int, dtype: DType) -> tuple[Array, Array]:
    """Clouds whose largest coordinate lies between these two need no :func:`unit_scale`; NumPy's, of this type.

    Examples
    --------
    >>> import numpy as np
    >>> least, most = unscaled_extents(2.0, 3, np.dtype(np.float64))
    >>> bool(least < 1e-50 and 1e50 < most < 1e100)
    True
    """
    room, info = exponent_room(p, math.log2(float(np.finfo(dtype).max))), np.finfo(dtype)
    most = 2.0 ** (room - math.log2(dim) / 2 - 1)
    least = max(2.0 ** (-room - math.log2(dim) / 2 - 1), float(info.smallest_normal))
    return dtype.type(least), dtype.type(most)


def largest_coordinate(x: Cloud, y: Cloud) -> float:
    """The largest magnitude of a coordinate of either cloud, whose values can be read."""
    return max(largest_magnitude(c.points) if c.largest is None else c.largest for c in (x, y))


def widened(x: Cloud, y: Cloud) -> tuple[Cloud, Cloud]:
    """Clouds of float64, where their library has it."""
    wide = wide_float(x.points)
    if x.dtype == wide:
        return x, y
    return x.astype(wide), y.astype(wide)


def rescaled(quantity: Array, scale: float, power: float, dtype: DType | None = None) -> Array:
    """`quantity * scale**power` in `dtype`; where that does not fit, an OverflowError that says what does."""
    if scale == 1 and dtype is None:
        return quantity
    exponent = power * math.log2(scale)
    whole = math.floor(exponent)
    with np.errstate(over="ignore", under="ignore"):
        result = quantity if exponent == whole else quantity * 2.0 ** (exponent - whole)
        # The factor itself may overflow: multiply in steps that cannot, unless the product does.
        while whole:
            step = min(max(whole, -100), 100)
            result = result * 2.0**step
            whole -= step
        if dtype is not None:
            result = namespace(result).astype(result, dtype)
    if is_readable(result) and bool(namespace(result).any(namespace(result).isinf(result))):
        what = "This distance" if power == 1 else "The p-th power of this distance"
        read = "Pass" if power == 1 else "Read `distance`, which does not, or pass"
        raise OverflowError(
            f"{what} exceeds the range of {result.dtype}. {read} smaller units or a wider type."
        )
    return result


def is_scaled_on_device(x: Cloud, y: Cloud) -> bool:
    """Whether these clouds are scaled on their device: those of JAX whose values cannot be read.

    A compiled program does it along with what it does anyway. Step by step, as torch works on a GPU, it would
    take longer than the rest of a small problem.
    """
    return library(x.points) == "jax" and not (is_readable(x.points) and is_readable(y.points))


def scale_on_device(x: Cloud, y: Cloud, p: float) -> tuple[Cloud, Cloud, Array, Array]:
    """Clouds divided by 2**exponent where p-th powers might leave the range; 2**-exponent, and the exponent.

    :func:`unit_scale` looks at the clouds and scales them on the host. Where that is impossible, the program
    finds the exponent of the largest coordinate, and looks up what to do about it in a table made on the host.
    The exponent is 0 wherever the clouds are fit as they are. It has no gradient.
    """
    xp = namespace(x.points)
    info = np.finfo(_numpy_float(x.dtype))
    largest = xp.maximum(*(xp.max(xp.abs(detach(c.points))) for c in (x, y)))
    # Magnitudes have no sign, so what is left of their bits above the digits is the exponent.
    field = cast(Tensor, largest).view(xp.int32 if info.bits == 32 else xp.int64) >> info.nmant
    table = constant(_by_field, (info.bits, x.dim, p), largest)
    row = xp.take(table, xp.reshape(field, (1,)), axis=0)
    down, exponent = row[0, 0], row[0, 1]
    return replace(x, points=x.points * down), replace(y, points=y.points * down), down, exponent


def times_two_to(quantity: Array, exponent: Array, p: float) -> Array:
    """`quantity * 2**(p * exponent)`, for whole exponents of :func:`scale_on_device`; shapes broadcast."""
    xp = namespace(quantity)
    info = np.finfo(_numpy_float(quantity.dtype))
    table = constant(_by_exponent, (info.bits, p), quantity)
    middle = table.shape[0] // 2
    place = xp.astype(xp.clip(exponent, -middle, middle), xp.int32) + middle
    factors = xp.take(table, xp.reshape(place, (-1,)), axis=0)
    for step in range(_STEPS):
        quantity = quantity * xp.reshape(factors[:, step], exponent.shape)
    return quantity


def _numpy_float(dtype: DType) -> str:
    return str(dtype).removeprefix("torch.")


@functools.lru_cache(maxsize=64)
def _by_field(bits: int, dim: int, p: float) -> HostArray:
    """For every exponent field of a magnitude: 2**-exponent and exponent, `(fields, 2)`."""
    info = np.finfo(f"float{bits}")
    reach, room, most = scaling_rule(bits, dim, p)
    # A number with this field is below 2**(field - bias + 1). The last field is NaN and infinity.
    exponents = [0.0] * (1 << info.nexp)
    for field in range(len(exponents) - 1):
        extent = field - (info.maxexp - 1) + 1 + reach
        if abs(extent) >= room:
            exponents[field] = float(np.clip(math.ceil(extent), -most, most))
    return np.stack([np.exp2(-np.asarray(exponents)), exponents], axis=1)


def scaling_rule(bits: int, dim: int, p: float) -> tuple[float, float, int]:
    """How :func:`scale_on_device` finds the exponent of clouds whose largest coordinate is below 2**e.

    It is e plus the first number, rounded up and at most the third, where that is not within the second.
    """
    info = np.finfo(f"float{bits}")
    return math.log2(dim) / 2 + 1, exponent_room(p, info.maxexp), info.maxexp - _ROOM


@functools.lru_cache(maxsize=64)
def _by_exponent(bits: int, p: float) -> HostArray:
    """For every exponent from -most to most: factors that make 2**(p * exponent), `(exponents, steps)`."""
    info = np.finfo(f"float{bits}")
    most = info.maxexp - _ROOM
    # What is further away than all steps can reach is 0 or infinite anyway.
    total = np.clip(p * np.arange(-most, most + 1), -_STEPS * most, _STEPS * most)
    whole = np.floor(total)
    factors = np.exp2([(whole + k) // _STEPS for k in range(_STEPS)])
    factors[0] *= np.exp2(total - whole)
    return factors.T


C = TypeVar("C", bound=Cloud)


def centred(x: C, y: C) -> tuple[C, C]:
    """Clouds moved to the origin along coordinates in which x sits far from it.

    Projections then keep more digits. The middle of the range does not depend on the order of rows, and clouds
    that are not far away stay where they are, so that exact ties remain ties.
    """
    if isinstance(x.points, MappedPoints) or (is_readable(x.points) and _is_near_origin(to_numpy(x.points))):
        return x, y
    axis = (-2,) if x.batch == y.batch else tuple(range(x.points.ndim - 1))
    centre = far_centre(x.points, axis)
    # Both get the origin alike, even if one is no file: it cancels in differences of points as stored.
    lazily = x.is_mapped or y.is_mapped
    return x.less(centre, lazily=lazily), y.less(centre, lazily=lazily)


far_centre: Operation[Array] = Operation("far_centre")
"""far_centre(points, axis) -> what to take off them.

The middle of their range over those axes where it is more than twice that range from 0, and 0 elsewhere.
"""


def _far_centre_refusal(points: Array, axis: tuple[int, ...]) -> str | None:
    if points.ndim != 2 or points.shape[0] * points.shape[1] > _SMALL_CLOUD:
        return "it takes small single clouds"
    return cuda_refusal(points)


@far_centre.implementation("cuda", _far_centre_refusal)
def _far_centre_cuda(points: Tensor, axis: tuple[int, ...]) -> Tensor:
    from orthoslice.backend.kernels.cuda import rows

    return rows.far_centre(points)


def _folded_refusal(points: Array, axis: tuple[int, ...]) -> str | None:
    if isinstance(points, np.ndarray) and points.ndim == 2 and points.flags.c_contiguous:
        return None
    return "it takes single clouds in host memory, row by row"


@far_centre.implementation("folded", _folded_refusal)
def _far_centre_folded(points: HostArray, axis: tuple[int, ...]) -> Array:
    return middle_if_far(*(end[None, :] for end in range_of_rows(points)))


def range_of_rows(points: HostArray) -> tuple[HostArray, HostArray]:
    """The least and the largest coordinates `(dim,)` of NumPy points, row by row in memory.

    NumPy goes through short rows one by one; here many of them make a long one, with the same answer.
    """
    n, dim = points.shape
    many = max(1, _FOLDED_ITEMS // dim)
    whole = n // many * many
    folded, rest = points[:whole].reshape(-1, many * dim), points[whole:]
    ends = []
    for extreme in (np.min, np.max):
        few = [extreme(folded, axis=0).reshape(many, dim)] if whole else []
        ends.append(extreme(np.concatenate([*few, rest]), axis=0))
    return ends[0], ends[1]


@far_centre.implementation("reference", lambda *_: None)
def _far_centre(points: Array, axis: tuple[int, ...]) -> Array:
    xp = namespace(points)
    return middle_if_far(*(f(points, axis=axis, keepdims=True) for f in (xp.min, xp.max)))


def middle_if_far(low: Array, high: Array) -> Array:
    """What :func:`far_centre` is, from the ends of the range."""
    xp = namespace(low)
    middle = low / 2 + high / 2
    return xp.where(xp.abs(middle) > 2 * (high - low), middle, xp.zeros_like(middle))


def _is_near_origin(points: Any) -> bool:
    """Whether a few points already show that no coordinate of a single cloud is far from 0 for its range."""
    # From all over the cloud: the first ones may be the smallest.
    few = points[:: -(-len(points) // 32)]
    # The middle is at most half a range from any point, and the range is at least that of the few.
    return points.ndim == 2 and bool((np.abs(few[0]) <= 1.5 * (few.max(axis=0) - few.min(axis=0))).all())
