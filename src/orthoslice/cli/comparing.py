"""The commands that compare tables: all there is to say of two, or a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orthoslice.cli.app import app
from orthoslice.cli.options import (
    Clustering,
    Deciding,
    Drawing,
    Grouping,
    Printing,
    Reading,
    Sampling,
    Stopping,
    Testing,
    Weighing,
    command,
)
from orthoslice.cli.telling import (
    all_parts,
    comparison_options,
    files_of,
    is_different,
    leave,
    quantities,
    record_of,
    scale_hint,
    tell_batches,
    tell_comparison,
)

First = Annotated[str, typer.Argument(metavar="A", help="A table: a file, a folder of images, or -.")]
Second = Annotated[str, typer.Argument(metavar="B", help="The table to compare it with.")]
SecondUnlessGrouped = Annotated[
    str | None, typer.Argument(metavar="B", help="The table to compare it with; none with --by.")
]


# What a whole comparison can be told, for the command that prints it and the one that writes a report.
_COMPARING = (Reading, Grouping, Weighing, Drawing, Stopping, Clustering, Sampling, Testing, Deciding)


@command(app, *_COMPARING, Printing)
def compare(
    a: First,
    reading: Reading,
    grouping: Grouping,
    weighing: Weighing,
    drawing: Drawing,
    stopping: Stopping,
    clustering: Clustering,
    sampling: Sampling,
    testing: Testing,
    deciding: Deciding,
    printing: Printing,
    b: SecondUnlessGrouped = None,
) -> None:
    """Say all there is to say of two tables: the one to know.

    Rows are cases (people, images, cells), columns what is known of them. Columns are matched by name and
    measured in their standard deviations; those of a few words are compared by their shares. With --by, the
    groups of one table are compared: two with each other, more of them each with all others.

    Example: [bold]orthoslice compare before.csv after.csv[/bold]
    """
    from orthoslice.cli import running

    groups = (grouping, weighing, drawing, stopping, sampling, testing, deciding)
    answer = running.read(files_of(a, b, grouping), reading, *groups, tally=True)
    if len(answer.tables) > 2:
        options = comparison_options(sampling, testing, deciding)
        tell_batches("compare", answer, None, reading, drawing, options, deciding, printing)
        return
    ready = running.prepare(
        answer, reading, drawing, **comparison_options(stopping, sampling, testing, deciding)
    )
    found = running.work_out(ready, all_parts(), answer, clustering.scheduler)
    tell_comparison("compare", answer, found, printing, deciding)


@command(app, Reading, Weighing, Drawing, Stopping, Clustering, Sampling, Printing)
def distance(
    a: First,
    b: Second,
    reading: Reading,
    weighing: Weighing,
    drawing: Drawing,
    stopping: Stopping,
    clustering: Clustering,
    sampling: Sampling,
    printing: Printing,
) -> None:
    """Estimate the sliced and the projected Wasserstein distance, with error bars.

    The sliced distance (SW) averages over directions how far apart the tables are along one. It is below the
    Wasserstein distance W, and the projected one (PW), which prices the same pairs in full space, is above.
    Intervals are about the choice of directions, not about the rows being a sample.

    Example: [bold]orthoslice distance a.npy b.npy --rtol 0.01[/bold]
    """
    from orthoslice.applications.compare.words import notes_of
    from orthoslice.cli import render, running, schema

    answer = running.read((a, b), reading, weighing, drawing, stopping, sampling)
    ready = running.prepare(answer, reading, drawing, rtol=stopping.rtol, max_rows=sampling.max_rows)
    found = running.work_out(ready, ("sliced", "projected"), answer, clustering.scheduler)
    notes = notes_of(found, scale_hint(answer))
    record = schema.record("distance", answer, [*answer.notes, *notes]) | schema.of_comparison(found)
    if not running.printed_as_json(record, printing.json):
        render.print_quantities(f"{' and '.join(found.names)}, {answer.units}", quantities(found))
        for note in notes:
            render.say(note)
    leave(answer)


@command(app, Reading, Weighing, Drawing, Sampling, Printing)
def bounds(
    a: First,
    b: Second,
    reading: Reading,
    weighing: Weighing,
    drawing: Drawing,
    sampling: Sampling,
    printing: Printing,
) -> None:
    """Bound the Wasserstein distance from both sides, for certain.

    It is how far the rows of A have to move, on average, to become those of B: at least the lower bound, and
    there is a way to do it with the upper one. No chance is involved.

    Example: [bold]orthoslice bounds a.parquet b.parquet[/bold]
    """
    from orthoslice.cli import running

    answer = running.read((a, b), reading, weighing, drawing, sampling)
    ready = running.prepare(answer, reading, drawing, max_rows=sampling.max_rows)
    tell_comparison("bounds", answer, running.work_out(ready, ("bounds",), answer), printing)


@command(app, Reading, Grouping, Drawing, Sampling, Testing, Deciding, Printing, name="test")
def run_test(
    files: Annotated[
        list[str],
        typer.Argument(metavar="A B [C ...]", help="A reference and what to compare it with; one with --by."),
    ],
    reading: Reading,
    grouping: Grouping,
    drawing: Drawing,
    sampling: Sampling,
    testing: Testing,
    deciding: Deciding,
    printing: Printing,
) -> None:
    """Test whether the difference of two tables may be chance.

    Rows are shuffled between the tables many times. The p-value is how often chance alone puts them as far
    apart as they are: if both come from one source, it is at most 5% in at most 5% of cases, whatever the data.
    Rows must not depend on each other. Columns are tested one by one besides, by all rows.

    With more than two tables the first is the reference, and p-values are adjusted for the number of others.

    Example: [bold]orthoslice test monday.csv tuesday.csv --level 0.01 || echo "something changed"[/bold]
    """
    from orthoslice.cli import running

    groups = (grouping, drawing, sampling, testing, deciding)
    first, *others = files
    if len(others) < 2:
        files = list(files_of(first, others[0] if others else None, grouping))
    elif grouping.by is not None:
        raise ValueError("--by splits one table; pass one.")
    answer = running.read(files, reading, *groups, tally=True)
    if len(answer.tables) > 2:
        reference = answer.labels[0] if grouping.by is None else None
        options = comparison_options(sampling, testing, deciding)
        tell_batches("test", answer, reference, reading, drawing, options, deciding, printing)
        return
    ready = running.prepare(answer, reading, drawing, **comparison_options(sampling, testing, deciding))
    tell_comparison("test", answer, running.work_out(ready, ("test",), answer), printing, deciding)


@command(app, Reading, Drawing, Printing)
def pairwise(
    files: Annotated[list[str], typer.Argument(metavar="A B C ...", help="Two tables or more.")],
    reading: Reading,
    drawing: Drawing,
    printing: Printing,
) -> None:
    """Measure sliced distances between all pairs of tables: a matrix, and a map of what is alike.

    Example: [bold]orthoslice pairwise donors/*.csv --standardize[/bold]
    """
    import orthoslice as osl
    from orthoslice.check.options import check_memory
    from orthoslice.cli import render, running, schema

    answer = running.read(files, reading, drawing)
    room = check_memory(reading.memory)
    clouds = running.points_within_memory(answer, room, drawing.seed)
    with running.status("Measuring all pairs"):
        found = osl.pairwise(
            dict(zip(answer.labels, clouds, strict=True)),
            p=2 if drawing.p is None else drawing.p,
            directions=drawing.directions.value,
            n_directions=drawing.n_directions,
            rng=drawing.seed,
            memory=room // 2,
        )
    order = schema.cluster_order(found.distance)
    record = schema.record("pairwise", answer, answer.notes) | {"pairwise": schema.of_pairwise(found, order)}
    if not running.printed_as_json(record, printing.json):
        render.print_matrix(answer.labels, found.distance, order, answer.units)


@command(app, Reading, Weighing, Drawing, Printing)
def plan(
    a: First,
    b: Second,
    reading: Reading,
    weighing: Weighing,
    drawing: Drawing,
    printing: Printing,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write the pairs: a .csv or .npz file.")
    ] = Path("plan.csv"),
) -> None:
    """Pair the rows of A with those of B so that they have little way to go, and write the pairs to a file.

    Each pair is a row of A, a row of B (counted from 0), the share of all mass that moves, and how far.

    Example: [bold]orthoslice plan a.csv b.csv -o plan.csv[/bold]
    """
    from orthoslice.cli import render, running, schema
    from orthoslice.cli.row_pairs import check_output, write_pairs

    check_output(output, (".csv", ".npz"), (a, b))
    answer = running.read((a, b), reading, weighing, drawing)
    with running.status("Pairing rows"):
        found = write_pairs(answer.tables, reading, drawing, output)
    record = schema.record("plan", answer, answer.notes) | {"plan": found}
    if not running.printed_as_json(record, printing.json):
        render.say(
            f"wrote {found['n_pairs']:,} pairs to {output}; they move by {found['distance']:.4g} on average."
        )


@command(app, *_COMPARING)
def report(
    context: typer.Context,
    a: First,
    reading: Reading,
    grouping: Grouping,
    weighing: Weighing,
    drawing: Drawing,
    stopping: Stopping,
    clustering: Clustering,
    sampling: Sampling,
    testing: Testing,
    deciding: Deciding,
    b: SecondUnlessGrouped = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")] = Path("report.html"),
    json: Annotated[bool, typer.Option("--json", help="Print the record of compare as JSON too.")] = False,
) -> None:
    """Write all that compare says, with pictures, to one HTML file that opens offline.

    Example: [bold]orthoslice report a.csv b.csv -o report.html[/bold]
    """
    from orthoslice.backend.stopping import EXIT_INTERRUPTED
    from orthoslice.cli import render, running
    from orthoslice.cli.invocation import invocation
    from orthoslice.cli.row_pairs import check_output

    files = files_of(a, b, grouping)
    check_output(output, (".html", ".htm"), files)
    groups = (grouping, weighing, drawing, stopping, sampling, testing, deciding)
    answer = running.read(files, reading, *groups, tally=True)
    if len(answer.tables) > 2:
        raise ValueError("A report is about two tables; --by gave more. Use `orthoslice compare`.")
    ready = running.prepare(
        answer, reading, drawing, **comparison_options(stopping, sampling, testing, deciding)
    )
    found = running.work_out(ready, all_parts(), answer, clustering.scheduler)
    if answer.exit_code != EXIT_INTERRUPTED:
        with running.status("Drawing"):
            hint = scale_hint(answer)
            found.write_report(output, command=invocation(context), notes=answer.notes, scale_hint=hint)
        render.say(f"wrote {output}.")
    if json:
        render.print_json(record_of("report", answer, found))
    leave(answer, is_different(found.pvalue, deciding))
