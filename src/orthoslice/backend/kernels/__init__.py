"""Compiled loops: the only place that imports numba and CUDA. Each stands beside a plain reference."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

# Crossovers, measured on Zen 5: longer rows are sorted faster by radix than as columns, alone or with an index.
LONGEST_COLUMN = 8192
LONGEST_INDEXED = 2048

# Longer rows are sorted faster by radix than by NumPy. Measured on Zen 4.
LONGEST_SIMD = 512

# Longer rows fall out of all caches, and are put in rough order piece by piece before they are sorted.
LONGEST_CACHED = 1 << 21

LABELLINGS = 64
"""Labellings of a pooled sample that are drawn and priced together: each has its bit of a word."""


@functools.cache
def numba_refusal() -> str | None:
    """Why compiled kernels cannot be used in this process, or None if they can."""
    try:
        importlib.import_module("numba")
    except ImportError as error:
        # Raised too where the installed numba is too old for this Python or this NumPy.
        return f"numba cannot be imported ({error})"
    return None


def rows_refusal(*arrays: Any) -> str | None:
    """Why kernels for rows cannot take these arrays, or None if they can."""
    for array in arrays:
        if not isinstance(array, np.ndarray):
            return "it takes NumPy arrays"
        if array.shape[:-1] != arrays[0].shape[:-1]:
            return "it takes rows that need no broadcasting"
    return None
