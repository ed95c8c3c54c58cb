"""How the kernels of this package are compiled."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from orthoslice.backend.kernels.compile_notice import say_if_slow
from orthoslice.backend.kernels.when_to_compile import sources_digest

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a loop to serial machine code that releases the GIL.

    Without numba the plain Python function is returned, slower by a factor of about a hundred. No operation
    calls it then, and kernels that rest on the vector code of `lanes.py` need numba.

    Examples
    --------
    >>> @compiled
    ... def double(value: int) -> int:
    ...     return 2 * value
    >>> double(21)
    42
    """
    try:
        njit: Callable[..., Any] = importlib.import_module("numba").njit
    except ImportError:
        return function
    kernel: Function = njit(nogil=True, no_cfunc_wrapper=True)(function)
    _keep_on_disk(kernel, function)
    return _announced(kernel)


def _keep_on_disk(kernel: Any, function: Callable[..., Any]) -> None:
    # There may be no home for a cache, and no files of sources (a zipped install). A newer numba may keep its
    # cache otherwise. Then kernels are compiled in every process.
    with contextlib.suppress(OSError, RuntimeError, ImportError, AttributeError, TypeError):
        from orthoslice.backend.kernels.numba._cache import SealedCache

        # numba checks the kernel's own file only; the digest covers the other files whose code it contains.
        kernel._cache = SealedCache(function, sources_digest())


def _announced(kernel: Function) -> Function:
    """Print a notice when compiling takes long; machine code loaded from the cache does not pass here.

    numba's name for its compiler is private. Without it there is no notice.
    """
    compiler = getattr(kernel, "_compiler", None)
    compile_for = getattr(compiler, "compile", None)
    if compiler is None or compile_for is None:
        return kernel

    @functools.wraps(compile_for)
    def compile_aloud(*signature: object) -> Any:
        with say_if_slow("compiling kernels for this processor, once"):
            return compile_for(*signature)

    compiler.compile = compile_aloud
    return kernel


def summing(function: Function) -> Function:
    """Compile a loop whose sum may be reordered, without which it would not be vector code."""
    kernel = compiled(function)
    getattr(kernel, "targetoptions", {})["fastmath"] = {"reassoc", "contract"}
    return kernel


def processor() -> str:
    """The processor that kernels are compiled for, as a word that is safe in the name of a file."""
    binding = importlib.import_module("llvmlite.binding")
    facts = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def ordering(function: Function) -> Function:
    """Compile a loop over numbers none of which is NaN, without which a minimum would not be vector code."""
    kernel = compiled(function)
    getattr(kernel, "targetoptions", {})["fastmath"] = {"nnan", "nsz"}
    return kernel


def compiled_for_c(signature: Any, function: Callable[..., Any]) -> Any:
    """Compile a function that C code may call at its `address`; kept on disk like other kernels."""
    from numba import cfunc
    from numba.core.ccallback import CFunc

    try:
        kernel = CFunc(function, (signature.args, signature.return_type), locals={}, options={"nopython": True})
        _keep_on_disk(kernel, function)
        with say_if_slow("compiling kernels for this processor, once"):
            kernel.compile()
    except (AttributeError, TypeError):  # what is not public may have changed
        return cfunc(signature)(function)
    return kernel
