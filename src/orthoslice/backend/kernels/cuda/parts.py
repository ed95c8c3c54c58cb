"""Sums of the parts of rows, for programs that have no double precision of their own."""

from __future__ import annotations

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty

_THREADS = 64
_PARTS = Program("parts", (("THREADS", _THREADS),))
_ADD_PARTS = Kernel("add_parts", 3, "i")


def add_parts(sums: Tensor, kind: str) -> Tensor:
    """The sums of the rows of a float64 table `(rows, parts)`, in float64 or float32."""
    rows, parts = sums.shape
    out = empty(sums, (rows,), kind)
    where = (out, None) if kind == "float64" else (None, out)
    bind(_ADD_PARTS, _PARTS, sums.get_device(), rows, _THREADS, 256, parts)(sums, *where)
    return out
