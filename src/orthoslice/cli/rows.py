"""Rows that come in pieces, gathered within a budget of memory."""

from __future__ import annotations

import shutil
import tempfile
from typing import IO, Any

import numpy as np

from orthoslice.backend.arrays import HostArray
from orthoslice.cli.formats.source import FileError

# Room that is left on the disk when rows are put aside there.
_SPARE_BYTES = 1 << 28


def check_disk(name: str, size: int) -> None:
    """Raise unless the disk has room for `size` bytes of rows."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < size + _SPARE_BYTES:
        raise FileError(
            f"{name}: its rows must fit in --memory or in {tempfile.gettempdir()}, where {free:,} "
            "bytes are left. Choose --columns, raise --memory, or set TMPDIR to another disk."
        )


class Rows:
    """Rows that come in pieces: kept in memory up to a budget of bytes, and then in a temporary file."""

    def __init__(self, name: str, dtype: np.dtype[Any], budget: int) -> None:
        self.name, self.dtype, self.budget = name, dtype, budget
        self.pieces: list[HostArray] = []
        self.file: IO[bytes] | None = None
        self.n_bytes = 0

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; a map of it keeps it."""
        if self.file is not None:
            self.file.close()

    def add(self, piece: HostArray) -> None:
        piece = np.ascontiguousarray(piece, dtype=self.dtype)
        self.n_bytes += piece.nbytes
        if self.file is None and self.n_bytes > self.budget:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 (closed on the way out)
            for kept in self.pieces:
                self._write(kept)
            self.pieces = []
        if self.file is None:
            # A view would keep all columns of the piece alive.
            self.pieces.append(piece.copy() if piece.base is not None else piece)
        else:
            self._write(piece)

    def _write(self, piece: HostArray) -> None:
        assert self.file is not None
        check_disk(self.name, piece.nbytes)
        piece.tofile(self.file)

    def whole(self, n_columns: int) -> HostArray:
        """All rows: an array, or a map of the file, which has a handle of its own."""
        if self.file is None:
            return np.concatenate(self.pieces) if len(self.pieces) > 1 else self.pieces[0]
        self.file.flush()
        n_rows = self.n_bytes // (self.dtype.itemsize * n_columns)
        return np.memmap(self.file, dtype=self.dtype, mode="r", shape=(n_rows, n_columns))
