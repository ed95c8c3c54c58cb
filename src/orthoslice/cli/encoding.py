"""Columns as features: numbers as they are, categories and gaps as 0 and 1."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orthoslice.applications.columns import MISSING, OTHERS, TableColumn
from orthoslice.applications.scaling import Scaling
from orthoslice.backend.arrays import HostArray
from orthoslice.cli.column_kinds import Category
from orthoslice.cli.formats.source import How, Source
from orthoslice.cli.notation import as_numbers, as_texts

# A row that changes from one value of a category to another moves as far as a number that changes by
# `CATEGORY_STEP` standard deviations. The sides of a fair coin, written as 0 and 1, are as far apart.
CATEGORY_STEP = 2.0


@dataclass(frozen=True)
class Encoding:
    """Which features stand for which columns, for all files of a comparison."""

    columns: tuple[TableColumn, ...]
    fills: Mapping[str, float]
    """What stands in the place of missing numbers, beside a feature that is 1 there."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Columns that were left out without being named, and what they hold."""

    @property
    def features(self) -> list[str]:
        """What the features are called."""
        return [name for column in self.columns for name in _feature_names(column)]

    @property
    def n_features(self) -> int:
        return sum(len(c.features) + (c.missing is not None) for c in self.columns)

    def with_steps(self, scaling: Scaling) -> Scaling:
        """The same units for numbers; categories and gaps in steps of :data:`CATEGORY_STEP`."""
        factors = np.array(scaling.factors)
        for column in self.columns:
            if column.is_category:
                # Two features change if a row goes from one value to another.
                n_changed = 1 if len(column.levels) == 1 else 2
                factors[column.features] = CATEGORY_STEP / math.sqrt(n_changed)
            if column.missing is not None:
                factors[column.missing] = CATEGORY_STEP
        return scaling._replace(factors=factors)


def make_encoding(kinds: Mapping[str, Any], gaps: Mapping[str, float]) -> Encoding:
    """Features for columns of these kinds, in their order; those in `gaps` may have missing values.

    What stands there is put in the place of missing numbers; for categories a gap is one more value.
    """
    columns, place = [], 0
    for name, kind in kinds.items():
        if isinstance(kind, Category):
            column = _category(name, place, kind, name in gaps)
        else:
            column = TableColumn(name, place, missing=place + 1 if name in gaps else None)
        columns.append(column)
        place += len(column.features) + (column.missing is not None)
    return Encoding(tuple(columns), {c.name: gaps[c.name] for c in columns if c.missing is not None})


def _category(name: str, place: int, kind: Category, gaps: bool) -> TableColumn:
    levels = kind.levels + (OTHERS,) * kind.has_others + (MISSING,) * gaps
    if len(levels) != 2:
        return TableColumn(name, place, levels)
    first, second = sorted(levels)
    return TableColumn(name, place, (second,), first)


def _feature_names(column: TableColumn) -> Iterator[str]:
    if not column.is_category:
        yield column.name
    for level in column.levels:
        yield f"{column.name} = {level if level in (OTHERS, MISSING) else repr(level)}"
    if column.missing is not None:
        yield f"{column.name} is missing"


def encoded_pieces(
    source: Source, columns: list[str], encoding: Encoding, more: list[str], how: How
) -> Iterator[tuple[HostArray, dict[str, Any]]]:
    """The rows of a file as features `(rows, features)`, NaN where something is missing, a few rows at a time.

    `columns` are what this file calls the columns of the encoding. The columns `more` come beside, as numbers
    where they are, or else as text.
    """
    if source.batches is not None:
        numbers = {c for c, of in zip(columns, encoding.columns, strict=True) if not of.is_category}
        for batch in source.batches([*columns, *(c for c in more if c not in columns)], numbers):
            cells = [batch.column(c) for c in columns]
            yield _encoded(cells, batch.num_rows, encoding, how), {c: batch.column(c) for c in more}
        return
    assert source.pieces is not None
    places = places_of(source, [*columns, *more])
    for piece in source.pieces(places):
        beside = {c: piece[:, len(columns) + k] for k, c in enumerate(more)}
        yield _filled(piece[:, : len(columns)], encoding), beside


def places_of(source: Source, columns: list[str]) -> list[int]:
    """Where these columns are among all columns of a file."""
    # Numbered names are found by their number: there may be millions.
    if not isinstance(source.columns, list):
        return [source.columns.index(column) for column in columns]
    place = {column: k for k, column in enumerate(source.columns)}
    return [place[column] for column in columns]


def _encoded(cells: list[Any], n_rows: int, encoding: Encoding, how: How) -> HostArray:
    found = np.zeros((n_rows, encoding.n_features))
    for column, values in zip(encoding.columns, cells, strict=True):
        if column.is_category:
            found[:, column.features] = _indicators(as_texts(values, how), column)
        else:
            numbers = as_numbers(values, how)
            assert numbers is not None
            _put_numbers(found, column, numbers, encoding.fills)
    return found


def _filled(piece: HostArray, encoding: Encoding) -> HostArray:
    if not encoding.fills:
        return piece
    found = np.zeros((len(piece), encoding.n_features))
    for k, column in enumerate(encoding.columns):
        _put_numbers(found, column, piece[:, k], encoding.fills)
    return found


def _put_numbers(found: HostArray, column: TableColumn, numbers: HostArray, fills: Mapping[str, float]) -> None:
    if column.missing is not None:
        gaps = np.isnan(numbers)
        found[:, column.missing] = gaps
        numbers = np.where(gaps, fills[column.name], numbers)
    found[:, column.place] = numbers


def _indicators(texts: Any, column: TableColumn) -> HostArray:
    """1 for the value of every row, `(rows, levels)`; NaN where it is missing and that is no value."""
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    known = [*column.levels, *([] if column.rest is None else [column.rest])]
    codes = compute.index_in(texts, value_set=arrow.array(known, arrow.string()))
    codes = codes.fill_null(known.index(OTHERS) if OTHERS in known else -1).to_numpy(zero_copy_only=False)
    is_missing = texts.is_null().to_numpy(zero_copy_only=False)
    codes = np.where(is_missing, known.index(MISSING) if MISSING in known else -2, codes)
    found: HostArray = (codes[:, None] == np.arange(len(column.levels))).astype(np.float64)
    found[codes == -2] = np.nan
    return found
