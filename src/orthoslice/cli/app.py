"""The commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from orthoslice.cli.options import (
    Clustering,
    Drawing,
    Printing,
    Reading,
    Sampling,
    Stopping,
    Testing,
    Weighing,
    command,
    unwrapped,
)

_EPILOG = (
    "Files: .csv, .tsv, .parquet, .feather, .npy, .npz, .h5ad, .zarr, folders of images, or - for CSV from "
    "standard input. An array inside a file is FILE::KEY, such as cells.h5ad::X_pca."
)

_SCALE_HINT = "add --standardize"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=_EPILOG,
)

First = Annotated[str, typer.Argument(metavar="A", help="A table: a file, a folder of images, or -.")]
Second = Annotated[str, typer.Argument(metavar="B", help="The table to compare it with.")]


def _version(asked: bool) -> None:
    if asked:
        from orthoslice import __version__

        print(f"orthoslice {__version__}")
        raise typer.Exit


def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Are two data sets different, by how much, and where?

    Start with [bold]orthoslice compare a.csv b.csv[/bold]. It says whether the difference could be chance, how
    far apart the tables are, and which columns differ.

    Answers are words on a terminal and JSON in a pipe. Exit codes: 0 done, 1 the answer is no (see
    [bold]test --level[/bold] and [bold]--rtol[/bold]), 2 bad usage or a bad file, 130 stopped by Ctrl-C.
    """


app.callback(help=unwrapped(main))(main)


@command(app, Reading, Weighing, Drawing, Stopping, Clustering, Sampling, Testing, Printing)
def compare(
    a: First,
    b: Second,
    reading: Reading,
    weighing: Weighing,
    drawing: Drawing,
    stopping: Stopping,
    clustering: Clustering,
    sampling: Sampling,
    testing: Testing,
    printing: Printing,
) -> None:
    """Say all there is to say of two tables: the one to know.

    Rows are cases (people, images, cells), columns what is known of them. Columns are matched by name, and
    those without numbers are left out.

    Example: [bold]orthoslice compare before.csv after.csv --standardize[/bold]
    """
    from orthoslice.applications.compare.compare import PARTS
    from orthoslice.cli import running

    answer = running.read((a, b), reading, weighing.weights)
    ready = running.plan(
        answer,
        reading,
        drawing,
        rtol=stopping.rtol,
        n_permutations=testing.n_permutations,
        max_rows=sampling.max_rows,
    )
    _tell_comparison("compare", answer, running.work_out(ready, PARTS, answer, clustering.scheduler), printing)


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

    answer = running.read((a, b), reading, weighing.weights)
    ready = running.plan(answer, reading, drawing, rtol=stopping.rtol, max_rows=sampling.max_rows)
    found = running.work_out(ready, ("sliced", "projected"), answer, clustering.scheduler)
    notes = notes_of(found, _SCALE_HINT)
    record = schema.record("distance", answer.inputs, [*answer.notes, *notes]) | schema.of_comparison(found)
    if not running.printed_as_json(record, printing.json):
        render.print_quantities(" and ".join(found.names), _quantities(found))
        for note in notes:
            render.say(note)
    _exit(answer)


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
    _one_part("bounds", (a, b), reading, weighing, drawing, printing, max_rows=sampling.max_rows)


@command(app, Reading, Drawing, Sampling, Testing, Printing, name="test")
def run_test(
    a: First,
    b: Second,
    reading: Reading,
    drawing: Drawing,
    sampling: Sampling,
    testing: Testing,
    printing: Printing,
    level: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit with 1 if the p-value is at most this, as diff does."),
    ] = None,
) -> None:
    """Test whether the difference of two tables may be chance.

    Rows are shuffled between the tables many times. The p-value is how often chance alone puts them as far
    apart as they are: if both come from one source, it is at most 5% in at most 5% of cases, whatever the data.
    Rows must not depend on each other.

    Example: [bold]orthoslice test monday.csv tuesday.csv --level 0.01 || echo "something changed"[/bold]
    """
    found = _one_part(
        "test",
        (a, b),
        reading,
        Weighing(),
        drawing,
        printing,
        max_rows=sampling.max_rows,
        n_permutations=testing.n_permutations,
    )
    if level is not None and found.test.pvalue <= level:
        raise typer.Exit(1)


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

    answer = running.read(files, reading)
    room = check_memory(reading.memory)
    clouds = running.fitting(answer, room, drawing.seed)
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
    record = schema.record("pairwise", answer.inputs, answer.notes) | {
        "pairwise": schema.of_pairwise(found, order)
    }
    if not running.printed_as_json(record, printing.json):
        render.print_matrix(answer.labels, found.distance, order)


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
    from orthoslice.cli.plans import check_output, make_plan

    check_output(output, (".csv", ".npz"), (a, b))
    answer = running.read((a, b), reading, weighing.weights)
    with running.status("Pairing rows"):
        found = make_plan(answer.tables, reading, drawing, output)
    record = schema.record("plan", answer.inputs, answer.notes) | {"plan": found}
    if not running.printed_as_json(record, printing.json):
        render.say(
            f"wrote {found['n_pairs']:,} pairs to {output}; they move by {found['distance']:.4g} on average."
        )


@command(app, Reading, Weighing, Drawing, Stopping, Clustering, Sampling, Testing)
def report(
    context: typer.Context,
    a: First,
    b: Second,
    reading: Reading,
    weighing: Weighing,
    drawing: Drawing,
    stopping: Stopping,
    clustering: Clustering,
    sampling: Sampling,
    testing: Testing,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")] = Path("report.html"),
) -> None:
    """Write all that compare says, with pictures, to one HTML file that opens offline.

    Example: [bold]orthoslice report a.csv b.csv -o report.html[/bold]
    """
    from orthoslice.applications.compare.compare import PARTS
    from orthoslice.backend.stopping import EXIT_INTERRUPTED
    from orthoslice.cli import render, running
    from orthoslice.cli.invocation import invocation
    from orthoslice.cli.plans import check_output
    from orthoslice.cli.report import write_report

    check_output(output, (".html", ".htm"), (a, b))
    answer = running.read((a, b), reading, weighing.weights)
    ready = running.plan(
        answer,
        reading,
        drawing,
        rtol=stopping.rtol,
        n_permutations=testing.n_permutations,
        max_rows=sampling.max_rows,
    )
    found = running.work_out(ready, PARTS, answer, clustering.scheduler)
    if answer.exit_code != EXIT_INTERRUPTED:
        with running.status("Drawing"):
            write_report(output, found, command=invocation(context), notes=answer.notes, scale_hint=_SCALE_HINT)
        render.say(f"wrote {output}.")
    _exit(answer)


@command(app, Printing)
def info(printing: Printing) -> None:
    """Say which versions are here, which kernels are in use, and why others are not."""
    from orthoslice.cli import render
    from orthoslice.cli.about import facts

    found = facts()
    if render.wants_json(printing.json):
        render.print_json({"command": "info"} | found)
        return
    render.print_facts(
        {f"{part}: {name}": value for part, told in found.items() for name, value in told.items()}
    )


@command(app)
def warmup() -> None:
    """Compile what a first call would, so that it does not have to wait. Once an installation is enough."""
    import time

    from orthoslice.cli import render, running
    from orthoslice.cli.about import compile_kernels

    began = time.perf_counter()
    with running.status("Compiling"):
        why_not = compile_kernels()
    render.say(why_not or f"all is compiled, in {time.perf_counter() - began:.0f} s.")


@command(app, Printing)
def demo(
    printing: Printing,
    first: Annotated[int, typer.Argument(min=0, max=9, help="A digit.")] = 0,
    second: Annotated[int, typer.Argument(min=0, max=9, help="Another digit.")] = 1,
    p: Annotated[float, typer.Option(min=1, help="The power of the distance.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="The same seed repeats the numbers.")] = 0,
) -> None:
    """Compare images of two handwritten digits: SW, PW, their intervals, and bounds on W."""
    from orthoslice.applications.compare.compare import plan_comparison
    from orthoslice.cli import render
    from orthoslice.datasets import digits

    x, y = digits(first), digits(second)
    ready = plan_comparison(x, y, p, max_rows=len(x) + len(y), rng=seed)
    found = ready.finish({part: ready.work_out(part) for part in ("sliced", "bounds", "projected")})
    rows, title = _quantities(found), f"Digit {first} {x.shape} against digit {second} {y.shape}"
    if render.wants_json(printing.json):
        render.print_json({"title": title, "rows": rows})
    else:
        render.print_quantities(title, rows)


def _one_part(
    part: str,
    files: tuple[str, str],
    reading: Reading,
    weighing: Weighing,
    drawing: Drawing,
    printing: Printing,
    **options: Any,
) -> Any:
    """A command that is one part of a comparison."""
    from orthoslice.cli import running

    answer = running.read(files, reading, weighing.weights)
    ready = running.plan(answer, reading, drawing, **options)
    found = running.work_out(ready, (part,), answer)
    _tell_comparison(part, answer, found, printing)
    return found


def _tell_comparison(name: str, answer: Any, found: Any, printing: Printing) -> None:
    from orthoslice.applications.compare.words import notes_of, tell
    from orthoslice.cli import render, running, schema

    told = [*answer.notes, *notes_of(found, _SCALE_HINT)]
    record = schema.record(name, answer.inputs, told) | schema.of_comparison(found)
    if not running.printed_as_json(record, printing.json):
        render.print_sections(tell(found, _SCALE_HINT))
    _exit(answer)


def _quantities(found: Any) -> list[dict[str, Any]]:
    """Distances and bounds as rows of a table, from the smallest to the largest."""
    from orthoslice.applications.compare.words import quiet_interval
    from orthoslice.cli.schema import finite

    rows: list[dict[str, Any]] = []
    for name, est in (("SW", found.sliced), ("W", found.bounds), ("PW", found.projected)):
        if est is None:
            continue
        row: dict[str, Any] = {"quantity": f"{name}_{found.p:g}", "estimate": None}
        if name == "W":
            row |= {"low": est.lower, "high": est.upper, "how": "certain bounds"}
        else:
            low, high = (finite(limit) for limit in quiet_interval(est))
            row |= {"estimate": float(est.distance), "low": low, "high": high}
            row["how"] = f"95% interval over directions, {est.n_blocks} blocks"
            row["how"] += ", not to be trusted" if est._doubt else ""
        rows.append(row)
    return rows


def _exit(answer: Any) -> None:
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)
