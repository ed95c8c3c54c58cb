"""Matrix products in the precision of their factors, whatever torch's switches for speed say."""

from __future__ import annotations

import sys
from typing import Any

from orthoslice.backend.array_types import Array, Tensor


def product(a: Array, b: Array) -> Array:
    """`a @ b`, never by way of TF32, which keeps 11 of the 24 bits of a float32.

    Whether an NVIDIA GPU may use TF32 is one switch for all threads of torch. Turning it for a while would
    change the products of other threads, and theirs could turn it back under ours. So it is only read, and
    where it is on, float32 factors are multiplied in float64. That is at least as accurate. A large training
    step took a third longer so on an H200; on GPUs that are slow in float64 it takes more, and turning TF32 off
    is the remedy.
    """
    return _widened(a, b).to(a.dtype) if _is_rounded(a) else a @ b


def add_product(total: Tensor, a: Tensor, b: Tensor, *, is_first: bool) -> None:
    """Add :func:`product` to a torch tensor in place, or write it there if this is the first."""
    if not _is_rounded(a):
        total.addmm_(a, b, beta=0 if is_first else 1)
    elif is_first:
        total.copy_(_widened(a, b))
    else:
        total.add_(_widened(a, b))


def _widened(a: Tensor, b: Tensor) -> Tensor:
    return a.double() @ b.double()


def _is_rounded(factor: Tensor) -> bool:
    """Whether torch would round this factor of a product to TF32."""
    if not getattr(factor, "is_cuda", False):
        return False
    torch = sys.modules["torch"]
    return bool(factor.dtype == torch.float32 and is_tf32_on(torch.backends.cuda.matmul))


def is_tf32_on(switches: Any) -> bool:
    """Whether `torch.backends.cuda.matmul` allows TF32.

    Since torch 2.9 there are two sets of names for it. Reading the old one raises once the new one was set. The
    new one can always be read, and shows what the old one was set to as well.
    """
    try:
        return bool(switches.fp32_precision == "tf32")
    except AttributeError:
        return bool(switches.allow_tf32)
