"""Tables from files: columns matched and understood, rows gathered within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from orthoslice.applications.columns import MISSING, Tally, edges_of, tally_rows
from orthoslice.applications.scaling import Scaling, fit_scaling
from orthoslice.backend.arrays import HostArray
from orthoslice.check.frames import listed
from orthoslice.cli.encoding import Encoding, encoded_pieces
from orthoslice.cli.formats import open_source
from orthoslice.cli.formats.source import (
    STANDARD_INPUT,
    FileError,
    Source,
    check_width,
    piece_rows,
    shown_name,
)
from orthoslice.cli.matching import Choice, known_columns, match_columns
from orthoslice.cli.notation import as_numbers, as_texts
from orthoslice.cli.rows import Rows

# The most groups that one table is split into.
_MOST_GROUPS = 50

# Groups after which no more are looked for.
_TOO_MANY_GROUPS = 1000

# Half of a column lies within a span this many times smaller than its standard deviation, or it has far values.
_FAR_VALUES = 20.0


@dataclass(frozen=True)
class Loaded:
    """The rows of a file that count, as numbers."""

    name: str
    columns: list[str]
    """What the features are called: a column of numbers is one, a category has one for each value."""
    points: HostArray
    """`(rows, features)`, an array or a memory map."""
    weights: HostArray | None
    """One a row, with sum 1."""
    encoding: Encoding
    """Which columns the features stand for."""
    scale: str | None = None
    """The units: None as they are, "standard" or "whiten"."""
    scaling: Scaling | None = None
    tally: Tally | None = None
    """What all rows come to, in units of the file."""
    is_table: bool = False
    """Whether columns are in units of their own."""
    n_dropped: int = 0
    """Rows that were left out for their gaps, of all groups where one file was split."""


def read_tables(
    names: Sequence[str],
    choice: Choice,
    say: Callable[[str], None],
    progress: Callable[[str], None] = lambda _: None,
) -> list[Loaded]:
    """Read files as tables with the same columns; `say` is told what was left out.

    One file with `choice.by` becomes a table for each value of that column. `progress` is told what goes on.

    Raises
    ------
    FileError
        In one line, whatever is wrong with a file.
    """
    if names.count(STANDARD_INPUT) > 1:
        raise FileError("Only one of the tables can come from standard input (-).")
    sources = [open_source(name, choice.how) for name in names]
    for source in sources:
        for note in source.notes:
            say(note)
    progress("Reading columns")
    matched = match_columns(sources, choice, say)
    check_width(names[0], matched.encoding.n_features, choice.memory)
    dtype = _common_dtype(sources)
    loaded = []
    for source, columns in zip(sources, matched.columns, strict=True):
        loaded += _gather(source, columns, matched.encoding, dtype, choice, say, progress)
    scale: str | None = choice.scale
    if scale == "auto":
        scale = "standard" if any(source.is_table for source in sources) else None
    if choice.tally:
        progress("Counting columns")
        loaded = _tallied(loaded)
    return loaded if scale is None else _scaled(loaded, scale, choice, say)


def gather_known(name: str, encoding: Encoding, choice: Choice, say: Callable[[str], None]) -> Loaded:
    """Read a file as features that are known from another, in units of the file."""
    source = open_source(name, choice.how)
    for note in source.notes:
        say(note)
    columns = known_columns(source, encoding, choice, say)
    (table,) = _gather(source, columns, encoding, np.dtype(np.float64), choice, say, lambda _: None)
    return table


def _common_dtype(sources: list[Source]) -> np.dtype[Any]:
    """float32 where all tables are so, and float64 elsewhere."""
    small = all(s.whole is not None and s.whole.dtype.kind == "f" and s.whole.itemsize <= 4 for s in sources)
    return np.dtype(np.float32 if small else np.float64)


def _gather(
    source: Source,
    columns: list[str],
    encoding: Encoding,
    dtype: np.dtype[Any],
    choice: Choice,
    say: Callable[[str], None],
    progress: Callable[[str], None],
) -> list[Loaded]:
    """The rows of a file: where it lies if nothing has to be changed, or else in memory or put aside."""
    if _is_fit(source, columns, dtype, choice) and not encoding.fills:
        assert source.whole is not None
        return [Loaded(source.name, encoding.features, source.whole, None, encoding)]
    groups: dict[str, Rows] = {}
    weights: list[HostArray] = []
    missing, n_missing, n_rows = np.zeros(encoding.n_features, dtype=int), 0, 0
    shown = shown_name(source.name)
    budget = choice.memory // 4 if choice.by is None else choice.memory // 4 // _MOST_GROUPS
    try:
        for piece, beside in encoded_pieces(source, columns, encoding, choice.beside, choice.how):
            progress(f"Reading {shown}: {n_rows:,} rows")
            mass = _weights_of(source, beside, choice)
            bad = _missing_rows(source, encoding.features, piece, n_rows)
            n_rows += len(piece)
            if bad is not None:
                n_missing += int(bad.sum())
                missing += np.isnan(piece).sum(axis=0)
            if n_missing and choice.missing != "drop":
                continue  # to count the others
            kept = np.ones(len(piece), dtype=bool) if bad is None else ~bad
            for label, rows in _grouped(beside, kept, choice):
                if label not in groups:
                    name = source.name if choice.by is None else f"{choice.by} = {label}"
                    groups[label] = Rows(name, dtype, budget)
                groups[label].add(piece[rows])
            if len(groups) > _TOO_MANY_GROUPS:
                break  # a column of numbers, perhaps: every group holds a place of its own
            if mass is not None:
                weights.append(mass[kept])
        _check_missing(source, encoding, missing, (n_missing, n_rows), choice, say)
        if choice.by is not None:
            _check_groups(source, list(groups), choice.by)
        return [
            Loaded(
                source.name if choice.by is None else rows.name,
                encoding.features,
                rows.whole(encoding.n_features),
                _normalised(source, choice.weights, weights),
                encoding,
                is_table=source.is_table,
                n_dropped=n_missing,
            )
            for _, rows in sorted(groups.items())
        ]
    finally:
        for rows in groups.values():
            rows.close()


def _is_fit(source: Source, columns: list[str], dtype: np.dtype[Any], choice: Choice) -> bool:
    """Whether the array that a file holds can be used as it is."""
    whole = source.whole
    if whole is None or choice.beside or whole.dtype != dtype or not len(whole):
        return False
    if len(columns) != whole.shape[1] or any(c != d for c, d in zip(columns, source.columns, strict=True)):
        return False
    assert source.pieces is not None
    return all(_is_finite(piece) for piece in source.pieces(list(range(whole.shape[1]))))


def _weights_of(source: Source, beside: dict[str, Any], choice: Choice) -> HostArray | None:
    if choice.weights is None:
        return None
    column = beside[choice.weights]
    found = column if isinstance(column, np.ndarray) else as_numbers(column, choice.how)
    if found is None or np.isnan(found).any():
        raise FileError(
            f"{shown_name(source.name)}: --weights must name a column of numbers without gaps; "
            f"{choice.weights!r} is none."
        )
    return found


def _grouped(beside: dict[str, Any], kept: Any, choice: Choice) -> Iterator[tuple[str, Any]]:
    """The rows that are kept, as masks: all together, or by the values of a column."""
    if choice.by is None:
        yield "", kept
        return
    column = beside[choice.by]
    labels = column.tolist() if isinstance(column, np.ndarray) else as_texts(column, choice.how).to_pylist()
    texts = np.array([MISSING if label is None else str(label) for label in labels], dtype=object)
    for label in dict.fromkeys(texts.tolist()):
        yield label, kept & (texts == label)


def _check_groups(source: Source, labels: list[str], by: str) -> None:
    shown = shown_name(source.name)
    if len(labels) < 2:
        raise FileError(f"{shown}: --by takes a column with two values or more; {by!r} has {listed(labels)}.")
    if len(labels) > _MOST_GROUPS:
        raise FileError(
            f"{shown}: --by takes a column with {_MOST_GROUPS} values or fewer; {by!r} has {len(labels):,}."
        )


def _missing_rows(source: Source, features: list[str], piece: HostArray, first: int) -> Any:
    """Which rows of a piece have missing values, or None; infinite ones are refused."""
    if _is_finite(piece):
        return None
    infinite = np.isinf(piece)
    if infinite.any():
        row, k = (int(i) for i in np.argwhere(infinite)[0])
        raise FileError(
            f"{shown_name(source.name)}: numbers must be finite; column {features[k]!r} holds {piece[row, k]} "
            f"in row {first + row + 1}."
        )
    return np.isnan(piece).any(axis=1)


def _is_finite(piece: HostArray) -> bool:
    # Minimum and maximum are quicker than `isfinite` of every number, and NaN propagates to them.
    return bool(np.isfinite(piece.min(initial=0)) and np.isfinite(piece.max(initial=0)))


def _check_missing(
    source: Source,
    encoding: Encoding,
    missing: HostArray,
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
    where = [f"{c.name!r} ({int(missing[c.place]):,})" for c in encoding.columns if missing[c.place]]
    told = f"{n_missing:,} of {n_rows:,} rows have missing values, in {', '.join(where[:8])}"
    told += "" if len(where) <= 8 else f" and {len(where) - 8} more column{'s' * (len(where) > 9)}"
    if choice.missing != "drop":
        raise FileError(
            f"{shown}: {told}. Write --missing indicate to compare the gaps too, --missing drop to leave those "
            "rows out, or choose --columns."
        )
    if n_missing == n_rows:
        raise FileError(f"{shown}: no row is without missing values; {told}.")
    say(f"{shown}: {told}; they are left out.")


def _normalised(source: Source, column: str | None, pieces: list[HostArray]) -> HostArray | None:
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


def _tallied(tables: list[Loaded]) -> list[Loaded]:
    """Tables with what their rows come to, column by column."""
    columns = tables[0].encoding.columns
    edges = edges_of([t.points for t in tables], columns)
    return [replace(t, tally=tally_rows(t.points, columns, edges, t.weights)) for t in tables]


def _scaled(tables: list[Loaded], scale: str, choice: Choice, say: Callable[[str], None]) -> list[Loaded]:
    """All tables in common units, a piece at a time."""
    scaling = fit_scaling([t.points for t in tables], scale)
    if scale == "standard":
        scaling = tables[0].encoding.with_steps(scaling)
        _tell_far_values(tables, scaling, say)
    found = []
    for table in tables:
        with Rows(table.name, table.points.dtype, choice.memory // 4) as rows:
            for piece in pieces_of(table.points, choice.memory):
                rows.add(cast(HostArray, scaling.apply(np.asarray(piece))))
            points = rows.whole(table.points.shape[1])
        found.append(replace(table, points=points, scale=scale, scaling=scaling))
    return found


def _tell_far_values(tables: list[Loaded], scaling: Scaling, say: Callable[[str], None]) -> None:
    """Say which columns have a few values that set their unit: in it, the others hardly move."""
    some = np.concatenate([np.asarray(t.points[:: max(1, len(t.points) // 10_000)]) for t in tables])
    numbers = [c for c in tables[0].encoding.columns if not c.is_category and scaling.factors[c.place] > 0]
    far = []
    for column in numbers:
        # What fills gaps is one value.
        there = (
            some[:, column.place]
            if column.missing is None
            else some[some[:, column.missing] == 0, column.place]
        )
        low, high = np.quantile(there, [0.25, 0.75])
        # The middle half of a normal law spans 1.35 standard deviations.
        if 0 < (high - low) * scaling.factors[column.place] < 1.35 / _FAR_VALUES:
            far.append(column.name)
    if far:
        say(
            f"A few far values set the standard deviation of {listed(far)}, in which the other rows lie close "
            "together. Are they errors?"
        )


def pieces_of(points: HostArray, memory: int) -> Iterator[HostArray]:
    """All rows, a few at a time."""
    step = piece_rows(memory, points.shape[1])
    for first in range(0, len(points), step):
        yield points[first : first + step]
