"""A notice on stderr while a compiler runs."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

# Shorter waits in all print nothing.
_PATIENCE_S = 1.0

_said: set[str] = set()


class _Waits:
    """The total time spent waiting for one thing: many short waits add up."""

    def __init__(self) -> None:
        self.waiting = 0
        self.waited_s = 0.0
        self.since = 0.0
        self.timer: threading.Timer | None = None

    def begin(self, what: str) -> None:
        """Count one more waiting caller, nested or in another thread: the first starts the clock."""
        self.waiting += 1
        if self.waiting == 1:
            self.since = time.monotonic()
            self.timer = threading.Timer(max(0.0, _PATIENCE_S - self.waited_s), _say, (what,))
            self.timer.daemon = True
            self.timer.start()

    def end(self) -> None:
        """Count one waiting caller less: the last stops the clock."""
        self.waiting -= 1
        if self.waiting == 0 and self.timer is not None:
            self.timer.cancel()
            self.waited_s += time.monotonic() - self.since


_lock = threading.Lock()
_waits: dict[str, _Waits] = {}


@contextlib.contextmanager
def say_if_slow(what: str) -> Iterator[None]:
    """Print `what` to stderr once bodies of this name took more than a second in all, once a process.

    `ORTHOSLICE_QUIET=1` in the environment keeps it silent.
    """
    if what in _said or os.environ.get("ORTHOSLICE_QUIET") == "1":
        yield
        return
    with _lock:
        waits = _waits.setdefault(what, _Waits())
        waits.begin(what)
    try:
        yield
    finally:
        with _lock:
            waits.end()


def _say(what: str) -> None:
    if what not in _said:
        _said.add(what)
        print(f"orthoslice: {what} ... (ORTHOSLICE_QUIET=1 silences this)", file=sys.stderr, flush=True)


def _after_fork_in_child() -> None:
    """Reset all state: a forked child lacks the threads that held the lock or waited."""
    global _lock
    _lock = threading.Lock()
    _waits.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
