"""A transformer of scikit-learn: clouds in, vectors out."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from orthoslice.applications.embedding import embed
from orthoslice.backend.arrays import HostArray
from orthoslice.check.frames import is_frame, match_columns
from orthoslice.check.many_clouds import agreeing_clouds, named_clouds

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError("`CloudVectors` is a transformer of scikit-learn: pip install scikit-learn.") from error


class CloudVectors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clouds as vectors whose Euclidean distances are sliced Wasserstein distances, as a step of a pipeline.

    :func:`orthoslice.embed` as a transformer. What it makes goes wherever vectors go: nearest neighbours,
    principal components, kernel machines, k-means. Nothing is learned but the dimension of points, and
    directions are always those of `rng`, so vectors of later clouds go with those of earlier ones.

    Parameters
    ----------
    n, p, cells, directions, n_directions, rng, memory, workers
        As in :func:`orthoslice.embed`. `rng` must be an integer.

    Notes
    -----
    If the first cloud of `fit` is a data frame, columns of later frames are matched with its columns by name.
    Vectors are named ``cloudvectors0`` and so on, `n` of them a direction, and with ``set_output`` they come as
    data frames.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> rng = np.random.default_rng(0)
    >>> spread = np.repeat([1, 2], 10)
    >>> clouds = [s * rng.normal(size=(rng.integers(30, 60), 3)) for s in spread]
    >>> model = make_pipeline(osl.adapters.CloudVectors(), KNeighborsClassifier(3))
    >>> model.fit(clouds, spread).predict([rng.normal(size=(40, 3)), 2 * rng.normal(size=(50, 3))]).tolist()
    [1, 2]
    """

    def __init__(
        self,
        n: int = 32,
        *,
        p: float = 2,
        cells: str = "tails",
        directions: Any = "auto",
        n_directions: int | None = None,
        rng: int = 0,
        memory: int | str = "256MB",
        workers: int | None = None,
    ) -> None:
        self.n = n
        self.p = p
        self.cells = cells
        self.directions = directions
        self.n_directions = n_directions
        self.rng = rng
        self.memory = memory
        self.workers = workers

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note the dimension of the points of clouds, `n_features_in_`, and the names of their columns.

        Parameters
        ----------
        X
            A sequence of clouds `(n, dim)`, whose sizes may differ, or an array `(clouds, n, dim)`.
        y
            Not used.
        """
        if isinstance(self.rng, bool) or not isinstance(self.rng, int | np.integer):
            raise TypeError(f"`rng` must be an integer, so that all clouds share directions; got {self.rng!r}.")
        first = _listed(X)[0]
        self.n_features_in_ = next(agreeing_clouds({0: first})).dim
        self._columns = first[:1] if is_frame(first) else None
        return self

    @property
    def _n_features_out(self) -> int:
        """How long vectors are; scikit-learn names them by it."""
        point = np.zeros((1, 1, self.n_features_in_))
        return int(embed(point, **self.get_params()).vectors.shape[1])

    def transform(self, X: Any) -> HostArray:
        """The vectors of clouds, a row each, `(clouds, n_directions * n)`.

        Parameters
        ----------
        X
            As for :meth:`fit`, of the same dimension.
        """
        check_is_fitted(self)
        clouds = _listed(X)
        if self._columns is not None:
            clouds = [match_columns(self._columns, cloud)[1] for cloud in clouds]
        dim = (0, *tuple(np.shape(clouds[0])))[-1]
        if dim != self.n_features_in_:
            raise ValueError(f"Clouds must have dim = {self.n_features_in_}, as those of `fit`; got {dim}.")
        return embed(clouds, **self.get_params()).vectors


def _listed(clouds: Any) -> list[Any]:
    """The clouds without their names; at least one."""
    found = list(named_clouds(clouds)[0].values())
    if not found:
        raise ValueError("`X` must hold at least one cloud; got none.")
    return found
