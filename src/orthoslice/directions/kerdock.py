"""Mutually unbiased bases: the most even sets that whole orthonormal bases can make."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import Array, DType, HostArray, Key, constant, namespace, normals, wide_float
from orthoslice.backend.arrays.hadamard import walsh_hadamard
from orthoslice.backend.arrays.operations import orthonormal_rows
from orthoslice.directions.base import DEFAULT_BLOCKS, DenseDirections, Directions, default_rows
from orthoslice.directions.layout import Run
from orthoslice.directions.point_set import Replicated

# For m = 2, 3, 4, 5: polynomials over two elements, as bits, whose roots generate the field of 2^(2m - 1).
_PRIMITIVE = {2: 0b1011, 3: 0b100101, 4: 0b10000011, 5: 0b1000010001}

MOST_DIMENSIONS = 1024

# Numbers of rows that are formed at once, so that kernels for matrices can take them.
_FORMED_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True, repr=False)
class Kerdock(Replicated):
    """Mutually unbiased bases under one random rotation, in a dimension that is a power of 4.

    Any two rows of different bases have the cosine D^(-1/2), up to its sign, and there are D / 2 + 1 bases of
    the space of D = 4^m dimensions. Together they integrate polynomials of degree up to 5 in the direction
    without error. Of k of them, the part of degree 4 in the error is that of orthogonal blocks times
    ``1 - 2 (k - 1) / D``. They are made of signs and Walsh-Hadamard transforms of a single rotation, so that
    many bases are drawn faster than as many orthogonal blocks.

    Prefer it for SW in 33 to 64 dimensions, or 16, with many directions, a good part of ``D^2 / 2``: all 2,112
    had .37 times the error of orthogonal blocks, in 50 dimensions as in 64. With few bases it does what
    :class:`Orthogonal` does. A `dim` between powers of 4 is padded with zeros, and sliced scores are divided by
    the mean shortening of the rows.

    Parameters
    ----------
    replicates, block_size
        As in :class:`PointSet`. A set has at most ``D (D / 2 + 1)`` rows: more directions make more sets.

    Notes
    -----
    The bases are a Kerdock set (Kerdock 1972; Calderbank, Cameron, Kantor and Seidel 1997): the identity, and
    the Hadamard matrix times diagonals of signs (-1)^Q_a. The quadratic forms Q_a, on the field of D / 2
    elements and one more bit e, are ``Q_a(x, e) = sum_i Tr((a x)^(2^i + 1)) + e Tr(a x)``, i from 1 to m - 1;
    any two differ by a form of full rank.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> theta = osl.directions.Kerdock(replicates=1).sample(144, dim=16, rng=0).theta
    >>> np.unique(np.abs(theta @ theta.T).round(12)).tolist()
    [0.0, 0.25, 1.0]
    """

    name: ClassVar[str] = "kerdock"
    extends: ClassVar[bool] = True

    def ambient_dim(self, dim: int) -> int:
        if dim > MOST_DIMENSIONS:
            raise ValueError(
                f"Kerdock directions go up to {MOST_DIMENSIONS:,} dimensions; got dim {dim}. Pass "
                '`directions="orthogonal"`.'
            )
        return max(4, 1 << 2 * (((dim - 1).bit_length() + 1) // 2))

    def is_basis(self, block_rows: int, dim: int) -> bool:
        return block_rows == self.ambient_dim(dim)

    def runs(self, n_directions: int, dim: int) -> tuple[Run, ...]:
        most = self._most_rows(dim)
        if self.block_size is not None and self.block_size > most:
            raise ValueError(
                f"`block_size` must be at most {most} in dim {dim}, where there are no more unbiased bases; "
                f"got {self.block_size}."
            )
        return super().runs(n_directions, dim)

    def _n_sets(self, n_directions: int, dim: int) -> int:
        return max(super()._n_sets(n_directions, dim), -(-n_directions // self._most_rows(dim)))

    def _most_rows(self, dim: int) -> int:
        ambient = self.ambient_dim(dim)
        return ambient * (ambient // 2 + 1)

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        sampler, about = super().with_default_size(dim)
        rows = self._whole_bases(-(-about // self.replicates), dim)
        return sampler, rows * max(self.replicates, -(-about // rows))

    def for_tolerance(self, dim: int, most: int) -> Self:
        if self.block_size is not None:
            return self
        rows = min(self._whole_bases(2 * default_rows(dim), dim), -(-most // DEFAULT_BLOCKS))
        return replace(self, block_size=rows)

    def _whole_bases(self, rows: int, dim: int) -> int:
        """`rows`, or as many as there are, rounded up to whole bases if those have at most 256 rows."""
        ambient = self.ambient_dim(dim)
        rows = min(rows, self._most_rows(dim))
        return rows if ambient > 256 else -(-rows // ambient) * ambient

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> Directions:
        ambient = self.ambient_dim(dim)
        # The rows of a rotation of the padded space that act on the user's space.
        frame = orthonormal_rows(normals(key, dim, ambient, wide_float(key.high)))
        drawn = KerdockDirections(frame, rows, dtype)
        is_small = frame.shape[0] * rows * dim <= _FORMED_AT_ONCE
        return DenseDirections(drawn.all_formed()) if is_small and dim == ambient else drawn


class KerdockDirections(Directions):
    """The first `rows` rows of all bases, for each rotation in `frame (sets, dim, ambient_dim)`.

    Rows are formed on demand: a whole set takes `ambient_dim` / 2 times as much memory as its
    rotation.
    """

    def __init__(self, frame: Array, rows: int, dtype: DType) -> None:
        self.frame = frame
        self.rows = rows
        self.dtype = dtype
        self.dim, self.ambient_dim = frame.shape[1:]

    def project(self, points: Array, rows: Rows) -> Array:
        return DenseDirections(self.formed(rows)).project(points, slice(None))

    def adjoint(self, slopes: Array, rows: Rows) -> Array:
        return DenseDirections(self.formed(rows)).adjoint(slopes, slice(None))

    def formed(self, rows: Rows) -> Array:
        """Some rows as a matrix, `(slices, dim)`."""
        xp = namespace(self.frame)
        if not isinstance(rows, slice):
            return xp.astype(self._single_rows(rows), self.dtype)
        parts, start = [], rows.start
        while start < rows.stop:
            # Rows of one basis at a time.
            set_, row = divmod(start, self.rows)
            basis, first = divmod(row, self.ambient_dim)
            count = min(rows.stop - start, self.rows - row, self.ambient_dim - first)
            parts.append(self._basis(set_, basis)[first : first + count, :])
            start += count
        theta = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
        return xp.astype(theta, self.dtype)

    def all_formed(self) -> Array:
        """All rows of all sets as a matrix, by one transform."""
        xp, (sets, dim, ambient) = namespace(self.frame), self.frame.shape
        n_bases = -(-self.rows // ambient)
        signs = constant(_first_signs, (ambient, min(n_bases, ambient // 2)), self.frame)
        images = walsh_hadamard(self.frame[:, None, :, :] * signs[None, :, None, :])
        if n_bases > ambient // 2:
            images = xp.concat([images, self.frame[:, None, :, :]], axis=1)
        theta = xp.reshape(xp.matrix_transpose(images), (sets, n_bases * ambient, dim))
        return xp.astype(xp.reshape(theta[:, : self.rows, :], (-1, dim)), self.dtype)

    def _basis(self, set_: int, basis: int) -> Array:
        """A whole basis, in the user's space: `(ambient_dim, dim)`."""
        xp, frame = namespace(self.frame), self.frame[set_, ...]
        if basis < self.ambient_dim // 2:
            signs = constant(basis_signs, (self.ambient_dim, basis), frame)
            frame = walsh_hadamard(frame * signs[None, :])
        return xp.matrix_transpose(frame)

    def _single_rows(self, rows: Array) -> Array:
        """Rows by indices that may be traced; those come from one set."""
        xp, ambient = namespace(self.frame), self.ambient_dim
        basis, place = rows // ambient, rows % ambient
        # The identity has no signs: any others stand in, and are discarded below.
        usable = xp.minimum(basis, xp.full_like(basis, ambient // 2 - 1))
        signs = xp.take(constant(_first_signs, (ambient, ambient // 2), self.frame), usable, axis=0)
        hadamard = xp.take(constant(_hadamard, (ambient,), self.frame), place, axis=0)
        identity = xp.take(constant(np.eye, (ambient,), self.frame), place, axis=0)
        is_identity = (basis == ambient // 2)[:, None]
        return xp.where(is_identity, identity, hadamard * signs) @ xp.matrix_transpose(self.frame[0, ...])


@functools.lru_cache(maxsize=1024)
def basis_signs(ambient: int, basis: int) -> HostArray:
    """The signs (-1)^Q_a of a basis other than the identity, as int8 `(ambient,)`; a = 0 comes first.

    Coordinates are numbered by 2 x + e: the elements x of the field, as bits, and one more bit.

    Examples
    --------
    >>> [basis_signs(4, k).tolist() for k in range(2)]
    [[1, 1, 1, 1], [1, 1, 1, -1]]
    """
    if basis == 0:
        return np.ones(ambient, dtype=np.int8)
    quadratic, trace, powers, logarithm = _field(ambient)
    n = len(powers)
    # The products a x of all x, for a the power of the root with number `basis` - 1.
    product = np.zeros(n + 1, dtype=np.intp)
    product[1:] = powers[(logarithm[1:] + basis - 1) % n]
    values = np.stack([quadratic[product], quadratic[product] ^ trace[product]], axis=1)
    return (1 - 2 * values.reshape(-1)).astype(np.int8)


@functools.cache
def _field(ambient: int) -> tuple[HostArray, ...]:
    """Of the field of `ambient` / 2 elements: sum_i Tr(x^(2^i + 1)), Tr(x), powers of a root, logarithms."""
    m = ambient.bit_length() // 2
    degree, size = 2 * m - 1, ambient // 2
    powers = np.ones(size - 1, dtype=np.intp)
    for k in range(1, size - 1):
        doubled = int(powers[k - 1]) << 1
        powers[k] = doubled ^ _PRIMITIVE[m] if doubled >= size else doubled
    logarithm = np.zeros(size, dtype=np.intp)
    logarithm[powers] = np.arange(size - 1)

    def power(exponent: int) -> HostArray:
        """x^exponent for every x of the field."""
        raised = np.zeros(size, dtype=np.intp)
        raised[1:] = powers[logarithm[1:] * exponent % (size - 1)]
        return raised

    # A trace is 0 or 1: the sum of x, x^2, x^4, ... has no other bits.
    trace = functools.reduce(np.bitwise_xor, (power(1 << i) for i in range(degree)))
    forms = [trace[power((1 << i) + 1)] for i in range(1, m)]
    return functools.reduce(np.bitwise_xor, forms, np.zeros(size, dtype=np.intp)), trace, powers, logarithm


def _first_signs(ambient: int, n_bases: int) -> HostArray:
    """Signs of the first bases, `(n_bases, ambient)`."""
    return np.stack([basis_signs(ambient, basis) for basis in range(n_bases)])


def _hadamard(ambient: int) -> HostArray:
    """What a Walsh-Hadamard transform multiplies by, `(ambient, ambient)`."""
    return np.asarray(walsh_hadamard(np.eye(ambient)))
