"""What a score is given, and what it gives."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from orthoslice.backend.arrays import Array
from orthoslice.directions.base import Directions

Priced: TypeAlias = tuple[Array, tuple[Array, ...]]
"""Costs of couplings `(slices, ...)`, and the wanted gradients of their sum over slices, batch axes first."""


class Scored(NamedTuple):
    """What a pass over some directions found: one entry a direction, and sums over them."""

    costs: Array
    """Scores, `(slices, ...)`."""
    gradients: tuple[Array, ...] = ()
    """The wanted gradients of the sum of the scores, by x, y, x's weights and y's weights, batch axes first."""
    controls: Array | None = None
    """The control variate of every direction, `(slices, ...)`, if there is one."""


class Draw(NamedTuple):
    """The directions of one pass: `n_rows` were drawn, in blocks of `block_rows`; `rows` make couplings."""

    directions: Directions
    n_rows: int
    block_rows: int
    rows: slice | Array
    is_basis: bool
    """Whether whole blocks are orthonormal bases."""
    partner: Directions | None
    """As many directions drawn independently, for scores that ask for them."""
    chunk_rows: int
    """How many rows may be projected at once."""
    other_side: bool = False
    """As in :func:`couple`."""
