"""Step 1, check: what a user passes besides the clouds."""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    DType,
    JaxArray,
    Key,
    Namespace,
    Operation,
    Tensor,
    float_info,
    is_readable,
    is_traced,
    library,
    namespace,
    to_numpy,
)
from orthoslice.backend.kernels import xla_launches
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.threads import default_workers
from orthoslice.check.inputs import as_array, as_floating, check_same_library, common_dtype, on_host
from orthoslice.clouds.cloud import Cloud
from orthoslice.directions import NAMED, OWN, Given, Sampler, Stratified
from orthoslice.directions.base import DenseDirections, check_count, dense_rows
from orthoslice.directions.layout import Run
from orthoslice.directions.planes import GivenPlanes

# How far rows of a sampler may be from unit length: those that were drawn in float32 are off by 1e-7.
_UNIT_LENGTH = 1e-6


def check_p(p: Any) -> float:
    """`p` as a float, or an error that says what to pass."""
    if not is_real(p):
        found = f"an array of shape {tuple(p.shape)}." if hasattr(p, "shape") else f"{p!r}."
        if hasattr(p, "__len__") and not isinstance(p, str):
            found += " Weights, which POT takes third, are passed as `x_weights=` and `y_weights=`."
        raise TypeError(f"`p` must be a real number, at least 1; got {found}")
    if not 1 <= p <= 10**6:
        raise ValueError(f"`p` must be at least 1 and at most a million; got {p!r}.")
    return float(p)


def is_real(value: object) -> bool:
    """Whether `value` is a real number; True and False are not."""
    # The usual types first: `isinstance` with an abstract class is slow.
    return type(value) in (int, float) or (isinstance(value, numbers.Real) and not isinstance(value, bool))


def check_directions(directions: object, x: Cloud) -> Sampler:
    """The sampler that `directions` stands for."""
    if isinstance(directions, Given):
        directions = directions.theta
    like = None
    if library(directions) is None:
        if isinstance(directions, Sampler):
            return directions
        if isinstance(directions, str):
            if directions not in NAMED:
                raise ValueError(f"`directions` must be one of {sorted(NAMED)}; got {directions!r}.")
            return NAMED[directions]
        if directions is None or callable(directions):
            function = not (directions is None or isinstance(directions, type))
            raise TypeError(
                "`directions` must be a name, a sampler such as `osl.directions.Orthogonal()`, or an array "
                f"(slices, dim); got {directions!r}."
                + " Make a sampler of a function by `osl.directions.from_function`."
                * function
            )
        like = x.points
    theta = as_array("directions", directions, like=like)
    if getattr(theta, "requires_grad", False):
        raise ValueError("`directions` have no gradient here; pass `directions.detach()`.")
    check_same_library({"x": x.points, "directions": theta})
    came_in = theta.dtype
    theta = as_floating("directions", theta, common_dtype(x.points, theta))
    if theta.ndim != 2 or theta.shape[0] == 0 or theta.shape[1] != x.dim:
        raise ValueError(
            f"`directions` must be a name, a sampler or an array (slices, dim) with dim = {x.dim}; "
            f"got shape {tuple(theta.shape)}."
        )
    return Given(theta=_check_unit_rows("directions", theta, came_in))


def check_host_directions(directions: Any, x: Cloud) -> Sampler:
    """As :func:`check_directions`, where clouds were brought to host memory: arrays of directions are too."""
    theta = directions.theta if isinstance(directions, Given) else directions
    if library(theta) not in (None, "numpy"):
        directions = on_host("directions", theta)
    return check_directions(directions, x)


def check_shared_directions(directions: object, cloud: Cloud) -> Sampler:
    """As :func:`check_host_directions`, for many clouds that share the directions."""
    sampler = check_host_directions(directions, cloud)
    if isinstance(sampler, Stratified):
        raise ValueError(
            "`directions` are shared by all clouds; got Stratified, which is made for two clouds. Pass "
            "'orthogonal' or another sampler."
        )
    return sampler


# Blocks to draw: enough to meet two that differ, even of a sampler with few different blocks.
_TRIED_BLOCKS = 8


def check_sampler(sampler: Sampler, n_directions: int, dim: int) -> tuple[Run, ...]:
    """The runs of blocks of `n_directions` directions; raises if a user's sampler breaks its contract."""
    if type(sampler) in OWN:
        return sampler.runs(n_directions, dim)
    if not n_directions >= 1:
        raise ValueError(
            f"`with_default_size` of {sampler!r} must ask for a direction or more; got {n_directions}."
        )
    rows = sampler.block_rows(n_directions, dim)
    if not rows >= 1:
        raise ValueError(f"`block_rows` of {sampler!r} must be 1 or more; got {rows}.")
    runs = tuple(Run(*run) for run in sampler.runs(n_directions, dim))
    if min((min(run) for run in runs), default=0) < 1 or sum(n * size for n, size in runs) != n_directions:
        raise ValueError(
            f"`runs` of {sampler!r} must be (n_blocks, rows) with {n_directions} rows in all; got {list(runs)}."
        )
    try:
        for size in {run.rows for run in runs}:
            _try_sampler(sampler, size, dim, sum(run.n_blocks for run in runs) > 1)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        raise TypeError(f"Samplers must be hashable, such as frozen dataclasses; {sampler!r} is not.") from None
    return runs


@functools.lru_cache(maxsize=1024)
def _try_sampler(sampler: Sampler, rows: int, dim: int, several: bool) -> None:
    """Draw some blocks on the host, once a sampler and size: shape, lengths, angles and differences."""
    blocks = _TRIED_BLOCKS if several else 1
    key = Key.from_seed(0, np.zeros(1))
    drawn = sampler.blocks(key, np.arange(blocks, dtype=np.int32), rows, dim, np.dtype(np.float64))
    theta = to_numpy(
        drawn.theta if isinstance(drawn, DenseDirections) else dense_rows(drawn, slice(0, blocks * rows))
    )
    if theta.shape != (blocks * rows, dim):
        raise ValueError(
            f"`draw` of {sampler!r} must give {rows} rows of dim {dim} for each of {blocks} keys, so shape "
            f"{(blocks * rows, dim)}; got {theta.shape}."
        )
    norms = np.linalg.norm(theta, axis=1)
    ambient = sampler.ambient_dim(dim)
    # Written so that NaN counts as off. Rows of a larger space may be cut short.
    off = ~(np.abs(norms - 1) <= _UNIT_LENGTH) if ambient == dim else ~(norms <= 1 + _UNIT_LENGTH)
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            f"`draw` of {sampler!r} must give rows of unit length; row {row} has norm {norms[row]:.9g}. "
            "Divide by the norm."
        )
    table = theta.reshape(blocks, rows, dim)
    if sampler.is_basis(rows, dim) and not (rows == ambient and _are_frames(table)):
        raise ValueError(
            f"`is_basis` of {sampler!r} must be True only where blocks are orthonormal bases of the space of "
            f"dim {ambient}; its blocks of {rows} rows are not."
        )
    weights = sampler.weights(rows, dim)
    if weights is not None and not (
        np.shape(weights) == (rows,) and abs(float(np.mean(weights)) - 1) <= _UNIT_LENGTH
    ):
        raise ValueError(
            f"`weights` of {sampler!r} must have shape ({rows},) and mean 1; got shape {np.shape(weights)} and "
            f"mean {float(np.mean(weights)):.9g}."
        )
    if several and dim > 1 and (table == table[0]).all():
        raise ValueError(
            f"`draw` of {sampler!r} must give every block rows of its own, since error bars rest on their "
            f"independence; {blocks} blocks have the same rows. Draw from the `key` or `rng` that is passed, "
            "or let `block_rows` be the number of directions, which says that they are one block."
        )


def _are_frames(blocks: Any) -> bool:
    """Whether `sum theta theta^T` over each block is the identity."""
    return bool(np.abs(np.swapaxes(blocks, 1, 2) @ blocks - np.eye(blocks.shape[2])).max() <= _UNIT_LENGTH)


def check_direction(direction: object, x: Cloud) -> Array:
    """A single unit vector `(dim,)`, as one row."""
    like = x.points if library(direction) is None else None
    row = as_array("direction", direction, like=like)
    if row.ndim != 1 or row.shape[0] != x.dim:
        raise ValueError(f"`direction` must have shape ({x.dim},); got {tuple(row.shape)}.")
    check_same_library({"x": x.points, "direction": row})
    came_in = row.dtype
    row = as_floating("direction", row, common_dtype(x.points, row))
    return _check_unit_rows("direction", row[None, :], came_in)


def check_n_directions(n_directions: object, sampler: Sampler) -> int | None:
    """The count asked for, or None."""
    if n_directions is None:
        return None
    n = check_count("n_directions", n_directions)
    given = sampler.theta if isinstance(sampler, Given) else None
    if isinstance(sampler, GivenPlanes):
        given = sampler.frames
    if given is not None and n != given.shape[0]:
        raise ValueError(
            f"`n_directions` must be None or the number of rows in `directions`, {given.shape[0]}; got {n}."
        )
    return n


def check_tolerance(name: str, value: Any, x: Cloud, y: Cloud) -> float | None:
    """`rtol` or `atol` as a float, or None."""
    if value is None:
        return None
    if not is_real(value):
        raise TypeError(f"`{name}` must be a number or None; got {value!r}.")
    if not 0 < value < math.inf:
        raise ValueError(f"`{name}` must be positive and finite; got {value!r}.")
    if is_traced(x.points, y.points, x.weights, y.weights):
        raise TypeError(
            f"`{name}` cannot be used on traced arrays (under jit, grad or vmap): when to stop depends on "
            "values that are not known yet. Pass `n_directions` instead."
        )
    return float(value)


def check_level(level: Any) -> None:
    """Raise unless `level`, that of an interval, lies between 0 and 1."""
    if not (is_real(level) and 0 < level < 1):
        raise ValueError(f"`level` must lie between 0 and 1; got {level!r}.")


def check_workers(workers: object) -> int:
    """How many threads work on NumPy arrays; the default number if None."""
    return default_workers() if workers is None else check_count("workers", workers)


_UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def check_memory(memory: object) -> int:
    """Bytes from a number or from text like "256MB"."""
    size: Any = _parse_bytes(memory) if isinstance(memory, str) else memory
    if not is_real(size) or not 0 < size < math.inf:
        raise ValueError(f"`memory` must be a positive number of bytes or text like '256MB'; got {memory!r}.")
    return int(size)


@functools.cache
def _parse_bytes(text: str) -> float | None:
    number, unit = re.fullmatch(r"\s*([\d.]*)\s*(.*?)\s*", text.upper()).groups()  # type: ignore[union-attr]
    with contextlib.suppress(ValueError, KeyError):
        return float(number) * _UNITS[unit]
    return None


units_or_nan: Operation[Array] = Operation("units_or_nan")
"""units_or_nan(theta (slices, dim), tolerance, rounding) -> (slices, dim): rows divided by their length.

Those that are off by no more than `rounding` stay as they are, and those by more than `tolerance` become NaN.
"""


@units_or_nan.implementation("cuda", lambda theta, *_: cuda_refusal(theta))
def _units_or_nan_cuda(theta: Tensor, tolerance: float, rounding: float) -> Tensor:
    from orthoslice.backend.kernels.cuda.rows import check_rows

    return check_rows(theta, tolerance, rounding)


@units_or_nan.implementation("xla", lambda theta, *_: xla_launches.rows_refusal(theta))
def _units_or_nan_xla(theta: JaxArray, tolerance: float, rounding: float) -> JaxArray:
    def plain(rows: JaxArray) -> JaxArray:
        return _units_or_nan(rows, tolerance, rounding)

    return xla_launches.check_rows(theta, tolerance, rounding, plain)


@units_or_nan.implementation("reference", lambda *_: None)
def _units_or_nan(theta: Array, tolerance: float, rounding: float) -> Array:
    xp = namespace(theta)
    norm = xp.linalg.vector_norm(theta, axis=1, keepdims=True)
    off = xp.abs(norm - 1)
    sound = xp.where(off <= tolerance, theta, xp.full_like(norm, math.nan))
    return xp.where(off > rounding, sound / norm, sound)


def row_check(like: Tensor) -> Callable[[Tensor], Tensor]:
    """What makes unit rows of given directions on a GPU, of the type and on the device of `like`."""
    xp = namespace(like)
    limits = _length_tolerances(xp, like.dtype, like.dtype)
    run = units_or_nan.chosen(like, *limits)
    return lambda theta: cast(Tensor, run(theta, *limits))


def _length_tolerances(xp: Namespace, own: DType, came_in: DType) -> tuple[float, float]:
    """How far the lengths of rows may be from 1, and by how much they are off where rows stay as they are."""
    eps = float(float_info(xp, own).eps)
    is_own = came_in == own or not xp.isdtype(came_in, "real floating")
    # Rows of float64 may have been normalised in float32.
    tolerance = max(math.sqrt(eps if is_own else float(float_info(xp, came_in).eps)), _UNIT_LENGTH)
    # Rows that are off by no more than rounding in their own type stay as they are.
    return tolerance, eps**0.75


def _check_unit_rows(name: str, theta: Array, came_in: DType) -> Array:
    """Rows normalised in their own type; raises unless they had unit length in the type they came in."""
    xp = namespace(theta)
    tolerance, rounding = _length_tolerances(xp, theta.dtype, came_in)
    if not is_readable(theta):
        return units_or_nan(theta, tolerance, rounding)
    rows = to_numpy(theta)
    norms = np.sqrt(np.vecdot(rows, rows))
    off = np.abs(norms - 1)
    # Written so that NaN counts as off.
    if not off.max() <= tolerance:
        row = int(np.argmax(~(off <= tolerance)))
        # As many digits as show that the norm is not 1.
        norm = f"{norms[row]:.{2 - math.floor(math.log10(tolerance))}g}"
        what = f"row {row} has norm {norm}" if len(norms) > 1 else f"the norm is {norm}"
        raise ValueError(f"`{name}` must be of unit length; {what}. Divide by the norm first.")
    if off.max() <= rounding:
        return theta
    return theta / cast(Array, xp.linalg.vector_norm(theta, axis=1, keepdims=True))
