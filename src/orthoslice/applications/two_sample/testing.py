"""From a distance to a decision: a permutation test of whether two samples have the same law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from orthoslice.applications.two_sample.labels import check_groups
from orthoslice.applications.two_sample.permutations import PermutationTest, labelled_distances
from orthoslice.backend.arrays import RNG, Array, Table, resolve_rng
from orthoslice.backend.kernels.cuda import device_refusal, free_bytes
from orthoslice.backend.markup import card
from orthoslice.backend.memory import check_room
from orthoslice.check.inputs import is_dask
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import (
    check_host_directions,
    check_level,
    check_memory,
    check_n_directions,
    check_p,
    check_workers,
)
from orthoslice.clouds.cloud import Cloud, numpy_clouds
from orthoslice.clouds.conditioning import rescaled, unit_scale
from orthoslice.clouds.pooling import pieces_of, pool_clouds
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.scores import Exact, Score, Sliced
from orthoslice.directions import Sampler
from orthoslice.directions.base import check_count
from orthoslice.directions.stratified import Stratified
from orthoslice.estimates.request import plan_layout

# Statistics closer to each other than this are taken for equal: sums in another order differ by less.
_SAME = 1e-9

# Bytes a point besides the points, where pairs are priced in space: labels, and a direction in order.
_SPACE_BYTES = 112

# Fewer labellings than this, and no p-value of 5% can be had.
_FEWEST_LABELLINGS = 20


@dataclass(frozen=True, eq=False, repr=False)
class TwoSampleResult:
    """What a permutation test of two samples found; the fields are named after those of SciPy.

    Attributes
    ----------
    statistic
        SW_p or PW_p of the samples, from the directions that were drawn.
    pvalue
        The probability, if both samples have the same law, of a statistic as large or larger:
        ``(b + 1) / (n_permutations + 1)``, where b is how many permutations reached it.
    null_distribution
        The statistics of the permutations, `(n_permutations,)`.
    pvalue_stderr
        Monte Carlo standard error of the p-value: how far off it is since not all permutations were tried.
    n_permutations, n_directions
        How many there were.
    n_labellings
        How many permutations differ in their labels; infinity where that does not fit a float. No test on these
        samples has a p-value below its inverse.
    directions, seed
        ``directions=result.directions, n_directions=result.n_directions, rng=result.seed`` repeats the test.
    """

    name: str
    p: float
    statistic: float
    pvalue: float
    null_distribution: Table
    n_directions: int
    n_labellings: float
    directions: Sampler
    seed: int | None
    _n_reached: int
    _sizes: tuple[int, int]
    _exchanged: str

    @property
    def n_permutations(self) -> int:
        return len(self.null_distribution)

    @property
    def pvalue_stderr(self) -> float:
        return math.sqrt(self.pvalue * (1 - self.pvalue) / (self.n_permutations + 1))

    def pvalue_interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval for the p-value that all permutations would give (Clopper and Pearson).

        If it contains your significance level, ask for more permutations.

        Examples
        --------
        >>> import numpy as np, orthoslice as osl
        >>> x, y = np.zeros((9, 2)), np.ones((9, 2))
        >>> low, high = osl.two_sample_test(x, y, rng=0).pvalue_interval()
        >>> bool(low == 0 and high < 0.005)
        True
        """
        from scipy.special import betaincinv

        check_level(level)
        hits, misses, tail = self._n_reached, self.n_permutations - self._n_reached, (1 - level) / 2
        low = betaincinv(hits, misses + 1, tail) if hits else 0.0
        high = betaincinv(hits + 1, misses, 1 - tail) if misses else 1.0
        return float(low), float(high)

    @property
    def _few(self) -> str:
        """A note if there are too few labellings for a small p-value, else empty."""
        if self.n_labellings >= _FEWEST_LABELLINGS:
            return ""
        return f"there are only {self.n_labellings:g} labellings, so that p cannot be small"

    @property
    def _repeat(self) -> str:
        return f"directions={self.directions!r}, n_directions={self.n_directions}, rng={self.seed}"

    def __repr__(self) -> str:
        few = f"; {self._few}" if self._few else ""
        n, m = self._sizes
        return (
            f"TwoSampleResult({self.name}_{self.p:g} of {n} and {m} points is {self.statistic:.6g}; "
            f"{self._n_reached} of {self.n_permutations} permutations of {self._exchanged} reach it: "
            f"p = {self.pvalue:.3g} +- {self.pvalue_stderr:.1g} (Monte Carlo error){few}; "
            f"{self._repeat})"
        )

    def _repr_html_(self) -> str:
        n, m = self._sizes
        permuted = f"{self._n_reached:,} of {self.n_permutations:,} permutations of {self._exchanged}"
        rows = [
            ("p-value", f"{self.pvalue:.3g} \u00b1 {self.pvalue_stderr:.1g} (Monte Carlo error)"),
            (f"{self.name}_{self.p:g}", f"{self.statistic:.6g}"),
            ("reached by", permuted),
            ("to repeat it", self._repeat),
        ]
        title = f"Do {n:,} and {m:,} points have the same law?"
        return card(title, rows, [f"Note: {self._few}."] if self._few else [])


@answers_other_names
def two_sample_test(
    x: Any,
    y: Any,
    p: float = 1,
    *,
    score: Literal["sliced", "projected"] = "sliced",
    n_permutations: int = 999,
    directions: Any = "auto",
    n_directions: int | None = None,
    groups: Any = None,
    rng: RNG = None,
    memory: int | str | None = None,
    workers: int | None = None,
    progress: bool = False,
    x_weights: None = None,
    y_weights: None = None,
) -> TwoSampleResult:
    """Test whether two samples have the same law, by permutations of their labels.

    If both samples come from one law, which points are called x and which y is an accident: the distance of the
    samples is then one of the distances that permuted labels give, and large among them only by chance. So the
    p-value is exact for samples of any size, in any dimension, with ties, whatever the number of directions and
    permutations: it is at most 5% with a probability of at most 5%. More directions make the test more
    powerful, and more permutations the p-value more certain.

    Pooled points are projected and sorted once a direction, and that order serves all permutations, so
    that 999 of them take a few times as long as a few distances.

    Parameters
    ----------
    x, y
        Samples `(n, dim)` and `(m, dim)` of independent points; n and m may differ. Arrays of any library,
        lists or data frames, as in :func:`sliced_wasserstein`. The work is done in float64: by NumPy and
        compiled kernels, and for torch tensors on an NVIDIA GPU by kernels there, with the same labels.
    p
        The power, at least 1. Higher powers look more at the tails.
    score
        ``"sliced"``, or ``"projected"`` to test by PW_p, which takes O(dim) times as long. Its level is exact
        too, but **PW of two samples of one law is not small**, and may be less still where laws differ: some
        differences, such as of scale, go unnoticed. Others, such as of correlation, are noticed more often.
    n_permutations
        How many. The smallest p-value there can be is ``1 / (n_permutations + 1)``.
    directions, n_directions
        As in :func:`sliced_wasserstein`. They must not depend on which sample is x: rows that were chosen to
        set the samples apart would make every test reject.
    groups
        For points that are not independent: an array `(n + m,)` with the group of every point, those of x
        first, or a pair ``(x_groups, y_groups)``.

        - Every group has points in both samples (before and after, matched pairs, blocks): labels change
          places within groups only.
        - No group has (cells of a donor, pupils of a school): whole groups change places.

        Anything between is an error.
    rng, workers, progress
        As in :func:`sliced_wasserstein`. The same integer gives the same directions as there, and the same
        labels on every device.
    memory
        How much to use for working memory beyond the samples, such as ``"256MB"``, which is what None means in
        host memory. Labels and a direction take 52 (n + m) bytes, for which there is always room. For
        ``score="projected"`` all points are held twice in float64: (n + m) (16 dim + 112) bytes at least, which
        None allows for; less is an error. On a GPU None means half of what is free: the test is faster if many
        labellings fit at once.
    x_weights, y_weights
        Must be None, since points of different weight cannot change places.

    Returns
    -------
    TwoSampleResult
        `statistic`, `pvalue`, `null_distribution`, the Monte Carlo error of the p-value, and how to repeat it.

    Notes
    -----
    The p-value is (b + 1) / (n_permutations + 1) with b permutations that reach the statistic; those that tie
    with it, or differ by rounding only, count. The observed labels are one of the labellings that the same
    kernel prices. Under the null p is at most 5% with a probability of just 5% where statistics do not tie and
    5% of ``n_permutations + 1`` is a whole number, and with less elsewhere.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(100, 5)), rng.normal(size=(80, 5))
    >>> bool(osl.two_sample_test(x, y, rng=0).pvalue > 0.05)
    True
    >>> shifted = osl.two_sample_test(x, y + 0.5, rng=0)
    >>> shifted.pvalue
    0.001

    Before and after on the same subjects, whose own differences would drown the effect:

    >>> subject = rng.normal(size=(50, 1)) * 10
    >>> before, after = rng.normal(size=(50, 3)) + subject, rng.normal(size=(50, 3)) + subject + 1
    >>> bool(osl.two_sample_test(before, after, rng=0).pvalue > 0.05)
    True
    >>> osl.two_sample_test(before, after, groups=(range(50), range(50)), rng=0).pvalue
    0.001
    """
    p = check_p(p)
    if not isinstance(score, str) or score not in ("sliced", "projected"):
        raise ValueError(f"`score` must be 'sliced' or 'projected'; got {score!r}.")
    _refuse_weights(x_weights=x_weights, y_weights=y_weights)
    count = check_count("n_permutations", n_permutations)
    is_lazy = is_dask(x) or is_dask(y)
    cloud_x, cloud_y = _lazy_clouds(x, y) if is_lazy else numpy_clouds("two_sample_test", x, y)
    exchange = check_groups(groups, cloud_x.n, cloud_y.n)
    sampler = check_host_directions(directions, Cloud(np.zeros((1, cloud_x.dim))))
    if isinstance(sampler, Stratified):
        raise ValueError(
            "`directions` must not depend on who is x and who is y; got Stratified, which is made for the two "
            "clouds. Pass 'orthogonal' or another sampler."
        )
    n_rows = check_n_directions(n_directions, sampler)
    how: Score = Sliced() if score == "sliced" else Exact()
    sampler, layout = plan_layout(sampler, n_rows, cloud_x.dim, how, p, adaptive=False)
    stream, seed = resolve_rng(rng, np.zeros(1))
    home = _gpu_home(x)
    sizes = cloud_x.n, cloud_y.n
    room = _default_memory(home) if memory is None else check_memory(memory)
    if is_lazy:
        cloud_x, cloud_y, scale = unit_scale(cloud_x, cloud_y, p)
        pooled = ReadyCloud(np.broadcast_to(np.zeros(()), (sum(sizes), cloud_x.dim)))
    else:
        # From here on only the labels tell points of x from points of y.
        in_space = score == "projected"
        if in_space and home is None:
            takes = sum(sizes) * (2 * 8 * cloud_x.dim + _SPACE_BYTES)
            room = max(room, takes) if memory is None else room
            check_room(room, takes, "all points twice, in float64, where pairs are priced in space")
        pool = pool_clouds(
            (cloud_x, cloud_y), np.dtype(np.float64), p, room, copied=in_space or home is not None
        )
        pooled, scale = pool.cloud, pool.scale
        if home is None:
            # `ready_to_order` holds the points again, in the order that decides ties, with that order and
            # their roundings.
            room = pool.memory - (sum(sizes) * (8 * cloud_x.dim + 16) if in_space else 0)
    test = PermutationTest(
        score=score,
        p=p,
        pooled=pooled,
        exchange=exchange,
        sampler=sampler,
        layout=layout,
        stream=stream,
        n_labellings=count + 1,
        memory=room,
        workers=check_workers(workers),
        home=home,
    )
    if is_lazy:
        from orthoslice.parallel.sweeping import lazy_labelled_distances

        distances, farthest = lazy_labelled_distances(test, cloud_x, cloud_y, progress)
    else:
        distances = labelled_distances(test, progress)
        farthest = math.sqrt(max(float(np.vecdot(piece, piece).max()) for piece in pieces_of(pooled)))
    # The most that the rounding of projections can change a distance: several times the largest rounding.
    slack = 8 * (pooled.dim + 8) * 2.0**-53 * farthest
    reached = int((distances[1:] >= distances[0] * (1 - _SAME) - slack).sum())
    distances = rescaled(distances, scale, 1)
    return TwoSampleResult(
        name="SW" if score == "sliced" else "PW",
        p=p,
        statistic=float(distances[0]),
        pvalue=(reached + 1) / (count + 1),
        null_distribution=distances[1:],
        n_directions=layout.n_directions,
        n_labellings=exchange.n_labellings,
        directions=sampler,
        seed=seed,
        _n_reached=reached,
        _sizes=sizes,
        _exchanged=exchange.told,
    )


def _gpu_home(x: Any) -> Array | None:
    """`x` if it lies on a GPU whose kernels can test it, else None: the work is then done in host memory."""
    return x if getattr(x, "is_cuda", False) and device_refusal(x.get_device()) is None else None


def _default_memory(home: Array | None) -> int:
    return check_memory("256MB") if home is None else free_bytes(home) // 2


def _lazy_clouds(x: Any, y: Any) -> tuple[Cloud, Cloud]:
    from orthoslice.parallel.chunks import lazy_clouds

    cloud_x, cloud_y = lazy_clouds(("x", x, None), ("y", y, None))
    return cloud_x.astype(np.dtype(np.float64)), cloud_y.astype(np.dtype(np.float64))


def _refuse_weights(**named: Any) -> None:
    for name, weights in named.items():
        if weights is not None:
            raise ValueError(
                f"`{name}` must be None: points of different weight cannot change places, so their labels "
                "cannot be permuted. Draw points in proportion to their weights, or compare weighted clouds "
                "with `osl.sliced_wasserstein`."
            )
