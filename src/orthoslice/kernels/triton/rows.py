"""Costs on the line for short rows on a GPU: load, sort, match and add up without leaving the chip.

The plain references are those in `orthoslice.costs.lines`. Numbers are sorted as integers of the
same order, in which NaN comes last instead of stopping the others on their way. Costs are added in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from orthoslice.kernels.triton._shared import on_device_of, power_of_root

# What one program sorts at a time, and how many numbers of it a warp takes.
_TILE_ITEMS = 1024
_WARP_ITEMS = 256

# So many programs keep every processor of a large GPU busy; only beyond that do rows share one.
_ENOUGH_PROGRAMS = 256


@triton.jit
def _flip_negative(bits):
    """Its own inverse: bits of floats as integers of the same order."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _load_keys(pointer, row, n_rows, n, BLOCK: tl.constexpr):
    """Rows as ordered integers: both zeros are one number, NaN comes last, and padding after it."""
    column = tl.arange(0, BLOCK)
    live = (row < n_rows)[:, None] & (column < n)[None, :]
    values = tl.load(pointer + row.to(tl.int64)[:, None] * n + column[None, :], mask=live, other=0.0)
    bits = tl.where(values == 0.0, 0.0, values).to(tl.int32, bitcast=True)
    bits = tl.where(values != values, 0x7FC00000, bits)
    return tl.where(live, _flip_negative(bits), 0x7FFFFFFF)


@triton.jit
def _sorted_values(pointer, row, n_rows, n, BLOCK: tl.constexpr):
    keys = tl.sort(_load_keys(pointer, row, n_rows, n, BLOCK))
    return _flip_negative(keys).to(tl.float32, bitcast=True)


@triton.jit
def _sorted_with_places(pointer, row, n_rows, n, BLOCK: tl.constexpr):
    """Sorted rows and where each number stood; equal numbers keep their order."""
    keys = _load_keys(pointer, row, n_rows, n, BLOCK).to(tl.int64)
    # A key and its place make one integer, so that a sort of numbers carries the places along.
    packed = tl.sort((keys << 32) | tl.arange(0, BLOCK)[None, :])
    values = _flip_negative((packed >> 32).to(tl.int32)).to(tl.float32, bitcast=True)
    return values, (packed & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def _cost(difference, P: tl.constexpr):
    wide = difference.to(tl.float64)
    if P == 1:
        cost = tl.abs(wide)
    else:
        cost = power_of_root(wide * wide, P)
    return cost


@triton.jit
def _slope(difference, P: tl.constexpr):
    """The derivative of |difference|^P, 0 at 0; NaN stays NaN."""
    wide = difference.to(tl.float64)
    if P == 2:
        slope = 2.0 * wide
    else:
        sign = tl.where(wide > 0.0, 1.0, tl.where(wide < 0.0, -1.0, wide))
        if P == 1:
            slope = sign
        else:
            slope = P * power_of_root(wide * wide, P - 1) * sign
    return slope


@triton.jit
def _partner(rank, step, n, m):
    """A rank of m that `rank` of n shares mass with, the `step`-th, and their mass in units of 1 / (n m).

    Rank i of n reaches from i m to (i + 1) m and rank j of m from j n to (j + 1) n: integers are exact.
    """
    partner = rank * m // n + step
    start = tl.maximum(rank * m, partner * n)
    stop = tl.minimum((rank + 1) * m, (partner + 1) * n)
    shared = (rank < n) & (partner < m) & (start < stop)
    return tl.minimum(partner, m - 1), tl.where(shared, stop - start, 0)


@triton.jit
def _matched(a, b, n, m, steps, P: tl.constexpr, SLOPES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """What each sorted number of `a (ROWS, BLOCK)` pays in all its pairs with `b`, and the slope of that.

    In units of 1 / (n m). No two programs write to the same place, so that the sums are always the same.
    """
    rank = tl.arange(0, BLOCK)[None, :]
    costs = tl.zeros([ROWS, BLOCK], dtype=tl.float64)
    slopes = tl.zeros([ROWS, BLOCK], dtype=tl.float64)
    for step in range(steps):
        partner, mass = _partner(rank, step, n, m)
        difference = a - tl.gather(b, tl.broadcast_to(partner, [ROWS, BLOCK]), axis=1)
        # Padding is NaN: it must not even be multiplied by 0.
        costs += tl.where(mass > 0, mass * _cost(difference, P), 0.0)
        if SLOPES:
            slopes += tl.where(mass > 0, mass * _slope(difference, P), 0.0)
    return costs, slopes


@triton.jit(do_not_specialize=["n_rows"])
def _score_kernel(
    px,
    py,
    scores,
    n_rows,
    n,
    m,
    EQUAL: tl.constexpr,
    P: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x = _sorted_values(px, row, n_rows, n, BLOCK)
    y = _sorted_values(py, row, n_rows, m, BLOCK)
    if EQUAL:
        costs = tl.where(tl.arange(0, BLOCK)[None, :] < n, _cost(x - y, P), 0.0)
        unit = 1.0 / tl.full([ROWS], n, tl.float64)
    else:
        # The longer row comes first: a number of it shares mass with two others at most.
        costs, _ = _matched(x, y, n, m, 2, P, False, ROWS, BLOCK)
        unit = 1.0 / tl.full([ROWS], n * m, tl.float64)
    tl.store(scores + row, unit * tl.sum(costs, axis=1), mask=row < n_rows)


@triton.jit(do_not_specialize=["n_rows", "x_steps", "y_steps"])
def _slope_kernel(
    px,
    py,
    scores,
    x_slopes,
    y_slopes,
    n_rows,
    n,
    m,
    x_steps,
    y_steps,
    factor,
    EQUAL: tl.constexpr,
    P: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x, x_place = _sorted_with_places(px, row, n_rows, n, BLOCK)
    y, y_place = _sorted_with_places(py, row, n_rows, m, BLOCK)
    live = (row < n_rows)[:, None]
    x_live = live & (tl.arange(0, BLOCK)[None, :] < n)
    y_live = live & (tl.arange(0, BLOCK)[None, :] < m)
    if EQUAL:
        costs = tl.where(x_live, _cost(x - y, P), 0.0)
        x_slope = _slope(x - y, P)
        y_slope = -x_slope
        unit = factor / tl.full([ROWS], n, tl.float64)
    else:
        costs, x_slope = _matched(x, y, n, m, x_steps, P, True, ROWS, BLOCK)
        _, y_slope = _matched(y, x, m, n, y_steps, P, True, ROWS, BLOCK)
        unit = factor / tl.full([ROWS], n * m, tl.float64)
    tl.store(scores + row, unit * tl.sum(costs, axis=1), mask=row < n_rows)
    start = row.to(tl.int64)[:, None]
    tl.store(x_slopes + start * n + x_place, unit[:, None] * x_slope, mask=x_live)
    tl.store(y_slopes + start * m + y_place, unit[:, None] * y_slope, mask=y_live)


class _Shape(NamedTuple):
    grid: tuple[int]
    options: dict[str, Any]


def _shape(n_rows: int, n: int, m: int, p: float) -> _Shape:
    """How the rows are cut into programs."""
    # Rows of one length: Triton 3.6 and 3.7 do not compile gathers from a row that is shorter than the index.
    block = max(2, triton.next_power_of_2(max(n, m)))
    shared = triton.next_power_of_2(max(1, n_rows // _ENOUGH_PROGRAMS))
    rows = max(1, min(_TILE_ITEMS // block, shared))
    options = {
        "EQUAL": n == m,
        "P": float(p),
        "ROWS": rows,
        "BLOCK": block,
        "num_warps": max(1, min(8, rows * block // _WARP_ITEMS)),
    }
    return _Shape((triton.cdiv(n_rows, rows),), options)


def score_rows(px: Any, py: Any, p: float) -> Any:
    """Costs on the line of `px (rows, n)` against `py (rows, m)`, float32; float64 `(rows,)`."""
    if px.shape[1] < py.shape[1]:
        px, py = py, px
    (n_rows, n), m = px.shape, py.shape[1]
    scores = torch.empty(n_rows, dtype=torch.float64, device=px.device)
    if n_rows:
        shape = _shape(n_rows, n, m, p)
        with on_device_of(px):
            _score_kernel[shape.grid](px.contiguous(), py.contiguous(), scores, n_rows, n, m, **shape.options)
    return scores


def slope_rows(px: Any, py: Any, p: float, factor: float) -> tuple[Any, Any, Any]:
    """`factor` times :func:`score_rows`, and its derivatives by `px` and by `py`."""
    (n_rows, n), m = px.shape, py.shape[1]
    scores = torch.empty(n_rows, dtype=torch.float64, device=px.device)
    slopes = tuple(torch.empty(a.shape, dtype=a.dtype, device=a.device) for a in (px, py))
    if n_rows:
        shape = _shape(n_rows, n, m, p)
        # A number of one row meets at most so many of the other.
        steps = m // n + 2, n // m + 2
        with on_device_of(px):
            _slope_kernel[shape.grid](
                px.contiguous(),
                py.contiguous(),
                scores,
                *slopes,
                n_rows,
                n,
                m,
                *steps,
                float(factor),
                **shape.options,
            )
    return scores, *slopes
