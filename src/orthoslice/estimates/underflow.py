"""Powers so high that the costs of different clouds underflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from orthoslice.backend.arrays import DType, HostArray
from orthoslice.clouds.canonical import canonical_order
from orthoslice.clouds.cloud import Cloud


def check_underflow(p: float, dtype: DType, scores: HostArray, differ: Callable[[], bool]) -> None:
    """Raise where p is so high that costs of different points underflow in their floating type."""
    info = np.finfo(dtype)
    tiny, eps = float(info.smallest_normal), float(info.eps)
    if not power_may_underflow(p, info) or float(scores.mean(axis=0).min()) > tiny / eps or not differ():
        return
    raise OverflowError(
        f"`p` is too high for these clouds: |x - y|^{p:g} underflows in {dtype}. "
        "Pass float64 if that is not what it is, or a smaller `p`."
    )


def have_other_points(x: Cloud, y: Cloud) -> bool:
    """Whether the points of single clouds differ, in whatever order they are."""
    if x.n != y.n:
        return True
    orders = [canonical_order(c.points, None) for c in (x, y)]
    columns: Iterator[list[Any]] = (
        [c.points[order, k] for c, order in zip((x, y), orders, strict=True)] for k in range(x.dim)
    )
    return not all(np.array_equal(*column) for column in columns)


def power_may_underflow(p: float, info: Any) -> bool:
    """Whether the p-th power of a relative rounding error leaves the range of a floating type."""
    return bool(p * math.log(float(info.eps)) <= math.log(float(info.smallest_normal)))
