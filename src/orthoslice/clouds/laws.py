"""Known laws to compare a cloud with, in the place of a second cloud: nothing of them is sampled.

A law is told by what it is on a line. Projected on a direction it has a quantile function, and the cost of n
sorted points against that is a sum of integrals, one a point. So an estimate has no error but that of its
directions, and a gradient no noise of a sampled target.

Examples
--------
>>> import numpy as np, orthoslice as osl
>>> x = np.random.default_rng(0).normal(size=(500, 8))
>>> est = osl.sliced_wasserstein(x, osl.laws.Normal(8), rng=0)
>>> bool(est.distance < 0.2)
True

The law of any mean and covariance, and the uniform law of another ball:

>>> normal = osl.laws.Normal(2).affine(np.linalg.cholesky([[4.0, 1.0], [1.0, 2.0]]), shift=[1.0, -1.0])
>>> normal.sample(3, rng=0).shape
(3, 2)
>>> ball = osl.laws.Ball(3).affine(2.5)
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    HostArray,
    constant,
    float_info,
    host_generator,
    namespace,
    to_numpy,
)
from orthoslice.check.inputs import as_array, on_host
from orthoslice.check.names import says
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.quantiles import Profile, Table, cube_table

__all__ = ["Ball", "Cube", "Law", "Normal", "Sphere", "from_quantiles"]

# The largest p times :attr:`.Profile.tail`, and that for p other than 1 and 2, whose costs are sums over nodes.
# From 1 on there is no p-th moment.
_MOST_TAIL, _MOST_TAIL_AT_NODES = 0.98, 0.76

# Quantile functions are within this and its inverse.
_LEAST_UNIT = 1e-100

# Shares of the mass at which the symmetry and the order of a user's quantile function are looked at.
_TRIED = np.concatenate([2.0 ** -np.arange(30.0, 2.0, -1.0), np.linspace(0.25, 0.5, 33)[:-1]])


class Law(abc.ABC):
    """A law in `dim` dimensions: a frozen, hashable value.

    Examples
    --------
    >>> import orthoslice as osl
    >>> isinstance(osl.laws.Normal(3), osl.laws.Law)
    True
    """

    dim: int

    @property
    @abc.abstractmethod
    def base(self) -> Base:
        """The law that this one is an affine image of."""

    @abc.abstractmethod
    def frame(self) -> HostArray:
        """The image of the origin, then the vectors that unit vectors become: `(1 + base.dim, dim)`.

        A law that is only scaled has one such vector, `(2, dim)`.
        """

    @abc.abstractmethod
    def affine(self, matrix: Any, shift: Any = None) -> Affine:
        """The law of ``matrix @ u + shift`` for u of this law.

        Parameters
        ----------
        matrix
            `(new dim, dim)`, or a number that scales all coordinates.
        shift
            `(new dim,)`, or a number for all coordinates; 0 when None.
        """

    @abc.abstractmethod
    def sample(self, n: int, rng: Any = None) -> HostArray:
        """Independent points `(n, dim)` of the law, float64; `rng` as everywhere, but for a JAX key."""


@dataclass(frozen=True)
class Base(Law):
    """A law about the origin that no other is needed for."""

    dim: int

    def __post_init__(self) -> None:
        from orthoslice.directions.base import check_count

        object.__setattr__(self, "dim", check_count("dim", self.dim, self._least_dim))

    _least_dim = 1

    @property
    def base(self) -> Base:
        return self

    def frame(self) -> HostArray:
        return np.eye(2, self.dim, -1)

    def affine(self, matrix: Any, shift: Any = None) -> Affine:
        return Affine.of(self, np.ones(()), np.zeros(self.dim)).affine(matrix, shift)

    @property
    @abc.abstractmethod
    def variance(self) -> float:
        """Of a projection on a line."""

    @property
    def width(self) -> float:
        """The deviation of normal points that are about as far from each other as those of the law."""
        return math.sqrt(self.variance)

    def check_moments(self, p: float) -> None:
        """Raise where the p-th moment on a line is infinite, and all distances with it."""

    @abc.abstractmethod
    def tables(self, lines: Callable[[], Array], like: Array) -> Table:
        """What the law is on lines, in the type of `like`: one table, or one for each row of `lines()`.

        The rows `(slices, dim)` are of unit length; they are worked out only if they are called for.
        """

    def sample(self, n: int, rng: Any = None) -> HostArray:
        from orthoslice.directions.base import check_count

        return self._sampled(check_count("n", n, 0), host_generator(rng))

    @abc.abstractmethod
    def _sampled(self, n: int, rng: np.random.Generator) -> HostArray: ...


class Round(Base):
    """A law that is invariant under rotations, and so the same on all lines."""

    @abc.abstractmethod
    def line_quantile(self, u: HostArray) -> HostArray:
        """The quantile function on a line, for shares u of the mass between 0 and 1/2."""

    @property
    def variance(self) -> float:
        return profile(self).spread

    @property
    def width(self) -> float:
        # By the mean of |T|, which heavy tails leave finite where the variance is not.
        return -2 * float(np.min(to_numpy(profile(self).table.below))) * math.sqrt(math.pi / 2)

    def check_moments(self, p: float) -> None:
        tail = profile(self).tail
        if p * tail <= (_MOST_TAIL if p in (1, 2) else _MOST_TAIL_AT_NODES):
            return
        most = _MOST_TAIL_AT_NODES / tail
        allowed = [f"{k}" for k in (1, 2) if most < k <= _MOST_TAIL / tail]
        allowed += [f"at most {most:.3g}"] if most >= 1 else []
        raise ValueError(
            f"`p` must be {' or '.join(allowed) or 'less than 1'} for {self!r}, whose quantiles grow as "
            f"u**-{tail:.3g} towards level 0: other moments are infinite, or mostly in tails where they cannot "
            f"be worked out; got {p:g}."
        )

    def tables(self, lines: Callable[[], Array], like: Array) -> Table:
        return line_table(self, like)


Named = TypeVar("Named", bound=Base)


def _named(law: type[Named]) -> type[Named]:
    """The class of a law that has no options but `dim`; its error says where others go."""
    hint = (
        "A law has no options but `dim`: others go into `affine`, such as "
        "`Normal(dim).affine(np.linalg.cholesky(covariance), mean)` and `Ball(dim).affine(radius, centre)`."
    )
    setattr(law, "__init__", says(hint)(law.__init__))  # noqa: B010 - mypy forbids the assignment
    return law


@functools.lru_cache(maxsize=64)
def profile(law: Round) -> Profile:
    """What a law is on every line."""
    return Profile(law.line_quantile)


@_named
@dataclass(frozen=True)
class Normal(Round):
    """The standard normal law: mean 0, covariance the identity.

    For another mean and covariance, ``Normal(dim).affine(np.linalg.cholesky(covariance), mean)``.

    Examples
    --------
    The squared distance of the origin is the variance along a line:

    >>> import orthoslice as osl
    >>> est = osl.sliced_wasserstein([[0.0, 0.0, 0.0]], osl.laws.Normal(3), rng=0)
    >>> round(float(est.value), 9)
    1.0
    """

    def line_quantile(self, u: HostArray) -> HostArray:
        from scipy.special import ndtri

        found: HostArray = ndtri(u)
        return found

    def _sampled(self, n: int, rng: np.random.Generator) -> HostArray:
        return rng.standard_normal((n, self.dim))


@_named
@dataclass(frozen=True)
class Sphere(Round):
    """The uniform law on the unit sphere, the points of length 1 in two or more dimensions.

    Examples
    --------
    >>> import orthoslice as osl
    >>> est = osl.sliced_wasserstein([[0.0, 0.0, 0.0, 0.0]], osl.laws.Sphere(4), rng=0)
    >>> round(float(est.value), 9)
    0.25
    """

    # On the line a sphere is two points, which are a cloud.
    _least_dim = 2

    def line_quantile(self, u: HostArray) -> HostArray:
        return _coordinate_quantile(self.dim, u)

    def _sampled(self, n: int, rng: np.random.Generator) -> HostArray:
        return _unit_rows(rng, n, self.dim)


@_named
@dataclass(frozen=True)
class Ball(Round):
    """The uniform law on the unit ball, the points of length up to 1.

    Examples
    --------
    >>> import orthoslice as osl
    >>> est = osl.sliced_wasserstein([[0.0, 0.0]], osl.laws.Ball(2), rng=0)
    >>> round(float(est.value), 9)
    0.25
    """

    def line_quantile(self, u: HostArray) -> HostArray:
        # The first coordinates of a sphere with two more dimensions are uniform on the ball (Archimedes).
        return _coordinate_quantile(self.dim + 2, u)

    def _sampled(self, n: int, rng: np.random.Generator) -> HostArray:
        return _unit_rows(rng, n, self.dim + 2)[:, : self.dim]


@_named
@dataclass(frozen=True)
class Cube(Base):
    """The uniform law on the cube [-1, 1]^dim. That on [0, 1]^dim is ``Cube(dim).affine(0.5, 0.5)``.

    Its law on a line is another one for every direction, and is worked out from its characteristic function,
    which takes as long as a few hundred points take.

    Examples
    --------
    >>> import orthoslice as osl
    >>> est = osl.sliced_wasserstein([[0.0, 0.0]], osl.laws.Cube(2), rng=0)
    >>> round(float(est.value), 6)
    0.333333
    """

    @property
    def variance(self) -> float:
        return 1 / 3

    def tables(self, lines: Callable[[], Array], like: Array) -> Table:
        return cube_table(namespace(like).astype(lines(), like.dtype))

    def _sampled(self, n: int, rng: np.random.Generator) -> HostArray:
        return rng.uniform(-1, 1, (n, self.dim))


def _real(name: str, numbers: Any) -> HostArray:
    """Numbers of an affine map, of any array library."""
    return on_host(name, as_array(name, numbers)).astype(np.float64)


def _coordinate_quantile(dim: int, u: HostArray) -> HostArray:
    """The quantiles, up to the median, of a coordinate of a uniform unit vector."""
    from scipy.special import betaincinv

    half = (dim - 1) / 2
    found: HostArray = 2 * betaincinv(half, half, u) - 1
    return found


def _unit_rows(rng: np.random.Generator, n: int, dim: int) -> HostArray:
    rows = rng.standard_normal((n, dim))
    unit: HostArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


@dataclass(frozen=True)
class Radial(Round):
    """A law that is invariant under rotations, from its quantile function on a line: see `from_quantiles`."""

    function: Callable[[HostArray], HostArray]

    def line_quantile(self, u: HostArray) -> HostArray:
        return np.asarray(self.function(u), dtype=np.float64)

    def _sampled(self, n: int, rng: np.random.Generator) -> HostArray:
        if self.dim > 1:
            raise NotImplementedError(
                "`from_quantiles` knows its law on lines only, and has no points of it in "
                f"{self.dim} dimensions."
            )
        u = rng.random((n, 1))
        away = self.line_quantile(np.minimum(u, 1 - u))
        return np.where(u < 0.5, away, -away)


def from_quantiles(function: Callable[[HostArray], HostArray], dim: int) -> Radial:
    """The law in `dim` dimensions that has one quantile function on all lines, such as Student's t.

    Such a law is invariant under rotations and symmetric about the origin. Whether there is one in `dim`
    dimensions is not checked: the distance is that of the lines' laws all the same.

    Parameters
    ----------
    function
        The quantile function: it takes a NumPy array of numbers between 0 and 1, both excluded, and returns as
        many, with ``function(1 - u) == -function(u)``. Laws are the same if their functions are the same
        object. Where its tails are so heavy that there is no p-th moment, distances are infinite, which is an
        error that says how large p may be.
    dim
        The dimension.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> from scipy.special import stdtrit
    >>> law = osl.laws.from_quantiles(lambda u: stdtrit(5, u), 3)
    >>> round(float(osl.sliced_wasserstein(np.zeros((1, 3)), law, rng=0).value), 6)
    1.666667
    """
    if not callable(function):
        raise TypeError(f"`function` must be a quantile function; got {function!r}.")
    law = Radial(dim, function)
    try:
        low, high = (np.asarray(function(u), dtype=np.float64) for u in (_TRIED, 1 - _TRIED))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`function` must take a NumPy array of numbers and give as many; it raised {error!r}. "
            "`np.vectorize` makes that of a function of one number."
        ) from error
    if low.shape != _TRIED.shape or not np.isfinite([low, high]).all():
        raise ValueError("`function` must give a finite number for every number between 0 and 1.")
    if not np.allclose(low, -high, rtol=1e-4, atol=1e-6 * np.abs(low).max()):
        k = int(np.argmax(np.abs(low + high)))
        raise ValueError(
            "`function` must be symmetric, function(1 - u) == -function(u); got "
            f"{high[k]:.6g} at {1 - _TRIED[k]:.6g} and {low[k]:.6g} at {_TRIED[k]:.6g}. Shift laws by `affine`."
        )
    if (np.diff(low) < 0).any():
        raise ValueError("`function` must be increasing, as quantiles are.")
    largest = float(np.abs(low).max())
    if largest and not _LEAST_UNIT < largest < 1 / _LEAST_UNIT:
        raise ValueError(
            f"`function` must be in other units, whose powers do not leave the range of float64; got "
            f"{largest:.3g} at {_TRIED[0]:.3g}. Pass a law of length 1 or so, and scale it by `affine`."
        )
    return law


@dataclass(frozen=True)
class Affine(Law):
    """The image of a law under an affine map."""

    base_law: Base
    matrix: tuple[Any, ...]
    """A matrix by rows, as tuples, or one number."""
    shift: tuple[float, ...]

    @classmethod
    def of(cls, base: Base, matrix: HostArray, shift: HostArray) -> Affine:
        rows = (float(matrix),) if matrix.ndim == 0 else tuple(map(tuple, matrix.tolist()))
        return cls(base, rows, tuple(shift.tolist()))

    @property
    def dim(self) -> int:  # type: ignore[override]
        return len(self.shift)

    @property
    def base(self) -> Base:
        return self.base_law

    def __repr__(self) -> str:
        by = f"{self._matrix:g}" if self._matrix.ndim == 0 else f"matrix {self._matrix.shape}"
        return f"{self.base!r}.affine({by}, shift={'0' if not any(self.shift) else f'({self.dim},)'})"

    @property
    def _matrix(self) -> HostArray:
        matrix = np.asarray(self.matrix)
        return matrix[0] if matrix.ndim == 1 else matrix

    def frame(self) -> HostArray:
        matrix = self._matrix
        axes = matrix * np.eye(1, self.dim) if matrix.ndim == 0 else matrix.T
        return np.concatenate([np.asarray(self.shift)[None, :], axes])

    def affine(self, matrix: Any, shift: Any = None) -> Affine:
        by = _real("matrix", matrix)
        if by.ndim not in (0, 2) or (by.ndim == 2 and (by.shape[1] != self.dim or by.shape[0] == 0)):
            raise ValueError(
                f"`matrix` must be a number or have shape (new dim, {self.dim}); got shape {by.shape}."
            )
        dim = self.dim if by.ndim == 0 else by.shape[0]
        to = _real("shift", 0.0 if shift is None else shift)
        if to.shape not in ((), (dim,)):
            raise ValueError(f"`shift` must be a number or have shape ({dim},); got shape {to.shape}.")
        if not (np.isfinite(by).all() and np.isfinite(to).all()):
            raise ValueError("`matrix` and `shift` must be finite.")
        with np.errstate(over="ignore", invalid="ignore"):
            both = by * self._matrix if 0 in (by.ndim, self._matrix.ndim) else by @ self._matrix
            moved = (by * np.asarray(self.shift) if by.ndim == 0 else by @ np.asarray(self.shift)) + to
        if not (np.isfinite(both).all() and np.isfinite(moved).all()):
            raise OverflowError("`matrix` and `shift`, with those of the law, exceed the range of float64.")
        return Affine.of(self.base, both, moved)

    def sample(self, n: int, rng: Any = None) -> HostArray:
        points, matrix = self.base.sample(n, rng), self._matrix
        image: HostArray = (points * matrix if matrix.ndim == 0 else points @ matrix.T) + np.asarray(self.shift)
        return image


class LawCloud(Cloud):
    """A law in the place of a cloud: its `points` are the frame, the first of which is where it lies."""

    def less(self, origin: Array, *, lazily: bool) -> LawCloud:
        xp = namespace(self.points)
        first, axes = self.points[..., :1, :] - origin, self.points[..., 1:, :]
        return replace(self, points=xp.concat([first, axes], axis=-2))


def law_cloud(law: Law, like: Array) -> LawCloud:
    """A law beside the points `like`, with as many axes."""
    frame = frame_beside(law, like)
    return LawCloud(namespace(like).reshape(frame, (*(1,) * (like.ndim - 2), *frame.shape)))


def frame_beside(law: Law, like: Array) -> Array:
    """The frame of a law beside `like` and of its type."""
    frame: Array = constant(_frame, (law, float(float_info(namespace(like), like.dtype).max)), like)
    return frame


def _frame(law: Law, largest: float) -> HostArray:
    frame = law.frame()
    if np.abs(frame).max() > largest:
        raise ValueError(
            f"`y` must be within the range of the type of `x`, up to {largest:.3g}; got a law with "
            f"{np.abs(frame).max():.3g}. Pass float64 points, or smaller units."
        )
    return frame


def line_table(law: Round, like: Array) -> Table:
    """The table of a law on every line, beside `like` and of its type."""
    stacked = constant(_stacked_table, (law,), like)
    return Table(*(stacked[k, :] for k in range(len(Table._fields))))


def _stacked_table(law: Round) -> HostArray:
    return np.stack(profile(law).table)
