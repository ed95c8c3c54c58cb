"""Text with delimiters: .csv and .tsv, compressed or not, files and pipes, all read by Arrow."""

from __future__ import annotations

import codecs
import importlib
import io
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any

from orthoslice.cli.formats.columns import of_arrow, release
from orthoslice.cli.formats.source import FileError, How, Source, check_width, need, shown_name

# As much of a text file as tells its encoding, its delimiter, whether it has a header, and which columns hold
# dates.
_BLOCK_BYTES = 1 << 20

# What a column of text takes in a reader of Arrow's, which has tables of all words for a missing value.
_COLUMN_BYTES = 1 << 14

# Bytes that Windows-1252 does not have, and Latin-1 has.
_NOT_IN_WINDOWS = (b"\x81", b"\x8d", b"\x8f", b"\x90", b"\x9d")

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def open_csv(name: str, path: Path, key: str | None, how: How) -> Source:
    return _open_delimited(name, path, ",", how)


def open_tsv(name: str, path: Path, key: str | None, how: How) -> Source:
    return _open_delimited(name, path, "\t", how)


def _open_delimited(name: str, path: Path, delimiter: str, how: How) -> Source:
    compression = _COMPRESSIONS.get(path.suffix.lower())
    if compression is not None:
        arrow = need("pyarrow", "data", "Reading compressed tables")

        def opened() -> IO[bytes]:
            stream: IO[bytes] = arrow.input_stream(str(path), compression=compression)
            return stream
    else:

        def opened() -> IO[bytes]:
            return path.open("rb")

    with opened() as file:
        if compression is None and not file.seekable():
            return open_stream(name, file, how, delimiter)
        start = _beginning(name, file, how.memory)
    return _of_text(name, start, opened, delimiter, how)


def open_stream(name: str, stream: IO[bytes], how: How, delimiter: str = ",") -> Source:
    """Text that comes through a pipe: copied to a temporary file first, since it is read more than once."""
    kept = tempfile.TemporaryFile()  # noqa: SIM115 (closed when nothing can open it any more)
    shutil.copyfileobj(stream, kept)
    kept.seek(0)

    def opened() -> IO[bytes]:
        kept.seek(0)
        return os.fdopen(os.dup(kept.fileno()), "rb")

    weakref.finalize(opened, kept.close)
    return _of_text(name, _beginning(name, kept, how.memory), opened, delimiter, how)


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


def _of_text(name: str, start: bytes, opened: Callable[[], IO[bytes]], delimiter: str, how: How) -> Source:
    """Text of which the first block is known, which tells encoding, delimiter, header and dates."""
    csv = need("pyarrow.csv", "data", "Reading text tables")
    arrow = importlib.import_module("pyarrow")
    shown, notes = shown_name(name), []
    if not start.strip():
        raise FileError(f"{shown}: the file is empty.")
    encoding = how.encoding or _encoding_of(shown, start)
    if how.encoding is None and encoding != "utf-8":
        told = "Latin-1" if encoding == "latin-1" else "Latin-1 (Windows-1252)"
        notes.append(f"{shown}: is not UTF-8, and is read as {told}; if it is neither, pass --encoding.")
    line = _first_line(shown, start, encoding)
    delimiter = _delimiter_of(line, delimiter, how)
    cells = line.split(delimiter)
    check_width(name, len(cells), how.memory, "make a file of fewer columns", column_bytes=_COLUMN_BYTES)
    bare = all(_is_number(cell, how) for cell in cells)
    # Rows further on may be longer than the first.
    block_bytes = _BLOCK_BYTES if len(start) <= _BLOCK_BYTES else 2 * len(start)
    as_text = (
        csv.ReadOptions(autogenerate_column_names=bare, block_size=block_bytes, encoding=encoding),
        csv.ParseOptions(delimiter=delimiter),
    )
    usual = csv.ConvertOptions()
    if len(start) >= _BLOCK_BYTES:
        start = start[: start.rfind(b"\n") + 1] or start
    schema = csv.read_csv(io.BytesIO(start), *as_text, csv.ConvertOptions(check_utf8=False)).schema

    def batches(columns: list[str], numbers: Collection[str]) -> Iterator[Any]:
        release()
        types = {c: arrow.float64() if how.is_plain and c in numbers else arrow.string() for c in columns}
        chosen = csv.ConvertOptions(
            include_columns=columns,
            column_types=types,
            null_values=[*usual.null_values, *how.na_values],
            strings_can_be_null=True,
        )
        with opened() as file, csv.open_csv(file, *as_text, chosen) as reader:
            yield from reader

    if bare:
        notes.append(f"{shown}: there is no header, so that columns are called x0, x1, ...")
    elif all(_is_number(cell.strip('" ') or "0", how) for cell in cells):
        notes.append(f"{shown}: the first row is read as the names of columns, though it looks like numbers.")
    # What is no date may be anything further on.
    kinds = [f.type if arrow.types.is_temporal(f.type) else arrow.string() for f in schema]
    theirs = arrow.schema(list(zip(schema.names, kinds, strict=True)))
    ours = [f"x{k}" for k in range(len(cells))] if bare else None
    return of_arrow(name, theirs, batches, how.memory, ours, tuple(notes))


def _encoding_of(shown: str, start: bytes) -> str:
    """UTF-8 if this is, or else Latin-1 as Windows writes it; other encodings have to be named."""
    if b"\0" in start or start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise FileError(
            f"{shown}: is not text in UTF-8 (perhaps UTF-16, or no text at all). Save it as UTF-8, or pass "
            "--encoding utf-16."
        )
    try:
        # A character may be cut in two at the end of the block.
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        # Windows has signs such as the euro where Latin-1 has control characters, and leaves a few bytes out.
        return "latin-1" if any(byte in start for byte in _NOT_IN_WINDOWS) else "cp1252"
    return "utf-8"


def _first_line(shown: str, start: bytes, encoding: str) -> str:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError as error:
        raise FileError(f"{shown}: is not text in --encoding {encoding}: {error.reason}.") from None
    except LookupError:
        raise FileError(f"--encoding must be known to Python, as latin-1 is; got {encoding!r}.") from None
    lines = text.removeprefix("\ufeff").lstrip("\r\n").splitlines()
    return lines[0] if lines else ""


def _delimiter_of(line: str, delimiter: str, how: How) -> str:
    """Files called .csv may have semicolons, tabs or bars; semicolons where the comma is a decimal mark."""
    if delimiter != "," or ("," in line and not (how.decimal == "," and ";" in line)):
        return delimiter
    return next((mark for mark in ";\t|" if mark in line), ",")


def _is_number(cell: str, how: How) -> bool:
    if how.thousands:
        cell = cell.replace(how.thousands, "")
    try:
        float(cell.replace(how.decimal, "."))
    except ValueError:
        return False
    return True
