"""A bar on stderr for those who ask for one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(what: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """A function to call with how many more of `total` are done; it draws a bar if it is to be shown."""
    if not show:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
