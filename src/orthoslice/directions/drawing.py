"""Drawing blocks of directions, on the device that will use them."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import (
    DIRECTIONS,
    STEPS,
    Array,
    DType,
    HostArray,
    Key,
    Operation,
    PlainWork,
    Tensor,
    index_beside,
    namespace,
)
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.kernels.cuda.directions import orthonormal_rows, room_refusal, steps_ahead, unit_rows
from orthoslice.directions.base import DenseDirections, Directions, Sampler
from orthoslice.directions.given import Given
from orthoslice.directions.hadamard import HadamardDirections, HadamardRademacher
from orthoslice.directions.iid import IID
from orthoslice.directions.orthogonal import Orthogonal


class Blocks(NamedTuple):
    """Which blocks of directions are meant: `n_blocks` consecutive ones of `rows` rows each."""

    sampler: Sampler
    key: Key
    first: Any
    """The number of the first of them, which may be traced."""
    n_blocks: int
    rows: int
    dim: int
    dtype: DType
    purpose: int = DIRECTIONS
    step: Array | None = None
    """The step of a training run that the blocks are for, int64 of shape `()`; None if there is no step."""


draw_blocks: Operation[Directions] = Operation("draw_blocks")
"""draw_blocks(blocks) -> Directions."""


def _given_refusal(blocks: Blocks) -> str | None:
    return None if isinstance(blocks.sampler, Given) else "it takes given directions"


@draw_blocks.implementation("given", _given_refusal)
def _draw_given(blocks: Blocks) -> Directions:
    return blocks.sampler.draw(blocks.key, blocks.rows, blocks.dim, blocks.dtype)


_DRAWN_BY_KERNELS = (IID, Orthogonal)


def has_kernels(sampler: Sampler) -> bool:
    """Whether kernels draw what this sampler would; one derived from ours may draw something else."""
    return type(sampler) in _DRAWN_BY_KERNELS


def _kernel_refusal(blocks: Blocks) -> str | None:
    kind = type(blocks.sampler)
    if kind not in _DRAWN_BY_KERNELS:
        return "it takes independent and orthogonal directions"
    if kind is IID and blocks.rows > 1:
        return "it draws independent directions as blocks of one row"
    return None


def _cuda_refusal(blocks: Blocks) -> str | None:
    refusal = _kernel_refusal(blocks)
    if refusal is not None:
        return refusal
    if str(blocks.dtype) != "torch.float32":
        return "it draws float32"
    rows = None if isinstance(blocks.sampler, IID) else blocks.rows
    return cuda_refusal(*blocks.key, dtype="int32") or room_refusal(
        cast(Tensor, blocks.key.high).get_device(), rows, blocks.dim
    )


def can_draw_ahead(blocks: Blocks, total: int) -> bool:
    """Whether `total` rows of them can be drawn by kernels for several steps at once."""
    if not isinstance(blocks.sampler, Orthogonal) or _cuda_refusal(blocks) is not None:
        return False
    return steps_ahead(cast(Tensor, blocks.key.high).get_device(), blocks.rows, total, blocks.dim) > 1


@draw_blocks.implementation("cuda", _cuda_refusal)
def _draw_blocks_cuda(blocks: Blocks) -> DenseDirections:
    sampler, key, first, count, rows, dim, _, purpose, step = blocks
    if isinstance(sampler, IID):
        return DenseDirections(unit_rows(key, step, STEPS, first, count * rows, dim, purpose))
    return DenseDirections(orthonormal_rows(key, step, STEPS, first, rows, count * rows, dim, purpose))


# Blocks of more rows are left to LAPACK, which works on them in pieces that fit a cache.
_MOST_ROWS = 256


def _numba_refusal(blocks: Blocks) -> str | None:
    if not isinstance(blocks.key.high, np.ndarray):
        return "it draws in host memory"
    if type(blocks.sampler) is HadamardRademacher:
        return None
    if blocks.rows > _MOST_ROWS:
        return f"it draws blocks of at most {_MOST_ROWS} rows"
    return _kernel_refusal(blocks)


def _plain_work(blocks: Blocks) -> PlainWork:
    # Normals, and for orthonormal rows as many passes over them as a block has rows.
    rows = blocks.rows
    if isinstance(blocks.sampler, HadamardRademacher):
        rows = blocks.sampler.rounds
    return PlainWork(blocks.n_blocks * rows * blocks.dim * (4 + rows // 16), str(np.dtype(blocks.dtype)))


@draw_blocks.implementation("numba", _numba_refusal, plain_work=_plain_work)
def draw_compiled_blocks(blocks: Blocks) -> Directions:
    high, low = cast("tuple[HostArray, HostArray]", blocks.key)
    if isinstance(blocks.sampler, HadamardRademacher):
        factors = draw_compiled_factors(blocks, high, low, blocks.step)
        return HadamardDirections(factors, blocks.rows, blocks.dim, paired=blocks.sampler.is_paired(blocks.dim))
    return DenseDirections(draw_compiled_rows(blocks, high, low, blocks.step, blocks.n_blocks * blocks.rows))


def draw_compiled_rows(
    blocks: Blocks, high: HostArray, low: HostArray, step: Array | None, count: int
) -> HostArray:
    """The first rows of these blocks, of another key and step: in a training step every microsecond counts."""
    from orthoslice.backend.kernels.numba.drawing import draw_rows

    theta = np.empty((count, blocks.dim), dtype=blocks.dtype)
    number = None if step is None else int(step)
    draw_rows(high, low, number, STEPS, blocks.purpose, blocks.first, blocks.rows, theta)
    return theta


def draw_compiled_factors(blocks: Blocks, high: HostArray, low: HostArray, step: Array | None) -> HostArray:
    """The factors of these Hadamard blocks, of another key and step."""
    from orthoslice.backend.kernels.numba.drawing import draw_factors

    sampler, dim = blocks.sampler, blocks.dim
    assert isinstance(sampler, HadamardRademacher)
    factors = np.empty((blocks.n_blocks, sampler.rounds, sampler.ambient_dim(dim)), dtype=blocks.dtype)
    number = None if step is None else int(step)
    draw_factors(high, low, number, STEPS, blocks.purpose, blocks.first, sampler.is_paired(dim), factors)
    return factors


@draw_blocks.implementation("reference", lambda _: None)
def _draw_blocks(blocks: Blocks) -> Directions:
    sampler, key, first, count, rows, dim, dtype, purpose, step = blocks
    if step is not None:
        xp = namespace(step)
        key = key.fold(xp.astype(xp.reshape(step, (1,)), xp.int32), STEPS)
    return sampler.blocks(key, index_beside(key, first, count), rows, dim, dtype, purpose)
