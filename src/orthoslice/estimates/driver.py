"""The driver of the five steps: check, draw, project, couple, price; from two clouds to an estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import (
    RNG,
    Array,
    Compute,
    Key,
    Outcome,
    Wanted,
    add_totals,
    concat_rows,
    detach,
    differentiable,
    full_precision,
    is_bridged,
    is_readable,
    is_traced,
    library,
    namespace,
    resolve_rng,
    to_numpy,
    with_gradients,
)
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.stopping import stop_asked
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import centred, scale_on_device, times_two_to
from orthoslice.clouds.ready import ReadyCloud, make_ready
from orthoslice.costs.draw import Scored
from orthoslice.couplings.coupling import unreadable_nan
from orthoslice.directions import Given
from orthoslice.directions.given import GIVEN_LATER
from orthoslice.directions.layout import Layout
from orthoslice.estimates.control import Control, Corrected, KnownMean, correct
from orthoslice.estimates.passes import Passes
from orthoslice.estimates.program_step import program_step, program_step_refusal
from orthoslice.estimates.request import Request
from orthoslice.estimates.result import Estimate, register_estimates, root
from orthoslice.estimates.statistics import Statistics, degrees_of_freedom, interval_arms, with_variance
from orthoslice.estimates.statistics import statistics as block_statistics
from orthoslice.estimates.trust import Subject, fingerprint

# Passed as `like` where results are to be put in host memory.
_ON_HOST = np.zeros(1)

# The key of requests that draw nothing, since directions are given.
_UNUSED = Key.from_seed(0, _ON_HOST)


class _Call(NamedTuple):
    """A request with all that :func:`compute` takes."""

    request: Request
    inputs: tuple[Array | None, ...]
    key: Key
    theta: Array | None
    """Given directions, if they are passed along with the clouds and not in the request."""
    seed: int | None

    @property
    def compilable(self) -> bool:
        return not (self.request.adaptive or self.request.progress)


def _make_call(request: Request, x: Cloud, y: Cloud, rng: RNG) -> _Call:
    inputs = (x.points, y.points, x.weights, y.weights)
    theta = request.sampler.theta if isinstance(request.sampler, Given) else None
    like = x.points
    if is_bridged(like):
        like, theta = _ON_HOST, None if theta is None else to_numpy(theta)
    key, seed = key_for(request, rng, like, is_traced(*inputs))
    if library(x.points) == "numpy":
        theta = None  # nothing is traced or compiled, so they may stay where they are
    if theta is not None:
        request = replace(request, sampler=GIVEN_LATER)
    return _Call(request, inputs, key, theta, seed)


def key_for(request: Request, rng: RNG, like: Array, traced: bool = False) -> tuple[Key, int | None]:
    """What the directions of a request are drawn from, and the seed that repeats it."""
    if rng is None and isinstance(request.sampler, Given) and not request.score.needs_partner:
        return _UNUSED, None  # nothing is drawn
    return resolve_rng(rng, like, traced=traced)


def value_and_gradient(request: Request, x: Cloud, y: Cloud, rng: RNG) -> tuple[Array, Any]:
    """The value, and its gradient by the points of x, without a gradient tape."""
    call = _make_call(request, x, y, rng)
    wanted = (True, False, False, False)
    with full_precision(x.points):
        value, extra, gradients = with_gradients(
            compute,
            call.request,
            call.inputs,
            (call.key, call.theta),
            wanted,
            compilable=call.compilable,
        )
    exponent = dict(zip(_names_of_found(request), extra, strict=True)).get("exponent")
    if exponent is None:
        return value, gradients[0]
    return times_two_to(value, exponent, request.p), times_two_to(
        cast(Array, gradients[0]), exponent, request.p
    )


def value_by(way: Compute, request: Request, x: Cloud, y: Cloud, rng: RNG) -> Array:
    """The value, on the gradient tape, worked out by `way` instead of :func:`compute`."""
    call = _make_call(request, x, y, rng)
    with full_precision(x.points):
        constants = call.key, call.theta
        return differentiable(way, call.request, call.inputs, constants, (2, 2, 1, 1), compilable=False)[0]


def estimate(request: Request, x: Cloud, y: Cloud, rng: RNG, scale: float) -> Estimate:
    """Estimate what is requested; the clouds were divided by `scale`."""
    if x.is_lazy:
        from orthoslice.parallel.dask import estimate_lazily

        return estimate_lazily(request, x, y, rng, scale)
    call = _make_call(request, x, y, rng)
    inputs, theta, seed = call.inputs, call.theta, call.seed
    with full_precision(x.points):
        value, extra = differentiable(
            compute, call.request, inputs, (call.key, theta), (2, 2, 1, 1), compilable=call.compilable
        )
        found = {name: detach(a) for name, a in zip(_names_of_found(request), extra, strict=True)}
    subject = subject_of(request, Cloud(detach(x.points), x.weights), Cloud(detach(y.points), y.weights))
    register_estimates(library(x.points))
    made = make_estimate(request, value, found, subject, seed, scale)
    if not is_traced(*inputs, theta):
        return made
    # A tracer must not outlive its trace.
    kept = GIVEN_LATER if is_traced(theta) else request.sampler
    return replace(made, directions=kept, _subject=None if is_traced(*inputs) else subject)


def make_estimate(
    request: Request, value: Array, found: dict[str, Array], subject: Subject, seed: int | None, scale: float
) -> Estimate:
    """The estimate, from what :func:`_run` found; the clouds were divided by `scale`."""
    scores, unit, variance = found["scores"], found.get("exponent"), found.get("variance")
    raw = found.get("raw", scores)
    layout = _layout_of_scored(request.layout, scores)
    if unit is not None:
        request = _in_units_of(request, unit)
    converged = None
    if request.adaptive:
        statistics = with_variance(block_statistics(scores, layout), variance)
        converged = _meets_tolerance(request, subject, statistics, raw, layout, unit)
    return Estimate(
        name=request.name,
        p=request.p,
        n_directions=layout.n_directions,
        n_blocks=layout.n_units,
        directions=request.sampler,
        seed=seed,
        converged=converged,
        _value=value,
        _layout=layout,
        _scale=scale,
        _exponent=unit,
        _variance=variance,
        _looks=len(request.looks),
        _no_error_bar=_why_no_error_bar(request, subject.x.dim) if degrees_of_freedom(layout) == 0 else "",
        control=request.control,
        _scores=scores,
        _raw=raw,
        _subject=subject,
        _memory=request.memory,
        _workers=request.workers,
    )


def subject_of(request: Request, x: Cloud, y: Cloud) -> Subject:
    is_basis = request.sampler.is_basis(request.layout.longest_block, x.dim)
    return Subject(request.score, x, y, request.p, is_basis, (fingerprint(x.points), fingerprint(y.points)))


def _why_no_error_bar(request: Request, dim: int) -> str:
    sampler, layout = request.sampler, request.layout
    if sampler.why_no_error_bar:
        return sampler.why_no_error_bar
    if layout.unit_blocks > 1:
        return "all of these directions price each other, so none is independent of the others"
    smaller, count = sampler.with_default_size(dim)
    n_blocks = Layout(smaller.runs(count, dim)).n_blocks
    if n_blocks == 1:
        return f"{sampler!r} draws all directions in one block"
    return f"one independent block; the default is {count} directions of {smaller!r} in {n_blocks} blocks"


def compute(request: Request, inputs: tuple[Any, ...], constants: Any, wanted: Wanted) -> Outcome:
    """The value of clouds and weights, its wanted gradients, and what else was found on the way."""
    key, theta = constants
    if theta is not None:
        request = replace(request, sampler=Given(theta=theta))
    x, y = Cloud(inputs[0], inputs[2]), request.score.second(inputs[1], inputs[3])
    if program_step_refusal(request, x, y) is None:
        return program_step(request, x, y, key, wanted, _run)
    return _run(request, x, y, key, wanted)


def _layout_of_scored(layout: Layout, scores: Array) -> Layout:
    """The layout of the directions that were scored: all of them, or the first units of an adaptive run."""
    n = scores.shape[0]
    return layout if n == layout.n_directions else layout.first(int(np.searchsorted(layout.unit_ends, n)))


def _run(request: Request, x: Cloud, y: Cloud, key: Key, wanted: Wanted) -> Outcome:
    """Scores of all directions, their mean, and its wanted gradients."""
    xp = namespace(x.points)
    down = exponent = None
    if request.scaled_on_device:
        x, y, down, exponent = scale_on_device(x, y, request.p)
        request = _in_units_of(request, exponent)
    if not request.score.on_sphere:
        x, y = centred(x, y)
    ready = make_ready(x, y, for_ties=request.score.breaks_ties)
    totals: tuple[Array, ...] = ()
    control = request.control
    if control is not None:
        if any(wanted):
            raise ValueError(
                "`control` has no gradient: pass `control=None`, or detach the clouds (`torch.no_grad`, "
                "`jax.lax.stop_gradient`)."
            )
        control = control.fitted(x, y, key, 0)
    with progress_bar("directions", request.layout.n_directions, request.progress) as advance:
        settled = request if control is None else replace(request, control=control)
        passes = Passes(settled, *ready, key, wanted, advance)
        parts, found = look_by_look(request, passes.run, x, y, key, control)
    scores = found["scores"]
    for part in parts:
        totals = add_totals(totals, part.gradients)
    value = xp.sum(scores, axis=0) / scores.shape[0] + nan_where_unsound(request, x, y)
    if not is_readable(value):
        # No error can be raised here, so an infinite value becomes NaN, as for bad input: infinity times 0.
        value = value + 0 * value
    totals = tuple(t / scores.shape[0] for t in totals)
    gradients = _in_users_order(totals, wanted, ready)
    if down is not None:
        points = tuple(None if g is None else g * down for g in gradients[:2])
        gradients = (*points, *gradients[2:])
    if exponent is not None:
        found["exponent"] = exponent
    told = tuple(found[name] for name in _names_of_found(request))
    return Outcome(xp.astype(value, x.dtype), told, gradients)


def look_by_look(
    request: Request,
    run: Callable[[int, int], Scored],
    x: Cloud,
    y: Cloud,
    key: Key,
    control: Control | None,
) -> tuple[list[Scored], dict[str, Array]]:
    """Score ranges of units, look by look, until the tolerance is met: the parts, and all scores by name.

    `run(first_unit, stop_unit)` scores a range; the control is fitted to the clouds.
    """
    parts: list[Scored] = []
    done, known = 0, None
    for units in request.looks:
        part = run(done, units)
        if stop_asked():
            units, part = _whole_units(request.layout, done, part)
        parts.append(part)
        done = units
        used = request.layout.first(units)
        raw = concat_rows([part.costs for part in parts])
        if control is not None:
            known = control.fitted(x, y, key, used.n_directions).mean(x, y, request.p)
        scores, variance = _corrected(raw, parts, known, used)
        if units < request.layout.n_units and (
            stop_asked()
            or _meets_tolerance(
                request,
                subject_of(request, x, y),
                with_variance(block_statistics(scores, used), cast("Array | None", variance)),
                raw,
                used,
            )
        ):
            break
    if known is None:
        return parts, {"scores": scores}
    xp = namespace(scores)
    mean = xp.sum(scores, axis=0)
    return parts, {"scores": scores, "variance": xp.zeros_like(mean) + variance, "raw": raw}


def _whole_units(layout: Layout, done: int, part: Scored) -> tuple[int, Scored]:
    """The number of whole units after a pass that began at unit `done` and was stopped, and their part of it.

    Without a whole unit there is no estimate, and KeyboardInterrupt is raised.
    """
    ends = layout.unit_ends
    rows = int(ends[done]) + part.costs.shape[0]
    units = int(np.searchsorted(ends, rows, side="right")) - 1
    if units == 0:
        raise KeyboardInterrupt
    kept = slice(0, int(ends[units] - ends[done]))
    controls = None if part.controls is None else part.controls[kept]
    return units, part._replace(costs=part.costs[kept], controls=controls)


def _names_of_found(request: Request) -> list[str]:
    """What :func:`_run` gives besides the value, in its order."""
    names = ["scores", "exponent"] if request.scaled_on_device else ["scores"]
    return names if request.control is None else [*names, "variance", "raw"]


def _corrected(scores: Array, parts: list[Scored], known: KnownMean | None, layout: Layout) -> Corrected:
    """All scores so far, less what a control explains, and what its uncertain mean adds to their variance."""
    if known is None:
        return Corrected(scores, None)
    return correct(scores, concat_rows([cast(Array, part.controls) for part in parts]), known, layout)


def _in_units_of(request: Request, exponent: Array) -> Request:
    """The request for clouds that the device divided by 2**exponent; only a tolerance has units."""
    return request if request.atol is None else replace(request, atol=request.atol * 2.0 ** -float(exponent))


def nan_where_unsound(request: Request, x: Cloud, y: Cloud) -> Array | float:
    """NaN where given directions or weights that could not be checked hold NaN, else 0."""
    theta = request.sampler.theta if isinstance(request.sampler, Given) else None
    nan_or_zero = unreadable_nan(theta)
    for cloud in (x, y):
        if cloud.weights is not None and not is_readable(cloud.weights):
            nan_or_zero = nan_or_zero + 0 * namespace(cloud.weights).sum(cloud.weights, axis=-1)
    return nan_or_zero


def _in_users_order(
    totals: tuple[Array, ...], wanted: Wanted, ready: tuple[ReadyCloud, ReadyCloud]
) -> tuple[Array | None, ...]:
    """Put the wanted gradients in their places, with rows in the order of the user's points."""
    if not any(wanted):
        return (None,) * len(wanted)
    given = iter(totals)
    return tuple(ready[k % 2].in_users_order(next(given)) if want else None for k, want in enumerate(wanted))


def _meets_tolerance(
    request: Request,
    subject: Subject,
    found: Statistics,
    scores: Array,
    layout: Layout,
    exponent: Array | None = None,
) -> bool:
    """Whether the 95% interval of every distance is within the tolerance, and can be trusted."""
    looks = len(request.looks)
    mean, down, up = (to_numpy(a) for a in (found.mean, *interval_arms(found, layout, 0.95, looks)))
    distance = root(mean, request.p)
    # The root is not linear, so the arms of the distance differ: the longer one counts.
    width = np.maximum(root(mean + up, request.p) - distance, distance - root(mean - down, request.p))
    allowed = np.maximum(request.atol or 0.0, (request.rtol or 0.0) * distance)
    # Trust is checked last, since that reads the clouds.
    return bool(np.all(width <= allowed)) and bool(
        np.all(subject.doubts(scores, found, layout, looks, exponent) == "")
    )
