"""Descents: what barycenters and flows have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from orthoslice.applications.descent.step_size import Callback, Objective, descend
from orthoslice.backend.arrays import (
    Array,
    HostArray,
    device,
    full_precision,
    is_bridged,
    is_readable,
    library,
    namespace,
    to_numpy,
)
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.threads import default_workers
from orthoslice.check.options import (
    check_directions,
    check_memory,
    check_n_directions,
    check_p,
    check_tolerance,
)
from orthoslice.clouds.cloud import Cloud, detached
from orthoslice.clouds.conditioning import is_scaled_on_device, largest_coordinate, unit_scale
from orthoslice.costs.scores import Score
from orthoslice.directions import Auto, Given, Orthogonal, Sampler
from orthoslice.directions.base import BlockSampler, check_count
from orthoslice.estimates.entry import check_method
from orthoslice.estimates.request import Request, plan_layout

# Fresh directions of a step: _FRESH_BLOCKS whole blocks, for little noise in the momentum, but at least
# _FEWEST_ROWS and at most about _MOST_ROWS rows. A fixed set has at least _FIXED_ROWS. Above dim _MOST_ROWS a
# step has one block of _MOST_ROWS orthonormal rows, and moves points within their span.
_FRESH_BLOCKS = 12
_FEWEST_ROWS, _MOST_ROWS = 32, 512
_FIXED_ROWS = 256


@dataclass(frozen=True, eq=False, repr=False)
class Descent:
    """A cloud that was moved step by step, and how that went.

    Attributes
    ----------
    points
        Where the points are in the end, `(n, dim)`, of the library and on the device of the clouds.
    value
        The objective there, from the directions of the last step and of those that were averaged: SW_2^2 or
        PW_2^2 to the target, or its weighted mean over the clouds.
    history
        The objective where every step began, and at the end, `(n_steps + 1,)`, a NumPy array.
    movement
        How far a full step would have moved the points (root mean square), in units of the spread of the
        clouds, `(n_steps,)`.
    error
        How far the points may still be from where steps without end would bring them, in the same units: the
        last movement, over the root of the number of steps that were averaged.
    converged
        Whether the objective had settled and `error` was within `rtol`.
    n_steps
        Steps made.
    directions, n_directions, seed
        ``directions=result.directions, n_directions=result.n_directions, rng=result.seed`` repeats it.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> found = osl.flow(x, x + 3, rng=0)
    >>> found.converged, bool(np.allclose(found.points, x + 3, atol=0.01))
    (True, True)
    """

    name: str
    points: Array
    value: float
    history: HostArray
    movement: HostArray
    error: float
    converged: bool
    n_steps: int
    directions: Sampler
    n_directions: int
    seed: int | None

    def __repr__(self) -> str:
        n, dim = self.points.shape
        end = "converged" if self.converged else "not converged"
        how = f"{end} after {self.n_steps} steps, error {self.error:.2g} of the spread"
        repeat = f"directions={self.directions!r}, n_directions={self.n_directions}, rng={self.seed}"
        return f"{self.name} of {n} points in dim {dim}: value {self.value:.6g}; {how}; {repeat}"


class DescentOptions(NamedTuple):
    """What barycenters and flows take besides clouds, as the user gave it."""

    method: Any
    p: Any
    directions: Any
    n_directions: Any
    fresh: bool
    n_steps: Any
    rtol: Any
    callback: Callback | None
    memory: Any
    workers: Any
    progress: bool


def move(
    name: str, x: Cloud, clouds: Sequence[Cloud], weights: Sequence[float], seed: int, given: DescentOptions
) -> Descent:
    """Move x down the weighted mean of its distances to clouds of its own library, device and type."""
    score, n_steps, rtol = _check_descent(given, x)
    memory = check_memory(given.memory)
    workers = default_workers() if given.workers is None else check_count("workers", given.workers)
    sampler, count, fresh = _check_steps_directions(given, x)
    sampler, layout = plan_layout(sampler, count, x.dim, score, 2.0, adaptive=False)
    like = x.points
    # Arrays in host memory become NumPy arrays, for which there are compiled kernels.
    on_host = is_bridged(like) or (library(like) == "jax" and is_readable(like))
    if on_host and isinstance(sampler, Given):
        sampler = Given(theta=to_numpy(sampler.theta))
    (start, *targets), scale = _scaled([_to_host(c) if on_host else detached(c) for c in (x, *clouds)])
    request = Request(
        name=name,
        score=score,
        p=2.0,
        sampler=sampler,
        layout=layout,
        memory=memory,
        workers=workers,
        rtol=None,
        atol=None,
        progress=False,
        control=None,
        scaled_on_device=is_scaled_on_device(start, targets[0]),
    )

    def as_given(points: Array) -> Array:
        points = points if scale == 1 else points * scale
        return namespace(like).asarray(points, device=device(like)) if on_host else points

    def report(step: int, points: Array, value: float) -> Any:
        assert given.callback is not None
        return given.callback(step, as_given(points), value * scale**2)

    with full_precision(like), progress_bar("steps", n_steps, given.progress) as advance:
        run = descend(
            Objective(request, targets, weights, seed, fresh),
            start,
            _spread(targets, weights),
            n_steps,
            rtol,
            None if given.callback is None else report,
            advance,
        )
    return Descent(
        name=name,
        points=as_given(run.points),
        value=scale**2 * run.value,
        history=scale**2 * np.asarray(run.history),
        movement=np.asarray(run.movement),
        error=run.error,
        converged=run.converged,
        n_steps=len(run.movement),
        directions=sampler,
        n_directions=layout.n_directions,
        seed=seed,
    )


def _check_descent(given: DescentOptions, x: Cloud) -> tuple[Score, int, float]:
    """The score, the number of steps and the tolerance of a descent."""
    score = check_method(given.method)
    if check_p(given.p) != 2:
        raise ValueError(
            f"`p` must be 2: the length of a step is known for squared distances only; got {given.p!r}. For "
            "another one, descend along `osl.value_and_grad(x, y, p)` with an optimiser of your own."
        )
    n_steps = check_count("n_steps", given.n_steps)
    rtol = check_tolerance("rtol", given.rtol, x, x)
    if rtol is None:
        raise TypeError("`rtol` must be a number; got None.")
    if given.callback is not None and not callable(given.callback):
        raise TypeError(f"`callback` must be a function (step, points, value) or None; got {given.callback!r}.")
    return score, n_steps, rtol


def _check_steps_directions(given: DescentOptions, x: Cloud) -> tuple[Sampler, int | None, bool]:
    """The sampler of a step, how many directions it draws, and whether every step draws anew."""
    sampler = check_directions(given.directions, x)
    if isinstance(sampler, Auto):
        sampler = Orthogonal()  # the length of a step is known for whole bases
    fresh = bool(given.fresh) and x.dim > 1 and not isinstance(sampler, Given)
    count = check_n_directions(given.n_directions, sampler)
    return *_choose_directions(sampler, count, x.dim, fresh), fresh


def _choose_directions(
    sampler: Sampler, count: int | None, dim: int, fresh: bool
) -> tuple[Sampler, int | None]:
    """How many directions a step has: of orthogonal ones whole blocks, whose steps are exact."""
    if count is not None or isinstance(sampler, Given):
        return sampler, count
    if dim == 1:
        return sampler, 1
    about = min(max(_FRESH_BLOCKS * dim, _FEWEST_ROWS if fresh else _FIXED_ROWS), _MOST_ROWS)
    if not isinstance(sampler, BlockSampler) or sampler.block_size is not None:
        return sampler, about
    ambient = sampler.ambient_dim(dim)
    if ambient > _MOST_ROWS:
        return replace(sampler, block_size=_MOST_ROWS), _MOST_ROWS
    return sampler, ambient * -(-about // ambient)


def _to_host(cloud: Cloud) -> Cloud:
    weights = None if cloud.weights is None else to_numpy(cloud.weights)
    return Cloud(to_numpy(cloud.points), weights)


def _scaled(clouds: list[Cloud]) -> tuple[list[Cloud], float]:
    """All clouds divided by a power of two, within the range in which squares can be summed; and that power."""
    largest = (
        max(clouds, key=lambda c: largest_coordinate(c, c)) if is_readable(clouds[0].points) else clouds[0]
    )
    scale = unit_scale(largest, largest, 2)[2]
    return clouds if scale == 1 else [replace(c, points=c.points / scale) for c in clouds], scale


def _spread(clouds: Sequence[Cloud], weights: Sequence[float]) -> float:
    """The root mean square distance of points from the mean of all clouds, plus 4 eps times their size."""
    xp = namespace(clouds[0].points)
    means = [mean_point(c) for c in clouds]
    middle = weighted_sum(means, weights)
    spread = weighted_sum([mean_square(c, middle) for c in clouds], weights)
    size = weighted_sum([mean_square(c, xp.zeros_like(middle)) for c in clouds], weights)
    both = np.sqrt(to_numpy(xp.stack([spread, size])))
    return float(both[0] + 4 * float(xp.finfo(clouds[0].dtype).eps) * both[1])


def mean_point(cloud: Cloud) -> Array:
    """The mean of a cloud, `(dim,)`."""
    xp = namespace(cloud.points)
    if cloud.weights is None:
        return xp.mean(cloud.points, axis=0)
    return xp.sum(xp.astype(cloud.weights, cloud.dtype)[:, None] * cloud.points, axis=0)


def mean_square(cloud: Cloud, point: Array) -> Array:
    """The mean squared distance of a cloud from a point."""
    away = cloud.points - point
    squares = Cloud(namespace(away).sum(away * away, axis=1)[:, None], cloud.weights)
    return mean_point(squares)[0]


def weighted_sum(arrays: Sequence[Array], weights: Sequence[float]) -> Array:
    """`sum_j weights[j] * arrays[j]`."""
    total = weights[0] * arrays[0]
    for array, weight in zip(arrays[1:], weights[1:], strict=True):
        total = total + weight * array
    return total
