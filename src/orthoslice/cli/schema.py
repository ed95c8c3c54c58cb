"""The answer as JSON: one record for all commands, without the parts that a command does not have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orthoslice.applications.columns import ColumnChange
from orthoslice.applications.compare.comparison import Comparison
from orthoslice.applications.compare.words import quiet_interval
from orthoslice.applications.pairwise import Pairwise
from orthoslice.estimates.result import Estimate

if TYPE_CHECKING:
    from orthoslice.adapters.drift import Drift
    from orthoslice.cli.references import Reference
    from orthoslice.cli.running import Answer


SCHEMA_VERSION = 1
"""Goes up by 1 when a key goes away or changes its meaning; new keys may come without."""


def record(command: str, answer: Answer, notes: Sequence[str], units: str | None = None) -> dict[str, Any]:
    """What all answers begin with; `units` are those of the tables unless they are said."""
    from orthoslice import __version__

    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "orthoslice": __version__,
        "command": command,
        "options": {name: _plain(value) for name, value in answer.options.items()},
        "inputs": answer.inputs,
        "units": units or answer.scale or "raw",
    }
    if answer.left_out:
        found["left_out"] = [{"name": name, "why": why} for name, why in answer.left_out.items()]
    return found | {"notes": list(notes)} if notes else found


def _plain(value: Any) -> Any:
    """An option as JSON has it: a path or a choice is text."""
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def of_verdict(pvalue: float, level: float) -> dict[str, Any]:
    """Whether tables differ, and by what rule."""
    return {"different": pvalue <= level, "pvalue": pvalue, "level": level}


def of_change(change: ColumnChange, level: float) -> dict[str, Any]:
    """How a column changed, in its own units; pairs are the first and the second table."""
    found: dict[str, Any] = {"name": change.name, "kind": change.kind, "rows": list(change.rows)}
    if change.means is not None and change.spreads is not None:
        found |= {"mean": _pair(change.means), "spread": _pair(change.spreads)}
    if change.shares:
        found["shares"] = [{"value": v, "share": _pair(pair)} for v, pair in change.shares.items()]
    elif change.changed_value is not None and (change.pvalue is None or change.pvalue <= level):
        value, pair = change.changed_value
        found["shares"] = [{"value": finite(value), "share": _pair(pair)}]
    found |= {"missing": _pair(change.missing), "distance": change.distance}
    if change.pvalue is not None:
        found |= {"pvalue": change.pvalue, "changed": change.pvalue <= level}
    return found


def _pair(values: Sequence[float]) -> list[float | None]:
    return [finite(value) for value in values]


def of_comparison(found: Comparison) -> dict[str, Any]:
    """The parts of a comparison that were worked out."""
    parts: dict[str, Any] = {"rows_looked_at": [len(found.sample_x), len(found.sample_y)]}
    if found.x_weights is None and found.y_weights is None:
        parts["equal"] = found.is_equal
    if found.pvalue is not None:
        parts["verdict"] = of_verdict(found.pvalue, found.level)
    if found.test is not None:
        parts["repeated"] = list(found.repeated)
    if found.columns:
        parts["columns"] = [of_change(change, found.level) for change in found.columns]
    if found.sliced is not None:
        parts["sliced"] = of_estimate(found.sliced)
    if found.projected is not None:
        parts["projected"] = of_estimate(found.projected)
    if found.shuffled_moves is not None:
        moves = found.shuffled_moves
        parts["shuffled"] = {"mean": found.shuffled_move, "low": float(moves.min()), "high": float(moves.max())}
    if found.bounds is not None:
        parts["bounds"] = {"lower": found.bounds.lower, "upper": found.bounds.upper, "p": found.bounds.p}
    if found.exact is not None:
        parts["exact"] = {"distance": found.exact, "p": found.p}
    if found.test is not None:
        test = found.test
        parts["test"] = {
            "method": getattr(test, "method", "distance"),
            "statistic": test.statistic,
            "pvalue": test.pvalue,
            "stderr": test.pvalue_stderr,
            "n_permutations": test.n_permutations,
            "p": test.p,
            "seed": test.seed,
        }
        if len(told := getattr(test, "parts", {})) > 1:
            parts["test"]["parts"] = dict(told)
    if found.pair is not None:
        parts["pair"] = {
            "columns": [str(name) for name in found.pair.names],
            "correlation": _pair(found.pair.correlations),
            "pvalue": found.pair.pvalue,
        }
    if found.explanation is not None:
        parts["features"] = [
            {
                "name": str(f.name),
                "score": f.score,
                "share": f.share,
                "mean": _pair((f.x_mean, f.y_mean)),
                "spread": _pair((f.x_spread, f.y_spread)),
                "change": f.change,
            }
            for f in found.explanation.features
        ]
    return parts


def of_reference(path: str, reference: Reference) -> dict[str, Any]:
    """What a reference that was written or read is."""
    detector = reference.detector
    return {
        "reference": {
            "path": path,
            "rows": reference.n_rows,
            "batch_size": detector.batch_size,
            "false_alarm_rate": detector.false_alarm_rate,
            "threshold": detector.threshold,
        }
    }


def of_check(
    path: str,
    reference: Reference,
    drift: Drift,
    columns: Sequence[ColumnChange],
    pvalue: float,
    level: float,
) -> dict[str, Any]:
    """What was found of a batch."""
    return of_reference(path, reference) | {
        "verdict": of_verdict(pvalue, level),
        "drift": {
            "is_drift": drift.is_drift,
            "statistic": drift.statistic,
            "threshold": drift.threshold,
            "pvalue": drift.pvalue,
        },
        "columns": [of_change(change, level / 2) for change in columns],
    }


def of_estimate(est: Estimate) -> dict[str, Any]:
    """An estimate; numbers that do not exist, such as an error bar of one block, are null."""
    low, high = quiet_interval(est)
    numbers = {
        "distance": est.distance,
        "low": low,
        "high": high,
        "value": est.value,
        "stderr": est.stderr,
    }
    found: dict[str, Any] = {k: finite(v) for k, v in numbers.items()}
    found |= {"p": est.p, "n_directions": est.n_directions, "seed": est.seed, "trusted": bool(est.trusted)}
    return found if est.converged is None else found | {"converged": est.converged}


def of_pairwise(found: Pairwise, order: list[int]) -> dict[str, Any]:
    """A matrix of distances; `order` puts similar ones side by side."""
    return {
        "labels": [str(label) for label in found.labels],
        "distance": found.distance.tolist(),
        "distance_stderr": [[finite(v) for v in row] for row in found.distance_stderr.tolist()],
        "order": order,
        "p": found.p,
        "n_directions": found.n_directions,
        "seed": found.seed,
    }


def cluster_order(distance: Any) -> list[int]:
    """An order in which what is near stands side by side: leaves of a tree by average linkage."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(distance) == 2:
        return [0, 1]
    tree = linkage(squareform(distance, checks=False), method="average", optimal_ordering=True)
    return [int(k) for k in leaves_list(tree)]


def finite(value: Any) -> float | None:
    """A finite number, or None: JSON has neither NaN nor infinity."""
    number = float(value)
    return number if math.isfinite(number) else None
