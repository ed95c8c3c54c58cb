"""Step 1, check: points and weights as users pass them, read as arrays of one library."""

from __future__ import annotations

import functools
import math
import numbers
from typing import Any, cast

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    DType,
    HostArray,
    Namespace,
    default_float,
    device,
    gathered,
    is_readable,
    library,
    namespace,
    to_numpy,
    wide_float,
)
from orthoslice.check.frames import check_row_labels, is_frame, match_columns, read_column, read_frame


def is_dask(value: object) -> bool:
    """Whether `value` is a Dask collection: an array, or a data frame or a column of one.

    Examples
    --------
    >>> import dask.array as da
    >>> is_dask(da.ones((4, 2))), is_dask(np.ones((4, 2)))
    (True, False)
    """
    return hasattr(value, "__dask_graph__") and hasattr(value, "to_delayed")


def match_frames(x: object, y: object, x_weights: object, y_weights: object) -> tuple[Any, Any]:
    """Clouds with named columns in one order; raises if weights have the row labels in another order."""
    if library(x) is not None and library(y) is not None:
        return x, y
    for name, weights, points in (("x_weights", x_weights, x), ("y_weights", y_weights, y)):
        check_row_labels(name, weights, points)
    return match_columns(x, y)


def as_array(name: str, value: Any, like: Array | None = None) -> Array:
    """An array of a supported library; lists and data frames become NumPy, or what `like` is."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"`{name}` must not be a masked array; drop or fill the masked entries first.")
    if library(value) is not None:
        if getattr(value, "is_sparse", False) or getattr(value, "is_sparse_csr", False):
            raise TypeError(f"`{name}` must be a dense array; got a sparse one. Pass `{name}.to_dense()`.")
        return np.asarray(value) if isinstance(value, np.matrix) else gathered(value)
    if is_frame(value):
        value = read_frame(name, value)
    elif hasattr(value, "to_numpy"):
        value = read_column(f"`{name}`", value)
    elif not isinstance(value, (list, tuple, numbers.Number)):
        raise TypeError(
            f"`{name}` must be a NumPy, PyTorch, JAX or CuPy array, a list or a data frame; "
            f"got {type(value).__name__}.{_what_to_pass(name, value)}"
        )
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        raise ValueError(f"`{name}` must be rectangular: its rows differ in length.") from None
    if like is None or library(like) == "numpy":
        return array
    _check_numeric(name, cast(Namespace, np), array)
    xp = namespace(like)
    return xp.asarray(array.tolist(), dtype=like.dtype if _is_floating(xp, like) else None, device=device(like))


def _what_to_pass(name: str, value: object) -> str:
    """What to pass instead of an object that holds an array but is not one."""
    if is_dask(value):
        return (
            " Dask collections can be passed to `sliced_wasserstein`, `projected_wasserstein`, "
            f"`two_sample_test` and `pairwise`; here pass `{name}.compute()`, or some of its rows."
        )
    if isinstance(value, type):
        return " That is a class, not an object of it." + (
            f" Pass a law, such as `osl.laws.{value.__name__}(3)`." if hasattr(value, "affine") else ""
        )
    if hasattr(value, "affine") and hasattr(value, "sample"):
        return (
            " A law can be the `y` of `sliced_wasserstein`, `value_and_grad` and `two_sample_test`, and the "
            f"target of `osl.nn.SlicedWassersteinLoss`; here pass points of it, `{name}.sample(1000)`."
        )
    for dense in ("toarray", "todense"):
        if hasattr(value, dense):
            return f" Sparse matrices must be made dense: pass `{name}.{dense}()`."
    if hasattr(value, "obsm"):
        return (
            f" Pass its matrix, `{name}.X`, or an embedding such as `{name}.obsm['X_pca']`; dense, not sparse. "
            "For groups of cells there is `osl.adapters.group_clouds`."
        )
    if hasattr(value, "collect"):
        return f" Pass `{name}.collect()`."
    return f" Pass `np.asarray({name})`." if hasattr(value, "__array__") else ""


def as_line(name: str, value: Any) -> Array:
    """Numbers on a line or a circle as points of dim 1, `(..., n, 1)`."""
    array = as_array(name, value)
    if array.ndim == 0:
        raise ValueError(f"`{name}` must have shape (n,) or (..., n); got a single number.")
    if is_frame(value):
        raise ValueError(f"`{name}` must be a column, and not a frame of shape {tuple(array.shape)}.")
    return array[..., None]


def check_same_library(named: dict[str, Array]) -> None:
    kinds = {name: library(array) for name, array in named.items()}
    if set(kinds.values()) == {"numpy"}:
        return
    if len(set(kinds.values())) > 1:
        found = ", ".join(f"`{name}` of {kind}" for name, kind in kinds.items())
        raise TypeError(f"All arrays must come from one library; got {found}.")
    places = {name: device(array) for name, array in named.items()}
    if len(set(places.values()) - {None}) > 1:
        found = ", ".join(f"`{name}` on {place}" for name, place in places.items() if place is not None)
        raise ValueError(f"All arrays must be on one device; got {found}.")


def on_host(name: str, array: Array) -> HostArray:
    """A NumPy array of the same numbers; floating types that NumPy lacks become float32."""
    xp = namespace(array)
    _check_numeric(name, xp, array)
    return to_numpy(
        as_floating(name, array, _common_dtype(xp, array.dtype)) if _is_floating(xp, array) else array
    )


def _is_floating(xp: Namespace, array: Array) -> bool:
    return _kind(xp, array.dtype) == "real floating"


def _check_numeric(name: str, xp: Namespace, array: Array) -> None:
    if _kind(xp, array.dtype) is None:
        kind = getattr(array.dtype, "kind", "")
        what = {"U": "text, ", "S": "text, ", "M": "dates, ", "m": "durations, ", "c": "complex numbers, "}
        where = ""
        if kind == "O":
            odd = ((i, v) for i, v in np.ndenumerate(array) if not isinstance(v, numbers.Real))
            where = next((f", such as {v!r} at index {i}" for i, v in odd), f". Pass `{name}.astype(float)`")
        raise TypeError(f"`{name}` must hold real numbers; got {what.get(kind, '')}type {array.dtype}{where}.")


@functools.cache
def _kind(xp: Namespace, dtype: DType) -> str | None:
    """What kind of real numbers a type holds, or None if it holds others."""
    try:
        return next((k for k in ("real floating", "integral", "bool") if xp.isdtype(dtype, k)), None)
    except TypeError:
        # The library refuses types outside the array standard, such as text.
        return None


def common_dtype(a: Array, b: Array) -> DType:
    """The floating type of the answer: at least float32, at most float64."""
    return _common_dtype(namespace(a, b), a.dtype, b.dtype)


@functools.cache
def _common_dtype(xp: Namespace, *dtypes: DType) -> DType:
    wide = [t if _kind(xp, t) == "real floating" else default_float(xp) for t in dtypes]
    dtype = xp.result_type(*wide)
    if dtype in (xp.float32, xp.float64):
        return dtype
    return xp.float32 if xp.finfo(dtype).bits < 32 else xp.float64


def exact_dtype(x: Array, y: Array) -> DType:
    """The floating type of clouds `x` and `y`: as :func:`common_dtype`, but one that holds integers exactly."""
    return _common_dtype(namespace(x), exact_floating("x", x), exact_floating("y", y))


def widest_float(*dtypes: DType) -> DType:
    """The floating type of an answer from NumPy arrays of these floating types."""
    return np.dtype(_common_dtype(namespace(np.zeros(1)), *dtypes))


def as_floating(name: str, array: Array, dtype: DType) -> Array:
    if array.dtype == dtype:
        return array
    xp = namespace(array)
    _check_numeric(name, xp, array)
    floating = xp.astype(array, dtype)
    if is_readable(array) or _kind(xp, array.dtype) != "integral":
        return floating
    # Values cannot be looked at: integers that would be rounded come out as NaN, like other bad values.
    limit = 1 << _digits(xp, dtype)
    if int(xp.iinfo(array.dtype).max) <= limit:
        return floating
    return xp.where((array <= limit) & (array >= -limit), floating, xp.full_like(floating, math.nan))


def exact_floating(name: str, array: Array) -> DType:
    """The floating type that an array asks for: its own, or for integers one that holds them exactly."""
    xp = namespace(array)
    if _is_floating(xp, array):
        return array.dtype
    _check_numeric(name, xp, array)
    default = default_float(xp)
    if _kind(xp, array.dtype) == "bool" or not is_readable(array) or 0 in array.shape:
        return default
    table = to_numpy(array)
    largest = max(int(table.max()), -int(table.min()))
    for dtype in (default, wide_float(array)):
        if largest <= 1 << _digits(xp, dtype) or (dtype == xp.float64 and _is_exact_in_float64(table)):
            return dtype
    # The type that the library has is too narrow, or every floating type is.
    wider = dtype != xp.float64 and _is_exact_in_float64(table)
    remedy = " and float64 does not: in JAX, set `jax_enable_x64`" if wider else ""
    raise ValueError(
        f"`{name}` must hold integers that floating point holds exactly; got magnitudes up to {largest}, which "
        f"float{xp.finfo(dtype).bits} rounds{remedy}. Subtract one offset from both clouds while they are "
        "integers, which changes no distance."
    )


def _digits(xp: Namespace, dtype: DType) -> int:
    """How many binary digits a number of a floating type has."""
    return 1 - round(math.log2(float(xp.finfo(dtype).eps)))


def _is_exact_in_float64(table: HostArray) -> bool:
    """Whether float64 holds integers without rounding."""
    floating = table.astype(np.float64)
    # A number rounded up to the end of the integers' range would overflow on the way back.
    inside = floating < 2.0 ** np.iinfo(table.dtype).bits / (1 + (table.dtype.kind == "i"))
    return bool(inside.all() and (floating.astype(table.dtype) == table).all())


def check_points(name: str, points: Array) -> float | None:
    """Raise unless `points` are clouds of finite points; returns their largest magnitude if it can be seen."""
    shape = tuple(points.shape)
    if len(shape) < 2:
        hint = ""
        if len(shape) == 1:
            hint = f" Points on a line have dim 1: pass `{name}[:, None]`, of a Series `{name}.to_frame()`."
        raise ValueError(f"`{name}` must have shape (n, dim) or (..., n, dim); got {shape}.{hint}")
    if 0 in shape:
        raise ValueError(f"`{name}` must hold at least one point and dimension; got shape {shape}.")
    if not is_readable(points):
        return None
    return check_finite(name, points)


def check_finite(name: str, points: Array) -> float:
    """Raise unless points that can be looked at are finite; returns their largest magnitude."""
    largest = largest_magnitude(points)
    if not math.isfinite(largest):
        table = to_numpy(points)
        where = _first(~np.isfinite(table))
        raise ValueError(f"`{name}` must be finite; got {table[where]} at index {where}.")
    return largest


def _first(bad: HostArray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])


def largest_magnitude(points: Array) -> float:
    """The largest magnitude; NaN if any coordinate is NaN."""
    # By NumPy: while JAX traces something else, its own functions would return tracers.
    table = to_numpy(points)
    return max(abs(float(table.max())), abs(float(table.min())))


def check_weights(name: str, weights: Array, of: str, points: Array) -> Array:
    xp = namespace(weights)
    _check_numeric(name, xp, weights)
    if weights.ndim < 1 or weights.shape[-1] != points.shape[-2]:
        raise ValueError(
            f"`{name}` must have one weight a point of `{of}`, shape (..., {points.shape[-2]}); "
            f"got {tuple(weights.shape)}."
        )
    tolerance = weights_tolerance(weights, points)
    if not _is_floating(xp, weights) or xp.finfo(weights.dtype).bits < 32:
        weights = xp.astype(weights, points.dtype)
    if is_readable(weights):
        table = to_numpy(weights)
        check_not_negative(name, table)
        sums = np.ravel(table.sum(axis=-1, dtype=np.float64))
        _check_sum(name, float(sums[np.argmax(np.abs(sums - 1))]), tolerance)
        return weights
    total = xp.sum(weights, axis=-1, keepdims=True)
    sound = (xp.abs(total - 1) <= tolerance) & xp.all(weights >= 0, axis=-1, keepdims=True)
    return xp.where(sound, weights, xp.full_like(weights, math.nan))


def weights_tolerance(weights: Array, points: Array) -> float:
    """How far from 1 the sum of weights may be.

    Weights that were normalised in their own type may miss the sum 1 by rounding in that type.
    """
    xp = namespace(weights)
    came_in = weights.dtype if _is_floating(xp, weights) else points.dtype
    return _sum_tolerance(float(xp.finfo(came_in).eps))


def _sum_tolerance(eps: float) -> float:
    return max(1e-6, math.sqrt(eps))


def check_not_negative(name: str, table: HostArray) -> None:
    if not table.min() >= 0:
        where = _first(~(table >= 0))
        raise ValueError(f"`{name}` must not be negative or NaN; got {table[where]} at index {where}.")


def check_sum(name: str, total: float, dtype: DType) -> None:
    """Raise unless weights that came as NumPy's `dtype` sum to 1."""
    eps = np.finfo(dtype).eps if np.dtype(dtype).kind == "f" else 0.0
    _check_sum(name, total, _sum_tolerance(float(eps)))


def _check_sum(name: str, total: float, tolerance: float) -> None:
    if not abs(total - 1) <= tolerance:
        raise ValueError(
            f"`{name}` must sum to 1; got a sum of {total:.9g}. Divide by the sum if that is what you mean."
        )


def is_uniform(weights: Array) -> bool:
    """Whether all weights can be read and are equal: couplings by rank, which are exact, need no weights."""
    if not is_readable(weights) or getattr(weights, "requires_grad", False):
        return False
    table = to_numpy(weights)
    return bool(table.min() == table.max())
