"""Files of named columns: text with delimiters, .parquet and .feather, all read by Arrow."""

from __future__ import annotations

import ctypes
import importlib
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from orthoslice.backend.arrays import Table
from orthoslice.cli.mapped import watch_mapped
from orthoslice.cli.sources import FileError, Source, check_width, guarded, need, piece_rows, shown_name

# As much of a text file as tells its delimiter, whether it has a header, and which columns hold numbers.
_BLOCK_BYTES = 1 << 20

# An integer that float64 may not hold, and that Python reads in a moment.
_INTEGER = re.compile(r"\s*[+-]?[0-9]{16,400}\s*")
# What a column of text takes in a reader of Arrow's, which has tables of all words for a missing value.
_COLUMN_BYTES = 1 << 14


def open_csv(name: str, path: Path, key: str | None, memory: int) -> Source:
    return _open_delimited(name, path, ",", memory)


def open_tsv(name: str, path: Path, key: str | None, memory: int) -> Source:
    return _open_delimited(name, path, "\t", memory)


def _open_delimited(name: str, path: Path, delimiter: str, memory: int) -> Source:
    with path.open("rb") as file:
        if not file.seekable():
            return open_stream(name, file, memory, delimiter)
        start = _beginning(name, file, memory)
    return _of_text(name, start, lambda: path.open("rb"), delimiter, memory)


def open_stream(name: str, stream: IO[bytes], memory: int, delimiter: str = ",") -> Source:
    """Text that comes through a pipe: copied to a temporary file first, since it is read twice."""
    kept = tempfile.TemporaryFile()  # noqa: SIM115 (its reader closes it)
    shutil.copyfileobj(stream, kept)
    kept.seek(0)
    start = _beginning(name, kept, memory)
    kept.seek(0)
    return _of_text(name, start, lambda: kept, delimiter, memory)


def _beginning(name: str, file: IO[bytes], memory: int) -> bytes:
    """The first block of a text, or as much as its first two lines take."""
    start = file.read(_BLOCK_BYTES)
    while len(start) >= _BLOCK_BYTES and max(start.count(b"\n"), start.count(b"\r")) < 2:
        more = file.readline(memory // 4)
        if not more:
            break
        start += more
        if len(start) > memory // 4:
            raise FileError(f"{shown_name(name)}: the first two lines must fit in a quarter of --memory.")
    return start


def _of_text(name: str, start: bytes, opened: Callable[[], IO[bytes]], delimiter: str, memory: int) -> Source:
    """Text of which the first block is known, which tells delimiter, header and types of columns."""
    csv = need("pyarrow.csv", "data", "Reading text tables")
    shown = shown_name(name)
    if not start.strip():
        raise FileError(f"{shown}: the file is empty.")
    if b"\0" in start or start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise FileError(f"{shown}: is not text in UTF-8 (perhaps UTF-16, or no text at all). Save it as UTF-8.")
    line = start.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").splitlines()[0]
    if delimiter == "," and b"," not in line:
        delimiter = ";" if b";" in line else "\t" if b"\t" in line else ","
    cells = line.split(delimiter.encode())
    check_width(name, len(cells), memory, "make a file of fewer columns", column_bytes=_COLUMN_BYTES)
    bare = all(_is_number(cell) for cell in cells)
    # Rows further on may be longer than the first.
    block_bytes = _BLOCK_BYTES if len(start) <= _BLOCK_BYTES else 2 * len(start)
    how = (
        csv.ReadOptions(autogenerate_column_names=bare, block_size=block_bytes),
        csv.ParseOptions(delimiter=delimiter),
    )
    if len(start) >= _BLOCK_BYTES:
        start = start[: start.rfind(b"\n") + 1] or start
    block = csv.read_csv(io.BytesIO(start), *how)
    pa = importlib.import_module("pyarrow")
    # What is whole, or missing, in the first block need not be so further on.
    types = {f.name: f.type if pa.types.is_boolean(f.type) else pa.float64() for f in block.schema}

    def batches(wanted: list[str]) -> Iterator[Any]:
        _release()
        numbers = [c for c in wanted if types[c] == pa.float64()]
        large = np.zeros(len(numbers), dtype=bool)

        def read(columns: list[str], kinds: dict[str, Any]) -> Any:
            file.seek(0)
            chosen = csv.ConvertOptions(include_columns=columns, column_types=kinds)
            return csv.open_csv(file, *how, chosen)

        with opened() as file:
            with read(wanted, {c: types[c] for c in wanted}) as reader:
                for batch in reader:
                    large |= _exceeds_integers(batch.select(numbers))
                    yield batch
            # Their text tells what was rounded, which is worth a second look where it may be so.
            suspects = [c for c, is_large in zip(numbers, large, strict=True) if is_large]
            if suspects:
                with read(suspects, dict.fromkeys(suspects, pa.string())) as reader:
                    for batch in reader:
                        _check_exact(shown, batch)

    ours = [f"x{k}" for k in range(len(types))] if bare else None
    source = _of_arrow(name, block.schema, batches, memory, ours)
    for column, theirs in zip(source.columns, block.columns, strict=True):
        if pa.types.is_integer(theirs.type) and _is_rounded(theirs):
            source.skipped[column] = "integers above 2^53, which look like identifiers"
    notes = []
    if bare:
        notes.append(f"{shown}: there is no header, so that columns are called x0, x1, ...")
    elif all(_is_number(cell.strip(b'" ') or b"0") for cell in cells):
        notes.append(f"{shown}: the first row is read as the names of columns, though it looks like numbers.")
    return replace(source, notes=tuple(notes))


def _exceeds_integers(numbers: Any) -> Any:
    """Which of these columns hold numbers from 2^53 on, of which float64 does not have every integer."""
    if not numbers.num_rows or not numbers.num_columns:
        return False
    return (np.abs(numbers.to_tensor(null_to_nan=True).to_numpy()) >= 2.0**53).any(axis=0)


def _check_exact(shown: str, texts: Any) -> None:
    """Raise if one of these is an integer that float64 does not hold."""
    for column in texts.column_names:
        for text in texts.column(column).to_pylist():
            if text is not None and _INTEGER.fullmatch(text) and int(text) != float(text):
                raise FileError(
                    f"{shown}: column {column!r} holds the integer {text.strip()}, which floating point would "
                    "round. Is it an identifier? Leave that out with --columns."
                )


def _is_rounded(integers: Any) -> bool:
    """Whether floating point would round some of these."""
    found = importlib.import_module("pyarrow.compute").min_max(integers)
    ends = [end for end in (found["min"].as_py(), found["max"].as_py()) if end is not None]
    return any(abs(end) > 2**53 for end in ends)


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def open_parquet(name: str, path: Path, key: str | None, memory: int) -> Source:
    pq = need("pyarrow.parquet", "data", "Reading .parquet files")
    # Neither read ahead nor by many threads: row groups would pile up in memory.
    file = pq.ParquetFile(path, memory_map=True, pre_buffer=False)
    watch_mapped(path)
    schema = file.schema_arrow
    rows = piece_rows(memory, len(schema))

    def batches(chosen: list[str]) -> Any:
        return file.iter_batches(batch_size=rows, columns=chosen, use_threads=False)

    return _of_arrow(name, schema, batches, memory)


def open_feather(name: str, path: Path, key: str | None, memory: int) -> Source:
    pa = need("pyarrow", "data", "Reading .feather files")
    need("pyarrow.ipc", "data", "Reading .feather files")
    file = pa.ipc.open_file(pa.memory_map(str(path)))
    watch_mapped(path)

    def batches(chosen: list[str]) -> Iterator[Any]:
        for k in range(file.num_record_batches):
            yield file.get_batch(k).select(chosen)

    return _of_arrow(name, file.schema, batches, memory)


def _of_arrow(
    name: str, schema: Any, batches: Callable[[list[str]], Any], memory: int, names: list[str] | None = None
) -> Source:
    """What yields batches of Arrow columns; `names` are ours for columns without one."""
    arrow = importlib.import_module("pyarrow")
    types = arrow.types
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    theirs = list(schema.names)
    columns = theirs if names is None else names
    skipped = {}
    for column, kind in zip(columns, schema.types, strict=True):
        if not any(is_kind(kind) for is_kind in numeric):
            skipped[column] = "text" if types.is_string(kind) or types.is_large_string(kind) else f"type {kind}"
        elif re.fullmatch(r"|Unnamed: \d+|__index_level_\d+__", column):
            skipped[column] = "row numbers, it seems: it has no name"

    def pieces(chosen: list[int]) -> Iterator[Table]:
        for batch in batches([theirs[k] for k in chosen]):
            step = piece_rows(memory, len(chosen))
            for first in range(0, batch.num_rows, step):
                part = batch.slice(first, step)
                yield np.column_stack([_arrow_column(part.column(theirs[k])) for k in chosen])
        _release()

    return Source(
        name, columns, lambda chosen: guarded(name, "a table", pieces(chosen)), skipped, named=names is None
    )


def _release() -> None:
    """Return memory to the system that Arrow and the C library keep for reuse."""
    importlib.import_module("pyarrow").default_memory_pool().release_unused()
    if sys.platform == "linux":
        # Arrow's threads have heaps of their own: every reader of text would leave its converters in another.
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)


def _arrow_column(column: Any) -> Table:
    """Numbers in float64, missing ones as NaN; integers that would be rounded are an error of Arrow's."""
    found: Table = column.cast("float64").to_numpy(zero_copy_only=False)
    return found
