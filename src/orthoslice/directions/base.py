"""Samplers, and the directions they draw, which project points and carry slopes back."""

from __future__ import annotations

import abc
import operator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import (
    DIRECTIONS,
    RNG,
    Array,
    DType,
    HostArray,
    Key,
    Operation,
    PlainWork,
    is_widened,
    namespace,
    resolve_rng,
    wide_float,
)
from orthoslice.backend.kernels.cuda.products import product
from orthoslice.directions.layout import Layout, Run, whole_blocks

DEFAULT_BLOCKS = 8


class Directions(abc.ABC):
    """Rows `theta (slices, dim)`, perhaps never formed.

    A row may be shorter than 1: then it is the part in the user's space of a unit row of `ambient_dim`.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> key = osl.directions.Key.from_seed(0, np.zeros(1))
    >>> block = osl.directions.Orthogonal().draw(key, 3, 3, np.float64)
    >>> isinstance(block, osl.directions.Directions), block.project(np.eye(3), slice(0, 2)).shape
    (True, (2, 3))
    """

    dim: int
    ambient_dim: int

    @abc.abstractmethod
    def project(self, points: Array, rows: Rows) -> Array:
        """Project `points (..., n, dim)` on some rows (a slice or indices): `(slices, ..., n)`."""

    @abc.abstractmethod
    def adjoint(self, slopes: Array, rows: Rows) -> Array:
        """Carry `slopes (slices, ..., n)` back to the points: `sum_s slopes[s] theta[s]`, `(..., n, dim)`."""


class DenseDirections(Directions):
    """Directions held as a matrix `theta (slices, dim)`.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> axes = osl.directions.DenseDirections(np.eye(2))
    >>> axes.project(np.array([[3.0, 4.0]]), slice(None)).tolist()
    [[3.0], [4.0]]
    """

    def __init__(self, theta: Array) -> None:
        self.theta = theta
        self.dim = self.ambient_dim = theta.shape[1]

    def project(self, points: Array, rows: Rows) -> Array:
        theta = take_rows(self.theta, rows)
        if points.ndim == 2:
            return product(theta, points.T)
        xp = namespace(points)
        flat = xp.reshape(points, (-1, self.dim))
        return xp.reshape(product(theta, flat.T), (theta.shape[0], *points.shape[:-1]))

    def adjoint(self, slopes: Array, rows: Rows) -> Array:
        xp = namespace(slopes)
        theta = take_rows(self.theta, rows)
        flat = xp.reshape(slopes, (theta.shape[0], -1))
        return xp.reshape(product(flat.T, theta), (*slopes.shape[1:], self.dim))


def projection_dtype(points: Array) -> DType:
    """The type of directions where the order of projections matters: `wide_float` where that is cheap."""
    return wide_float(points) if is_widened(points) else points.dtype


class SteadyDirections(DenseDirections):
    """Directions that project equal points to equal numbers, in any cloud and at any row.

    A matrix product may round the same point differently in two clouds. If that point is many orders of
    magnitude larger than the others, the difference exceeds them; here it is 0. Slower, so only for such
    clouds, and where two processors must find the same projections.
    """

    def project(self, points: Array, rows: Rows) -> Array:
        return steady_product(take_rows(self.theta, rows), points)


steady_product: Operation[Array] = Operation("steady_product")
"""steady_product(theta (slices, dim), points (..., n, dim)) -> (slices, ..., n): projections, term by term."""


def _steady_refusal(theta: Array, points: Array) -> str | None:
    if not (isinstance(points, np.ndarray) and points.ndim == 2 and theta.dtype == points.dtype):
        return "it takes single clouds in NumPy arrays of the type of the directions"
    return None


@steady_product.implementation(
    "numba",
    _steady_refusal,
    plain_work=lambda theta, points: PlainWork.of(points, times=0.1 * len(theta)),
)
def _steady_product_numba(theta: HostArray, points: HostArray) -> HostArray:
    from orthoslice.backend.kernels.numba.projecting import project_points

    return project_points(theta, points)


@steady_product.implementation("reference", lambda *_: None)
def _steady_product(theta: Array, points: Array) -> Array:
    dim = theta.shape[1]
    theta = namespace(points).reshape(theta, (theta.shape[0], *(1,) * (points.ndim - 1), dim))
    total = theta[..., 0] * points[..., 0]
    for k in range(1, dim):
        total = total + theta[..., k] * points[..., k]
    return total


# Entries of the identity matrix that are projected at a time to form rows.
_PIECE_ITEMS = 1 << 22


def dense_rows(directions: Directions, rows: slice) -> Array:
    """Some rows of directions in host memory, `(slices, dim)`, without a matrix `(dim, dim)` in between."""
    if isinstance(directions, DenseDirections):
        return take_rows(directions.theta, rows)
    dim = directions.dim
    step = max(1, _PIECE_ITEMS // dim)
    axes = (np.eye(min(step, dim - first), dim, first) for first in range(0, dim, step))
    return np.concatenate([directions.project(some, rows) for some in axes], axis=1)


def take_rows(array: Array, rows: Rows) -> Array:
    """Rows by slice (a view) or by an array of indices (which may be traced)."""
    return array[rows, ...] if isinstance(rows, slice) else namespace(array).take(array, rows, axis=0)


class Sample(NamedTuple):
    """Directions as plain arrays, to look at or to use elsewhere.

    Examples
    --------
    >>> import orthoslice as osl
    >>> sample = osl.directions.Orthogonal().sample(4, 2, rng=0)
    >>> sample.theta.shape, sample.block.tolist(), sample.weight.tolist()
    ((4, 2), [0, 0, 1, 1], [1.0, 1.0, 1.0, 1.0])
    """

    theta: Array
    """Unit rows, `(n_directions, dim)`."""
    block: Array
    """Which independent block each row belongs to, `(n_directions,)`."""
    weight: Array
    """What each row counts in the mean over its block, `(n_directions,)`: mostly 1."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sampler(abc.ABC):
    """How directions are drawn: a frozen, hashable value.

    Directions come in blocks. Blocks are independent of each other, rows of one block need not be; error
    bars rest on that. Any block can be drawn anywhere, in any order, from a key and its index. At the first use
    of a sampler that is not of this package, some blocks are drawn and checked.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np, orthoslice as osl
    >>> @dataclass(frozen=True, kw_only=True, repr=False)
    ... class Independent(osl.directions.Sampler):
    ...     name = "independent"
    ...     def block_rows(self, n_directions, dim):
    ...         return 1
    ...     def with_default_size(self, dim):
    ...         return self, 64
    ...     def draw(self, key, rows, dim, dtype):
    ...         theta = osl.directions.normals(key, rows, dim, dtype).reshape(-1, dim)
    ...         return osl.directions.DenseDirections(theta / np.linalg.norm(theta, axis=-1, keepdims=True))
    >>> x = np.random.default_rng(0).normal(size=(30, 3))
    >>> osl.sliced_wasserstein(x, x + 1, directions=Independent(), rng=0).n_blocks
    64
    """

    name: ClassVar[str]
    extends: ClassVar[bool] = False
    """Whether the first rows of a block are what a smaller block would be, so that one can be cut short."""
    is_circle: ClassVar[bool] = False
    """Whether the rows of a block go once round a circle, each next to the one before it."""
    why_no_error_bar: ClassVar[str] = ""
    """For samplers whose draw is one block, however many directions there are."""

    @abc.abstractmethod
    def block_rows(self, n_directions: int, dim: int) -> int:
        """How many rows a whole block has."""

    def runs(self, n_directions: int, dim: int) -> tuple[Run, ...]:
        """The sizes of the independent blocks: whole ones, and one with what is left, unless overridden."""
        return whole_blocks(n_directions, self.block_rows(n_directions, dim))

    def weights(self, rows: int, dim: int) -> Array | None:
        """Quadrature weights `(rows,)` of a block, with mean 1, as a NumPy array; None if all count alike."""
        return None

    @abc.abstractmethod
    def with_default_size(self, dim: int) -> tuple[Self, int]:
        """The sampler and the number of directions to use where the user gave no number."""

    def for_tolerance(self, dim: int, most: int) -> Self:
        """The sampler for a run that draws blocks, 8 or more, until a tolerance is met; `most` rows in all."""
        return self.with_default_size(dim)[0]

    @abc.abstractmethod
    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> Directions:
        """One block of `rows` rows for each of the keys, one after the other."""

    def ambient_dim(self, dim: int) -> int:
        """The dimension of the space in which rows are unit vectors."""
        return dim

    def row_bytes(self, dim: int) -> int:
        """Working memory that drawing a row needs at its peak: a dozen numbers a coordinate."""
        return 12 * 8 * self.ambient_dim(dim)

    def is_basis(self, block_rows: int, dim: int) -> bool:
        """Whether whole blocks of this size are orthonormal bases of the ambient space."""
        return False

    def blocks(
        self, key: Key, index: Array, rows: int, dim: int, dtype: DType, purpose: int = DIRECTIONS
    ) -> Directions:
        """Draw the blocks with these indices (int32, `(blocks,)`)."""
        return self.draw(key.fold(index, purpose), rows, dim, dtype)

    def __repr__(self) -> str:
        """Only what differs from the default, so that it reads as one would write it."""
        chosen = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in chosen)})"

    def sample(self, n_directions: int, dim: int, rng: RNG = None) -> Sample:
        """Draw directions as plain NumPy arrays.

        Parameters
        ----------
        n_directions, dim
            How many rows, of which length.
        rng
            As in :func:`orthoslice.sliced_wasserstein`: the same integer gives the same directions there.

        Examples
        --------
        >>> import orthoslice as osl
        >>> sample = osl.directions.Orthogonal().sample(5, dim=3, rng=0)
        >>> sample.theta.shape, sample.block.tolist()
        ((5, 3), [0, 0, 0, 1, 1])
        """
        check_count("n_directions", n_directions, least=0)
        check_count("dim", dim)
        key, _ = resolve_rng(rng, np.zeros(1))
        theta, block, weight = [np.zeros((0, dim))], [np.zeros(0, dtype=np.int32)], [np.zeros(0)]
        first = 0
        for count, rows in self.runs(n_directions, dim) if n_directions else ():
            index = np.arange(first, first + count, dtype=np.int32)
            theta.append(self._unit_rows(key, index, rows, dim))
            block.append(np.repeat(index, rows))
            of_block = self.weights(rows, dim)
            weight.append(np.tile(np.ones(rows) if of_block is None else of_block, count))
            first += count
        return Sample(*(np.concatenate(parts) for parts in (theta, block, weight)))

    def row(self, row: int, n_directions: int, dim: int, rng: RNG) -> Array:
        """A single row `(dim,)` of what :meth:`sample` returns, without drawing the other blocks."""
        key, _ = resolve_rng(rng, np.zeros(1))
        sizes = Layout(self.runs(n_directions, dim)).block_rows
        ends = np.cumsum(sizes)
        block = int(np.searchsorted(ends, row, side="right"))
        rows = int(sizes[block])
        drawn = self._unit_rows(key, np.asarray([block], dtype=np.int32), rows, dim)
        return cast(HostArray, drawn[row - (int(ends[block]) - rows)])

    def _unit_rows(self, key: Key, blocks: Array, rows: int, dim: int) -> HostArray:
        drawn = self.blocks(key, blocks, rows, dim, np.dtype(np.float64))
        theta = np.array(dense_rows(drawn, slice(0, len(blocks) * rows)))
        norm = np.linalg.norm(theta, axis=1, keepdims=True)
        # A row of a padded space may be 0 in the user's space; the first axis then stands in for it.
        theta[norm[:, 0] == 0, 0] = 1
        return theta / np.where(norm == 0, 1, norm)


@dataclass(frozen=True, kw_only=True, repr=False)
class BlockSampler(Sampler):
    """A sampler whose blocks are the first rows of random bases of the (perhaps padded) space."""

    block_size: int | None = None
    extends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.block_size is not None:
            check_count("block_size", self.block_size)

    def is_basis(self, block_rows: int, dim: int) -> bool:
        return block_rows == self.ambient_dim(dim)

    def block_rows(self, n_directions: int, dim: int) -> int:
        return min(n_directions, self._whole_block(dim))

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        about, rows = default_rows(dim), self._whole_block(dim)
        sampler = self
        if self.block_size is None and rows > about:
            sampler, rows = replace(self, block_size=about), about
        return sampler, rows * max(DEFAULT_BLOCKS, -(-DEFAULT_BLOCKS * about // rows))

    def _whole_block(self, dim: int) -> int:
        basis = self.ambient_dim(dim)
        return basis if self.block_size is None else min(self.block_size, basis)


def default_rows(dim: int) -> int:
    """Rows of a block where no number was given: enough to gain from coupling, few enough for 8 blocks."""
    return min(max(dim, 16), 128)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """`value` as an integer of at least `least`, or an error."""
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool):
        raise TypeError(f"`{name}` must be an integer; got {value!r}.")
    if count < least:
        raise ValueError(f"`{name}` must be at least {least}; got {value!r}.")
    return count
