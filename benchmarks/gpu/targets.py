"""What the GPU figures are asked to show: ratios in one run, of our loss against plain eager torch and POT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.runner import Row
from benchmarks.targets import Target, at_least, least_ratio, ratio, select


class Asked(NamedTuple):
    """How many times longer each must take, at least."""

    forward_torch: float
    backward_torch: float
    forward_pot: float


SLICED = {
    "n=256, d=128, N=128": Asked(3, 4, 12),
    "n=1024, d=128, N=1024": Asked(2, 4, 14),
    "n=4096, d=128, N=1024": Asked(1.5, 2, 20),
    "n=16384, d=128, N=512": Asked(2, 2, 25),
    "n=100000, d=64, N=256": Asked(2.5, 2, 50),
    "n=1000000, d=3, N=128": Asked(3, 2.5, 90),
}
DRAWING_RATIO = 1.5
MEMORY_RATIO = 0.5


def evaluate(rows: Sequence[Row]) -> list[Target]:
    """All targets, with those that these rows say nothing about marked so."""
    return [
        *_sliced(rows),
        *_drawing(rows),
        *_memory(rows),
        _never_slower(rows, "data", "on any kind of data"),
        _never_slower(rows, "data_backward", "on any kind of data, forward and backward"),
        _never_slower(rows, "sizes", "at any size"),
    ]


def torch_ratio(rows: Sequence[Row], group: str, problem: str) -> float | None:
    """How many times longer plain eager torch takes."""
    return ratio(rows, group, problem, library="torch", form="eager")


def _sliced(rows: Sequence[Row]) -> list[Target]:
    found = []
    for problem, asked in SLICED.items():
        forward, backward = (torch_ratio(rows, group, problem) for group in ("forward", "backward"))
        pot = ratio(rows, "forward", problem, library="pot")
        found += [
            at_least(f"forward, {problem}, against plain torch", asked.forward_torch, forward),
            at_least(f"forward and backward, {problem}, against plain torch", asked.backward_torch, backward),
            at_least(f"forward, {problem}, against POT", asked.forward_pot, pot),
        ]
    return found


def _drawing(rows: Sequence[Row]) -> list[Target]:
    found = []
    for problem in SLICED:
        mine = {row["directions"]: row["median_s"] for row in _mine(rows, "drawing", problem)}
        iid, orthogonal = mine.get("iid"), mine.get("orthogonal")
        got = None if iid is None or orthogonal is None else orthogonal / iid
        what = f"drawing, {problem}, orthogonal against independent directions"
        found.append(_target(what, f"<= {DRAWING_RATIO:g}x", got, lambda got: got <= DRAWING_RATIO))
    return found


def _memory(rows: Sequence[Row]) -> list[Target]:
    found = []
    for problem in SLICED:
        mine = [row["peak_bytes"] for row in _mine(rows, "memory", problem)]
        theirs = [row["peak_bytes"] for row in select(rows, group="memory", problem=problem, library="torch")]
        got = mine[0] / theirs[0] if mine and theirs and mine[0] is not None and theirs[0] else None
        what = f"memory of forward and backward, {problem}, against plain torch autograd"
        found.append(_target(what, f"< {MEMORY_RATIO:g}x", got, lambda got: got < MEMORY_RATIO))
    return found


def _never_slower(rows: Sequence[Row], group: str, where: str) -> Target:
    """The smallest ratio of all problems of a group."""
    what = f"never slower than plain torch {where}"
    least, where = least_ratio(rows, group, library="torch", form="eager")
    if least is None:
        return Target(what, ">= 1x", where, None)
    return Target(what, ">= 1x", f"{least:.3g}x {where}", least >= 1)


def _mine(rows: Sequence[Row], group: str, problem: str) -> list[Row]:
    return select(rows, group=group, problem=problem, library="orthoslice")


def _target(what: str, asked: str, got: float | None, is_met: Callable[[float], bool]) -> Target:
    text = "not measured" if got is None else f"{got:.3g}x"
    return Target(what, asked, text, None if got is None else is_met(got))
