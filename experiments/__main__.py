"""The command line: exit 0 done, 1 a claim failed, 2 bad usage."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from experiments import NAMES
from experiments.data import MissingData

if TYPE_CHECKING:
    from experiments.common import Outcome

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    name: Annotated[str | None, typer.Argument(help="Which experiment; --list shows them.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="A small run of seconds, for tests.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the files. By default experiments/results, or build/smoke with --smoke."),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(help="Run one part again, such as a problem of power_two_sample, and keep other rows."),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Name the experiments and stop.")] = False,
) -> None:
    """Run one experiment, write its rows and pictures, and say which claims held."""
    if show_list:
        width = max(map(len, NAMES))
        for key, summary in NAMES.items():
            print(f"{key:{width}}  {summary}")
        return
    if name is None:
        _refuse(f"Name an experiment: {', '.join(NAMES)}.")
    if name not in NAMES:
        _refuse(f"There is no experiment {name!r}; there are {', '.join(NAMES)}.")
    try:
        common = importlib.import_module("experiments.common")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        _refuse("The experiments draw with matplotlib: pip install 'orthoslice[experiments]'.")
    folder = out or (common.SMOKE_RESULTS if smoke else common.RESULTS)
    if smoke and folder.resolve() == common.RESULTS.resolve():
        _refuse("`--smoke` must not write over the full results; pass another folder to `--out`.")
    try:
        outcome = common.execute(name, folder, smoke=smoke, part=part)
    except (common.MissingExtra, common.NoSuchPart, MissingData) as error:
        _refuse(str(error))
    _report(outcome)
    if not all(claim.held for claim in outcome.claims):
        raise typer.Exit(1)


def _report(outcome: Outcome) -> None:
    """Lines for people, JSON for programs."""
    if not sys.stdout.isatty():
        print(json.dumps({"claims": [claim._asdict() for claim in outcome.claims]}, indent=2))
    else:
        for claim in outcome.claims:
            print(f"{'held  ' if claim.held else 'FAILED'}  {claim.claim}\n        {claim.detail}")
    print(f"{outcome.seconds:.1f} s; files in {outcome.folder}", file=sys.stderr)


def _refuse(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m experiments")
