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
from benchmarks.gpu import GROUPS as GPU_GROUPS
from benchmarks.variance import GROUPS as VARIANCE_GROUPS

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
SMOKE_RESULTS = ROOT.parent / "build" / "smoke" / "benchmarks"

_EXTRAS = {"matplotlib": "plot", "torch": "torch", "dask": "dask", "distributed": "dask"}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

Out = Annotated[Path | None, typer.Option(help="Folder for the files; benchmarks/results by default.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Tiny sizes, for tests; writes to build/smoke.")]
Only = Annotated[list[str] | None, typer.Option(help="A group to run; may be repeated.")]
List = Annotated[bool, typer.Option("--list", help="Name the groups and stop.")]


@app.command()
def cpu(smoke: Smoke = False, only: Only = None, out: Out = None, show_list: List = False) -> None:
    """Run this library and its peers side by side on the processor."""
    if show_list:
        _print_groups(GROUPS)
        return
    chosen, folder = _choose(GROUPS, only, smoke, out)
    report, suite = _load("report"), _load("suite")
    start = time.perf_counter()
    outcome = suite.run_suite(chosen, smoke=smoke, say=_say)
    _write(report.CPU, folder, outcome, start)


@app.command()
def gpu(
    smoke: Smoke = False,
    only: Only = None,
    out: Out = None,
    show_list: List = False,
    seconds: Annotated[float, typer.Option(help="Begin no problem after these; exit 1 if any is left.")] = 1e9,
) -> None:
    """Run this library and its peers side by side on one NVIDIA GPU."""
    if show_list:
        _print_groups(GPU_GROUPS)
        return
    chosen, folder = _choose(GPU_GROUPS, only, smoke, out)
    report, page, suite = _load("report"), _load("gpu.page"), _load("gpu.suite")
    refusal = None if smoke else suite.device_refusal()
    if refusal is not None:
        _refuse(refusal)
    start = time.perf_counter()
    outcome = suite.run_suite(
        chosen,
        smoke=smoke,
        say=_say,
        keep=lambda run, rows: report.store(folder, run, rows, page.GPU),
        seconds=seconds,
    )
    _write(page.GPU, folder, outcome, start)


@app.command()
def variance(smoke: Smoke = False, only: Only = None, out: Out = None, show_list: List = False) -> None:
    """Compare the error of all kinds of directions; goes on where an earlier run stopped."""
    if show_list:
        _print_groups(VARIANCE_GROUPS)
        return
    chosen, folder = _choose(VARIANCE_GROUPS, only, smoke, out)
    suite, page, analysis = (_load(f"variance.{name}") for name in ("suite", "page", "analysis"))
    start = time.perf_counter()
    rows = suite.run(chosen, folder, _say, smoke=smoke)
    _say(f"{time.perf_counter() - start:.0f} s; {page.render(folder, rows)}")
    _finish(analysis.evaluate(rows), [])


@app.command()
def scale(smoke: Smoke = False, out: Out = None) -> None:
    """Run Dask on more points than memory holds; goes on where an earlier run stopped."""
    folder = out or (SMOKE_RESULTS if smoke else RESULTS)
    text: list[str] = []
    for module in (_load("streams"), _load("scale")):
        text = [*module.lines(module.run(folder, _say, smoke=smoke)), *text]
    page = folder / "scale.md"
    page.write_text("\n".join(text) + "\n")
    _say(str(page))


@app.command("report")
def render(out: Out = None) -> None:
    """Render the pages and the figures from the stored rows."""
    report, page = _load("report"), _load("gpu.page")
    folder = out or RESULTS
    found = []
    suite = _load("variance.suite")
    rows = suite.stored(folder)
    if rows:
        _say(_load("variance.page").render(folder, rows))
        found += _load("variance.analysis").evaluate(rows)
    for benchmark in (report.CPU, page.GPU):
        record = report.load(folder, benchmark)
        if record["groups"]:
            _say(report.render(folder, record, benchmark))
            found += benchmark.evaluate(report.all_rows(record))
    if not found:
        _refuse("There are no stored rows here: run `python -m benchmarks cpu`, `gpu` or `variance` first.")
    _finish(found, [])


def _print_groups(groups: dict[str, str]) -> None:
    width = max(map(len, groups))
    print("\n".join(f"{name:{width}}  {text}" for name, text in groups.items()))


def _choose(
    groups: dict[str, str], only: list[str] | None, smoke: bool, out: Path | None
) -> tuple[set[str], Path]:
    """The groups to run and the folder to write to."""
    chosen = [name for given in only or [] for name in given.split(",")] or list(groups)
    unknown = [name for name in chosen if name not in groups]
    if unknown:
        _refuse(f"There is no group {unknown[0]!r}; there are {', '.join(groups)}.")
    folder = out or (SMOKE_RESULTS if smoke else RESULTS)
    if smoke and folder.resolve() == RESULTS.resolve():
        _refuse("`--smoke` must not write over the full results; pass another folder to `--out`.")
    return set(chosen), folder


def _write(benchmark: Any, folder: Path, outcome: Any, start: float) -> None:
    """Rows, page and figures, and what they show."""
    report = _load("report")
    record = report.store(folder, outcome.run, outcome.rows, benchmark)
    page = report.render(folder, record, benchmark)
    _say(f"{time.perf_counter() - start:.0f} s; {page}")
    _finish(benchmark.evaluate(report.all_rows(record)), outcome.complaints)


def _finish(found: list[Any], complaints: list[str]) -> None:
    """Targets for people or for programs; what is wrong on stderr."""
    if sys.stdout.isatty():
        met = {True: "met    ", False: "NOT MET", None: "-      "}
        print("\n".join(f"{met[t.met]}  {t.what}: {t.measured}, asked {t.asked}" for t in found))
    else:
        print(json.dumps({"targets": [vars(t) for t in found], "complaints": complaints}, indent=2))
    if complaints:
        _say("\n".join(complaints))
        raise typer.Exit(1)


def _say(text: Any) -> None:
    print(text, file=sys.stderr, flush=True)


def _load(name: str) -> Any:
    try:
        return importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _refuse(f"The benchmarks need {package}: pip install 'orthoslice[{_EXTRAS[package]}]'.")


def _refuse(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
