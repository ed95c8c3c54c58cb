"""How the kernels of this package are compiled."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from orthoslice.backend.kernels.waiting import say_if_slow

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a loop to serial machine code that releases the GIL.

    Without numba the plain Python function is returned: it is its own reference, slower by a factor
    of about a hundred and equal in every digit that matters.

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
    # numba may find no directory that it may write its cache to (a read-only or zipped install).
    with contextlib.suppress(RuntimeError):
        from orthoslice.backend.kernels.numba._cache import SealedCache

        # numba checks the kernel's own file only; the digest covers the other files whose code it contains.
        kernel._cache = SealedCache(function, _digest())  # type: ignore[attr-defined]
    return _announced(kernel)


def _announced(kernel: Function) -> Function:
    """Print a notice when compiling takes long; machine code loaded from the cache does not pass here."""
    compiler = kernel._compiler  # type: ignore[attr-defined]
    compile_for = compiler.compile

    @functools.wraps(compile_for)
    def compile_aloud(*signature: Any) -> Any:
        with say_if_slow("compiling kernels for this processor, once"):
            return compile_for(*signature)

    compiler.compile = compile_aloud
    return kernel


@functools.cache
def _digest() -> str:
    """Changes with every file that machine code is made from."""
    here = Path(__file__).parent
    files = [here.parent / "__init__.py", *sorted(here.glob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def summing(function: Function) -> Function:
    """Compile a loop whose sum may be reordered, without which it would not be vector code."""
    kernel = compiled(function)
    getattr(kernel, "targetoptions", {})["fastmath"] = {"reassoc", "contract"}
    return kernel
