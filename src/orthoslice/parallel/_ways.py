"""The two ways to a value of clouds that are spread over ranks: by their projections, or by their points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from orthoslice.backend.arrays import Array, Outcome, Wanted, device, is_readable, namespace, wide_float
from orthoslice.check.inputs import check_weights, is_uniform
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import far_centre
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.draw import Draw, Scored
from orthoslice.costs.lines import sorted_scores, sorted_slopes
from orthoslice.costs.pools import mean_shortening
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Given
from orthoslice.estimates.driver import compute, nan_where_unsound
from orthoslice.estimates.passes import Passes
from orthoslice.estimates.request import Request
from orthoslice.parallel._ranks import Ranks

# Numbers held per projection: on the rank of its point, with copies for sending, and on the rank of its
# direction, sorted and with all that a kernel makes of it.
_HELD_BY_POINT, _HELD_BY_DIRECTION = 4, 12


class Shards(NamedTuple):
    """How many points of two clouds each rank holds, and which gradients are wanted."""

    ranks: Ranks
    n: list[int]
    """Points of x, rank by rank."""
    m: list[int]
    """Points of y."""
    wanted: Wanted
    """Which inputs (x, y and their weights) need a gradient on any rank."""
    factor: float
    """What gradients are multiplied by."""

    @property
    def counts(self) -> tuple[list[int], ...]:
        """Rows of x, y and their weights, rank by rank."""
        return self.n, self.m, self.n, self.m

    def outcome(self, value: Array, gradients: tuple[Array | None, ...], wanted: Wanted) -> Outcome:
        """The value with the gradients wanted on this rank; `gradients` are those wanted on any."""
        own = (
            self.factor * g if want and g is not None else None
            for g, want in zip(gradients, wanted, strict=True)
        )
        return Outcome(value, (), tuple(own))


def sends_projections(request: Request, shards: Shards, x: Cloud, y: Cloud) -> bool:
    """Whether projections are to be sent, not points: where they are fewer numbers, and suffice."""
    if not isinstance(request.score, Sliced) or x.weights is not None or y.weights is not None:
        return False
    if request.sampler.weights(request.layout.longest_block, x.dim) is not None:
        return False
    return request.layout.n_directions < x.dim * shards.ranks.size


def by_points(
    shards: Shards, request: Request, inputs: tuple[Array | None, ...], constants: object, wanted: Wanted
) -> Outcome:
    """Every rank gets all points, scores its share of the directions, and sends the gradients back."""
    ranks = shards.ranks
    gathered: list[Any] = [
        None if a is None else ranks.gather_rows(a, counts)
        for a, counts in zip(inputs, shards.counts, strict=True)
    ]
    points = gathered[:2]
    for k, name in ((2, "x"), (3, "y")):
        if gathered[k] is not None:
            gathered[k] = check_weights(f"{name}_weights", gathered[k], name, points[k - 2])
            if is_uniform(gathered[k]) and not shards.wanted[k]:
                gathered[k] = None
    total, (first, stop) = request.layout.n_directions, ranks.share(request.layout.n_directions)
    xp, share = namespace(points[0]), (stop - first) / total
    if share:
        of_share = compute(replace(request, share=(first, stop)), tuple(gathered), constants, shards.wanted)
        value, gradients = share * of_share.value, of_share.gradients
    else:
        # There are more ranks than directions.
        value = xp.sum(points[0][:0])
        gradients = tuple(
            xp.zeros_like(a) if want else None for a, want in zip(gathered, shards.wanted, strict=True)
        )
    back = tuple(
        None if g is None else ranks.add_rows(share * g, counts)
        for g, counts in zip(gradients, shards.counts, strict=True)
    )
    return shards.outcome(ranks.total(value), back, wanted)


def by_projections(
    shards: Shards, request: Request, inputs: tuple[Array | None, ...], constants: Any, wanted: Wanted
) -> Outcome:
    """Every rank projects its points, prices its share of the directions, and gets the slopes of its points."""
    ranks, (key, theta), points = shards.ranks, constants, inputs[:2]
    if theta is not None:
        request = replace(request, sampler=Given(theta=theta))
    centre = _far_centre(ranks, cast(Array, points[0]))
    x, y = (ReadyCloud(of_cloud - centre) for of_cloud in points)
    passes = _SharedPasses(replace(request, workers=1), x, y, key, shards.wanted, lambda _: None, shards)
    scored, total = passes.run(0, request.layout.n_units), request.layout.n_directions
    xp = namespace(x.points)
    # In one type on all ranks, also where one of them had nothing to price.
    of_share = xp.sum(scored.costs, axis=0, dtype=wide_float(x.points))
    value = ranks.total(of_share) / total + nan_where_unsound(request, x, y)
    if not is_readable(value):
        # Where no error can be raised, overflow becomes NaN, as bad input does: inf + 0 * inf.
        value = value + 0 * value
    found = iter(scored.gradients)
    gradients = tuple(next(found) / total if want else None for want in shards.wanted)
    return shards.outcome(xp.astype(value, x.dtype), gradients, wanted)


def _far_centre(ranks: Ranks, points: Array) -> Array:
    """What :func:`far_centre` takes off all points: it depends on the ends of their range alone."""
    xp = namespace(points)
    if points.shape[0]:
        ends = xp.stack([-xp.min(points, axis=0), xp.max(points, axis=0)])
    else:
        ends = xp.full((2, points.shape[1]), -xp.inf, dtype=points.dtype, device=device(points))
    low, high = ranks.largest(ends)
    return far_centre(xp.stack([-low, high]), (-2,))


@dataclass(frozen=True, eq=False)
class _SharedPasses(Passes):
    """Passes over the directions that all ranks make together, each with a share of every pass.

    Scores are those of the rank's shares, gradients those of its points.
    """

    shards: Shards

    def _evaluate(self, draw: Draw) -> Scored:
        (ranks, *counts, wanted, _), p, directions = self.shards, self.request.p, draw.directions
        clouds = self.x, self.y
        mine = [_project(c, draw) for c in clouds]
        px, py = (ranks.by_direction(a, of) for a, of in zip(mine, counts, strict=True))
        factor = 1 / mean_shortening(directions.dim, directions.ambient_dim, p)
        if px.shape[0] == 0:
            # Fewer directions than ranks: this one has nothing to price.
            scores, slopes = px[:, 0], [px, py]
        elif any(wanted):
            scores, *slopes = sorted_slopes(px, py, p, factor)
        else:
            scores, slopes = factor * sorted_scores(px, py, p), []
        gradients = tuple(
            _adjoint(c, ranks.by_point(side, of, a.shape[0]), draw)
            for c, side, of, a, want in zip(clouds, slopes, counts, mine, wanted, strict=False)
            if want
        )
        return Scored(scores, gradients)

    def _chunk_rows(self, rows: int) -> int:
        """As many as the memory of every rank holds: all ranks come to the same number."""
        request, (ranks, n, m, *_) = self.request, self.shards
        width = namespace(self.x.points).finfo(self.x.dtype).bits // 8
        longest = max(a + b for a, b in zip(n, m, strict=True))
        numbers = _HELD_BY_POINT * longest + _HELD_BY_DIRECTION * (sum(n) + sum(m)) // ranks.size
        per_row = numbers * width + request.sampler.row_bytes(self.x.dim)
        return int(max(ranks.size, request.memory // per_row))


def _project(shard: Cloud, draw: Draw) -> Array:
    """Projections of a shard, which unlike other clouds may be empty."""
    if shard.n:
        return shard.project(draw.directions, draw.rows)
    assert isinstance(draw.rows, slice)
    rows = draw.rows.stop - draw.rows.start
    return namespace(shard.points).zeros((rows, 0), dtype=shard.dtype, device=device(shard.points))


def _adjoint(shard: Cloud, slopes: Array, draw: Draw) -> Array:
    return draw.directions.adjoint(slopes, draw.rows) if shard.n else shard.points
