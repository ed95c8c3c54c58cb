"""Scores on spheres: a plane maps the points to a circle or to a line, where they are matched.

A direction is a plane, given by two orthonormal rows `e` and `f`. A point x has the coordinates u = <e, x> and
v = <f, x> in it, and all that a score needs of it is one number made of these two.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from orthoslice.backend.arrays import Array, Wanted, namespace
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.mapped import stored_points
from orthoslice.clouds.masses import Masses, shared_masses, total_mass
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.circle import circle_slopes, uniform_circle_slopes
from orthoslice.costs.draw import Draw, Scored
from orthoslice.costs.lines import count_numbers, sorted_scores, sorted_slopes
from orthoslice.costs.scores import Score
from orthoslice.costs.weighted import weighted_slopes
from orthoslice.directions.planes import PlaneDirections


class Chart(NamedTuple):
    """One number a point, `(slices, ..., n)`, and its derivatives by both coordinates of the plane."""

    place: Array
    slopes: tuple[Array, Array] | None
    """None if they are not wanted."""


@dataclass(frozen=True)
class Spherical(Score):
    """Base of scores of points on the unit sphere: what a plane maps them to, and what they cost there."""

    breaks_ties: ClassVar[bool] = False
    on_sphere: ClassVar[bool] = True

    @abc.abstractmethod
    def chart(self, u: Array, v: Array, wanted: bool) -> Chart:
        """Where points with these coordinates in the planes go; `wanted` says whether with slopes."""

    @abc.abstractmethod
    def price(
        self, places: tuple[Array, Array], x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted
    ) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
        """Scores, their derivatives by the places of x and of y, and the wanted gradients by weights."""

    def evaluate(self, x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        planes = draw.directions
        assert isinstance(planes, PlaneDirections)
        charts = [
            self.chart(cloud.project(planes, draw.rows), cloud.project(planes.second, draw.rows), want)
            for cloud, want in zip((x, y), wanted, strict=False)
        ]
        scores, slopes, by_weights = self.price((charts[0].place, charts[1].place), x, y, p, draw, wanted)
        by_points = (
            planes.adjoint(slope * chart.slopes[0], draw.rows)
            + planes.second.adjoint(slope * chart.slopes[1], draw.rows)
            for slope, chart in zip(slopes, charts, strict=False)
            if chart.slopes is not None
        )
        return Scored(scores, (*by_points, *by_weights))

    def _places_bytes(self, x: Cloud, y: Cloud, wanted: Wanted) -> tuple[Array, Array, int]:
        """Arrays of the shape of places, and what charts take."""
        ax, ay = (stored_points(c.points)[0][None, ..., 0] for c in (x, y))
        return ax, ay, (8 if any(wanted) else 4) * 8 * count_numbers(ax, ay)


@dataclass(frozen=True)
class GreatCircles(Spherical):
    """W_p^p on great circles of length 1: points go to the nearest point of the circle (SSW)."""

    def chart(self, u: Array, v: Array, wanted: bool) -> Chart:
        xp = namespace(u)
        turns = xp.atan2(v, u) / (2 * math.pi)
        if not wanted:
            return Chart(turns, None)
        square = u * u + v * v
        # Points at right angles to the plane have no nearest point, and no slope.
        pull = 1 / (2 * math.pi * xp.where(square > 0, square, xp.ones_like(square)))
        return Chart(turns, (-v * pull, u * pull))

    def price(
        self, places: tuple[Array, Array], x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted
    ) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
        refuse_weight_gradients(wanted)
        if x.masses is None or y.masses is None:
            masses = shared_masses(x, y)
        else:
            masses = Masses(x.masses, y.masses, total_mass(x.points))
        scores, slopes = circle_slopes(*places, masses, p, 1.0, wanted[:2])
        return scores, slopes, ()

    def row_bytes(self, x: Cloud, y: Cloud, p: float, wanted: Wanted) -> int:
        ax, ay, own = self._places_bytes(x, y, wanted)
        masses = Masses(ax, ay, 1)
        return own + int(circle_slopes.row_bytes(ax, ay, masses, p, 1.0, wanted[:2]))


@dataclass(frozen=True)
class GreatCirclesToUniform(GreatCircles):
    """As :class:`GreatCircles`, between x and the uniform law, which great circles map to the uniform law."""

    def price(
        self, places: tuple[Array, Array], x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted
    ) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
        refuse_weight_gradients(wanted)
        return *uniform_circle_slopes(places[0], x, p, 1.0, wanted[0]), ()

    def row_bytes(self, x: Cloud, y: Cloud, p: float, wanted: Wanted) -> int:
        ax, _, own = self._places_bytes(x, y, wanted)
        return own + int(uniform_circle_slopes.row_bytes(ax, x, p, 1.0, wanted[0]))


@dataclass(frozen=True)
class Stereographic(Spherical):
    """W_p^p on lines through the ball that the sphere without a pole is unrolled to (S3W).

    The first axis of a plane is the pole e. A point goes to the ball of radius 1 around the opposite pole, in
    the direction in which it lies from there, at distance arccos((1 - r^2) / (1 + r^2)) / pi, where
    r = 2 |x - <e, x> e| / (1 - <e, x>) is that of its stereographic projection; and then to the line along the
    second axis. So close to a pole that rounding hides on which side of it a point lies, there is no slope.
    """

    def chart(self, u: Array, v: Array, wanted: bool) -> Chart:
        xp = namespace(u)
        info = xp.finfo(u.dtype)
        up, down = (xp.maximum(1 + sign * u, xp.full_like(u, float(info.eps) ** 2)) for sign in (1, -1))
        # 2 arctan(r) is the arccosine; `sine` is the length of the point's part at right angles to the pole,
        # of which v is a part too, whatever rounding left of 1 - |u|.
        radius, sine = 2 * xp.atan2(2 * xp.sqrt(up), xp.sqrt(down)), xp.maximum(xp.sqrt(up * down), xp.abs(v))
        stretch = radius / (math.pi * sine)
        if not wanted:
            return Chart(stretch * v, None)
        growth = (4 / (up * 4 + down) + u * radius / sine) / (math.pi * sine * sine)
        is_told = up * down > 4 * float(info.eps)
        slopes = (xp.where(is_told, slope, xp.zeros_like(slope)) for slope in (growth * v, stretch))
        return Chart(stretch * v, (next(slopes), next(slopes)))

    def price(
        self, places: tuple[Array, Array], x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted
    ) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
        if not (x.weights is None and y.weights is None):
            found: tuple[Array, tuple[Array, ...], tuple[Array, ...]]
            found = weighted_slopes(*places, x, y, p, 1.0, draw.other_side, wanted)
            return found
        if not any(wanted):
            return sorted_scores(*places, p), (), ()
        scores, *slopes = sorted_slopes(*places, p, 1.0)
        return scores, tuple(slopes), ()

    def row_bytes(self, x: Cloud, y: Cloud, p: float, wanted: Wanted) -> int:
        ax, ay, own = self._places_bytes(x, y, wanted)
        if not (x.weights is None and y.weights is None):
            return own + int(weighted_slopes.row_bytes(ax, ay, x, y, p, 1.0, False, wanted))
        return own + int(sorted_slopes.row_bytes(ax, ay, p, 1.0))


def refuse_weight_gradients(wanted: Wanted) -> None:
    """Raise where a gradient by weights is asked for."""
    if any(wanted[2:]):
        raise ValueError(
            "`x_weights` and `y_weights` have no gradient on circles: detach them (`weights.detach()`, "
            "`jax.lax.stop_gradient`)."
        )
