"""Turns: contenders answer, answers are judged, then calls are timed one after the other, round by round."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from benchmarks.agreement import Verdict, judge
from benchmarks.data import TIED, base_kind, equal_points
from benchmarks.libraries import Job
from benchmarks.machine import n_cores, other_path_environment
from benchmarks.problems import Contender, Problem, Schedule, make_data
from benchmarks.processes import Pool, Refusal, Worker, process_key, sorts_with_numpy

Row: TypeAlias = dict[str, Any]

COLUMNS = [
    *("group", "problem", "task", "n", "m", "dim", "n_directions", "p", "dtype", "directions", "threads"),
    *("library", "arrays", "path", "sort_path", "status", "note", "error", "tolerance"),
    *("n_reps", "median_s", "low_s", "high_s", "first_s", "peak_bytes"),
    *("form", "device_s", "data"),
]
"""Columns of every row. `status` is ok, wrong, not installed, not offered or failed; `low_s` and `high_s` are
the quartiles; `device_s` is the time of a GPU that never waits for its host; `data` is a kind of clouds that
was given in place of the problem's."""


class Question(NamedTuple):
    """Clouds of one kind, in a file, and the right answer."""

    kind: str
    file: Path
    expected: dict[str, Any]


@dataclass
class Entry:
    """One contender on one problem while it is being measured."""

    contender: Contender
    row: Row
    question: Question
    worker: Worker | None = None
    times: list[float] = field(default_factory=list)
    device_times: list[float] = field(default_factory=list)
    n_calls: int = 0
    spent_s: float = 0.0
    done: bool = False

    def leave(self, status: str, note: str = "") -> None:
        self.row |= {"status": status, "note": note}
        self.done = True


def run(problems: Iterable[Problem], schedule: Schedule, pool: Pool, say: Callable[[str], None]) -> list[Row]:
    """Rows of all problems, in order."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        for problem in problems:
            entries = measure(problem, schedule, pool, Path(name))
            rows += [entry.row for entry in entries]
            say(f"{problem.group}: {problem.name}: {'; '.join(map(_summary, entries))}")
    return rows


def measure(problem: Problem, schedule: Schedule, pool: Pool, folder: Path) -> list[Entry]:
    """Solve one problem with all its contenders."""
    contenders = resolve(problem.contenders, pool)
    questions = {
        kind: question(replace(problem, data=kind or problem.data), pool, folder, folder / f"data{kind}.npz")
        for kind in dict.fromkeys(c.data for c in contenders)
    }
    entries = [Entry(c, empty_row(problem, c), questions[c.data]) for c in contenders]
    if problem.memory:
        for entry in entries:
            _measure_memory(entry, problem, schedule, pool, folder)
        return entries
    for entry in entries:
        _first(entry, problem, schedule, pool, folder)
    for turn in range(schedule.rounds):
        # Every other round goes backwards, so that no entry always follows the same neighbour.
        for entry in entries if turn % 2 == 0 else reversed(entries):
            if not entry.done:
                _turn(entry, schedule)
    for entry in entries:
        _finish(entry, pool, problem.threads)
    return entries


def resolve(contenders: Iterable[Contender], pool: Pool) -> list[Contender]:
    """Contenders with a definite sort path; where NumPy has only one, the other is left out."""
    only_one = other_path_environment() is None
    kept = [c for c in contenders if not (c.path == "other" and only_one)]
    return [replace(c, path=pool.best_path) if c.path == "best" else c for c in kept]


def question(problem: Problem, pool: Pool, folder: Path, file: Path) -> Question:
    """The data of a problem, written to a file, and the right answer."""
    arrays = make_data(problem)
    np.savez(file, **arrays)
    contender = Contender(library="reference", path=pool.best_path, dtype="float64")
    expected = _answer(pool.worker(contender), job(problem, contender), folder, file)[1]
    if base_kind(problem.data) in TIED and problem.task.endswith(("gradient", "gradients")):
        clouds = (arrays["x"],) if problem.task == "gradient" else (arrays["x"], arrays["y"])
        expected["numbers"] = equal_points(*clouds)
    return Question(problem.data, file, expected)


def job(problem: Problem, contender: Contender) -> dict[str, Any]:
    return asdict(
        Job(
            library=contender.library,
            arrays=contender.arrays,
            task=problem.task,
            p=problem.p,
            dtype=contender.dtype,
            directions=contender.directions,
            n_directions=problem.n_directions,
            threads=problem.threads,
            form=contender.form,
        )
    )


def empty_row(problem: Problem, contender: Contender) -> Row:
    known = {
        "group": problem.group,
        "problem": problem.name,
        "task": problem.task,
        "n": problem.n,
        "m": problem.m_points,
        "dim": problem.dim,
        "n_directions": problem.n_directions,
        "p": problem.p,
        "dtype": contender.dtype,
        "directions": contender.directions,
        "threads": problem.threads or n_cores(),
        "library": contender.library,
        "arrays": contender.arrays,
        "path": contender.path if sorts_with_numpy(contender) else None,
        "form": contender.form or None,
        "data": contender.data or None,
        "status": "ok",
        "note": "",
    }
    return {name: known.get(name) for name in COLUMNS}


def _answer(
    worker: Worker, job: dict[str, Any], folder: Path, data: Path, operation: str = "first"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The reply to a first call, and its answer."""
    file = folder / "answer.npz"
    worker.ask("prepare", job=job, data=str(data))
    reply = worker.ask(operation, answer=str(file))
    with np.load(file) as saved:
        answer = {name: saved[name] for name in saved.files}
    if job["library"] == "reference":
        worker.ask("drop")
    return reply, answer


def _first(entry: Entry, problem: Problem, schedule: Schedule, pool: Pool, folder: Path) -> None:
    try:
        entry.worker = pool.worker(entry.contender, problem.threads)
        reply, answer = _answer(entry.worker, job(problem, entry.contender), folder, entry.question.file)
    except Refusal as refusal:
        entry.leave(*_status(refusal))
        return
    entry.row["first_s"] = reply["seconds"]
    _record(entry, answer)
    # Ours may have compiled: what counts is how long the next call takes.
    is_ours = entry.contender.library == "orthoslice"
    if not entry.done and reply["seconds"] > schedule.once_over_s and not is_ours:
        entry.times.append(reply["seconds"])
        entry.n_calls = 1
        entry.row["note"] = _join(entry.row["note"], "slow: the call that was checked is the one timed")
        entry.done = True


def _judge(entry: Entry, answer: dict[str, Any]) -> Verdict:
    return judge(answer, entry.question.expected, entry.contender, entry.question.kind)


def _record(entry: Entry, answer: dict[str, Any]) -> None:
    verdict = _judge(entry, answer)
    entry.row |= {"error": verdict.error, "tolerance": verdict.tolerance}
    if not verdict.agrees:
        entry.row |= {"status": "wrong", "note": verdict.text}
    if not verdict.may_be_timed:
        entry.leave("wrong", f"{verdict.text}; not timed")


def _turn(entry: Entry, schedule: Schedule) -> None:
    assert entry.worker is not None
    try:
        operation = "batch" if schedule.batched else "turn"
        reply = entry.worker.ask(operation, seconds=schedule.turn_s, calls=schedule.turn_calls)
    except Refusal as refusal:
        entry.leave(*_status(refusal))
        return
    entry.times += reply["seconds"]
    entry.device_times += reply.get("device_seconds", [])
    batch = reply.get("batch", 1)
    entry.n_calls += batch * len(reply["seconds"])
    entry.spent_s += batch * sum(reply["seconds"])
    again = _judge(entry, {"value": reply["value"]})
    if not again.may_be_timed:
        entry.leave("wrong", f"{again.text} when repeated; not timed")
        entry.times.clear()
    elif entry.n_calls >= schedule.least_calls and entry.spent_s + entry.times[-1] > schedule.budget_s:
        entry.done = True


def _finish(entry: Entry, pool: Pool, threads: int | None) -> None:
    _note_path(entry, pool, threads)
    if entry.times and entry.row["status"] in ("ok", "wrong"):
        low, median, high = np.quantile(entry.times, [0.25, 0.5, 0.75]).tolist()
        entry.row |= {"n_reps": entry.n_calls, "median_s": median, "low_s": low, "high_s": high}
        if entry.device_times:
            entry.row["device_s"] = float(np.median(entry.device_times))
    if entry.worker is not None and entry.worker.alive:
        entry.worker.ask("drop")


def _measure_memory(entry: Entry, problem: Problem, schedule: Schedule, pool: Pool, folder: Path) -> None:
    """In a process of its own. Ours runs twice, since the first may have to compile and fill its cache."""
    for _ in range(2 if schedule.fill_caches and entry.contender.library == "orthoslice" else 1):
        try:
            worker = pool.fresh(entry.contender, problem.threads)
        except Refusal as refusal:
            entry.leave(*_status(refusal))
            return
        try:
            request = job(problem, entry.contender)
            reply, answer = _answer(worker, request, folder, entry.question.file, "memory")
        except Refusal as refusal:
            entry.leave(*_status(refusal))
            return
        finally:
            worker.close()
    _record(entry, answer)
    _note_path(entry, pool, problem.threads)
    if not entry.done:
        entry.row["peak_bytes"] = reply["bytes"]


def _note_path(entry: Entry, pool: Pool, threads: int | None) -> None:
    facts = pool.facts.get(process_key(entry.contender, threads), {})
    if sorts_with_numpy(entry.contender):
        entry.row["sort_path"] = facts.get("sort_path")


def _status(refusal: Refusal) -> tuple[str, str]:
    status, _, note = str(refusal).partition(": ")
    return status, note


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _summary(entry: Entry) -> str:
    row = entry.row
    name = f"{row['library']}/{row['sort_path'] or row['form'] or row['arrays']}"
    if row["directions"] != "given":
        name += f"/{row['directions']}"
    if row["data"]:
        name += f"/{row['data']}"
    if row["peak_bytes"] is not None:
        return f"{name} {row['peak_bytes'] / 1e6:.1f} MB"
    if row["median_s"] is None:
        return f"{name} {row['status']}"
    return (
        f"{name} {1e3 * row['median_s']:.3g} ms x{row['n_reps']}{' WRONG' if row['status'] == 'wrong' else ''}"
    )
