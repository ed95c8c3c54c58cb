"""A whole run: the groups asked for, the machine, and complaints about answers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from benchmarks.cold_start import measure_cold_starts
from benchmarks.libraries import LABELS
from benchmarks.machine import describe_machine, n_cores
from benchmarks.problems import SMOKE_SCHEDULE, Schedule, full_problems, smoke_problems
from benchmarks.processes import Pool
from benchmarks.runner import Row, run


class Outcome(NamedTuple):
    """What a run left behind."""

    rows: list[Row]
    run: dict[str, Any]
    complaints: list[str]


def run_suite(groups: Set[str], *, smoke: bool, say: Callable[[str], None]) -> Outcome:
    """Run groups of problems. The negative control always comes first: a check that misses it is no check."""
    machine = describe_machine()
    if machine["load_before"] and machine["load_before"] > 0.5:
        say(f"The machine is busy (load {machine['load_before']}): these figures will be unsteady.")
    schedule = SMOKE_SCHEDULE if smoke else Schedule()
    problems = smoke_problems(n_cores()) if smoke else full_problems(n_cores())
    with Pool() as pool:
        rows = run([p for p in problems if p.group in groups | {"control"}], schedule, pool, say)
    if "cold_start" in groups:
        rows += measure_cold_starts(schedule.cold_starts, smoke=smoke)
    return Outcome(rows, describe_run(machine, pool, smoke=smoke), complaints(rows))


def describe_run(machine: dict[str, Any], pool: Pool, *, smoke: bool) -> dict[str, Any]:
    """What the figures of a run depend on."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "smoke": smoke,
        "machine": machine,
        "libraries": describe_libraries(pool.facts),
    }


def describe_libraries(facts: dict[tuple[Any, ...], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Version, threads and sort paths of each library, from what its processes said."""
    found: dict[str, dict[str, Any]] = {}
    for (library, arrays, path, *_, threads), said in facts.items():
        if library not in LABELS or library == "control" or threads is not None:
            continue
        name = LABELS[library]
        if library in ("orthoslice", "pot") and arrays != "numpy":
            name += f" ({'JAX' if arrays == 'jax' else arrays})"
        entry = found.setdefault(
            name, {"version": said["version"], "threads": said["threads"], "sort_paths": {}}
        )
        if arrays == "numpy":
            entry["sort_paths"][path] = said["sort_path"]
    return dict(sorted(found.items()))


def complaints(rows: Iterable[Row]) -> list[str]:
    """Answers that should be right and are not, and a control that was not caught."""
    found = []
    for row in rows:
        where = f"{row['group']}, {row['problem']}, {row['library']}"
        if row["library"] == "control":
            if row["status"] != "wrong" or row["median_s"] is not None:
                found.append(f"{where}: the deliberately wrong answer was not caught.")
        elif row["note"].endswith("not timed") or (
            row["library"] == "orthoslice" and row["status"] not in ("ok", "not offered")
        ):
            found.append(f"{where}: {row['status']} {row['note']}")
    return found
