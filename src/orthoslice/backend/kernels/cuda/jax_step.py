"""What programs of JAX need besides the kernels of a step, and the step of small clouds as they make it."""

from __future__ import annotations

from typing import TypeAlias

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Launch, Program, bind, empty
from orthoslice.backend.kernels.cuda.loss import match_clouds
from orthoslice.backend.kernels.cuda.rows import add_up, finish_step

_THREADS = 128
_PROGRAM = Program("jax_step", (("THREADS", _THREADS),))
_ADD_PARTS = Kernel("add_parts", 3, "i")
_FIND_TOPS = Kernel("find_tops", 3, "qqi")
_SCALE_ROWS = Kernel("scale_rows", 4, "iiddi")
_SHARED_BYTES = 256

# Numbers that a block looks at to find the largest, and blocks that do so at most.
_TOP_NUMBERS, _MOST_TOPS = 1024, 512


Scaling: TypeAlias = tuple[float, float, int]
"""The rule of `clouds.conditioning.scaling_rule`."""


def add_parts(sums: Tensor, kind: str) -> Tensor:
    """The sums of the rows of a float64 table `(rows, parts)`, in float64 or float32."""
    rows, parts = sums.shape
    out = empty(sums, (rows,), kind)
    where = (out, None) if kind == "float64" else (None, out)
    _bind(_ADD_PARTS, sums, rows, parts)(sums, *where)
    return out


def scaled_rows(x: Tensor, y: Tensor, theta: Tensor, scaling: Scaling) -> tuple[Tensor, Tensor]:
    """Directions that project as if clouds were divided by 2**exponent, and the exponent `()` in float32."""
    n, m, (slices, dim) = x.numel(), y.numel(), theta.shape
    parts = min(_MOST_TOPS, -(-(n + m) // _TOP_NUMBERS))
    tops, out, exponent = empty(x, (parts,), "int32"), empty(x, theta.shape, "float32"), empty(x, (), "float32")
    _bind(_FIND_TOPS, x, parts, n, m, parts)(x, y, tops)
    _bind(_SCALE_ROWS, x, slices, parts, dim, *scaling)(theta, tops, out, exponent)
    return out, exponent


def small_program(
    x: Tensor,
    y: Tensor,
    theta: Tensor,
    p: float,
    wanted: tuple[bool, bool],
    scaling: Scaling | None,
    kind: str,
) -> list[Tensor]:
    """Costs on the line of small clouds: their mean, all of them in this type, the exponent, and gradients.

    The gradients are one below the other. Without a rule for `scaling`, there is no exponent.
    """
    exponents, share = [], 1 / theta.shape[0]
    if scaling is not None:
        theta, exponent = scaled_rows(x, y, theta, scaling)
        exponents.append(exponent)
    matched = match_clouds(x, y, theta, p, 1.0, wanted)
    gradients = []
    if any(wanted):
        mean, gradient = finish_step(matched, theta, share=share)
        gradients.append(gradient)
    else:
        mean = add_up(matched.scores, share=share)
    scores = add_parts(matched.scores.reshape((matched.scores.numel(), 1)), kind)
    return [mean, scores, *exponents, *gradients]


def _bind(kernel: Kernel, like: Tensor, grid: int, *numbers: float) -> Launch:
    return bind(kernel, _PROGRAM, like.get_device(), grid, _THREADS, _SHARED_BYTES, *numbers)
