"""Threads that share the work on arrays in host memory, and a BLAS that does not fight them."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")


def default_workers() -> int:
    """As many threads as this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Seconds that a caller gives the pool to begin a piece. Threads wake up in far less, and a caller that took the
# piece at once would be one thread more than there are cores.
_PATIENCE = 0.05


class _Here(threading.local):
    """Whether the current thread is one of the pool's."""

    is_in_pool = False

    def mark(self) -> None:
        self.is_in_pool = True


_here = _Here()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(default_workers(), "orthoslice", _here.mark)


def ordered_map(work: Iterable[Callable[[], T]], workers: int) -> Iterator[T]:
    """Results of the work in its order; at most `workers` pieces are under way at any time.

    `work` is iterated as earlier pieces finish, so that the data of all pieces is never held at once.
    """
    if workers == 1:
        for piece in work:
            yield piece()
        return
    with single_threaded_blas():
        waiting: deque[tuple[Callable[[], T], Future[T]]] = deque()
        for piece in work:
            waiting.append((piece, _submit(piece)))
            if len(waiting) >= workers:
                yield _finish(*waiting.popleft())
        while waiting:
            yield _finish(*waiting.popleft())


def _submit(piece: Callable[[], T]) -> Future[T]:
    """Have a thread of the pool do the piece, with the caller's context; while Python shuts down, none will."""
    try:
        return _pool().submit(functools.partial(contextvars.copy_context().run, piece))
    except RuntimeError as error:
        if "shutdown" not in str(error):
            raise
    return Future()


def _finish(piece: Callable[[], T], future: Future[T]) -> T:
    """The piece's result. The caller does a piece that no thread of the pool begins.

    All threads of the pool may wait for this caller: it may run in one of them, by way of a user's control or
    sampler that calls the library, or in a thread that such a control has started.
    """
    if not (future.running() or future.done()):
        wait([future], 0 if _here.is_in_pool else _PATIENCE)
    return piece() if future.cancel() else future.result()


class _BlasUse:
    """The number of callers inside `single_threaded_blas`, and the limit that the last of them undoes."""

    def __init__(self) -> None:
        # Reentrant: a thread may fork, in a signal handler say, while it holds the lock.
        self.lock = threading.RLock()
        self.users = 0
        self.limit: Any = None


_blas_use = _BlasUse()


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """One BLAS thread inside each worker; the first user sets it and the last one restores what was before."""
    use = _blas_use
    with use.lock:
        if use.users == 0:
            use.limit = _blas().limit(limits=1, user_api="blas")
        use.users += 1
    try:
        yield
    finally:
        with use.lock:
            use.users -= 1
            if use.users == 0:
                use.limit.restore_original_limits()


def _before_fork() -> None:
    # The lock keeps a fork from falling between setting the limit and counting its user.
    _blas_use.lock.acquire()


def _after_fork_in_parent() -> None:
    _blas_use.lock.release()


def _after_fork_in_child() -> None:
    """Reset all state: a forked child lacks the pool's threads, the limit's users and the lock's holder."""
    global _blas_use
    _pool.cache_clear()
    if _blas_use.users > 0:
        _blas_use.limit.restore_original_limits()
    _blas_use = _BlasUse()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
