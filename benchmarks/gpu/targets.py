"""What the GPU figures are asked to show: ratios in one run, of our loss against plain eager torch and POT."""

from __future__ import annotations

import math
import statistics
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
LAST_PLACE = 2.0**-23
"""Of float32, relative."""


def evaluate(rows: Sequence[Row]) -> list[Target]:
    """All targets, with those that these rows say nothing about marked so."""
    return [
        *_sliced(rows),
        *_drawing(rows),
        *_memory(rows),
        _never_slower(rows, "data", "on any kind of data"),
        _never_slower(rows, "data_backward", "on any kind of data, forward and backward"),
        _never_less_accurate(rows),
        _gradients_as_accurate(rows),
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


def _errors(rows: Sequence[Row], group: str) -> dict[str, tuple[float, float]]:
    """Of every problem with both answers: our error, and that of plain torch."""
    found = {}
    for problem in dict.fromkeys(row["problem"] for row in select(rows, group=group)):
        peers = select(rows, group=group, problem=problem, library="torch", form="eager")
        errors = [row["error"] for row in (*_mine(rows, group, problem), *peers)]
        if len(errors) == 2 and None not in errors:
            found[problem] = (errors[0], errors[1])
    return found


def _never_less_accurate(rows: Sequence[Row]) -> Target:
    """Below one unit in the last place of float32, which of two answers is closer is luck."""
    what, asked = "values on any kind of data, error against float64", f"<= plain torch's or {LAST_PLACE:.2g}"
    errors = _errors(rows, "data")
    if not errors:
        return Target(what, asked, "not measured", None)
    larger = {problem: mine for problem, (mine, torch) in errors.items() if mine > torch}
    text = f"larger at {len(larger)} of {len(errors)}"
    if larger:
        worst = max(larger, key=lambda problem: larger[problem])
        text += f", up to {larger[worst]:.2g} at {worst}"
    return Target(what, asked, text, all(mine <= LAST_PLACE for mine in larger.values()))


def _gradients_as_accurate(rows: Sequence[Row]) -> Target:
    """In the median, since float32 makes points change places here and there.

    A gradient is then off by much more than rounding; to whom that happens on a problem is luck.
    """
    what, asked = "gradients on any kind of data, error against plain torch's", "<= 1x in the median"
    ratios = []
    for mine, torch in _errors(rows, "data_backward").values():
        ratios.append(mine / torch if torch else math.inf if mine else 1.0)
    if not ratios:
        return Target(what, asked, "not measured", None)
    got, larger = statistics.median(ratios), sum(ratio > 1 for ratio in ratios)
    return Target(what, asked, f"{got:.3g}x; larger at {larger} of {len(ratios)}", got <= 1)


def _mine(rows: Sequence[Row], group: str, problem: str) -> list[Row]:
    return select(rows, group=group, problem=problem, library="orthoslice")


def _target(what: str, asked: str, got: float | None, is_met: Callable[[float], bool]) -> Target:
    text = "not measured" if got is None else f"{got:.3g}x"
    return Target(what, asked, text, None if got is None else is_met(got))
