"""What the paper says of figure 4, judged with intervals over seeds."""

from __future__ import annotations

from typing import Any

from experiments.common import Claim
from experiments.fig4_trust_region.curves import Curve, make_curves, welch


def judge(rows: list[dict[str, Any]]) -> list[Claim]:
    """That all runs are whole; and for the paper's tasks what it says of them.

    Differences between methods are of means over seeds with Welch's 95% intervals. Two or three are taken
    together, each at a level that leaves 95% for all of them.
    """
    curves = make_curves(rows)
    claims = [_wholeness(rows)]
    for task, sentences in (("Hopper-v5", [_no_difference]), ("HalfCheetah-v5", [_higher, _steadier])):
        paper = {curve.method: curve for curve in curves if curve.task == task and curve.is_in_paper}
        if paper.keys() >= {"none", "sw", "pw"}:
            claims += [sentence(paper) for sentence in sentences]
    return claims


def _wholeness(rows: list[dict[str, Any]]) -> Claim:
    reached: dict[tuple[Any, ...], int] = {}
    for row in rows:
        reached[row["task"], row["method"], row["strength"], row["seed"]] = row["steps"]
    seeds: dict[tuple[Any, ...], set[int]] = {}
    for *key, seed in reached:
        seeds.setdefault(tuple(key), set()).add(seed)
    lengths: dict[tuple[Any, ...], set[int]] = {}
    for (*key, _), steps in reached.items():
        lengths.setdefault(tuple(key), set()).add(steps)
    is_whole = len(set(map(frozenset, seeds.values()))) == 1 and all(
        len(steps) == 1 for steps in lengths.values()
    )
    ends = sorted(set().union(*lengths.values()))
    return Claim(
        "All methods have the same seeds, and all seeds of a method went equally far.",
        is_whole,
        f"{len(reached)} runs of {len(seeds)} kinds; they end at {', '.join(f'{end:,}' for end in ends)} steps",
    )


def _no_difference(paper: dict[str, Curve]) -> Claim:
    pairs = (("sw", "none"), ("pw", "none"), ("pw", "sw"))
    found = [welch(paper[a].final, paper[b].final, 1 - 0.05 / 3) for a, b in pairs]
    return Claim(
        "Hopper: no significant difference between the three methods in final return.",
        all(low <= 0 <= high for _, low, high in found),
        _differences(pairs, found),
    )


def _higher(paper: dict[str, Curve]) -> Claim:
    pairs = (("pw", "none"), ("pw", "sw"))
    found = [welch(paper[a].final, paper[b].final, 1 - 0.05 / 2) for a, b in pairs]
    return Claim(
        "HalfCheetah: PW ends with a higher return than SW and than no trust region.",
        all(low > 0 for _, low, _ in found),
        _differences(pairs, found),
    )


def _steadier(paper: dict[str, Curve]) -> Claim:
    pairs = (("pw", "none"), ("pw", "sw"))
    found = [welch(paper[a].drawdown, paper[b].drawdown, 1 - 0.05 / 2) for a, b in pairs]
    return Claim(
        "HalfCheetah: PW is more stable than both: its curves lie less below the best they have reached.",
        all(high < 0 for _, _, high in found),
        _differences(pairs, found),
    )


def _differences(pairs: tuple[tuple[str, str], ...], found: list[tuple[float, float, float]]) -> str:
    parts = zip(pairs, found, strict=True)
    return "; ".join(
        f"{a} - {b}: {value:.1f} ({low:.1f} to {high:.1f})" for (a, b), (value, low, high) in parts
    )
