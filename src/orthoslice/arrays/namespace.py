"""What kind of array is this, and what can its library do?"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import array_api_compat as compat
import numpy as np

Array: TypeAlias = Any
Namespace: TypeAlias = Any
DType: TypeAlias = Any


# Asked a hundred times a call, and the answer depends on the type alone.
_NAMESPACES: dict[type, Namespace] = {}
_LIBRARIES: dict[type, str | None] = {}


def namespace(*arrays: Array) -> Namespace:
    """The array-API namespace of the first array that is not None; inputs were checked to share theirs."""
    array = arrays[0] if arrays[0] is not None else next(a for a in arrays if a is not None)
    kind = type(array)
    if kind not in _NAMESPACES:
        _NAMESPACES[kind] = compat.array_namespace(array)
    return _NAMESPACES[kind]


def library(array: object) -> str | None:
    """Name of the array library that `array` belongs to, or None if it belongs to none we support."""
    kind = type(array)
    if kind not in _LIBRARIES:
        _LIBRARIES[kind] = _find_library(array)
    return _LIBRARIES[kind]


def _find_library(array: object) -> str | None:
    if compat.is_numpy_array(array):
        return "numpy"
    if compat.is_torch_array(array):
        return "torch"
    if compat.is_jax_array(array):
        return "jax"
    if compat.is_cupy_array(array):
        return "cupy"
    if type(array).__module__.startswith("array_api_strict"):
        return "array_api_strict"
    return None


def is_traced(*arrays: Array) -> bool:
    """Whether any array is a JAX tracer: it has a shape but no values to look at."""
    if "jax" not in sys.modules:
        return False
    tracer: type = sys.modules["jax"].core.Tracer
    return any(isinstance(a, tracer) for a in arrays)


def is_readable(array: Array) -> bool:
    """Whether values may be looked at now: concrete, and in host memory, so that looking waits for nobody."""
    kind = library(array)
    if kind == "torch":
        return bool(array.device.type == "cpu")
    if kind == "jax":
        return not is_traced(array) and all(d.platform == "cpu" for d in array.devices())
    return kind in ("numpy", "array_api_strict")


def device(array: Array) -> Any:
    """Where the array lives; None for a tracer, whose place is decided later."""
    if library(array) == "numpy":
        return "cpu"
    return None if is_traced(array) else compat.device(array)


BRIDGE_TORCH = True
"""Whether torch tensors in host memory are worked on as NumPy arrays, which share their memory.

NumPy arrays have compiled kernels. Without the bridge torch's own functions are used, as on other devices.
"""


def is_bridged(array: Array) -> bool:
    """Whether `array` is a torch tensor that is worked on as a NumPy array."""
    return BRIDGE_TORCH and library(array) == "torch" and is_readable(array)


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """A NumPy view or copy of a concrete array, detached from any gradient tape."""
    if library(array) == "torch":
        return np.asarray(array.detach().cpu())
    if library(array) == "cupy":
        return np.asarray(array.get())
    if library(array) == "array_api_strict":
        return np.from_dlpack(array)
    return np.asarray(array)


def constant(make: Callable[..., np.ndarray[Any, Any]], arguments: tuple[Hashable, ...], like: Array) -> Array:
    """The table `make(*arguments)` beside `like` and of its type; on an accelerator it is sent there once."""
    if library(like) == "torch":
        return _kept(make, arguments, like.dtype, like.device)
    return namespace(like).asarray(make(*arguments), dtype=like.dtype, device=device(like))


@functools.lru_cache(maxsize=256)
def _kept(make: Callable[..., Any], arguments: tuple[Hashable, ...], dtype: DType, place: Any) -> Array:
    torch = sys.modules["torch"]
    # Whoever comes first may be in inference mode; those who follow need not be.
    with torch.inference_mode(False):
        return torch.as_tensor(make(*arguments), dtype=dtype, device=place)


def wide_float(array: Array) -> DType:
    """The widest floating type that is cheap beside `array`: float64 where the library has it."""
    xp = namespace(array)
    if library(array) == "jax" and not sys.modules["jax"].config.jax_enable_x64:
        return xp.float32
    if library(array) == "torch" and array.device.type == "mps":
        return xp.float32
    return xp.float64


def wide_int(array: Array) -> DType:
    """The integer type that goes with `wide_float`."""
    xp = namespace(array)
    return xp.int64 if wide_float(array) == xp.float64 else xp.int32


def default_float(xp: Namespace) -> DType:
    """The floating type that integers become."""
    return xp.__array_namespace_info__().default_dtypes()["real floating"]


def detach(array: Array) -> Array:
    """The same values without a gradient tape."""
    if library(array) == "torch":
        return array.detach()
    if library(array) == "jax":
        return sys.modules["jax"].lax.stop_gradient(array)
    return array


# A training step has no time for what changes nothing.
_AS_IT_IS = contextlib.nullcontext()


def full_precision(array: Array) -> AbstractContextManager[Any]:
    """Matrix products in the arrays' own precision: no TF32, no autocast, whatever the caller has set."""
    kind = library(array)
    if kind == "jax":
        precise: AbstractContextManager[Any] = sys.modules["jax"].default_matmul_precision("highest")
        return precise
    if kind == "torch":
        torch, place = sys.modules["torch"], array.device.type
        is_rough = place == "cuda" and torch.backends.cuda.matmul.allow_tf32
        if is_rough or torch.is_autocast_enabled(place):
            return _torch_in_full_precision(place, is_rough)
    return _AS_IT_IS


@contextlib.contextmanager
def _torch_in_full_precision(place: str, is_rough: bool) -> Iterator[None]:
    torch = sys.modules["torch"]
    if is_rough:
        torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.autocast(place, enabled=False):
            yield
    finally:
        if is_rough:
            torch.backends.cuda.matmul.allow_tf32 = True
