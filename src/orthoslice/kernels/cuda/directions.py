"""Directions drawn on an NVIDIA GPU in one or two launches, without a word to the host.

The references are the samplers themselves: `IID.draw` and `Orthogonal.draw` of folded streams.
"""

from __future__ import annotations

from typing import Any

from orthoslice.kernels.cuda import Kernel, Program, bind, empty, most_shared_bytes

_DRAWERS, _THREADS, _PANEL, _SMALL = 128, 512, 16, 20
_PROGRAM = Program(
    "directions", (("DRAWERS", _DRAWERS), ("THREADS", _THREADS), ("PANEL", _PANEL), ("SMALL", _SMALL))
)

_DRAW_NORMALS = Kernel("draw_normals", 4, "iiiiii")
_DRAW_UNIT_ROWS = Kernel("draw_unit_rows", 4, "iiii")
_ORTHONORMALISE = Kernel("orthonormalise", 2, "iii")


def room_refusal(device: int, rows: int | None, dim: int) -> str | None:
    """Why `rows` orthonormal rows, or one unit row where that is None, do not fit on a chip, or None if so."""
    needed = _unit_row_bytes(dim) if rows is None else _orthonormalise_bytes(rows, dim)
    return None if needed <= most_shared_bytes(device) else "it takes blocks that fit on a chip"


def _unit_row_bytes(dim: int) -> int:
    return 8 * (dim + 1 + _DRAWERS // 32)


def _orthonormalise_bytes(rows: int, dim: int) -> int:
    """Shared memory that a block of `rows` orthonormal rows takes while it is made."""
    padded, columns = -(-rows // _PANEL) * _PANEL, -(-dim // 8) * 8
    width = -(-columns // 16) * 16 + 4
    tables = (_THREADS // 128 + 1) * _PANEL * _SMALL
    return 8 * (padded * (width + _SMALL) + tables + 2 * _PANEL + 1)


def unit_rows(stream: Any, step: Any, steps: int, first: int, count: int, dim: int, purpose: int) -> Any:
    """Rows `first .. first + count` of independent directions, float32 `(count, dim)`."""
    out = empty(stream[0], (count, dim), "float32")
    shape = count, _DRAWERS, _unit_row_bytes(dim)
    draw = bind(_DRAW_UNIT_ROWS, _PROGRAM, out.get_device(), *shape, steps, first, purpose, dim)
    draw(*stream, step, out)
    return out


def orthonormal_rows(
    stream: Any, step: Any, steps: int, first: int, rows: int, total: int, dim: int, purpose: int
) -> Any:
    """The first `total` rows of orthonormal blocks of `rows` rows from block `first` on, float32."""
    blocks = -(-total // rows)
    gaussian = empty(stream[0], (blocks, rows, dim), "float64")
    pairs = blocks * rows * ((dim + 1) // 2)
    shape = -(-pairs // _DRAWERS), _DRAWERS, 0
    key = steps, first, purpose
    draw = bind(_DRAW_NORMALS, _PROGRAM, gaussian.get_device(), *shape, *key, blocks, rows, dim)
    draw(*stream, step, gaussian)
    return orthonormalise(gaussian, total)


def orthonormalise(gaussian: Any, total: int) -> Any:
    """The first `total` rows of blocks `(blocks, rows, dim)` of float64, made orthonormal, in float32."""
    blocks, rows, dim = gaussian.shape
    out = empty(gaussian, (total, dim), "float32")
    shape = blocks, _THREADS, _orthonormalise_bytes(rows, dim)
    bind(_ORTHONORMALISE, _PROGRAM, out.get_device(), *shape, rows, dim, total)(gaussian, out)
    return out
