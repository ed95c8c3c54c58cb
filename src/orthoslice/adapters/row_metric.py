"""A callable for scikit-learn's ``metric=``: rows of a table that stand for clouds or histograms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from orthoslice.applications.distances import sliced_wasserstein
from orthoslice.check.options import check_p
from orthoslice.directions.base import check_count


@dataclass(frozen=True, kw_only=True, eq=False)
class CloudMetric:
    """SW_p between rows of a table, each of which is a cloud or a histogram, for scikit-learn's ``metric=``.

    Estimators of scikit-learn hand two rows at a time to a callable. Here a row is a flattened cloud of points
    of `dim` coordinates each, all of one size, or, where `support` is given, the masses of a histogram. The
    directions are always those of `rng`, so this is a metric, triangle inequality included, and trees may
    use it. A callable sorts both rows for every pair: **for more than a few hundred clouds, or clouds of
    different sizes**, let :func:`orthoslice.pairwise` sort each once, and pass ``metric="precomputed"`` with
    its `distance`.

    Parameters
    ----------
    p
        The power, at least 1.
    dim
        How many coordinates a point has; 1 for rows that are samples of numbers. Not used beside `support`.
    support
        Where the bins of histograms are: `(bins,)` on a line, or `(bins, dim)`. Rows are then masses that sum
        to 1.
    n_directions, rng
        As in :func:`orthoslice.sliced_wasserstein`; on a line there is only one direction. `rng` must be an
        integer.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> float(osl.adapters.CloudMetric()(np.array([0.0, 1, 2]), np.array([3.0, 1, 2])))
    1.0
    >>> hours = osl.adapters.CloudMetric(p=1, support=np.arange(4))
    >>> float(hours(np.array([0.5, 0.5, 0, 0]), np.array([0, 0, 0.5, 0.5])))
    2.0
    """

    p: float = 2
    dim: int = 1
    support: Any = None
    n_directions: int | None = None
    rng: int = 0

    def __post_init__(self) -> None:
        check_p(self.p)
        check_count("dim", self.dim)
        if not isinstance(self.rng, int):
            raise TypeError(f"`rng` must be an integer, so that all pairs share directions; got {self.rng!r}.")
        if self.support is not None and np.ndim(self.support) not in (1, 2):
            raise ValueError(f"`support` must have shape (bins,) or (bins, dim); got {np.shape(self.support)}.")

    def __call__(self, a: object, b: object) -> float:
        """The distance of two rows."""
        options: dict[str, Any] = {"n_directions": self.n_directions, "rng": self.rng, "workers": 1}
        if self.support is not None:
            bins = np.asarray(self.support)
            bins = bins[:, None] if bins.ndim == 1 else bins
            return float(sliced_wasserstein(bins, bins, self.p, x_weights=a, y_weights=b, **options).distance)
        return float(sliced_wasserstein(self._cloud(a), self._cloud(b), self.p, **options).distance)

    def _cloud(self, row: object) -> Any:
        values = np.asarray(row)
        if values.ndim != 1 or len(values) % self.dim:
            raise ValueError(
                f"Rows must be flattened clouds of points with {self.dim} coordinates; got a row of shape "
                f"{values.shape}. Pass `dim`, the number of coordinates of a point."
            )
        return values.reshape(-1, self.dim)
