"""Walsh-Hadamard transforms of tiles of points on a GPU: all rounds of a block without leaving the chip.

The plain references are the implementations of that name in `orthoslice.backend.arrays.hadamard`. A tile
`(points, dim)` is looked at as a cube of 2 x 2 x ... x 2 numbers: a stage adds and subtracts along one axis,
which is done in registers, between the threads of a warp or through shared memory, as the axis lies.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from orthoslice.backend.kernels.runs import as_run
from orthoslice.backend.kernels.triton._shared import on_device_of, split_count

# Numbers a program holds, and a warp's share of them. More points a tile write longer runs of a row.
_TILE_BYTES = 32768
_WARP_BYTES = 4096

# Numbers that need no kernel of their own: each takes seconds to compile.
_RUN = ["n_tiles", "first_block", "block_rows", "first_row", "n_rows"]


@triton.jit
def _neighbours(cube, LOG_ALL: tl.constexpr, stage: tl.constexpr):
    """The other of the two numbers along an axis, counted from the innermost."""
    if cube.dtype == tl.float64:
        bits = cube.to(tl.int64, bitcast=True)
    else:
        bits = cube.to(tl.int32, bitcast=True)
    # The exclusive or of both neighbours and oneself is the other one, to the last bit.
    return (bits ^ tl.xor_sum(bits, LOG_ALL - 1 - stage, True)).to(cube.dtype, bitcast=True)


@triton.jit
def _stage(cube, LOG_ALL: tl.constexpr, stage: tl.constexpr):
    """Put sum and difference of neighbours along an axis, counted from the innermost, in their places."""
    other = _neighbours(cube, LOG_ALL, stage)
    is_second = tl.reshape(tl.arange(0, 2), [1] * (LOG_ALL - 1 - stage) + [2] + [1] * stage) == 1
    return tl.where(is_second, other - cube, cube + other)


@triton.jit
def _transform(tile, LOG_DIM: tl.constexpr, LOG_ALL: tl.constexpr):
    """Multiply every row of a tile by the Hadamard matrix of 1 and -1."""
    cube = tl.reshape(tile, [2] * LOG_ALL)
    for stage in tl.static_range(LOG_DIM):
        cube = _stage(cube, LOG_ALL, stage)
    return tl.reshape(cube, tile.shape)


@triton.jit
def _multiply(tile, signs, column, SCALE: tl.constexpr, PAIRED: tl.constexpr, LOG_ALL: tl.constexpr):
    """Multiply every row of a tile by the factor at `signs`: a diagonal, or reflections of neighbours."""
    if PAIRED:
        cosine = SCALE * tl.load(signs + (column & ~1))
        sine = SCALE * tl.load(signs + (column | 1))
        other = tl.reshape(_neighbours(tl.reshape(tile, [2] * LOG_ALL), LOG_ALL, 0), tile.shape)
        product = tl.where(column % 2 == 0, cosine, -cosine)[None, :] * tile + sine[None, :] * other
    else:
        product = tile * (SCALE * tl.load(signs + column))[None, :]
    return product


@triton.jit
def _rows_of(block, column, block_rows, first_row, n_rows):
    """The number in the run of each row of a block, and whether the row is in the run."""
    row = block * block_rows + column - first_row
    return row.to(tl.int64), (column < block_rows) & (row >= 0) & (row < n_rows)


@triton.jit(do_not_specialize=_RUN)
def _project_kernel(
    points,
    signs,
    out,
    n,
    dim,
    n_tiles,
    first_block,
    block_rows,
    first_row,
    n_rows,
    SCALE: tl.constexpr,
    ROUNDS: tl.constexpr,
    PAIRED: tl.constexpr,
    POINTS: tl.constexpr,
    LOG_DIM: tl.constexpr,
    LOG_ALL: tl.constexpr,
):
    point = ((tl.program_id(0) % n_tiles) * POINTS + tl.arange(0, POINTS)).to(tl.int64)
    block = tl.program_id(0) // n_tiles
    column = tl.arange(0, 2**LOG_DIM)
    live = point < n
    inside = live[:, None] & (column < dim)[None, :]
    tile = tl.load(points + point[:, None] * dim + column[None, :], mask=inside, other=0.0)
    for step in tl.static_range(ROUNDS):
        factor = signs + ((first_block + block) * ROUNDS + step) * 2**LOG_DIM
        tile = _transform(_multiply(tile, factor, column, SCALE, PAIRED, LOG_ALL), LOG_DIM, LOG_ALL)
    row, kept = _rows_of(block, column, block_rows, first_row, n_rows)
    tl.store(out + row[None, :] * n + point[:, None], tile, mask=live[:, None] & kept[None, :])


@triton.jit(do_not_specialize=[*_RUN, "n_blocks", "split_blocks"])
def _adjoint_kernel(
    slopes,
    signs,
    out,
    n,
    dim,
    n_tiles,
    first_block,
    block_rows,
    first_row,
    n_rows,
    n_blocks,
    split_blocks,
    SCALE: tl.constexpr,
    ROUNDS: tl.constexpr,
    PAIRED: tl.constexpr,
    POINTS: tl.constexpr,
    LOG_DIM: tl.constexpr,
    LOG_ALL: tl.constexpr,
):
    point = ((tl.program_id(0) % n_tiles) * POINTS + tl.arange(0, POINTS)).to(tl.int64)
    split = tl.program_id(0) // n_tiles
    column = tl.arange(0, 2**LOG_DIM)
    live = point < n
    total = tl.zeros([POINTS, 2**LOG_DIM], dtype=slopes.dtype.element_ty)
    for block in range(split * split_blocks, tl.minimum((split + 1) * split_blocks, n_blocks)):
        row, kept = _rows_of(block, column, block_rows, first_row, n_rows)
        at = slopes + row[None, :] * n + point[:, None]
        image = tl.load(at, mask=live[:, None] & kept[None, :], other=0.0)
        for step in tl.static_range(ROUNDS):
            factor = signs + ((first_block + block) * ROUNDS + ROUNDS - 1 - step) * 2**LOG_DIM
            image = _multiply(_transform(image, LOG_DIM, LOG_ALL), factor, column, SCALE, PAIRED, LOG_ALL)
        total += image
    at = out + (split.to(tl.int64) * n + point)[:, None] * dim + column[None, :]
    tl.store(at, total, mask=live[:, None] & (column < dim)[None, :])


def _options(signs: Any, paired: bool) -> dict[str, Any]:
    """How many points a tile holds, and what else the kernels are compiled for."""
    dim, size = signs.shape[-1], signs.element_size()
    # Not one point alone: a tile of a single number is no cube.
    points = max(2, min(64, _TILE_BYTES // (size * dim)))
    return {
        "SCALE": dim**-0.5,
        "ROUNDS": signs.shape[1],
        "PAIRED": paired,
        "POINTS": points,
        "LOG_DIM": dim.bit_length() - 1,
        "LOG_ALL": (points * dim).bit_length() - 1,
        "num_warps": max(1, min(16, size * points * dim // _WARP_BYTES)),
        # The compiler would fuse another product of a sum for the first point of a tile than for the others,
        # and equal points would project to different numbers.
        "enable_fp_fusion": False,
    }


def project_on_run(points: Any, signs: Any, parts: list[tuple[int, slice]], paired: bool) -> Any:
    """Project `points (n, dim_user)` on rows of blocks with `signs (blocks, rounds, dim)`: `(rows, n)`."""
    (n, dim), options, run = points.shape, _options(signs, paired), as_run(parts)
    assert run is not None
    out = torch.empty((run.n_rows, n), dtype=points.dtype, device=points.device)
    n_tiles = triton.cdiv(n, options["POINTS"])
    sizes = n, dim, n_tiles, run.first_block, run.block_rows, run.first_row, run.n_rows
    with on_device_of(points):
        start = _project_kernel[(n_tiles * run.n_blocks,)]
        start(points.contiguous(), signs.contiguous(), out, *sizes, **options)
    return out


def carry_back_from_run(slopes: Any, signs: Any, parts: list[tuple[int, slice]], dim: int, paired: bool) -> Any:
    """The transpose of :func:`project_on_run`: from `slopes (rows, n)` to `(n, dim)`; always summed alike."""
    n, options, run = slopes.shape[1], _options(signs, paired), as_run(parts)
    assert run is not None
    n_tiles = triton.cdiv(n, options["POINTS"])
    split_blocks = triton.cdiv(run.n_blocks, split_count(n_tiles, run.n_blocks))
    n_splits = triton.cdiv(run.n_blocks, split_blocks)
    out = torch.empty((n_splits, n, dim), dtype=slopes.dtype, device=slopes.device)
    sizes = n, dim, n_tiles, run.first_block, run.block_rows, run.first_row, run.n_rows
    with on_device_of(slopes):
        start = _adjoint_kernel[(n_tiles * n_splits,)]
        start(slopes.contiguous(), signs.contiguous(), out, *sizes, run.n_blocks, split_blocks, **options)
    return out[0] if n_splits == 1 else out.sum(dim=0)
