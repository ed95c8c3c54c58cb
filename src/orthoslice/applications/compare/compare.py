"""One comparison of two tables: how far apart, whether by chance, in which columns, and how certain."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from orthoslice.applications.bounds import Bounds
from orthoslice.applications.columns import ColumnChange, in_own_units, with_pvalues
from orthoslice.applications.compare.comparison import Comparison, have_same_rows
from orthoslice.applications.compare.moves import move, shuffled_moves
from orthoslice.applications.compare.words import DEFAULT_LEVEL
from orthoslice.applications.distances import projected_wasserstein, sliced_wasserstein
from orthoslice.applications.explain.explain import explain
from orthoslice.applications.explain.explanation import Explanation
from orthoslice.applications.match.match import match_bytes
from orthoslice.applications.two_sample.testing import TwoSampleResult, two_sample_test
from orthoslice.backend.arrays import RNG, HostArray, resolve_rng
from orthoslice.backend.kernels.when_to_compile import count_plain
from orthoslice.check.frames import feature_names
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_memory, check_p
from orthoslice.clouds.cloud import Cloud, numpy_clouds
from orthoslice.directions.base import check_count
from orthoslice.estimates.result import Estimate

DEFAULT_ROWS = 5_000

UNITS = "in units of the data"

# Random pairs of rows whose median distance is `typical_gap`.
_PAIRS = 1000

# Coordinates of those pairs that are read at a time.
_PIECE_ITEMS = 1 << 20

# Numbers that plain code would go through for a row of the samples. Parts of a comparison are small, and each
# would put off the loading of kernels that all of them together need.
_NUMBERS_A_ROW = 1 << 14


@dataclass(frozen=True, eq=False)
class PreparedComparison:
    """A comparison that is checked and ready to be worked out, part by part."""

    names: tuple[str, str]
    features: tuple[Hashable, ...]
    x: Cloud
    y: Cloud
    sample: tuple[Cloud, Cloud]
    p: float | None
    seed: int
    max_rows: int
    memory: int | str
    units: str = UNITS
    directions: Any = "auto"
    n_directions: int | None = None
    rtol: float | None = None
    n_permutations: int = 999
    workers: int | None = None
    progress: bool = False
    columns: tuple[ColumnChange, ...] = ()
    level: float = DEFAULT_LEVEL
    left_out: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def power(self) -> float:
        """The power of distances and bounds."""
        return 2.0 if self.p is None else self.p

    def work_out(self, part: str) -> Any:
        """One of `PARTS`."""
        return _WORK[part](self)

    def finish(self, parts: dict[str, Any]) -> Comparison:
        """The comparison with the parts that were worked out."""
        a, b = self.sample
        columns, test = self.columns, parts.get("test")
        is_whole = a.n == self.x.n and b.n == self.y.n
        permuted = getattr(test, "column_pvalues", None)
        if columns and is_whole and permuted is not None:
            columns = with_pvalues(columns, permuted)
        if columns and parts.get("explanation") is not None:
            told = in_own_units(parts["explanation"].features, self.features, columns, self.level)
            parts = parts | {"explanation": replace(parts["explanation"], features=told)}
        options = ("p", "directions", "n_directions", "rtol", "n_permutations", "max_rows", "memory")
        return Comparison(
            names=self.names,
            features=self.features,
            x=self.x.points,
            y=self.y.points,
            x_weights=cast("HostArray | None", self.x.weights),
            y_weights=cast("HostArray | None", self.y.weights),
            sample_x=a.points,
            sample_y=b.points,
            sample_x_weights=cast("HostArray | None", a.weights),
            sample_y_weights=cast("HostArray | None", b.weights),
            p=self.power,
            units=self.units,
            seed=self.seed,
            typical_gap=_typical_gap(a, self.seed),
            options={name: getattr(self, name) for name in options},
            columns=columns,
            level=self.level,
            left_out=self.left_out,
            dropped=self.dropped,
            **parts,
        )

    @functools.cached_property
    def _common(self) -> dict[str, Any]:
        """Options that all functions take."""
        return {"rng": self.seed, "memory": self.memory, "workers": self.workers}

    @functools.cached_property
    def _drawn(self) -> dict[str, Any]:
        """Options of the functions that take `directions`."""
        chosen = {"directions": self.directions, "n_directions": self.n_directions, "progress": self.progress}
        return self._common | chosen

    def _sliced(self) -> Estimate:
        return sliced_wasserstein(self.x, self.y, self.power, rtol=self.rtol, **self._drawn)

    def _projected(self) -> Estimate:
        return projected_wasserstein(*self.sample, self.power, rtol=self.rtol, **self._drawn)

    def _bounds(self) -> Bounds:
        return move(*self.sample, self.power, **self._drawn)

    def _test(self) -> TwoSampleResult | None:
        if self._is_weighted:
            return None
        features = [change.features for change in self.columns] or None
        options = self._drawn | {"columns": features, "n_permutations": self.n_permutations}
        return _run_test(*self.sample, self.p, **options)

    def _shuffled_moves(self) -> HostArray | None:
        if self._is_weighted:
            return None
        return shuffled_moves(*self.sample, self.power, self.seed, **self._common)

    def _explanation(self) -> Explanation:
        return explain(*self.sample, self.power, names=self.features, **self._common)

    @property
    def _is_weighted(self) -> bool:
        return any(cloud.weights is not None for cloud in self.sample)


_WORK: dict[str, Callable[[PreparedComparison], Any]] = {
    "sliced": PreparedComparison._sliced,
    "test": PreparedComparison._test,
    "bounds": PreparedComparison._bounds,
    "shuffled_moves": PreparedComparison._shuffled_moves,
    "projected": PreparedComparison._projected,
    "explanation": PreparedComparison._explanation,
}

PARTS = tuple(_WORK)
"""What a comparison is made of, in the order in which it is worked out."""


@answers_other_names
def compare(
    x: Any,
    y: Any,
    p: float | None = None,
    *,
    names: tuple[str, str] = ("x", "y"),
    features: Sequence[Hashable] | None = None,
    units: str = UNITS,
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rtol: float | None = None,
    n_permutations: int = 999,
    max_rows: int = DEFAULT_ROWS,
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
    progress: bool = False,
) -> Comparison:
    """Compare two tables: how far apart they are, whether by chance, in which features, how certainly.

    One call for what :func:`sliced_wasserstein`, :func:`projected_wasserstein`, :func:`wasserstein_bounds`,
    :func:`two_sample_test` and :func:`explain` say, and a text that needs no knowledge of any of them.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`: arrays of any library, lists or data frames, whose columns are matched
        by name. Memory maps may be larger than memory.
    p
        The power, at least 1. None is 2 for distances and bounds, and 1 for the test, as in the functions.
    names
        What to call the clouds.
    features
        The names of the features of arrays; ``x0``, ``x1``, ... by default. Those of data frames are their
        columns.
    units
        What lengths are measured in, in words that follow a number.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None. There is no test then.
    directions, n_directions, rtol, rng, memory, workers, progress
        As in :func:`sliced_wasserstein`.
    n_permutations
        As in :func:`two_sample_test`.
    max_rows
        The most rows of each cloud, chosen at random, that all parts but the sliced distance are worked out
        from; fewer where `memory` does not hold them. The sliced distance comes from all rows.

    Returns
    -------
    Comparison
        `sliced`, `projected`, `bounds`, `exact`, `test`, `explanation`; printed, it is a short text.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 2)) + [40, 3]
    >>> y = rng.normal(size=(200, 2)) + [42, 3]
    >>> found = osl.compare(x, y, features=["age", "income"], rng=0)
    >>> found.test.pvalue, found.explanation.features[0].name
    (0.001, 'age')
    >>> bool(found.bounds.lower < 2.1 < found.bounds.upper * 1.1)
    True
    """
    prepared = prepare_comparison(
        x,
        y,
        p,
        names=names,
        features=features,
        units=units,
        x_weights=x_weights,
        y_weights=y_weights,
        directions=directions,
        n_directions=n_directions,
        rtol=rtol,
        n_permutations=n_permutations,
        max_rows=max_rows,
        rng=rng,
        memory=memory,
        workers=workers,
        progress=progress,
    )
    return prepared.finish({part: prepared.work_out(part) for part in PARTS})


def prepare_comparison(
    x: object,
    y: object,
    p: float | None = None,
    *,
    names: tuple[str, str] = ("x", "y"),
    features: Sequence[Hashable] | None = None,
    x_weights: object = None,
    y_weights: object = None,
    max_rows: int = DEFAULT_ROWS,
    rng: RNG = None,
    memory: int | str = "256MB",
    **options: Any,
) -> PreparedComparison:
    """Check what :func:`compare` was given, and choose the rows that the slower parts look at."""
    if p is not None:
        check_p(p)
    labels = feature_names("features", features, x, y)
    cloud_x, cloud_y = numpy_clouds("compare", x, y, x_weights, y_weights)
    if labels is None:
        labels = [f"x{k}" for k in range(cloud_x.dim)]
    elif len(labels) != cloud_x.dim:
        raise ValueError(f"`features` must have one name a feature, {cloud_x.dim}; got {len(labels)}.")
    _, seed = resolve_rng(rng, np.zeros(1))
    assert seed is not None
    # Of all parts, bounds and matchings of samples of unequal size take the most memory.
    example = Cloud(cloud_x.points[:1]), Cloud(cloud_x.points[[0, 0]])
    room = check_memory(memory) // (2 * sum(match_bytes(*example)) // 3)
    most = max(2, min(check_count("max_rows", max_rows), room))
    draw = np.random.default_rng(seed)
    some_x = some_rows(cloud_x, most, draw)
    # Two samples of the same rows would differ.
    is_sampled = most < cloud_x.n and cloud_x.weights is None and cloud_y.weights is None
    is_equal = is_sampled and have_same_rows(cloud_x.points, cloud_y.points)
    some_y = some_x if is_equal else some_rows(cloud_y, most, draw)
    count_plain("comparison", _NUMBERS_A_ROW * (some_x.n + some_y.n))
    return PreparedComparison(
        names=(str(names[0]), str(names[1])),
        features=tuple(labels),
        x=cloud_x,
        y=cloud_y,
        sample=(some_x, some_y),
        p=p,
        seed=seed,
        max_rows=max_rows,
        memory=memory,
        **options,
    )


def _run_test(x: Cloud, y: Cloud, p: float | None, **options: Any) -> TwoSampleResult:
    """The test of a comparison, which nothing else chooses."""
    if p is None:
        return two_sample_test(x, y, method="auto", **options)
    return two_sample_test(x, y, p, **options)


def some_rows(cloud: Cloud, most: int, draw: np.random.Generator) -> Cloud:
    """All rows, or `most` of them at random, with weights that sum to 1."""
    if cloud.n <= most:
        return Cloud(np.asarray(cloud.points), cloud.weights)
    rows = np.sort(draw.choice(cloud.n, size=most, replace=False))
    weights: Any = cloud.weights
    if weights is not None:
        weights = weights[rows]
        if not weights.sum() > 0:
            raise ValueError(
                f"Weights must not vanish on {most} rows chosen at random; got a sum of 0. Pass `max_rows` "
                f"of {cloud.n}."
            )
        weights = weights / weights.sum()
    return Cloud(np.asarray(cloud.points[rows]), weights)


def _typical_gap(cloud: Cloud, seed: int) -> float:
    """The median distance of two rows at random."""
    draw = np.random.default_rng(seed)
    chances = (
        None if cloud.weights is None else cloud.weights / cast(HostArray, cloud.weights).sum(dtype=np.float64)
    )
    pairs = np.stack([draw.choice(cloud.n, size=_PAIRS, p=chances) for _ in range(2)])
    pairs = pairs[:, pairs[0] != pairs[1]]
    if not pairs.size:
        return 0.0
    # In a unit in which squares stay in range.
    unit = float(np.abs(cloud.points).max()) or 1.0
    step = max(1, _PIECE_ITEMS // cloud.dim)
    pieces = (pairs[:, first : first + step] for first in range(0, pairs.shape[1], step))
    gaps = [np.linalg.norm(cloud.points[i] / unit - cloud.points[j] / unit, axis=1) for i, j in pieces]
    return float(np.median(np.concatenate(gaps)) * unit)
