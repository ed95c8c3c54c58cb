"""The answer as JSON: one record for all commands, without the parts that a command does not have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from orthoslice.applications.compare.compare import Comparison
from orthoslice.applications.compare.words import quiet_interval
from orthoslice.applications.pairwise import Pairwise
from orthoslice.estimates.result import Estimate


def record(command: str, inputs: list[dict[str, Any]], notes: Sequence[str]) -> dict[str, Any]:
    """What all answers begin with."""
    found: dict[str, Any] = {"command": command, "inputs": inputs}
    return found | {"notes": list(notes)} if notes else found


def of_comparison(found: Comparison) -> dict[str, Any]:
    """The parts of a comparison that were worked out."""
    parts: dict[str, Any] = {}
    if found.sliced is not None:
        parts["sliced"] = of_estimate(found.sliced)
    if found.projected is not None:
        parts["projected"] = of_estimate(found.projected)
    if found.bounds is not None:
        parts["bounds"] = {"lower": found.bounds.lower, "upper": found.bounds.upper, "p": found.bounds.p}
    if found.test is not None:
        test = found.test
        parts["test"] = {
            "statistic": test.statistic,
            "pvalue": test.pvalue,
            "n_permutations": test.n_permutations,
            "p": test.p,
            "seed": test.seed,
        }
    if found.explanation is not None:
        parts["features"] = [
            {"name": str(f.name), "score": f.score, "share": f.share, "change": f.change}
            for f in found.explanation.features
        ]
    return parts


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
