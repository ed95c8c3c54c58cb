"""The command line: exit 0 done, 1 an answer is wrong that should be right, 2 bad usage."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from benchmarks import GROUPS

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
SMOKE_RESULTS = ROOT.parent / "build" / "smoke" / "benchmarks"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

Out = Annotated[Path | None, typer.Option(help="Folder for the files; benchmarks/results by default.")]


@app.command()
def cpu(
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny sizes, for tests; writes to build/smoke.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="A group to run; may be repeated.")] = None,
    out: Out = None,
    show_list: Annotated[bool, typer.Option("--list", help="Name the groups and stop.")] = False,
) -> None:
    """Run this library and its peers side by side on the processor."""
    if show_list:
        width = max(map(len, GROUPS))
        print("\n".join(f"{name:{width}}  {text}" for name, text in GROUPS.items()))
        return
    chosen = [name for given in only or [] for name in given.split(",")] or list(GROUPS)
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        _refuse(f"There is no group {unknown[0]!r}; there are {', '.join(GROUPS)}.")
    folder = out or (SMOKE_RESULTS if smoke else RESULTS)
    if smoke and folder.resolve() == RESULTS.resolve():
        _refuse("`--smoke` must not write over the full results; pass another folder to `--out`.")
    report = _load("report")
    suite = _load("suite")
    start = time.perf_counter()
    outcome = suite.run_suite(
        set(chosen), smoke=smoke, say=lambda text: print(text, file=sys.stderr, flush=True)
    )
    record = report.store(folder, outcome.run, outcome.rows)
    page = report.render(folder, record)
    print(f"{time.perf_counter() - start:.0f} s; {page}", file=sys.stderr)
    _finish(record, outcome.complaints)


@app.command("report")
def render(out: Out = None) -> None:
    """Render the page and the figures from the stored rows."""
    report = _load("report")
    folder = out or RESULTS
    record = report.load(folder)
    if not record["groups"]:
        _refuse("There are no stored rows here: run `python -m benchmarks cpu` first.")
    print(report.render(folder, record), file=sys.stderr)
    _finish(record, [])


def _finish(record: dict[str, Any], complaints: list[str]) -> None:
    """Targets for people or for programs; what is wrong on stderr."""
    report, targets = _load("report"), _load("targets")
    found = targets.evaluate(report.all_rows(record))
    if sys.stdout.isatty():
        met = {True: "met    ", False: "NOT MET", None: "-      "}
        print("\n".join(f"{met[t.met]}  {t.what}: {t.measured}, asked {t.asked}" for t in found))
    else:
        print(json.dumps({"targets": [vars(t) for t in found], "complaints": complaints}, indent=2))
    if complaints:
        print("\n".join(complaints), file=sys.stderr)
        raise typer.Exit(1)


def _load(name: str) -> Any:
    try:
        return importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        _refuse("The benchmarks draw with matplotlib: pip install 'orthoslice[plot]'.")


def _refuse(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
