"""Tables from files: opened by their suffix, columns matched by name, rows gathered within a budget."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from orthoslice.applications.scaling import fit_scaling
from orthoslice.backend.arrays import Table
from orthoslice.check.frames import listed, repeated, without
from orthoslice.cli.array_files import open_archive, open_array, open_h5ad, open_zarr
from orthoslice.cli.column_files import open_csv, open_feather, open_parquet, open_stream, open_tsv
from orthoslice.cli.image_folders import open_images
from orthoslice.cli.rows import Rows
from orthoslice.cli.sources import (
    STANDARD_INPUT,
    FileError,
    Numbered,
    Source,
    check_width,
    is_all,
    piece_rows,
    reading,
    shown_name,
    split,
)

_READERS: dict[str, Callable[[str, Path, str | None, int], Source]] = {
    ".csv": open_csv,
    ".tsv": open_tsv,
    ".npy": open_array,
    ".npz": open_archive,
    ".parquet": open_parquet,
    ".feather": open_feather,
    ".h5ad": open_h5ad,
    ".zarr": open_zarr,
}

# Those that may hold several tables.
_WITH_KEYS = (".npz", ".h5ad", ".zarr")


class Choice(NamedTuple):
    """What is wanted of the files."""

    columns: list[str] | None = None
    weights: str | None = None
    drop_missing: bool = False
    scale: str | None = None
    """None, "standard" or "whiten"."""
    resize: tuple[int, int] | None = None
    """Width and height of images."""
    memory: int = 10**9
    """Bytes. A table may take a quarter of them; a larger one is read from its file, or put in one."""


@dataclass(frozen=True)
class Loaded:
    """The rows of a file that count, as numbers."""

    name: str
    columns: list[str]
    points: Table
    """`(rows, columns)`, an array or a memory map."""
    weights: Table | None
    """One a row, with sum 1."""


def read_tables(names: Sequence[str], choice: Choice, say: Callable[[str], None]) -> list[Loaded]:
    """Read files as tables with the same columns; `say` is told what was left out.

    Raises
    ------
    FileError
        In one line, whatever is wrong with a file.
    """
    if names.count(STANDARD_INPUT) > 1:
        raise FileError("Only one of the tables can come from standard input (-).")
    sources = [open_source(name, choice.memory, choice.resize) for name in names]
    for source in sources:
        for note in source.notes:
            say(note)
    chosen = _match_columns(sources, choice, say)
    dtype = _common_dtype(sources)
    loaded = []
    for source, columns in zip(sources, chosen, strict=True):
        loaded.append(_gather(source, columns, dtype, choice, say))
    # Columns of arrays are called as those of the first file that has names.
    named = next((k for k, s in enumerate(sources) if s.named), 0)
    shown = loaded[named].columns
    loaded = [Loaded(t.name, shown, t.points, t.weights) for t in loaded]
    return loaded if choice.scale is None else _scaled(loaded, choice)


def open_source(name: str, memory: int, resize: tuple[int, int] | None = None) -> Source:
    """Open a file by what its name ends with, a folder of images, or standard input (`-`).

    `FILE::KEY` is an array inside a file. Whatever is wrong with a file is a :class:`FileError` of one line.
    """
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise FileError("Standard input must be open to be read (-); it is closed.")
        with reading(name, "CSV"):
            return open_stream(name, sys.stdin.buffer, memory)
    path, key = split(name)
    kind = path.suffix.lower()
    with reading(name, f"a {kind} file" if kind in _READERS else "images"):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode) and kind != ".zarr":
            return open_images(name, path, resize, memory)
        if kind not in _READERS:
            raise FileError(
                f"{name}: must end with one of {', '.join(_READERS)}, be a folder of images, or - for CSV from "
                "standard input."
            )
        if key is not None and kind not in _WITH_KEYS:
            raise FileError(f"{name}: a {kind} file holds one table; leave ::{key} out.")
        return _READERS[kind](name, path, key, memory)


def _match_columns(sources: list[Source], choice: Choice, say: Callable[[str], None]) -> list[list[str]]:
    """The columns of every file, in one order; none are listed before it is known that memory holds them."""
    for source in sources:
        if choice.columns is None:
            check_width(source.name, len(source.columns), choice.memory)
        if source.named and (twice := repeated(source.columns)):
            raise FileError(
                f"{shown_name(source.name)}: every column needs a name of its own; {listed(twice)} twice."
            )
        if choice.weights is not None:
            _check_there(source, [choice.weights], "--weights")
    if choice.columns is not None:
        for source in sources:
            _check_there(source, choice.columns, "--columns")
        return [choice.columns for _ in sources]
    skipped = dict.fromkeys(c for s in sources for c in s.skipped)
    for source in sources:
        for column, what in source.skipped.items():
            say(f"{shown_name(source.name)}: column {column!r} is left out: it holds {what}.")
    kept = [[c for c in s.columns if c not in skipped and c != choice.weights] for s in sources]
    for source, columns in zip(sources, kept, strict=True):
        if not columns:
            raise FileError(f"{shown_name(source.name)}: has no column of numbers.")
    _check_agree(sources, kept)
    named = [k for k, s in enumerate(sources) if s.named]
    order = kept[named[0]] if named else kept[0]
    if named and len(named) < len(sources):
        say("Columns are matched by position, since not all of the files name them.")
    return [order if s.named else columns for s, columns in zip(sources, kept, strict=True)]


def _check_there(source: Source, columns: list[str], option: str) -> None:
    shown = shown_name(source.name)
    there = source.columns if isinstance(source.columns, Numbered) else set(source.columns)
    missing = [c for c in columns if c not in there]
    if missing:
        raise FileError(f"{shown}: {option} names {listed(missing)}; it has {listed(source.columns)}.")
    for column in columns:
        if column in source.skipped:
            raise FileError(f"{shown}: column {column!r} must hold numbers; it holds {source.skipped[column]}.")


def _check_agree(sources: list[Source], kept: list[list[str]]) -> None:
    """Raise unless all files have the same columns, by name where they have names, or as many."""
    first, columns = sources[0], kept[0]
    for source, others in zip(sources[1:], kept[1:], strict=True):
        a, b = shown_name(first.name), shown_name(source.name)
        if first.named and source.named:
            only = [without(columns, others), without(others, columns)]
            if any(only):
                told = " and ".join(f"only {n} has {listed(o)}" for n, o in zip((a, b), only, strict=True) if o)
                raise FileError(f"The files must have the same columns; {told}. Choose some with --columns.")
        elif len(columns) != len(others):
            raise FileError(
                f"The files must have as many columns; {a} has {len(columns)} and {b} has {len(others)}. "
                "Choose some with --columns."
            )


def _common_dtype(sources: list[Source]) -> np.dtype[Any]:
    """float32 where all tables are so, and float64 elsewhere."""
    small = all(s.whole is not None and s.whole.dtype.kind == "f" and s.whole.itemsize <= 4 for s in sources)
    return np.dtype(np.float32 if small else np.float64)


def _gather(
    source: Source, columns: list[str], dtype: np.dtype[Any], choice: Choice, say: Callable[[str], None]
) -> Loaded:
    """The rows of a file: where it lies if nothing has to be changed, or else in memory or put aside."""
    wanted = columns if choice.weights is None else [*columns, choice.weights]
    order = _places(source, wanted)
    whole = source.whole
    is_fit = whole is not None and whole.dtype == dtype and is_all(order, whole.shape[1]) and len(whole)
    if is_fit and all(_is_finite(piece) for piece in source.pieces(order)):
        assert whole is not None
        return Loaded(source.name, columns, whole, None)
    weights: list[Table] = []
    missing, n_missing, n_rows = np.zeros(len(wanted), dtype=int), 0, 0
    with Rows(shown_name(source.name), dtype, choice.memory // 4) as rows:
        for piece in source.pieces(order):
            bad = _missing_rows(source, wanted, piece, n_rows)
            n_rows += len(piece)
            if bad is not None:
                n_missing += int(bad.sum())
                missing += np.isnan(piece).sum(axis=0)
            if n_missing and not choice.drop_missing:
                continue  # to count the others
            kept = piece if bad is None else piece[~bad]
            rows.add(kept[:, : len(columns)])
            if choice.weights is not None:
                weights.append(kept[:, -1].copy())
        _check_missing(source, wanted, missing, (n_missing, n_rows), choice, say)
        points = rows.whole(len(columns))
    return Loaded(source.name, columns, points, _normalised(source, choice.weights, weights))


def _places(source: Source, columns: list[str]) -> list[int]:
    if isinstance(source.columns, Numbered):
        return [source.columns.index(column) for column in columns]
    place = {column: k for k, column in enumerate(source.columns)}
    return [place[column] for column in columns]


def _missing_rows(source: Source, columns: list[str], piece: Table, first: int) -> Any:
    """Which rows of a piece have missing values, or None; infinite ones are refused."""
    if _is_finite(piece):
        return None
    infinite = np.isinf(piece)
    if infinite.any():
        row, k = (int(i) for i in np.argwhere(infinite)[0])
        raise FileError(
            f"{shown_name(source.name)}: numbers must be finite; column {columns[k]!r} holds {piece[row, k]} "
            f"in row {first + row + 1}."
        )
    return np.isnan(piece).any(axis=1)


def _is_finite(piece: Table) -> bool:
    # Minimum and maximum are quicker than `isfinite` of every number, and NaN propagates to them.
    return bool(np.isfinite(piece.min(initial=0)) and np.isfinite(piece.max(initial=0)))


def _check_missing(
    source: Source,
    columns: list[str],
    missing: Table,
    counts: tuple[int, int],
    choice: Choice,
    say: Callable[[str], None],
) -> None:
    n_missing, n_rows = counts
    shown = shown_name(source.name)
    if n_rows == 0:
        raise FileError(f"{shown}: holds no rows.")
    if n_missing == 0:
        return
    where = [f"{c!r} ({k:,})" for c, k in zip(columns, missing.tolist(), strict=True) if k]
    told = f"{n_missing:,} of {n_rows:,} rows have missing values, in {', '.join(where[:8])}"
    told += "" if len(where) <= 8 else f" and {len(where) - 8} more columns"
    if not choice.drop_missing:
        raise FileError(f"{shown}: {told}. Leave those rows out with --drop-missing, or choose --columns.")
    if n_missing == n_rows:
        raise FileError(f"{shown}: no row is without missing values; {told}.")
    say(f"{shown}: {told}; they are left out.")


def _normalised(source: Source, column: str | None, pieces: list[Table]) -> Table | None:
    """Weights with sum 1."""
    if column is None:
        return None
    weights = np.concatenate(pieces).astype(np.float64)
    if not (weights.min() >= 0 and weights.sum() > 0):
        raise FileError(
            f"{shown_name(source.name)}: weights must not be negative, nor all 0; column {column!r} goes from "
            f"{weights.min():g} to {weights.max():g}."
        )
    return np.asarray(weights / weights.sum())


def _scaled(tables: list[Loaded], choice: Choice) -> list[Loaded]:
    """All tables in common units, a piece at a time."""
    assert choice.scale is not None
    scaling = fit_scaling([t.points for t in tables], choice.scale)
    found = []
    for table in tables:
        with Rows(table.name, table.points.dtype, choice.memory // 4) as rows:
            for piece in _pieces(table.points, choice.memory):
                rows.add(scaling.apply(np.asarray(piece)))
            found.append(Loaded(table.name, table.columns, rows.whole(len(table.columns)), table.weights))
    return found


def _pieces(points: Table, memory: int) -> Iterator[Table]:
    step = piece_rows(memory, points.shape[1])
    for first in range(0, len(points), step):
        yield points[first : first + step]
