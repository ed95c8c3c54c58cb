"""Walsh-Hadamard transforms, and projections on blocks of directions that are made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.arrays.namespace import Array, device, namespace, to_numpy
from orthoslice.arrays.operations import Operation, concat_rows, from_host, host_refusal, scatter_add
from orthoslice.kernels import LONGEST_TRANSFORM, triton_refusal
from orthoslice.kernels.runs import as_run

walsh_hadamard = Operation("walsh_hadamard")
"""walsh_hadamard(rows (..., dim)) -> (..., dim): each row times the symmetric orthonormal Hadamard matrix."""


@walsh_hadamard.implementation("numba", lambda rows: _power_refusal(rows.shape[-1]) or host_refusal(rows))
def _walsh_hadamard_numba(rows: Array) -> Array:
    from orthoslice.kernels.numba.hadamard import walsh_hadamard_rows

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
    return xp.reshape(rows, shape) * dim**-0.5


def _power_refusal(dim: int) -> str | None:
    return None if dim > 0 and dim & (dim - 1) == 0 else f"it takes lengths that are powers of two, not {dim}"


def _blocks_refusal(array: Array, signs: Array, parts: list[tuple[int, Any]]) -> str | None:
    if not all(isinstance(within, slice) for _, within in parts):
        return "it takes rows by slices"
    if array.dtype != signs.dtype:
        return f"it takes signs of the type of the points; got {signs.dtype} and {array.dtype}"
    return _power_refusal(signs.shape[-1])


def _hadamard_refusal(array: Array, signs: Array, parts: list[tuple[int, Any]], *_: Any) -> str | None:
    return _blocks_refusal(array, signs, parts) or host_refusal(array, signs)


def _hadamard_triton_refusal(array: Array, signs: Array, parts: list[tuple[int, Any]], *_: Any) -> str | None:
    if signs.shape[-1] > LONGEST_TRANSFORM:
        return f"it takes at most {LONGEST_TRANSFORM} dimensions, not {signs.shape[-1]}"
    refusal = _blocks_refusal(array, signs, parts)
    if refusal is None and as_run(parts) is None:
        return "it takes consecutive rows of consecutive blocks"
    return refusal or triton_refusal(array, signs, dtypes=("float32", "float64"))


hadamard_project = Operation("hadamard_project")
"""hadamard_project(points (n, dim), signs (blocks, rounds, ambient_dim), parts, paired) -> (rows, n).

Projects on rows of blocks H D_k ... H D_1 of the padded space; a part is a block and rows of it, by a slice or
by indices. The factors D are diagonals of signs or, if `paired`, reflections of neighbouring coordinates:
`signs` then holds the cosine c and the sine s of each pair, whose matrix is [[c, s], [s, -c]].
"""


@hadamard_project.implementation("numba", _hadamard_refusal)
def _hadamard_project_numba(points: Array, signs: Array, parts: list[tuple[int, slice]], paired: bool) -> Array:
    from orthoslice.kernels.numba.hadamard import project_on_blocks

    return from_host(project_on_blocks(to_numpy(points), to_numpy(signs), parts, paired), points)


@hadamard_project.implementation("triton", _hadamard_triton_refusal)
def _hadamard_project_triton(
    points: Array, signs: Array, parts: list[tuple[int, slice]], paired: bool
) -> Array:
    from orthoslice.kernels.triton.hadamard import project_on_run

    return project_on_run(points, signs, parts, paired)


@hadamard_project.implementation("reference", lambda *_: None)
def _hadamard_project(points: Array, signs: Array, parts: list[tuple[int, Any]], paired: bool) -> Array:
    xp = namespace(points)
    n, dim = points.shape
    padding = xp.zeros((n, signs.shape[-1] - dim), dtype=points.dtype, device=device(points))
    padded = xp.concat([points, padding], axis=1)
    projected = []
    for block, within in parts:
        image = padded
        for step in range(signs.shape[1]):
            image = _walsh_hadamard(_multiply(image, signs[block, step, :], paired))
        projected.append(image.T[within, :] if isinstance(within, slice) else xp.take(image.T, within, axis=0))
    return concat_rows(projected)


def _multiply(rows: Array, signs: Array, paired: bool) -> Array:
    """Rows `(..., ambient_dim)` times factors D, which are symmetric."""
    if not paired:
        return rows * signs
    xp = namespace(rows)
    first, second, cosine, sine = rows[..., ::2], rows[..., 1::2], signs[..., ::2], signs[..., 1::2]
    turned = xp.stack([cosine * first + sine * second, sine * first - cosine * second], axis=-1)
    return xp.reshape(turned, rows.shape)


hadamard_adjoint = Operation("hadamard_adjoint")
"""hadamard_adjoint(slopes (rows, n), signs (blocks, rounds, ambient_dim), parts, dim, paired) -> (n, dim).

The transpose of :func:`hadamard_project`.
"""


@hadamard_adjoint.implementation("numba", _hadamard_refusal)
def _hadamard_adjoint_numba(
    slopes: Array, signs: Array, parts: list[tuple[int, slice]], dim: int, paired: bool
) -> Array:
    from orthoslice.kernels.numba.hadamard import carry_back_from_blocks

    return from_host(carry_back_from_blocks(to_numpy(slopes), to_numpy(signs), parts, dim, paired), slopes)


@hadamard_adjoint.implementation("triton", _hadamard_triton_refusal)
def _hadamard_adjoint_triton(
    slopes: Array, signs: Array, parts: list[tuple[int, slice]], dim: int, paired: bool
) -> Array:
    from orthoslice.kernels.triton.hadamard import carry_back_from_run

    return carry_back_from_run(slopes, signs, parts, dim, paired)


@hadamard_adjoint.implementation("reference", lambda *_: None)
def _hadamard_adjoint(
    slopes: Array, signs: Array, parts: list[tuple[int, Any]], dim: int, paired: bool
) -> Array:
    place = namespace(slopes).arange(signs.shape[-1], device=device(slopes))
    total, used = 0, 0
    for block, within in parts:
        index = place[within] if isinstance(within, slice) else within
        part = slopes[used : used + index.shape[0], :]
        image = scatter_add(part, index, signs.shape[-1]).T
        for step in range(signs.shape[1] - 1, -1, -1):
            image = _multiply(_walsh_hadamard(image), signs[block, step, :], paired)
        total, used = total + image[:, :dim], used + index.shape[0]
    return total
