"""What the pairs of couplings cost in full space, on a GPU: gathered in tiles, pairs x dim is never held.

The plain reference is that of `price_in_space` in `orthoslice.costs.space`. Differences are taken before
anything is squared, in the type of the points; the costs of pairs are added in float64.

Gradients of couplings that match every point once (equal sizes without weights) are summed by point: each
program goes through the slices in their order, so the answer is the same every time. Other couplings add to
the gradients with atomic operations, in an order that may change from run to run and with it the rounding.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from orthoslice.backend.kernels.triton._shared import on_device_of, power_class, power_of_root, split_count

_TILE_ITEMS = 2048
_WIDEST_TILE = 128

# Pairs of a slice that one program prices: enough to hide its start.
_PROGRAM_PAIRS = 512


@triton.jit
def _differences(x, y, i, j, live, first, dim, BLOCK_D: tl.constexpr):
    """Some coordinates of the differences of pairs, and where they stand."""
    column = first + tl.arange(0, BLOCK_D)
    inside = live[:, None] & (column < dim)[None, :]
    x_part = tl.load(x + i[:, None] * dim + column[None, :], mask=inside, other=0.0)
    y_part = tl.load(y + j[:, None] * dim + column[None, :], mask=inside, other=0.0)
    return x_part - y_part, column, inside


@triton.jit(do_not_specialize=["n", "m", "n_pairs", "n_shares", "ix_slice", "iy_slice", "mass_slice"])
def _price_kernel(
    x,
    y,
    ix,
    iy,
    mass,
    scores,
    x_partner,
    x_pull,
    y_partner,
    y_pull,
    x_gradient,
    y_gradient,
    n,
    m,
    dim,
    n_pairs,
    n_shares,
    ix_slice,
    ix_pair,
    iy_slice,
    iy_pair,
    mass_slice,
    mass_pair,
    p: tl.float64,
    POWER: tl.constexpr,
    WANT_X: tl.constexpr,
    WANT_Y: tl.constexpr,
    MATCHED: tl.constexpr,
    SHARE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Costs of a share of the pairs of one slice, and what pulls their points.

    Of matched points, the partner and the strength of the pull are handed on in the order of the points.
    """
    slice_ = (tl.program_id(0) // n_shares).to(tl.int64)
    share = tl.program_id(0) % n_shares
    total = tl.zeros([BLOCK_K], dtype=tl.float64)
    first_pair = share * SHARE
    for start in range(first_pair, tl.minimum(first_pair + SHARE, n_pairs), BLOCK_K):
        pair = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        live = pair < n_pairs
        i = tl.load(ix + slice_ * ix_slice + pair * ix_pair, mask=live, other=0).to(tl.int64)
        j = tl.load(iy + slice_ * iy_slice + pair * iy_pair, mask=live, other=0).to(tl.int64)
        weight = tl.load(mass + slice_ * mass_slice + pair * mass_pair, mask=live, other=0.0)
        square = tl.zeros([BLOCK_K], dtype=x.dtype.element_ty)
        for first in range(0, dim, BLOCK_D):
            difference, _, _ = _differences(x, y, i, j, live, first, dim, BLOCK_D)
            square += tl.sum(difference * difference, axis=1)
        wide = square.to(tl.float64)
        cost = tl.where(wide == 0.0, 0.0, power_of_root(wide, p, POWER))
        total += weight * cost
        if WANT_X or WANT_Y:
            # |d|^(p - 2) has no value where points coincide, and nothing pulls there.
            pull = tl.where(wide == 0.0, 0.0, p * weight * cost / wide).to(x.dtype.element_ty)
            if MATCHED:
                if WANT_X:
                    tl.store(x_partner + slice_ * n + i, j.to(tl.int32), mask=live)
                    tl.store(x_pull + slice_ * n + i, pull, mask=live)
                if WANT_Y:
                    tl.store(y_partner + slice_ * m + j, i.to(tl.int32), mask=live)
                    tl.store(y_pull + slice_ * m + j, pull, mask=live)
            else:
                for first in range(0, dim, BLOCK_D):
                    difference, column, inside = _differences(x, y, i, j, live, first, dim, BLOCK_D)
                    step = pull[:, None] * difference
                    if WANT_X:
                        tl.atomic_add(x_gradient + i[:, None] * dim + column[None, :], step, mask=inside)
                    if WANT_Y:
                        tl.atomic_add(y_gradient + j[:, None] * dim + column[None, :], -step, mask=inside)
    tl.store(scores + slice_ * n_shares + share, tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["n", "n_slices", "split_slices"])
def _pull_kernel(
    a,
    b,
    partner,
    pull,
    out,
    n,
    dim,
    n_slices,
    split_slices,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Sum `pull * (a - b[partner])` over some of the slices, for a tile of points and coordinates."""
    point = (tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
    column = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    split = tl.program_id(2).to(tl.int64)
    live = point < n
    inside = live[:, None] & (column < dim)[None, :]
    own = tl.load(a + point[:, None] * dim + column[None, :], mask=inside, other=0.0)
    total = tl.zeros([BLOCK_K, BLOCK_D], dtype=a.dtype.element_ty)
    first = split * split_slices
    for slice_ in range(first, tl.minimum(first + split_slices, n_slices)):
        at = tl.load(partner + slice_ * n + point, mask=live, other=0).to(tl.int64)
        strength = tl.load(pull + slice_ * n + point, mask=live, other=0.0)
        other = tl.load(b + at[:, None] * dim + column[None, :], mask=inside, other=0.0)
        total += strength[:, None] * (own - other)
    tl.store(out + (split * n + point)[:, None] * dim + column[None, :], total, mask=inside)


def _sum_pulls(a: Any, b: Any, partner: Any, pull: Any) -> Any:
    """`sum_s pull[s, i] * (a[i] - b[partner[s, i]])`, `(n, dim)`."""
    (n_slices, n), dim = pull.shape, a.shape[1]
    block_d = min(_WIDEST_TILE, triton.next_power_of_2(dim))
    block_k = min(triton.next_power_of_2(n), _TILE_ITEMS // 2 // block_d)
    tiles = (triton.cdiv(n, block_k), triton.cdiv(dim, block_d))
    split_slices = triton.cdiv(n_slices, split_count(tiles[0] * tiles[1], n_slices))
    n_splits = triton.cdiv(n_slices, split_slices)
    out = torch.empty((n_splits, n, dim), dtype=a.dtype, device=a.device)
    _pull_kernel[(*tiles, n_splits)](
        a, b, partner, pull, out, n, dim, n_slices, split_slices, BLOCK_K=block_k, BLOCK_D=block_d
    )
    return out[0] if n_splits == 1 else out.sum(dim=0)


def price_matches(
    x: Any, y: Any, ix: Any, iy: Any, mass: Any, *, p: float, wanted: tuple[bool, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """Scores `(slices,)` of couplings, and the gradients of their sum by x and by y as far as wanted.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`, float32 or float64.
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
    x, y = x.contiguous(), y.contiguous()
    one_mass = mass.numel() == 1
    ix, iy, mass = torch.broadcast_tensors(ix, iy, mass)
    (n_slices, n_pairs), (n, dim), m = ix.shape, x.shape, y.shape[0]
    matched = one_mass and n == m == n_pairs
    n_shares = triton.cdiv(n_pairs, _PROGRAM_PAIRS)
    scores = torch.empty((n_slices, n_shares), dtype=torch.float64, device=x.device)
    partners: list[Any] = [None, None]
    pulls: list[Any] = [None, None]
    gradients: list[Any] = [None, None]
    for side, cloud in enumerate((x, y)):
        if wanted[side] and matched:
            partners[side] = torch.empty((n_slices, n), dtype=torch.int32, device=x.device)
            pulls[side] = torch.empty((n_slices, n), dtype=x.dtype, device=x.device)
        elif wanted[side]:
            gradients[side] = torch.zeros_like(cloud)
    block_d = min(_WIDEST_TILE, triton.next_power_of_2(dim))
    with on_device_of(x):
        _price_kernel[(n_slices * n_shares,)](
            x,
            y,
            ix,
            iy,
            mass,
            scores,
            partners[0],
            pulls[0],
            partners[1],
            pulls[1],
            *gradients,
            n,
            m,
            dim,
            n_pairs,
            n_shares,
            *ix.stride(),
            *iy.stride(),
            *mass.stride(),
            float(p),
            POWER=power_class(p),
            WANT_X=wanted[0],
            WANT_Y=wanted[1],
            MATCHED=matched,
            SHARE=_PROGRAM_PAIRS,
            BLOCK_K=min(_PROGRAM_PAIRS, _TILE_ITEMS // block_d),
            BLOCK_D=block_d,
        )
        if matched:
            for side, (own, other) in enumerate(((x, y), (y, x))):
                if wanted[side]:
                    gradients[side] = _sum_pulls(own, other, partners[side], pulls[side])
    moved = tuple(g for g, want in zip(gradients, wanted, strict=True) if want)
    return (scores[:, 0] if n_shares == 1 else scores.sum(dim=1)), moved
