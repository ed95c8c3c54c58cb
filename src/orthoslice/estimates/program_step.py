"""Sliced distances of small clouds within programs of JAX on a GPU, where launches take the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from orthoslice.backend.arrays import Key, Operation, Outcome, Wanted, is_traced, library, wide_float
from orthoslice.backend.kernels import xla_launches
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import scaling_rule
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Given
from orthoslice.directions.drawing import has_kernels
from orthoslice.estimates.request import Request


def program_step_refusal(request: Request, x: Any, y: Any) -> str | None:
    """Why :func:`program_step` cannot carry out a request for these clouds, or None if it can."""
    if library(x.points) != "jax" or not is_traced(x.points) or Operation.is_any_forced():
        return "it takes clouds within programs of JAX"
    if x.weights is not None or y.weights is not None or type(request.score) is not Sliced:
        return "it takes sliced distances of clouds without weights"
    if request.control is not None or request.adaptive or request.steady or request.share is not None:
        return "it takes a given number of directions, without a control variate"
    if not (isinstance(request.sampler, Given) or has_kernels(request.sampler)):
        return "it takes independent, orthogonal or given directions"
    return xla_launches.small_refusal(x.points, y.points, request.layout.n_directions, request.memory)


def program_step(
    request: Request, x: Cloud, y: Cloud, key: Key, wanted: Wanted, general: Callable[..., Outcome]
) -> Outcome:
    """What `general(request, x, y, key, wanted)` finds."""
    # Plans load the driver, which loads this.
    from orthoslice.estimates.plan import draw_all

    is_given = isinstance(request.sampler, Given)
    theta = draw_all(request.sampler, request.layout, x.dim, x.dtype, key)

    def plain(a: Any, b: Any, rows: Any, key: Key) -> tuple[Any, ...]:
        asked = replace(request, sampler=Given(theta=rows)) if is_given else request
        found = general(asked, Cloud(a), Cloud(b), key, wanted)
        return (found.value, *found.extra, *(g for g in found.gradients if g is not None))

    scaling = scaling_rule(32, x.dim, request.p) if request.scaled_on_device else None
    sides = wanted[0], wanted[1]
    value, *found = xla_launches.small_step(
        x.points, y.points, theta, request.p, sides, scaling, wide_float(x.points), plain, key
    )
    n_extra = 1 + request.scaled_on_device
    gradients = iter(found[n_extra:])
    return Outcome(value, tuple(found[:n_extra]), tuple(next(gradients) if want else None for want in wanted))
