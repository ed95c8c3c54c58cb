"""Our CUDA kernels within programs that JAX compiles for NVIDIA GPUs.

When a program is traced, the host code of the kernels writes down what it would launch
(:mod:`.cuda.recording`). The recipe is an attribute of a call in the program, and is followed at every run by
machine code (:mod:`.numba.launching`): launches need no Python, and XLA may put them into a graph of its own.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from orthoslice.backend.array_types import DType, IntArray, JaxArray
from orthoslice.backend.kernels import numba_refusal
from orthoslice.backend.kernels.cuda import LONGEST_CUDA_ROW, compiling, device_refusal
from orthoslice.backend.kernels.cuda.recording import Output, Recipe, Recorder, part_of, record

PLATFORM = "cuda"
"""What these programs are compiled for, as `jax.lax.platform_dependent` calls it."""

Make: TypeAlias = Callable[..., Recipe]
"""A recipe for arguments of these shapes, and options."""

_TARGET = "orthoslice_launches"


def refusal(px: JaxArray, py: JaxArray) -> str | None:
    """Why programs for a GPU cannot launch our kernels on rows of these arrays, or None if they can."""
    if px.dtype.name != "float32":
        return "it takes float32"
    if max(px.shape[-1], py.shape[-1]) > LONGEST_CUDA_ROW:
        return f"it takes rows of at most {LONGEST_CUDA_ROW} points"
    return process_refusal()


@functools.cache
def process_refusal() -> str | None:
    """Why no program of this process can launch our kernels, or None if one can."""
    devices = gpus()
    if not devices:
        return "JAX has no NVIDIA GPU"
    if (reason := interface_refusal()) is not None:
        return reason
    for device in devices:
        if (reason := device_refusal(device)) is not None:
            return reason
    if len({compiling.capability(device) for device in devices}) > 1:
        return "it takes GPUs of one kind"
    try:
        _register()
    except (AttributeError, ImportError, OSError, RuntimeError, ValueError) as error:
        return f"XLA cannot launch kernels ({error})"
    return None


def interface_refusal() -> str | None:
    """Why programs of JAX cannot call machine code of ours, or None if they can."""
    try:
        header = (Path(sys.modules["jax"].ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    except (AttributeError, OSError) as error:
        return f"jax.ffi cannot be used ({error})"
    found = re.search(r"#define XLA_FFI_API_MAJOR (\d+)", header)
    if found is None or int(found[1]) != 0:
        return "it knows version 0 of XLA's interface"
    return numba_refusal()


@functools.cache
def gpus() -> tuple[int, ...]:
    """The numbers of the NVIDIA GPUs on which JAX runs programs in this process."""
    try:
        return tuple(d.local_hardware_id for d in sys.modules["jax"].local_devices(backend=PLATFORM))
    except (AttributeError, RuntimeError):
        return ()


def _register() -> None:
    from orthoslice.backend.kernels.numba import launching

    driver = ctypes.CDLL("libcuda.so.1")
    launching.set_driver(driver.cuLaunchKernel, driver.cuCtxGetDevice, driver.cuMemsetD32Async)
    register_handler(_TARGET, launching.handler().address, "CUDA")


def register_handler(name: str, address: int, platform: str) -> None:
    """Have XLA call the C function at an address by a name."""
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    sys.modules["jax"].ffi.register_ffi_target(name, new_capsule(address, None, None), platform=platform)


def score_rows(px: JaxArray, py: JaxArray, p: float, dtype: DType) -> JaxArray:
    """Costs on the line of `px (..., n)` against `py (..., m)`, `(...)` of this type."""
    return _on_rows((p, 1.0, False, np.dtype(dtype).name), px, py)[0]


def slope_rows(px: JaxArray, py: JaxArray, p: float, factor: float, dtype: DType) -> tuple[JaxArray, ...]:
    """`factor` times the same, and its derivatives by `px` and `py`."""
    return _on_rows((p, factor, True, np.dtype(dtype).name), px, py)


def _on_rows(options: tuple[Any, ...], px: JaxArray, py: JaxArray) -> tuple[JaxArray, ...]:
    lead, n, m = px.shape[:-1], px.shape[-1], py.shape[-1]
    found = _by_rows(_rows_recipe, options)(px.reshape(-1, n), py.reshape(-1, m))
    return tuple(a.reshape(*lead, *a.shape[1:]) for a in found)


def _by_rows(make: Make, options: tuple[Any, ...]) -> Callable[..., tuple[JaxArray, ...]]:
    """A function of tables of as many rows. A batch of those is one of more rows."""
    jax = sys.modules["jax"]

    @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator]
    def run(*tables: JaxArray) -> tuple[JaxArray, ...]:
        return _launched(make(*(a.shape for a in tables), *options), *tables)

    @run.def_vmap  # type: ignore[untyped-decorator]
    def _(size: int, in_batches: list[bool], *given: JaxArray) -> Any:
        tables = [
            a if batched else jax.numpy.broadcast_to(a, (size, *a.shape))
            for a, batched in zip(given, in_batches, strict=True)
        ]
        found = run(*(a.reshape(-1, a.shape[-1]) for a in tables))
        return tuple(a.reshape(size, -1, *a.shape[1:]) for a in found), (True,) * len(found)

    launched: Callable[..., tuple[JaxArray, ...]] = run
    return launched


def in_programs(launched: Callable[..., Any], plain: Callable[..., Any], *given: Any) -> Any:
    """What `launched` finds in programs for a GPU, and `plain` in others; derivatives are those of `plain`."""
    jax = sys.modules["jax"]

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def run(*given: Any) -> Any:
        return jax.lax.platform_dependent(*given, **{PLATFORM: launched}, default=plain)

    @run.defjvp  # type: ignore[untyped-decorator]
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        return jax.jvp(plain, primals, tangents)

    return run(*given)


def rows_refusal(theta: Any) -> str | None:
    """Why programs for a GPU cannot launch our kernels on rows of this array, or None if they can."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(theta, jax.Array):
        return "it takes arrays of JAX"
    return refusal(theta, theta)


def check_rows(theta: JaxArray, tolerance: float, rounding: float, plain: Callable[..., JaxArray]) -> JaxArray:
    """What `plain(theta)` finds: rows made of unit length, or NaN if they are off by more than `tolerance`."""
    run = _by_rows(_check_recipe, (tolerance, rounding))
    checked: JaxArray = in_programs(lambda rows: run(rows)[0], plain, theta)
    return checked


def small_refusal(x: JaxArray, y: JaxArray, slices: int, memory: int) -> str | None:
    """Why a program for a GPU cannot launch a whole step on these clouds, or None if it can."""
    if x.ndim != 2 or x.shape != y.shape:
        return "it takes two clouds of one size"
    if (reason := refusal(x, y)) is not None:
        return reason
    from orthoslice.backend.kernels.cuda.loss import is_small_distance

    a, b = Recorder(gpus()[0], (x.shape, y.shape)).arguments
    return None if is_small_distance(a, b, slices, memory) else "it takes clouds that are sorted on chip"


def small_step(
    x: JaxArray,
    y: JaxArray,
    theta: JaxArray,
    p: float,
    wanted: tuple[bool, bool],
    scaling: tuple[float, float, int] | None,
    dtype: DType,
    plain: Callable[..., tuple[JaxArray, ...]],
    others: object,
) -> tuple[JaxArray, ...]:
    """What `plain(x, y, theta, others)` finds, by launches in programs for a GPU.

    That is the mean of the costs on the line, all of them in this type, the exponent if there is a rule for
    `scaling`, and wanted gradients.
    """
    jax = sys.modules["jax"]

    @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator]
    def launched(x: JaxArray, y: JaxArray, theta: JaxArray, others: object) -> tuple[JaxArray, ...]:
        recipe = _small_recipe(x.shape, theta.shape, p, wanted, scaling, np.dtype(dtype).name)
        calls = _calls_of_step(recipe, any(wanted))
        mean, scores, *found = _launched_in_calls(recipe, calls, x, y, theta)
        gradients = []
        if any(wanted):
            whole, n = found.pop(), x.shape[0]
            gradients = [whole[:n], whole[n:]] if all(wanted) else [whole]
        return (mean, scores, *found, *gradients)

    @launched.def_vmap  # type: ignore[untyped-decorator]
    def _(size: int, in_batches: Any, *given: Any) -> Any:
        axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batches))
        found = jax.vmap(plain, in_axes=axes, axis_size=size)(*given)
        return found, (True,) * len(found)

    answer: tuple[JaxArray, ...] = in_programs(launched, plain, x, y, theta, others)
    return answer


@functools.lru_cache(maxsize=256)
def _small_recipe(
    shape: tuple[int, int],
    theta_shape: tuple[int, int],
    p: float,
    wanted: tuple[bool, bool],
    scaling: tuple[float, float, int] | None,
    kind: str,
) -> Recipe:
    from orthoslice.backend.kernels.cuda.jax_step import small_program

    return _loaded(
        lambda x, y, theta: small_program(x, y, theta, p, wanted, scaling, kind), (shape, shape, theta_shape)
    )


def _launched(recipe: Recipe, *given: JaxArray) -> tuple[JaxArray, ...]:
    """The outputs of a recipe, by one call."""
    found = _call(recipe.launches, recipe.results, given)
    return tuple(found[k] for k in recipe.outputs)


def _launched_in_calls(
    recipe: Recipe, calls: Sequence[Sequence[IntArray]], *given: JaxArray
) -> tuple[JaxArray, ...]:
    """The same by several calls, none of which writes what another has written.

    XLA leaves out calls whose results are not used.
    """
    known = dict(enumerate(given, 1))
    for launches in calls:
        words, read, filled = part_of(launches, known)
        results = [recipe.results[source - len(given) - 1] for source in filled]
        found = _call(words, results, [known[source] for source in read])
        known.update(zip(filled, found, strict=True))
    return tuple(known[len(given) + 1 + k] for k in recipe.outputs)


def _calls_of_step(recipe: Recipe, with_gradients: bool) -> list[tuple[IntArray, ...]]:
    """How the launches of a small step are shared out to calls.

    XLA makes a graph of a program of five calls and more, which is started at once. With gradients there are as
    many anyway. The last launch tells the costs of all directions, which most programs have no use for.
    """
    if with_gradients:
        return [recipe.launches[:-1], recipe.launches[-1:]]
    return [(launch,) for launch in recipe.launches]


def _call(launches: Sequence[IntArray], results: Sequence[Output], given: Sequence[JaxArray]) -> list[JaxArray]:
    """The results of launches, in a call."""
    jax = sys.modules["jax"]
    # Without float64 in programs, it is memory like any other.
    is_opaque = not jax.config.jax_enable_x64
    shapes = [
        jax.ShapeDtypeStruct(*((*shape, 2), "int32") if is_opaque and kind == "float64" else (shape, kind))
        for shape, kind in results
    ]
    words = np.concatenate([np.asarray([len(launches)], dtype=np.int64), *launches])
    found: list[JaxArray] = jax.ffi.ffi_call(_TARGET, shapes)(*given, recipe=words)
    return found


@functools.lru_cache(maxsize=1024)
def _check_recipe(shape: tuple[int, int], tolerance: float, rounding: float) -> Recipe:
    from orthoslice.backend.kernels.cuda.rows import check_rows

    return _loaded(lambda theta: [check_rows(theta, tolerance, rounding)], (shape,))


@functools.lru_cache(maxsize=1024)
def _rows_recipe(
    x_shape: tuple[int, int], y_shape: tuple[int, int], p: float, factor: float, with_slopes: bool, kind: str
) -> Recipe:
    from orthoslice.backend.kernels.cuda.jax_step import add_parts
    from orthoslice.backend.kernels.cuda.rows import match_rows

    def run(px: Any, py: Any) -> list[Any]:
        scores, *slopes = match_rows(px, py, p, factor, (with_slopes, with_slopes))
        scores = add_parts(scores.reshape((scores.numel(), 1)), kind)
        return [scores, *slopes] if with_slopes else [scores]

    return _loaded(run, (x_shape, y_shape))


def _loaded(run: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> Recipe:
    """The recipe of what `run` does, with its kernels loaded on all GPUs."""
    from orthoslice.backend.kernels.numba.launching import enter

    devices = gpus()
    recipe = record(run, devices[0], shapes)
    for kernel in recipe.kernels:
        for device in devices:
            handle = compiling.compiled_function(kernel.name, kernel.program, device, kernel.shared_bytes)
            enter(kernel.key, device, handle)
    return recipe
