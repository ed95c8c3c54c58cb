"""Threads that share the work on arrays in host memory, and a BLAS that does not fight them."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def default_workers() -> int:
    """As many threads as this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(default_workers(), thread_name_prefix="orthoslice")


# A forked child has the pool but none of its threads: it makes its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def ordered_map(work: Iterable[Callable[[], T]], workers: int) -> Iterator[T]:
    """Results of the work in its order, at most `workers` pieces in hand at any time.

    The pieces are asked for one by one as workers become free, so that what they carry is not held at once.
    """
    if workers == 1:
        for piece in work:
            yield piece()
        return
    with _single_threaded_blas():
        waiting: deque[Future[T]] = deque()
        for piece in work:
            waiting.append(_pool().submit(piece))
            if len(waiting) >= workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: Any = None


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextlib.contextmanager
def _single_threaded_blas() -> Iterator[None]:
    """One BLAS thread inside each worker; the first user sets it and the last one restores what was before."""
    global _blas_users, _blas_limit
    with _blas_lock:
        if _blas_users == 0:
            _blas_limit = _blas().limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()
