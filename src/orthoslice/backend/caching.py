"""What is kept on disk from one process to the next: in ``$ORTHOSLICE_CACHE_DIR``, or where the platform says.

A directory that cannot be read or written, for whatever reason, means making things again, not an error. So
does a file that is not what was written: each ends in a checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
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


def read(path: Path | str) -> bytes:
    """What a file holds; nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    return b""


def sealed(content: bytes, context: bytes = b"") -> bytes:
    """Content followed by a checksum of it and of what it was made from."""
    return content + hashlib.sha256(context + content).digest()


def unsealed(file: bytes, context: bytes = b"") -> bytes | None:
    """What was sealed, or None if that is not what the file holds.

    Examples
    --------
    >>> unsealed(sealed(b"table"))
    b'table'
    >>> unsealed(sealed(b"table")[1:])
    """
    content = file[: -hashlib.sha256().digest_size]
    return content if sealed(content, context) == file else None


def find(name: str) -> bytes | None:
    """What was kept under this name, or None."""
    with contextlib.suppress(*_UNUSABLE):
        return unsealed(read(cache_directory() / name))
    return None


def keep(name: str, content: bytes) -> None:
    """Store something, whole or not at all: other processes may be doing the same."""
    with contextlib.suppress(*_UNUSABLE):
        folder = cache_directory()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as draft:
            path = Path(draft) / name
            path.write_bytes(sealed(content))
            path.replace(folder / name)
