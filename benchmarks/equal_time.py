"""The defaults at equal time: root mean squared errors, times the root of the time that they took.

    python -m benchmarks.equal_time            # writes benchmarks/results/equal_time.csv and equal_time.md
    python -m benchmarks.equal_time --quick    # a few cells, to standard output

More directions lower the squared error of an unbiased estimate in proportion to the time they take, so that the
product of both says which way is better whatever one can afford. Cells give that of other ways divided by that
of the defaults: above 1 the defaults are better, and below 0.9 they are behind by more than 10%.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "no control": {"control": None},
    "independent": {"directions": "iid", "control": None},
}


def clouds(kind: str, n: int, dim: int) -> tuple[Any, Any]:
    import orthoslice as osl

    if kind == "digits":
        return osl.datasets.digits(3)[:n], osl.datasets.digits(8)[:n]
    rng = np.random.default_rng([n, dim])
    if kind == "heavy tails":
        return rng.standard_t(3, size=(n, dim)), rng.standard_t(3, size=(n, dim))
    if kind == "counts":
        return rng.poisson(0.1, size=(n, dim)).astype(float), rng.poisson(0.12, size=(n, dim)).astype(float)
    shift = 0.0 if kind == "one law" else 0.5
    return rng.normal(size=(n, dim)), rng.normal(size=(n, dim)) + shift / np.sqrt(dim)


def measure(cell: tuple[str, int, int], repeats: int) -> dict[str, Any]:
    """Root mean squared errors and times of all ways, with the number of directions of the defaults."""
    import orthoslice as osl
    from orthoslice.estimates import plan

    kind, n, _ = cell
    x, y = clouds(*cell)
    best = {"n_directions": 100_000 if n < 5000 else 30_000, "directions": "orthogonal", "rng": 10**9}
    truth = float(osl.sliced_wasserstein(x, y, control="gaussian", workers=1, **best).value)
    row: dict[str, Any] = {"kind": kind, "n": len(x), "dim": x.shape[1]}
    found: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in WAYS}
    for seed in range(repeats + 1):
        for way, options in WAYS.items():
            # Directions of a seed are kept, and would cost the next way nothing.
            plan.forget_directions()
            start = time.perf_counter()
            est = osl.sliced_wasserstein(x, y, rng=seed, workers=1, **options)
            spent = time.perf_counter() - start
            if seed:  # the first one compiles
                found[way][0].append(float(est.value) - truth)
                found[way][1].append(spent)
    for way, (errors, spent) in found.items():
        row[f"{way} rmse"] = float(np.sqrt(np.mean(np.square(errors)))) / truth
        row[f"{way} seconds"] = float(np.median(spent))
    return row


def ratio(row: dict[str, Any], way: str) -> float:
    def cost(which: str) -> float:
        return float(row[f"{which} rmse"] * np.sqrt(row[f"{which} seconds"]))

    return cost(way) / cost("default")


def page(rows: list[dict[str, Any]]) -> str:
    lines = ["# Defaults at equal time", "", *__doc__.strip().splitlines()[5:], ""]
    ways = [way for way in WAYS if way != "default"]
    lines += ["| clouds | n | d | " + " | ".join(ways) + " |", "|---" * (3 + len(ways)) + "|"]
    for row in rows:
        told = " | ".join(f"{ratio(row, way):.2f}" for way in ways)
        lines.append(f"| {row['kind']} | {row['n']:,} | {row['dim']} | {told} |")
    behind = [sum(ratio(row, way) < 0.9 for row in rows) for way in ways]
    told = ", ".join(f"{way} in {count}" for way, count in zip(ways, behind, strict=True))
    return "\n".join([*lines, "", f"Behind by more than 10%, of {len(rows)} cells: {told}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    sizes, dims = ((64, 256), (2, 16)) if options.quick else ((64, 256, 1000, 10**4), (2, 5, 16, 64, 128, 512))
    cells = list(itertools.product(("shifted", "one law"), sizes, dims))
    cells += [("digits", n, 64) for n in (64, 170)]
    if not options.quick:
        cells += itertools.product(("heavy tails", "counts"), (1000,), dims)
    repeats = [min(options.repeats, max(24, 10**6 // (n * dim))) for _, n, dim in cells]
    with ProcessPoolExecutor(options.processes) as pool:
        rows = list(pool.map(measure, cells, repeats))
    if options.quick:
        print(page(rows))
        return
    with (RESULTS / "equal_time.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (RESULTS / "equal_time.md").write_text(page(rows))


if __name__ == "__main__":
    main()
