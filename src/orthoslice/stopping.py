"""Ctrl-C that ends an estimate with what it has, for programs that would rather show that than nothing."""

from __future__ import annotations

import contextlib
import contextvars
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Stop:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = False


_current: contextvars.ContextVar[Stop | None] = contextvars.ContextVar("orthoslice_stop", default=None)


def stop_asked() -> bool:
    """Whether the estimate under way shall end with the directions it has."""
    stop = _current.get()
    return stop is not None and stop.asked


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Within this, the first Ctrl-C ends an estimate early and the second one interrupts as usual.

    The estimate has the blocks of directions that were done, and its error bar says what they are worth. Before
    the first block is done there is none: Ctrl-C interrupts then.

    Examples
    --------
    >>> import signal, numpy as np, orthoslice as osl
    >>> from orthoslice.stopping import stoppable
    >>> x, y = np.zeros((9, 3)), np.ones((9, 3))
    >>> with stoppable() as stop:
    ...     signal.raise_signal(signal.SIGINT)
    ...     est = osl.sliced_wasserstein(x, y, rtol=1e-9, rng=0, workers=1)
    >>> stop.asked, est.n_directions < 100_000
    (True, True)
    """
    stop = Stop()
    token = _current.set(stop)
    before: Any = signal.getsignal(signal.SIGINT)
    # Only the main thread hears of signals, and a handler that is not Python's could not be put back.
    hears = threading.current_thread() is threading.main_thread() and before is not None

    def ask(*_: Any) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, before)

    if hears:
        signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        _current.reset(token)
        if hears:
            signal.signal(signal.SIGINT, before)
