"""Options as the user gave them, and the request they become: what is to be estimated, by any caller."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from orthoslice.backend.arrays import RNG, is_bridged, library, wants_gradients
from orthoslice.check.options import (
    check_directions,
    check_memory,
    check_n_directions,
    check_sampler,
    check_tolerance,
    check_workers,
)
from orthoslice.clouds.cloud import Cloud, shared_batch
from orthoslice.clouds.conditioning import is_scaled_on_device
from orthoslice.costs.laws import AgainstLaw
from orthoslice.costs.scores import Score
from orthoslice.directions import IID, OWN, Auto, Given, Orthogonal, Sampler, Stratified
from orthoslice.directions.auto import Method
from orthoslice.directions.base import DEFAULT_BLOCKS
from orthoslice.directions.control_rules import is_fitted, is_worthwhile
from orthoslice.directions.given import GIVEN_LATER
from orthoslice.directions.layout import Layout, layout_of
from orthoslice.directions.planes import GivenPlanes
from orthoslice.estimates.control import Control, Gaussian, check_control

DEFAULT_CAP = 100_000
"""Most directions of an adaptive run that was given no count."""

# Every call needs a plan, which is the same for all clouds of one dimension, so plans are cached; but not those
# of samplers that hold arrays, which the cache would keep alive.
_KEPT_PLANS = OWN - {Given, Stratified}


# Independent directions are what others are compared with; of given ones no independent blocks are known.
_NEVER_CONTROLLED = {IID, Given, Stratified}


class Options(NamedTuple):
    """What both distances take besides clouds and `p`, as the user gave it."""

    directions: Any
    n_directions: Any
    rtol: Any
    atol: Any
    control: Any
    rng: RNG
    memory: Any
    workers: Any
    progress: bool


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
    control: Control | None
    scaled_on_device: bool
    """Whether the program on the device scales the clouds: their values cannot be looked at before it runs."""
    steady: bool = False
    """Whether the projection of a point must depend on that point alone."""
    share: tuple[int, int] | None = None
    """The directions to score, `share[0] .. share[1]`, for one worker of several; None for all."""

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


def make_request(name: str, score: Score, x: Cloud, y: Cloud, p: float, given: Options) -> Request:
    """Check the options for these clouds, and settle how many directions there are."""
    if isinstance(score, AgainstLaw):
        score.law.check_moments(p)
    sampler = check_directions(given.directions, x)
    count = check_n_directions(given.n_directions, sampler)
    control = check_control(given.control)
    rtol, atol = check_tolerance("rtol", given.rtol, x, y), check_tolerance("atol", given.atol, x, y)
    adaptive = not (rtol is None and atol is None)
    sampler, layout = plan_layout(sampler, count, x.dim, score, p, adaptive)
    control = plan_control(control, x, y, p, score, sampler, layout, adaptive)
    return Request(
        name=name,
        score=score,
        p=p,
        sampler=sampler,
        layout=layout,
        memory=check_memory(given.memory),
        workers=check_workers(given.workers),
        rtol=rtol,
        atol=atol,
        progress=given.progress,
        control=control,
        scaled_on_device=not score.on_sphere and is_scaled_on_device(x, y),
    )


def plan_layout(
    sampler: Sampler, n_directions: int | None, dim: int, score: Score, p: float, adaptive: bool
) -> tuple[Sampler, Layout]:
    """Settle how many directions there are and how they are grouped."""
    if isinstance(sampler, Given) and sampler.theta is not None and not adaptive:
        # A plan depends only on the number of given directions.
        count = sampler.with_default_size(dim)[1] if n_directions is None else n_directions
        return sampler, _plan_layout(GIVEN_LATER, count, dim, score, p, adaptive)[1]
    settle = _plan_layout if type(sampler) in _KEPT_PLANS else _plan_layout.__wrapped__
    return settle(sampler, n_directions, dim, score, p, adaptive)


@functools.lru_cache(maxsize=256)
def _plan_layout(
    sampler: Sampler, n_directions: int | None, dim: int, score: Score, p: float, adaptive: bool
) -> tuple[Sampler, Layout]:
    if isinstance(sampler, Auto) and score.is_pooled:
        sampler = Orthogonal()
    elif isinstance(sampler, Auto):
        kind: Method = "projected" if score.breaks_ties else "sliced"
        sampler = sampler.choose(dim, None if adaptive else n_directions, kind, p).sampler
    if adaptive and not isinstance(sampler, Given | GivenPlanes):
        n_directions = DEFAULT_CAP if n_directions is None else n_directions
        sampler = sampler.for_tolerance(dim, n_directions)
    if n_directions is None:
        sampler, n_directions = sampler.with_default_size(dim)
    runs, is_stepped = check_sampler(sampler, n_directions, dim), score.breaks_ties and sampler.is_circle
    layout = layout_of(runs, is_stepped=is_stepped)
    rows = layout.longest_block
    unit = score.blocks_per_unit(layout.n_blocks, rows, sampler.is_basis(rows, dim), p)
    if unit > 1:
        layout = layout_of(runs, unit, is_stepped)
        if sampler.weights(rows, dim) is not None or not (len(layout.runs) == 1 or sampler.extends):
            raise ValueError(
                f"Directions can price each other only in blocks of one size, without weights; {n_directions} "
                f'directions of {sampler!r} are not. Use `cost="exact"`.'
            )
    if adaptive and layout.n_units == 1:
        raise ValueError(
            "`rtol` and `atol` need an error bar, so two or more independent blocks of directions; "
            f"{n_directions} directions of {sampler!r} are one."
        )
    return sampler, layout


def plan_control(
    control: Control | Literal["auto"] | None,
    x: Cloud,
    y: Cloud,
    p: float,
    score: Score,
    sampler: Sampler,
    layout: Layout,
    adaptive: bool,
) -> Control | None:
    """The control variate to use: the user's, where it can do something, or the library's choice.

    By itself the library chooses :class:`Gaussian` for sliced distances of values in host memory (NumPy's or
    torch's) whose gradient is not wanted. It weighs the time that both take: see
    :mod:`orthoslice.directions.control_rules`.
    """
    if control is None or not is_fitted(layout):
        return None
    if (isinstance(control, Gaussian) or control == "auto") and (score.breaks_ties or x.dim == 1):
        return None
    if control != "auto":
        return control
    # How many directions a tolerance takes is unknown: say sixteen times those that a run starts with.
    expected = 16 * layout.first(DEFAULT_BLOCKS).n_directions if adaptive else layout.n_directions
    kind, n_points = library(x.points), (x.n + y.n) * math.prod(shared_batch(x, y))
    if (
        type(sampler) in _NEVER_CONTROLLED
        or not is_worthwhile(x.dim, p, layout, n_points, expected)
        or not (kind == "numpy" or is_bridged(x.points))
        or (kind == "torch" and any(wants_gradients(x.points, y.points, x.weights, y.weights)))
    ):
        return None
    return Gaussian()
