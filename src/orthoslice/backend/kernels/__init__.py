"""Compiled loops: the only place that imports numba and triton. Each stands beside a plain reference."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any

import numpy as np

# Crossovers, measured on Zen 4 and Python 3.11: rows that NumPy sorts within vector registers, then rows for
# which a sorting network beats the radix sort.
LONGEST_SIMD = 512
LONGEST_COLUMN = 2500

# Longer rows fall out of all caches, and are put in rough order piece by piece before they are sorted.
LONGEST_CACHED = 1 << 21

LABELLINGS = 64
"""Labellings of a pooled sample that are drawn and priced together: each has its bit of a word."""

# What one program of a GPU holds in its registers.
LONGEST_TRANSFORM = 4096


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
    """Why kernels for rows of NumPy arrays cannot take these, or None if they can."""
    for array in arrays:
        if not isinstance(array, np.ndarray):
            return "it takes NumPy arrays"
        if array.shape[:-1] != arrays[0].shape[:-1]:
            return "it takes rows that need no broadcasting"
    return numba_refusal()


@functools.cache
def _triton_missing() -> str | None:
    try:
        importlib.import_module("triton")
    except ImportError as error:
        return f"triton cannot be imported ({error}); the extra `gpu` brings it"
    return None


def triton_refusal(*arrays: Any, dtypes: tuple[str, ...] = ("float32",)) -> str | None:
    """Why Triton kernels cannot take these arrays, or None if they can.

    With `TRITON_INTERPRET=1`, set before triton is imported, they take tensors in host memory too.
    """
    torch = sys.modules.get("torch")
    if torch is None or not all(isinstance(a, torch.Tensor) for a in arrays):
        return "it takes torch tensors"
    for array in arrays:
        if not array.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
            return "it takes tensors in the memory of a CUDA device"
        if array.requires_grad and torch.is_grad_enabled():
            return "it leaves no trace on a gradient tape"
        if str(array.dtype).removeprefix("torch.") not in dtypes:
            return f"it takes {' and '.join(dtypes)}, not {array.dtype}"
    return _triton_missing()
