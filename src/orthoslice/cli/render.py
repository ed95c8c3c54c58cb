"""Answers as text for a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orthoslice.applications.columns import number
from orthoslice.applications.compare.words import Section
from orthoslice.backend.markup import shown, shown_json

# Shades of a cell, from the nearest pair to the farthest.
_SHADES = ("grey93 on grey11", "grey93 on grey27", "grey93 on grey42", "black on grey62", "black on grey78")


def wants_json(asked: bool | None) -> bool:
    """Whether the answer is JSON: as asked, or else if stdout is no terminal."""
    return not sys.stdout.isatty() if asked is None else asked


def print_json(answer: dict[str, Any]) -> None:
    print(shown_json(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False)), flush=True)


def say(text: str) -> None:
    """Print a message beside the answer, on stderr."""
    print(f"orthoslice: {shown(text)}", file=sys.stderr, flush=True)


def print_sections(sections: Iterable[Section]) -> None:
    console = _console()
    for k, (question, answer, lines) in enumerate(sections):
        if k:
            console.print()
        console.print(Text(question, style="bold") + Text(f"  {answer}" if answer else ""))
        for line in lines:
            console.print(Padding(_hanging(line, console.width // 2), (0, 0, 0, 2)))


def _hanging(line: str, widest: int) -> Text | Table:
    """A line of text; one with columns, such as "age  62%  higher", goes on below its last column.

    Columns wider than `widest` become plain text: long names must not push out what is said of them.
    """
    *columns, last = re.split(r"(?<=  )(?=\S)", line)
    if sum(map(len, columns)) > widest:
        return Text(re.sub("  +", "  ", line))
    if not columns:
        return Text(line)
    table = Table.grid()
    for column in columns:
        table.add_column(no_wrap=True, min_width=len(column))
    table.add_column()
    table.add_row(*(Text(column) for column in columns), Text(last))
    return table


def print_quantities(title: str, rows: list[dict[str, Any]]) -> None:
    """A table of numbers with their limits."""
    table = Table(title=_text(title))
    for column in ("quantity", "estimate", "low", "high"):
        table.add_column(column, justify="left" if column == "quantity" else "right")
    table.add_column("how")
    for row in rows:
        numbers = ("" if row[key] is None else f"{row[key]:.5g}" for key in ("estimate", "low", "high"))
        table.add_row(row["quantity"], *numbers, row["how"])
    _console().print(table)


def print_matrix(labels: Sequence[str], distance: Any, order: Sequence[int], units: str) -> None:
    """A map of distances: similar tables side by side, darker where they are nearer."""
    table = Table(
        title=f"Distances, {units}; tables that are alike stand side by side, and near pairs are darker"
    )
    table.add_column("")
    for k in order:
        table.add_column(_text(labels[k]), justify="right")
    largest = float(distance.max()) or 1.0
    for i in order:
        cells = []
        for j in order:
            shade = min(len(_SHADES) - 1, int(len(_SHADES) * float(distance[i, j]) / largest))
            cells.append(Text(number(float(distance[i, j])), style=_SHADES[shade]))
        table.add_row(_text(labels[i]), *cells)
    _console().print(table)


def print_facts(facts: dict[str, str]) -> None:
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(_text(name, style="bold"), _text(value))
    _console().print(table)


def _text(text: str, style: str = "") -> Text:
    """What users call their files and columns, as it is: no markup, and nothing that controls a terminal."""
    return Text(shown(text), style=style)


def _console() -> Console:
    return Console(markup=False, highlight=False, emoji=False)
