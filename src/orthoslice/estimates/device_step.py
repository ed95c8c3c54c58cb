"""Sliced distances of clouds on an NVIDIA GPU, by the kernels that make the steps of a loss.

The general way launches a dozen small kernels for checks, centres and sums, each of which takes the host longer
than the GPU needs for a few thousand points.
"""

from __future__ import annotations

import math
import sys
from typing import cast

from orthoslice.backend.arrays import DIRECTIONS, STEPS, Array, Key, Outcome, Tensor, Wanted, full_precision
from orthoslice.backend.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal
from orthoslice.backend.kernels.cuda.hadamard import BlockShape, room_refusal
from orthoslice.backend.kernels.cuda.hadamard_step import HadamardStep
from orthoslice.backend.kernels.cuda.loss import (
    BYTES_DEALT,
    is_small_distance,
    match_clouds,
    small_distance,
)
from orthoslice.backend.kernels.cuda.products import product
from orthoslice.backend.kernels.cuda.rows import add_up, far_centre, finish_step, match_rows
from orthoslice.check.options import row_check
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Given, HadamardRademacher
from orthoslice.directions.drawing import has_kernels
from orthoslice.directions.spheres import mean_shortening
from orthoslice.estimates.request import Request


def hadamard_refusal(request: Request, x: Tensor, y: Tensor) -> str | None:
    """Why no kernels make a sliced distance on Hadamard blocks as a whole, or None if they do."""
    if type(request.sampler) is not HadamardRademacher:
        return "it takes Hadamard directions"
    if max(x.shape[0], y.shape[0]) > LONGEST_CUDA_ROW:
        return f"it takes clouds of at most {LONGEST_CUDA_ROW} points"
    return room_refusal(x.get_device(), request.sampler.ambient_dim(x.shape[-1]), 4)


def make_hadamard_step(request: Request, x: Tensor, y: Tensor) -> HadamardStep:
    """The step for clouds of these shapes, which :func:`hadamard_refusal` does not refuse."""
    sampler, layout, (n, dim) = request.sampler, request.layout, x.shape
    assert isinstance(sampler, HadamardRademacher)
    columns = sampler.ambient_dim(dim)
    rows, paired = layout.longest_block, sampler.is_paired(dim)
    blocks = BlockShape(layout.n_blocks, rows, sampler.rounds, columns, paired)
    slices, p = layout.n_directions, request.p
    factor = 1 / (slices * mean_shortening(dim, columns, p))
    sizes = n, y.shape[0], dim
    return HadamardStep(x.get_device(), sizes, blocks, slices, p, factor, request.memory, STEPS, DIRECTIONS)


def device_step_refusal(request: Request, x: Tensor, y: Tensor) -> str | None:
    """Why :class:`DeviceStep` cannot carry out a request for torch clouds like these, or None if it can."""
    if type(request.score) is not Sliced or request.control is not None or request.adaptive:
        return "it takes sliced distances of a given number of directions, without a control variate"
    if max(x.shape[-2], y.shape[-2]) > LONGEST_CUDA_ROW:
        return f"it takes clouds of at most {LONGEST_CUDA_ROW} points"
    refusal = cuda_refusal(x.detach(), y.detach())
    if type(request.sampler) is HadamardRademacher and x.ndim == 2:
        return refusal or hadamard_refusal(request, x, y)
    if not (isinstance(request.sampler, Given) or has_kernels(request.sampler)):
        return "it takes independent, orthogonal or given directions, and single clouds on Hadamard ones"
    rows = request.layout.n_directions * math.prod(x.shape[:-2])
    if refusal is not None or is_small_distance(x, y, request.layout.n_directions, request.memory):
        return refusal
    if BYTES_DEALT * rows * (x.shape[-2] + y.shape[-2]) > request.memory:
        return "it holds the projections on all directions, which take more than `memory`"
    return None


class DeviceStep:
    """SW_p^p of clouds `x (..., n, dim)` and `y (..., m, dim)` of float32 tensors, and its gradients."""

    is_drawing = False
    """Whether `compute` takes a key in the place of directions."""

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
            gradient = None
            if any(wanted):
                value, gradient = finish_step(matched, theta, share=1 / self._slices)
            else:
                value = add_up(matched.scores, share=1 / self._slices)
        return Outcome(value, (matched.scores,), _split_gradient(gradient, inputs, wanted))

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


class HadamardDeviceStep:
    """The same of single clouds on Hadamard blocks, which kernels draw on the way."""

    is_drawing = True

    def __init__(self, request: Request, x: Tensor, y: Tensor) -> None:
        self._step, self._slices = make_hadamard_step(request, x, y), request.layout.n_directions

    def compute(self, _request: object, inputs: tuple[Tensor, ...], key: Key, wanted: Wanted) -> Outcome:
        """As of :class:`DeviceStep`, with blocks of this key."""
        x, y = inputs[:2]
        value, gradient, costs = self._step(x, y, (key, None), None, (wanted[0], wanted[1]))
        scores = costs[: 2 * self._slices].view(sys.modules["torch"].float64) * self._slices
        return Outcome(value, (scores,), _split_gradient(gradient, inputs, wanted))


def _split_gradient(
    gradient: Tensor | None, inputs: tuple[Tensor, ...], wanted: Wanted
) -> tuple[Array | None, ...]:
    """Gradients by the wanted clouds, which are below each other in one, and none by weights."""
    parts: list[Array | None] = [None] * 4
    if gradient is not None:
        sides = [k for k in range(2) if wanted[k]]
        for k, part in zip(sides, gradient.split([inputs[k].shape[0] for k in sides]), strict=True):
            parts[k] = part
    return tuple(parts)


def make_device_step(request: Request, x: Tensor, y: Tensor) -> DeviceStep | HadamardDeviceStep:
    """The step for clouds of these shapes, which :func:`device_step_refusal` does not refuse."""
    if isinstance(request.sampler, HadamardRademacher):
        return HadamardDeviceStep(request, x, y)
    return DeviceStep(request, x, y)
