"""Data frames: tables with named columns, read as arrays. Columns are matched by name, and errors name them."""

from __future__ import annotations

import numbers
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from orthoslice.backend.arrays import HostArray, library

# Categories are names, even where they are written as numbers: their differences mean nothing.
_CATEGORIES = ("category", "categorical", "enum", "dictionary")

# Types whose columns may be read together. In a table with other types, even dates can come out as numbers.
_NUMBERS = re.compile(r"(u?int\d*|float\d*|double|halffloat|decimal.*|bool|boolean|sparse\[.*)(\[pyarrow\])?")


def match_columns(x: object, y: object) -> tuple[Any, Any]:
    """Both clouds, with data frames read as arrays; of two frames, `y` has its columns in the order of `x`.

    A frame against anything else is taken by position.

    Examples
    --------
    >>> import pandas as pd
    >>> x, y = pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({"b": [3], "a": [4]})
    >>> match_columns(x, y)[1].tolist()
    [[4, 3]]
    """
    named = {name: column_names(name, value) for name, value in (("x", x), ("y", y))}
    if named["x"] is not None:
        x = _read_table("x", x, named["x"])
    if named["y"] is not None:
        y = _read_table("y", y, named["y"])
        if named["x"] is not None and named["x"] != named["y"]:
            check_same_names(named["x"], named["y"])
            place = {column: k for k, column in enumerate(named["y"])}
            y = y[:, [place[column] for column in named["x"]]]
    return x, y


def is_frame(value: object) -> bool:
    """Whether `value` is a table with named columns: of pandas, polars, pyarrow and others like them."""
    if library(value) is not None or not (hasattr(value, "to_numpy") or hasattr(value, "column_names")):
        return False
    return hasattr(value, "columns")


def read_frame(name: str, value: object) -> HostArray:
    """A frame as an array of real numbers, columns by position; or an error that names column and row."""
    columns = column_names(name, value)
    assert columns is not None
    return _read_table(name, value, columns)


def read_column(name: str, column: Any) -> HostArray:
    """A column, or whatever else can become a NumPy array, as real numbers; `name` is how errors call it."""
    kind = str(getattr(column, "dtype", getattr(column, "type", "")))
    if kind.lower().startswith(_CATEGORIES):
        raise TypeError(
            f"{name} must hold real numbers; got categories (type {kind}). Say what number each stands for, or "
            "make a column of 0 and 1 for each."
        )
    values: HostArray = column.to_numpy()
    if values.dtype.kind == "O":
        return _from_objects(name, values)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers; got type {kind or values.dtype}.")
    return values


def like_frame(table: Any, frame: Any, columns: Sequence[Hashable]) -> Any:
    """A frame of the kind of `frame`, with its row labels, other numbers and these columns.

    Examples
    --------
    >>> import pandas as pd
    >>> like_frame([[1.5]], pd.DataFrame({"a": [1]}, index=["row"]), ["a"])
           a
    row  1.5
    """
    kind = type(frame)
    if hasattr(frame, "index"):
        return kind(table, index=frame.index, columns=list(columns))
    if hasattr(frame, "with_columns"):
        return kind(table, schema=list(columns))
    return kind.from_pydict({c: table[:, k] for k, c in enumerate(columns)})


def check_row_labels(name: str, weights: object, points: object) -> None:
    """Raise where weights have the row labels of the points in another order: they are taken by position."""
    labels: Any = getattr(points, "index", None)
    given: Any = getattr(weights, "index", None)
    # Lists have an `index` too.
    if not (hasattr(labels, "equals") and hasattr(given, "equals")) or labels.equals(given):
        return
    if len(labels) == len(given) and set(labels) == set(given):
        of = name.removesuffix("_weights")
        raise ValueError(
            f"`{name}` must be in the order of the rows of `{of}`, since weights are taken by position; its "
            f"index has the labels of `{of}` in another order. Pass `{name}.loc[{of}.index]`."
        )


def column_names(name: str, value: Any) -> list[Hashable] | None:
    """The names of the columns of a frame, or None if `value` is not a frame."""
    if not is_frame(value):
        return None
    return check_names(name, getattr(value, "column_names", value.columns))


def check_names(name: str, names: Iterable[Hashable]) -> list[Hashable]:
    """The names of columns, which must differ."""
    columns = list(names)
    if twice := repeated(columns):
        raise ValueError(f"`{name}` must have a name of its own for each column; got {listed(twice)} twice.")
    return columns


def feature_names(
    argument: str, names: Iterable[Hashable] | None, x: object, y: object
) -> list[Hashable] | None:
    """The columns of a frame or, of arrays, the names given for their features; None where there is neither."""
    of_frame = next((column_names(n, c) for n, c in (("x", x), ("y", y)) if is_frame(c)), None)
    if names is None:
        return of_frame
    if of_frame is not None:
        raise ValueError(f"`{argument}` must be None beside a data frame, whose columns are the names.")
    # The repr of NumPy's strings, np.str_('age'), would show in texts.
    named: list[Hashable] = [n.item() if isinstance(n, np.generic) else n for n in names]
    if twice := repeated(named):
        raise ValueError(f"`{argument}` must differ from each other; got {listed(twice)} twice.")
    return named


def repeated(names: Sequence[Hashable]) -> list[Hashable]:
    """The names that occur more than once."""
    if len(set(names)) == len(names):
        return []
    return [name for name, count in Counter(names).items() if count > 1]


def check_same_names(
    x_columns: list[Hashable], y_columns: list[Hashable], names: tuple[str, str] = ("x", "y")
) -> None:
    """Raise unless frames of these names have the same columns, in any order."""
    only = [without(x_columns, y_columns), without(y_columns, x_columns)]
    if any(only):
        found = " and ".join(f"only `{n}` has {listed(o)}" for n, o in zip(names, only, strict=True) if o)
        raise ValueError(
            f"Data frames `{names[0]}` and `{names[1]}` must have the same columns, in any order; {found}. To "
            f"match columns by position, pass `{names[0]}.to_numpy()` and `{names[1]}.to_numpy()`."
        )


def without(columns: Sequence[Hashable], others: Iterable[Hashable]) -> list[Hashable]:
    """The columns that are not among the others."""
    there = set(others)
    return [c for c in columns if c not in there]


def listed(columns: Sequence[Hashable], most: int = 8) -> str:
    """Names in a sentence, the first of them where there are many."""
    named = ", ".join(repr(c) for c in columns[:most])
    return named if len(columns) <= most else f"{named} and {len(columns) - most} more"


def _read_table(name: str, value: Any, columns: list[Hashable]) -> HostArray:
    table = _read_at_once(value)
    if table is None:
        read = [read_column(f"Column {c!r} of `{name}`", value[c]) for c in columns]
        table = np.column_stack(read) if read else np.empty((len(value), 0))
    if table.dtype.kind == "f" and not np.isfinite(table).all():
        row, k = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
        what = "a missing value (nan)" if np.isnan(table[row, k]) else str(table[row, k])
        raise ValueError(
            f"Column {columns[k]!r} of `{name}` must be finite; got {what} at row {row}. Drop or replace it."
        )
    return table


def _read_at_once(value: Any) -> HostArray | None:
    """The whole table, or None where columns must be read one by one."""
    types = getattr(value, "dtypes", None)
    if types is None or not all(_NUMBERS.fullmatch(str(t).lower()) for t in set(types)):
        return None
    table: HostArray = value.to_numpy()
    return table if table.dtype.kind in "biuf" else None


def _from_objects(name: str, values: HostArray) -> HostArray:
    """Real numbers from an array of objects, such as a nullable column without missing values."""
    for row, value in enumerate(values.flat):
        if isinstance(value, numbers.Real):
            continue
        # By the name of the type: NA and NaT belong to pandas, which need not be installed.
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            what = f"a missing value ({value})"
            raise ValueError(f"{name} must be finite; got {what} at row {row}. Drop or replace it.")
        raise TypeError(f"{name} must hold real numbers; got {value!r} at row {row}.")
    # Through a list: integers stay integers.
    found = np.asarray(values.tolist())
    return found if found.dtype.kind in "biuf" else found.astype(np.float64)
