"""A test of whether a sample has a known law: the law is simulated on the directions that were drawn."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from orthoslice.applications.two_sample.permutations import Statistic
from orthoslice.applications.two_sample.result import TwoSampleResult
from orthoslice.applications.two_sample.verdict import judge_distance
from orthoslice.backend.arrays import NO_GRADIENTS, RNG, HostArray, Key, concat_rows, resolve_rng
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.threads import ordered_map
from orthoslice.check.options import check_memory, check_n_directions, check_workers
from orthoslice.clouds.cloud import host_clouds
from orthoslice.clouds.conditioning import rescaled, unit_scale
from orthoslice.clouds.laws import Law, law_cloud
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.laws import Line, law_on_lines, law_slopes
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Sampler
from orthoslice.directions.base import DenseDirections, dense_rows
from orthoslice.directions.layout import Layout
from orthoslice.directions.spheres import mean_shortening
from orthoslice.directions.walks import sweep_directions
from orthoslice.estimates.request import plan_layout

# Numbers that are projected at a time: larger pieces fall out of the processor's caches.
_PIECE_ITEMS = 1 << 20


class _Lines(NamedTuple):
    """A law on some of the directions that were drawn."""

    theta: HostArray
    """`(slices, dim)`"""
    centre: HostArray
    """Where the law lies on each, `(slices, 1)`."""
    axes: HostArray
    """What the directions are to the law that this one is an image of, `(slices, base.dim)`."""
    line: Line


def test_against_law(
    x: Any,
    law: Law,
    p: float,
    sampler: Sampler,
    n_directions: int | None,
    count: int,
    rng: RNG,
    memory: int | str | None,
    workers: int | None,
    progress: bool,
) -> TwoSampleResult:
    """Test whether a sample has a law, by `count` simulated samples of the same size."""
    cloud, _ = host_clouds("two_sample_test", x, x)
    if cloud.dim != law.dim:
        raise ValueError(f"`x` and `y` must share `dim`; got {cloud.dim} and a law in {law.dim} dimensions.")
    law.base.check_moments(p)
    n, dim = cloud.n, cloud.dim
    sampler, layout = plan_layout(sampler, check_n_directions(n_directions, sampler), dim, Sliced(), p, False)
    key, seed = resolve_rng(rng, np.zeros(1))
    scaled, frame, scale = unit_scale(cloud, law_cloud(law, cloud.points), p)
    room = min(_PIECE_ITEMS, check_memory("256MB" if memory is None else memory) // 64)
    pieces = _on_lines(law, frame.points, sampler, layout, key, max(1, room // n), n, p)
    factor = 1 / (layout.n_directions * mean_shortening(dim, sampler.ambient_dim(dim), p))
    observed = _cost([(own.theta @ scaled.points.T - own.centre, own.line) for own in pieces], p)

    def simulate(number: int) -> float:
        words = [int(word[0]) & 0xFFFFFFFF for word in (key.high, key.low)]
        points = law.base.sample(n, np.random.default_rng([*words, number]))
        return _cost([(own.axes @ points.T, own.line) for own in pieces], p)

    costs = [observed]
    with progress_bar("samples", count, progress) as advance:
        tasks = (functools.partial(simulate, number) for number in range(count))
        for cost in ordered_map(tasks, check_workers(workers)):
            costs.append(cost)
            advance(1)
    distances = (factor * np.asarray(costs)) ** (1 / p)
    verdict = judge_distance((Statistic("sliced", p),), distances[None, :], None, None, 0.0)
    own = rescaled(distances, scale, 1)
    return TwoSampleResult(
        method="sliced",
        name="SW",
        p=p,
        statistic=float(own[0]),
        pvalue=(verdict.n_reached + 1) / len(own),
        null_distribution=np.asarray(own[1:]),
        n_directions=layout.n_directions,
        n_labellings=float("inf"),
        directions=sampler,
        seed=seed,
        parts=verdict.parts,
        column_statistics=None,
        column_pvalues=None,
        pair=None,
        stopped_early=False,
        _n_reached=verdict.n_reached,
        _compared=f"{n} points and {law!r}",
        _replicas="simulated samples",
    )


def _on_lines(
    law: Law, frame: HostArray, sampler: Sampler, layout: Layout, key: Key, most_rows: int, n: int, p: float
) -> list[_Lines]:
    """The law on all directions, at most `most_rows` at a time."""
    found = []
    for piece in sweep_directions(sampler, layout, key, law.dim, np.dtype(np.float64), most_rows):
        theta = np.asarray(dense_rows(piece.directions, piece.rows))
        line = law_on_lines(law.base, frame[1:], DenseDirections(theta), slice(None))
        is_scaled = len(frame) - 1 != law.base.dim
        axes = frame[1, 0] * theta if is_scaled else theta @ frame[1:].T
        # Rows of a larger space are shorter than 1 here.
        stretch = np.linalg.norm(axes, axis=1, keepdims=True)
        found.append(
            _Lines(theta, theta @ frame[:1].T, axes, line._replace(stretch=stretch).prepared_for(n, p))
        )
    return found


def _cost(projected: list[tuple[HostArray, Line]], p: float) -> float:
    """The summed costs of projections on the lines of all pieces."""
    scores = [law_slopes(px, line, ReadyCloud(px[:1].T), p, 1.0, NO_GRADIENTS)[0] for px, line in projected]
    return float(np.asarray(concat_rows(scores)).sum())
