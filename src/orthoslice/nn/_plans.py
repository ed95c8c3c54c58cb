"""Plans: how kernels make a whole step with clouds of one shape, and where its directions come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from orthoslice.backend.arrays import is_captured
from orthoslice.backend.kernels.cuda.directions import DrawnAhead
from orthoslice.check.options import check_directions
from orthoslice.clouds.cloud import Cloud
from orthoslice.directions import Given
from orthoslice.directions.drawing import Blocks
from orthoslice.estimates.fused import WholeStep

Drawn = tuple[torch.Tensor, torch.Tensor | None]
"""Directions as rows, and the step of the loss that they are of, or None where a seed was given."""


class Plan(NamedTuple):
    """How to make a step with clouds of one shape; does not hold the loss, whose copies share their plans."""

    is_single: bool
    """Whether both are in single precision."""
    directions: Callable[[Any, int | None], Drawn]
    """Takes the loss and a seed, or None for its own step."""
    run: WholeStep


def run_to_distance(run: WholeStep, p: float, *arguments: Any) -> tuple[Any, Any]:
    """As a whole step, for the p-th root of its value."""
    value, gradient = run(*arguments)
    distance = value ** (1 / p)
    if gradient is not None:
        # At equal clouds the root and the gradient are 0, and so is their product if nothing divides by 0.
        gradient.mul_(distance / (p * value.clamp_min(torch.finfo(value.dtype).tiny)))
    return distance, gradient


def given_directions(loss: Any, rng: int | None) -> Drawn:
    """Directions that stay the same, as rows, and the step that they are used in."""
    theta = loss.caches.checked_theta.get_or_make(_checked_rows, loss._buffers["theta"])
    return theta, loss._buffers["step"] if rng is None else None


def draw_step(draw: Any, blocks: Blocks, slices: int, loss: Any, rng: int | None) -> Drawn:
    """As many directions out of these blocks, as rows, and the step that they are of."""
    stream, step = loss._key(rng)
    theta = draw(blocks._replace(stream=stream, step=step)).theta
    return theta if theta.shape[0] == slices else theta[:slices], step


def draw_steps_ahead(ahead: DrawnAhead, draw: Any, loss: Any, rng: int | None) -> Drawn:
    """The same, made together with those of other steps."""
    stream, step = loss._key(rng)
    # A graph may outlive what is held here.
    if step is None or is_captured(step) or not ahead.is_in_order():
        drawn: Drawn = draw(loss, rng)
        return drawn
    return ahead(stream, step), step


def at_least_single(theta: Any) -> torch.Tensor:
    """Given directions in single precision at least; rounding to half precision has changed their length."""
    if theta.dtype not in (torch.float16, torch.bfloat16):
        return theta
    return torch.nn.functional.normalize(theta.float(), dim=-1)


def _checked_rows(theta: torch.Tensor) -> torch.Tensor:
    """Given directions as the kernels take them, with NaN for rows that are not of unit length."""
    single = at_least_single(theta).float()
    checked = check_directions(single, Cloud(single[:1]))
    assert isinstance(checked, Given)
    return checked.theta
