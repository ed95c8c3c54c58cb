"""Small problems against plain code: ratios of times on one core, in one run.

    python -m benchmarks.small            # writes benchmarks/results/small.csv and small.md
    python -m benchmarks.small --quick    # a few cells, to standard output
    python -m benchmarks.small --libraries gpu    # functions, batches and losses on an NVIDIA GPU
    python -m benchmarks.small --libraries torch  # one library anew; rows of the others stay

Plain code is what one would write by hand: project, sort, subtract, square, mean. Where ours draws directions,
so does the plain code, independent ones, which cost least; ours are orthogonal. Cells give the time of ours
divided by that of the plain code, each the lower decile of interleaved repetitions.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import wait_for_compilers
from orthoslice.backend.kernels.when_to_compile import expecting

SIZES, DIMS, COUNTS = (16, 32, 64, 128, 256, 512, 1000), (2, 16, 128), (16, 50, 128)
RESULTS = Path(__file__).parent / "results"

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def unit_rows(rng: np.random.Generator, count: int, dim: int) -> Any:
    rows = rng.normal(size=(count, dim))
    return rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))


def plain_numpy(x: Any, y: Any, theta: Any) -> Any:
    return ((np.sort(theta @ x.T) - np.sort(theta @ y.T)) ** 2).mean()


def numpy_pairs(x: Any, y: Any, theta: Any) -> dict[str, Pair]:
    """Ours and plain code on NumPy arrays, float64."""
    import orthoslice as osl

    count, dim = theta.shape
    return {
        "function, given": (
            lambda: osl.sliced_wasserstein(x, y, directions=theta),
            lambda: plain_numpy(x, y, theta),
        ),
        "function, rng=0": (
            lambda: osl.sliced_wasserstein(x, y, directions="orthogonal", n_directions=count, rng=0),
            lambda: plain_numpy(x, y, unit_rows(np.random.default_rng(0), count, dim)),
        ),
        "function, default": (
            lambda: osl.sliced_wasserstein(x, y, n_directions=count, rng=0),
            lambda: plain_numpy(x, y, unit_rows(np.random.default_rng(0), count, dim)),
        ),
    }


def torch_pairs(x: Any, y: Any, theta: Any, device: str = "cpu") -> dict[str, Pair]:
    """A training step of the loss with fresh directions, and of plain torch, float32."""
    import torch

    import orthoslice as osl

    count, dim = theta.shape
    tx = torch.as_tensor(x, dtype=torch.float32, device=device).requires_grad_()
    ty = torch.as_tensor(y, dtype=torch.float32, device=device)
    loss = osl.nn.SlicedWassersteinLoss(count, seed=0).to(device)

    def ours() -> None:
        tx.grad = None
        loss(tx, ty).backward()

    def plain() -> None:
        tx.grad = None
        v = torch.nn.functional.normalize(torch.randn(count, dim, device=device), dim=1)
        gaps = torch.sort(tx @ v.T, dim=0).values - torch.sort(ty @ v.T, dim=0).values
        gaps.square().mean().backward()

    return {"loss and gradient": (ours, plain)}


def gpu_pairs(x: Any, y: Any, theta: Any) -> dict[str, Pair]:
    """Functions, a batch and the loss against plain torch, float32 on an NVIDIA GPU."""
    import torch

    import orthoslice as osl

    count, dim = theta.shape
    tx, ty, tv = (torch.as_tensor(a, dtype=torch.float32, device="cuda") for a in (x, y, theta))
    bx, by = (c.expand(64, -1, -1).contiguous() for c in (tx, ty))

    def plain(a: Any, b: Any, v: Any) -> Any:
        return (torch.sort(a @ v.T, dim=-2).values - torch.sort(b @ v.T, dim=-2).values).square().mean()

    def drawn() -> Any:
        return torch.nn.functional.normalize(torch.randn(count, dim, device="cuda"), dim=1)

    def waited(run: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> None:
            run()
            torch.cuda.synchronize()

        return call

    pairs: dict[str, Pair] = {
        "function, given": (
            lambda: osl.sliced_wasserstein(tx, ty, directions=tv),
            lambda: plain(tx, ty, tv),
        ),
        "function, rng=0": (
            lambda: osl.sliced_wasserstein(tx, ty, directions="orthogonal", n_directions=count, rng=0),
            lambda: plain(tx, ty, drawn()),
        ),
        "function, new seeds": (
            lambda: osl.sliced_wasserstein(tx, ty, directions="orthogonal", n_directions=count, rng=None),
            lambda: plain(tx, ty, drawn()),
        ),
        "64 clouds, given": (
            lambda: osl.sliced_wasserstein(bx, by, directions=tv),
            lambda: plain(bx, by, tv),
        ),
        **torch_pairs(x, y, theta, "cuda"),
    }
    return {what: (waited(ours), waited(theirs)) for what, (ours, theirs) in pairs.items()}


def jax_pairs(x: Any, y: Any, theta: Any) -> dict[str, Pair]:
    """Compiled functions of given directions, float32, without and with the gradient."""
    import jax
    import jax.numpy as jnp

    import orthoslice as osl

    jx, jy, jv = (jnp.asarray(a, dtype=jnp.float32) for a in (x, y, theta))

    def value(a: Any, b: Any, v: Any) -> Any:
        return osl.sliced_wasserstein(a, b, directions=v).value

    def plain(a: Any, b: Any, v: Any) -> Any:
        return ((jnp.sort(v @ a.T) - jnp.sort(v @ b.T)) ** 2).mean()

    def timed(function: Callable[..., Any]) -> Callable[[], Any]:
        compiled = jax.jit(function)
        return lambda: jax.block_until_ready(compiled(jx, jy, jv))

    return {
        "jax jit": (timed(value), timed(plain)),
        "jax jit and gradient": (timed(jax.value_and_grad(value)), timed(jax.value_and_grad(plain))),
    }


def lower_deciles(pair: Pair, seconds: float) -> list[float]:
    """Both times in microseconds, measured in turn."""
    # First calls are another matter: see cold_start.py.
    with expecting(sys.maxsize):
        for run in pair:
            for _ in range(3):
                run()
    wait_for_compilers()
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 9:
        for spent, run in zip(times, pair, strict=True):
            start = time.perf_counter()
            run()
            spent.append(time.perf_counter() - start)
    return [1e6 * float(np.quantile(spent, 0.1)) for spent in times]


def measure(cells: Any, makers: Any, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for n, dim, count in cells:
        rng = np.random.default_rng(0)
        clouds = rng.normal(size=(n, dim)), rng.normal(size=(n, dim)) + 0.1
        theta = unit_rows(rng, count, dim)
        for make in makers:
            for what, pair in make(*clouds, theta).items():
                ours, plain = lower_deciles(pair, seconds)
                rows.append(
                    {"what": what, "n": n, "dim": dim, "directions": count, "ours_us": ours, "plain_us": plain}
                )
                print(
                    f"{what:22} {n:6} {dim:4} {count:4} {ours:9.1f} {plain:9.1f} {ours / plain:6.2f}",
                    flush=True,
                )
    return rows


def with_others(rows: list[dict[str, Any]], stored: Path) -> list[dict[str, Any]]:
    """The rows of this run, each kind of call in its place among the stored kinds that it did not measure."""
    fresh = {row["what"]: [other for other in rows if other["what"] == row["what"]] for row in rows}
    kinds: dict[str, list[dict[str, Any]]] = {}
    if stored.exists():
        with stored.open(newline="") as file:
            for row in csv.DictReader(file):
                numbers = {
                    key: (float if key.endswith("us") else int)(row[key]) for key in row if key != "what"
                }
                kinds.setdefault(row["what"], []).append({"what": row["what"], **numbers})
    return [row for own in (kinds | fresh).values() for row in own]


def page(rows: list[dict[str, Any]]) -> str:
    """A table for each kind of call: the ratio in every cell."""
    lines = ["# Small problems", "", *__doc__.strip().splitlines()[7:], ""]
    for what in dict.fromkeys(row["what"] for row in rows):
        own = [row for row in rows if row["what"] == what]
        ratios = [row["ours_us"] / row["plain_us"] for row in own]
        lines += [f"## {what}", "", f"{sum(r > 1 for r in ratios)} of {len(ratios)} cells above 1.", ""]
        heads = list(dict.fromkeys((row["dim"], row["directions"]) for row in own))
        lines += ["| n |" + "".join(f" d={d}, N={c} |" for d, c in heads), "|---|" + "---|" * len(heads)]
        for n in dict.fromkeys(row["n"] for row in own):
            found = {(row["dim"], row["directions"]): row for row in own if row["n"] == n}
            cells = (found.get(head) for head in heads)
            told = [f" {row['ours_us'] / row['plain_us']:.2f} |" if row else " |" for row in cells]
            lines.append(f"| {n:,} |" + "".join(told))
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.3, help="per cell")
    parser.add_argument("--libraries", default="numpy,torch,jax")
    options = parser.parse_args()
    known = {"numpy": numpy_pairs, "torch": torch_pairs, "jax": jax_pairs, "gpu": gpu_pairs}
    makers = [known[name] for name in options.libraries.split(",")]
    if "torch" in options.libraries:
        import torch

        torch.set_num_threads(1)
    cells = list(
        itertools.product(*((SIZES[2:4], DIMS[:2], COUNTS[:1]) if options.quick else (SIZES, DIMS, COUNTS)))
    )
    rows = measure(cells, makers, options.seconds)
    if jax_pairs in makers and not options.quick:
        rows += measure(itertools.product((10**4, 10**5), (2, 16), (16, 50)), [jax_pairs], options.seconds)
    if options.quick:
        return
    name = "small_gpu" if gpu_pairs in makers else "small"
    rows = with_others(rows, RESULTS / f"{name}.csv")
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (RESULTS / f"{name}.md").write_text(page(rows))


if __name__ == "__main__":
    main()
