"""W itself against POT's network simplex: time to the exact answer, and to a bracket of 0.1%, in one run.

    python -m benchmarks.certified            # writes benchmarks/results/certified.csv and certified.md
    python -m benchmarks.certified --quick    # a few cells, to standard output

Times are processor seconds of the calling process, all threads together, the least of some repetitions: other
work on the machine changes them least. POT is given the matrix of costs; ours makes its own. Every answer is
compared with POT's and verified, which is not part of the time.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SIZES, DIMS = (100, 300, 1000, 2000, 4000), (1, 2, 3, 16, 64)
KINDS = ("normal", "clusters", "counts", "heavy tails", "one law", "unequal", "weights")
BRACKET_SIZES = (1000, 10_000)
RESULTS = Path(__file__).parent / "results"
COLUMNS = ("task", "kind", "n", "m", "dim", "method", "ours", "pot", "ratio", "gap", "off", "verified")

# An answer that is farther from POT's, relatively, is wrong.
_SAME = 1e-9


def clouds(kind: str, n: int, dim: int, rng: np.random.Generator) -> tuple[Any, Any, dict[str, Any]]:
    """Two clouds of a kind, and their weights."""
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
    repetitions = 5 if n <= 300 else 3 if n <= 1000 else 1
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
    """Ours to 0.1%."""
    import orthoslice as osl

    x, y, weights = clouds(kind, n, dim, np.random.default_rng(n + dim))
    ours, found = least_time(lambda: osl.wasserstein_bounds(x, y, rtol=1e-3, **weights), 3 if n <= 1000 else 1)
    gap = found.upper / found.lower - 1
    return {
        **{"task": "0.1%", "kind": kind, "n": n, "m": len(y), "dim": dim, "method": found.transport.method},
        **{"ours": ours, "pot": None, "ratio": None, "gap": gap, "off": None, "verified": found.verify()},
    }


def cells(quick: bool) -> Iterator[dict[str, Any]]:
    # Compiled before anything is timed, with costs in memory and without.
    for memory in ("256MB", 10**5):
        _warm_up(memory)
    for n in (100, 1000) if quick else SIZES:
        for kind in KINDS:
            for dim in (2, 16) if quick else DIMS:
                yield exact_cell(kind, n, dim)
    for n in BRACKET_SIZES[:1] if quick else BRACKET_SIZES:
        for kind in KINDS:
            for dim in (3, 64):
                yield bracket_cell(kind, n, dim)


def _warm_up(memory: Any) -> None:
    import orthoslice as osl

    for kind in ("normal", "unequal"):
        x, y, _ = clouds(kind, 600, 3, np.random.default_rng(0))
        osl.wasserstein(x, y, rtol=1e-3, memory=memory)


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
    head = "| kind | n, m | dim | s | upper / lower - 1 |"
    lines += ["", "To 0.1%:", "", head, "| --- | --- | --- | --- | --- |"]
    for row in rows:
        if row["task"] != "exact":
            what = f"| {row['kind']} | {row['n']}, {row['m']} | {row['dim']} |"
            lines.append(f"{what} {row['ours']:.3f} | {row['gap']:.0e} |")
    return lines


def main() -> int:
    """Exit 0 if all answers agree with POT's and verify, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few cells, to standard output")
    quick = parser.parse_args().quick
    rows = []
    for row in cells(quick):
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    text = "\n".join(page(rows)) + "\n"
    if quick:
        print(text)
    else:
        with (RESULTS / "certified.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            table.writerows(rows)
        (RESULTS / "certified.md").write_text(text)
    wrong = [row for row in rows if not row["verified"] or abs(row["off"] or 0.0) > _SAME]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
