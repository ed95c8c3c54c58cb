"""What the figures are asked to show: ratios in one run, against the best path of each peer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.libraries import LABELS
from benchmarks.runner import Row

FORWARD: dict[str, dict[str, float]] = {
    "n=256, d=128, N=128": {"pot": 20, "numpy": 1, "torch": 10},
    "n=1000, d=50, N=500": {"pot": 20, "numpy": 1, "torch": 5},
    "n=10000, d=64, N=500": {"pot": 25, "numpy": 1.2, "torch": 7},
    "n=100000, d=16, N=100": {"pot": 35, "numpy": 1.3, "torch": 9},
    "n=1000000, d=3, N=50": {"pot": 70, "numpy": 1.5, "torch": 11},
}
BACKWARD = {"n=10000, d=64, N=500": 4, "n=100000, d=16, N=100": 4}
PROJECTED, PROJECTED_RATIO = "n=2000, d=64, N=200", 20
PROJECTED_MORE = "n=2000, d=64, N=800"
UNEQUAL, UNEQUAL_RATIO = "n=100000, m=70000, d=16, N=50", 20
HADAMARD, HADAMARD_RATIO = "n=2000, d=1024, N=1024", 4
DATA_RATIO = 1.5
COLD_START_S = 1.5
SAME_MEMORY = 1.1
"""Memory that grows by less than this factor, or by less than the next number, does not grow."""
SAME_MEMORY_BYTES = 4_000_000


@dataclass(frozen=True)
class Target:
    """A demand, what was measured, and whether it was met (None where it was not measured)."""

    what: str
    asked: str
    measured: str
    met: bool | None


def evaluate(rows: Sequence[Row]) -> list[Target]:
    """All targets, with those that these rows say nothing about marked so."""
    return [
        *_forward(rows),
        *_backward(rows),
        *_projected(rows),
        *_unequal(rows),
        _data(rows, "data", "sliced"),
        _data(rows, "data_projected", "projected"),
        *_others(rows),
    ]


def select(rows: Iterable[Row], **where: Any) -> list[Row]:
    """Rows whose columns have these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def ours(rows: Iterable[Row], group: str, problem: str) -> Row | None:
    """Our row as a user gets it: the first listed, on NumPy's default path."""
    found = select(rows, group=group, problem=problem, library="orthoslice")
    return found[0] if found else None


def ratio(rows: Sequence[Row], group: str, problem: str, **peer: Any) -> float | None:
    """How many times longer a peer takes on its best path."""
    mine = ours(rows, group, problem)
    times = [row["median_s"] for row in select(rows, group=group, problem=problem, **peer)]
    times = [seconds for seconds in times if seconds is not None]
    if mine is None or mine["median_s"] is None or not times:
        return None
    return float(min(times) / mine["median_s"])


def least_ratio(rows: Sequence[Row], group: str, **peer: Any) -> tuple[float | None, str]:
    """The smallest ratio of all problems of a group, and where; None where one of them was not measured."""
    problems = dict.fromkeys(row["problem"] for row in select(rows, group=group))
    ratios = {problem: ratio(rows, group, problem, **peer) for problem in problems}
    known = {problem: value for problem, value in ratios.items() if value is not None}
    missing = len(ratios) - len(known)
    if not known or missing:
        return None, f"{missing} of {len(ratios)} {group} not measured" if ratios else "not measured"
    worst = min(known, key=lambda problem: known[problem])
    return known[worst], f"at {worst}, the worst of {len(known)}"


def at_least(what: str, asked: float, got: float | None) -> Target:
    text = "not measured" if got is None else f"{got:.3g}x"
    return Target(what, f">= {asked:g}x", text, None if got is None else got >= asked)


def _forward(rows: Sequence[Row]) -> list[Target]:
    return [
        at_least(
            f"forward, {problem}, against {LABELS[peer]}", asked, ratio(rows, "forward", problem, library=peer)
        )
        for problem, peers in FORWARD.items()
        for peer, asked in peers.items()
    ]


def _backward(rows: Sequence[Row]) -> list[Target]:
    return [
        at_least(
            f"forward and backward, {problem}, against plain torch autograd",
            asked,
            ratio(rows, "backward", problem, library="torch"),
        )
        for problem, asked in BACKWARD.items()
    ]


def _projected(rows: Sequence[Row]) -> list[Target]:
    what = f"projected, {PROJECTED}, against POT's expected sliced plan"
    peaks = [ours(rows, "memory", name) for name in (PROJECTED, PROJECTED_MORE)]
    few, many = (row["peak_bytes"] if row else None for row in peaks)
    asked = f"<= {SAME_MEMORY:g}x or {SAME_MEMORY_BYTES / 1e6:g} MB more"
    if few is None or many is None:
        memory = Target("projected, memory at N=800 against N=200", asked, "not measured", None)
    else:
        met = many <= max(SAME_MEMORY * few, few + SAME_MEMORY_BYTES)
        text = f"{many / 1e6:.1f} MB against {few / 1e6:.1f} MB"
        memory = Target("projected, memory at N=800 against N=200", asked, text, met)
    return [at_least(what, PROJECTED_RATIO, ratio(rows, "projected", PROJECTED, library="pot")), memory]


def _unequal(rows: Sequence[Row]) -> list[Target]:
    faster = at_least(
        f"unequal sizes, {UNEQUAL}, against POT (best of its types and libraries)",
        UNEQUAL_RATIO,
        ratio(rows, "unequal", UNEQUAL, library="pot"),
    )
    mine = ours(rows, "unequal", UNEQUAL)
    theirs = select(rows, group="unequal", problem=UNEQUAL, library="pot", dtype="float32", arrays="numpy")
    if mine is None or not theirs or mine["error"] is None or theirs[0]["error"] is None:
        right = Target("unequal sizes: right where POT's float32 is not", "right", "not measured", None)
    else:
        text = f"error {mine['error']:.1g}, POT's {theirs[0]['error']:.1g}"
        right = Target("unequal sizes: right where POT's float32 is not", "right", text, mine["status"] == "ok")
    return [faster, right]


def _data(rows: Sequence[Row], group: str, distance: str) -> Target:
    """How slow the worst kind of data makes us."""
    least, where = least_ratio(rows, group, library="orthoslice", data="Gaussian")
    what = f"{distance}, any kind of data, against Gaussian clouds of the same size"
    asked = f"<= {DATA_RATIO:g}x as long"
    if least is None:
        return Target(what, asked, where, None)
    return Target(what, asked, f"{1 / least:.3g}x {where}", 1 / least <= DATA_RATIO)


def _others(rows: Sequence[Row]) -> list[Target]:
    dense = {"library": "orthoslice", "directions": "orthogonal"}
    drawn = at_least(
        f"Hadamard, {HADAMARD}, against dense orthogonal",
        HADAMARD_RATIO,
        ratio(rows, "hadamard", HADAMARD, **dense),
    )
    cold = select(rows, group="cold_start", library="orthoslice")
    seconds = cold[0]["median_s"] if cold else None
    text = "not measured" if seconds is None else f"{seconds:.2f} s"
    met = None if seconds is None else seconds < COLD_START_S
    return [drawn, Target("cold process, warm cache, small problem", f"< {COLD_START_S:g} s", text, met)]
