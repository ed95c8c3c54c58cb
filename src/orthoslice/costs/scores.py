"""Scores: what the coupling of one direction costs, and how that changes with the clouds.

Every score is `sum_k mass[k] * cost[k]` over the pairs of a coupling. The scores differ in how a pair is
priced: on the line of its own direction (sliced), in full space, or on the line of other directions.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from orthoslice.backend.arrays import Array, DType, Wanted
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.mapped import stored_points
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.draw import Draw, Scored
from orthoslice.costs.lines import sliced_scores, sorted_scores, sorted_slopes
from orthoslice.costs.pools import mean_power, mean_shortening, price_in_pool
from orthoslice.costs.space import price_in_space
from orthoslice.costs.weighted import price_on_lines, weighted_slopes
from orthoslice.couplings.coupling import Pairs, couple, coupling_bytes
from orthoslice.directions.base import projection_dtype

POOL_ROWS = 32
"""Directions that price each other in `pooled`: enough to average the noise, few enough to be quick."""


class Score(abc.ABC):
    """How couplings are priced: a frozen, hashable value."""

    breaks_ties: ClassVar[bool] = True
    """Whether the order of tied projections matters; see :func:`orthoslice.clouds.ready.make_ready`."""
    needs_partner: ClassVar[bool] = False
    on_sphere: ClassVar[bool] = False
    """Whether points lie on the unit sphere and stay there: clouds get no other origin and no other unit."""
    is_pooled: ClassVar[bool] = False
    """Whether directions price each other, which takes blocks of one size."""

    def directions_dtype(self, x: Cloud) -> DType:
        """The floating type in which directions are drawn: the library's widest if the order of ties counts."""
        return projection_dtype(x.points) if self.breaks_ties else x.dtype

    def second(self, points: Array, weights: Array | None) -> Cloud:
        """What stands in the place of the second cloud, from its arrays."""
        return Cloud(points, weights)

    def example(self, y: Cloud) -> Cloud:
        """Points like those that `y` stands for, to judge by whether an interval can be trusted."""
        return y

    def blocks_per_unit(self, n_blocks: int, block_rows: int, is_basis: bool, p: float) -> int:
        """How many consecutive blocks price each other and so count as one independent observation."""
        return 1

    def row_bytes(self, x: Cloud, y: Cloud, p: float, wanted: Wanted) -> int:
        """Working memory that a direction needs at its peak."""
        return coupling_bytes(x, y)

    @abc.abstractmethod
    def evaluate(self, x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        """Scores `(slices, ...)`, and the wanted gradients of their sum, each with the batch axes first."""


@dataclass(frozen=True)
class Sliced(Score):
    """Pairs priced on the line of the direction that made them: SW_p^p (algorithms 1 and 3)."""

    breaks_ties: ClassVar[bool] = False

    def row_bytes(self, x: Cloud, y: Cloud, p: float, wanted: Wanted) -> int:
        # A coordinate of all points has the shape of a projection.
        px, py = stored_points(x.points)[0][None, ..., 0], stored_points(y.points)[0][None, ..., 0]
        if not (x.weights is None and y.weights is None):
            return weighted_slopes.row_bytes(px, py, x, y, p, 1.0, False, wanted)
        return sorted_slopes.row_bytes(px, py, p, 1.0) if any(wanted) else sorted_scores.row_bytes(px, py, p)

    def evaluate(self, x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        directions = draw.directions
        factor = 1 / mean_shortening(directions.dim, directions.ambient_dim, p)
        uniform = x.weights is None and y.weights is None
        if uniform and not any(wanted):
            if x.has_table and y.has_table:
                scores = sliced_scores(x.points, y.points, directions, draw.rows, p)
            else:
                scores = sorted_scores(*(c.project(directions, draw.rows) for c in (x, y)), p)
            return Scored(scores if factor == 1 else factor * scores)
        slopes: Sequence[Array]
        by_weights: tuple[Array, ...]
        px, py = (c.project(directions, draw.rows) for c in (x, y))
        if uniform:
            scores, *slopes = sorted_slopes(px, py, p, factor)
            by_weights = ()
        else:
            scores, slopes, by_weights = weighted_slopes(px, py, x, y, p, factor, draw.other_side, wanted)
        sides = zip(slopes, wanted, strict=False)
        by_points = (directions.adjoint(side, draw.rows) for side, want in sides if want)
        return Scored(scores, (*by_points, *by_weights))


@dataclass(frozen=True)
class Exact(Score):
    """Pairs priced by their full distance |x - y|^p: PW_p^p (algorithms 2 and 4)."""

    def evaluate(self, x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        return Scored(*price_in_space(x, y, p, _coupled(x, y, draw), wanted))


@dataclass(frozen=True)
class Independent(Score):
    """Pairs priced on the line of a second, independent direction, divided by c = E|theta_1|^p.

    The computation that motivates PW in the paper, made unbiased for every p.
    """

    needs_partner: ClassVar[bool] = True

    def evaluate(self, x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        assert draw.partner is not None
        pairs = _coupled(x, y, draw)
        qx, qy = (c.project(draw.partner, draw.rows, widely=True) for c in (x, y))
        factor = 1 / mean_power(draw.partner.ambient_dim, p)
        return Scored(*price_on_lines(x, y, p, pairs, qx, qy, draw, draw.partner, factor, wanted))


@dataclass(frozen=True)
class Pooled(Score):
    """Pairs priced on the lines of the other directions drawn (Johnson-Lindenstrauss), divided by c.

    A direction is left out of its own price, and so is its block, on which its coupling depends: unbiased for
    every p. About 32 directions, at least two blocks, price each other and count as one observation for the
    error bar. For p = 2 a whole orthonormal block prices its own couplings exactly, so the price is then the
    full distance.
    """

    is_pooled: ClassVar[bool] = True

    def blocks_per_unit(self, n_blocks: int, block_rows: int, is_basis: bool, p: float) -> int:
        if p == 2 and is_basis:
            return 1
        if n_blocks < 2:
            raise ValueError(
                '`cost="pooled"` leaves out the block that made a coupling, so it needs at least two blocks; '
                f"got one of {block_rows} directions. Ask for more directions, or for a smaller `block_size`."
            )
        return min(max(2, -(-POOL_ROWS // block_rows)), n_blocks)

    def evaluate(self, x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        pairs = _coupled(x, y, draw)
        if p == 2 and draw.is_basis:
            return Scored(*price_in_space(x, y, p, pairs, wanted))
        factor = 1 / mean_power(draw.directions.ambient_dim, p)
        return Scored(*price_in_pool(x, y, p, pairs, draw, factor, wanted))


@dataclass(frozen=True)
class PaperPooled(Score):
    """The paper's own pooled formula, `(d / N) sum_n' |<v_n', x - y>|^p` over all N directions: **biased**.

    The direction that made a coupling is in the pool, and the factor d / N is right for p = 2 only. With iid
    directions and p = 2 its mean is SW / (N c) + (N - 1) / N PW. Here for comparison; use `pooled`.
    """

    is_pooled: ClassVar[bool] = True

    def blocks_per_unit(self, n_blocks: int, block_rows: int, is_basis: bool, p: float) -> int:
        return n_blocks

    def evaluate(self, x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        pairs = _coupled(x, y, draw)
        everyone = draw._replace(block_rows=0)
        return Scored(*price_in_pool(x, y, p, pairs, everyone, draw.directions.dim, wanted))


COSTS: dict[str, Score] = {
    "exact": Exact(),
    "pooled": Pooled(),
    "independent": Independent(),
    "paper_pooled": PaperPooled(),
}


def _coupled(x: ReadyCloud, y: ReadyCloud, draw: Draw) -> Pairs:
    """The couplings that the directions of a pass induce."""
    px, py = (c.project(draw.directions, draw.rows, widely=True) for c in (x, y))
    return couple(px, py, x, y, draw.other_side)
