"""Ctrl-C: how it ends a program, and how it ends an estimate early with the directions done by then."""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

EXIT_INTERRUPTED = 130


class Interrupts:
    """A handler of Ctrl-C for the whole life of a program, start and end included: it ends the process at once.

    `KeyboardInterrupt` would be printed or swallowed while modules load or finalise, and could leave a lock
    held. It is raised only within :meth:`raising`, where there is something to save or tidy up.
    """

    def __init__(self) -> None:
        self.heard = False
        self.words = ""
        self._raising = 0

    def __call__(self, *_: object) -> NoReturn:
        self.heard = True
        if self._raising:
            raise KeyboardInterrupt
        # Erase a bar or a spinner, and show the cursor that it hid.
        tidy = "\r\x1b[2K\x1b[?25h" if os.isatty(2) else ""
        os.write(2, (tidy + self.words).encode())
        os._exit(EXIT_INTERRUPTED)

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Within this, Ctrl-C raises `KeyboardInterrupt`."""
        self._raising += 1
        try:
            yield
        finally:
            self._raising -= 1


interrupts = Interrupts()
"""That of the command line."""


def quietly_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Say nothing of a Ctrl-C that came up in a finaliser: `interrupts.heard` remembers it."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


class Stop:
    """Whether Ctrl-C has asked the estimate to stop."""

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
    >>> from orthoslice.backend.stopping import stoppable
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
    # Only the main thread gets signals, and a handler that is not Python's could not be restored.
    hears = threading.current_thread() is threading.main_thread() and before is not None

    def ask(*_: object) -> None:
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
