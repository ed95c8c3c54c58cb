"""Machine code on disk, sealed: damaged files are compiled again, and a full disk keeps nothing.

numba itself does not check its files: after one was cut short, every later call raises an error, and a changed
one may crash the process in LLVM.

Everything here builds on private names of numba. Where one of them is gone, nothing is kept on disk.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, InTreeCacheLocator
from numba.core.runtime import rtsys

from orthoslice.backend.caching import read, sealed, unsealed
from orthoslice.backend.kernels.when_to_compile import kernel_directory


class _Locator(InTreeCacheLocator):  # type: ignore[misc]
    """Keeps machine code with what else the library keeps, and not beside its sources.

    A directory that can only be read is of use too: it may have been filled when an image was made.
    """

    def get_cache_path(self) -> str:
        return str(kernel_directory())

    @classmethod
    def from_function(cls, function: Callable[..., Any], path: str) -> _Locator:
        return cls(function, path)


class _Found(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class SealedCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of a kernel that is made from sources with this digest."""

    _impl_class = _Found

    def __init__(self, function: Callable[..., Any], digest: str) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), digest
        self._cache_file = _SealedFiles(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: object, target_context: object) -> Any:
        # numba would load the rules of all that it compiles first, which takes longer than its import. Machine
        # code needs no rules, but what it calls to allocate arrays.
        with contextlib.suppress(AttributeError):
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)
        return None

    def save_overload(self, sig: object, data: object) -> None:
        # OSError: a full disk, or a folder that is gone.
        with contextlib.suppress(OSError, AttributeError):
            super().save_overload(sig, data)


class _SealedFiles(IndexDataCacheFile):  # type: ignore[misc]
    """numba's two kinds of files; versions and sources are parts of their seals."""

    def _load(self, path: str) -> Any:
        content = unsealed(read(path), self._context)
        return None if content is None else pickle.loads(content)

    def _save(self, path: str, table: object) -> None:
        with self._open_for_write(path) as file:
            file.write(sealed(self._dump(table), self._context))

    @property
    def _context(self) -> bytes:
        return repr((self._version, self._source_stamp)).encode()

    def _load_index(self) -> Any:
        return self._load(self._index_path) or {}

    def _save_index(self, overloads: object) -> None:
        self._save(self._index_path, overloads)

    def _load_data(self, name: str) -> Any:
        return self._load(self._data_path(name))

    def _save_data(self, name: str, data: object) -> None:
        self._save(self._data_path(name), data)
