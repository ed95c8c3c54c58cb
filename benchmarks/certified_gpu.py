"""Brackets of W on a GPU: how long they take, how wide they are, and whether they verify.

    python -m benchmarks.certified_gpu              # on an NVIDIA GPU; writes certified_gpu.csv and .md
    python -m benchmarks.certified_gpu --cells 3 4  # these cells anew; the other rows stay as they are
    python -m benchmarks.certified_gpu --page       # the page again, from the stored rows

Clouds are float32 tensors on the GPU and the same every time. A call is timed by the clock, from the tensors to
the upper bound; smaller clouds have had all kernels compiled before. It is made once. `verify` is timed apart.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    *("cell", "kind", "n", "dim", "p", "rtol", "seconds", "lower", "upper", "gap", "converged", "verified"),
    *("verify_seconds", "megabytes", "gpu", "torch"),
)


# Dimensions and powers for which kernels have run in this process.
_warm: set[tuple[int, float]] = set()


class Cell(NamedTuple):
    kind: str
    n: int
    dim: int
    p: float = 2.0
    rtol: float = 1e-3
    time_limit: float = 300.0


CELLS = (
    Cell("normal", 100_000, 64),
    Cell("one law", 100_000, 64),
    Cell("clusters", 100_000, 16),
    Cell("heavy tails", 20_000, 16),
    Cell("normal", 100_000, 3),
    Cell("normal", 100_000, 3, p=1.0),
    Cell("normal", 1_000_000, 3),
)


def clouds(kind: str, n: int, dim: int) -> tuple[Any, Any]:
    """Two clouds of a kind of `benchmarks.certified`, drawn on the GPU."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(n + dim)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", generator=generator)

    x, y = normal(n, dim), normal(n, dim)
    if kind != "one law":
        y = 1.3 * y + 0.3
    if kind == "clusters":
        middles = 8 * normal(2, 20, dim)
        picks = torch.randint(20, (2, n), device="cuda", generator=generator)
        x, y = x + middles[0][picks[0]], y + middles[1][picks[1]]
    elif kind == "heavy tails":
        uniform = torch.rand(2, n, 1, device="cuda", generator=generator)
        x, y = (c / (-u.log()).sqrt() for c, u in zip((x, y), uniform, strict=True))
    return x, y


def measure(number: int) -> dict[str, Any]:
    """One cell."""
    import torch

    import orthoslice as osl

    cell = CELLS[number]
    options = {"p": cell.p, "rtol": cell.rtol}
    if (cell.dim, cell.p) not in _warm:
        _warm.add((cell.dim, cell.p))
        for n in (2000, 20_000):
            osl.wasserstein(*clouds("normal", n, cell.dim), **options, time_limit=5.0)
    x, y = clouds(cell.kind, cell.n, cell.dim)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, start = torch.cuda.memory_allocated(), time.perf_counter()
    found = osl.wasserstein(x, y, **options, time_limit=cell.time_limit)
    lower, upper = found.lower, found.upper
    seconds = time.perf_counter() - start
    megabytes = (torch.cuda.max_memory_allocated() - before) / 1e6
    start = time.perf_counter()
    verified = found.verify()
    return {
        **{"cell": number, "kind": cell.kind, "n": cell.n, "dim": cell.dim, "p": cell.p, "rtol": cell.rtol},
        **{"seconds": round(seconds, 3), "lower": lower, "upper": upper, "gap": upper / lower - 1},
        **{"converged": found.converged, "verified": verified},
        **{"verify_seconds": round(time.perf_counter() - start, 3), "megabytes": round(megabytes)},
        **{"gpu": torch.cuda.get_device_name(), "torch": torch.__version__},
    }


def page(rows: list[dict[str, str]]) -> str:
    """The page, from rows as they are stored."""
    lines = [
        "# Brackets of W on a GPU",
        "",
        f"{rows[0]['gpu']}, torch {rows[0]['torch']}, float32 tensors: `python -m benchmarks.certified_gpu`.",
        "",
        "| kind | n = m | dim | p | s | upper / lower - 1 | as narrow as asked | verified | s to verify | MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row['kind']} | {int(row['n']):,} | {row['dim']} | {float(row['p']):g} | "
        f"{float(row['seconds']):.2f} | {float(row['gap']):.1e} | {_yes(row['converged'])} | "
        f"{_yes(row['verified'])} | {float(row['verify_seconds']):.1f} | {row['megabytes']} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _yes(flag: str) -> str:
    return "yes" if flag == "True" else "no"


def stored() -> list[dict[str, str]]:
    """The rows of the last run."""
    path = RESULTS / "certified_gpu.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> int:
    """Exit 0 if all answers verify, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--cells", nargs="+", type=int, default=list(range(len(CELLS))), help="numbers of cells"
    )
    parser.add_argument("--page", action="store_true", help="the page alone")
    given = parser.parse_args()
    rows = {row["cell"]: row for row in stored()}
    for number in [] if given.page else given.cells:
        row = measure(number)
        print(row, file=sys.stderr, flush=True)
        rows[str(number)] = {name: str(row[name]) for name in COLUMNS}
        with (RESULTS / "certified_gpu.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            table.writerows(rows[key] for key in sorted(rows, key=int))
    (RESULTS / "certified_gpu.md").write_text(page(stored()))
    return 0 if all(row["verified"] == "True" for row in stored()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
