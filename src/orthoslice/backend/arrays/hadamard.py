"""Walsh-Hadamard transforms, and projections on blocks of directions that are made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from orthoslice.backend.array_types import Array, Rows
from orthoslice.backend.arrays.namespace import device, is_traced, namespace, to_numpy
from orthoslice.backend.arrays.operations import (
    Operation,
    PlainWork,
    add_totals,
    concat_rows,
    from_host,
    host_refusal,
    map_sum,
    scatter_add,
)
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.kernels.cuda.hadamard import carry_back_from_span, project_on_span, room_refusal
from orthoslice.backend.kernels.row_span import as_span

walsh_hadamard: Operation[Array] = Operation("walsh_hadamard")
"""walsh_hadamard(rows (..., dim)) -> (..., dim): each row times the symmetric orthonormal Hadamard matrix."""


@walsh_hadamard.implementation(
    "numba", lambda rows: _power_refusal(rows.shape[-1]) or host_refusal(rows), plain_work=PlainWork.of
)
def _walsh_hadamard_numba(rows: Array) -> Array:
    from orthoslice.backend.kernels.numba.hadamard import walsh_hadamard_rows

    image = np.array(to_numpy(rows), order="C")
    walsh_hadamard_rows(image.reshape(-1, rows.shape[-1]))
    return from_host(image, rows)


@walsh_hadamard.implementation("reference", lambda rows: None)
def _walsh_hadamard(rows: Array) -> Array:
    xp = namespace(rows)
    shape, dim = rows.shape, rows.shape[-1]
    half = 1
    while half < dim:
        pairs = xp.reshape(rows, (*shape[:-1], dim // (2 * half), 2, half))
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        rows = xp.stack([first + second, first - second], axis=-2)
        half *= 2
    return xp.reshape(rows, shape) * cast(float, dim**-0.5)


def _power_refusal(dim: int) -> str | None:
    return None if dim > 0 and dim & (dim - 1) == 0 else f"it takes lengths that are powers of two, not {dim}"


def _blocks_refusal(array: Array, signs: Array, parts: list[tuple[int, Rows]]) -> str | None:
    if not all(isinstance(within, slice) for _, within in parts):
        return "it takes rows by slices"
    if array.dtype != signs.dtype:
        return f"it takes signs of the type of the points; got {signs.dtype} and {array.dtype}"
    return _power_refusal(signs.shape[-1])


def _hadamard_refusal(array: Array, signs: Array, parts: list[tuple[int, Rows]], *_: object) -> str | None:
    return _blocks_refusal(array, signs, parts) or host_refusal(array, signs)


def _project_work(points: Array, signs: Array, parts: list[tuple[int, Rows]], *_: object) -> PlainWork:
    return PlainWork.of(signs, times=points.shape[0])


def _adjoint_work(slopes: Array, signs: Array, parts: list[tuple[int, Rows]], *_: object) -> PlainWork:
    return PlainWork.of(signs, times=slopes.shape[1])


def _hadamard_cuda_refusal(array: Array, signs: Any, parts: list[tuple[int, Rows]], *_: object) -> str | None:
    refusal = _blocks_refusal(array, signs, parts)
    if refusal is None and as_span(parts) is None:
        return "it takes consecutive rows of consecutive blocks"
    refusal = refusal or cuda_refusal(array, signs, dtype=("float32", "float64"))
    return refusal or room_refusal(signs.get_device(), signs.shape[-1], signs.element_size())


hadamard_project: Operation[Array] = Operation("hadamard_project")
"""hadamard_project(points (n, dim), signs (blocks, rounds, ambient_dim), parts, paired) -> (rows, n).

Projects on rows of blocks H D_k ... H D_1 of the padded space; a part is a block and rows of it, by a slice or
by indices. The factors D are diagonals of signs or, if `paired`, reflections of neighbouring coordinates:
`signs` then holds the cosine c and the sine s of each pair, whose matrix is [[c, s], [s, -c]].
"""


@hadamard_project.implementation("numba", _hadamard_refusal, plain_work=_project_work)
def _hadamard_project_numba(points: Array, signs: Array, parts: list[tuple[int, slice]], paired: bool) -> Array:
    from orthoslice.backend.kernels.numba.hadamard import project_on_blocks

    return from_host(project_on_blocks(to_numpy(points), to_numpy(signs), parts, paired), points)


hadamard_project.implementation("cuda", _hadamard_cuda_refusal)(project_on_span)


@hadamard_project.implementation("reference", lambda *_: None)
def _hadamard_project(points: Array, signs: Array, parts: list[tuple[int, Rows]], paired: bool) -> Array:
    xp = namespace(points)
    n, dim = points.shape
    ambient = signs.shape[-1]
    padding = xp.zeros((n, ambient - dim), dtype=points.dtype, device=device(points))
    padded = xp.concat([points, padding], axis=1)
    projected = []
    for first, count, within in _like_parts(parts):

        def step(signs: Array, within: Rows = within) -> tuple[Array, tuple[Array, ...]]:
            image = xp.broadcast_to(padded[None, :, :], (signs.shape[0], n, ambient))
            for k in range(signs.shape[1]):
                image = _walsh_hadamard(_multiply(image, signs[:, k, None, :], paired))
            return xp.matrix_transpose(_take_last(image, within)), ()

        blocks = signs[first : first + count, ...]
        image, _ = map_sum(step, (blocks,), _at_once(count, within, ambient), traced=is_traced(points))
        projected.append(xp.reshape(image, (-1, n)))
    return concat_rows(projected)


def _like_parts(parts: list[tuple[int, Rows]]) -> Iterator[tuple[int, int, Rows]]:
    """Consecutive blocks of which the same rows are meant: the first, how many, and those rows."""
    k = 0
    while k < len(parts):
        (first, within), count = parts[k], 1
        while k + count < len(parts) and parts[k + count] == (first + count, within):
            count += 1
        yield first, count, within
        k += count


def _at_once(count: int, within: Rows, ambient: int) -> int:
    """How many blocks to transform at once: together they have no more rows than are taken of all blocks."""
    return max(1, count * _n_rows(within) // ambient)


def _n_rows(within: Rows) -> int:
    return int(within.stop - within.start if isinstance(within, slice) else within.shape[0])


def _take_last(array: Array, within: Rows) -> Array:
    return array[..., within] if isinstance(within, slice) else namespace(array).take(array, within, axis=-1)


def _multiply(rows: Array, signs: Array, paired: bool) -> Array:
    """Rows `(..., ambient_dim)` times factors D, which are symmetric."""
    if not paired:
        return rows * signs
    xp = namespace(rows)
    first, second, cosine, sine = rows[..., ::2], rows[..., 1::2], signs[..., ::2], signs[..., 1::2]
    turned = xp.stack([cosine * first + sine * second, sine * first - cosine * second], axis=-1)
    return xp.reshape(turned, rows.shape)


hadamard_adjoint: Operation[Array] = Operation("hadamard_adjoint")
"""hadamard_adjoint(slopes (rows, n), signs (blocks, rounds, ambient_dim), parts, dim, paired) -> (n, dim).

The transpose of :func:`hadamard_project`.
"""


@hadamard_adjoint.implementation("numba", _hadamard_refusal, plain_work=_adjoint_work)
def _hadamard_adjoint_numba(
    slopes: Array, signs: Array, parts: list[tuple[int, slice]], dim: int, paired: bool
) -> Array:
    from orthoslice.backend.kernels.numba.hadamard import carry_back_from_blocks

    return from_host(carry_back_from_blocks(to_numpy(slopes), to_numpy(signs), parts, dim, paired), slopes)


hadamard_adjoint.implementation("cuda", _hadamard_cuda_refusal)(carry_back_from_span)


@hadamard_adjoint.implementation("reference", lambda *_: None)
def _hadamard_adjoint(
    slopes: Array, signs: Array, parts: list[tuple[int, Rows]], dim: int, paired: bool
) -> Array:
    xp = namespace(slopes)
    n, ambient = slopes.shape[-1], signs.shape[-1]
    totals: tuple[Array, ...] = ()
    used = 0
    for first, count, within in _like_parts(parts):

        def step(signs: Array, slopes: Array, within: Rows = within) -> tuple[Array, tuple[Array, ...]]:
            image = _place_last(xp.matrix_transpose(slopes), within, ambient)
            for k in range(signs.shape[1] - 1, -1, -1):
                image = _multiply(_walsh_hadamard(image), signs[:, k, None, :], paired)
            # Only the totals count: single blocks have no result.
            return signs[:, 0, :0], (xp.sum(image[:, :, :dim], axis=0),)

        rows = _n_rows(within)
        part = xp.reshape(slopes[used : used + count * rows, :], (count, rows, n))
        blocks = signs[first : first + count, ...]
        at_once = _at_once(count, within, ambient)
        totals = add_totals(totals, map_sum(step, (blocks, part), at_once, traced=is_traced(slopes))[1])
        used += count * rows
    return totals[0]


def _place_last(values: Array, within: Rows, size: int) -> Array:
    """The transpose of :func:`_take_last`: the values at their places along the last axis, and 0 elsewhere."""
    xp = namespace(values)
    if not isinstance(within, slice):
        flat = xp.matrix_transpose(xp.reshape(values, (-1, values.shape[-1])))
        placed = xp.matrix_transpose(scatter_add(flat, within, size))
        return xp.reshape(placed, (*values.shape[:-1], size))
    before, after = (
        xp.zeros((*values.shape[:-1], k), dtype=values.dtype, device=device(values))
        for k in (within.start, size - within.stop)
    )
    return xp.concat([before, values, after], axis=-1)
