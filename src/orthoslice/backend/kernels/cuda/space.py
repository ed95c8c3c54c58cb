"""What the pairs of couplings cost in full space, on an NVIDIA GPU: pairs x dim is never held.

The plain reference is that of `price_in_space` in `orthoslice.costs.space`. Differences are taken before
anything is squared, in the type of the points; the costs of pairs are added in float64.

Gradients of couplings that match every point once (equal sizes without weights) are summed by point, over the
slices in a fixed order, so the answer is the same every time. Other couplings add to the gradients with atomic
operations, in an order that may change from run to run and with it the rounding.
"""

from __future__ import annotations

import sys

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty

_THREADS = 256
_PROGRAMS = {size: Program("space", (("THREADS", _THREADS), ("REAL_BYTES", size))) for size in (4, 8)}
_PRICE = Kernel("price_couplings", 10, "iiiidqqqqqq")
_PULL = Kernel("pull_matched", 4, "iii")

# Scratch for the sums of a block.
_SCRATCH_BYTES = 256

# Pairs of a slice that are one block's share.
_PAIRS = 512


def price_matches(
    x: Tensor, y: Tensor, ix: Tensor, iy: Tensor, mass: Tensor, *, p: float, wanted: tuple[bool, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Scores `(slices,)` of couplings, and the gradients of their sum by x and by y as far as wanted.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`, both float32 or both float64.
    ix, iy
        Which points make a pair, `(slices, pairs)`; one of them may have a single row for all.
    mass
        What each pair carries; it broadcasts against the pairs. A single number says that clouds of equal size
        are matched point by point: every slice has each point once.
    p
        The power.
    wanted
        Whether gradients by x and by y are asked for.
    """
    x, y, one_mass = x.contiguous(), y.contiguous(), mass.numel() == 1
    # Nothing is copied that has these types already.
    ix, iy, mass = sys.modules["torch"].broadcast_tensors(ix.long(), iy.long(), mass.double())
    (n_slices, n_pairs), (n, dim) = ix.shape, x.shape
    is_matched = one_mass and n == y.shape[0] == n_pairs
    n_parts = -(-n_pairs // _PAIRS)
    scores = empty(x, (n_slices, n_parts), "float64")
    # A partner and a pull take as much as two numbers.
    matches = [x.new_empty((n_slices, n, 2)) if want and is_matched else None for want in wanted]
    gradients = [
        (a.new_empty if is_matched else a.new_zeros)(a.shape) if want else None
        for a, want in zip((x, y), wanted, strict=True)
    ]
    device, program = x.get_device(), _PROGRAMS[x.element_size()]
    strides = *ix.stride(), *iy.stride(), *mass.stride()
    shape = n_slices * n_parts, _THREADS, _SCRATCH_BYTES
    price = bind(_PRICE, program, device, *shape, n, dim, n_pairs, n_parts, float(p), *strides)
    price(x, y, ix, iy, mass, scores, *matches, *(gradients if not is_matched else (None, None)))
    if is_matched:
        pull = bind(_PULL, program, device, n, _THREADS, 4 * _THREADS * x.element_size(), n, dim, n_slices)
        for own, other, match, gradient in zip((x, y), (y, x), matches, gradients, strict=True):
            if gradient is not None:
                pull(own, other, match, gradient)
    moved = tuple(gradient for gradient in gradients if gradient is not None)
    return (scores[:, 0] if n_parts == 1 else scores.sum(dim=1)), moved
