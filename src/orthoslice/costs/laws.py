"""Costs on the line of clouds against a known law: project, sort, integrate over every point's share of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    HostArray,
    Operation,
    PlainWork,
    Wanted,
    constant,
    device,
    float_info,
    namespace,
    to_numpy,
    wide_float,
)
from orthoslice.backend.kernels import rows_refusal
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.laws import Base, Cube, LawCloud, Round, profile
from orthoslice.clouds.mapped import stored_points
from orthoslice.clouds.quantiles import (
    TERMS,
    Table,
    cell_of,
    cube_series,
    mean_excess,
    partial_moment,
    quantile,
)
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.draw import Draw, Scored
from orthoslice.costs.lines import powered, powered_slope
from orthoslice.costs.scores import Score
from orthoslice.directions.base import Directions
from orthoslice.directions.spheres import mean_shortening

# Nodes of Gauss and Legendre for powers other than 1 and 2: in a panel, and at least in all shares together.
_PANEL_NODES, _FEWEST_NODES = 16, 2048

# Points by which it is judged whether an interval can be trusted.
_EXAMPLES = 1 << 10


@dataclass(frozen=True)
class AgainstLaw(Score):
    """Points priced on the line of a direction against a law there: SW_p^p of a cloud and an image of `law`."""

    law: Base
    breaks_ties: ClassVar[bool] = False

    def second(self, points: Array, weights: Array | None) -> Cloud:
        return LawCloud(points)

    def example(self, y: Cloud) -> Cloud:
        # Normal points as wide as the law, moved to its mean: chance in theirs would look like a gap.
        frame, rng = to_numpy(y.points), np.random.default_rng(0)
        is_scaled = frame.shape[-2] - 1 != self.law.dim
        axes = frame[..., 1:, :1] if is_scaled else frame[..., 1:, :]
        drawn = rng.standard_normal((_EXAMPLES, frame.shape[-1] if is_scaled else self.law.dim))
        drawn -= drawn.mean(axis=0)
        points = drawn * axes if is_scaled else drawn @ axes
        return Cloud((frame[..., :1, :] + self.law.width * points).astype(frame.dtype))

    def row_bytes(self, x: Cloud, y: Cloud, p: float, wanted: Wanted) -> int:
        px = stored_points(x.points)[0][None, ..., 0]
        line = Line(self.law, px[..., :1], lambda: px)
        return law_slopes.row_bytes(px, line, x, p, 1.0, wanted)

    def evaluate(self, x: ReadyCloud, y: ReadyCloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        directions = draw.directions
        factor = 1 / mean_shortening(directions.dim, directions.ambient_dim, p)
        px = x.project(directions, draw.rows) - directions.project(y.points[..., :1, :], draw.rows)
        line = law_on_lines(self.law, y.points[..., 1:, :], directions, draw.rows)
        scores, slopes, by_weights = law_slopes(px, line, x, p, factor, wanted)
        by_points = () if slopes is None else (directions.adjoint(slopes, draw.rows),)
        return Scored(scores, (*by_points, *by_weights))


class Line(NamedTuple):
    """The image of a law, about its centre, on the lines of some directions."""

    law: Base
    stretch: Array
    """How much longer it is than the law on lines of its own, `(slices, ..., 1)`."""
    axes: Callable[[], Array]
    """The directions of those lines, times `stretch`: `(slices, ..., dim)`."""
    prepared: KernelTables | None = None
    """Tables for a number of points and a power, if they were worked out."""

    def beside(self, like: Array) -> Table:
        """What the law is on its lines, in the type of `like`."""
        return self.law.tables(self.unit_axes, like)

    def tables_for(self, n: int, p: float) -> KernelTables:
        """What kernels read of the law, for NumPy arrays and n points of equal mass."""
        if self.prepared is not None:
            return self.prepared
        if isinstance(self.law, Round):
            return round_tables(self.law, n, p)
        return _kernel_tables(self.beside(np.zeros(1)), self.law.variance, n, p)

    def prepared_for(self, n: int, p: float) -> Line:
        """The same with tables for kernels, for many clouds of n points on the same lines."""
        return self._replace(prepared=self.tables_for(n, p))

    def unit_axes(self) -> Array:
        """The directions of the law's own lines, `(slices, dim)`."""
        xp, axes = namespace(self.stretch), self.axes()
        length = xp.linalg.vector_norm(axes, axis=-1, keepdims=True)
        unit = axes / xp.where(length > 0, length, xp.ones_like(length))
        # Batches share the law: their axes have one entry.
        return xp.reshape(unit, (axes.shape[0], axes.shape[-1]))


def law_on_lines(law: Base, axes: Array, directions: Directions, rows: Any) -> Line:
    """The image of a law whose unit vectors become `axes (..., law.dim, dim)`; or one axis, if it is scaled."""
    xp = namespace(axes)
    if axes.shape[-2] == law.dim:
        mapped = directions.project(axes, rows)
        return Line(law, xp.linalg.vector_norm(mapped, axis=-1, keepdims=True), lambda: mapped)
    length = xp.abs(axes[None, ..., :, 0])

    def lines() -> Array:
        return directions.project(xp.eye(directions.dim, dtype=axes.dtype, device=device(axes)), rows)

    if directions.dim == directions.ambient_dim:
        # Directions are of unit length.
        return Line(law, length, lines)
    norm = xp.linalg.vector_norm(lines(), axis=-1)
    return Line(law, length * xp.reshape(norm, (-1, *(1,) * (axes.ndim - 1))), lines)


class Cells(NamedTuple):
    """The shares of a law that sorted points take, `(n,)` or `(slices, ..., n)`."""

    ends: Array
    """Where shares begin and end, from 0 to 1, `(..., n + 1)`."""
    below: Array
    """The integrals of the quantile function up to there."""
    mass: Array
    moment: Array
    """The integral of the quantile function over a share."""
    residue: Array
    """The law's variance within shares, `(..., 1)`."""


law_slopes: Operation[tuple[Array, Array | None, tuple[Array, ...]]] = Operation("law_slopes")
"""law_slopes(px, line, x, p, factor, wanted) -> scores, slopes, gradients by weights.

`factor` times the costs of `px (slices, ..., n)`, which has the weights of `x`, against the law of a `Line`;
their derivatives by `px` if `wanted[0]`, and the gradient of the scores' sum by the weights of `x` if
`wanted[2]`. The projections may be overwritten.
"""


def _uniform_refusal(px: Array, line: Line, x: ReadyCloud, *_: Any) -> str | None:
    if x.weights is not None:
        return "it takes clouds without weights"
    if not (isinstance(line.law, Round) or px.ndim == 2):
        return "it takes single clouds where the law differs from line to line"
    return rows_refusal(px)


def _kernel_bytes(px: HostArray, *_: Any) -> int:
    return 5 * math.prod(px.shape) * px.itemsize


@law_slopes.implementation(
    "numba",
    _uniform_refusal,
    row_bytes=_kernel_bytes,
    plain_work=lambda px, *_: PlainWork.of(px, times=4),
)
def _law_slopes_numba(
    px: HostArray, line: Line, x: ReadyCloud, p: float, factor: float, wanted: Wanted
) -> tuple[HostArray, HostArray | None, tuple[HostArray, ...]]:
    from orthoslice.backend.kernels.numba.laws import price_rows

    n = px.shape[-1]
    rows, tables = px.reshape(-1, n), line.tables_for(n, p)
    scores, slopes = price_rows(rows, _stretches(line, px), p, factor, tables, wanted[0])
    return scores.reshape(px.shape[:-1]), None if slopes is None else slopes.reshape(px.shape), ()


def _stretches(line: Line, px: HostArray) -> HostArray:
    """Of every row of `px`."""
    each = np.broadcast_to(cast(HostArray, line.stretch[..., 0]), px.shape[:-1])
    return each.reshape(-1).astype(np.float64)


def _cube_refusal(px: Array, line: Line, x: ReadyCloud, p: float, *_: Any) -> str | None:
    if not (isinstance(line.law, Cube) and line.prepared is None and p in (1, 2)):
        return "it takes cubes, for p = 1 and 2, that were not prepared for"
    return _uniform_refusal(px, line, x)


@law_slopes.implementation(
    "numba cubes",
    _cube_refusal,
    before="numba",
    row_bytes=_kernel_bytes,
    plain_work=lambda px, line, *_: PlainWork.of(px[:, :1], times=TERMS * line.law.dim),
)
def _law_slopes_of_cubes(
    px: HostArray, line: Line, x: ReadyCloud, p: float, factor: float, wanted: Wanted
) -> tuple[HostArray, HostArray | None, tuple[HostArray, ...]]:
    from orthoslice.backend.kernels.numba.laws import price_rows_of_cubes

    law, unit = line.law, np.asarray(line.unit_axes(), dtype=np.float64)
    series, rest = cube_series(law.dim), (law.variance, wanted[0])
    return *price_rows_of_cubes(px, _stretches(line, px), p, factor, unit, series, *rest), ()


class KernelTables(NamedTuple):
    """What kernels read of a law that n points of equal mass share; float64.

    One row for all lines, or one for each. Tables that the power does not need are empty.
    """

    means: HostArray
    """The mean of every share, `(rows, n)`."""
    residue: HostArray
    """The law's variance within shares, `(rows,)`."""
    quantiles: HostArray
    """Where shares begin and end on the line, `(rows, n + 1)`; for p = 1."""
    below: HostArray
    """The integrals of the quantile function up to there, `(rows, n + 1)`; for p = 1."""
    knots: HostArray
    """Places, masses and mean excesses at knots, `(rows, knots, 3)`; for p = 1."""
    first: HostArray
    """The last knot at or before every end of a share, `(rows, n + 1)`; for p = 1."""
    nodes: HostArray
    """Quantiles at the nodes of every share, `(rows, n, nodes)`; for other powers."""
    rule: HostArray
    """The weights of the nodes."""


@functools.lru_cache(maxsize=16)
def round_tables(law: Round, n: int, p: float) -> KernelTables:
    found = _kernel_tables(Table(*(a[None, :] for a in profile(law).table)), law.variance, n, p)
    return found if p in (1, 2) else found._replace(nodes=uniform_nodes(law, n)[None, :])


def _kernel_tables(table: Table, variance: float, n: int, p: float) -> KernelTables:
    means, residue, quantiles, below, first = equal_shares(table, variance, n, p == 1)
    none, nothing = np.zeros((1, 0)), np.zeros((1, 0, 0))
    if p == 2:
        return KernelTables(means, residue, none, none, nothing, none.astype(np.int64), nothing, none[0])
    if p == 1:
        knots = np.stack([table.place, table.mass, table.place * table.mass - table.below], axis=2)
        return KernelTables(means, residue, quantiles, below, knots, first, nothing, none[0])
    shares, rule = _share_nodes(n)
    u = np.broadcast_to(((np.arange(n)[:, None] + shares) / n).ravel(), (len(means), n * shares.size))
    nodes = np.asarray(quantile(table, u)).reshape(len(u), n, -1)
    return KernelTables(means, residue, none, none, nothing, none.astype(np.int64), nodes, rule)


_Shares: TypeAlias = tuple[HostArray, HostArray, HostArray, HostArray, HostArray]

equal_shares: Operation[_Shares] = Operation("equal_shares")
"""equal_shares(table, variance, n, with_ends) -> means, residue, quantiles, below, first.

The fields of :class:`KernelTables` for a NumPy table `(rows, knots)`; the last three are empty unless wanted.
"""


@equal_shares.implementation(
    "numba",
    lambda *_: None,
    plain_work=lambda table, _, n, *__: PlainWork(4 * n * table.mass.shape[0], "float64"),
)
def _equal_shares_numba(table: Table, variance: float, n: int, with_ends: bool) -> _Shares:
    from orthoslice.backend.kernels.numba.law_tables import share_rows

    mass, place, below = map(to_numpy, table)
    return share_rows(mass, place, below, variance, n, with_ends)


@equal_shares.implementation("reference", lambda *_: None)
def _equal_shares(table: Table, variance: float, n: int, with_ends: bool) -> _Shares:
    ends = np.broadcast_to(np.arange(n + 1) / n, (table.mass.shape[0], n + 1))
    below = to_numpy(partial_moment(table, ends))
    below[:, [0, -1]] = 0.0
    means = n * np.diff(below, axis=1)
    residue = np.maximum(variance - np.vecdot(means, means) / n, 0.0)
    if not with_ends:
        return means, residue, np.empty((1, 0)), np.empty((1, 0)), np.empty((1, 0), dtype=np.int64)
    first = to_numpy(cell_of(table.mass, ends)).astype(np.int64)
    return means, residue, to_numpy(quantile(table, ends)), below, first


def _plain_bytes(px: Array, line: Line, x: ReadyCloud, p: float, *_: Any) -> int:
    wide: int = float_info(namespace(px), wide_float(px)).bits // 8
    is_round = isinstance(line.law, Round)
    numbers = 8 if p == 2 and is_round else 24 if p in (1, 2) else 6 * _share_nodes(px.shape[-1])[0].size
    size: int = (numbers * math.prod(px.shape) + (0 if is_round else 2 * TERMS * (line.law.dim + 4))) * wide
    return size


@law_slopes.implementation("reference", lambda *_: None, row_bytes=_plain_bytes)
def _law_slopes(
    px: Array, line: Line, x: ReadyCloud, p: float, factor: float, wanted: Wanted
) -> tuple[Array, Array | None, tuple[Array, ...]]:
    xp, wide = namespace(px), wide_float(px)
    scale = xp.astype(line.stretch, wide)
    order = None
    if x.weights is None and not wanted[0]:
        t = xp.astype(xp.sort(px, axis=-1, stable=False), wide)
    else:
        order = xp.argsort(px, axis=-1, stable=True)
        t = xp.astype(xp.take_along_axis(px, order, axis=-1), wide)
    table = line.beside(t)
    if x.weights is not None:
        masses = xp.take_along_axis(xp.broadcast_to(x.masses, px.shape), order, axis=-1)
        cells = _weighted_cells(table, line.law.variance, masses, t)
    elif isinstance(line.law, Round):
        cells = _cells_beside(line.law, t)
    else:
        ones = xp.ones(px.shape, dtype=xp.int32 if wide == xp.float32 else xp.int64, device=device(px))
        cells = _weighted_cells(table, line.law.variance, ones, t)
    if p == 2:
        costs, slopes = _price_squares(t, scale, cells)
    elif p == 1:
        costs, slopes = _price_lengths(t, scale, cells, table)
    else:
        nodes = _nodes_beside(line.law, table, cells, t, x.weights is None)
        costs, slopes = _price_powers(t, scale, cells, nodes, p)
    by_weights: tuple[Array, ...] = ()
    if wanted[2]:
        assert order is not None
        by_weights = (_weight_gradient(t, scale, cells, table, order, p, factor, x.dtype),)
    back = None
    if wanted[0]:
        back = xp.take_along_axis(xp.astype(factor * slopes, px.dtype), xp.argsort(order, axis=-1), axis=-1)
    return factor * costs, back, by_weights


def uniform_cells(law: Round, n: int) -> Cells:
    """The shares that n points of equal mass take; in host memory."""
    ends = np.arange(n + 1) / n
    below = partial_moment(profile(law).table, ends)
    below[[0, -1]] = 0.0
    moment = np.diff(below)
    residue = max(profile(law).spread - n * float(moment @ moment), 0.0)
    return Cells(ends, below, np.full(n, 1 / n), moment, np.array([residue]))


def _cells_beside(law: Round, like: Array) -> Cells:
    """The same beside sorted points `(slices, ..., n)`."""
    n = like.shape[-1]
    sizes = n + 1, n + 1, n, n, 1
    flat, parts, first = constant(_flat_cells, (law, n), like), [], 0
    for size in sizes:
        parts.append(flat[first : first + size])
        first += size
    return Cells(*parts)


@functools.lru_cache(maxsize=16)
def _flat_cells(law: Round, n: int) -> HostArray:
    return np.concatenate(uniform_cells(law, n))


def _weighted_cells(table: Table, variance: float, masses: Array, like: Array) -> Cells:
    """Of sorted points with integer masses `(slices, ..., n)`."""
    xp = namespace(like)
    # Sums of integers are exact: the last share ends at 1.
    sums = xp.cumulative_sum(masses, axis=-1, include_initial=True)
    total = xp.astype(sums[..., -1:], like.dtype)
    ends, mass = xp.astype(sums, like.dtype) / total, xp.astype(masses, like.dtype) / total
    below = partial_moment(table, ends)
    moment = xp.diff(below, axis=-1)
    explained = moment * moment / xp.where(mass > 0, mass, xp.ones_like(mass))
    residue = variance - xp.sum(explained, axis=-1, keepdims=True)
    return Cells(ends, below, mass, moment, xp.maximum(residue, xp.zeros_like(residue)))


def _price_squares(t: Array, scale: Array, cells: Cells) -> tuple[Array, Array]:
    """Every point against the mean of its share, and what the law varies within shares."""
    xp, mass = namespace(t), cells.mass
    mean = cells.moment / xp.where(mass > 0, mass, xp.ones_like(mass))
    apart = t - scale * mean
    costs = xp.sum(mass * apart * apart, axis=-1) + (scale * scale * cells.residue)[..., 0]
    return costs, 2 * mass * apart


def _price_lengths(t: Array, scale: Array, cells: Cells, table: Table) -> tuple[Array, Array]:
    """Shares are split where the law reaches the point."""
    xp = namespace(t)
    low, high = cells.ends[..., :-1], cells.ends[..., 1:]
    safe = xp.where(scale > 0, scale, xp.ones_like(scale))
    excess, reached = mean_excess(table, t / safe)
    inside = (scale > 0) & (low < reached) & (reached < high)
    beside = t * cells.mass - scale * cells.moment
    within = scale * (2 * excess + cells.below[..., :-1] + cells.below[..., 1:]) - t * (low + high)
    slopes = xp.where(inside, 2 * reached - low - high, xp.sign(beside) * cells.mass)
    return xp.sum(xp.where(inside, within, xp.abs(beside)), axis=-1), slopes


def _price_powers(t: Array, scale: Array, cells: Cells, nodes: Array, p: float) -> tuple[Array, Array]:
    """By Gauss and Legendre in every share: see :func:`_share_nodes`."""
    xp, rule = namespace(t), constant(_share_nodes, (t.shape[-1],), t)[1, :]
    apart = t[..., None] - scale[..., None] * nodes
    costs = xp.sum(cells.mass * xp.sum(rule * powered(apart, p), axis=-1), axis=-1)
    return costs, cells.mass * xp.sum(rule * powered_slope(apart, p), axis=-1)


def _nodes_beside(law: Base, table: Table, cells: Cells, like: Array, is_uniform: bool) -> Array:
    """Quantiles at the nodes of all shares, `(n, nodes)` or `(slices, ..., n, nodes)`."""
    xp, n = namespace(like), like.shape[-1]
    if is_uniform and isinstance(law, Round):
        nodes: Array = constant(uniform_nodes, (law, n), like)
        return nodes
    u = cells.ends[..., :-1, None] + cells.mass[..., None] * constant(_share_nodes, (n,), like)[0, :]
    return xp.reshape(quantile(table, xp.reshape(u, (*u.shape[:-2], -1))), u.shape)


@functools.lru_cache(maxsize=64)
def _share_nodes(n: int) -> HostArray:
    """Nodes in a share of [0, 1] and their weights `(2, nodes)`, where n points have one each.

    Drawn to both ends by a polynomial, since quantiles of unbounded laws grow there as logarithms or powers do.
    The kink of |t - Q|^p lies in few shares, and is met by `_FEWEST_NODES` nodes or more over all of them.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_PANEL_NODES)
    panels = -(-_FEWEST_NODES // (_PANEL_NODES * n))
    v = ((np.arange(panels)[:, None] + (1 + nodes) / 2) / panels).ravel()
    rule = np.tile(weights / (2 * panels), panels) * 140 * (v * (1 - v)) ** 3
    return np.stack([v**4 * (35 + v * (-84 + v * (70 - 20 * v))), rule / rule.sum()])


@functools.lru_cache(maxsize=8)
def uniform_nodes(law: Round, n: int) -> HostArray:
    """The quantiles of a law at the nodes of shares of equal mass, `(n, nodes)`."""
    nodes, start = _share_nodes(n)[0], np.arange(n)[:, None]
    # How much mass lies on either side: quantiles of the upper half are told by what is above.
    below, above = (start + nodes) / n, (n - 1 - start + nodes[::-1]) / n
    away = profile(law).quantile(np.minimum(np.minimum(below, above), np.nextafter(0.5, 0)))
    return np.where(below < above, away, -away)


def _weight_gradient(
    t: Array, scale: Array, cells: Cells, table: Table, order: Array, p: float, factor: float, dtype: Any
) -> Array:
    """The gradient of the scores' sum by the weights, `(..., n)`, with mean 0.

    More mass of a point moves the ends of all shares after its own: the Kantorovich potential.
    """
    xp = namespace(t)
    at = scale * quantile(table, cells.ends[..., 1:-1])
    rise = powered(t[..., 1:] - at, p) - powered(t[..., :-1] - at, p)
    height = xp.cumulative_sum(factor * rise, axis=-1, include_initial=True)
    potential = xp.take_along_axis(height, xp.argsort(order, axis=-1), axis=-1)
    potential = potential - xp.mean(potential, axis=-1, keepdims=True)
    return xp.astype(xp.sum(potential, axis=0), dtype)
