"""Plans: what is decided once for clouds of one shape and type and for given options, and kept."""

from __future__ import annotations

import functools
import itertools
import sys
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import (
    RNG,
    Array,
    DType,
    HostArray,
    Key,
    Operation,
    Tensor,
    concat_rows,
    differentiable,
    is_captured,
    resolve_rng,
)
from orthoslice.backend.kernels.cuda import device_and_stream
from orthoslice.backend.torch_internals import are_transforms_active
from orthoslice.check.options import check_p
from orthoslice.clouds.cloud import Cloud
from orthoslice.costs.scores import Score
from orthoslice.directions import OWN, Given, Sampler, Stratified
from orthoslice.directions.drawing import Blocks, draw_blocks
from orthoslice.directions.given import GIVEN_LATER
from orthoslice.directions.layout import Layout, Run
from orthoslice.estimates.device_step import device_step_refusal, make_device_step
from orthoslice.estimates.driver import key_for, make_estimate, subject_of
from orthoslice.estimates.host_step import HostStep, are_postponed, host_step_refusal, make_host_step
from orthoslice.estimates.request import Options, Request, make_request
from orthoslice.estimates.result import Estimate, register_estimates

# Types of options that plans are looked up by. Samplers that hold arrays would be kept alive.
_PLAIN_OPTIONS = frozenset({int, float, str, type(None)})
_PLAIN_DIRECTIONS = frozenset({str}) | (OWN - {Given, Stratified})

# Directions of repeated seeds that are kept: how many sets, and numbers of a set.
_KEPT_SETS, _KEPT_NUMBERS = 16, 1 << 18

_ON_HOST = np.zeros(1)


class Plan(NamedTuple):
    """How estimates of single clouds are made as a whole."""

    request: Request
    step: Any
    """A :class:`.HostStep` for NumPy arrays, or a step for tensors on a GPU."""
    fields: dict[str, Any]
    """Those of an estimate that it makes; most are the same in all of them."""


def estimate_as_planned(name: str, score: Score, x: Any, y: Any, p: Any, given: Options) -> Estimate | None:
    """The estimate for clouds of one library without weights, where a plan makes it as a whole.

    None for all others, and for clouds that have to be moved, scaled or refused: the driver takes them.
    """
    directions, n_directions, rtol, atol, control, rng, memory, workers, progress = given
    kinds = {type(p), type(n_directions), type(control), type(memory), type(workers)}
    if not (rtol is atol is None and kinds <= _PLAIN_OPTIONS) or progress or Operation.is_any_forced():
        return None
    theta = directions if type(directions) is type(x) else None
    if theta is not None:
        directions = theta.shape, theta.dtype
    elif type(directions) not in _PLAIN_DIRECTIONS:
        return None
    on_host = type(x) is np.ndarray
    clouds = (x.shape, x.dtype, y.shape, y.dtype, None if on_host else x.device)
    options = n_directions, control, memory, workers
    plan = _plan_for(name, score, p, clouds, directions, *options, Operation.revision)
    if plan is None:
        return None
    return (_on_host if on_host else _on_device)(plan, x, y, theta, rng)


def _on_host(plan: Plan, x: HostArray, y: HostArray, theta: HostArray | None, rng: RNG) -> Estimate | None:
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    if not y.flags.c_contiguous:
        y = np.ascontiguousarray(y)
    step, sampler = plan.step, plan.request.sampler
    if theta is not None:
        scored = step.scores_if_fit(x, y, theta)
        if scored is None:
            return None
        (total, scores), sampler = scored, Given(theta=theta)
        seed = key_for(plan.request, rng, _ON_HOST)[1]
    elif not step.are_fit(x, y):
        return None
    else:
        theta, seed = _draw(step, sampler, plan.request.layout, x.shape[1], rng)
        scores = step.scores(x, y, theta)
        total = np.add.reduce(scores)
    value = x.dtype.type(total / scores.size)
    return _made(plan, value, scores, x, y, sampler, seed)


def _on_device(plan: Plan, x: Tensor, y: Tensor, theta: Tensor | None, rng: RNG) -> Estimate | None:
    if y.device != x.device or is_captured(x) or are_transforms_active():
        return None
    request, seed = plan.request, None
    sampler = request.sampler
    if theta is None:
        if plan.step.is_drawing:
            theta, seed = resolve_rng(rng, x)
        else:
            theta, seed = _draw_on_device(sampler, request.layout, x, rng)
    else:
        if theta.requires_grad or theta.device != x.device:
            return None
        theta = plan.step.checked(theta)
        sampler = Given(theta=theta)
        seed = key_for(request, rng, x)[1]
    value, (scores,) = differentiable(
        plan.step.compute, request, (x, y, None, None), theta, (2, 2, 1, 1), compilable=False
    )
    register_estimates("torch")
    return _made(plan, value, scores, x.detach(), y.detach(), sampler, seed)


def _made(
    plan: Plan, value: Array, scores: Array, x: Array, y: Array, sampler: Sampler, seed: int | None
) -> Estimate:
    made = Estimate.__new__(Estimate)
    made.__dict__.update(
        plan.fields,
        directions=sampler,
        seed=seed,
        _value=value,
        _scores=scores,
        _raw=scores,
        _subject=subject_of(plan.request, Cloud(x), plan.request.score.second(y, None)),
    )
    return made


@functools.lru_cache(maxsize=256, typed=True)
def _plan_for(
    name: str,
    score: Score,
    p: Any,
    clouds: tuple[Any, ...],
    directions: Any,
    n_directions: Any,
    control: Any,
    memory: Any,
    workers: Any,
    revision: int,
) -> Plan | None:
    """The plan for these options, or None where the driver does it. Kept until an operation changes.

    Of clouds, and of given directions, only shapes and types are known.
    """
    x_shape, dtype, y_shape, y_dtype, place = clouds
    if (
        len(x_shape) < 2
        or len(y_shape) != len(x_shape)
        or x_shape[:-2] != y_shape[:-2]
        or x_shape[-1] != y_shape[-1]
        or 0 in (*x_shape, *y_shape)
    ):
        return None
    if len(x_shape) > 2 and place is None:
        return None
    if dtype != y_dtype or str(dtype).removeprefix("torch.") not in ("float32", "float64"):
        return None
    x, y = (_filled(np.zeros(1), shape, dtype, place) for shape in (x_shape, y_shape))
    is_given = isinstance(directions, tuple)
    if is_given:
        shape, given_dtype = directions
        if len(shape) != 2 or given_dtype != dtype or shape[1] != x_shape[-1]:
            return None
        directions = _filled(np.eye(1, x_shape[-1]), shape, dtype, place)
    options = Options(directions, n_directions, None, None, control, None, memory, workers, False)
    request = make_request(name, score, Cloud(x), Cloud(y), check_p(p), options)
    return make_plan(replace(request, sampler=GIVEN_LATER) if is_given else request, x, y)


def _filled(row: HostArray, shape: tuple[int, ...], dtype: DType, place: object) -> Any:
    """An array of this shape that holds one row in memory: NumPy's, or torch's if there is a place for it."""
    if place is None:
        return np.broadcast_to(row.astype(dtype), shape)
    return sys.modules["torch"].as_tensor(row, dtype=dtype, device=place).expand(shape)


def make_plan(request: Request, x: Any, y: Any) -> Plan | None:
    """A plan for clouds like these, or None where they are scored in passes."""
    on_host = isinstance(x, np.ndarray)
    if on_host and are_postponed(request, x, y):
        return None
    if (host_step_refusal if on_host else device_step_refusal)(request, x, y) is not None:
        return None
    second = request.score.second(y, None)
    number, subject = x[(0,) * x.ndim].reshape(1), subject_of(request, Cloud(x), second)
    scores = number.repeat(request.layout.n_directions)
    like = make_estimate(request, number[0], {"scores": scores}, subject, None, 1.0)
    step = make_host_step(request, x, y) if on_host else make_device_step(request, x, y)
    return Plan(request, step, dict(vars(like)))


def _draw(step: HostStep, sampler: Sampler, layout: Layout, dim: int, rng: RNG) -> tuple[HostArray, int | None]:
    """All directions as a step takes them, and the seed that repeats them."""
    meant = sampler, layout, dim, step.directions_dtype, step.by_factors
    if type(rng) is int and 0 <= rng < 1 << 64 and layout.n_directions * dim <= _KEPT_NUMBERS:
        return _drawn_before(*meant, rng), rng
    key, seed = resolve_rng(rng, _ON_HOST)
    return _drawn(*meant, key), seed


@functools.lru_cache(maxsize=_KEPT_SETS)
def _drawn_before(
    sampler: Sampler, layout: Layout, dim: int, dtype: DType, by_factors: bool, seed: int
) -> HostArray:
    return _drawn(sampler, layout, dim, dtype, by_factors, Key.from_seed(seed, _ON_HOST))


def _drawn(sampler: Sampler, layout: Layout, dim: int, dtype: DType, by_factors: bool, key: Key) -> HostArray:
    if not by_factors:
        return cast(HostArray, draw_all(sampler, layout, dim, dtype, key))
    (blocks,) = all_blocks(sampler, layout, dim, dtype, key)
    return cast(HostArray, cast(Any, draw_blocks(blocks)).signs)


def _draw_on_device(sampler: Sampler, layout: Layout, x: Tensor, rng: RNG) -> tuple[Tensor, int | None]:
    """The same on the device of a tensor."""
    dim = x.shape[-1]
    if type(rng) is int and 0 <= rng < 1 << 64 and layout.n_directions * dim <= _KEPT_NUMBERS:
        return _drawn_before_on(device_and_stream(x), sampler, layout, dim, x.dtype, x.device, rng), rng
    key, seed = resolve_rng(rng, x)
    return draw_all(sampler, layout, dim, x.dtype, key), seed


@functools.lru_cache(maxsize=_KEPT_SETS)
def _drawn_before_on(
    _stream: tuple[int, int],
    sampler: Sampler,
    layout: Layout,
    dim: int,
    dtype: DType,
    place: object,
    seed: int,
) -> Tensor:
    """Each stream has its own: another could read them before they are drawn, or while they are forgotten."""
    torch = sys.modules["torch"]
    # The first call may be in inference mode, but later ones share the tensor and need not be.
    with torch.inference_mode(False):
        key = Key.from_seed(seed, torch.empty(0, device=place))
        return draw_all(sampler, layout, dim, dtype, key)


def forget_directions() -> None:
    """Draw the directions of repeated seeds anew: for measurements of time."""
    _drawn_before.cache_clear()
    _drawn_before_on.cache_clear()


def draw_all(sampler: Sampler, layout: Layout, dim: int, dtype: DType, key: Key) -> Array:
    """All directions of a layout as rows of one matrix, for samplers that draw such rows."""
    parts = [cast(Any, draw_blocks(blocks)).theta for blocks in all_blocks(sampler, layout, dim, dtype, key)]
    rows = parts[0] if len(parts) == 1 else concat_rows(parts)
    # On a GPU a view takes longer than this look.
    return rows if rows.shape[0] == layout.n_directions else rows[: layout.n_directions]


def all_blocks(sampler: Sampler, layout: Layout, dim: int, dtype: DType, key: Key) -> list[Blocks]:
    """What to draw for a layout, in one piece where that is possible; rows at the end may be too many."""
    runs = layout.runs
    if sampler.extends and len(runs) == 2 and runs[1].n_blocks == 1:
        # Only the last block is shorter: it is the beginning of a whole one.
        runs = (Run(layout.n_blocks, layout.longest_block),)
    firsts = itertools.accumulate((run.n_blocks for run in runs), initial=0)
    return [
        Blocks(sampler, key, first, run.n_blocks, run.rows, dim, dtype)
        for first, run in zip(firsts, runs, strict=False)
    ]
