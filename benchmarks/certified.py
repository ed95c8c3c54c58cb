"""W itself against POT's network simplex: time to the exact answer, and to a bracket of 0.1%, in one run.

    python -m benchmarks.certified                     # writes certified.csv and certified.md in results
    python -m benchmarks.certified --only exact 4000   # these sizes anew; the other rows stay as they are
    python -m benchmarks.certified --only brackets
    python -m benchmarks.certified --quick             # a few cells, to standard output

Exact answers are timed in processor seconds of the calling process, all threads together, the least of some
repetitions: other work on the machine changes them least. POT is given the matrix of costs; ours makes its own.
Every answer is compared with POT's and verified, which is not part of the time. A bracket is found in a process
of its own, after a warm-up: by the clock, in processor seconds, and with the memory that the call adds at its
peak.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SIZES, DIMS = (100, 300, 1000, 2000, 4000), (1, 2, 3, 16, 64)
KINDS = ("normal", "clusters", "counts", "heavy tails", "one law", "unequal", "weights")
REAL = ("digits 0/1", "digits 3/8", "breast cancer")
BRACKETS = (
    *((kind, 0, 0) for kind in (*REAL, "MNIST 3/8")),
    *(("normal", 2000, dim) for dim in (2, 3, 10, 50)),
    *((kind, n, dim) for n in (1000, 10_000) for kind in KINDS for dim in (3, 64)),
    *(("heavy tails", 10_000, dim) for dim in (2, 16)),
)
RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    *("task", "kind", "n", "m", "dim", "method", "ours", "pot", "ratio", "gap", "off", "verified"),
    *("seconds", "megabytes"),
)

# An answer that is farther from POT's, relatively, is wrong.
_SAME = 1e-9


@functools.cache
def real_clouds(kind: str) -> tuple[Any, Any]:
    """Two classes of handwritten digits, of tumours (columns in standard units), or of MNIST, 5,000 of each."""
    from orthoslice import datasets

    if kind == "breast cancer":
        from sklearn.datasets import load_breast_cancer

        table, label = load_breast_cancer(return_X_y=True)
        table = (table - table.mean(axis=0)) / table.std(axis=0)
        return table[label == 0], table[label == 1]
    name, labels = kind.split()
    first, second = (int(label) for label in labels.split("/"))
    if name == "digits":
        return datasets.digits(first), datasets.digits(second)
    from experiments.data import load

    images, label = load("mnist")
    points = images.reshape(len(images), -1) / 255
    return points[label == first][:5000], points[label == second][:5000]


def clouds(kind: str, n: int, dim: int, rng: np.random.Generator) -> tuple[Any, Any, dict[str, Any]]:
    """Two clouds of a kind, and their weights; real ones have their own `n` and `dim`."""
    if kind not in KINDS:
        return *real_clouds(kind), {}
    m = 3 * n // 4 if kind == "unequal" else n
    x, y = rng.normal(size=(n, dim)), rng.normal(size=(m, dim))
    weights: dict[str, Any] = {}
    if kind != "one law":
        y = 1.3 * y + 0.3
    if kind == "clusters":
        x, y = (c + 8 * rng.normal(size=(20, dim))[rng.integers(20, size=len(c))] for c in (x, y))
    elif kind == "counts":
        x, y = rng.poisson(2.0, (n, dim)).astype(float), rng.poisson(2.5, (m, dim)).astype(float)
    elif kind == "heavy tails":
        # Student's t with 2 degrees of freedom: a normal vector over the root of an exponential variable.
        x, y = (c / np.sqrt(rng.exponential(size=(len(c), 1))) for c in (x, y))
    elif kind == "weights":
        counts = [rng.integers(1, 10, size=k) for k in (n, m)]
        weights = {f"{name}_weights": c / c.sum() for name, c in zip("xy", counts, strict=True)}
    return x, y, weights


def least_time(work: Callable[[], Any], repetitions: int) -> tuple[float, Any]:
    times, answer = [], None
    for _ in range(repetitions):
        start = time.process_time()
        answer = work()
        times.append(time.process_time() - start)
    return min(times), answer


def exact_cell(kind: str, n: int, dim: int) -> dict[str, Any]:
    """Ours and POT's on one problem, to the exact answer."""
    import ot

    import orthoslice as osl

    x, y, weights = clouds(kind, n, dim, np.random.default_rng(n + dim))
    n, dim = x.shape
    repetitions = 30 if n <= 100 else 5 if n <= 300 else 3 if n <= 1000 else 1
    ours, found = least_time(lambda: osl.wasserstein(x, y, **weights), repetitions)
    a, b = (weights.get(f"{name}_weights", np.full(len(c), 1 / len(c))) for name, c in (("x", x), ("y", y)))
    cost = ot.dist(x, y)
    theirs, value = least_time(lambda: ot.emd2(a, b, cost, numItermax=10**9), repetitions)
    gap = found.upper / found.lower - 1
    return {
        **{"task": "exact", "kind": kind, "n": n, "m": len(y), "dim": dim, "method": found.method},
        **{"ours": ours, "pot": theirs, "ratio": ours / theirs, "gap": gap},
        **{"off": found.value / value - 1, "verified": found.verify()},
    }


def bracket_cell(kind: str, n: int, dim: int) -> dict[str, Any]:
    """Ours to 0.1%, in a process of its own."""
    cell = json.dumps([kind, n, dim])
    command = [sys.executable, "-m", "benchmarks.certified", "--cell", cell]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{cell} failed: {done.stderr}")
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def bracket(kind: str, n: int, dim: int) -> dict[str, Any]:
    """Ours to 0.1%, in this process, of which it is the only work."""
    import orthoslice as osl
    from benchmarks.worker import _status_bytes, reset_peak

    _compile()
    x, y, weights = clouds(kind, n, dim, np.random.default_rng(n + dim))
    before, start, processor = reset_peak(), time.perf_counter(), time.process_time()
    found = osl.wasserstein_bounds(x, y, rtol=1e-3, **weights)
    seconds, ours = time.perf_counter() - start, time.process_time() - processor
    megabytes = (_status_bytes("VmHWM") - before) / 1e6
    n, dim = x.shape
    assert found.transport is not None
    return {
        **{"task": "0.1%", "kind": kind, "n": n, "m": len(y), "dim": dim, "method": found.transport.method},
        **{"ours": ours, "pot": None, "ratio": None, "gap": found.upper / found.lower - 1, "off": None},
        **{"verified": found.verify(), "seconds": seconds, "megabytes": megabytes},
    }


def cells(quick: bool, only: str | None, sizes: list[int]) -> Iterator[dict[str, Any]]:
    if only != "brackets":
        # Compiled before anything is timed.
        _compile()
        for n in (100, 1000) if quick else sizes or SIZES:
            for kind in KINDS:
                for dim in (2, 16) if quick else DIMS:
                    yield exact_cell(kind, n, dim)
        # Those of some hundred points go with the smallest size.
        for kind in () if quick or (sizes and SIZES[0] not in sizes) else REAL:
            yield exact_cell(kind, 0, 0)
    for cell in () if only == "exact" else BRACKETS[:2] if quick else BRACKETS:
        yield bracket_cell(*cell)


def _compile() -> None:
    """Both methods, with costs in memory and without."""
    for memory in ("256MB", 10**5):
        _warm_up(memory)


def _warm_up(memory: Any) -> None:
    import orthoslice as osl

    for kind in ("normal", "unequal"):
        x, y, _ = clouds(kind, 600, 3, np.random.default_rng(0))
        osl.wasserstein(x, y, rtol=1e-3, memory=memory)
    # An auction with all costs in memory, which the network simplex method ends.
    x, y, weights = clouds("weights", 1100, 3, np.random.default_rng(0))
    osl.wasserstein(x, y, **weights)


def page(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as tables, and what they amount to."""
    exact = [row for row in rows if row["task"] == "exact"]
    ratios = [row["ratio"] for row in exact]
    lines = [
        "# W, exact and to 0.1%",
        "",
        f"Exact: {len(exact)} cells, ours / POT's `emd2` {statistics.median(ratios):.2f} in the median cell, "
        f"{max(ratios):.2f} at most; at most 1.2 in {sum(r <= 1.2 for r in ratios)} of them. Verified: "
        f"{sum(row['verified'] for row in rows)} of {len(rows)} answers.",
        "",
        "| kind | n, m | dim | method | ours s | POT s | ours / POT | upper / lower - 1 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row['kind']} | {row['n']}, {row['m']} | {row['dim']} | {row['method']} | {row['ours']:.4f} | "
        f"{row['pot']:.4f} | {row['ratio']:.2f} | {row['gap']:.0e} |"
        for row in exact
    ]
    lines += ["", "To 0.1%:", "", "| kind | n, m | dim | method | s | processor s | MB | upper / lower - 1 |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    lines += [
        f"| {row['kind']} | {row['n']}, {row['m']} | {row['dim']} | {row['method']} | {row['seconds']:.3f} | "
        f"{row['ours']:.3f} | {row['megabytes']:.0f} | {row['gap']:.0e} |"
        for row in rows
        if row["task"] != "exact"
    ]
    return lines


def _cell_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("task", "kind", "n", "m", "dim"))


def _stored() -> list[dict[str, Any]]:
    """The rows of the last run, as numbers again."""
    with (RESULTS / "certified.csv").open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        row["verified"] = row["verified"] == "True"
        for name in ("n", "m", "dim"):
            row[name] = int(row[name])
        for name in ("ours", "pot", "ratio", "gap", "off", "seconds", "megabytes"):
            row[name] = float(row[name]) if row.get(name) else None
    return rows


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    kind = (*KINDS, *REAL, "MNIST 3/8").index(row["kind"])
    return row["task"] != "exact", kind >= len(KINDS), row["n"] if kind < len(KINDS) else 0, kind, row["dim"]


def main() -> int:
    """Exit 0 if all answers agree with POT's and verify, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few cells, to standard output")
    parser.add_argument(
        "--only", nargs="+", default=[None], help="`exact`, with sizes if not all, or `brackets`"
    )
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(bracket(*json.loads(given.cell))))
        return 0
    only, *sizes = given.only
    rows = []
    for row in cells(given.quick, only, [int(size) for size in sizes]):
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    if given.quick:
        print("\n".join(page(rows)))
    else:
        new = {_cell_of(row) for row in rows}
        rows += [row for row in _stored() if only and _cell_of(row) not in new]
        rows.sort(key=_order)
        with (RESULTS / "certified.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            table.writerows(rows)
        (RESULTS / "certified.md").write_text("\n".join(page(rows)) + "\n")
    wrong = [row for row in rows if not row["verified"] or abs(row["off"] or 0.0) > _SAME]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
