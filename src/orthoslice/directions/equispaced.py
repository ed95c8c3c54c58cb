"""Directions of the plane at even angles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from orthoslice.backend.array_types import HostArray
from orthoslice.directions.point_set import PointSet

FEWEST_IN_THE_PLANE = 8
"""Sets, or blocks, for an error bar: they differ by one angle only, and fewer often agree by chance."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Equispaced(PointSet):
    """Lines of the plane at even angles, turned by a random one: the trapezoidal rule, which is hard to beat.

    Prefer it for SW of clouds in the plane. N lines integrate trigonometric polynomials of degree below N in
    twice the angle without error, so the error falls with N as fast as the score is smooth. Every line is
    uniform, so estimates are unbiased.

    **Symmetric data.** Clouds that look alike after a turn by pi/N make all N lines say the same. Two regular
    polygons of 2N corners are then known no better than from one direction, and N independent ones would do N
    times as well. Error bars show that, since the sets of different replicates are turned independently; the
    cure is another number of directions, or :class:`Orthogonal`.

    Parameters
    ----------
    replicates, block_size
        As in :class:`PointSet`, with 8 replicates by default: sets differ by one angle only, and the means of
        fewer are too often alike. Intervals of 4 sets covered in 84 to 94% of runs where 95% were asked for.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> theta = osl.directions.Equispaced(replicates=1).sample(6, dim=2, rng=0).theta
    >>> np.sort(np.degrees(np.arccos(np.abs(theta @ theta[0])))).round(6).tolist()
    [0.0, 30.0, 30.0, 60.0, 60.0, 90.0]
    >>> x, y = np.zeros((1, 2)), np.array([[3.0, 4.0]])
    >>> est = osl.sliced_wasserstein(x, y, 1, directions="equispaced", n_directions=128, rng=0)
    >>> round(float(est.value) / (5 * 2 / np.pi), 3), est.n_blocks
    (1.0, 8)
    """

    replicates: int = FEWEST_IN_THE_PLANE
    name: ClassVar[str] = "equispaced"
    is_circle: ClassVar[bool] = True

    def points(self, rows: int, dim: int) -> HostArray:
        if dim != 2:
            raise ValueError(
                f"Equispaced directions are for clouds in the plane; got dim {dim}. Pass "
                '`directions="optimized"`, or "auto".'
            )
        return even_angles(rows)


def even_angles(rows: int) -> HostArray:
    """Unit vectors of the plane `(rows, 2)` whose lines are at even angles."""
    angle = np.pi / rows * np.arange(rows)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)
