"""The stored rows and the page made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
from experiments.common import STYLE, save_figure, write_rows

from benchmarks import GROUPS, plots, tables
from benchmarks.agreement import STANDARD_ERRORS, TOLERANCE, VECTOR_TOLERANCE
from benchmarks.runner import Row

Record: TypeAlias = dict[str, Any]
"""`{"groups": {name: {"run": machine and versions, "rows": [...]}}}`: a group is always from one run."""

FIGURES = {
    "forward": plots.forward_figure,
    "growth": plots.growth_figure,
    "memory": plots.memory_figure,
}
SPECIAL = {
    "floor": tables.floor_table,
    "memory": tables.memory_table,
    "cold_start": tables.cold_start_table,
}
PICTURES = {"forward": "forward", "threads": "growth", "memory": "memory"}
"""After which group a figure stands."""


def load(folder: Path) -> Record:
    """What earlier runs stored, or nothing."""
    file = folder / "cpu.json"
    record: Record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"groups": {}}
    return record


def store(folder: Path, run: Mapping[str, Any], rows: Sequence[Row]) -> Record:
    """Put the groups of a run in place of what was stored of them, and write JSON and CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = load(folder)["groups"]
    for name in dict.fromkeys(row["group"] for row in rows):
        groups[name] = {"run": dict(run), "rows": [row for row in rows if row["group"] == name]}
    record = {"groups": {name: groups[name] for name in GROUPS if name in groups}}
    (folder / "cpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    write_rows(folder / "cpu.csv", all_rows(record))
    return record


def all_rows(record: Record) -> list[Row]:
    return [row for group in record["groups"].values() for row in group["rows"]]


def render(folder: Path, record: Record) -> Path:
    """Write the page and its figures."""
    rows = all_rows(record)
    with mpl.rc_context(STYLE):
        for name, draw in FIGURES.items():
            save_figure(draw(rows), folder / f"cpu_{name}")
    page = folder / "cpu.md"
    page.write_text(page_text(record), encoding="utf-8")
    return page


def page_text(record: Record) -> str:
    """The page as Markdown."""
    rows = all_rows(record)
    parts = [
        "# CPU benchmark",
        "Made by `python -m benchmarks report` from `cpu.json`; [the README](../README.md) says how it is "
        "measured. Ratios hold on other machines, seconds do not. In brackets: how many times longer than "
        "orthoslice on NumPy's default sort path, in the same run.",
        *_runs(record),
        "## Targets",
        "Ratios are against the fastest of a peer's paths in the same run.",
        tables.targets_table(rows),
        "## Answers",
        f"Allowed relative error of a value: {TOLERANCE['float32']:g} in float32, {TOLERANCE['float64']:g} "
        f"in float64; of a gradient or projections: {VECTOR_TOLERANCE['float32']:g} in float32; where each "
        f"library draws its own directions: {STANDARD_ERRORS:g} standard errors of the difference. What fails "
        f"is not timed, unless it is a known defect of a peer: then it is marked {tables.WRONG} wherever its "
        "time is shown.",
        "\n".join(tables.wrong_notes(rows)) or "All answers agree.",
    ]
    for name in record["groups"]:
        parts += [f"## {name.replace('_', ' ').capitalize()}", f"{GROUPS[name]}."]
        parts.append(SPECIAL[name](rows) if name in SPECIAL else tables.side_by_side(rows, name))
        if name in PICTURES:
            figure = PICTURES[name]
            parts.append(f"![{figure}](cpu_{figure}.png)")
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
