"""Drawing blocks of directions, on the device that will use them."""

from __future__ import annotations

from typing import Any

from orthoslice.arrays import DIRECTIONS, STEPS, Array, DType, Operation, Stream, namespace, stream_index
from orthoslice.directions.base import DenseDirections, Directions, Sampler
from orthoslice.directions.given import Given
from orthoslice.directions.iid import IID
from orthoslice.directions.orthogonal import Orthogonal
from orthoslice.kernels.cuda import cuda_refusal
from orthoslice.kernels.cuda.directions import room_refusal

draw_blocks = Operation("draw_blocks")
"""draw_blocks(sampler, stream, first, count, rows, dim, dtype, purpose, step) -> Directions.

`count` consecutive blocks of `rows` rows from number `first` on, which may be traced. With a `step`, an int64
array of shape `()`, they are those of one step of a training run.
"""


@draw_blocks.row(
    "given", lambda sampler, *_: None if isinstance(sampler, Given) else "it takes given directions"
)
def _draw_given(
    sampler: Given, stream: Stream, first: Any, count: int, rows: int, dim: int, dtype: DType, *_: Any
) -> DenseDirections:
    return sampler.draw(stream, rows, dim, dtype)


def _cuda_refusal(
    sampler: Sampler,
    stream: Stream,
    first: Any,
    count: int,
    rows: int,
    dim: int,
    dtype: DType,
    purpose: int = DIRECTIONS,
    step: Array | None = None,
) -> str | None:
    if not isinstance(sampler, IID | Orthogonal):
        return "it takes independent and orthogonal directions"
    if str(dtype) != "torch.float32":
        return "it draws float32"
    return cuda_refusal(*stream, dtype="int32") or room_refusal(
        stream.high.get_device(), None if isinstance(sampler, IID) else rows, dim
    )


@draw_blocks.row("cuda", _cuda_refusal)
def _draw_blocks_cuda(
    sampler: Sampler,
    stream: Stream,
    first: int,
    count: int,
    rows: int,
    dim: int,
    dtype: DType,
    purpose: int = DIRECTIONS,
    step: Array | None = None,
) -> DenseDirections:
    from orthoslice.kernels.cuda.directions import orthonormal_rows, unit_rows

    if isinstance(sampler, IID):
        return DenseDirections(unit_rows(stream, step, STEPS, first, count * rows, dim, purpose))
    return DenseDirections(orthonormal_rows(stream, step, STEPS, first, rows, count * rows, dim, purpose))


@draw_blocks.row("reference", lambda *_: None)
def _draw_blocks(
    sampler: Sampler,
    stream: Stream,
    first: Any,
    count: int,
    rows: int,
    dim: int,
    dtype: DType,
    purpose: int = DIRECTIONS,
    step: Array | None = None,
) -> Directions:
    if step is not None:
        xp = namespace(step)
        stream = stream.fold(xp.astype(xp.reshape(step, (1,)), xp.int32), STEPS)
    return sampler.blocks(stream, stream_index(stream, first, count), rows, dim, dtype, purpose)
