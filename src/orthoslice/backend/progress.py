"""A progress bar on stderr, drawn on request."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

Advance: TypeAlias = Callable[[int], None]

_NO_BAR: AbstractContextManager[Advance] = contextlib.nullcontext(lambda done: None)


def progress_bar(what: str, total: int, show: bool) -> AbstractContextManager[Advance]:
    """A function that takes how many more of `total` are done; with `show` it draws a bar."""
    return _bar(what, total) if show else _NO_BAR


@contextlib.contextmanager
def _bar(what: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
