"""How far rows have to move: exactly where that takes seconds, and by chance alone."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from orthoslice.applications.match.match import match
from orthoslice.backend.arrays import HostArray
from orthoslice.check.options import check_memory
from orthoslice.clouds.cloud import Cloud
from orthoslice.exact.transport import wasserstein

# Pairs of rows up to which W_p takes about a second, and the bytes that each takes.
_EXACT_PAIRS, _PAIR_BYTES = 1 << 20, 24

# Rows are shuffled _MOST_SHUFFLES times; of many rows less often, so that all shuffles together have about
# _SHUFFLED_ROWS rows or, where W_p is exact, _SHUFFLED_PAIRS pairs of them.
_MOST_SHUFFLES, _FEWEST_SHUFFLES, _SHUFFLED_ROWS, _SHUFFLED_PAIRS = 20, 5, 20_000, 1 << 22


def takes_seconds(x: Cloud, y: Cloud, memory: int | str) -> bool:
    """Whether the exact W_p of two clouds takes no more than seconds.

    Without POT, clouds with weights or of unequal size would go to a solver that takes minutes.
    """
    if x.dim == 1:
        return True
    n_pairs = x.n * y.n
    if n_pairs > min(_EXACT_PAIRS, check_memory(memory) // _PAIR_BYTES):
        return False
    is_assignment = x.n == y.n and x.weights is None and y.weights is None
    return is_assignment or importlib.util.find_spec("ot") is not None


def exact_move(x: Cloud, y: Cloud, p: float) -> float:
    """W_p of two clouds."""
    return wasserstein(x.points, y.points, p, x_weights=x.weights, y_weights=y.weights).distance


def shuffled_moves(x: Cloud, y: Cloud, p: float, seed: int, *, exact: bool, **options: Any) -> HostArray:
    """W_p of two clouds each time that their rows were shuffled between them, or else what `match` finds."""
    draw, pooled = np.random.default_rng(seed), np.concatenate([x.points, y.points])
    most = min(_MOST_SHUFFLES, _SHUFFLED_ROWS // len(pooled))
    if exact and x.dim > 1:
        most = min(most, _SHUFFLED_PAIRS // (x.n * y.n))
    moves = []
    for _ in range(max(_FEWEST_SHUFFLES, most)):
        rows = draw.permutation(pooled)
        first, second = rows[: x.n], rows[x.n :]
        if exact:
            moves.append(exact_move(Cloud(first), Cloud(second), p))
        else:
            moves.append(float(match(first, second, p, **options).cost(p)) ** (1 / p))
    return np.array(moves)
