"""What is kept on disk from one process to the next: in ``$ORTHOSLICE_CACHE_DIR``, or where the platform says.

A directory that cannot be read or written, for whatever reason, means making things again, not an error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

# No home, no permission, no room.
_UNUSABLE = (OSError, RuntimeError)


def cache_directory() -> Path:
    """Where it is kept; it need not exist."""
    chosen = os.environ.get("ORTHOSLICE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "orthoslice" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "orthoslice"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "orthoslice"


def can_keep() -> bool:
    """Whether anything can be written there."""
    with contextlib.suppress(*_UNUSABLE):
        folder = cache_directory()
        folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    return False


def find(name: str) -> bytes | None:
    """What was kept under this name, or None."""
    try:
        return (cache_directory() / name).read_bytes() or None
    except _UNUSABLE:
        return None


def keep(name: str, content: bytes) -> None:
    """Store something, whole or not at all: other processes may be doing the same."""
    with contextlib.suppress(*_UNUSABLE):
        folder = cache_directory()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as draft:
            path = Path(draft) / name
            path.write_bytes(content)
            path.replace(folder / name)
