"""What the Triton kernels share.

Numbers in capitals are known when a kernel is compiled. Triton also compiles anew for numbers that are 1 or
divisible by 16; those that would gain nothing from it are exempt by `do_not_specialize`.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import triton
import triton.language as tl

# A few programs for each processor of a large GPU.
_ENOUGH_PROGRAMS = 512


def on_device_of(tensor: Any) -> contextlib.AbstractContextManager[Any]:
    """Launch where `tensor` lives: Triton itself looks at the current device only."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def split_count(n_programs: int, n_steps: int) -> int:
    """Into how many parts a sum over `n_steps` is cut so that few programs still fill a GPU."""
    return max(1, min(n_steps, _ENOUGH_PROGRAMS // n_programs))


def power_class(p: float) -> int:
    """Which power kernels are compiled for: 1, 2, or 0 for all others."""
    return int(p) if p in (1, 2) else 0


@triton.jit
def power_of_root(square, p, POWER: tl.constexpr):
    """square^(p/2) in float64, where POWER is the class of p; 0 at 0, and NaN stays NaN."""
    if POWER == 2:
        power = square
    elif POWER == 1:
        power = tl.sqrt(square)
    else:
        power = tl.exp2(0.5 * p * tl.log2(square))
    return power
