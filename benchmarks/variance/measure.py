"""Repeat every method on every problem, and keep what is found row by row."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from benchmarks.variance.methods import METHODS, Case, Method
from benchmarks.variance.problems import Problem, Unavailable
from orthoslice.exact import projected_plane, sliced_plane

Row: TypeAlias = dict[str, Any]

SCORES = ("SW", "PW")
POWERS = (1, 2)

# Groups of which few methods run on all data sets.
_FEW = ("shown", "default")

EXACT = "exact"
"""The name of rows that hold the truth."""

# The angular sweep of the plane looks at every pair of points.
_LARGEST_SWEEP = 1000


class Effort(NamedTuple):
    """How often a method is repeated: until it took `seconds`, but `least` to `most` times."""

    seconds: float
    least: int
    most: int


FULL = Effort(seconds=2.0, least=16, most=150)
BRIEF = Effort(seconds=1.0, least=16, most=48)
SMOKE = Effort(seconds=0.05, least=4, most=8)


def key_of(row: Row) -> tuple[Any, ...]:
    """What a row is about: a row with the same key takes its place."""
    return tuple(row[name] for name in ("group", "problem", "dim", "set", "score", "p", "method"))


def measure(
    problems: Iterable[Problem],
    known: Sequence[Row],
    keep: Callable[[Row], None],
    say: Callable[[str], None],
    *,
    smoke: bool = False,
) -> None:
    """Run what is not known yet, and hand over every row as soon as there is one.

    What the targets ask for comes first: few methods on all data sets of the shown problems, and of those with
    as many directions as by default. Then all methods on the first data set of every other problem.
    """
    problems = list(problems)
    done = {key_of(row) for row in known}
    for brief in (True, False):
        for problem in problems:
            if problem.group not in _FEW if brief else problem.group == "default":
                continue
            try:
                for number in range(problem.n_sets if brief else 1):
                    for case in _cases(problem, number, SCORES[: 1 if brief else 2]):
                        for row in _rows(problem, number, case, done, brief=brief, smoke=smoke):
                            done.add(key_of(row))
                            keep(row)
                say(problem.title + (", few methods" if brief else ""))
            except Unavailable as error:
                say(f"{problem.title}: skipped, {error}")


def _cases(problem: Problem, number: int, scores: Sequence[str]) -> Iterable[Case]:
    clouds = problem.make(number)
    for score in scores:
        for p in POWERS:
            yield Case(*clouds, score, p, problem.n_directions)


def _rows(
    problem: Problem, number: int, case: Case, done: set[tuple[Any, ...]], *, brief: bool, smoke: bool
) -> Iterable[Row]:
    about = {
        "group": problem.group,
        "problem": problem.name,
        "dim": problem.dim,
        "n": len(case.x),
        "m": len(case.y),
        "directions": problem.n_directions,
        "set": number,
        "score": case.score,
        "p": case.p,
    }
    if case.dim == 2 and len(case.x) <= _LARGEST_SWEEP and key_of({**about, "method": EXACT}) not in done:
        sweep = sliced_plane if case.score == "SW" else projected_plane
        truth = float(sweep(case.x, case.y, case.p))
        yield about | _found(EXACT, np.array([truth]), 0.0, exact=True)
    effort = SMOKE if smoke else BRIEF if brief else FULL
    for method in METHODS:
        wanted = (method.brief or not brief) and method.takes(case)
        if wanted and key_of({**about, "method": method.name}) not in done:
            yield about | _repeat(method, case, effort)


def _repeat(method: Method, case: Case, effort: Effort) -> Row:
    values: list[float] = []
    scores: list[float] = []
    method.run(case, 0)  # what is compiled, loaded or made once does not count
    start = time.process_time()
    while len(values) < effort.least or (
        len(values) < effort.most and time.process_time() - start < effort.seconds
    ):
        result = method.run(case, 1 + len(values))
        values.append(float(getattr(result, "value", result)))
        if method.name == "iid":
            scores.append(float(np.var(result.scores, ddof=1)))
    seconds = (time.process_time() - start) / len(values)
    row = _found(method.name, np.array(values), seconds, exact=False)
    return row | {
        "ours": method.ours,
        "unbiased": method.unbiased,
        "score_variance": float(np.mean(scores)) if scores else None,
    }


def _found(name: str, values: np.ndarray[Any, Any], seconds: float, *, exact: bool) -> Row:
    """Mean, variance and what is needed for the error of the variance."""
    away = values - values.mean()
    return {
        "method": name,
        "ours": False,
        "unbiased": True,
        "exact": exact,
        "repetitions": len(values),
        "mean": float(values.mean()),
        "variance": float(values.var(ddof=1)) if len(values) > 1 else 0.0,
        "fourth_moment": float(np.mean(away**4)),
        "seconds": seconds,
        "score_variance": None,
    }


def load(path: Path) -> list[Row]:
    """The rows of a file, one a line; of rows with one key the last."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = {key_of(row): row for row in map(json.loads, filter(None, lines))}
    return list(rows.values())


def append(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
