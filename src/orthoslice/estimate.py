"""The driver: from two clouds and a wish to an estimate, in memory that does not grow with the directions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orthoslice.arrays import (
    RNG,
    Array,
    Outcome,
    Stream,
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
)
from orthoslice.blocks import Layout, degrees_of_freedom, interval_arms, statistics
from orthoslice.cloud import Cloud
from orthoslice.conditioning import centred
from orthoslice.coupling import unreadable_nan, with_masses
from orthoslice.directions import Given, Sampler
from orthoslice.directions.base import DEFAULT_BLOCKS
from orthoslice.directions.given import GIVEN_LATER
from orthoslice.orders import gather_points, in_canonical_order, ready_for_ties
from orthoslice.passes import Passes
from orthoslice.result import Estimate, Subject, register_estimates, root
from orthoslice.scaling import scale_on_device
from orthoslice.scores import Score

DEFAULT_CAP = 100_000
"""Most directions of an adaptive run that was given no count."""


# The key where directions are given.
_UNUSED = Stream.from_seed(0, np.zeros(1))


@dataclass(frozen=True)
class Request:
    """What is to be estimated, checked and complete but for the clouds."""

    name: str
    score: Score
    p: float
    sampler: Sampler
    layout: Layout
    memory: int
    workers: int
    rtol: float | None
    atol: float | None
    """In the units of the clouds as they are handed to :func:`estimate`."""
    progress: bool
    fit: bool
    """Whether the clouds could be looked at and were scaled as they need; if not, the device does that."""

    @property
    def adaptive(self) -> bool:
        return self.rtol is not None or self.atol is not None

    @property
    def looks(self) -> list[int]:
        """After how many units to look whether the tolerance is met; the last is the cap."""
        n = self.layout.n_units
        if not self.adaptive:
            return [n]
        looks, units = [], DEFAULT_BLOCKS
        while units < n:
            looks.append(units)
            units *= 2
        return [*looks, n]


def plan_layout(
    sampler: Sampler, n_directions: int | None, dim: int, score: Score, p: float, adaptive: bool
) -> tuple[Sampler, Layout]:
    """Settle how many directions there are and how they are grouped."""
    if n_directions is None or adaptive:
        sampler, default = sampler.with_default_size(dim)
        if n_directions is None:
            n_directions = default if not adaptive or isinstance(sampler, Given) else DEFAULT_CAP
    rows = sampler.block_rows(n_directions, dim)
    n_blocks = -(-n_directions // rows)
    unit = score.blocks_per_unit(n_blocks, rows, sampler.is_tight(rows, dim), p)
    layout = Layout(n_directions, rows, unit)
    if adaptive and layout.n_units == 1:
        raise ValueError(
            "`rtol` and `atol` need an error bar, so two or more independent blocks of directions; "
            f"{n_directions} directions of {sampler!r} are one."
        )
    return sampler, layout


def estimate(request: Request, x: Cloud, y: Cloud, rng: RNG, scale: float) -> Estimate:
    """Estimate what is requested; the clouds were divided by `scale`."""
    inputs = (x.points, y.points, x.weights, y.weights)
    theta = request.sampler.theta if isinstance(request.sampler, Given) else None
    like = x.points
    if is_bridged(like):
        like, theta = to_numpy(like), None if theta is None else to_numpy(theta)
    if rng is None and theta is not None and not request.score.needs_partner:
        stream, seed = _UNUSED, None  # nothing is drawn
    else:
        stream, seed = resolve_rng(rng, like, traced=is_traced(*inputs))
    if library(x.points) == "numpy":
        theta = None  # nothing is traced or compiled, so they may stay where they are
    with full_precision(x.points):
        value, (scores, *exponent) = differentiable(
            _compute,
            request if theta is None else replace(request, sampler=GIVEN_LATER),
            inputs,
            (stream, theta),
            (2, 2, 1, 1),
            compilable=not (request.adaptive or request.progress),
        )
        layout = _used(request.layout, scores)
        scores = detach(scores)
    subject = _subject(request, Cloud(detach(x.points), x.weights), Cloud(detach(y.points), y.weights))
    unit = detach(exponent[0]) if exponent else None
    if unit is not None:
        request = _in_units_of(request, unit)
    register_estimates(library(x.points))
    return Estimate(
        name=request.name,
        p=request.p,
        n_directions=layout.n_directions,
        n_blocks=layout.n_units,
        # A tracer must not outlive its trace.
        directions=GIVEN_LATER if is_traced(theta) else request.sampler,
        seed=seed,
        converged=_meets_tolerance(request, subject, scores, layout, unit) if request.adaptive else None,
        _value=value,
        _layout=layout,
        _scale=scale,
        _exponent=unit,
        _looks=len(request.looks),
        _no_error_bar=_why_no_error_bar(request, x.dim) if degrees_of_freedom(layout) == 0 else "",
        _scores=scores,
        _subject=None if is_traced(*inputs) else subject,
    )


def _subject(request: Request, x: Cloud, y: Cloud) -> Subject:
    is_basis = request.sampler.is_tight(request.layout.block_rows, x.dim)
    return Subject(request.score, x, y, request.p, is_basis)


def _why_no_error_bar(request: Request, dim: int) -> str:
    sampler, layout = request.sampler, request.layout
    if sampler.why_no_error_bar:
        return sampler.why_no_error_bar
    if layout.unit_blocks > 1:
        return "all of these directions price each other, so none is independent of the others"
    block = sampler.block_rows(10**9, dim)
    return f"one independent block; 8 blocks are {8 * block} directions, or fewer with a smaller `block_size`"


def _compute(request: Request, inputs: tuple[Array | None, ...], constants: Any, wanted: Wanted) -> Outcome:
    stream, theta = constants
    if theta is not None:
        request = replace(request, sampler=Given(theta=theta))
    return _run(request, Cloud(inputs[0], inputs[2]), Cloud(inputs[1], inputs[3]), stream, wanted)


def _used(layout: Layout, scores: Array) -> Layout:
    """The layout of the directions that were scored: all of them, or the first units of an adaptive run."""
    n = scores.shape[0]
    return layout if n == layout.n_directions else layout.first(n // layout.unit_rows)


def _run(request: Request, x: Cloud, y: Cloud, stream: Stream, wanted: Wanted) -> Outcome:
    """Scores of all directions, their mean, and its wanted gradients."""
    xp = namespace(x.points)
    orders: list[Array | None] = [None, None]
    down = exponent = None
    if not request.fit:
        x, y, down, exponent = scale_on_device(x, y, request.p)
        request = _in_units_of(request, exponent)
    x, y = centred(x, y)
    if request.score.breaks_ties:
        (orders[0], x), (orders[1], y) = ready_for_ties(x), ready_for_ties(y)
    elif is_readable(x.points) and not (x.weights is None and y.weights is None):
        # Masses are rounded one after the other: clouds with the same points in another order shall be equal.
        (orders[0], x), (orders[1], y) = in_canonical_order(x), in_canonical_order(y)
    x, y = with_masses(x, y)
    parts: list[Array] = []
    totals: tuple[Array, ...] = ()
    done = 0
    with progress_bar("directions", request.layout.n_directions, request.progress) as advance:
        passes = Passes(
            score=request.score,
            sampler=request.sampler,
            layout=request.layout,
            p=request.p,
            x=x,
            y=y,
            stream=stream,
            wanted=wanted,
            memory=request.memory,
            workers=request.workers,
            advance=advance,
        )
        for units in request.looks:
            scores, extra = passes.run(done, units)
            parts.append(scores)
            totals = add_totals(totals, extra)
            done = units
            if units < request.layout.n_units and _meets_tolerance(
                request, _subject(request, x, y), concat_rows(parts), request.layout.first(units)
            ):
                break
    scores = concat_rows(parts)
    value = xp.sum(scores, axis=0) / scores.shape[0] + _nan_where_unsound(request, x, y)
    if is_readable(value):
        _check_underflow(request, x, y, scores)
    else:
        # Nothing can be raised here, so what does not fit the type is marked like bad input: infinity times 0.
        value = value + 0 * value
    totals = tuple(t / scores.shape[0] for t in totals)
    gradients = _spread(totals, wanted, orders)
    if down is not None:
        points = tuple(None if g is None else g * down for g in gradients[:2])
        gradients = (*points, *gradients[2:])
    known = (scores,) if exponent is None else (scores, exponent)
    return Outcome(xp.astype(value, x.dtype), known, gradients)


def _in_units_of(request: Request, exponent: Array) -> Request:
    """The request for clouds that the device divided by 2**exponent; only a tolerance has units."""
    return request if request.atol is None else replace(request, atol=request.atol * 2.0 ** -float(exponent))


def _nan_where_unsound(request: Request, x: Cloud, y: Cloud) -> Array | float:
    theta = request.sampler.theta if isinstance(request.sampler, Given) else None
    spoil = unreadable_nan(theta)
    for cloud in (x, y):
        if cloud.weights is not None and not is_readable(cloud.weights):
            spoil = spoil + 0 * namespace(cloud.weights).sum(cloud.weights, axis=-1)
    return spoil


def _check_underflow(request: Request, x: Cloud, y: Cloud, scores: Array) -> None:
    """Refuse powers so high that costs of clouds that differ vanish in their floating type."""
    info = namespace(x.points).finfo(x.dtype)
    tiny, eps = float(info.smallest_normal), float(info.eps)
    if request.p * math.log(eps) > math.log(tiny) or float(to_numpy(scores).mean(axis=0).min()) > tiny / eps:
        return
    first, second = (to_numpy(in_canonical_order(c)[1].points) for c in (x, y))
    if np.array_equal(first, second):
        return
    raise OverflowError(
        f"`p` is too high for these clouds: |x - y|^{request.p:g} underflows in {x.dtype}. "
        "Pass float64 if that is not what it is, or a smaller `p`."
    )


def _spread(totals: tuple[Array, ...], wanted: Wanted, orders: list[Array | None]) -> tuple[Array | None, ...]:
    """Put the wanted gradients in their places, with rows in the order of the user's points."""
    gradients: list[Array | None] = []
    given = iter(totals)
    for k, want in enumerate(wanted):
        gradient, order = (next(given) if want else None), orders[k % 2]
        if gradient is not None and order is not None:
            xp = namespace(gradient)
            points = gradient if k < 2 else gradient[..., None]
            place = xp.broadcast_to(xp.argsort(order, axis=-1), points.shape[:-1])
            points = gather_points(points, place)
            gradient = points if k < 2 else points[..., 0]
        gradients.append(gradient)
    return tuple(gradients)


def _meets_tolerance(
    request: Request, subject: Subject, scores: Array, layout: Layout, exponent: Array | None = None
) -> bool:
    """Whether the 95% interval of every distance is within the tolerance, and can be trusted."""
    found, looks = statistics(scores, layout), len(request.looks)
    mean, down, up = (to_numpy(a) for a in (found.mean, *interval_arms(found, layout, 0.95, looks)))
    distance = root(mean, request.p)
    # The root bends: what counts is the longer arm.
    width = np.maximum(root(mean + up, request.p) - distance, distance - root(mean - down, request.p))
    allowed = np.maximum(request.atol or 0.0, (request.rtol or 0.0) * distance)
    # Looked at last: it goes through the clouds.
    return bool(np.all(width <= allowed)) and bool(
        np.all(subject.doubts(scores, found, layout, looks, exponent) == "")
    )


@contextlib.contextmanager
def progress_bar(of: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """What to call with each number of steps made, of `total`: if `shown`, there is a bar on stderr."""
    if not shown:
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(of, total=total)
        yield lambda steps: bar.advance(task, steps)
