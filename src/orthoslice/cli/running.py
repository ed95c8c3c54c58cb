"""From options to an answer: reads tables, works parts out one by one, prints those that are finished."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orthoslice.applications.columns import ColumnChange, compare_columns
from orthoslice.applications.compare.compare import PreparedComparison, prepare_comparison
from orthoslice.applications.compare.comparison import Comparison
from orthoslice.backend.markup import shown
from orthoslice.backend.stopping import EXIT_INTERRUPTED, interrupts, stoppable
from orthoslice.backend.threads import default_workers
from orthoslice.check.options import check_memory
from orthoslice.cli.formats.source import STANDARD_INPUT
from orthoslice.cli.matching import Choice, split_names
from orthoslice.cli.options import Drawing, Reading
from orthoslice.cli.render import print_json, say, wants_json
from orthoslice.cli.tables import Loaded, read_tables

if TYPE_CHECKING:
    from orthoslice.cli.references import Reference

EXIT_NO = 1

_UNITS = {
    None: "in units of the data",
    "standard": "in standard deviations of the columns",
    "whiten": "in standard deviations, without correlations",
}

_STAGES = {
    "sliced": "Measuring how far apart they are",
    "test": "Shuffling rows between them",
    "bounds": "Matching all rows",
    "shuffled_moves": "Matching shuffled rows",
    "projected": "Measuring in full space",
    "explanation": "Looking for what differs",
}

_ESTIMATES = ("sliced", "projected")

# What readers and kernels keep for themselves.
_KEPT_BYTES = 24_000_000

# Rows times columns above which a part takes long enough for a bar of its own.
_LONG = 5_000_000


@dataclass
class Answer:
    """What a command has to say, and how it ends."""

    tables: list[Loaded]
    notes: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """Every option that changes numbers, as it was passed or is by default."""
    exit_code: int = 0

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return [
            {"name": t.name, "rows": len(t.points), "columns": len(t.encoding.columns)} for t in self.tables
        ]

    @property
    def left_out(self) -> Mapping[str, str]:
        """Columns that were left out without being named, and what they hold."""
        return self.tables[0].encoding.left_out

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many rows were left out for their gaps, of the tables that had some."""
        if self.options.get("by") is not None:
            return {"the file": n} if (n := self.tables[0].n_dropped) else {}
        return {label: t.n_dropped for label, t in zip(self.labels, self.tables, strict=True) if t.n_dropped}

    @property
    def scale(self) -> str | None:
        """The units that were chosen: None for raw ones, or as the library calls them."""
        return self.tables[0].scale

    @property
    def units(self) -> str:
        """What lengths are measured in, in words."""
        return _UNITS[self.scale]

    def tell(self, note: str) -> None:
        """Say something at once, and keep it for the answer."""
        self.notes.append(note)
        say(note)

    def changes(self, first: int, second: int) -> tuple[ColumnChange, ...]:
        """How the columns of two tables differ."""
        a, b = self.tables[first], self.tables[second]
        if a.tally is None or b.tally is None:
            return ()
        is_plain = a.weights is None and b.weights is None
        return compare_columns(a.tally, b.tally, a.encoding.columns, test=is_plain)

    @property
    def labels(self) -> list[str]:
        """What to call the tables: the ends of their paths, if those differ; of groups, which they are."""
        if self.options.get("by") is not None:
            return [t.name for t in self.tables]
        short = ["standard input" if t.name == STANDARD_INPUT else Path(t.name).name for t in self.tables]
        return short if len(set(short)) == len(short) else [t.name for t in self.tables]


def read(files: Sequence[str], reading: Reading, *groups: Any, tally: bool = False) -> Answer:
    """Read the tables; what was left out is said at once, and kept for the answer.

    The other `groups` of options are those that the command takes; `tally` asks for columns one by one.
    """
    answer = Answer([], options=_options(reading, *groups))
    choice = _choice(reading, answer.options, tally=tally)
    with status("Reading") as progress:
        answer.tables += read_tables(files, choice, answer.tell, progress)
    return answer


def read_reference(
    file: str, reading: Reading, drawing: Drawing, options: dict[str, Any]
) -> tuple[Answer, str | None]:
    """A table in its own units that others are to be compared with, and the units to do it in."""
    if reading.whiten:
        raise ValueError("A reference is in standard or raw units; leave --whiten out.")
    answer = Answer([], options=_options(reading, drawing) | options)
    choice = _choice(reading, answer.options, is_open=True)
    with status("Reading") as progress:
        answer.tables += read_tables([file], choice._replace(scale=None), answer.tell, progress)
    is_standard = choice.scale == "standard" or (choice.scale == "auto" and answer.tables[0].is_table)
    return answer, "standard" if is_standard else None


def read_batch(
    reference: str, batch: str, reading: Reading, drawing: Drawing, level: float | None
) -> tuple[Reference, Answer]:
    """A reference that was written, and a table in its own units that has the columns of it."""
    from orthoslice.cli import references

    answer = Answer([], options=_options(reading, drawing))
    choice = _choice(reading, answer.options)
    known = references.read_reference(reference, choice.memory)
    # A detector keeps half of the level that `fit` was given: columns have the other half.
    answer.options["level"] = 2 * known.detector.false_alarm_rate if level is None else level
    with status("Reading"):
        answer.tables.append(references.read_batch(batch, known, choice, answer.tell))
    return known, answer


def _options(*groups: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for group in groups:
        found |= group._asdict()
    return found


def _choice(reading: Reading, options: dict[str, Any], **more: Any) -> Choice:
    """What is wanted of the files, as these options say."""
    width, _, height = (reading.resize or "").partition("x")
    return Choice(
        columns=None if reading.columns is None else split_names(reading.columns),
        ignore=tuple(split_names(reading.ignore or "")) if reading.ignore else (),
        weights=options.get("weights"),
        by=options.get("by"),
        missing=reading.gaps,
        strict=reading.strict,
        scale=reading.scale,
        resize=(int(width), int(height)) if reading.resize else None,
        memory=check_memory(reading.memory),
        decimal=reading.decimal,
        thousands=reading.thousands,
        signs=reading.signs or "",
        encoding=reading.encoding,
        na_values=tuple(split_names(reading.na_values)) if reading.na_values else (),
        **more,
    )


def prepare(answer: Answer, reading: Reading, drawing: Drawing, **others: Any) -> PreparedComparison:
    """A comparison of the two tables that were read; half of the memory is for working on them."""
    a, b = answer.tables
    others = {"columns": answer.changes(0, 1), "left_out": answer.left_out, "dropped": answer.dropped} | others
    memory = check_memory(reading.memory)
    # Each worker holds a direction: the projections of all rows, and as much again twice to sort them.
    row_bytes = 3 * a.points.itemsize * (len(a.points) + len(b.points))
    workers = max(1, min(default_workers(), (3 * memory // 4 - _KEPT_BYTES) // row_bytes))
    first, second = answer.labels
    return prepare_comparison(
        a.points,
        b.points,
        drawing.p,
        names=(first, second),
        features=a.columns,
        units=answer.units,
        x_weights=a.weights,
        y_weights=b.weights,
        directions=drawing.directions.value,
        n_directions=drawing.n_directions,
        rng=drawing.seed,
        memory=memory // 2,
        workers=workers,
        progress=sys.stderr.isatty() and (len(a.points) + len(b.points)) * len(a.columns) > _LONG,
        **others,
    )


def work_out(
    ready: PreparedComparison, parts: Sequence[str], answer: Answer, scheduler: str | None = None
) -> Comparison:
    """The `parts` of a comparison, one by one; after Ctrl-C the finished ones, and an estimate cut short.

    With `scheduler`, the address of a cluster, that cluster computes the sliced distance, which uses all rows.
    """
    found: dict[str, Any] = {}
    try:
        for part in parts:
            with contextlib.ExitStack() as stack:
                if found:
                    stack.enter_context(interrupts.raising())
                stack.enter_context(status(_STAGES[part], quiet=ready.progress))
                # Only estimates can be stopped early with a result.
                stop = stack.enter_context(stoppable()) if part in _ESTIMATES else None
                own = ready
                if scheduler is not None and part == "sliced":
                    from orthoslice.cli.clusters import on_cluster

                    own = stack.enter_context(on_cluster(ready, scheduler))
                found[part] = own.work_out(part)
            if stop is not None and stop.asked:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        answer.exit_code = EXIT_INTERRUPTED
        if not found:
            raise
        answer.notes.append("Stopped by Ctrl-C: this is what there was by then.")
        say(answer.notes[-1])
    for part in _ESTIMATES:
        if answer.exit_code != EXIT_INTERRUPTED and part in found and found[part].converged is False:
            answer.exit_code = EXIT_NO
            say(f"the {part} distance is less accurate than --rtol asks for; raise --n-directions.")
    return ready.finish(found)


def points_within_memory(answer: Answer, memory: int, seed: int) -> list[Any]:
    """The points of all tables, or as many rows of them, at random, as fit in a quarter of the memory."""
    import numpy as np

    from orthoslice.applications.compare.compare import some_rows
    from orthoslice.clouds.cloud import Cloud

    row_bytes = 8 * answer.tables[0].points.shape[1]
    most = max(2, memory // 4 // len(answer.tables) // row_bytes)
    draw = np.random.default_rng(seed)
    clouds = [some_rows(Cloud(table.points), most, draw).points for table in answer.tables]
    if any(len(c) < len(t.points) for c, t in zip(clouds, answer.tables, strict=True)):
        answer.notes.append(f"Of larger tables {most:,} rows count, chosen at random; raise --memory for more.")
        say(answer.notes[-1])
    return clouds


@contextlib.contextmanager
def status(what: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is going on, and take it away afterwards; what is yielded says something else."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(f"{what} ...") as spinner:
        yield lambda told: spinner.update(Text(shown(f"{told} ...")))


def printed_as_json(record: dict[str, Any], json: bool | None) -> bool:
    """Print the record if it is to be JSON; whether that was so."""
    if wants_json(json):
        print_json(record)
        return True
    return False
