"""Sorting and pricing rows within programs that JAX compiles, whose own sort is slower.

On the CPU they call kernels of numba, on NVIDIA GPUs those of :mod:`.xla_launches`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from orthoslice.backend.array_types import DType, JaxArray
from orthoslice.backend.kernels import xla_launches


def refusal(*arrays: Any) -> str | None:
    """Why rows of these arrays cannot be priced by calls of XLA, or None if they can."""
    jax = sys.modules.get("jax")
    if jax is None or not all(isinstance(a, jax.Array) for a in arrays):
        return "it takes arrays of JAX"
    if any(a.dtype.name not in ("float32", "float64") for a in arrays):
        return "it takes single and double precision"
    if arrays[0].shape[:-1] != arrays[1].shape[:-1] or arrays[0].dtype != arrays[1].dtype:
        return "it takes rows that need no broadcasting"
    return _interface_refusal()


@functools.cache
def _interface_refusal() -> str | None:
    """Why this process cannot call kernels within programs of JAX, or None if it can."""
    # Kernels of the processor take a while to compile, and are left out where there is a GPU.
    if xla_launches.process_refusal() is None:
        return None
    if (reason := xla_launches.interface_refusal()) is not None:
        return reason
    try:
        _register()
    except (AttributeError, OSError, RuntimeError, ValueError) as error:
        return f"jax.ffi cannot be used ({error})"
    return None


def _register() -> None:
    from orthoslice.backend.kernels.numba.xla import handlers

    for name, handler in handlers().items():
        xla_launches.register_handler(name, handler.address, "cpu")


def score_rows(px: JaxArray, py: JaxArray, p: float, dtype: DType, plain: Callable[..., JaxArray]) -> JaxArray:
    """Costs on the line of `px (..., n)` against `py (..., m)`, `(...)` of this type.

    `plain(px, py, p)` does the same on other devices, and tells derivatives.
    """
    jax = sys.modules["jax"]
    shapes = jax.ShapeDtypeStruct(px.shape[:-1], dtype)
    by_launches = functools.partial(xla_launches.score_rows, p=p, dtype=dtype)
    return _called("scores", shapes, px, py, p, 1.0, by_launches, lambda a, b: plain(a, b, p))


def slope_rows(
    px: JaxArray,
    py: JaxArray,
    p: float,
    factor: float,
    dtype: DType,
    plain: Callable[..., tuple[JaxArray, JaxArray, JaxArray]],
) -> JaxArray:
    """`factor` times the same, and its derivatives by `px` and `py`."""
    jax = sys.modules["jax"]
    slopes = (jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (px, py))
    shapes = (jax.ShapeDtypeStruct(px.shape[:-1], dtype), *slopes)
    by_launches = functools.partial(xla_launches.slope_rows, p=p, factor=factor, dtype=dtype)
    return _called("slopes", shapes, px, py, p, factor, by_launches, lambda a, b: plain(a, b, p, factor))


def _called(
    what: str,
    shapes: object,
    px: JaxArray,
    py: JaxArray,
    p: float,
    factor: float,
    by_launches: Callable[[Any, Any], Any],
    plain: Callable[[Any, Any], Any],
) -> Any:
    jax = sys.modules["jax"]
    name = f"orthoslice_{what}_{px.dtype.name}"
    by_call = functools.partial(
        jax.ffi.ffi_call(name, shapes, vmap_method="broadcast_all"), factor=np.float64(factor), p=np.float64(p)
    )
    branches: dict[str, Callable[[Any, Any], Any]] = {}
    if xla_launches.process_refusal() is not None:
        branches["cpu"] = by_call
    elif xla_launches.refusal(px, py) is None:
        branches[xla_launches.PLATFORM] = by_launches
    else:
        return plain(px, py)

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def run(a: JaxArray, b: JaxArray) -> JaxArray:
        return jax.lax.platform_dependent(a, b, **branches, default=plain)

    @run.defjvp  # type: ignore[untyped-decorator]
    def _(primals: tuple[JaxArray, ...], tangents: tuple[JaxArray, ...]) -> Any:
        return jax.jvp(plain, primals, tangents)

    return run(px, py)
