"""The page of the GPU benchmark: times beside what the device could do at best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks import plots, tables
from benchmarks.agreement import COUPLING_TOLERANCE
from benchmarks.gpu import GROUPS
from benchmarks.gpu.targets import evaluate, torch_ratio
from benchmarks.problems import COPIES
from benchmarks.report import Benchmark
from benchmarks.runner import Row
from benchmarks.targets import ours, ratio, select

_FLOAT_BYTES = 4
_ON_CHIP = 227 * 1024 // _FLOAT_BYTES
"""Numbers that the largest shared memory of a block holds."""


class Rates(NamedTuple):
    """What the device was measured to do in a second; None where it was not."""

    bytes: float | None
    flops: float | None


class Floor(NamedTuple):
    """Seconds that a problem takes at these rates if nothing else cost anything."""

    bytes_s: float | None
    flops_s: float | None

    @property
    def seconds(self) -> float | None:
        """The larger: memory and arithmetic may work at the same time."""
        known = [value for value in self if value is not None]
        return max(known) if known else None


def rates(rows: Sequence[Row]) -> Rates:
    """From the rows of the group `floors`; a copy reads and writes."""
    found: dict[str, float] = {}
    for row in select(rows, group="floors"):
        if row["median_s"] is not None:
            points, dim = row["n"] + row["m"], row["dim"]
            work = {
                "copy": 2 * _FLOAT_BYTES * COPIES * points * dim,
                "matmul": 2 * points * dim * row["n_directions"],
            }
            found[row["task"]] = work[row["task"]] / row["median_s"]
    return Rates(found.get("copy"), found.get("matmul"))


def floor_of(row: Row, rates: Rates) -> Floor:
    """What must move: clouds, directions and gradients; and projections of rows that fit on no chip, written
    once and read once, with as much again for their places or slopes where gradients are wanted.
    """
    points, dim, count = row["n"] + row["m"], row["dim"], row["n_directions"]
    passes = {"gradient": 1.5, "gradients": 2}.get(row["task"], 1)
    numbers = passes * points * dim + count * dim
    if max(row["n"], row["m"]) > _ON_CHIP:
        numbers += passes * 2 * points * count
    moved, computed = _FLOAT_BYTES * numbers, passes * 2 * points * dim * count
    return Floor(
        None if rates.bytes is None else moved / rates.bytes,
        None if rates.flops is None else computed / rates.flops,
    )


def rates_table(rows: Sequence[Row]) -> str:
    found = rates(rows)
    lines = [
        ("copy, bytes read and written", "-" if found.bytes is None else f"{found.bytes / 1e12:.2f} TB/s"),
        ("float32 matrix product", "-" if found.flops is None else f"{found.flops / 1e12:.1f} TFLOP/s"),
    ]
    return tables.table(("what", "measured"), lines)


def with_summary(group: str) -> Callable[[Sequence[Row]], str]:
    """Our time, the ratios and the floors; then everyone's times."""

    def text(rows: Sequence[Row]) -> str:
        return f"{_summary(rows, group)}\n\n{tables.side_by_side(rows, group)}"

    return text


def _summary(rows: Sequence[Row], group: str) -> str:
    header = ("problem", "orthoslice", "on the device alone", "plain torch", "plain torch, best of both")
    header = (*header, "POT", "OTT-JAX", "floor, bytes", "floor, FLOPs", "orthoslice / floor")
    measured = rates(rows)
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in select(rows, group=group)):
        mine = ours(rows, group, problem)
        if mine is None:
            continue
        floor = floor_of(mine, measured)
        peers = [torch_ratio(rows, group, problem)]
        peers += [ratio(rows, group, problem, library=name) for name in ("torch", "pot", "ott")]
        lines.append(
            [
                problem,
                *(tables.seconds_text(mine[name]) for name in ("median_s", "device_s")),
                *("-" if value is None else tables.ratio_text(value) for value in peers),
                *map(tables.seconds_text, floor),
                _times(mine["median_s"], floor.seconds),
            ]
        )
    return tables.table(header, lines)


def _times(seconds: float | None, floor: float | None) -> str:
    return "-" if seconds is None or not floor else tables.ratio_text(seconds / floor)


GPU = Benchmark(
    name="gpu",
    title="GPU benchmark",
    base="our loss (the first column of ours)",
    peer="plain eager torch, or POT,",
    about=" All libraries but OTT-JAX share one process. Times are wall times of calls that are waited for "
    "once, at the end of a batch; *on the device alone* is between two events, with the launches queued "
    "beforehand.",
    groups=GROUPS,
    evaluate=evaluate,
    figures={"forward": plots.forward_figure},
    pictures={"forward": "forward"},
    special={
        "floors": rates_table,
        "forward": with_summary("forward"),
        "backward": with_summary("backward"),
        "backward_both": with_summary("backward_both"),
        "memory": tables.memory_table,
    },
    tolerances=(
        f"Of a gradient of the projected distance {COUPLING_TOLERANCE:g} is allowed: where rounding makes two "
        "points change places, they change partners too.",
    ),
)
