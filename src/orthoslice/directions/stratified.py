"""Stratified directions: the paper's estimator that is never worse than independent directions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    DType,
    HostArray,
    Key,
    Namespace,
    device,
    namespace,
    normals,
    wide_float,
)
from orthoslice.backend.arrays.key import words
from orthoslice.directions.base import DEFAULT_BLOCKS, DenseDirections, Sampler, default_rows

if TYPE_CHECKING:
    from orthoslice.exact._regions import Regions


@dataclass(frozen=True, eq=False, repr=False)
class Stratified(Sampler):
    """Directions spread over the couplings that two clouds can have (stratified estimation in the paper).

    The sphere is cut into the regions E_sigma of directions that induce the coupling sigma. Their
    probabilities, laid end to end in the order of the couplings' costs, are cut into as many equal cells as
    there are directions. A uniform point of each cell names a region, and a direction is drawn uniformly
    within it; then the directions are shuffled. Each of them is uniform on the sphere, so estimates are
    unbiased. For SW and PW, any p and any clouds, the mean squared error is at most that of :class:`IID`, and
    less by 1/N of the variance between the means of the N cells. With two or more directions it is strictly
    less for PW_p at the `p` given here, unless all couplings cost the same; and for SW too where there are two
    couplings, unless their mean scores are the same.

    One draw is one block, so there is no error bar: nothing can be learned from rows that depend on each other.
    Repeat the estimate with other seeds for one.

    Prefer it to see how much stratification can give on a small problem. It needs the regions with their
    exact probabilities, which are known where all differences within both clouds span three dimensions or
    less: in the plane and in space, and for two points a side in any dimension. :class:`Orthogonal` is the
    practical approximation.

    Parameters
    ----------
    x, y
        Single clouds `(n, dim)` and `(m, dim)`. In the plane ``n (n - 1) / 2 + m (m - 1) / 2`` may be 16,384
        (128 points a side), in space 64 (8 points a side). Used with other clouds of the same `dim` the
        directions are uniform all the same: nothing is lost but the gain.
    p
        The power by which costs put couplings in order.
    x_weights, y_weights
        Weights that sum to 1; uniform when None.

    Attributes
    ----------
    probability : array, shape (couplings,)
        How likely a uniform direction is to induce each coupling.
    cost : array, shape (couplings,)
        What the couplings cost, ``sum mass * |x - y|^p``, in ascending order.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    >>> sampler = osl.directions.Stratified(x, y)
    >>> sampler.probability.tolist(), sampler.cost.tolist()
    ([0.75, 0.25], [0.5, 1.5])

    Three quarters of all directions match the points as they are listed, and so do three of any four drawn:

    >>> est = osl.projected_wasserstein(x, y, directions=sampler, n_directions=4, rng=0)
    >>> float(est.value), osl.exact.projected_plane(x, y, 2)
    (0.75, 0.75)

    Notes
    -----
    Of the paper's definition, P(i and j in E_k) <= P(E_k)^2 holds for every region and every two directions.
    P(i in E_k, j in E_l) >= P(E_k) P(E_l) may fail for small regions that share a cell; what the proof draws
    from it, that the matrix of P(i in E_k, j in E_l) - P(E_k) P(E_l) is negative semidefinite, does not.
    """

    x: Any
    y: Any
    p: float = field(default=2.0, kw_only=True)
    x_weights: Any = field(default=None, kw_only=True)
    y_weights: Any = field(default=None, kw_only=True)
    regions: Regions = field(init=False)
    cost: HostArray = field(init=False)
    name: ClassVar[str] = "stratified"
    why_no_error_bar: ClassVar[str] = "stratified directions are one block; repeat with other seeds"

    def __post_init__(self) -> None:
        # Imported here, since checks of input import this package for its samplers.
        from orthoslice.check.options import check_p
        from orthoslice.clouds.cloud import host_clouds
        from orthoslice.exact._inputs import shared_exponent, shrink
        from orthoslice.exact._regions import coupling_regions

        p = check_p(self.p)
        x, y = host_clouds("Stratified", self.x, self.y, self.x_weights, self.y_weights)
        regions = coupling_regions(*shrink(x, y), p)
        settled = {
            "x": x.points,
            "y": y.points,
            "p": p,
            "x_weights": x.weights,
            "y_weights": y.weights,
            "regions": regions,
            "cost": regions.cost * np.exp2(p * shared_exponent(x, y)),
        }
        for name, value in settled.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def probability(self) -> HostArray:
        return self.regions.probability

    def block_rows(self, n_directions: int, dim: int) -> int:
        return n_directions

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        return self, DEFAULT_BLOCKS * default_rows(dim)

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> DenseDirections:
        if dim != self.x.shape[1]:
            raise ValueError(
                f"`directions` were stratified for clouds of dim = {self.x.shape[1]}; got dim = {dim}."
            )
        xp, wide = namespace(key.high), wide_float(key.high)
        first, second = words(key, rows, 5)
        uniform = _uniforms(xp, first[:, :, :4], second[:, :, :4], wide)
        # The cells are taken in random order, so that the directions need not be shuffled.
        cell = xp.astype(xp.argsort(first[:, :, 4], axis=1, stable=True), wide)
        level = (cell + uniform[:, :, 0]) / rows
        flat = [xp.reshape(u, (-1,)) for u in (level, *(uniform[:, :, k] for k in (1, 2, 3)))]
        unit = self._within(xp, wide, device(key.high), flat)
        unit = unit * xp.astype(1 - 2 * xp.reshape(second[:, :, 4] & 1, (-1, 1)), wide)
        basis = xp.asarray(self.regions.basis, dtype=wide, device=device(key.high))
        if basis.shape[0] < dim:
            # Of a Gaussian vector only the direction within the span of the basis is stratified: it is
            # independent of all the rest.
            # Counters of words are not negative, so this key is independent of them.
            gaussian = xp.reshape(normals(key.fold(-1, 0), rows, dim, wide), (-1, dim))
            inside = gaussian @ basis.T
            length = xp.sqrt(xp.sum(inside * inside, axis=1, keepdims=True))
            unit = gaussian + (length * unit - inside) @ basis
        theta = unit / xp.sqrt(xp.sum(unit * unit, axis=1, keepdims=True))
        return DenseDirections(xp.astype(theta, dtype))

    def _within(self, xp: Namespace, wide: DType, place: object, draws: list[Array]) -> Array:
        """Unit vectors `(rows, k)` within the regions that the first draws name."""
        regions = self.regions
        probability = regions.probability
        level, which, along, across = draws
        counts = np.bincount(regions.group)
        bounds = np.cumsum(counts)
        share = np.cumsum(regions.share)

        def lookup(table: object, index: Array) -> Array:
            return xp.take(xp.asarray(table, dtype=wide, device=place), index, axis=0)

        def find(ends: object, value: Array) -> Array:
            return xp.searchsorted(xp.asarray(ends, dtype=wide, device=place), value, side="right")

        # Without the last end a rounded level cannot lead past the last group.
        group = find(np.cumsum(probability)[:-1], level)
        start = share[bounds - 1] - probability
        piece = find(share[:-1], lookup(start, group) + which * lookup(probability, group))
        low, high = (xp.asarray(b, dtype=piece.dtype, device=place) for b in (bounds - counts, bounds - 1))
        piece = xp.minimum(xp.maximum(piece, xp.take(low, group)), xp.take(high, group))
        rows = lookup(regions.piece, piece)
        if regions.basis.shape[0] == 1:
            return xp.ones((rows.shape[0], 1), dtype=wide, device=place)
        if regions.basis.shape[0] == 2:
            angle = rows[:, 0] + along * rows[:, 1]
            return xp.stack([xp.cos(angle), xp.sin(angle)], axis=1)
        return _in_triangles(xp, rows, along, across)

    def _digest(self) -> bytes:
        arrays = (self.x, self.y, self.x_weights, self.y_weights)
        parts = [b"" if a is None else repr(a.shape).encode() + a.tobytes() for a in arrays]
        return hashlib.blake2b(b"|".join([repr(self.p).encode(), *parts])).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stratified) and self._digest() == other._digest()

    def __hash__(self) -> int:
        return hash(self._digest())

    def __repr__(self) -> str:
        shapes = f"x of shape {self.x.shape}, y of shape {self.y.shape}"
        return f"Stratified({shapes}: {len(self.cost)} couplings)"


def _uniforms(xp: Namespace, first: Array, second: Array, dtype: DType) -> Array:
    """Uniform on (0, 1) with 48 random bits, as far as the type can hold them."""
    high, low = (xp.astype((word >> 8) & 0xFFFFFF, dtype) for word in (first, second))
    return high * 2.0**-24 + (low + 0.5) * 2.0**-48


def _in_triangles(xp: Namespace, rows: Array, along: Array, across: Array) -> Array:
    """A uniform point of each spherical triangle ABC (Arvo, SIGGRAPH 1995), from two uniform numbers.

    The first cuts off a triangle ABC' with its share of the area. Half the area has the tangent
    w det(A, B, D) / (1 + <A, B> + w <B, D>) in terms of w, the tangent of half the arc AC', which is solved for
    w without cancellation. The second is the share of the squared chord from B to C'.
    """
    a, b, d = (rows[:, k : k + 3] for k in (0, 3, 6))
    half_area, one_plus, determinant, slope = (rows[:, k] for k in (9, 10, 11, 12))
    tangent = xp.tan(along * half_area)
    w = tangent * one_plus / (determinant - tangent * slope)
    scale = 1 / (1 + w * w)
    corner = ((1 - w * w) * scale)[:, None] * a + (2 * w * scale)[:, None] * d
    chord = corner - b
    square = across * xp.sum(chord * chord, axis=1)
    leaving = chord - xp.sum(chord * b, axis=1, keepdims=True) * b
    leaving = leaving / xp.sqrt(xp.sum(leaving * leaving, axis=1, keepdims=True))
    sine = xp.sqrt(square * (1 - square / 4))
    return (1 - square / 2)[:, None] * b + sine[:, None] * leaving
