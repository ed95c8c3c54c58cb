"""Random planes: two directions at right angles each, for distances on spheres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from orthoslice.backend.arrays import Array, DType, HostArray, Key, device, namespace, normals, wide_float
from orthoslice.backend.arrays.operations import orthonormal_rows
from orthoslice.directions.base import BlockSampler, DenseDirections, Sampler


class PlaneDirections(DenseDirections):
    """Unit rows, the first axes of planes, each with a `second` axis at right angles to it."""

    def __init__(self, first: Array, second: Array) -> None:
        super().__init__(first)
        self.second = DenseDirections(second)


@dataclass(frozen=True, kw_only=True, repr=False)
class Planes(BlockSampler):
    """Independent blocks of planes through 0, the neighbours in a ring of orthonormal directions.

    A block is a Haar-distributed basis of the space; its k-th plane is spanned by the k-th direction and the
    next, the last one by the last and the first. So a block of `dim` directions makes `dim` planes, each of
    them uniform: estimates are unbiased. In 3 dimensions the normals of the three planes are orthonormal. What
    :func:`orthoslice.spherical_sliced_wasserstein` draws.

    Parameters
    ----------
    block_size
        Planes of a block, at most `dim` (the default); 1 makes all planes independent.

    Examples
    --------
    >>> import orthoslice as osl
    >>> osl.directions.Planes().sample(3, dim=3, rng=0).theta.shape
    (3, 3)
    """

    name: ClassVar[str] = "planes"

    def is_basis(self, block_rows: int, dim: int) -> bool:
        # Scores of planes use more than the rows.
        return False

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> PlaneDirections:
        xp = namespace(key.high)
        axes = orthonormal_rows(normals(key, min(max(rows + 1, 2), dim), dim, wide_float(key.high)))
        ring = xp.concat([axes, axes[:, :1, :]], axis=1)
        first, second = (ring[:, start : start + rows, :] for start in (0, 1))
        return PlaneDirections(*(xp.astype(xp.reshape(part, (-1, dim)), dtype) for part in (first, second)))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GivenPlanes(Sampler):
    """Planes that the user brings, as orthonormal pairs `frames (slices, 2, dim)` in host memory: one block."""

    frames: Any
    name: ClassVar[str] = "given planes"
    why_no_error_bar: ClassVar[str] = "nothing is known of how the given planes were drawn"

    def block_rows(self, n_directions: int, dim: int) -> int:
        return n_directions

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        return self, int(self.frames.shape[0])

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> PlaneDirections:
        xp = namespace(key.high)
        axes: list[HostArray] = [self.frames[:rows, k] for k in range(2)]
        return PlaneDirections(*(xp.asarray(a, dtype=dtype, device=device(key.high)) for a in axes))

    def __repr__(self) -> str:
        return f"GivenPlanes(frames of shape {self.frames.shape})"
