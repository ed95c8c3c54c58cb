"""Directions drawn on an NVIDIA GPU in one or two launches, without a word to the host.

The references are the samplers themselves: `IID.draw` and `Orthogonal.draw` of folded streams.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from orthoslice.kernels.cuda import Kernel, Program

_PROGRAM = Program("directions")
_DRAWERS = 128
_THREADS = 512

_DRAW_NORMALS = Kernel("draw_normals", "PPPiiiiiiP")
_DRAW_UNIT_ROWS = Kernel("draw_unit_rows", "PPPiiiiP")
_ORTHONORMALISE = Kernel("orthonormalise", "PiiiP")


def large_block_refusal(device: int, rows: int, dim: int) -> str | None:
    """Why a block of `rows` orthonormal rows cannot be made on chip, or None if it can."""
    fits = _orthonormalise_bytes(rows, dim) <= _most_shared_bytes(device)
    return None if fits else "it takes blocks that fit on a chip"


@functools.cache
def _most_shared_bytes(device: int) -> int:
    return int(sys.modules["torch"].cuda.get_device_properties(device).shared_memory_per_block_optin)


def _orthonormalise_bytes(rows: int, dim: int) -> int:
    """Shared memory that a block of `rows` orthonormal rows takes while it is made."""
    padded, columns = -(-rows // 16) * 16, -(-dim // 8) * 8
    width = -(-columns // 16) * 16 + 4
    parts = _THREADS // 128
    return 8 * (padded * width + padded * 20 + (parts + 1) * 16 * 20 + 32)


def unit_rows(stream: Any, step: Any, steps: int, first: int, count: int, dim: int, purpose: int) -> Any:
    """Rows `first .. first + count` of independent directions, float32 `(count, dim)`."""
    out = _empty(stream[0], (count, dim), "float32")
    key = (*stream, step, steps, first, purpose)
    _DRAW_UNIT_ROWS.launch(_PROGRAM, out, count, _DRAWERS, 8 * (dim + 1 + _DRAWERS // 32), *key, dim, out)
    return out


def orthonormal_rows(
    stream: Any, step: Any, steps: int, first: int, rows: int, total: int, dim: int, purpose: int
) -> Any:
    """The first `total` rows of orthonormal blocks of `rows` rows from block `first` on, float32."""
    blocks = -(-total // rows)
    gaussian = _empty(stream[0], (blocks, rows, dim), "float64")
    pairs = blocks * rows * ((dim + 1) // 2)
    key = (*stream, step, steps, first, purpose)
    _DRAW_NORMALS.launch(
        _PROGRAM, gaussian, -(-pairs // _DRAWERS), _DRAWERS, 0, *key, blocks, rows, dim, gaussian
    )
    out = _empty(gaussian, (total, dim), "float32")
    room = _orthonormalise_bytes(rows, dim)
    _ORTHONORMALISE.launch(_PROGRAM, out, blocks, _THREADS, room, gaussian, rows, dim, total, out)
    return out


def _empty(like: Any, shape: tuple[int, ...], kind: str) -> Any:
    return like.new_empty(shape, dtype=getattr(sys.modules["torch"], kind))
