"""When kernels pay: small work is left to plain code, until it has taken as long as the compiler would.

Compiling a kernel takes about as long as plain array code takes for `PLAIN_NUMBERS` numbers. So smaller work is
left to plain code until that many numbers were gone through; then the kernel is compiled. That
takes at most twice as long as the better of both. A kernel in the cache needs numba too, which takes about as
long to load as plain code takes for `LOADING_NUMBERS`: a process loads it once plain code went through that
many numbers in place of any kernels.
Numbers are counted, no time is measured: the same calls choose the same.

Nothing here imports numba, which takes longer than many a first call.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import importlib.util
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from orthoslice.backend.caching import cache_directory

PLAIN_NUMBERS = 1 << 24
"""How many numbers plain code goes through before a kernel is compiled; 0 compiles at once."""

LOADING_NUMBERS = 1 << 22
"""How many it goes through, in place of any kernels, before numba is loaded; 0 loads it at once."""

# What a call of plain code takes besides, in numbers it could go through: a loop of small calls is compiled for
# after some two thousand.
_NUMBERS_A_CALL = 1 << 13

# Less work than that comes in one piece.
_FEW_NUMBERS = 1 << 16

_lock = threading.Lock()
_begun: set[str] = set()
_plain: Counter[str] = Counter()

# How many numbers the whole computation will go through: its first piece need not be left to plain code.
_expected = contextvars.ContextVar("orthoslice_expected", default=0)


def expecting(numbers: int) -> contextlib.AbstractContextManager[None]:
    """Let the operations of the body know how many numbers they will be given in all, piece by piece."""
    return contextlib.nullcontext() if numbers <= _FEW_NUMBERS else _expecting(numbers)


def expecting_many() -> contextlib.AbstractContextManager[None]:
    """Let kernels be compiled at once, for what is going to be repeated, such as the steps of a training."""
    return _expecting(PLAIN_NUMBERS + LOADING_NUMBERS + 1)


@contextlib.contextmanager
def _expecting(numbers: int) -> Iterator[None]:
    token = _expected.set(max(numbers, _expected.get()))
    try:
        yield
    finally:
        _expected.reset(token)


def is_kept(kernel: str) -> bool:
    """Whether the machine code of a kernel was on disk when this process began."""
    return kernel in _on_disk()


def is_ready(kernel: str) -> bool:
    """Whether a kernel was used in this process, or its machine code is on disk."""
    return kernel in _begun or is_kept(kernel)


def pays(kernel: str, numbers: int) -> bool:
    """Whether to use a kernel rather than have plain code go through `numbers` numbers."""
    if kernel in _begun:
        return True
    expected = max(numbers, _expected.get())
    if is_kept(kernel):
        return bool(_begun) or _plain.total() + expected > LOADING_NUMBERS
    # The first kernel of a process has to load numba besides.
    return _plain[kernel] + expected > PLAIN_NUMBERS + (0 if _begun else LOADING_NUMBERS)


def count_plain(kernel: str, numbers: int) -> None:
    """Note that plain code went through `numbers` numbers in place of a kernel."""
    with _lock:
        _plain[kernel] += numbers + _NUMBERS_A_CALL


def begin(kernel: str) -> bool:
    """Use a kernel from now on; whether that is new."""
    if kernel in _begun:
        return False
    with _lock:
        is_new = kernel not in _begun
        _begun.add(kernel)
        return is_new


def keep_ready(kernel: str) -> None:
    """Note on disk that a kernel is in the cache, which numba has written."""
    if is_kept(kernel):
        return
    with contextlib.suppress(OSError, RuntimeError):
        folder = _marks()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / kernel).touch()


@functools.cache
def _on_disk() -> frozenset[str]:
    with contextlib.suppress(OSError, RuntimeError):
        return frozenset(os.listdir(_marks()))
    return frozenset()


def _marks() -> Path:
    """Holds an empty file for every kernel that was compiled from these sources by this numba."""
    return kernel_directory() / f"ready-{sys.implementation.cache_tag}-{_stamp()[:16]}"


def kernel_directory() -> Path:
    """Where the machine code of this installation is kept.

    In ``$ORTHOSLICE_CACHE_DIR``, in ``$NUMBA_CACHE_DIR`` if only that is set, or where the platform says.
    """
    chosen = None if os.environ.get("ORTHOSLICE_CACHE_DIR") else os.environ.get("NUMBA_CACHE_DIR")
    installation = hashlib.sha256(str(Path(__file__).parent).encode()).hexdigest()[:16]
    return (Path(chosen) if chosen else cache_directory()) / f"numba-{installation}"


@functools.cache
def sources_digest() -> str:
    """Changes with every file that machine code is made from."""
    here = Path(__file__).parent
    files = [here / "__init__.py", *sorted((here / "numba").glob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@functools.cache
def _stamp() -> str:
    found = importlib.util.find_spec("numba")
    facts = os.stat(found.origin) if found is not None and found.origin is not None else None
    compiler = None if facts is None else (facts.st_mtime_ns, facts.st_size)
    return hashlib.sha256(f"{sources_digest()} {compiler}".encode()).hexdigest()
