"""Whole steps: a request that kernels carry out in one go, for losses that repeat it on clouds of one shape.

Elsewhere passes over the directions do it (:mod:`orthoslice.estimates.passes`). This is where one or the other
is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from orthoslice.backend.arrays import Array, Operation, Tensor, full_precision, is_captured
from orthoslice.backend.kernels import cuda
from orthoslice.backend.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal
from orthoslice.check.inputs import weights_tolerance
from orthoslice.costs.scores import Exact, Sliced
from orthoslice.couplings.coupling import unreadable_nan
from orthoslice.directions import Given
from orthoslice.directions.drawing import has_kernels
from orthoslice.estimates.device_step import hadamard_refusal, make_hadamard_step
from orthoslice.estimates.request import Request

if TYPE_CHECKING:
    from orthoslice.backend.kernels.cuda.weighted import ScaledWeights

# What the kernels take; half precision is made single on the way in.
_TYPES = ("float32", "float16", "bfloat16")

WholeStep: TypeAlias = Callable[..., tuple[Tensor, Tensor | None]]
"""Takes the loss, x, y, directions as rows, the count of steps to move on or None, and the wanted gradients.

Those of Hadamard blocks are not drawn yet: a key and the step that it is folded with, or None, stand for them.

Where points have weights, those of x and of y come last: `(n,)` and `(m,)`, or None for points of equal mass.
Returns the mean cost of the directions, and the wanted gradients by x and y, one below the other, or None. It
reads `target` and `caches` of the loss, and keeps no reference to it.
"""

whole_step: Operation[WholeStep | None] = Operation("whole_step")
"""whole_step(request, x, y, count, is_fixed, is_weighted) -> WholeStep, or None where passes do it.

`x (n, dim)` and `y (m, dim)` have the shape, type and device of all clouds to come, `count` is the count of
steps, on the device of the loss, `is_fixed` says whether `y` and the directions stay the same, and
`is_weighted` whether points have weights.
"""


def _drawn_refusal(request: Request, x: Array, y: Array, count: Array) -> str | None:
    if not (isinstance(request.sampler, Given) or has_kernels(request.sampler)):
        return "it takes independent, orthogonal or given directions"
    return _clouds_refusal(x, y, count)


def _clouds_refusal(x: Array, y: Array, count: Array) -> str | None:
    if any(str(a.dtype).removeprefix("torch.") not in _TYPES for a in (x, y)):
        return "it takes single and half precision"
    if not x.device == y.device == count.device:
        return "it takes clouds on the device of the loss"
    return cuda_refusal(count, dtype="int64")


def _lines_refusal(request: Request, x: Array, y: Array, count: Array) -> str | None:
    if not isinstance(request.score, Sliced):
        return "it prices pairs on their own line"
    if max(x.shape[0], y.shape[0]) > LONGEST_CUDA_ROW:
        return f"it takes clouds of at most {LONGEST_CUDA_ROW} points"
    return _drawn_refusal(request, x, y, count)


def _sliced_refusal(
    request: Request, x: Array, y: Array, count: Array, is_fixed: bool, is_weighted: bool
) -> str | None:
    if is_weighted:
        return "it takes points of equal mass"
    return _lines_refusal(request, x, y, count)


@whole_step.implementation("cuda sliced", _sliced_refusal)
def _sliced_step(
    request: Request, x: Array, y: Array, count: Array, is_fixed: bool, is_weighted: bool
) -> WholeStep:
    from orthoslice.backend.kernels.cuda.loss import (
        is_target_worth_sorting,
        sliced_loss,
        small_step,
        sort_target,
    )

    p, memory, slices = request.p, request.memory, request.layout.n_directions
    if not (is_fixed and is_target_worth_sorting(x, y, slices)):
        small = small_step(x, y, slices, p, memory)
        if small is not None:
            return lambda loss, *arguments: small(*arguments)

    def run(
        loss: Any, x: Tensor, y: Tensor, theta: Tensor, count: Tensor, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None]:
        with full_precision(x):
            target = None
            if is_fixed and not wanted[1]:
                target = loss.caches.sorted_target.get_or_make(sort_target, loss.target, theta)
            return sliced_loss(x, y, theta, target, p, wanted, memory, count)

    return run


def _hadamard_refusal(
    request: Request, x: Array, y: Array, count: Array, is_fixed: bool, is_weighted: bool
) -> str | None:
    if is_weighted:
        return "it takes points of equal mass"
    if not isinstance(request.score, Sliced):
        return "it prices pairs on their own line"
    # Of devices other than NVIDIA's no room on chip is known.
    return _clouds_refusal(x, y, count) or hadamard_refusal(request, x, y)


@whole_step.implementation("cuda hadamard", _hadamard_refusal)
def _hadamard_step(
    request: Request, x: Tensor, y: Tensor, count: Array, is_fixed: bool, is_weighted: bool
) -> WholeStep:
    step = make_hadamard_step(request, x, y)
    return lambda loss, *arguments: step(*arguments)[:2]


def _weighted_refusal(
    request: Request, x: Array, y: Array, count: Array, is_fixed: bool, is_weighted: bool
) -> str | None:
    if not is_weighted:
        return "it takes points with weights"
    return _lines_refusal(request, x, y, count)


@whole_step.implementation("cuda weighted", _weighted_refusal)
def _weighted_step(
    request: Request, x: Array, y: Array, count: Array, is_fixed: bool, is_weighted: bool
) -> WholeStep:
    from orthoslice.backend.kernels.cuda.loss import small_weighted_step, weighted_loss

    p, memory = request.p, request.memory
    small = small_weighted_step(x, y, request.layout.n_directions, p, memory)

    def run(
        loss: Any,
        x: Tensor,
        y: Tensor,
        theta: Tensor,
        count: Tensor,
        wanted: tuple[bool, bool],
        weights: tuple[Tensor | None, Tensor | None],
    ) -> tuple[Tensor, Tensor | None]:
        if is_captured(x):
            # Weights may change from one run of a graph to the next.
            scaled = _scaled(x, weights)
        else:
            # Those that stay the same are looked through once a stream.
            given = [w for w in weights if w is not None]
            stream = cuda.current_stream(x.get_device())
            kept = loss.caches.weights_of(weights[0] is None, weights[1] is None, stream)
            scaled = kept.get_or_make(lambda *_: _scaled(x, weights), *given)
        if small is not None:
            return small(x, y, theta, count, wanted, scaled)
        with full_precision(x):
            return weighted_loss(x, y, theta, scaled, p, wanted, memory, count)

    return run


def _scaled(x: Tensor, weights: tuple[Tensor | None, Tensor | None]) -> ScaledWeights:
    from orthoslice.backend.kernels.cuda.weighted import scale_weights

    tolerances = [0.0 if w is None else weights_tolerance(w, x) for w in weights]
    of_x, of_y = (w if w is None or w.itemsize >= 4 else w.float() for w in weights)
    return scale_weights(of_x, of_y, (tolerances[0], tolerances[1]), x)


def _projected_refusal(
    request: Request, x: Array, y: Array, count: Array, is_fixed: bool, is_weighted: bool
) -> str | None:
    if is_weighted:
        return "it takes points of equal mass"
    if not isinstance(request.score, Exact):
        return "it prices pairs by their full distance"
    if x.shape != y.shape or x.shape[0] > LONGEST_CUDA_ROW:
        return f"it takes clouds of equal size, at most {LONGEST_CUDA_ROW} points"
    return _drawn_refusal(request, x, y, count)


@whole_step.implementation("cuda projected", _projected_refusal)
def _projected_step(
    request: Request, x: Tensor, y: Tensor, count: Tensor, is_fixed: bool, is_weighted: bool
) -> WholeStep:
    from orthoslice.backend.kernels.cuda.projected import ProjectedStep

    (n, dim), slices = x.shape, request.layout.n_directions
    step = ProjectedStep(x.get_device(), n, dim, slices, request.p, request.memory)
    is_given = isinstance(request.sampler, Given)

    def run(
        loss: Any, x: Tensor, y: Tensor, theta: Tensor, count: Tensor, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None]:
        # Orders do not propagate the NaN of a bad given direction.
        nan_or_zero = loss.caches.nan_of_bad_rows.get_or_make(_nan_of, theta) if is_given else None
        return step(x, y, theta, nan_or_zero, count, wanted)

    return run


def _nan_of(theta: Array) -> Array | None:
    """A scalar that is NaN if a direction is; None for directions that were checked before."""
    found = unreadable_nan(theta)
    return None if isinstance(found, float) else found


@whole_step.implementation("passes", lambda *_: None)
def _no_step(*_: object) -> None:
    return None
