"""From options to an answer: tables are read, parts worked out one by one, and what there is is printed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orthoslice.applications.compare.compare import Comparison, Plan
from orthoslice.backend.stopping import EXIT_INTERRUPTED, interrupts, stoppable
from orthoslice.backend.threads import default_workers
from orthoslice.check.options import check_memory
from orthoslice.cli.files import Choice, Loaded, read_tables
from orthoslice.cli.options import Drawing, Reading
from orthoslice.cli.render import print_json, say, wants_json
from orthoslice.cli.sources import STANDARD_INPUT

EXIT_NO = 1

_UNITS = {
    None: "in units of the data",
    "standard": "in standard deviations of the columns",
    "whiten": "in standard deviations, without correlations",
}

_STAGES = {
    "sliced": "Measuring how far apart they are",
    "test": "Shuffling rows between them",
    "bounds": "Looking for certain bounds",
    "shuffled_move": "Matching shuffled rows",
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
    exit_code: int = 0

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return [{"name": t.name, "rows": len(t.points), "columns": t.points.shape[1]} for t in self.tables]

    @property
    def labels(self) -> list[str]:
        """What to call the tables: the ends of their paths, if those differ."""
        short = ["standard input" if t.name == STANDARD_INPUT else Path(t.name).name for t in self.tables]
        return short if len(set(short)) == len(short) else [t.name for t in self.tables]


def read(files: Sequence[str], reading: Reading, weights: str | None = None) -> Answer:
    """Read the tables; what was left out is said at once, and kept for the answer."""
    columns = None if reading.columns is None else [c.strip() for c in reading.columns.split(",")]
    width, _, height = (reading.resize or "").partition("x")
    notes: list[str] = []

    def tell(note: str) -> None:
        notes.append(note)
        say(note)

    choice = Choice(
        columns=columns,
        weights=weights,
        drop_missing=reading.drop_missing,
        scale=reading.scale,
        resize=(int(width), int(height)) if reading.resize else None,
        memory=check_memory(reading.memory),
    )
    with status("Reading"):
        tables = read_tables(files, choice, tell)
    return Answer(tables, notes)


def plan(answer: Answer, reading: Reading, drawing: Drawing, **others: Any) -> Plan:
    """A comparison of the two tables that were read; half of the memory is for working on them."""
    from orthoslice.applications.compare.compare import plan_comparison

    a, b = answer.tables
    memory = check_memory(reading.memory)
    # Each worker holds a direction: the projections of all rows, and as much again twice to sort them.
    row_bytes = 3 * a.points.itemsize * (len(a.points) + len(b.points))
    workers = max(1, min(default_workers(), (3 * memory // 4 - _KEPT_BYTES) // row_bytes))
    first, second = answer.labels
    return plan_comparison(
        a.points,
        b.points,
        drawing.p,
        names=(first, second),
        features=a.columns,
        units=_UNITS[reading.scale],
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


def work_out(ready: Plan, parts: Sequence[str], answer: Answer, scheduler: str | None = None) -> Comparison:
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


def fitting(answer: Answer, memory: int, seed: int) -> list[Any]:
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
def status(what: str, quiet: bool = False) -> Iterator[None]:
    """Say on a terminal what is going on, and take it away afterwards."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


def printed_as_json(record: dict[str, Any], json: bool | None) -> bool:
    """Print the record if it is to be JSON; whether that was so."""
    if wants_json(json):
        print_json(record)
        return True
    return False
