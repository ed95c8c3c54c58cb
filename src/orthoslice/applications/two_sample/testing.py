"""From a distance to a decision: a permutation test of whether two samples have the same law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import numpy as np

from orthoslice.applications.two_sample.combining import is_decided, looks
from orthoslice.applications.two_sample.contrasts import Contrasts, contrast_waves, has_shapes
from orthoslice.applications.two_sample.known_law import test_against_law
from orthoslice.applications.two_sample.labels import check_groups
from orthoslice.applications.two_sample.permutations import (
    PermutationTest,
    Statistic,
    distances_of,
    labelled_waves,
)
from orthoslice.applications.two_sample.pooled import (
    Pooled,
    gathered,
    gpu_home,
    lazy_samples,
    points_of,
    pool_samples,
)
from orthoslice.applications.two_sample.refusals import (
    check_columns,
    check_flags,
    check_method,
    check_sampler,
    refuse_for_laws,
    refuse_weights,
)
from orthoslice.applications.two_sample.result import TwoSampleResult
from orthoslice.applications.two_sample.verdict import Features, Verdict, judge_all, judge_distance
from orthoslice.backend.arrays import RNG, HostArray, resolve_rng
from orthoslice.check.inputs import is_dask
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import (
    check_n_directions,
    check_p,
    check_workers,
)
from orthoslice.clouds.cloud import numpy_clouds
from orthoslice.clouds.conditioning import rescaled
from orthoslice.clouds.laws import Law
from orthoslice.clouds.pooling import pieces_of
from orthoslice.costs.scores import Exact, Score, Sliced
from orthoslice.directions.axes import Axes
from orthoslice.directions.base import check_count
from orthoslice.directions.layout import Run, layout_of
from orthoslice.estimates.request import plan_layout

# `method="auto"` prices pairs in space on at most `_SPACE_WORK` / (all coordinates) directions, on which 999
# permutations take some 9 seconds of one core.
_SPACE_WORK, _MOST_IN_SPACE, _FEWEST_IN_SPACE = 128 * 200_000, 128, 32

__all__ = ["TwoSampleResult", "two_sample_test"]


@answers_other_names
def two_sample_test(
    x: Any,
    y: Any,
    p: float = 1,
    *,
    method: Literal["sliced", "projected", "auto"] = "sliced",
    columns: bool | Sequence[Sequence[int]] | None = None,
    n_permutations: int = 999,
    stop_early: bool | None = None,
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
    that 999 of them take a few times as long as a few distances. The same permutations give every column a
    p-value of its own.

    No one distance sees everything: SW_1 hardly sees one column among many, or a correlation. If you do not
    know what to look for, use ``method="auto"``.

    Parameters
    ----------
    x, y
        Samples `(n, dim)` and `(m, dim)` of independent points; n and m may differ. Arrays of any library,
        lists or data frames, as in :func:`sliced_wasserstein`. The work is done in float64: by NumPy and
        compiled kernels, and for torch tensors on an NVIDIA GPU by kernels there, with the same labels.

        `y` can be a known law, such as ``osl.laws.Normal(8)``: then `n_permutations` samples of it, of n points
        each, are simulated and compared with the law on the same directions. So the p-value is exact, too.
    p
        The power, at least 1. Higher powers look more at the tails.
    method
        ``"sliced"`` tests by SW_p.

        ``"projected"`` tests by PW_p, which takes O(dim) times as long. Its level is exact too, but **PW of two
        samples of one law is not small**, and may be less still where laws differ: some differences, such as of
        scale, go unnoticed. Others, such as of correlation, are noticed more often.

        ``"auto"`` tests by SW_1, SW_2, PW_2, every column and every pair of columns at once: by the smallest of
        their p-values, and how small that is among the smallest p-values of the permutations. So its level is
        exact too, and it notices nearly what the best of them notices; `parts` and `found_by` say which. PW_2,
        which takes longest, is the mean over the first 128 directions; over fewer if both samples have more
        than 200,000 coordinates, (n + m) dim, and it is left out above 800,000. All permutations take about 10
        times as long as those of SW_1 alone.
    columns
        Whether columns get p-values of their own, adjusted for their number: by W_1, and with ``method="auto"``
        by the shape of their ranks too. They take as long as that many directions. None: with
        ``method="auto"``, and if there are no more columns than directions. False leaves pairs out as well.

        Where several features make up a column, such as one for every value of a category (1 in its rows, else
        0), a list says which: ``[[0], [1], [2, 3, 4]]``. That column then has one p-value.
    n_permutations
        How many, at most. The smallest p-value there can be is ``1 / (n_permutations + 1)``.
    stop_early
        Whether to end after 255, 511, 1,023, ... permutations if no p-value can become small: neither that of
        the whole nor that of a part or column. None: with ``method="auto"``. Levels up to 10% stay exact,
        see the notes.
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
        ``method="projected"`` all points are held twice in float64, (n + m) (16 dim + 112) bytes at least: None
        allows for it, less is an error. So it is for ``method="auto"`` with PW_2. P-values of columns take
        48 dim (n_permutations + 1) bytes besides, and ranks 4 (n + m) dim. On a GPU None means half of what is
        free: the test is faster if many labellings fit at once.
    x_weights, y_weights
        Must be None, since points of different weight cannot change places.

    Returns
    -------
    TwoSampleResult
        `statistic`, `pvalue`, `null_distribution`, `column_pvalues`, `parts`, the Monte Carlo error of the
        p-value, and how to repeat it.

    Notes
    -----
    The p-value is (b + 1) / (n_permutations + 1) with b permutations that reach the statistic; those that tie
    with it, or differ by rounding only, count. The observed labels are one of the labellings that the same
    kernel prices. Under the null p is at most 5% with a probability of just 5% where statistics do not tie and
    5% of ``n_permutations + 1`` is a whole number, and with less elsewhere.

    **Several statistics.** Each is ranked among its own values under all labellings, which is its p-value: that
    is fair between columns of light and of heavy tails, as the largest standardised statistic is not. Ranks
    alone cannot tell further than ``1 / (n_permutations + 1)``, and with many columns most permutations come
    first in some column. So equal ranks of different statistics are told apart by their standardised values:
    one that lies z standard deviations above the mean of all labellings has its p-value lessened by a share
    1 - exp(-z) of ``1 / (n_permutations + 1)``. `statistic` of ``method="auto"`` is the smallest p-value so
    refined: of two, that of all columns and that of all the rest, which have half of the level each. Every
    labelling is treated as the observed one is, so the level is exact (minP of Westfall and Young). Values
    that tie, or differ by rounding only, share the larger p-value: the level is less then. Columns are adjusted
    by their step-down procedure.

    **Columns and pairs** with ``method="auto"``. W_1 of a column hardly sees values that move a little way,
    such as one hump that becomes two, and no single column shows that columns no longer go together. Both show
    in ranks. The shape of a column is the sum of squares of four differences, of the means of Legendre
    polynomials of its ranks, each in units of its standard deviation (Neyman's smooth test); a column is as
    extreme as its W_1 or its shape is, whichever is more so. ``parts["pairs"]`` is that of the pair of columns
    whose products of ranks, as in Spearman's correlation, have the means that are farthest apart. Shapes are
    left out above ten million coordinates, and pairs where their number times (n + m) exceeds 40 million. A
    column of several features is as extreme as the most extreme of them or the sum of their shapes is, and they
    make no pair: for the values of a category that sum is nearly the chi-square statistic of its shares.

    **Stopping early.** A test ends before `n_permutations` only if enough permutations reach each statistic to
    put all p-values above 10% beyond doubt: if 10% of all permutations reached one, as many among those tried
    would have a probability below 1/1000. The p-values reported then are above 10%. So a test at a level of up
    to 10% rejects only if all permutations were made, and would have rejected without stopping: its level is
    kept. What it loses are samples with a small p-value that looked large at a stop, which have a probability
    below 1e-9 where the level is 5%. Small p-values always rest on all permutations. A p-value after an early
    stop is an estimate from fewer permutations, and `pvalue_stderr` says so.

    References
    ----------
    Westfall and Young, Resampling-based multiple testing, Wiley (1993).

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

    One column of eight is wider in the second sample, which SW_1 does not see:

    >>> x, y = rng.normal(size=(2, 600, 8))
    >>> y[:, 3] *= 1.35
    >>> found = osl.two_sample_test(x, y, method="auto", rng=0)
    >>> found.found_by, bool(found.parts["SW_1"] > 0.05), bool(found.pvalue < 0.01)
    ('columns', True, True)
    >>> np.flatnonzero(found.column_pvalues <= 0.05).tolist()
    [3]
    """
    p = check_p(p)
    check_method(method, p)
    check_flags(stop_early=stop_early)
    count = check_count("n_permutations", n_permutations)
    if isinstance(y, Law):
        refuse_for_laws(method=method != "sliced", columns=columns, stop_early=stop_early, groups=groups)
        refuse_for_laws(x_weights=x_weights, y_weights=y_weights)
        sampler = check_sampler(directions, y.dim)
        return test_against_law(x, y, p, sampler, n_directions, count, rng, memory, workers, progress)
    refuse_weights(x_weights=x_weights, y_weights=y_weights)
    is_lazy = is_dask(x) or is_dask(y)
    cloud_x, cloud_y = lazy_samples(x, y) if is_lazy else numpy_clouds("two_sample_test", x, y)
    sizes, dim = (cloud_x.n, cloud_y.n), cloud_x.dim
    with_columns, features = check_columns(columns, dim)
    exchange = check_groups(groups, *sizes)
    sampler = check_sampler(directions, dim)
    n_rows = check_n_directions(n_directions, sampler)
    is_auto = method == "auto"
    statistics = _auto_statistics(sum(sizes) * dim) if is_auto else (Statistic(method, p),)
    how: Score = Sliced() if statistics[0].method == "sliced" else Exact()
    sampler, layout = plan_layout(sampler, n_rows, dim, how, statistics[0].p, adaptive=False)
    key, seed = resolve_rng(rng, np.zeros(1))
    home = gpu_home(x)
    pool = pool_samples((cloud_x, cloud_y), statistics, memory, home, is_lazy=is_lazy)
    test = PermutationTest(
        statistics=statistics,
        pooled=pool.cloud,
        exchange=exchange,
        sampler=sampler,
        layout=layout,
        key=key,
        n_labellings=count + 1,
        memory=pool.memory,
        workers=check_workers(workers),
        home=home,
    )
    if with_columns is None:
        with_columns = is_auto or dim <= layout.n_directions
    tests = [test, _columns_test(test)] if with_columns else [test]
    stops = looks(count + 1, early=is_auto if stop_early is None else stop_early)
    contrasts = _contrasts(x, y, pool, test, stops, features) if is_auto and with_columns else None
    verdict = _decide(tests, stops, pool, progress, features, contrasts, is_auto=is_auto)
    return _result_of(verdict, test, method, p, pool.scale, seed, sizes)


def _auto_statistics(n_coordinates: int) -> tuple[Statistic, ...]:
    on_lines = Statistic("sliced", 1.0), Statistic("sliced", 2.0)
    # PW_2 notices less with fewer directions: correlations that 160 find in 78% of samples, 32 find in 62%.
    in_space = min(_SPACE_WORK // n_coordinates, _MOST_IN_SPACE)
    if in_space < _FEWEST_IN_SPACE:
        return on_lines
    return *on_lines, Statistic("projected", 2.0, in_space)


def _columns_test(test: PermutationTest) -> PermutationTest:
    """W_1 of every column under the labellings of a test."""
    return test._replace(
        statistics=(Statistic("sliced", 1.0),),
        sampler=Axes(),
        layout=layout_of((Run(1, test.pooled.dim),)),
        apart=True,
    )


def _contrasts(
    x: Any, y: Any, pool: Pooled, test: PermutationTest, stops: tuple[int, ...], features: Features | None
) -> Iterator[Contrasts] | None:
    """The shapes of columns and pairs of them at every stop; None above a number of coordinates."""
    if not has_shapes(pool.cloud.n, pool.cloud.dim):
        return None
    points = points_of(pool.cloud) if pool.lazy is None else gathered(x, y)
    return contrast_waves(points, test.exchange, test.key, stops, features)


def _decide(
    tests: list[PermutationTest],
    stops: tuple[int, ...],
    pool: Pooled,
    progress: bool,
    features: Features | None,
    contrasts: Iterator[Contrasts] | None,
    *,
    is_auto: bool,
) -> Verdict:
    """The verdict of as many labellings as it takes."""
    waves, farthest = _labelled(tests, stops, pool, progress)
    # The most that the rounding of projections can change a distance: several times the largest rounding.
    slack = 8 * (pool.cloud.dim + 8) * 2.0**-53 * farthest
    for values in waves:
        distances, *of_columns = (distances_of(test, own) for test, own in zip(tests, values, strict=True))
        found = tests[0].statistics, distances, of_columns[0] if of_columns else None, features, slack
        if is_auto:
            verdict = judge_all(*found, None if contrasts is None else next(contrasts))
        else:
            verdict = judge_distance(*found)
        if is_decided(verdict.least_pvalue, distances.shape[1]):
            break
    return verdict


def _labelled(
    tests: list[PermutationTest], stops: tuple[int, ...], pool: Pooled, progress: bool
) -> tuple[Iterator[tuple[HostArray, ...]], float]:
    """Powers of the distances of every test at every stop; and how far points are from the origin."""
    if pool.lazy is not None:
        from orthoslice.parallel.sweeping import lazy_labelled_values

        x, y = pool.lazy
        found = [lazy_labelled_values(test, x, y, progress and not test.apart) for test in tests]
        return (tuple(values[:, :stop] for values, _ in found) for stop in stops), found[0][1]
    if len(stops) > 1:
        # The sorted directions of all tests are held from stop to stop.
        total = sum(test.layout.n_directions for test in tests)
        tests = [own._replace(memory=own.memory * own.layout.n_directions // total) for own in tests]
    waves = zip(*(labelled_waves(test, stops, progress and not test.apart) for test in tests), strict=True)
    return waves, math.sqrt(max(float(np.vecdot(own, own).max()) for own in pieces_of(pool.cloud)))


def _result_of(
    verdict: Verdict,
    test: PermutationTest,
    method: str,
    p: float,
    scale: float,
    seed: int | None,
    sizes: tuple[int, int],
) -> TwoSampleResult:
    """The verdict in units of the samples, whose points were divided by `scale`."""
    is_auto, apart = method == "auto", verdict.columns
    own = verdict.statistics if is_auto else rescaled(verdict.statistics, scale, 1)
    return TwoSampleResult(
        method=method,
        name="smallest p-value" if is_auto else test.statistics[0].name.split("_")[0],
        p=p,
        statistic=float(own[0]),
        pvalue=(verdict.n_reached + 1) / len(own),
        null_distribution=cast(HostArray, own)[1:],
        n_directions=test.layout.n_directions,
        n_labellings=test.exchange.n_labellings,
        directions=test.sampler,
        seed=seed,
        parts=verdict.parts,
        column_statistics=None if apart is None else cast(HostArray, rescaled(apart.statistics, scale, 1)),
        column_pvalues=None if apart is None else apart.pvalues,
        pair=verdict.pair,
        stopped_early=len(own) < test.n_labellings,
        _n_reached=verdict.n_reached,
        _compared=f"{sizes[0]} and {sizes[1]} points",
        _replicas=f"permutations of {test.exchange.told}",
    )
