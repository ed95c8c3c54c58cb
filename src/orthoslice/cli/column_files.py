"""Files of named columns: text with delimiters, .parquet and .feather, all read by Arrow."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from orthoslice.cli.sources import PIECE_ITEMS, FileError, Source, guarded, need, shown_name
from orthoslice.labels import Table

# As much of a text file as tells its delimiter and whether it has a header.
_PEEKED_BYTES = 1 << 16


def open_csv(name: str, path: Path, key: str | None, memory: int) -> Source:
    return open_text(name, _seekable(path), ",")


def open_tsv(name: str, path: Path, key: str | None, memory: int) -> Source:
    return open_text(name, _seekable(path), "\t")


def _seekable(path: Path) -> IO[bytes]:
    """A file that can be read twice; what comes through a pipe is put aside first."""
    file = path.open("rb")
    return file if file.seekable() else spooled(file)


def spooled(stream: IO[bytes]) -> IO[bytes]:
    kept = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as its reader)
    shutil.copyfileobj(stream, kept)
    kept.seek(0)
    return kept


def open_text(name: str, file: IO[bytes], delimiter: str) -> Source:
    csv = need("pyarrow.csv", "data", "Reading text tables")
    shown = shown_name(name)
    start = file.read(_PEEKED_BYTES)
    if not start.strip():
        raise FileError(f"{shown}: the file is empty.")
    if b"\0" in start or start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise FileError(f"{shown}: is not text in UTF-8 (perhaps UTF-16, or no text at all). Save it as UTF-8.")
    line = start.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").splitlines()[0]
    if delimiter == "," and b"," not in line:
        delimiter = ";" if b";" in line else "\t" if b"\t" in line else ","
    bare = all(_is_number(cell) for cell in line.split(delimiter.encode()))
    how = csv.ParseOptions(delimiter=delimiter)
    reads = csv.ReadOptions(autogenerate_column_names=bare)

    def opened(wanted: dict[str, Any] | None = None) -> Any:
        file.seek(0)
        # The reader closes what it is given.
        stream = os.fdopen(os.dup(file.fileno()), "rb")
        types = {} if wanted is None else {"include_columns": list(wanted), "column_types": wanted}
        return csv.open_csv(stream, reads, how, csv.ConvertOptions(**types))

    schema = opened().schema
    # The first block tells the types. What was whole, or missing, there need not be so further on.
    pa = importlib.import_module("pyarrow")
    source = _of_arrow(
        name,
        schema,
        lambda chosen: opened({c: pa.float64() for c in chosen}),
        names=[f"x{k}" for k in range(len(schema))] if bare else None,
    )
    if not bare:
        return source
    return replace(source, notes=(f"{shown}: there is no header, so that columns are called x0, x1, ...",))


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def open_parquet(name: str, path: Path, key: str | None, memory: int) -> Source:
    pq = need("pyarrow.parquet", "data", "Reading .parquet files")
    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    rows = max(1, PIECE_ITEMS // max(1, len(schema)))
    return _of_arrow(name, schema, lambda chosen: file.iter_batches(batch_size=rows, columns=chosen))


def open_feather(name: str, path: Path, key: str | None, memory: int) -> Source:
    pa = need("pyarrow", "data", "Reading .feather files")
    need("pyarrow.ipc", "data", "Reading .feather files")
    file = pa.ipc.open_file(pa.memory_map(str(path)))

    def batches(chosen: list[str]) -> Iterator[Any]:
        for k in range(file.num_record_batches):
            yield file.get_batch(k).select(chosen)

    return _of_arrow(name, file.schema, batches)


def _of_arrow(
    name: str, schema: Any, batches: Callable[[list[str]], Any], names: list[str] | None = None
) -> Source:
    """What yields batches of Arrow columns; `names` are ours for columns without one."""
    types = importlib.import_module("pyarrow").types
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
            step = max(1, PIECE_ITEMS // max(1, len(chosen)))
            for first in range(0, batch.num_rows, step):
                part = batch.slice(first, step)
                yield np.column_stack([_arrow_column(part.column(theirs[k])) for k in chosen])

    return Source(
        name, columns, lambda chosen: guarded(name, "a table", pieces(chosen)), skipped, named=names is None
    )


def _arrow_column(column: Any) -> Table:
    """Numbers in float64, missing ones as NaN; integers that would be rounded are an error of Arrow's."""
    found: Table = column.cast("float64").to_numpy(zero_copy_only=False)
    return found
