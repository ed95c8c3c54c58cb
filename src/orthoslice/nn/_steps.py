"""What the losses keep from step to step, and how a step's gradients reach torch's tape."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from orthoslice.arrays.autodiff import first_derivative


class Plan(NamedTuple):
    """How to make a step with clouds of one shape; does not hold the loss, whose copies share their plans."""

    is_single: bool
    """Whether both are in single precision."""
    directions: Callable[[Any, int | None], tuple[Any, Any]]
    """Of the loss and a seed, or None for the next step: rows, and the step to move on unless it is None."""
    run: Callable[..., tuple[Any, Any]]
    """Of the loss, x, y, theta, step and which gradients are wanted: the value and those gradients."""


def is_captured(tensor: torch.Tensor) -> bool:
    """Whether what is launched for a tensor goes into a CUDA graph."""
    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())


class Kept:
    """What was worked out from tensors, kept until one of them changes or another takes its place."""

    def __init__(self) -> None:
        # Replaced as a whole, since copies of a loss in other threads may look.
        self._kept: tuple[tuple[torch.Tensor, ...], list[int], Any] = (), [], None

    def of(self, make: Callable[..., Any], *sources: torch.Tensor) -> Any:
        """`make(*sources)`, worked out again only if it has to be."""
        # Tensors of inference mode count no versions, and cannot be changed outside of it.
        versions = [0 if s.is_inference() else s._version for s in sources]
        before, versions_before, result = self._kept
        if versions == versions_before and all(map(operator.is_, sources, before)):
            return result
        with torch.inference_mode(False):
            result = make(*sources)
        # What is captured in a graph is not there before the graph runs: others must not find it.
        if not is_captured(sources[0]):
            self._kept = sources, versions, result
        return result


class WithGradients(torch.autograd.Function):  # type: ignore[misc]
    """A value whose gradients were worked out on the way forward."""

    @staticmethod
    def forward(ctx: Any, run: Any, options: Any, x: Any, y: Any) -> Any:
        value, gradient = run(x, y, *options, ctx.needs_input_grad[2:])
        ctx.save_for_backward(x, y, gradient)
        return value

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        x, y, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            gradient = first_derivative(gradient, x, y)
        pulled = cotangent * gradient
        _, _, wanted_x, wanted_y = ctx.needs_input_grad
        if wanted_x and wanted_y:
            return None, None, pulled[: x.shape[0]], pulled[x.shape[0] :]
        return None, None, pulled if wanted_x else None, pulled if wanted_y else None
