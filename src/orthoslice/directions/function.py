"""Directions drawn by a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from orthoslice.backend.arrays import DType, HostArray, Key, call_on_host
from orthoslice.directions.base import DEFAULT_BLOCKS, DenseDirections, Sampler, check_count, default_rows


@dataclass(frozen=True, kw_only=True, repr=False)
class Drawn(Sampler):
    """What :func:`from_function` makes."""

    function: Callable[[int, int, np.random.Generator], Any]
    size: int | None = None
    name: ClassVar[str] = "function"

    def block_rows(self, n_directions: int, dim: int) -> int:
        return n_directions if self.size is None else min(self.size, n_directions)

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        rows = default_rows(dim)
        return self, DEFAULT_BLOCKS * (rows if self.size is None else max(self.size, rows))

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> DenseDirections:
        def blocks(high: object, low: object) -> HostArray:
            keys = zip(*(np.asarray(word).astype(np.uint32).tolist() for word in (high, low)), strict=True)
            return np.concatenate([self.function(rows, dim, np.random.default_rng(key)) for key in keys])

        shape = (key.high.shape[0] * rows, dim)
        return DenseDirections(call_on_host(blocks, shape, dtype, *key))

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        return f"from_function({name}, block_rows={self.size})"


def from_function(
    function: Callable[[int, int, np.random.Generator], Any], block_rows: int | None = None
) -> Sampler:
    """A sampler that draws blocks of directions by a function of your own.

    Each block is drawn by a call of its own with a NumPy generator of its own, so that blocks are independent
    and give an error bar; rows within a block may depend on each other. Estimates are unbiased if every row is
    uniform on the sphere. Its first blocks are looked at once: shape, unit length, and whether blocks differ.

    Parameters
    ----------
    function
        ``function(rows, dim, rng)`` returns unit rows, an array `(rows, dim)`.
    block_rows
        Rows of a block; None draws all directions in one block, which has no error bar. Where they do not
        divide the number of directions, the last block is asked for with fewer rows.

    Examples
    --------
    Each direction along with its opposite, which for SW says nothing new:

    >>> import numpy as np, orthoslice as osl
    >>> def antithetic(rows, dim, rng):
    ...     half = rng.normal(size=(rows // 2, dim))
    ...     half /= np.linalg.norm(half, axis=1, keepdims=True)
    ...     return np.concatenate([half, -half])
    >>> sampler = osl.directions.from_function(antithetic, block_rows=8)
    >>> x, y = np.zeros((1, 3)), np.ones((1, 3))
    >>> est = osl.sliced_wasserstein(x, y, directions=sampler, n_directions=64, rng=0)
    >>> est.n_blocks, est.directions
    (8, from_function(antithetic, block_rows=8))
    """
    if not callable(function):
        raise TypeError(f"`function` must be callable as function(rows, dim, rng); got {function!r}.")
    return Drawn(function=function, size=None if block_rows is None else check_count("block_rows", block_rows))
