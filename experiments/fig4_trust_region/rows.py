"""Rows of trainings and the files that hold them."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from experiments.fig4_trust_region.config import Run

COLUMNS = (
    *("task", "method", "strength", "seed", "steps", "n_episodes", "mean_return"),
    *("sw", "pw", "kl", "shift", "std", "rollout_ms", "update_ms"),
)
"""Returns are of the episodes that ended since the last row, not discounted or normalised.

`sw`, `pw`, `kl` and `shift` say how far the last update moved the policy, `std` is the mean standard deviation
of its actions. `rollout_ms` and `update_ms` are wall-clock means for one rollout and one update since then.
"""


class Files(NamedTuple):
    """Where a run keeps its rows and its state."""

    rows: Path
    state: Path

    @classmethod
    def of(cls, run: Run, folder: Path) -> Files:
        return cls(folder / f"{run.name}.csv", folder / f"{run.name}.pt")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; what is written takes the place of `path` at once, or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    yield partial
    os.replace(partial, path)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Rows as CSV, nothing for None, with a header even if there are none."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row.values() for row in rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows with numbers where there are numbers, and None where there is nothing."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: _parse(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _parse(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
