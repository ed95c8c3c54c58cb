"""Directions that the user brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from orthoslice.backend.arrays import RNG, Array, DType, Key, namespace, to_numpy
from orthoslice.directions.base import DenseDirections, Sample, Sampler


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Given(Sampler):
    """Unit rows `theta (slices, dim)` as they are: one block, since nothing is known of how they were made.

    So there is no error bar. This is what an array passed as ``directions=`` becomes.

    Parameters
    ----------
    theta
        Unit rows `(slices, dim)` of the same array library as the clouds.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.zeros((1, 2)), np.array([[3.0, 4.0]])
    >>> float(osl.sliced_wasserstein(x, y, directions=np.eye(2)).value)
    12.5
    """

    theta: Any
    name: ClassVar[str] = "given"
    why_no_error_bar: ClassVar[str] = "nothing is known of how the given directions were drawn"

    def block_rows(self, n_directions: int, dim: int) -> int:
        return n_directions

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        return self, int(self.theta.shape[0])

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> DenseDirections:
        theta: Array = self.theta
        return DenseDirections(theta if theta.dtype == dtype else namespace(theta).astype(theta, dtype))

    def sample(self, n_directions: int, dim: int, rng: RNG = None) -> Sample:
        """The first rows, as NumPy arrays."""
        theta = to_numpy(self.theta)
        if n_directions > theta.shape[0] or dim != theta.shape[1]:
            raise ValueError(f"There are directions of shape {theta.shape}; got {n_directions} of dim {dim}.")
        return Sample(theta[:n_directions], np.zeros(n_directions, dtype=np.int32), np.ones(n_directions))

    def __repr__(self) -> str:
        return "Given(traced)" if self.theta is None else f"Given(theta of shape {tuple(self.theta.shape)})"


GIVEN_LATER = Given(theta=None)
"""Stands for directions that travel beside a request, so that requests with the same count are equal."""
