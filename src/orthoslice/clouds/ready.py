"""Clouds made ready for scoring: in the order that decides ties, with integer masses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import Array, HostArray, detach, is_readable, namespace
from orthoslice.clouds.canonical import canonical_order, gather_points, may_be_shuffled, roundings
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.mapped import MappedPoints, Points, is_file
from orthoslice.clouds.masses import integer_masses
from orthoslice.directions.base import projection_dtype


@dataclass(frozen=True, eq=False)
class ReadyCloud(Cloud):
    """A cloud that scores are worked out from.

    One contract for every kind of cloud: row k of points, weights, masses, roundings, projections and gradients
    is row `order[k]` of the cloud as the user gave it. Points in a file keep that order themselves
    (:class:`orthoslice.clouds.mapped.MappedPoints`).
    """

    order: Array | None = None
    """`(..., n)`; None where no row was moved."""
    masses: Array | None = None
    """The weights as integers `(..., n)`; None where neither this cloud nor its partner has weights."""
    rounding: Array | None = None
    """How far off the projection of each point may be, `(..., n)`; None where only equal numbers tie."""

    @property
    def held(self) -> list[Array | None]:
        return [*super().held, self.order, self.masses, self.rounding]

    @property
    def has_table(self) -> bool:
        """Whether kernels can read the points as an array; if not, only :meth:`project` gives numbers."""
        return type(self.points) is not MappedPoints

    def in_users_order(self, by_row: Array) -> Array:
        """Gradients by points `(..., n, dim)` or by weights `(..., n)`, in the order of the user's rows."""
        if self.order is None:
            return by_row
        xp = namespace(by_row)
        is_points = by_row.ndim > len(self.points.shape) - 1
        rows = by_row if is_points else by_row[..., None]
        place = xp.broadcast_to(xp.argsort(self.order, axis=-1), rows.shape[:-1])
        back = gather_points(rows, place)
        return back if is_points else back[..., 0]


def as_given(cloud: Cloud) -> ReadyCloud:
    """The cloud in the order of its rows, for scores that no order of ties changes."""
    points = MappedPoints(cloud.points) if is_file(cloud.points) else cloud.points
    return ReadyCloud(points, cloud.weights, cloud.largest)


def in_canonical_order(cloud: Cloud) -> ReadyCloud:
    """The cloud in the lexicographic order of its points.

    Equal points are in the order of their weights; equal points in a file in the order in which they lie there.
    """
    xp, points, weights = namespace(cloud.points), cloud.points, cloud.weights
    if cloud.is_mapped:
        lazy = points if isinstance(points, MappedPoints) else MappedPoints(points)
        assert lazy.order is None, "a cloud is put in order once"
        order = canonical_order(lazy.table, None)
        points = lazy.taken(cast(HostArray, order))
    else:
        order = canonical_order(points, weights)
        points = gather_points(points, order)
    if weights is not None:
        weights = xp.take_along_axis(weights, order, axis=-1)
    return ReadyCloud(points, weights, cloud.largest, order=order)


def ready_for_ties(cloud: Cloud) -> ReadyCloud:
    """As :func:`in_canonical_order`, with `rounding` if projections are in float64.

    In float32 such a bound would tie many neighbours that are not equal: there only equal numbers tie.
    """
    ready = in_canonical_order(cloud)
    points = ready.points
    if projection_dtype(points) != namespace(points).float64:
        return ready
    if isinstance(points, MappedPoints):
        return replace(ready, rounding=points.project(_Roundings(), slice(0, 1), None)[0])
    return replace(ready, rounding=roundings(detach(points)))


class _Roundings:
    """:func:`roundings` with the interface of directions, so that a file is read a few points at a time."""

    def project(self, points: Points, rows: Rows) -> Array:
        return roundings(points)[None, ...]


def with_masses(x: ReadyCloud, y: ReadyCloud) -> tuple[ReadyCloud, ReadyCloud]:
    """Clouds with integer masses if either has weights: worked out once, not for every coupling."""
    if x.weights is None and y.weights is None:
        return x, y
    return replace(x, masses=integer_masses(x)), replace(y, masses=integer_masses(y))


def make_ready(x: Cloud, y: Cloud, *, for_ties: bool) -> tuple[ReadyCloud, ReadyCloud]:
    """Both clouds, which may have been moved to one origin, ready for a score.

    `for_ties` says that the order of tied projections matters to the score.
    """
    # Masses are rounded in the order of the points, so a shuffled copy of a cloud is put in the same order.
    in_order = not for_ties and is_readable(x.points) and may_be_shuffled(x, y)
    prepare = ready_for_ties if for_ties else in_canonical_order if in_order else as_given
    return with_masses(prepare(x), prepare(y))
