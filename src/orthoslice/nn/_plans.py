"""Plans: how kernels make a whole step with clouds of one shape, and where its directions come from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch

from orthoslice.backend.arrays import HostArray, Key, Operation, is_captured
from orthoslice.backend.kernels.cuda.directions import DrawnAhead
from orthoslice.backend.kernels.cuda.hadamard_step import Drawing
from orthoslice.backend.threads import single_threaded_blas
from orthoslice.check.options import check_directions
from orthoslice.clouds.cloud import Cloud
from orthoslice.directions import Given
from orthoslice.directions.drawing import Blocks, draw_compiled_blocks, draw_compiled_rows
from orthoslice.estimates.fused import WholeStep
from orthoslice.estimates.host_step import HostStep

if TYPE_CHECKING:
    from orthoslice.nn._loss import Loss

# Products of at most as many multiplications are made by one thread of OpenBLAS anyway.
_MADE_BY_ONE = 1 << 22

Drawn = tuple[torch.Tensor | Drawing, torch.Tensor | None]
"""Directions as rows, or what to draw them from; and the step of the loss that they are of, or None where a
seed was given."""


StepOutcome: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"""The value of a step, and its gradients by x and y, one below the other, where they were wanted."""


Taken: TypeAlias = tuple[()] | tuple[HostArray, HostArray]
"""Both clouds as NumPy's views of host memory, or nothing where kernels read tensors on a device."""


class StepPlan(NamedTuple):
    """How to make a step with clouds of one shape; does not hold the loss, whose copies share their plans."""

    is_half: bool
    """Whether one of them is in half precision, and both are made single."""
    take: Callable[[torch.Tensor, torch.Tensor], Taken | None]
    """These clouds as `run` reads them; None where the driver takes them instead."""
    directions: Callable[[Loss, int | None], Drawn]
    """Takes the loss and a seed, or None for its own step."""
    run: WholeStep


def run_to_distance(run: WholeStep, p: float, *arguments: object) -> StepOutcome:
    """As a whole step, for the p-th root of its value."""
    value, gradient = run(*arguments)
    distance = value ** (1 / p)
    if gradient is not None:
        # At equal clouds the root and the gradient are 0, and so is their product if nothing divides by 0.
        gradient.mul_(distance / (p * value.clamp_min(torch.finfo(value.dtype).tiny)))
    return distance, gradient


def take_on_device(x: torch.Tensor, y: torch.Tensor) -> Taken:
    """Kernels on a device look at values on the way."""
    return ()


def take_on_host(step: HostStep, x: torch.Tensor, y: torch.Tensor) -> Taken | None:
    """Both clouds, if they are finite, near the origin and of a usual extent."""
    tables = _as_table(x), _as_table(y)
    return tables if step.are_fit(*tables) and not Operation.is_any_forced() else None


def _as_table(points: torch.Tensor) -> HostArray:
    """NumPy's view of a tensor in host memory; a copy if its rows do not follow each other there."""
    table: HostArray = points.detach().numpy()
    return table if table.flags.c_contiguous else np.ascontiguousarray(table)


def run_on_host(
    step: HostStep,
    dtype: torch.dtype,
    _loss: object,
    x: HostArray,
    y: HostArray,
    theta: HostArray,
    count: torch.Tensor,
    wanted: tuple[bool, bool],
) -> StepOutcome:
    """A whole step of tensors in host memory."""
    gradient = None
    # Threads of torch look for more work for a while after an operation; those of BLAS would wait for them.
    is_large = len(theta) * max(x.size, y.size) > _MADE_BY_ONE
    with single_threaded_blas() if is_large else nullcontext():
        if wanted[0] or wanted[1]:
            mean, table = step.mean_and_gradients(x, y, theta, wanted)
            gradient = torch.from_numpy(table)
        else:
            scores = step.scores(x, y, theta)
            mean = float(np.add.reduce(scores)) / len(scores)
    if count is not None:
        # In NumPy's view, since an operation of torch takes as long as a small sort.
        count.numpy()[...] += 1
    return torch.scalar_tensor(mean, dtype=dtype, device="cpu"), gradient


def draw_on_host(
    draw: Callable[..., Any], blocks: list[Blocks], slices: int, by_factors: bool, loss: Any, rng: int | None
) -> tuple[HostArray, torch.Tensor | None]:
    """As many directions out of these blocks, as rows in host memory, and the step that they are of.

    Or factors of all blocks, which are one request.
    """
    key, step = loss._key(rng)
    high, low = key.high.numpy(), key.low.numpy()
    number = None if step is None else step.numpy()
    if by_factors:
        return draw(blocks[0]._replace(key=Key(high, low), step=number)).signs, step
    if draw is draw_compiled_blocks and len(blocks) == 1:
        return draw_compiled_rows(blocks[0], high, low, number, slices), step
    parts = [draw(own._replace(key=Key(high, low), step=number)).theta for own in blocks]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts))[:slices], step


def given_on_host(loss: Loss, rng: int | None) -> tuple[HostArray, torch.Tensor | None]:
    """Given directions, as :func:`given_directions` for tensors in host memory."""
    theta = loss.caches.checked_theta.get_or_make(_checked_table, loss._buffers["theta"])
    return theta, loss._buffers["step"] if rng is None else None


def given_directions(loss: Loss, rng: int | None) -> Drawn:
    """Directions that stay the same, as rows, and the step that they are used in."""
    theta = loss.caches.checked_theta.get_or_make(_checked_rows, loss._buffers["theta"])
    return theta, loss._buffers["step"] if rng is None else None


def leave_undrawn(loss: Loss, rng: int | None) -> Drawn:
    """The key, and the step that it is folded with, where kernels draw on the way; and the step."""
    key, step = loss._key(rng)
    return (key, step), step


def draw_step(draw: Callable[..., Any], blocks: Blocks, slices: int, loss: Loss, rng: int | None) -> Drawn:
    """As many directions out of these blocks, as rows, and the step that they are of."""
    key, step = loss._key(rng)
    theta = draw(blocks._replace(key=key, step=step)).theta
    return theta if theta.shape[0] == slices else theta[:slices], step


def draw_steps_ahead(
    ahead: DrawnAhead, draw: Callable[[Loss, int | None], Drawn], loss: Loss, rng: int | None
) -> Drawn:
    """The same, made together with those of other steps."""
    key, step = loss._key(rng)
    # A graph may outlive what is held here.
    if step is None or is_captured(step) or not ahead.is_in_order():
        drawn: Drawn = draw(loss, rng)
        return drawn
    return ahead(key, step), step


def at_least_single(theta: torch.Tensor) -> torch.Tensor:
    """Given directions in single precision at least; rounding to half precision has changed their length."""
    if theta.dtype not in (torch.float16, torch.bfloat16):
        return theta
    return torch.nn.functional.normalize(theta.float(), dim=-1)


def _checked_rows(theta: torch.Tensor) -> torch.Tensor:
    """Given directions as the kernels take them, with NaN for rows that are not of unit length."""
    return _checked(at_least_single(theta).float())


def _checked_table(theta: torch.Tensor) -> HostArray:
    """Given directions in host memory, or an error for rows that are not of unit length."""
    return _as_table(_checked(theta))


def _checked(theta: torch.Tensor) -> torch.Tensor:
    checked = check_directions(theta, Cloud(theta[:1]))
    assert isinstance(checked, Given)
    return checked.theta
