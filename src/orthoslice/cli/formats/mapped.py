"""Files that are mapped into memory, and cut short by others while they are read."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from pathlib import Path
from typing import Any

from orthoslice.backend.markup import shown

_sizes: dict[Path, int] = {}


def watch_mapped(path: Path) -> None:
    """Have the process end in one line, with exit code 2, where this file is cut short: no copy can be trusted.

    Reading mapped memory beyond the end of the file raises SIGBUS, which kills the process.
    """
    if hasattr(signal, "SIGBUS"):
        _sizes[path] = path.stat().st_size
        _handler()


@functools.cache
def _handler() -> Any:
    """The handler of SIGBUS, kept for good.

    Python runs its handlers after the current instruction, and the failed read never ends: the system itself
    must call this one, in the thread that reads.
    """
    listen = ctypes.CDLL(None).signal
    listen.restype, listen.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)

    def tell(_: int) -> None:
        short = [str(path) for path, size in _sizes.items() if not path.exists() or path.stat().st_size < size]
        if not short:
            listen(signal.SIGBUS, before)
            return
        os.write(2, f"Error: {shown(', '.join(short))}: was cut short while it was read.\n".encode())
        os._exit(2)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(tell)
    before = listen(signal.SIGBUS, ctypes.cast(handler, ctypes.c_void_p))
    return handler
