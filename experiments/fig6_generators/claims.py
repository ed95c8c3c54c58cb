"""What the paper says of figure 6, judged with intervals over seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common import Claim, student
from experiments.fig6_generators.measures import TARGET
from experiments.mixture import N_CENTRAL, N_PERIMETER

SETTLED = 0.01
"""How much W_2 may still change over the second half of a training that has converged."""

Values = Callable[[str, str], NDArray[np.float64]]


def judge(rows: list[dict[str, Any]]) -> list[Claim]:
    """That trainings have converged, and for every p what the paper says of SW and PW.

    Seeds are compared one by one, since runs of one seed share weights, noise and batches. Intervals hold with
    95% each.
    """
    measured = [row for row in rows if row["kind"] == "measured"]
    claims = []
    for p in sorted({row["p"] for row in measured if row["p"] is not None}):
        claims += [
            _converged(measured, p),
            *(
                sentence(p, _at_the_end(measured, p))
                for sentence in (_spread_out, _collapsed, _in_the_middle, _nearer)
            ),
        ]
    return claims


def values_of(
    measured: list[dict[str, Any]], method: str, p: int | None, steps: int | None, column: str
) -> NDArray[np.float64]:
    """A column of all seeds."""
    return np.array(
        [row[column] for row in measured if (row["method"], row["p"], row["steps"]) == (method, p, steps)]
    )


def steps_of(measured: list[dict[str, Any]]) -> list[int]:
    """After how many steps there are rows."""
    return sorted({row["steps"] for row in measured if row["steps"] is not None})


def _at_the_end(measured: list[dict[str, Any]], p: int) -> Values:
    last = steps_of(measured)[-1]

    def values(method: str, column: str) -> NDArray[np.float64]:
        if method == TARGET:
            return values_of(measured, TARGET, None, None, column)
        return values_of(measured, method, p, last, column)

    return values


def _converged(measured: list[dict[str, Any]], p: int) -> Claim:
    *_, last = steps = steps_of(measured)
    half = max(step for step in steps if step <= last // 2)
    changes = {}
    for method in ("sw", "pw"):
        before, after = (values_of(measured, method, p, step, "w2") for step in (half, last))
        changes[method] = student(after - before)
    return Claim(
        f"p = {p}: both have converged: W_2 changes by less than {SETTLED:g} from step {half:,} to {last:,}.",
        all(abs(change) < SETTLED for change, _, _ in changes.values()),
        "; ".join(f"{name} {_interval(change)}" for name, change in changes.items()),
    )


def _spread_out(p: int, values: Values) -> Claim:
    covered = values("sw", "perimeter_modes")
    return Claim(
        f"p = {p}: SW captures the modes on the perimeter, all {N_PERIMETER} of them.",
        bool((covered == N_PERIMETER).all()),
        f"{_range(covered)} in every seed; and {_range(values('sw', 'central_modes'))} of the {N_CENTRAL} in "
        "the centre",
    )


def _collapsed(p: int, values: Values) -> Claim:
    found = student(values("pw", "central_share") - values("sw", "central_share"))
    shares = ", ".join(f"{name} {values(name, 'central_share').mean():.3f}" for name in ("sw", "pw", TARGET))
    return Claim(
        f"p = {p}: PW collapses to the centre: more of its samples lie there than of SW's.",
        found[1] > 0,
        f"shares: {shares} (a quarter of the law); pw - sw: {_interval(found)}",
    )


def _in_the_middle(p: int, values: Values) -> Claim:
    found = student(values("sw", "perimeter_modes") - values("pw", "perimeter_modes"))
    return Claim(
        f"p = {p}: PW captures all modes in the middle, and fewer on the perimeter than SW.",
        found[1] > 0 and bool((values("pw", "central_modes") == N_CENTRAL).all()),
        f"PW: {_range(values('pw', 'central_modes'))} of {N_CENTRAL} in the middle, "
        f"{_range(values('pw', 'perimeter_modes'))} of {N_PERIMETER} on the perimeter; fewer than SW by "
        f"{_interval(found)}",
    )


def _nearer(p: int, values: Values) -> Claim:
    found = student(values("pw", "w2") - values("sw", "w2"))
    means = ", ".join(f"{name} {values(name, 'w2').mean():.4f}" for name in ("sw", "pw", TARGET))
    return Claim(
        f"p = {p}, beyond the paper: SW ends nearer to the mixture than PW, in exact W_2.",
        found[1] > 0,
        f"{means} (two samples of the mixture); pw - sw: {_interval(found)}",
    )


def _range(values: NDArray[np.float64]) -> str:
    low, high = values.min(), values.max()
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def _interval(found: tuple[float, float, float]) -> str:
    value, low, high = found
    return f"{value:.3g} ({low:.3g} to {high:.3g})"
