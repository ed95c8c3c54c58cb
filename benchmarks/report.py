"""The stored rows and the page made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
from experiments.common import STYLE, save_figure, write_rows
from matplotlib.figure import Figure

from benchmarks import GROUPS, plots, tables, targets
from benchmarks.agreement import STANDARD_ERRORS, TOLERANCE, VECTOR_TOLERANCE
from benchmarks.runner import COLUMNS, Row
from benchmarks.targets import Target

Record: TypeAlias = dict[str, Any]
"""`{"groups": {name: {"run": machine and versions, "rows": [...]}}}`: a group is always from one run."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What the rows of one benchmark are made into."""

    name: str
    """Of its files."""
    title: str
    base: str
    """Whose time ratios are against."""
    peer: str
    """Which of a peer's times the targets take."""
    groups: Mapping[str, str]
    evaluate: Callable[[Sequence[Row]], list[Target]]
    figures: Mapping[str, Callable[[Sequence[Row]], Figure]]
    pictures: Mapping[str, str]
    """After which group a figure stands."""
    special: Mapping[str, Callable[[Sequence[Row]], str]] = field(default_factory=dict)
    """Groups with a table of their own kind."""
    about: str = ""
    """How it was run, where that differs from the others."""
    tolerances: Sequence[str] = ()
    """What is allowed beside the tolerances of every benchmark."""


CPU = Benchmark(
    name="cpu",
    title="CPU benchmark",
    base="orthoslice on NumPy's default sort path",
    peer="the fastest of a peer's paths",
    groups=GROUPS,
    evaluate=targets.evaluate,
    figures={
        "forward": plots.forward_figure,
        "growth": plots.growth_figure,
        "memory": plots.memory_figure,
    },
    pictures={"forward": "forward", "threads": "growth", "memory": "memory"},
    special={
        "floor": tables.floor_table,
        "memory": tables.memory_table,
        "cold_start": tables.cold_start_table,
    },
)


def load(folder: Path, benchmark: Benchmark = CPU) -> Record:
    """What earlier runs stored, or nothing."""
    file = folder / f"{benchmark.name}.json"
    record: Record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"groups": {}}
    for group in record["groups"].values():
        # Rows may be older than a column.
        group["rows"] = [dict.fromkeys(COLUMNS) | row for row in group["rows"]]
    return record


def store(folder: Path, run: Mapping[str, Any], rows: Sequence[Row], benchmark: Benchmark = CPU) -> Record:
    """Put the groups of a run in place of what was stored of them, and write JSON and CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = load(folder, benchmark)["groups"]
    for name in dict.fromkeys(row["group"] for row in rows):
        groups[name] = {"run": dict(run), "rows": [row for row in rows if row["group"] == name]}
    record = {"groups": {name: groups[name] for name in benchmark.groups if name in groups}}
    text = json.dumps(record, indent=1) + "\n"
    (folder / f"{benchmark.name}.json").write_text(text, encoding="utf-8")
    write_rows(folder / f"{benchmark.name}.csv", all_rows(record))
    return record


def all_rows(record: Record) -> list[Row]:
    return [row for group in record["groups"].values() for row in group["rows"]]


def render(folder: Path, record: Record, benchmark: Benchmark = CPU) -> Path:
    """Write the page and its figures."""
    rows = all_rows(record)
    with mpl.rc_context(STYLE):
        for name, draw in benchmark.figures.items():
            save_figure(draw(rows), folder / f"{benchmark.name}_{name}")
    page = folder / f"{benchmark.name}.md"
    page.write_text(page_text(record, benchmark), encoding="utf-8")
    return page


def page_text(record: Record, benchmark: Benchmark = CPU) -> str:
    """The page as Markdown."""
    rows = all_rows(record)
    parts = [
        f"# {benchmark.title}",
        f"Made by `python -m benchmarks report` from `{benchmark.name}.json`; [the README](../README.md) says "
        "how it is measured. Ratios hold on other machines, seconds do not. In brackets: how many times longer "
        f"than {benchmark.base}, in the same run.{benchmark.about}",
        *_runs(record),
        "## Targets",
        f"Ratios are against {benchmark.peer} in the same run.",
        tables.targets_table(benchmark.evaluate(rows)),
        "## Answers",
        f"Allowed relative error of a value: {TOLERANCE['float32']:g} in float32, {TOLERANCE['float64']:g} "
        f"in float64; of a gradient or projections: {VECTOR_TOLERANCE['float32']:g} in float32; where each "
        f"library draws its own directions: {STANDARD_ERRORS:g} standard errors of the difference. What fails "
        f"is not timed, unless it is a known defect of a peer: then it is marked {tables.WRONG} wherever its "
        "time is shown.",
        *benchmark.tolerances,
        "\n".join(tables.wrong_notes(rows)) or "All answers agree.",
    ]
    for name in record["groups"]:
        parts += [f"## {name.replace('_', ' ').capitalize()}", f"{benchmark.groups[name]}."]
        special = benchmark.special.get(name)
        parts.append(tables.side_by_side(rows, name) if special is None else special(rows))
        if name in benchmark.pictures:
            figure = benchmark.pictures[name]
            parts.append(f"![{figure}]({benchmark.name}_{figure}.png)")
    parts += ["## Every timed row", tables.all_rows_table(rows)]
    return "\n\n".join(parts) + "\n"


def _runs(record: Record) -> list[str]:
    """Machine and versions, once for each different run."""
    by_run: dict[str, list[str]] = {}
    for name, group in record["groups"].items():
        by_run.setdefault(json.dumps(group["run"]), []).append(name)
    texts = []
    for text, names in by_run.items():
        run = json.loads(text)
        machine = run["machine"]
        lines = [
            f"- {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, "
            f"Python {machine['python']}; load before: {machine['load_before']}; {run['date']}",
            *(
                f"- {name}: {facts['version']}; threads: {_pairs(facts['threads'])}"
                + (f"; NumPy's sort: {_pairs(facts['sort_paths'])}" if facts["sort_paths"] else "")
                for name, facts in run["libraries"].items()
            ),
        ]
        if "gpu" in machine:
            lines.insert(0, f"- {machine['gpu']}")
        if run["smoke"]:
            lines.append("- **a smoke run: tiny sizes, times mean nothing**")
        if machine["thread_variables"]:
            lines.append(f"- set from outside: {machine['thread_variables']}")
        if len(by_run) > 1:
            lines.insert(0, f"- groups: {', '.join(names)}")
        texts.append("\n".join(lines))
    return ["## Machine and versions", *texts]


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "its own choice"
