"""What kind of array is this, and what can its library do?"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any, cast

import array_api_compat as compat
import numpy as np

from orthoslice.backend.array_types import Array, DType, HostArray, Namespace, Tensor
from orthoslice.backend.torch_internals import are_transforms_active, is_transformed


class _NumPy:
    """NumPy as it is, with types for its scalars too; `array_api_compat.numpy` would load all of NumPy's parts.

    NumPy follows the standard since 2.1. What it leaves open is asked for: sorts say whether they are stable.
    """

    @staticmethod
    def astype(x: Any, dtype: DType, /, *, copy: bool = True) -> HostArray:
        """As `numpy.astype`, which refuses scalars, such as sums are."""
        converted: HostArray = x.astype(dtype, copy=copy)
        return converted

    def __getattr__(self, name: str) -> Any:
        # Kept: attributes of an instance are found faster.
        found = self.__dict__[name] = getattr(np, name)
        return found


NUMPY = cast(Namespace, _NumPy())
"""The namespace of NumPy arrays."""

# Looked up a hundred times a call, and the answer depends on the type alone.
_NAMESPACES: dict[type, Namespace] = {}
_LIBRARIES: dict[type, str | None] = {}


def namespace(*arrays: Array | None) -> Namespace:
    """The array-API namespace of the first array that is not None; inputs were checked to share theirs."""
    array = arrays[0] if arrays[0] is not None else next(a for a in arrays if a is not None)
    kind = type(array)
    if kind not in _NAMESPACES:
        is_numpy = issubclass(kind, np.ndarray | np.generic)
        _NAMESPACES[kind] = NUMPY if is_numpy else compat.array_namespace(array)
    return _NAMESPACES[kind]


def library(array: object) -> str | None:
    """Name of the array library that `array` belongs to, or None if it belongs to none we support."""
    kind = type(array)
    if kind not in _LIBRARIES:
        _LIBRARIES[kind] = _find_library(array)
    return _LIBRARIES[kind]


def counts_as_numpy(kind: type) -> None:
    """Treat arrays of a class of ours as NumPy's: their rows are NumPy arrays."""
    _LIBRARIES[kind] = "numpy"


@functools.cache
def float_info(xp: Namespace, dtype: DType) -> Any:
    """`xp.finfo(dtype)`, kept: it is slow, and needed several times a call."""
    return xp.finfo(dtype)


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


def is_traced(*arrays: object) -> bool:
    """Whether any array is a JAX tracer: it has a shape but no values to look at."""
    if "jax" not in sys.modules:
        return False
    tracer: type = sys.modules["jax"].core.Tracer
    # A loop: a generator would be entered once for every array, and this is asked several times a call.
    for array in arrays:  # noqa: SIM110
        if isinstance(array, tracer):
            return True
    return False


def is_readable(array: Any) -> bool:
    """Whether values can be read now without waiting for a device: concrete, and in host memory."""
    kind = library(array)
    if kind == "torch":
        return bool(array.device.type == "cpu")
    if kind == "jax":
        return not is_traced(array) and all(d.platform == "cpu" for d in array.devices())
    return kind in ("numpy", "array_api_strict")


def device(array: Any) -> Any:
    """Where the array lives; None for a tracer, whose place is decided later."""
    kind = library(array)
    if kind == "numpy":
        return "cpu"
    if kind == "torch":
        return array.device
    return None if is_traced(array) else compat.device(array)


BRIDGE_TORCH = True
"""Whether torch tensors in host memory are worked on as NumPy arrays, which share their memory.

NumPy arrays have compiled kernels. Without the bridge torch's own functions are used, as on other devices.
"""


def is_bridged(array: object) -> bool:
    """Whether `array` is a torch tensor that is worked on as a NumPy array."""
    return BRIDGE_TORCH and library(array) == "torch" and is_readable(array)


def to_numpy(array: Any) -> HostArray:
    """A NumPy view or copy of a concrete array, detached from any gradient tape."""
    kind = library(array)
    if kind == "torch":
        refuse_transformed(array)
        # NumPy has no views that negate their memory, as torch's `z.conj().imag` does.
        return np.asarray(array.detach().cpu().resolve_neg())
    if kind == "cupy":
        return np.asarray(array.get())
    if kind == "array_api_strict":
        return np.from_dlpack(array)
    return np.asarray(array)


def gathered(array: Any) -> Any:
    """A concrete JAX array that is spread over devices, on the first of them; any other array as it is.

    What is not compiled works on one device; a compiled program may spread its arrays as it likes.
    """
    if library(array) != "jax" or is_traced(array) or len(array.devices()) == 1:
        return array
    # By way of the host: moved otherwise, its type would still say how it was spread.
    return sys.modules["jax"].device_put(np.asarray(array), min(array.devices(), key=lambda one: one.id))


def refuse_transformed(*tensors: Tensor) -> None:
    """Raise for tensors that transforms of `torch.func` put in the place of others: they have no memory."""
    if are_transforms_active() and any(map(is_transformed, tensors)):
        raise TypeError(
            "orthoslice cannot be transformed by `torch.func` (grad, vjp, jvp, vmap). For gradients use "
            "`torch.autograd.grad`, or `value_and_grad` of a loss; for many clouds pass leading axes "
            "(..., n, dim)."
        )


def is_captured(array: object) -> bool:
    """Whether what is launched for a torch tensor goes into a CUDA graph; other arrays never do."""
    return bool(getattr(array, "is_cuda", False) and sys.modules["torch"].cuda.is_current_stream_capturing())


def wide_float(array: Array) -> DType:
    """The widest floating type that is cheap beside `array`: float64 where the library has it."""
    xp = namespace(array)
    if library(array) == "jax" and not sys.modules["jax"].config.jax_enable_x64:
        return xp.float32
    if library(array) == "torch" and array.device.type == "mps":
        return xp.float32
    return xp.float64


def is_widened(array: Array) -> bool:
    """Whether `array` is of a narrower type than what can be worked out beside it at little cost.

    On accelerators float64 may be slow, and has no kernels: only what is in host memory is widened, and JAX
    arrays where the user asked for 64 bits.
    """
    on_host = library(array) in ("numpy", "array_api_strict", "jax")
    return on_host and wide_float(array) != array.dtype


def wide_int(array: Array) -> DType:
    """The integer type that goes with `wide_float`."""
    xp = namespace(array)
    return xp.int64 if wide_float(array) == xp.float64 else xp.int32


def default_float(xp: Namespace) -> DType:
    """The floating type that integers become."""
    return xp.__array_namespace_info__().default_dtypes()["real floating"]


def detach(array: Any) -> Any:
    """The same values without a gradient tape."""
    kind = library(array)
    if kind == "torch":
        return array.detach()
    if kind == "jax":
        return sys.modules["jax"].lax.stop_gradient(array)
    return array


# Shared: a training step should not spend time on making a context that changes nothing.
_AS_IT_IS = contextlib.nullcontext()


def full_precision(array: Array) -> AbstractContextManager[Any]:
    """Operations in the arrays' own precision: no autocast of torch, no shortcuts in products of JAX.

    TF32 is not turned off here, since all threads share that switch of torch: products go through
    :func:`orthoslice.backend.kernels.cuda.products.product`.
    """
    kind = library(array)
    if kind == "jax":
        precise: AbstractContextManager[Any] = sys.modules["jax"].default_matmul_precision("highest")
        return precise
    if kind == "torch":
        torch, place = sys.modules["torch"], array.device.type
        if torch.is_autocast_enabled(place):
            exact: AbstractContextManager[Any] = torch.autocast(place, enabled=False)
            return exact
    return _AS_IT_IS


def constant(make: Callable[..., HostArray], arguments: tuple[Hashable, ...], like: Any) -> Any:
    """The table `make(*arguments)` beside `like` and of its type; on an accelerator it is sent there once."""
    if library(like) == "torch":
        return _kept(make, arguments, like.dtype, like.device)
    return namespace(like).asarray(make(*arguments), dtype=like.dtype, device=device(like))


@functools.lru_cache(maxsize=256)
def _kept(make: Callable[..., Any], arguments: tuple[Hashable, ...], dtype: DType, place: object) -> Tensor:
    torch = sys.modules["torch"]
    # The first call may be in inference mode, but later ones share the tensor and need not be.
    with torch.inference_mode(False):
        return torch.as_tensor(make(*arguments), dtype=dtype, device=place)
