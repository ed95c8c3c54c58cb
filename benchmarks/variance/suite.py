"""One run: what is not stored yet is measured, then the page is made of all that is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.variance import measure, problems
from benchmarks.variance.gradients import measure_gradients

FILE = "variance.jsonl"

# Problems whose gradients are compared: one of each kind.
_GRADIENTS = {("Gaussians M=1000", 3), ("Gaussians M=1000", 16), ("Gaussians M=1000", 64)} | {
    (name, dim) for name, dim in (("Gaussians M=100", 100), ("digits 0 and 1", 64), ("two noisy tori", 3))
}


def run(
    groups: set[str], folder: Path, say: Callable[[str], None], *, smoke: bool = False
) -> list[measure.Row]:
    """Measure what is missing of these groups, keep it in the folder, and return all rows there."""
    path = folder / FILE
    everything = problems.smoke_problems() if smoke else problems.all_problems()

    def keep(row: measure.Row) -> None:
        measure.append(path, row)

    chosen = [problem for problem in everything if problem.group in groups]
    measure.measure(chosen, measure.load(path), keep, say, smoke=smoke)
    if "gradients" in groups:
        some = [p for p in everything if smoke or (p.name, p.dim) in _GRADIENTS]
        unique = list({(p.name, p.dim): p for p in reversed(some)}.values())[::-1]
        measure_gradients(unique, measure.load(path), keep, say, smoke=smoke)
    return stored(folder)


def stored(folder: Path) -> list[measure.Row]:
    """The rows of earlier runs."""
    return measure.load(folder / FILE)
