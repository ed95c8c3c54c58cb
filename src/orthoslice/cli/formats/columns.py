"""Files of typed columns: .parquet, .feather and .arrow, .jsonl, .xlsx, all as batches of Arrow's."""

from __future__ import annotations

import ctypes
import datetime as dt
import importlib
import itertools
import re
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from orthoslice.check.frames import listed
from orthoslice.cli.formats.mapped import watch_mapped
from orthoslice.cli.formats.source import FileError, How, Source, guarded, need, piece_rows, split

# Bytes of a .jsonl file that tell its columns and their types.
_BLOCK_BYTES = 1 << 22

Batches = Callable[[list[str], Collection[str]], Iterator[Any]]


def open_parquet(name: str, path: Path, key: str | None, how: How) -> Source:
    pq = need("pyarrow.parquet", "data", "Reading .parquet files")
    # Neither read ahead nor by many threads: row groups would pile up in memory.
    file = pq.ParquetFile(path, memory_map=True, pre_buffer=False)
    watch_mapped(path)
    schema = file.schema_arrow
    rows = piece_rows(how.memory, len(schema))

    def batches(columns: list[str], numbers: Collection[str]) -> Iterator[Any]:
        for batch in file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
            yield batch.select(columns)

    return of_arrow(name, schema, batches, how.memory)


def open_feather(name: str, path: Path, key: str | None, how: How) -> Source:
    """Arrow's own format, of files (.feather too) or of streams."""
    arrow = need("pyarrow", "data", "Reading .feather and .arrow files")
    need("pyarrow.ipc", "data", "Reading .feather and .arrow files")
    with path.open("rb") as start:
        is_file = start.read(6) == b"ARROW1"

    def opened() -> Any:
        mapped = arrow.memory_map(str(path))
        return arrow.ipc.open_file(mapped) if is_file else arrow.ipc.open_stream(mapped)

    file = opened()
    watch_mapped(path)

    def batches(columns: list[str], numbers: Collection[str]) -> Iterator[Any]:
        found = (file.get_batch(k) for k in range(file.num_record_batches)) if is_file else opened()
        for batch in found:
            yield batch.select(columns)

    return of_arrow(name, file.schema, batches, how.memory)


def open_json_lines(name: str, path: Path, key: str | None, how: How) -> Source:
    """An object a line; the first lines tell the columns."""
    reader = need("pyarrow.json", "data", "Reading .jsonl files")
    arrow = importlib.import_module("pyarrow")
    block = reader.ReadOptions(block_size=_BLOCK_BYTES)
    with reader.open_json(str(path), block) as start:
        found = start.schema
    # What is whole, or missing, in the first block need not be so further on.
    is_open = (arrow.types.is_integer, arrow.types.is_null)
    types = [arrow.float64() if any(is_kind(f.type) for is_kind in is_open) else f.type for f in found]
    schema = arrow.schema(list(zip(found.names, types, strict=True)))
    as_known = reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def batches(columns: list[str], numbers: Collection[str]) -> Iterator[Any]:
        with reader.open_json(str(path), block, as_known) as rows:
            for batch in rows:
                yield batch.select(columns)

    return of_arrow(name, schema, batches, how.memory)


def open_excel(name: str, path: Path, key: str | None, how: How) -> Source:
    """The first sheet of a workbook, or the one that is named; its first row has the names of columns."""
    excel = need("openpyxl", "excel", "Reading .xlsx files")
    arrow = need("pyarrow", "data", "Reading .xlsx files")

    def rows() -> Iterator[tuple[Any, ...]]:
        book = excel.load_workbook(path, read_only=True, data_only=True)
        try:
            if key is not None and key not in book.sheetnames:
                names = listed(book.sheetnames)
                raise FileError(f"{name}: has the sheets {names}; choose one as in {split(name)[0]}::SHEET.")
            yield from (book[key] if key is not None else book.worksheets[0]).iter_rows(values_only=True)
        finally:
            book.close()

    head = list(itertools.islice(rows(), 100))
    if not head:
        raise FileError(f"{name}: the sheet is empty.")
    columns = ["" if cell is None else str(cell) for cell in head[0]]
    dated = [any(isinstance(r[k], dt.date | dt.time) for r in head[1:]) for k in range(len(columns))]
    schema = arrow.schema(
        [(c, arrow.timestamp("us") if d else arrow.string()) for c, d in zip(columns, dated, strict=True)]
    )

    def batches(chosen: list[str], numbers: Collection[str]) -> Iterator[Any]:
        places, step = [columns.index(c) for c in chosen], piece_rows(how.memory, len(columns))
        found = itertools.islice(rows(), 1, None)
        while piece := list(itertools.islice(found, step)):
            cells = [_as_arrow(arrow, [row[k] for row in piece]) for k in places]
            yield arrow.record_batch(cells, names=chosen)

    return of_arrow(name, schema, batches, how.memory)


def _as_arrow(arrow: Any, cells: list[Any]) -> Any:
    """Cells of a sheet as numbers, if they are, or else as text."""
    if all(cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool)) for cell in cells):
        return arrow.array(cells, arrow.float64())
    texts = [str(c).lower() if isinstance(c, bool) else c if c is None else str(c) for c in cells]
    return arrow.array([t or None for t in texts], arrow.string())


def of_arrow(
    name: str,
    schema: Any,
    batches: Batches,
    memory: int,
    names: list[str] | None = None,
    notes: tuple[str, ...] = (),
) -> Source:
    """What yields batches of Arrow columns; `names` are ours for columns without one."""
    types = importlib.import_module("pyarrow").types
    usable = (
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        types.is_null,
        types.is_boolean,
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_dictionary,
    )
    theirs = list(schema.names)
    columns = theirs if names is None else names
    place = dict(zip(columns, theirs, strict=True))
    skipped = {}
    for column, kind in zip(columns, schema.types, strict=True):
        if not any(is_kind(kind) for is_kind in usable):
            skipped[column] = "dates or times" if types.is_temporal(kind) else f"type {kind}"
        elif re.fullmatch(r"|Unnamed: \d+|__index_level_\d+__", column):
            skipped[column] = "row numbers or nothing, it seems: it has no name"

    def pieces(chosen: list[str], numbers: Collection[str]) -> Iterator[Any]:
        step = piece_rows(memory, len(chosen))
        known = {place[c] for c in numbers}
        for batch in batches([place[c] for c in chosen], known):
            named = batch.rename_columns(chosen)
            for first in range(0, batch.num_rows, step):
                yield named.slice(first, step)
        release()

    return Source(
        name,
        columns,
        batches=lambda chosen, numbers: guarded(name, "a table", pieces(chosen, numbers)),
        skipped=skipped,
        named=names is None,
        notes=notes,
        is_table=True,
    )


def release() -> None:
    """Return memory to the system that Arrow and the C library keep for reuse."""
    importlib.import_module("pyarrow").default_memory_pool().release_unused()
    if sys.platform == "linux":
        # Arrow's threads have heaps of their own: every reader of text would leave its converters in another.
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
