"""The commands that keep a reference in a file, and check batches against it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orthoslice.cli.app import app
from orthoslice.cli.options import Drawing, Printing, Reading, command
from orthoslice.cli.telling import leave


@command(app, Reading, Drawing, Printing)
def fit(
    a: Annotated[
        str, typer.Argument(metavar="REF", help="The reference: a table whose rows are as they should be.")
    ],
    reading: Reading,
    drawing: Drawing,
    printing: Printing,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it: an .osl file.")] = Path(
        "reference.osl"
    ),
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of the batches to come. Default: a twentieth of the reference."),
    ] = None,
    level: Annotated[
        float, typer.Option(min=0, max=1, help="How often a sound batch may raise an alarm.")
    ] = 0.05,
    max_rows: Annotated[
        int, typer.Option(min=2, help="Of a larger reference this many rows are kept, chosen at random.")
    ] = 20_000,
    n_splits: Annotated[
        int, typer.Option(min=1, help="How many random batches of the reference set the threshold.")
    ] = 999,
) -> None:
    """Learn what batches of a reference look like, and write it to a file for check.

    Example: [bold]orthoslice fit reference.csv -o reference.osl[/bold]
    """
    from orthoslice.cli import references, render, running, schema
    from orthoslice.cli.row_pairs import check_output

    check_output(output, (".osl",), (a,))
    options = {"batch_size": batch_size, "level": level, "max_rows": max_rows, "n_splits": n_splits}
    answer, units = running.read_reference(a, reading, drawing, options)
    with running.status("Setting the threshold"):
        found = references.make_reference(
            answer.tables[0],
            units,
            reading.gaps,
            max_rows,
            batch_size,
            false_alarm_rate=level / 2,
            p=1 if drawing.p is None else drawing.p,
            directions=drawing.directions.value,
            n_directions=drawing.n_directions,
            n_splits=n_splits,
            rng=drawing.seed,
        )
    references.write_reference(output, found)
    record = schema.record("fit", answer, answer.notes, units) | schema.of_reference(str(output), found)
    if not running.printed_as_json(record, printing.json):
        size, threshold = found.detector.batch_size, found.detector.threshold
        render.say(f"wrote {output}: batches of {size:,} rows may be {threshold:.4g} from it.")


@command(app, Reading, Drawing, Printing)
def check(
    reference: Annotated[str, typer.Argument(metavar="REF.osl", help="What fit wrote.")],
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="A table with the columns of the reference.")],
    reading: Reading,
    drawing: Drawing,
    printing: Printing,
    level: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="How often a sound batch may raise an alarm. Default: that of fit."),
    ] = None,
) -> None:
    """Check a batch against a reference that fit wrote; exit with 1 if it does not look like it.

    Columns, units and what to do with missing values are those of the reference. The distance of the batch is
    compared with those of random batches of the reference, and every column besides; both at half the level.

    Example: [bold]orthoslice check reference.osl monday.csv --level 0.01[/bold]
    """
    from orthoslice.cli import references, render, running, schema

    known, answer = running.read_batch(reference, batch, reading, drawing, level)
    limit = answer.options["level"]
    with running.status("Comparing with the reference"):
        drift, columns = references.check_batch(known, answer.tables[0], limit, drawing.seed, answer.tell)
    pvalue = min(1.0, 2 * min(p for p in (drift.pvalue, *(c.pvalue for c in columns)) if p is not None))
    record = schema.record("check", answer, answer.notes, known.units) | schema.of_check(
        reference, known, drift, columns, pvalue, limit
    )
    if not running.printed_as_json(record, printing.json):
        render.print_sections(references.tell_check(known, answer.labels[0], drift, columns, pvalue, limit))
    leave(answer, pvalue <= limit)
