"""A word to people who wait for a compiler."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

# Less is not worth a word.
_PATIENCE_S = 1.0

_said: set[str] = set()


@contextlib.contextmanager
def say_if_slow(what: str) -> Iterator[None]:
    """Print `what` to stderr if the body takes more than a second, once a process.

    `ORTHOSLICE_QUIET=1` in the environment keeps it silent.
    """
    if what in _said or os.environ.get("ORTHOSLICE_QUIET") == "1":
        yield
        return
    timer = threading.Timer(_PATIENCE_S, _say, (what,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(what: str) -> None:
    if what not in _said:
        _said.add(what)
        print(f"orthoslice: {what} ... (ORTHOSLICE_QUIET=1 silences this)", file=sys.stderr, flush=True)
