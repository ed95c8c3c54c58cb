"""Means over directions that are uniform on the sphere."""

from __future__ import annotations

import math


def mean_power(dim: int, p: float) -> float:
    """E|theta_1|^p for theta uniform on the sphere of R^dim."""
    log = math.lgamma((p + 1) / 2) + math.lgamma(dim / 2) - math.lgamma((dim + p) / 2)
    return math.exp(log) / math.sqrt(math.pi)


def mean_shortening(dim: int, ambient_dim: int, p: float) -> float:
    """E r^p for r the length of the first `dim` coordinates of a uniform unit vector of R^ambient_dim."""
    return 1.0 if dim == ambient_dim else mean_power(ambient_dim, p) / mean_power(dim, p)
