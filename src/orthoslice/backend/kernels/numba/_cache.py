"""Machine code on disk, sealed: damaged files are compiled again, and a full disk keeps nothing.

numba itself does not check its files: after one was cut short, every later call raises an error, and a changed
one may crash the process in LLVM.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

from orthoslice.backend.caching import read, sealed, unsealed


class SealedCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of a kernel that is made from sources with this digest."""

    def __init__(self, function: Callable[..., Any], digest: str) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), digest
        self._cache_file = _SealedFiles(self._cache_path, self._impl.filename_base, stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        # A full disk, or a folder that is gone.
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class _SealedFiles(IndexDataCacheFile):  # type: ignore[misc]
    """numba's two kinds of files; versions and sources are parts of their seals."""

    def _load(self, path: str) -> Any:
        content = unsealed(read(path), self._context)
        return None if content is None else pickle.loads(content)

    def _save(self, path: str, table: Any) -> None:
        with self._open_for_write(path) as file:
            file.write(sealed(self._dump(table), self._context))

    @property
    def _context(self) -> bytes:
        return repr((self._version, self._source_stamp)).encode()

    def _load_index(self) -> Any:
        return self._load(self._index_path) or {}

    def _save_index(self, overloads: Any) -> None:
        self._save(self._index_path, overloads)

    def _load_data(self, name: str) -> Any:
        return self._load(self._data_path(name))

    def _save_data(self, name: str, data: Any) -> None:
        self._save(self._data_path(name), data)
