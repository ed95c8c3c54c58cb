"""Files of arrays: .npy, .npz, .zarr, and cells in .h5ad."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from orthoslice.backend.arrays import HostArray
from orthoslice.check.frames import listed
from orthoslice.cli.formats.mapped import watch_mapped
from orthoslice.cli.formats.source import (
    FileError,
    How,
    Numbered,
    Source,
    check_quarter,
    check_width,
    first_line,
    guarded,
    is_all,
    need,
    piece_rows,
    split,
)
from orthoslice.cli.rows import check_disk

# Bytes of a chunk that is read whatever the memory.
_SMALL_CHUNK = 1 << 22


def open_array(name: str, path: Path, key: str | None, how: How) -> Source:
    if path.stat().st_size == 0:
        raise FileError(f"{name}: the file is empty.")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        watch_mapped(path)
    except ValueError as error:
        raise FileError(f"{name}: {_why_not_loaded(error)}") from None
    if not isinstance(array, np.ndarray):
        raise FileError(f"{name}: holds an archive, not one array; rename it to .npz.")
    return _of_array(name, array, how.memory)


def _why_not_loaded(error: ValueError) -> str:
    text = first_line(error)
    if "ickle" in text or "Python objects" in text:
        return (
            "holds pickled objects, which are never loaded since that can run any program. Save plain numbers."
        )
    if "mmap length" in text or "reshape" in text:
        return "is truncated: it holds fewer numbers than it says."
    return f"cannot be read as a .npy file: {text}"


def open_archive(name: str, path: Path, key: str | None, how: How) -> Source:
    with zipfile.ZipFile(path) as archive:
        arrays = {i.filename.removesuffix(".npy"): i for i in archive.infolist() if i.filename.endswith(".npy")}
        key = _choose_key(name, key, list(arrays))
        size = arrays[key].file_size
        if size <= how.memory // 4:
            with archive.open(arrays[key]) as member:
                size = max(size, _declared_bytes(member))
    check_quarter(
        name, repr(key), size, how.memory, "save it as .npy, which is read in pieces", how=" when unpacked"
    )
    with np.load(path, allow_pickle=False) as loaded:
        try:
            return _of_array(name, loaded[key], how.memory)
        except ValueError as error:
            raise FileError(f"{name}: {_why_not_loaded(error)}") from None


def _declared_bytes(member: IO[bytes]) -> int:
    """What an array says it takes, before a byte of it is unpacked."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    return int(np.prod([float(n) for n in shape]) * dtype.itemsize)


def _choose_key(name: str, key: str | None, keys: list[str]) -> str:
    if key is None and len(keys) == 1:
        return keys[0]
    if key in keys:
        return str(key)
    rule = (
        "must hold an array"
        if not keys
        else f"holds {listed(keys)}; choose one as in {split(name)[0]}::{keys[0]}"
    )
    raise FileError(f"{name}: {rule}.")


def _of_array(name: str, array: HostArray, memory: int) -> Source:
    """An array `(n, dim)`, numbers `(n,)`, or records whose fields are columns."""
    if array.dtype.names is not None:
        return _of_records(name, array, memory)
    if array.dtype.kind not in "biuf":
        raise FileError(f"{name}: must hold real numbers; got type {array.dtype}.")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise FileError(f"{name}: must be a table of rows and columns; got an array of shape {array.shape}.")
    columns = Numbered("x", array.shape[1])
    return Source(name, columns, _array_pieces(name, array, memory), named=False, whole=array)


def _array_pieces(name: str, array: Any, memory: int) -> Callable[[list[int]], Iterator[HostArray]]:
    """Pieces of whatever has rows that can be sliced."""
    step = piece_rows(memory, array.shape[1])

    def pieces(columns: list[int]) -> Iterator[HostArray]:
        everything = is_all(columns, array.shape[1])
        for first in range(0, array.shape[0], step):
            rows = array[first : first + step]
            rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
            yield _floating(name, rows if everything else rows[:, columns])

    return lambda columns: guarded(name, "a table", pieces(columns))


def _floating(name: str, rows: HostArray) -> HostArray:
    """The same numbers in float32 or float64, none of them rounded."""
    if rows.dtype.kind == "f":
        wide = np.float64 if rows.dtype.itemsize > 4 else np.float32
        return rows.astype(wide, copy=False)
    # Compared as integers: 2^53 + 1 would have become 2^53.
    if rows.dtype.itemsize == 8 and rows.size and (rows.max() > 2**53 or rows.min() < -(2**53)):
        raise FileError(
            f"{name}: holds integers above 2^53, which floating point would round. Are they identifiers? Leave "
            "them out with --columns."
        )
    return rows.astype(np.float64)


def _of_records(name: str, array: HostArray, memory: int) -> Source:
    assert array.dtype.names is not None
    if array.ndim != 1:
        raise FileError(f"{name}: records must be rows, one after the other; got shape {array.shape}.")
    kinds = {c: array.dtype[c] for c in array.dtype.names}
    skipped = {c: f"type {t}" for c, t in kinds.items() if t.kind not in "biuf" or t.shape}
    columns = list(kinds)
    step = piece_rows(memory, len(columns))

    def pieces(chosen: list[int]) -> Iterator[HostArray]:
        for first in range(0, len(array), step):
            rows = array[first : first + step]
            yield np.column_stack([_floating(name, np.asarray(rows[columns[k]])) for k in chosen])

    return Source(
        name,
        columns,
        lambda chosen: guarded(name, "a table", pieces(chosen)),
        skipped=skipped,
        is_table=True,
    )


def open_h5ad(name: str, path: Path, key: str | None, how: How) -> Source:
    need("anndata", "cells", "Reading .h5ad files")
    return _of_cells(name, need("h5py", "cells", "Reading .h5ad files").File(path, "r"), key, how.memory)


def open_zarr(name: str, path: Path, key: str | None, how: How) -> Source:
    if not path.is_dir():
        raise FileError(f"{name}: must be a folder, as .zarr is; got a file.")
    zarr = need("zarr", "cells", "Reading .zarr")
    found = zarr.open(str(path), mode="r")
    if hasattr(found, "shape"):
        return _of_lazy(name, found, how.memory)
    if found.attrs.get("encoding-type") == "anndata":
        need("anndata", "cells", "Reading cells")
        return _of_cells(name, found, key, how.memory)
    arrays = dict(found.arrays())
    return _of_lazy(name, arrays[_choose_key(name, key, list(arrays))], how.memory)


def _of_lazy(name: str, array: Any, memory: int, columns: Sequence[str] | None = None) -> Source:
    """An array whose rows are read on demand."""
    if array.ndim != 2 or np.dtype(array.dtype).kind not in "biuf":
        raise FileError(
            f"{name}: must be a table of real numbers; got an array of shape {tuple(array.shape)} and type "
            f"{array.dtype}."
        )
    # Chunks that were never written take no room in the file, but full room here.
    if 8 * math.prod(array.shape) > memory // 4:
        check_disk(name, 8 * math.prod(array.shape))
    if array.chunks is not None:
        size = math.prod(array.chunks) * array.dtype.itemsize
        if size > _SMALL_CHUNK:
            check_quarter(name, "a chunk of it", size, memory, "write it in smaller chunks")
    pieces = _array_pieces(name, array, memory)
    if columns is None:
        return Source(name, Numbered("x", array.shape[1]), pieces, named=False)
    return Source(name, columns, pieces)


def _of_cells(name: str, cells: Any, key: str | None, memory: int) -> Source:
    """The matrix of cells, or an embedding or a layer by its key; nothing else of the file is read."""
    embeddings, layers = (list(cells[part]) if part in cells else [] for part in ("obsm", "layers"))
    if key is not None and key not in (*embeddings, *layers):
        raise FileError(f"{name}: holds {listed([*embeddings, *layers])}; got {key!r}.")
    if key is None and "X" not in cells:
        raise FileError(f"{name}: has no matrix X; choose one of {listed(embeddings)} as FILE::KEY.")
    matrix = cells["X"] if key is None else cells["obsm" if key in embeddings else "layers"][key]
    if not hasattr(matrix, "shape"):
        matrix = _loaded_matrix(name, matrix, memory)
    n_columns = matrix.shape[1] if len(matrix.shape) == 2 else 0
    if key in embeddings:
        columns: Sequence[str] = Numbered(f"{key}-", n_columns)
    else:
        check_width(name, n_columns, memory, "choose an embedding as FILE::KEY")
        columns = _names_of(name, cells["var"], n_columns, memory)
    if hasattr(matrix, "chunks"):
        return _of_lazy(name, matrix, memory, columns)
    return Source(name, columns, _array_pieces(name, matrix, memory))


def _loaded_matrix(name: str, group: Any, memory: int) -> Any:
    """A sparse matrix, which is made dense a piece at a time, or a data frame as an array."""
    remedy = "choose an embedding as FILE::KEY"
    # A matrix stored by columns may claim any number of rows, and each takes a pointer when stored by rows.
    size = _stored_bytes(group) + 8 * sum(int(n) for n in group.attrs.get("shape", ()))
    check_quarter(name, "its sparse matrix", size, memory, remedy)
    found = need("anndata", "cells", "Reading cells").io.read_elem(group)
    if not hasattr(found, "toarray"):
        return np.asarray(found)
    # Indices outside of the matrix would be written to silently.
    found.check_format(full_check=True)
    return found


def _stored_bytes(element: Any) -> int:
    """What an array, or all arrays of a group, take in memory."""
    if hasattr(element, "shape"):
        return int(math.prod(element.shape) * element.dtype.itemsize)
    return sum(_stored_bytes(element[part]) for part in element)


def _names_of(name: str, var: Any, count: int, memory: int) -> list[str]:
    """The names of the columns of cells."""
    index = var if hasattr(var, "shape") else var[var.attrs["_index"]]
    check_quarter(
        name, "the names of columns", _stored_bytes(index), memory, "choose an embedding as FILE::KEY"
    )
    found = need("anndata", "cells", "Reading cells").io.read_elem(index)
    if getattr(found.dtype, "names", None):
        # Records, as files had before anndata 0.7: the names come first.
        found = found[found.dtype.names[0]]
    names = [c.decode() if isinstance(c, bytes) else str(c) for c in found]
    if len(names) != count:
        raise FileError(f"{name}: must have a name for each of {count:,} columns; got {len(names):,}.")
    return names
