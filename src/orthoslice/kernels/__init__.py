"""Compiled loops: the only place that imports numba. Each stands beside a plain reference."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

# Crossovers, measured on Zen 4 and Python 3.11: rows that NumPy sorts within vector registers, then rows for
# which a sorting network beats the radix sort.
LONGEST_SIMD = 512
LONGEST_COLUMN = 2500


@functools.cache
def numba_refusal() -> str | None:
    """Why compiled kernels cannot be used in this process, or None if they can."""
    try:
        importlib.import_module("numba")
    except ImportError as error:
        # Also where numba is there, but too old for this Python or this NumPy.
        return f"numba cannot be imported ({error})"
    return None


def rows_refusal(*arrays: Any) -> str | None:
    """Why kernels for rows of NumPy arrays cannot take these, or None if they can."""
    if not all(isinstance(a, np.ndarray) for a in arrays):
        return "it takes NumPy arrays"
    if len({a.shape[:-1] for a in arrays}) > 1:
        return "it takes rows that need no broadcasting"
    return numba_refusal()
