"""Output files, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from orthoslice.backend.stopping import interrupts


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write; it takes the place of `path` when all of it is written.

    A full disk, an error or Ctrl-C leave what was there before, and nothing beside it. A link stays, and the
    file it points to is replaced; the file keeps its permissions. What is no plain file, such as a pipe, is
    written to directly.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "answer.txt"
    ...     with replacing(path) as file:
    ...         _ = file.write(b"42")
    ...         print(path.exists())
    ...     path.read_bytes()
    False
    b'42'
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    draft = target.with_name(f".orthoslice-{secrets.token_hex(8)}")
    with interrupts.raising():
        try:
            with draft.open("xb") as file:
                yield file
            if target.exists():
                shutil.copymode(target, draft)
            draft.replace(target)
        except OSError as error:
            # The message names `path`, not the temporary file.
            raise OSError(error.errno, f"cannot be written: {error.strerror or error}", str(path)) from error
        finally:
            draft.unlink(missing_ok=True)
