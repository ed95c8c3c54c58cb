"""The regions of directions that induce one and the same coupling, with their exact probabilities.

As a direction turns, the order of a cloud's projections changes only where the direction is perpendicular to
the difference of two of its points. These great circles cut the sphere into cells. Cells that induce the same
coupling sigma form the region E_sigma of the paper: the union over tau of the cells where x has order tau and y
has order sigma o tau.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.ready import as_given, with_masses
from orthoslice.couplings.coupling import couple, powered_norm

# Great circles on the sphere: two clouds of 8 points have 56, which make at most 1,655 cells on half of it.
MAX_CIRCLES = 64
# Critical angles in the plane: two clouds of 128 points. Couplings are compared in full: 64 MB of indices.
MAX_ANGLES = 2**14

# Narrower cells may be due to rounding; their directions can be assigned to a neighbour.
_SAME_ANGLE = 2.0**-48
# Masses are compared to this accuracy, so that those that agree but for rounding are one coupling.
_MASS_UNITS = 2.0**40


class Regions(NamedTuple):
    """Half of the unit sphere in the span of `basis`, tiled; the other half is opposite and the same.

    A coupling depends only on that part of a direction. Pieces are grouped by coupling, cheapest first.
    """

    basis: FloatArray  # (k, dim) orthonormal rows, k in {1, 2, 3}
    piece: FloatArray  # (pieces, ...) how to draw from it: see `_arcs` and `_triangles`
    share: FloatArray  # (pieces,) probabilities; they sum to 1
    group: IntArray  # (pieces,) ascending: which coupling a piece belongs to
    cost: FloatArray  # (groups,) ascending: what the couplings cost

    @property
    def probability(self) -> FloatArray:
        """How likely a uniform direction is to induce each coupling, `(groups,)`."""
        return np.bincount(self.group, self.share).astype(np.float64)


class _Tiling(NamedTuple):
    piece: FloatArray
    share: FloatArray
    centre: FloatArray  # (pieces, k) a direction inside each


def coupling_regions(x: Cloud, y: Cloud, p: float) -> Regions:
    """Find the regions of two clouds in host memory, ordered by the couplings' cost at power `p`.

    Every piece lies in one cell, and pieces tile the half sphere. So directions drawn by their shares are
    uniform whatever rounding does to the labels: these decide how much is gained, not what is estimated.

    Examples
    --------
    >>> x, y = Cloud(np.array([[0.0, 0.0], [1.0, 0.0]])), Cloud(np.array([[0.0, 0.0], [1.0, 1.0]]))
    >>> coupling_regions(x, y, 2).probability.tolist()
    [0.75, 0.25]
    """
    x, y = _merged(x), _merged(y)
    basis = _basis(x, y)
    inside = [c.points @ basis.T for c in (x, y)]
    normal = np.concatenate([_differences(points) for points in inside])
    tiling = (_whole, _arcs, _triangles)[len(basis) - 1](normal)
    label, cost = _couplings(tiling.centre, inside, x, y, p)
    by_cost = np.argsort(cost, kind="stable")
    group = np.argsort(by_cost, kind="stable")[label]
    order = np.argsort(group, kind="stable")
    share = tiling.share[order] / tiling.share.sum()
    return Regions(basis, tiling.piece[order], share, group[order], cost[by_cost])


def _merged(cloud: Cloud) -> Cloud:
    """Coincident points as one that weighs as much: which of them is matched makes no difference."""
    # Adding 0 makes a positive zero of a negative one.
    points, place, counts = np.unique(cloud.points + 0.0, axis=0, return_inverse=True, return_counts=True)
    weights = counts / cloud.n
    if cloud.weights is not None:
        weights = np.bincount(place.ravel(), cloud.weights).astype(np.float64)
    points, weights = points[weights > 0], weights[weights > 0]
    return Cloud(points, None if weights.min() == weights.max() else weights)


def _basis(x: Cloud, y: Cloud) -> FloatArray:
    """A basis `(k, dim)` of all differences within both clouds, with k at least 2 where there is room."""
    steps = np.concatenate([c.points[1:] - c.points[0] for c in (x, y)] + [np.zeros((2, x.dim))])
    _, size, rows = np.linalg.svd(steps, full_matrices=False)
    rank = int(np.sum(size > size[0] * max(steps.shape) * np.finfo(np.float64).eps))
    if rank > 3:
        raise ValueError(
            "The differences within `x` and those within `y` must span at most 3 dimensions together, where "
            "regions have known probabilities: always so for dim <= 3, and for two points a side in any dim; "
            f"got {rank}. Use `Orthogonal()`, which approximates stratification at any size."
        )
    k = min(x.dim, max(rank, 2))
    basis: FloatArray = np.eye(k) if k == x.dim else rows[:k]
    return basis


def _differences(points: FloatArray) -> FloatArray:
    """All differences of two points, up to sign."""
    i, j = np.triu_indices(len(points), 1)
    return points[j] - points[i]


def _whole(normal: FloatArray) -> _Tiling:
    """One dimension has one direction, and its opposite."""
    return _Tiling(np.zeros((1, 0)), np.ones(1), np.ones((1, 1)))


def _arcs(normal: FloatArray) -> _Tiling:
    """Arcs of a half circle between the angles perpendicular to some vectors: start and length."""
    if len(normal) > MAX_ANGLES:
        raise ValueError(_too_many(len(normal), MAX_ANGLES))
    angle = np.mod(np.arctan2(normal[:, 0], -normal[:, 1]), np.pi)
    edge = np.unique(np.concatenate([[0.0], angle]))
    edge = edge[np.diff(edge, append=np.pi) > _SAME_ANGLE]
    edge[0] = 0.0
    length = np.diff(edge, append=np.pi)
    middle = edge + length / 2
    centre = np.stack([np.cos(middle), np.sin(middle)], axis=1)
    return _Tiling(np.stack([edge, length], axis=1), length, centre)


def _triangles(normal: FloatArray) -> _Tiling:
    """Spherical triangles that tile the cells into which great circles cut half a sphere.

    Each row holds what drawing from a triangle ABC needs: A, B, the unit vector D at A towards C, half the
    area, 1 + <A, B>, det(A, B, D) and <B, D>.
    """
    if len(normal) > MAX_CIRCLES:
        raise ValueError(_too_many(len(normal), MAX_CIRCLES))
    up = np.array([0.0, 0.0, 1.0])
    around = [np.array([c, s, 0.0]) for c, s in ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))]
    cells = [np.stack([up, around[q], around[(q + 1) % 4]]) for q in range(4)]
    # The longest coordinate first: squares of tiny differences would vanish.
    normal = normal / np.abs(normal).max(axis=1, keepdims=True)
    for row in normal / np.linalg.norm(normal, axis=1, keepdims=True):
        cells = [part for cell in cells for part in _cut(cell, row)]
    fans = [(cell[0], cell[i], cell[i + 1]) for cell in cells for i in range(1, len(cell) - 1)]
    a, b, c = np.array(fans).transpose(1, 0, 2)
    along_ab, along_bc, along_ca = (np.sum(u * w, axis=1) for u, w in ((a, b), (b, c), (c, a)))
    # Half the solid angle, by the formula of van Oosterom and Strackee.
    half_area = np.arctan2(np.linalg.det(np.stack([a, b, c], axis=1)), 1 + along_ab + along_bc + along_ca)
    side = c - along_ca[:, None] * a
    d = side / np.linalg.norm(side, axis=1, keepdims=True)
    numbers = [half_area, 1 + along_ab, np.linalg.det(np.stack([a, b, d], axis=1)), np.sum(b * d, axis=1)]
    piece = np.concatenate([a, b, d, np.stack(numbers, axis=1)], axis=1)
    # Corners on a straight side leave triangles of no area.
    kept = half_area > 1e-14
    return _Tiling(piece[kept], half_area[kept], (a + b + c)[kept])


def _cut(cell: FloatArray, normal: FloatArray) -> list[FloatArray]:
    """A convex spherical polygon `(corners, 3)`, counterclockwise, cut in two where a great circle hits it."""
    height = cell @ normal
    height[np.abs(height) < 1e-13] = 0.0
    if (height >= 0).all() or (height <= 0).all():
        return [cell]
    sides: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    for i, h in enumerate(height):
        j = (i + 1) % len(cell)
        for side, sign in zip(sides, (1, -1), strict=True):
            if sign * h >= 0:
                side.append(cell[i])
        if h * height[j] < 0:
            crossing = (height[j] * cell[i] - h * cell[j]) / (height[j] - h)
            for side in sides:
                side.append(crossing / np.linalg.norm(crossing))
    return [np.stack(side) for side in sides]


def _too_many(count: int, limit: int) -> str:
    return (
        f"`x` and `y` must have at most {limit} differences, n (n - 1) / 2 + m (m - 1) / 2, for their regions "
        f"to be listed; got {count}. Use `Orthogonal()`, which approximates stratification at any size."
    )


def _couplings(
    centre: FloatArray, inside: list[FloatArray], x: Cloud, y: Cloud, p: float
) -> tuple[IntArray, FloatArray]:
    """Which coupling each direction induces `(pieces,)`, and what the couplings cost `(couplings,)`."""
    ready = with_masses(as_given(x), as_given(y))
    pairs = couple(centre @ inside[0].T, centre @ inside[1].T, *ready)
    pair = pairs.ix * y.n + pairs.iy
    mass = np.broadcast_to(pairs.mass, pair.shape)
    units = np.rint(mass * _MASS_UNITS).astype(np.int64)
    # Pairs without mass get one index above all others, so that couplings differing in them are equal.
    pair = np.where(units > 0, pair, x.n * y.n)
    order = np.argsort(pair, axis=1, kind="stable")
    key = np.concatenate([np.take_along_axis(a, order, axis=1) for a in (pair, units)], axis=1)
    _, example, label = np.unique(key, axis=0, return_index=True, return_inverse=True)
    price = np.append(cast(FloatArray, powered_norm(x.points[:, None] - y.points[None], p)).ravel(), 0.0)
    cost = np.sum(price[pair[example]] * mass[example], axis=1)
    return label.ravel(), cost
