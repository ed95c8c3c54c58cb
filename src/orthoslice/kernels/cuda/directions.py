"""Directions drawn on an NVIDIA GPU in one or two launches, without a word to the host.

The references are the samplers themselves: `IID.draw` and `Orthogonal.draw` of folded streams.
"""

from __future__ import annotations

from typing import Any

from orthoslice.kernels.cuda import Kernel, Launch, Program, bind, current_stream, empty, most_shared_bytes

_DRAWERS, _THREADS, _PANEL, _SMALL = 128, 512, 16, 20
_PROGRAM = Program(
    "directions", (("DRAWERS", _DRAWERS), ("THREADS", _THREADS), ("PANEL", _PANEL), ("SMALL", _SMALL))
)

# Steps whose directions are drawn at once, at most, and blocks that a GPU surely works on at a time.
_MOST_AHEAD, _SPREAD = 8, 64

_DRAW_NORMALS = Kernel("draw_normals", 5, "iiiiiii")
_DRAW_UNIT_ROWS = Kernel("draw_unit_rows", 4, "iiii")
_ORTHONORMALISE = Kernel("orthonormalise", 7, "iiiii")


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
    gaussian = empty(stream[0], (1, blocks, rows, dim), "float64")
    _drawing(gaussian, steps, first, purpose)(*stream, step, None, gaussian)
    return orthonormalise(gaussian, total)


def orthonormalise(gaussian: Any, total: int) -> Any:
    """The first `total` rows of blocks `(1, blocks, rows, dim)` of float64, made orthonormal, in float32."""
    out = empty(gaussian, (total, gaussian.shape[-1]), "float32")
    _orthonormalising(gaussian, total)(gaussian, out, None, None, None, None, None)
    return out


def steps_ahead(rows: int, total: int) -> int:
    """For how many steps `total` rows in blocks of `rows` are drawn at once."""
    return max(1, min(_MOST_AHEAD, _SPREAD * rows // total))


class DrawnAhead:
    """Orthonormal rows for a training run: :func:`orthonormal_rows` of its steps, from block 0 on.

    One block is made by a small part of a GPU, so those of several steps take no longer than those of one. They
    are held until their turn; whether they are is looked up on the device, where the step is counted.
    """

    def __init__(self, step: Any, steps: int, rows: int, total: int, dim: int, purpose: int) -> None:
        self._total = total
        self._stream = current_stream(step.get_device())
        self._key = steps, 0, purpose
        self._shape = steps_ahead(rows, total), -(-total // rows), rows, dim
        # Of no key: their words are not negative. A copy from the host would make it wait.
        self._held = step.new_full((4,), -1)
        self._held[3] = 0
        self._kept = empty(step, (self._shape[0], total, dim), "float32")
        self._now = empty(step, (total, dim), "float32")

    def is_in_order(self) -> bool:
        """Whether this is the stream of all calls so far: one must not write what another still reads."""
        return current_stream(self._now.get_device()) == self._stream

    def __call__(self, stream: Any, step: Any) -> Any:
        """Those of a step, float32 `(total, dim)`, until the next call."""
        gaussian = empty(step, self._shape, "float64")
        _drawing(gaussian, *self._key)(*stream, step, self._held, gaussian)
        orthonormalise = _orthonormalising(gaussian, self._total)
        orthonormalise(gaussian, self._kept, *stream, step, self._held, self._now)
        return self._now


def _drawing(gaussian: Any, steps: int, first: int, purpose: int) -> Launch:
    ahead, blocks, rows, dim = gaussian.shape
    grid = -(-ahead * blocks * rows * ((dim + 1) // 2) // _DRAWERS)
    numbers = steps, first, purpose, ahead, blocks, rows, dim
    return bind(_DRAW_NORMALS, _PROGRAM, gaussian.get_device(), grid, _DRAWERS, 0, *numbers)


def _orthonormalising(gaussian: Any, total: int) -> Launch:
    ahead, blocks, rows, dim = gaussian.shape
    shape = ahead * blocks, _THREADS, _orthonormalise_bytes(rows, dim)
    numbers = ahead, blocks, rows, dim, total
    return bind(_ORTHONORMALISE, _PROGRAM, gaussian.get_device(), *shape, *numbers)
