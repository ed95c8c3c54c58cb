"""A fresh process that imports a library and solves one small problem: what a script waits for."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.agreement import TOLERANCE
from benchmarks.machine import n_cores
from benchmarks.problems import OTT, OURS, POT, TORCH, Contender
from benchmarks.processes import ROOT, environment
from benchmarks.runner import COLUMNS, Row

N, DIM, COUNT = 256, 16, 64

_DATA = f"""
import numpy as np
rng = np.random.default_rng(0)
x, y, theta = (rng.standard_normal((k, {DIM})).astype(np.float32) for k in ({N}, {N}, {COUNT}))
theta /= np.linalg.norm(theta, axis=1, keepdims=True)
"""
PROGRAMS: dict[str, tuple[Contender | None, str]] = {
    "interpreter alone": (None, "pass"),
    "orthoslice, import alone": (OURS, "import orthoslice"),
    "orthoslice": (
        OURS,
        _DATA + "import orthoslice as osl\nprint(osl.sliced_wasserstein(x, y, directions=theta).value.item())",
    ),
    "plain NumPy": (
        None,
        _DATA + "print(((np.sort(theta @ x.T) - np.sort(theta @ y.T)) ** 2).mean().item())",
    ),
    "POT": (
        POT,
        _DATA + "import ot\nprint(ot.sliced_wasserstein_distance(x, y, projections=theta.T).item() ** 2)",
    ),
    "plain torch": (
        TORCH,
        _DATA
        + "import torch\nx, y, theta = map(torch.from_numpy, (x, y, theta))\n"
        + "print(((torch.sort(theta @ x.T).values - torch.sort(theta @ y.T).values) ** 2).mean().item())",
    ),
    "OTT-JAX": (
        OTT,
        _DATA
        + "import jax\nfrom ott.tools import sliced\n"
        + "solve = jax.jit(lambda x, y: sliced.sliced_wasserstein(x, y, proj_fn=lambda z: z @ theta.T)[0])\n"
        + "print(solve(x, y).item())",
    ),
}
SMOKE_PROGRAMS = ("interpreter alone", "orthoslice")

_TABLES = """
import numpy as np
rng = np.random.default_rng(0)
x, y, a, b = (rng.normal(size=size) for size in ((1000, 10), (1000, 10), (300, 6), (300, 6)))
import orthoslice as osl
"""
FIRST_CALLS = {
    "sliced_wasserstein": "osl.sliced_wasserstein(x, y + 0.1, rng=0)",
    "projected_wasserstein": "osl.projected_wasserstein(x, y + 0.1, rng=0)",
    "two_sample_test": "osl.two_sample_test(x, y + 0.1, rng=0)",
    "compare": "osl.compare(a, b + 0.2, rng=0)",
}
_AT_ONCE = (
    "import sys\nfrom orthoslice.backend.kernels.when_to_compile import expecting\n"
    "with expecting(sys.maxsize): "
)


def measure_first_calls(repetitions: int) -> list[Row]:
    """Seconds of processes that make one call: with an empty cache each time, and with all kernels compiled."""
    rows = []
    for name, call in FIRST_CALLS.items():
        with tempfile.TemporaryDirectory() as kept:
            _run(OURS, _TABLES + _AT_ONCE + call, kept)
            for cache, folder in (("empty", None), ("filled", kept)):
                runs = []
                for _ in range(repetitions):
                    with tempfile.TemporaryDirectory() as fresh:
                        runs.append(_run(OURS, _TABLES + call, folder or fresh))
                problem = next((why for _, why in runs if why), "")
                row = _row(f"orthoslice, {name}, {cache} cache", [seconds for seconds, _ in runs], problem)
                rows.append(row | {"problem": "first call", "directions": "drawn", "dtype": "float64"})
    return rows


def measure_cold_starts(repetitions: int, *, smoke: bool) -> list[Row]:
    """Seconds from start to end of processes, in turn. A first round fills the caches and is not counted."""
    names = SMOKE_PROGRAMS if smoke else tuple(PROGRAMS)
    times: dict[str, list[float]] = {name: [] for name in names}
    notes: dict[str, str] = {}
    for turn in range(repetitions + 1):
        for name in names:
            if name in notes:
                continue
            seconds, problem = _run(*PROGRAMS[name])
            if problem:
                notes[name] = problem
            elif turn > 0:
                times[name].append(seconds)
    rows = [_row(name, times[name], notes.get(name, "")) for name in names]
    return rows if smoke else rows + measure_first_calls(repetitions)


def expected_value() -> float:
    """What every program should print."""
    names: dict[str, Any] = {}
    exec(_DATA, names)
    x, y, theta = (names[name].astype(np.float64) for name in ("x", "y", "theta"))
    return float(((np.sort(theta @ x.T) - np.sort(theta @ y.T)) ** 2).mean())


def _run(contender: Contender | None, program: str, cache: str | None = None) -> tuple[float, str]:
    """Seconds, and what is wrong, if anything is; `cache` is a directory of compiled kernels."""
    own = {} if cache is None else {"ORTHOSLICE_CACHE_DIR": cache, "ORTHOSLICE_QUIET": "1"}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(contender or OURS, None) | own,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode == 0:
        wrong = "print" in program and abs(float(done.stdout) / expected_value() - 1) > TOLERANCE["float32"]
        return seconds, "wrong: the answer; not timed" if wrong else ""
    last = (done.stderr.strip().splitlines() or ["it ended"])[-1]
    return seconds, "not installed" if last.startswith("ModuleNotFoundError") else f"failed: {last[:100]}"


def _row(name: str, times: list[float], note: str) -> Row:
    status, _, why = note.partition(": ")
    known: Row = {
        "group": "cold_start",
        "problem": f"n={N}, d={DIM}, N={COUNT}",
        "task": "process",
        "n": N,
        "m": N,
        "dim": DIM,
        "n_directions": COUNT,
        "p": 2,
        "dtype": "float32",
        "directions": "given",
        "threads": n_cores(),
        "library": name,
        "status": status or "ok",
        "note": why,
    }
    if times and not note:
        quartiles = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
        known |= dict(zip(("low_s", "median_s", "high_s"), quartiles, strict=True)) | {"n_reps": len(times)}
    return {column: known.get(column) for column in COLUMNS}
