"""A certain upper bound on the largest slice, by cells that cover the sphere and are cut where it is loose."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from orthoslice.applications.ascent import Found, Landscape
from orthoslice.backend.arrays import HostArray
from orthoslice.check.inputs import largest_magnitude
from orthoslice.clouds.mapped import MappedPoints
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.couplings.coupling import couple, coupling_bytes
from orthoslice.directions.base import DenseDirections

MOST_DIMENSIONS = 3
"""Cells grow exponentially in number with the dimension."""

# Cells along each edge of a face of the cube to begin with.
_FIRST_CUTS = 8

# A projection rounds by at most a few units in the last place for every coordinate.
_ROUNDED = 8.0


class Covered(NamedTuple):
    """The best direction that was seen, and a bound on W_p along all directions."""

    best: Found
    upper: float
    is_done: bool
    """Whether the bound is as near as it should be."""


def cover(land: Landscape, best: Found, rtol: float, most: int) -> Covered:
    """Bound W_p along every direction by at most ``1 + rtol`` times the best, or as near as `most` cells get.

    Directions go through the faces of a cube, of which opposite ones are alike. A face is cut in cells; a cell
    whose bound is too large is cut in halves along each axis.
    """
    dim = land.x.dim
    if dim == 1:
        return Covered(best, coupling_bound(land, best.theta), True)
    half = 1 / _FIRST_CUTS
    at = -1 + half * (1 + 2 * np.arange(_FIRST_CUTS))
    grid = np.array(list(itertools.product(at, repeat=dim - 1))).reshape(-1, dim - 1)
    faces, places = np.repeat(np.arange(dim), len(grid)), np.tile(grid, (dim, 1))
    halves = np.array(list(itertools.product((-0.5, 0.5), repeat=dim - 1)))
    # Cells that need not be cut further count by the largest bound among them.
    settled, seen = 0.0, 0
    while True:
        theta = _through(faces, places)
        bounds, scores = _cell_bounds(land, theta, _radii(faces, places, half, theta))
        seen += len(theta)
        top = int(np.argmax(scores))
        if scores[top] > best.score:
            best = Found(theta[top], float(scores[top]))
        goal = (1 + rtol) * best.score ** (1 / land.p)
        is_open = bounds > goal
        settled = max(settled, float(bounds[~is_open].max(initial=0.0)))
        n_next = int(is_open.sum()) * len(halves)
        if not n_next or seen + n_next > most:
            upper = max(settled, float(bounds.max()), best.score ** (1 / land.p))
            return Covered(best, upper + _rounding(land), not n_next)
        half /= 2
        faces = np.repeat(faces[is_open], len(halves))
        places = (places[is_open][:, None] + 2 * half * halves).reshape(-1, dim - 1)


def coupling_bound(land: Landscape, theta: HostArray) -> float:
    """A bound on W_p along every direction by what one coupling costs, that of `theta (dim,)`: no covering.

    No direction sees more of the moves of its pairs than their whole length, nor for p <= 2 more than the root
    of the largest eigenvalue of their second moments.
    """
    moves, mass = _moves(land, theta[None])
    lengths = np.linalg.norm(moves[0], axis=1)
    whole = float((mass[0] @ lengths**land.p) ** (1 / land.p))
    if land.p <= 2:
        spread = np.linalg.norm(np.sqrt(mass[0])[:, None] * moves[0], ord=2)
        whole = min(whole, float(spread))
    return whole + _rounding(land)


def _through(faces: HostArray, places: HostArray) -> HostArray:
    """Unit rows through places `(cells, dim - 1)` of the faces of a cube."""
    dim = places.shape[1] + 1
    others = np.array([[k for k in range(dim) if k != face] for face in range(dim)], dtype=int)
    rows = np.ones((len(faces), dim))
    np.put_along_axis(rows, others[faces], places, axis=1)
    unit: HostArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def _radii(faces: HostArray, places: HostArray, half: float, theta: HostArray) -> HostArray:
    """The largest angle between the centre of each cell and its directions, which it has at a corner."""
    corners = itertools.product((-half, half), repeat=places.shape[1])
    chords = [np.linalg.norm(_through(faces, places + np.array(corner)) - theta, axis=1) for corner in corners]
    return np.asarray(2 * np.arcsin(np.max(chords, axis=0) / 2))


def _cell_bounds(land: Landscape, theta: HostArray, radii: HostArray) -> tuple[HostArray, HostArray]:
    """Bounds on W_p over all directions within an angle of each row of `theta`, and W_p^p along the rows."""
    step = max(1, land.memory // (coupling_bytes(land.x, land.y) + 32 * land.x.dim * (land.x.n + land.y.n)))
    parts = [slice(first, first + step) for first in range(0, len(theta), step)]
    found = [_bounds_of_couplings(land, theta[part], radii[part]) for part in parts]
    return np.concatenate([bounds for bounds, _ in found]), np.concatenate([scores for _, scores in found])


def _bounds_of_couplings(land: Landscape, theta: HostArray, radii: HostArray) -> tuple[HostArray, HostArray]:
    """As :func:`_cell_bounds`, for as many directions as the memory holds.

    Along another direction, cos(a) theta + sin(a) u, W_p is at most what the coupling of theta costs there: by
    the triangle inequality cos(a) W + sin(a) T, where T is what the moves across theta cost. For p = 2
    the square is a quadratic form, with a cross term of at most |E[along * across]|.
    """
    p = land.p
    moves, mass = _moves(land, theta)
    along = np.einsum("spd,sd->sp", moves, theta)
    across = moves - along[:, :, None] * theta[:, None, :]
    scores = np.sum(mass * np.abs(along) ** p, axis=1)
    if p == 2:
        beside = np.sum(mass * np.sum(across**2, axis=2), axis=1)
        cross = np.linalg.norm(np.einsum("sp,spd->sd", mass * along, across), axis=1)
        return np.sqrt(np.maximum(_largest_on_arc(scores, beside, cross, radii), 0)), scores
    inside = scores ** (1 / p)
    beside = np.sum(mass * np.linalg.norm(across, axis=2) ** p, axis=1) ** (1 / p)
    angle = np.minimum(radii, np.arctan2(beside, inside))
    return np.cos(angle) * inside + np.sin(angle) * beside, scores


def _largest_on_arc(inside: HostArray, beside: HostArray, cross: HostArray, radii: HostArray) -> HostArray:
    """The largest cos(a)^2 inside + sin(a)^2 beside + 2 sin(a) cos(a) cross for 0 <= a <= radii."""
    middle, half = (inside + beside) / 2, (inside - beside) / 2
    double = np.minimum(2 * radii, np.arctan2(cross, half))
    return np.asarray(middle + half * np.cos(double) + cross * np.sin(double))


def _moves(land: Landscape, theta: HostArray) -> tuple[HostArray, HostArray]:
    """The moves `(slices, pairs, dim)` of the pairs of every direction's coupling, and their masses."""
    px, py = (c.project(DenseDirections(theta), slice(None), widely=True) for c in (land.x, land.y))
    pairs = couple(px, py, land.x, land.y)
    moves = np.asarray(land.x.points[pairs.ix] - land.y.points[pairs.iy], dtype=np.float64)
    return moves, np.broadcast_to(pairs.mass, moves.shape[:2])


def _rounding(land: Landscape) -> float:
    """More than rounding takes off W_p along any direction."""
    longest = max(_largest(c) for c in (land.x, land.y)) * math.sqrt(land.x.dim)
    return _ROUNDED * land.x.dim * float(np.finfo(land.x.dtype).eps) * longest


def _largest(cloud: ReadyCloud) -> float:
    """The largest magnitude of a coordinate; points in a file are read a few at a time."""
    points = cloud.points
    if isinstance(points, MappedPoints):
        return max(largest_magnitude(points.read(part)) for part in points.parts())
    return largest_magnitude(points)
