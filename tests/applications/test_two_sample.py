"""The two-sample test: its statistic, its labellings, and how often it is wrong."""

from __future__ import annotations

import itertools
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import FULL
from scipy.stats import binom, binomtest

import orthoslice as osl
from orthoslice.applications.two_sample import labels, permutations
from orthoslice.backend.arrays import LABELS, Key

DISTANCES = {"sliced": osl.sliced_wasserstein, "projected": osl.projected_wasserstein}


@pytest.fixture
def samples(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(40, 5)), rng.normal(size=(31, 5)) + 0.2


@pytest.mark.parametrize("method", sorted(DISTANCES))
@pytest.mark.parametrize("p", [1, 2, 2.5])
@pytest.mark.parametrize("directions", ["auto", "iid", "hadamard", np.eye(5)[:3]], ids=lambda d: str(d)[:9])
def test_statistic_is_the_distance(method: str, p: float, directions: Any, samples: Any) -> None:
    for scale, offset in ((1, 0), (1, 1e6), (1e150, 0)):
        x, y = (scale * cloud + offset for cloud in samples)
        found = osl.two_sample_test(x, y, p, method=method, directions=directions, n_permutations=9, rng=3)
        expected = DISTANCES[method](x, y, p, directions=directions, rng=3)
        np.testing.assert_allclose(found.statistic, expected.distance, rtol=1e-8 if offset else 1e-12)
        assert found.n_directions == expected.n_directions
        # The same number comes out of the labels as they are, again and again.
        assert isinstance(found.statistic, float)


@pytest.mark.parametrize("method", sorted(DISTANCES))
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("design", ["free", "pairs", "clusters"])
def test_null_distribution_is_that_of_permuted_labels(method: str, p: float, design: str, samples: Any) -> None:
    x, y = samples
    pooled = np.concatenate(samples)
    groups = {
        "free": None,
        "pairs": np.r_[np.arange(40) % 31, np.arange(31)],
        "clusters": np.r_[np.arange(40) // 7, 100 + np.arange(31) // 5],
    }[design]
    found = osl.two_sample_test(x, y, p, method=method, groups=groups, n_permutations=70, rng=3)
    assert found.null_distribution.shape == (70,)
    exchange = labels.check_groups(groups, 40, 31)
    key = Key.from_seed(3, np.zeros(1)).fold(0, LABELS)
    table = np.concatenate([labels.unpacked(labels.label_block(key, k, exchange)) for k in (0, 1)], axis=1)
    for permutation in (0, 1, 62, 63, 69):
        in_x = table[exchange.unit, permutation + 1]
        expected = DISTANCES[method](pooled[in_x], pooled[~in_x], p, rng=3).distance
        np.testing.assert_allclose(found.null_distribution[permutation], expected, rtol=1e-12)
    if design == "pairs":
        assert all(in_x[groups == g].sum() == (groups[:40] == g).sum() for g in range(31))
    if design == "clusters":
        assert all(len(set(in_x[groups == g])) == 1 for g in set(groups))


def test_pvalue_is_that_of_all_permutations() -> None:
    """Within 4.5 Monte Carlo standard errors: a false alarm once in 150,000 seeds."""
    x, y = np.random.default_rng(1).normal(size=(2, 4, 2))
    y = y + 0.7
    pooled, theta = np.concatenate([x, y]), np.eye(2)
    everyone = []
    for chosen in itertools.combinations(range(8), 4):
        in_x = np.isin(np.arange(8), chosen)
        everyone.append(osl.sliced_wasserstein(pooled[in_x], pooled[~in_x], 1, directions=theta).value)
    exact = np.mean(np.array(everyone) >= everyone[0] * (1 - 1e-9))
    found = osl.two_sample_test(x, y, directions=theta, n_permutations=9999, rng=0)
    assert found.n_labellings == 70
    assert abs(found.pvalue - exact) < 4.5 * found.pvalue_stderr
    assert 0.02 < exact < 0.5
    # Negative control: the next p-value there could be is not as near.
    assert abs(found.pvalue - (exact + 2 / 70)) > 4.5 * found.pvalue_stderr


def normal(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    return rng.normal(size=(n, dim))


def heavy(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    return rng.standard_cauchy(size=(n, dim))


def discrete(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    return rng.integers(0, 2, size=(n, dim)).astype(float)


N_NULL = 2000 if FULL else 300
# Outside these limits once in 100,000 seeds, if the level is 5%.
FEWEST, MOST = (int(k) for k in binom.ppf([5e-6, 1 - 5e-6], N_NULL, 0.05))


def n_rejected(draw: Callable[[np.random.Generator], tuple[Any, ...]], **options: Any) -> int:
    hits = 0
    for seed in range(N_NULL):
        x, y, *groups = draw(np.random.default_rng(seed))
        more = {"groups": groups[0]} if groups else {}
        given = {"n_permutations": 39, "n_directions": 6, "rng": seed, "workers": 1, **more, **options}
        if callable(given.get("directions")):
            given |= {"directions": given["directions"](x, y), "n_directions": None}
        hits += osl.two_sample_test(x, y, **given).pvalue <= 0.05
    return hits


@pytest.mark.parametrize(("n", "m", "dim"), [(20, 20, 2), (12, 30, 2), (20, 20, 50)])
@pytest.mark.parametrize("law", [normal, heavy, discrete], ids=lambda law: law.__name__)
def test_level(law: Callable[..., np.ndarray], n: int, m: int, dim: int) -> None:
    hits = n_rejected(lambda rng: (law(rng, n, dim), law(rng, m, dim)))
    assert hits <= MOST
    assert hits >= FEWEST or law is discrete


@pytest.mark.parametrize("options", [{"p": 2}, {"method": "projected", "p": 2}], ids=str)
def test_level_of_other_statistics(options: dict[str, Any]) -> None:
    assert FEWEST <= n_rejected(lambda rng: (normal(rng, 12, 3), normal(rng, 18, 3)), **options) <= MOST


def test_the_check_of_the_level_can_fail() -> None:
    def towards_the_difference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        shift = x.mean(axis=0) - y.mean(axis=0)
        return (shift / np.linalg.norm(shift))[None, :]

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return normal(rng, 20, 5), normal(rng, 20, 5)

    assert n_rejected(draw, directions=towards_the_difference) > 2 * MOST


def paired(rng: np.random.Generator) -> tuple[Any, ...]:
    subject = 3 * rng.normal(size=(15, 1))
    return *(rng.normal(size=(15, 3)) + subject for _ in "xy"), (range(15), range(15))


def clustered(rng: np.random.Generator) -> tuple[Any, ...]:
    group = np.repeat(np.arange(10), rng.integers(2, 8, size=10))
    points = rng.normal(size=(10, 3))[group] + rng.normal(size=(len(group), 3))
    return points[group < 5], points[group >= 5], group


@pytest.mark.parametrize("draw", [paired, clustered], ids=lambda draw: draw.__name__)
def test_level_in_groups(draw: Callable[..., Any]) -> None:
    assert FEWEST <= n_rejected(draw) <= MOST


def test_points_of_clusters_are_not_independent() -> None:
    """The negative control of the above, and why there are groups."""
    assert n_rejected(lambda rng: clustered(rng)[:2]) > 3 * MOST
    assert n_rejected(lambda rng: paired(rng)[:2]) < FEWEST


def test_ties_count() -> None:
    constant = osl.two_sample_test(np.full((9, 3), 0.1), np.full((7, 3), 0.1), rng=0)
    assert constant.pvalue == 1
    points = np.random.default_rng(0).integers(0, 2, size=(40, 3)) * 0.1 + 1e5
    same = osl.two_sample_test(points, points[::-1], method="projected", p=2, rng=0)
    assert same.pvalue == 1
    # All labellings of a point against one are the same, or its mirror image.
    assert osl.two_sample_test([[0.0]], [[1.0]], rng=0).pvalue == 1


def test_rounding_makes_no_difference() -> None:
    """Two clusters can only change places; the kernel finds 2 one way, and 2 less a rounding the other."""
    found = osl.two_sample_test([[0.0]], [[1.0], [3.0]], groups=[0, 1, 1], directions=[[1.0]], rng=0)
    assert found.null_distribution.min() < found.statistic
    assert found.pvalue == 1


@pytest.mark.parametrize("method", sorted(DISTANCES))
def test_rows_in_another_order(method: str, samples: Any, rng: np.random.Generator) -> None:
    x, y = (np.round(cloud) for cloud in samples)
    first, second = (
        osl.two_sample_test(a, b, 2, method=method, rng=0, n_permutations=9)
        for a, b in ((x, y), (rng.permutation(x), rng.permutation(y)))
    )
    np.testing.assert_allclose(first.statistic, second.statistic, rtol=1e-12)


@pytest.mark.parametrize("method", sorted(DISTANCES))
def test_memory_and_workers_change_only_rounding(method: str, samples: Any) -> None:
    expected = osl.two_sample_test(*samples, method=method, rng=5, n_permutations=130)
    # In space all points have to be held.
    least = 1 if method == "sliced" else sum(map(len, samples)) * (16 * samples[0].shape[1] + 112)
    for options in ({"memory": least}, {"memory": 50_000}, {"workers": 1}, {"workers": 3, "memory": 200_000}):
        found = osl.two_sample_test(*samples, method=method, rng=5, n_permutations=130, **options)
        np.testing.assert_allclose(found.null_distribution, expected.null_distribution, rtol=1e-12)
        assert found.pvalue == expected.pvalue


def test_memory_is_kept_within(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 3000, 4))

    def peak(memory: int, n_directions: int) -> int:
        tracemalloc.start()
        osl.two_sample_test(x, y, n_directions=n_directions, n_permutations=63, memory=memory, workers=1, rng=0)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    # Besides the memory there are clouds and labels; a single direction takes .3 MB while it is sorted.
    clouds = 8 * x.nbytes
    peak(10**6, 4)
    assert peak(4 * 10**6, 400) < 4 * 10**6 + clouds
    assert peak(64 * 10**6, 400) > 4 * 10**6 + clouds


def test_one_sort_serves_all_permutations(samples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    sort = permutations.sort_with_units
    monkeypatch.setattr(
        permutations, "sort_with_units", lambda table, unit: rows.append(table.shape) or sort(table, unit)
    )
    found = osl.two_sample_test(*samples, n_permutations=500, n_directions=13, rng=0)
    # Besides the directions the five axes.
    assert sum(shape[0] for shape in rows) == 13 + 5
    assert {shape[1] for shape in rows} == {71}
    assert len(found.null_distribution) == found.n_permutations == 500


def test_results_can_be_repeated(samples: Any) -> None:
    first = osl.two_sample_test(*samples)
    again = osl.two_sample_test(
        *samples, directions=first.directions, n_directions=first.n_directions, rng=first.seed
    )
    np.testing.assert_array_equal(first.null_distribution, again.null_distribution)
    assert not np.array_equal(first.null_distribution, osl.two_sample_test(*samples).null_distribution)


def test_monte_carlo_error(samples: Any) -> None:
    found = osl.two_sample_test(*samples, n_permutations=199, rng=1)
    hits = int((found.null_distribution >= found.statistic).sum())
    assert found.pvalue == (hits + 1) / 200
    assert found.pvalue_stderr == pytest.approx(np.sqrt(found.pvalue * (1 - found.pvalue) / 200))
    for level in (0.9, 0.99):
        expected = binomtest(hits, 199).proportion_ci(level)
        np.testing.assert_allclose(found.pvalue_interval(level), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="`level` must lie between 0 and 1; got 2"):
        found.pvalue_interval(2)


def test_power(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(60, 5)), rng.normal(size=(50, 5))
    for moved in (y + 1, y * 2, y - 10):
        for method in DISTANCES:
            assert osl.two_sample_test(x, moved, method=method, rng=0).pvalue == 0.001


def test_repr_reads_as_a_sentence(samples: Any) -> None:
    told = repr(osl.two_sample_test(*samples, rng=1, groups=np.r_[np.arange(40) % 31, np.arange(31)]))
    assert re.fullmatch(
        r"TwoSampleResult\(SW_1 of 40 and 31 points is 0\.\d+; \d+ of 999 permutations of labels within 31 "
        r"groups reach it: p = [\d.]+ \+- [\d.e-]+ \(Monte Carlo error\); "
        r"directions=Optimized\(\), n_directions=128, rng=1\)",
        told,
    )
    few = repr(osl.two_sample_test(np.zeros((4, 1)), np.ones((6, 1)), groups=np.arange(10) // 2, rng=1))
    assert "of labels of 5 whole groups reach it" in few
    assert "there are only 10 labellings, so that p cannot be small" in few


def test_arrays_of_other_libraries(backend: Any, samples: Any) -> None:
    x, y = (np.round(cloud, 1).astype(np.float32) for cloud in samples)
    expected = osl.two_sample_test(x, y, rng=2)
    found = osl.two_sample_test(backend.asarray(x), backend.asarray(y), rng=2)
    np.testing.assert_array_equal(found.null_distribution, expected.null_distribution)
    axes = np.eye(5, dtype=np.float32)[:3]
    expected = osl.two_sample_test(x, y, directions=axes, rng=2)
    found = osl.two_sample_test(*(backend.asarray(a) for a in (x, y)), directions=backend.asarray(axes), rng=2)
    np.testing.assert_array_equal(found.null_distribution, expected.null_distribution)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"x_weights": np.full(40, 1 / 40)},
            "`x_weights` must be None: points of different weight cannot change",
        ),
        ({"y_weights": np.full(31, 1 / 31)}, "`y_weights` must be None"),
        ({"p": 0.5}, "`p` must be at least 1"),
        ({"method": "all"}, "`method` must be 'sliced', 'projected' or 'auto'; got 'all'"),
        ({"method": "auto", "p": 2}, "`p` must be left out with method='auto'.*; got p=2"),
        ({"n_permutations": 0}, "`n_permutations` must be at least 1; got 0"),
        ({"directions": "best"}, "`directions` must be one of"),
        (
            {"groups": range(70)},
            r"an array \(71,\), or a pair of arrays \(40,\) and \(31,\); got `groups` of shape \(70,\)",
        ),
        ({"groups": (range(31), range(40))}, r"got `groups\[0\]` of shape \(31,\)"),
        ({"groups": [None, *range(70)]}, "`groups` has none at row 0"),
        ({"groups": (np.full(40, np.nan), range(31))}, r"`groups\[0\]` has none at row 0"),
        (
            {"groups": (range(40), range(31))},
            r"got 31 of the first kind \(such as 0\) and 9 of the second \(such as 31\)",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_refusals(options: dict[str, Any], message: str, samples: Any) -> None:
    with pytest.raises(ValueError, match=message):
        osl.two_sample_test(*samples, **options)


def test_directions_made_for_the_samples_are_refused(samples: Any) -> None:
    x, y = (cloud[:3, :2] for cloud in samples)
    with pytest.raises(ValueError, match="must not depend on who is x and who is y; got Stratified"):
        osl.two_sample_test(x, y, directions=osl.directions.Stratified(x, y))
    with pytest.raises(ValueError, match=r"must be single clouds \(n, dim\) for `two_sample_test`"):
        osl.two_sample_test(x[None], y[None])


def test_powers_that_vanish_are_refused(samples: Any) -> None:
    with pytest.raises(OverflowError, match="`p` is too high for these clouds"):
        osl.two_sample_test(*samples, p=2000)
    assert osl.two_sample_test(np.ones((5, 2)), np.ones((4, 2)), p=2000).pvalue == 1


def test_a_statistic_beyond_the_range_is_refused() -> None:
    with pytest.raises(OverflowError, match="exceeds the range of float64"):
        osl.two_sample_test(np.full((3, 2), 1.7e308), np.full((3, 2), -1.7e308), rng=0)


def test_progress_goes_to_stderr(samples: Any, capsys: pytest.CaptureFixture[str]) -> None:
    osl.two_sample_test(*samples, rng=0)
    assert capsys.readouterr() == ("", "")
    osl.two_sample_test(*samples, rng=0, progress=True)
    osl.pairwise(samples, rng=0, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "permutations" in err
    assert "directions" in err
    assert err.count("100%") == 2


def test_groups_may_be_named(samples: Any) -> None:
    numbers = np.r_[np.arange(40) % 31, np.arange(31)]
    names = [f"subject {k}" for k in numbers]
    first, second = (
        osl.two_sample_test(*samples, groups=g, rng=0, n_permutations=99) for g in (numbers, names)
    )
    np.testing.assert_array_equal(first.null_distribution, second.null_distribution)
