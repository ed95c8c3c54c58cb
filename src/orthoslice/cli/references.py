"""A reference in a file, and batches that are checked against it: :class:`DriftDetector` with tables.

The file (.osl) is a ZIP archive without pickles: `reference.json` says in plain values what the columns and
their units are and how the detector was made, `points.npy` and `null_distribution.npy` are arrays.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from orthoslice.adapters.drift import Drift, DriftDetector
from orthoslice.applications.columns import (
    ColumnChange,
    TableColumn,
    compare_columns,
    edges_of,
    tally_rows,
)
from orthoslice.applications.compare.words import Section, is_open, rows_in_words, tell_columns
from orthoslice.applications.scaling import Scaling, fit_scaling
from orthoslice.backend.arrays import HostArray
from orthoslice.backend.markup import shown
from orthoslice.backend.writing import replacing
from orthoslice.cli.encoding import Encoding
from orthoslice.cli.formats.source import FileError, check_quarter, first_line, shown_name
from orthoslice.cli.matching import Choice
from orthoslice.cli.tables import Loaded, gather_known

_FORMAT, _VERSION = "orthoslice reference", 1

# 1 / _UNITS_PART of the reference sets the units and serves for nothing else: rows that set units look tamer in
# them than new ones do.
_UNITS_PART = 4

# A batch has at most 1 / _FEWEST_BATCHES of the rows of the reference.
_FEWEST_BATCHES = 10

# A batch has this many rows unless it is said otherwise: one in twenty rows of the reference.
_USUAL_BATCHES = 20


@dataclass(frozen=True)
class Reference:
    """What is known of a reference: its columns, their units, and a detector."""

    name: str
    n_rows: int
    """Of the file that it was made from."""
    encoding: Encoding
    missing: str
    """What happens to missing values: "refuse", "drop" or "indicate"."""
    scaling: Scaling
    units: str
    detector: DriftDetector


def make_reference(
    table: Loaded, units: str | None, missing: str, max_rows: int, batch_size: int | None, **options: Any
) -> Reference:
    """Fit a detector to at most `max_rows` rows of a table in its own units, chosen at random.

    `units` are "standard" or None for those of the table; `options` are those of :class:`DriftDetector`.
    """
    draw = np.random.default_rng(options["rng"])
    n = len(table.points)
    rows = draw.permutation(n) if n <= max_rows else draw.choice(n, size=max_rows, replace=False)
    points = np.asarray(table.points[np.sort(rows)])[np.argsort(np.argsort(rows))]
    scaling = _units_of(points, table.encoding, units)
    if units is not None:
        points = points[len(points) // _UNITS_PART :]
    size = batch_size or max(1, len(points) // _USUAL_BATCHES)
    _check_size(table.name, size, len(points))
    detector = DriftDetector(size, **options).fit(scaling.apply(points))
    return Reference(table.name, n, table.encoding, missing, scaling, units or "raw", detector)


def _units_of(points: HostArray, encoding: Encoding, units: str | None) -> Scaling:
    n_features = points.shape[1]
    if units is None:
        return Scaling(np.zeros(n_features), np.ones(n_features), None)
    found = fit_scaling([points[: max(1, len(points) // _UNITS_PART)]], units)
    # What is constant in the reference counts in a batch, where it may have changed: in parts of its size.
    sizes = np.abs(found.centre)
    own = np.divide(1.0, sizes, out=np.ones(n_features), where=sizes > 0)
    return encoding.with_steps(found._replace(factors=np.where(found.factors > 0, found.factors, own)))


def _check_size(name: str, size: int, n_rows: int) -> None:
    if n_rows < _FEWEST_BATCHES * size or size < 1:
        raise FileError(
            f"{shown_name(name)}: a reference needs {_FEWEST_BATCHES} times the rows of a batch, "
            f"{_FEWEST_BATCHES * size:,}; {n_rows:,} are left besides those that set the units. Pass a smaller "
            "--batch-size, or more rows."
        )


def check_batch(
    reference: Reference, batch: Loaded, level: float, seed: int, tell: Callable[[str], None]
) -> tuple[Drift, tuple[ColumnChange, ...]]:
    """What the detector says of a batch in units of its file, and how its columns differ, each at `level` / 2.

    A detector for batches of another size is made where that is needed.
    """
    state = reference.detector.state()
    points = state["points"]
    size = min(len(batch.points), len(points) // _FEWEST_BATCHES)
    rows = np.asarray(batch.points)
    if size < len(rows):
        rows = rows[np.random.default_rng(seed).choice(len(rows), size=size, replace=False)]
        tell(f"The detector looks at {size:,} rows of the batch, chosen at random: a tenth of the reference.")
    if size == state["batch_size"]:
        detector = DriftDetector.from_state(state | {"false_alarm_rate": level / 2})
    else:
        kept = {"p", "n_splits", "n_directions"}
        options = {name: value for name, value in state.items() if name in kept}
        detector = DriftDetector(size, false_alarm_rate=level / 2, rng=state["seed"], **options).fit(points)
    found = detector.predict(reference.scaling.apply(rows))
    columns = reference.encoding.columns
    theirs = points / reference.scaling.factors + reference.scaling.centre
    edges = edges_of([theirs, batch.points], columns)
    x, y = (tally_rows(some, columns, edges) for some in (theirs, batch.points))
    return found, compare_columns(x, y, columns)


def read_batch(name: str, reference: Reference, choice: Choice, say: Callable[[str], None]) -> Loaded:
    """The rows of a file as the features of the reference, in units of the file."""
    return gather_known(name, reference.encoding, choice._replace(missing=reference.missing), say)


def write_reference(path: Path, reference: Reference) -> None:
    """Write a reference to a file that :func:`read_reference` reads."""
    from orthoslice import __version__

    state = reference.detector.state()
    arrays = {name: state.pop(name) for name in ("points", "null_distribution")}
    record = {
        "format": _FORMAT,
        "version": _VERSION,
        "orthoslice": __version__,
        "name": reference.name,
        "rows": reference.n_rows,
        "missing": reference.missing,
        "units": reference.units,
        "columns": [_column_record(c, reference.encoding) for c in reference.encoding.columns],
        "centre": cast(HostArray, reference.scaling.centre).tolist(),
        "factors": cast(HostArray, reference.scaling.factors).tolist(),
        "detector": state,
    }
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        # Members that are opened have no date: the same reference makes the same file.
        with archive.open("reference.json", "w") as member:
            member.write(json.dumps(record, indent=2, allow_nan=False).encode())
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


def _column_record(column: TableColumn, encoding: Encoding) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "kind": "category" if column.is_category else "number"}
    if column.is_category:
        found |= {"levels": list(column.levels), "rest": column.rest}
    if column.missing is not None:
        found["fill"] = encoding.fills[column.name]
    return found


def read_reference(name: str, memory: int) -> Reference:
    """Read what :func:`write_reference` wrote; whatever is wrong with the file is an error of one line."""
    try:
        with zipfile.ZipFile(name) as archive:
            for info in archive.infolist():
                check_quarter(name, info.filename, info.file_size, memory, "make it of fewer rows")
            record = json.loads(archive.read("reference.json"))
            if record["format"] != _FORMAT or record["version"] != _VERSION:
                raise FileError(
                    f"{name}: must be a reference of version {_VERSION}; got {record['format']!r}, version "
                    f"{record['version']!r}. Make it again with `orthoslice fit`."
                )
            arrays = {}
            for part in ("points", "null_distribution"):
                with archive.open(f"{part}.npy") as member:
                    arrays[part] = np.lib.format.read_array(member, allow_pickle=False)
        return _restored(record, arrays)
    except FileNotFoundError:
        raise FileError(f"{name}: there is no such file; `orthoslice fit` makes it.") from None
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        if isinstance(error, FileError):
            raise
        said = first_line(error).removesuffix(".") + ". `orthoslice fit` makes one."
        raise FileError(f"{name}: cannot be read as a reference (.osl): {said}") from None


def _restored(record: dict[str, Any], arrays: dict[str, HostArray]) -> Reference:
    columns, fills, place = [], {}, 0
    for told in record["columns"]:
        missing = None
        if "fill" in told:
            missing, fills[told["name"]] = place + 1, float(told["fill"])
        column = TableColumn(told["name"], place, tuple(told.get("levels", ())), told.get("rest"), missing)
        columns.append(column)
        place += len(column.features) + (missing is not None)
    centre, factors = (np.array(record[part], dtype=np.float64) for part in ("centre", "factors"))
    scaling = Scaling(centre, factors, None)
    if not len(scaling.centre) == len(scaling.factors) == arrays["points"].shape[1] == place:
        raise ValueError("its columns and its points do not agree.")
    encoding = Encoding(tuple(columns), fills)
    detector = DriftDetector.from_state(record["detector"] | arrays)
    return Reference(
        record["name"], record["rows"], encoding, record["missing"], scaling, record["units"], detector
    )


def tell_check(
    reference: Reference,
    batch: str,
    drift: Drift,
    columns: Sequence[ColumnChange],
    pvalue: float,
    level: float,
) -> list[Section]:
    """What was found of a batch, in words."""
    name = Path(reference.name).name
    answer = "No."
    if pvalue > level:
        there = f"No difference was found in the {len(columns):,} columns looked at."
        answer = "It cannot be told." if is_open(pvalue, level, 0.0) else there
    lines = (
        f"It is {drift.statistic:.4g} from the reference; {100 - 50 * level:g}% of its own batches are at most "
        f"{drift.threshold:.4g} from the rest (p = {drift.pvalue:.2g}).",
        f"Of that and of all columns together, p = {pvalue:.2g}.",
    )
    size = rows_in_words(columns[0].rows[1])
    question = f"Does {batch} ({size}) look like {name} ({rows_in_words(reference.n_rows)})?"
    told = tell_columns(columns, (name, batch), level / 2, "", verdict=pvalue / 2)
    if pvalue <= level and all(c.pvalue is None or c.pvalue > level / 2 for c in columns):
        told = told._replace(lines=("Its rows as a whole are too far from the reference.",))
    return [Section(shown(question), answer, lines), told]
