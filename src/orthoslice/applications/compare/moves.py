"""How far rows have to move: certain bounds that are mostly one number, and the same by chance alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.applications.bounds import Bounds, wasserstein_bounds
from orthoslice.backend.arrays import HostArray
from orthoslice.clouds.cloud import Cloud

# W_p of up to this many pairs of rows takes a tenth of a second.
_EXACT_PAIRS = 1 << 20

# Of more rows there are bounds: how near each other, relatively, and the seconds after which they are those
# found by then. Shuffled rows are at about the same distance each time, so that more digits tell nothing.
_BOUNDS = {"rtol": 1e-3, "time_limit": 10.0}
_BOUNDS_BY_CHANCE = {"rtol": 0.01, "time_limit": 2.0}

# Rows are shuffled _MOST_SHUFFLES times; of many rows less often, so that all shuffles together have about
# _SHUFFLED_PAIRS pairs of rows.
_MOST_SHUFFLES, _FEWEST_SHUFFLES, _SHUFFLED_PAIRS = 20, 5, 1 << 23


def move(x: Cloud, y: Cloud, p: float, **options: Any) -> Bounds:
    """W_p of two clouds: exactly where that takes no time worth speaking of, else bounds near each other."""
    return wasserstein_bounds(x, y, p, **_limits(x, y, _BOUNDS), **options)


def shuffled_moves(x: Cloud, y: Cloud, p: float, seed: int, **options: Any) -> HostArray:
    """W_p of two clouds each time that their rows were shuffled between them: exactly or within 1%."""
    draw, pooled = np.random.default_rng(seed), np.concatenate([x.points, y.points])
    options |= _limits(x, y, _BOUNDS_BY_CHANCE)
    most = _SHUFFLED_PAIRS // (x.n * y.n)
    moves = []
    for _ in range(min(max(_FEWEST_SHUFFLES, most), _MOST_SHUFFLES)):
        rows = draw.permutation(pooled)
        shuffled = Cloud(rows[: x.n]), Cloud(rows[x.n :])
        moves.append(wasserstein_bounds(shuffled[0], shuffled[1], p, **options).upper)
    return np.array(moves)


def _limits(x: Cloud, y: Cloud, beyond: dict[str, Any]) -> dict[str, Any]:
    return {"rtol": 0.0} if x.dim == 1 or x.n * y.n <= _EXACT_PAIRS else beyond
