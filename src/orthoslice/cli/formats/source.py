"""A file as readers present it: columns with names, rows in pieces, and errors of one line."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

from orthoslice.backend.arrays import HostArray

# A piece has at most _MOST_ITEMS numbers (32 MB) and takes at most 1 / _MEMORY_PART of the memory.
_MOST_ITEMS, _MEMORY_PART = 1 << 22, 32

# A column takes _COLUMN_BYTES whatever its rows: its part of a block of directions, its name and words. Up to
# _FEW_COLUMNS columns are always taken.
_COLUMN_BYTES, _FEW_COLUMNS = 1 << 13, 1 << 11

STANDARD_INPUT = "-"

Piece = TypeVar("Piece")


class FileError(ValueError):
    """A file that cannot be used; the message is one line that says what is wrong with it."""


class MissingExtra(ImportError):
    """A library that reads such files is not installed."""


class Numbered(Sequence[str]):
    """Names such as x0, x1, ..., made on demand: a tiny file may say that it has a billion.

    Examples
    --------
    >>> names = Numbered("x", 10**9)
    >>> names[5], names.index("x7"), "x07" in names
    ('x5', 7, False)
    """

    def __init__(self, prefix: str, count: int) -> None:
        self.prefix, self.numbers = prefix, range(count)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [f"{self.prefix}{k}" for k in self.numbers[place]]
        return f"{self.prefix}{self.numbers[place]}"

    def __contains__(self, name: object) -> bool:
        number = str(name).removeprefix(self.prefix)
        known = number.isdecimal() and len(number) < 20 and int(number) in self.numbers
        return known and self[int(number)] == name

    def index(self, name: str, *_: int) -> int:
        if name not in self:
            raise ValueError(f"{name!r} is none of these names.")
        return int(name.removeprefix(self.prefix))


class How(NamedTuple):
    """How files are opened and understood."""

    memory: int
    """Bytes."""
    resize: tuple[int, int] | None = None
    """Width and height of images."""
    decimal: str = "."
    """The mark before the fraction of a number that is written as text."""
    thousands: str | None = None
    """The mark between its thousands."""
    encoding: str | None = None
    """Of text files; None is UTF-8, or Latin-1 where that does not fit."""
    na_values: tuple[str, ...] = ()
    """What stands for a missing value, besides what is usual."""
    signs: str = ""
    """Characters that numbers have beside them, such as `%`."""

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as programs write them."""
        return self.decimal == "." and self.thousands is None and not self.signs


@dataclass(frozen=True)
class Source:
    """A file that was opened: rows of numbers (`pieces`), or columns of any type (`batches`)."""

    name: str
    columns: Sequence[str]
    pieces: Callable[[list[int]], Iterator[HostArray]] | None = None
    """All rows of some columns, a few rows at a time, in floating point, missing values as NaN."""
    batches: Callable[[list[str], Collection[str]], Iterator[Any]] | None = None
    """The same as batches of Arrow's, called with columns and those of them that are known to hold numbers."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Columns that can be neither numbers nor categories, and what they hold instead."""
    named: bool = True
    """Whether the columns have names of their own."""
    is_table: bool = False
    """Whether columns are of different kinds, and so in units of their own; not so in arrays and images."""
    notes: tuple[str, ...] = ()
    """What users should know of it."""
    whole: HostArray | None = None
    """All rows and columns, where they are an array or a memory map already."""


def split(name: str) -> tuple[Path, str | None]:
    """The file and what is wanted of it: "cells.h5ad::X_pca"."""
    if "::" not in name or Path(name).exists():
        return Path(name), None
    path, _, key = name.rpartition("::")
    return Path(path), key


@contextlib.contextmanager
def reading(name: str, what: str) -> Iterator[None]:
    """Turn any error of a reader into a :class:`FileError` of one line."""
    shown = shown_name(name)
    try:
        with warnings.catch_warnings():
            # What readers warn of either does not matter here or is said in other words.
            warnings.simplefilter("ignore")
            yield
    except (FileError, MissingExtra):
        raise
    except FileNotFoundError:
        raise FileError(f"{shown}: there is no such file.") from None
    except PermissionError:
        raise FileError(f"{shown}: this file may not be read (no permission).") from None
    except Exception as error:
        # Readers of other libraries raise errors of any kind at files of other formats.
        raise FileError(f"{shown}: cannot be read as {what}: {first_line(error)}") from error


def is_all(columns: Sequence[int], n_columns: int) -> bool:
    """Whether these are all columns, in their order."""
    return len(columns) == n_columns and columns == list(range(n_columns))


def piece_rows(memory: int, n_columns: int) -> int:
    """How many rows to take at a time: several copies of them are in use at once."""
    return max(1, min(_MOST_ITEMS, memory // (8 * _MEMORY_PART)) // max(1, n_columns))


def check_width(
    name: str, n_columns: int, memory: int, remedy: str = "choose --columns", column_bytes: int = _COLUMN_BYTES
) -> None:
    """Raise if `n_columns` columns take more than the memory, before anything is made of them."""
    size = column_bytes * n_columns
    if n_columns > _FEW_COLUMNS and size > memory:
        raise FileError(
            f"{shown_name(name)}: to work on {n_columns:,} columns takes about {size:,} bytes, more than "
            f"--memory ({memory:,}). Raise --memory, or {remedy}."
        )


def check_quarter(name: str, what: str, size: int, memory: int, remedy: str, how: str = "") -> None:
    """Raise where something that is needed at once takes more than a quarter of the memory."""
    if size > memory // 4:
        raise FileError(
            f"{shown_name(name)}: {what} takes {size:,} bytes{how}, more than a quarter of --memory "
            f"({memory:,}). Raise --memory, or {remedy}."
        )


def shown_name(name: str) -> str:
    """How messages call a file."""
    return "standard input" if name == STANDARD_INPUT else name


def need(module: str, extra: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"{what} takes {package}, which is not installed: pip install 'orthoslice[{extra}]'."
        ) from error


def guarded(name: str, what: str, pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Pieces of a file, whose reader may fail at any of them."""
    while True:
        # Not around the yield: what goes wrong with a piece in use is no fault of the file.
        with reading(name, what):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


def first_line(error: BaseException) -> str:
    """The first line of an error, not too long, or its name where it has none."""
    lines = str(error).strip().splitlines()
    text = "".join(c if c.isprintable() else "?" for c in lines[0]) if lines else type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]} ..."
