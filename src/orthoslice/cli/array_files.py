"""Files of arrays: .npy, .npz, .zarr, and cells in .h5ad."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from orthoslice.cli.mapped import watch_mapped
from orthoslice.cli.sources import FileError, Source, first_line, guarded, need, piece_rows, split
from orthoslice.frames import listed
from orthoslice.labels import Table


def open_array(name: str, path: Path, key: str | None, memory: int) -> Source:
    if path.stat().st_size == 0:
        raise FileError(f"{name}: the file is empty.")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        watch_mapped(path)
    except ValueError as error:
        raise FileError(f"{name}: {_why_not_loaded(error)}") from None
    if not isinstance(array, np.ndarray):
        raise FileError(f"{name}: holds an archive, not one array; rename it to .npz.")
    return _of_array(name, array, memory)


def _why_not_loaded(error: ValueError) -> str:
    text = first_line(error)
    if "ickle" in text or "Python objects" in text:
        return (
            "holds pickled objects, which are never loaded since that can run any program. Save plain numbers."
        )
    if "mmap length" in text or "reshape" in text:
        return "is truncated: it holds fewer numbers than it says."
    return f"cannot be read as a .npy file: {text}"


def open_archive(name: str, path: Path, key: str | None, memory: int) -> Source:
    with zipfile.ZipFile(path) as archive:
        arrays = {i.filename.removesuffix(".npy"): i for i in archive.infolist() if i.filename.endswith(".npy")}
        key = _choose_key(name, key, list(arrays))
        with archive.open(arrays[key]) as member:
            size = _declared_bytes(member)
        size = max(size, arrays[key].file_size)
    if size > memory // 4:
        raise FileError(
            f"{name}: {key!r} takes {size:,} bytes when unpacked, more than a quarter of --memory. Raise "
            "--memory, or save it as .npy, which is read in pieces."
        )
    with np.load(path, allow_pickle=False) as loaded:
        try:
            return _of_array(name, loaded[key], memory)
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


def _of_array(name: str, array: Table, memory: int) -> Source:
    """An array `(n, dim)`, numbers `(n,)`, or records whose fields are columns."""
    if array.dtype.names is not None:
        return _of_records(name, array, memory)
    if array.dtype.kind not in "biuf":
        raise FileError(f"{name}: must hold real numbers; got type {array.dtype}.")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise FileError(f"{name}: must be a table of rows and columns; got an array of shape {array.shape}.")
    columns = [f"x{k}" for k in range(array.shape[1])]
    return Source(name, columns, _array_pieces(name, array, memory), named=False, whole=array)


def _array_pieces(name: str, array: Any, memory: int) -> Callable[[list[int]], Iterator[Table]]:
    """Pieces of whatever has rows that can be sliced."""
    step = piece_rows(memory, array.shape[1])

    def pieces(columns: list[int]) -> Iterator[Table]:
        everything = columns == list(range(array.shape[1]))
        for first in range(0, array.shape[0], step):
            rows = array[first : first + step]
            rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
            yield _floating(name, rows if everything else rows[:, columns])

    return lambda columns: guarded(name, "a table", pieces(columns))


def _floating(name: str, rows: Table) -> Table:
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


def _of_records(name: str, array: Table, memory: int) -> Source:
    assert array.dtype.names is not None
    if array.ndim != 1:
        raise FileError(f"{name}: records must be rows, one after the other; got shape {array.shape}.")
    kinds = {c: array.dtype[c] for c in array.dtype.names}
    skipped = {c: f"type {t}" for c, t in kinds.items() if t.kind not in "biuf" or t.shape}
    columns = list(kinds)
    step = piece_rows(memory, len(columns))

    def pieces(chosen: list[int]) -> Iterator[Table]:
        for first in range(0, len(array), step):
            rows = array[first : first + step]
            yield np.column_stack([_floating(name, np.asarray(rows[columns[k]])) for k in chosen])

    return Source(name, columns, lambda chosen: guarded(name, "a table", pieces(chosen)), skipped)


def open_h5ad(name: str, path: Path, key: str | None, memory: int) -> Source:
    anndata = need("anndata", "cells", "Reading .h5ad files")
    return _of_cells(name, anndata.read_h5ad(path, backed="r"), key, memory)


def open_zarr(name: str, path: Path, key: str | None, memory: int) -> Source:
    if not path.is_dir():
        raise FileError(f"{name}: must be a folder, as .zarr is; got a file.")
    zarr = need("zarr", "cells", "Reading .zarr")
    found = zarr.open(str(path), mode="r")
    if hasattr(found, "shape"):
        return _of_lazy(name, found, memory)
    if found.attrs.get("encoding-type") == "anndata":
        return _of_cells(name, need("anndata", "cells", "Reading cells").io.read_zarr(path), key, memory)
    arrays = dict(found.arrays())
    return _of_lazy(name, arrays[_choose_key(name, key, list(arrays))], memory)


def _of_lazy(name: str, array: Any, memory: int) -> Source:
    """An array of which rows are read when they are asked for."""
    if array.ndim != 2 or np.dtype(array.dtype).kind not in "biuf":
        raise FileError(
            f"{name}: must be a table of real numbers; got an array of shape {tuple(array.shape)} and type "
            f"{array.dtype}."
        )
    columns = [f"x{k}" for k in range(array.shape[1])]
    return Source(name, columns, _array_pieces(name, array, memory), named=False)


def _of_cells(name: str, cells: Any, key: str | None, memory: int) -> Source:
    """The matrix of cells, or an embedding or a layer by its key."""
    if key is None:
        matrix, columns = cells.X, [str(c) for c in cells.var_names]
        if matrix is None:
            raise FileError(f"{name}: has no matrix X; choose one of {listed(list(cells.obsm))} as FILE::KEY.")
    elif key in cells.obsm:
        matrix = np.asarray(cells.obsm[key])
        columns = [f"{key}-{k}" for k in range(matrix.shape[1])]
    elif key in cells.layers:
        matrix, columns = cells.layers[key], [str(c) for c in cells.var_names]
    else:
        raise FileError(f"{name}: holds {listed([*cells.obsm, *cells.layers])}; got {key!r}.")
    if hasattr(matrix, "to_memory"):
        # A sparse matrix in its file: loaded as such, and made dense a piece at a time.
        size = sum(matrix.group[part].nbytes for part in ("data", "indices", "indptr"))
        if size > memory // 4:
            raise FileError(
                f"{name}: its sparse matrix takes {size:,} bytes, more than a quarter of --memory. Raise "
                "--memory, or choose an embedding as FILE::KEY."
            )
        matrix = matrix.to_memory()
    return Source(name, columns, _array_pieces(name, matrix, memory))
