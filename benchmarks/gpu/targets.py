"""What the GPU figures are asked to show: ratios in one run, of our loss against plain eager torch and POT."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.data import WITH_WEIGHTS
from benchmarks.libraries import LABELS
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
WEIGHTED_RATIO = 2.0
PROJECTED, PROJECTED_S = "n=16384, d=128, N=512", 6e-3
LONGEST, LONGEST_S = "n=1000000, d=3, N=128", 5.5e-3
BAND, BAND_RATIO = "n=20011, d=16, N=64", 2
HADAMARD = {
    "n=256, d=128, N=128": 1.0,
    "n=4096, d=128, N=128": 1.0,
    "n=1024, d=2048, N=2048": 0.5,
    "n=1024, d=4096, N=4096": 0.5,
}
"""How long Hadamard blocks may take, of the time of orthogonal ones; of those of 128 dimensions forward too."""
JAX_RATIO, JAX_LARGE_RATIO, JAX_LARGE = 1, 2, 16384
"""Against plain jnp; the second from so many points on."""
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
        *_weighted(rows),
        *_projected(rows),
        *_band(rows),
        *_hadamard(rows),
        *_jax(rows),
        *_other_data(rows),
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


def _weighted(rows: Sequence[Row]) -> list[Target]:
    """Times with weights, of those without."""
    found = []
    for group in ("weighted", "weighted_backward"):
        for size in SLICED:
            problem = f"{size}, Gaussian{WITH_WEIGHTS}"
            got = ratio(rows, group, problem, library="orthoslice", data="Gaussian")
            times = None if not got else 1 / got
            what = f"{group}, {size}, against ours without weights"
            found.append(_at_most(what, WEIGHTED_RATIO, times))
    return found


def _projected(rows: Sequence[Row]) -> list[Target]:
    """Two times in milliseconds."""
    found = []
    for group, problem, asked in (("projected", PROJECTED, PROJECTED_S), ("forward", LONGEST, LONGEST_S)):
        mine = _mine(rows, group, problem)
        got = mine[0]["median_s"] if mine else None
        text = "not measured" if got is None else f"{1e3 * got:.3g} ms"
        met = None if got is None else got <= asked
        found.append(Target(f"{group}, {problem}", f"<= {1e3 * asked:g} ms", text, met))
    return found


def _band(rows: Sequence[Row]) -> list[Target]:
    return [
        at_least(f"{group}, {BAND}, against plain torch", BAND_RATIO, torch_ratio(rows, group, BAND))
        for group in ("band", "band_backward")
    ]


def _hadamard(rows: Sequence[Row]) -> list[Target]:
    found = []
    for problem, asked in HADAMARD.items():
        for group in ("hadamard", "hadamard_backward") if asked == 1 else ("hadamard_backward",):
            times = {row["directions"]: row["median_s"] for row in _mine(rows, group, problem)}
            blocks, orthogonal = times.get("hadamard"), times.get("orthogonal")
            got = None if blocks is None or orthogonal is None else blocks / orthogonal
            found.append(_at_most(f"{group}, {problem}, against orthogonal directions", asked, got))
    return found


def _jax(rows: Sequence[Row]) -> list[Target]:
    found = []
    for group in ("jax", "jax_backward"):
        for problem in SLICED:
            points = int(problem.removeprefix("n=").partition(",")[0])
            asked = JAX_LARGE_RATIO if points >= JAX_LARGE else JAX_RATIO
            what = f"{group}, {problem}, against plain jnp"
            found.append(at_least(what, asked, ratio(rows, group, problem, library="jnp")))
    return found


def _other_data(rows: Sequence[Row]) -> list[Target]:
    """Weights and JAX on any kind of data."""
    found = []
    for name, peer in (("weighted", "torch"), ("jax", "jnp")):
        for ending, more in (("", ""), ("_backward", ", forward and backward")):
            where = f"on any kind of data, {name}{more}"
            found.append(_never_slower(rows, f"{name}_data{ending}", where, peer))
        found.append(_never_less_accurate(rows, f"{name}_data", peer))
    return found


def _never_slower(rows: Sequence[Row], group: str, where: str, peer: str = "torch") -> Target:
    """The smallest ratio of all problems of a group."""
    what = f"never slower than {LABELS[peer]} {where}"
    least, where = least_ratio(rows, group, library=peer, form="eager" if peer == "torch" else "jit")
    if least is None:
        return Target(what, ">= 1x", where, None)
    return Target(what, ">= 1x", f"{least:.3g}x {where}", least >= 1)


def _errors(rows: Sequence[Row], group: str, peer: str = "torch") -> dict[str, tuple[float, float]]:
    """Of every problem with both answers: our error, and that of plain torch or jnp."""
    found = {}
    for problem in dict.fromkeys(row["problem"] for row in select(rows, group=group)):
        peers = select(rows, group=group, problem=problem, library=peer)
        errors = [row["error"] for row in (*_mine(rows, group, problem), *peers)]
        if len(errors) == 2 and None not in errors:
            found[problem] = (errors[0], errors[1])
    return found


def _never_less_accurate(rows: Sequence[Row], group: str = "data", peer: str = "torch") -> Target:
    """Below one unit in the last place of float32, which of two answers is closer is luck."""
    what = f"values on any kind of data{'' if group == 'data' else f', {group}'}, error against float64"
    asked = f"<= {LABELS[peer]}'s or {LAST_PLACE:.2g}"
    errors = _errors(rows, group, peer)
    if not errors:
        return Target(what, asked, "not measured", None)
    larger = {problem: mine for problem, (mine, theirs) in errors.items() if mine > theirs}
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


def _at_most(what: str, asked: float, got: float | None) -> Target:
    return _target(what, f"<= {asked:g}x", got, lambda got: got <= asked)


def _target(what: str, asked: str, got: float | None, is_met: Callable[[float], bool]) -> Target:
    text = "not measured" if got is None else f"{got:.3g}x"
    return Target(what, asked, text, None if got is None else is_met(got))
