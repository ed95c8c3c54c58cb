"""Sliced distances of clouds on an NVIDIA GPU, by the kernels that make the steps of a loss.

The general way launches a dozen small kernels for checks, centres and sums, each of which takes the host longer
than the GPU needs for a few thousand points.
"""

from __future__ import annotations

import math
from typing import cast

from orthoslice.backend.arrays import Array, Outcome, Tensor, Wanted, full_precision
from orthoslice.backend.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal
from orthoslice.backend.kernels.cuda.loss import (
    BYTES_A_NUMBER,
    is_small_distance,
    match_clouds,
    small_distance,
)
from orthoslice.backend.kernels.cuda.products import product
from orthoslice.backend.kernels.cuda.rows import add_up, far_centre, finish_step, match_rows
from orthoslice.check.options import row_check
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Given
from orthoslice.directions.drawing import has_kernels
from orthoslice.estimates.request import Request


def device_step_refusal(request: Request, x: Tensor, y: Tensor) -> str | None:
    """Why :class:`DeviceStep` cannot carry out a request for torch clouds like these, or None if it can."""
    if type(request.score) is not Sliced or request.control is not None or request.adaptive:
        return "it takes sliced distances of a given number of directions, without a control variate"
    if not (isinstance(request.sampler, Given) or has_kernels(request.sampler)):
        return "it takes independent, orthogonal or given directions"
    if max(x.shape[-2], y.shape[-2]) > LONGEST_CUDA_ROW:
        return f"it takes clouds of at most {LONGEST_CUDA_ROW} points"
    rows = request.layout.n_directions * math.prod(x.shape[:-2])
    refusal = cuda_refusal(x.detach(), y.detach())
    if refusal is not None or is_small_distance(x, y, request.layout.n_directions, request.memory):
        return refusal
    if BYTES_A_NUMBER * rows * (x.shape[-2] + y.shape[-2]) > request.memory:
        return "it holds the projections on all directions, which take more than `memory`"
    return None


class DeviceStep:
    """SW_p^p of clouds `x (..., n, dim)` and `y (..., m, dim)` of float32 tensors, and its gradients."""

    def __init__(self, request: Request, x: Tensor, y: Tensor) -> None:
        self._p, self._slices = request.p, request.layout.n_directions
        self.checked = row_check(x)
        """Makes rows of given directions NaN that are not of unit length."""
        is_small = is_small_distance(x, y, self._slices, request.memory)
        self._small = small_distance(x, self._slices, self._p) if is_small else None

    def compute(self, _request: object, inputs: tuple[Tensor, ...], theta: Tensor, wanted: Wanted) -> Outcome:
        """The value of clouds `inputs[:2]` on the rows of `theta`, its wanted gradients, and its scores."""
        if self._small is not None:
            priced = self._small(inputs[0], inputs[1], theta, (wanted[0], wanted[1]))
            return Outcome(priced.value, (priced.scores,), (*priced.gradients, None, None))
        if inputs[0].ndim > 2:
            return self._compute_batch(inputs[0], inputs[1], theta, wanted)
        x, y, theta = (a.contiguous() for a in (inputs[0], inputs[1], theta))
        with full_precision(x):
            matched = match_clouds(x, y, theta, self._p, 1.0, (wanted[0], wanted[1]))
            gradients: list[Array | None] = [None] * 4
            if any(wanted):
                value, gradient = finish_step(matched, theta, share=1 / self._slices)
                sides = [k for k in range(2) if wanted[k]]
                parts = gradient.split([inputs[k].shape[0] for k in sides])
                for k, part in zip(sides, parts, strict=True):
                    gradients[k] = part
            else:
                value = add_up(matched.scores, share=1 / self._slices)
        return Outcome(value, (matched.scores,), tuple(gradients))

    def _compute_batch(self, x: Tensor, y: Tensor, theta: Tensor, wanted: Wanted) -> Outcome:
        batch, dim = x.shape[:-2], x.shape[-1]
        centre = far_centre(x)[..., None, :]
        with full_precision(x):
            rows = [
                cast(Tensor, product(theta, (c - centre).reshape(-1, dim).T)).view(-1, c.shape[-2])
                for c in (x, y)
            ]
            scores, *slopes = match_rows(rows[0], rows[1], self._p, 1.0, (wanted[0], wanted[1]))
            gradients: list[Array | None] = [None] * 4
            for k, side in enumerate(slopes):
                if side is not None:
                    pulled = cast(Tensor, product(side.view(self._slices, -1).T, theta))
                    gradients[k] = pulled.mul_(1 / self._slices).view(*batch, -1, dim)
        scores = scores.view(self._slices, *batch)
        return Outcome(add_up(scores, share=1 / self._slices), (scores,), tuple(gradients))
