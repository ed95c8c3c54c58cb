"""The test by several statistics at once, and p-values of columns: against plain loops, and how often wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import FULL
from scipy.special import eval_legendre
from scipy.stats import binom, rankdata, wasserstein_distance

import orthoslice as osl
from orthoslice.applications.two_sample import combining, labels, permutations, pricing, testing
from orthoslice.backend.arrays import LABELS, Key

Samples = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def samples(rng: np.random.Generator) -> Samples:
    return rng.normal(size=(24, 3)), rng.normal(size=(17, 3)) + 0.3


# The plain reference: loops over labellings, statistics and values.


def spread(a: np.ndarray, n: int) -> np.ndarray:
    """Sorted values, each repeated, so that rows of unlike length can be matched value by value."""
    return np.repeat(np.sort(a, axis=0), n, axis=0)


def plain_pw(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
    costs = []
    for direction in theta:
        own, other = (a[np.argsort(a @ direction)].repeat(len(b), axis=0) for a, b in ((x, y), (y, x)))
        costs.append(((own - other) ** 2).sum(axis=1).mean())
    return float(np.sqrt(np.mean(costs)))


def plain_distances(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> tuple[list[float], list[float]]:
    px, py = x @ theta.T, y @ theta.T
    lines = range(len(theta))
    sw_1 = np.mean([wasserstein_distance(px[:, k], py[:, k]) for k in lines])
    sw_2 = np.sqrt(np.mean((spread(px, len(y)) - spread(py, len(x))) ** 2))
    columns = [wasserstein_distance(a, b) for a, b in zip(x.T, y.T, strict=True)]
    return [sw_1, sw_2, plain_pw(x, y, theta)], columns


def plain_contrasts(pooled: np.ndarray, in_x: np.ndarray) -> tuple[list[float], float]:
    """How far the mean scores of x and y are apart: the shape of every column, and the farthest pair."""
    n, n_x = len(pooled), in_x.sum()
    ranks = [(2 * rankdata(column) - 1 - n) / n for column in pooled.T]

    def apart(scores: np.ndarray) -> float:
        unit = scores.std() * np.sqrt(n / (n_x * (n - n_x)))
        return (scores[in_x].mean() - scores[~in_x].mean()) / unit if scores.std() > 1e-9 else 0.0

    shapes = [sum(apart(eval_legendre(k, own)) ** 2 for k in range(1, 5)) for own in ranks]
    return shapes, max((abs(apart(a * b)) for a, b in itertools.combinations(ranks, 2)), default=0.0)


def plain_refined(values: list[float]) -> list[float]:
    """The share of values that reach each, less a part of one for how far it lies above their mean."""
    values = [round(v, 9) for v in values]
    count, middle, spread = len(values), np.mean(values), np.std(values)
    found = []
    for v in values:
        reached = sum(w >= v for w in values)
        above = max(v - middle, 0) / spread if spread else 0
        found.append((reached - 1 + np.exp(-above)) / count)
    return found


def plain_test(x: np.ndarray, y: np.ndarray, theta: np.ndarray, seed: int, count: int) -> dict[str, Any]:
    pooled, exchange = np.concatenate([x, y]), labels.free_exchange(len(x), len(y))
    key = Key.from_seed(seed, np.zeros(1)).fold(0, LABELS)
    blocks = [labels.unpacked(labels.label_block(key, k, exchange)) for k in range(-(-(count + 1) // 64))]
    table = np.concatenate(blocks, axis=1)[:, : count + 1]
    found = [plain_distances(pooled[in_x], pooled[~in_x], theta) for in_x in table.T]
    contrasts = [plain_contrasts(pooled, in_x) for in_x in table.T]
    columns = []
    for k in range(x.shape[1]):
        costs, shapes = (
            [own[k] for own in table] for table in ([c for _, c in found], [c for c, _ in contrasts])
        )
        both = zip(plain_refined(costs), plain_refined(shapes), strict=True)
        columns.append(plain_refined([-np.log(min(ps)) for ps in both]))
    adjusted = []
    for k, own in enumerate(columns):
        # The largest p-value among the steps down to this column.
        steps = []
        for other in columns[:k] + columns[k:]:
            if other[0] <= own[0]:
                left = [c for c in columns if c[0] >= other[0]]
                least = [min(ps) for ps in zip(*left, strict=True)]
                steps.append(np.mean([p <= other[0] for p in least]))
        adjusted.append(max(steps))
    parts = [*zip(*(d for d, _ in found), strict=True)]
    parts += [[pair for _, pair in contrasts]] if x.shape[1] > 1 else []
    halves = [list(zip(*map(plain_refined, parts), strict=True)), list(zip(*columns, strict=True))]
    surprises = [[-np.log(min(ps)) for ps in own] for own in halves]
    least = [min(ps) for ps in zip(*map(plain_refined, surprises), strict=True)]
    return {
        "pvalue": np.mean([p <= least[0] for p in least]),
        "parts": [np.mean([w >= own[0] - 1e-9 for w in own]) for own in (*parts, surprises[1])],
        "columns": adjusted,
    }


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("sizes", [(12, 12), (9, 16)])
@pytest.mark.parametrize("kind", ["normal", "ties", "integers"])
@pytest.mark.parametrize("shift", [0, 1])
def test_it_is_what_plain_loops_find(dim: int, sizes: tuple[int, int], kind: str, shift: float) -> None:
    rng = np.random.default_rng([dim, *sizes])
    x, y = (rng.normal(size=(n, dim)) for n in sizes)
    y[:, -1] += shift
    if kind != "normal":
        x, y = (np.round(2 * cloud) for cloud in (x, y))
    given = (x.astype(np.int64), y.astype(np.int64)) if kind == "integers" else (x, y)
    # Generic directions: PW of tied projections would depend on the order that decides ties.
    theta = osl.directions.IID().sample(5, dim, rng=1).theta
    found = osl.two_sample_test(*given, method="auto", directions=theta, n_permutations=119, rng=3)
    expected = plain_test(x, y, theta, 3, 119)
    assert list(found.parts) == ["SW_1", "SW_2", "PW_2", *["pairs"][: dim - 1], "columns"]
    np.testing.assert_allclose(found.column_pvalues, expected["columns"])
    by_hand = [wasserstein_distance(a, b) for a, b in zip(x.T, y.T, strict=True)]
    np.testing.assert_allclose(found.column_statistics, by_hand, atol=1e-12)
    if kind == "normal" or dim == 1:
        np.testing.assert_allclose(list(found.parts.values()), expected["parts"])
        assert found.pvalue == pytest.approx(expected["pvalue"])
    one = osl.two_sample_test(*given, directions=theta, columns=True, n_permutations=119, rng=3)
    np.testing.assert_array_equal(one.column_statistics, found.column_statistics)
    assert one.pvalue == found.parts["SW_1"] == one.parts["SW_1"]


def test_what_a_result_says(samples: Samples) -> None:
    found = osl.two_sample_test(*samples, method="auto", stop_early=False, rng=0)
    assert found.pvalue >= min(found.parts.values()) == found.parts[found.found_by]
    assert found.parts["columns"] == found.column_pvalues.min()
    assert found.pvalue == np.mean(np.r_[found.statistic, found.null_distribution] <= found.statistic)
    assert (found.method, found.n_permutations, found.stopped_early) == ("auto", 999, False)
    assert "columns" in repr(found)
    assert 'method="auto"' in repr(found)
    assert "p-values of its parts" in found._repr_html_()
    one = osl.two_sample_test(*samples, rng=0)
    assert one.parts == {"SW_1": one.pvalue}
    assert one.found_by == one.label == "SW_1"
    assert one.pvalue == found.parts["SW_1"]
    assert "columns" not in repr(one)
    assert osl.two_sample_test(*samples, columns=False, rng=0).column_pvalues is None
    without = osl.two_sample_test(*samples, method="auto", columns=False, rng=0)
    assert list(without.parts) == ["SW_1", "SW_2", "PW_2"]
    assert list(found.parts) == ["SW_1", "SW_2", "PW_2", "pairs", "columns"]
    assert without.column_pvalues is None


def test_columns_beyond_the_directions_are_asked_for(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 20, 9))
    options = {"n_directions": 8, "n_permutations": 19, "rng": 0}
    assert osl.two_sample_test(x, y, **options).column_pvalues is None
    assert osl.two_sample_test(x, y, columns=True, **options).column_pvalues.shape == (9,)
    assert osl.two_sample_test(x[:, :8], y[:, :8], **options).column_pvalues.shape == (8,)
    assert osl.two_sample_test(x, y, method="auto", **options).column_pvalues.shape == (9,)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"stop_early": "yes"}, TypeError, "must be True, False or None; got 'yes'"),
        ({"columns": 1}, TypeError, "must be True, False, None or a list .*; got 1"),
        ({"columns": [0, 1, 2]}, TypeError, "a list with the features of every column"),
        ({"columns": [[0], [1]]}, ValueError, "each of them once, as 0 to 2; got"),
        ({"columns": [[0, 1], [1, 2]]}, ValueError, "each of them once, as 0 to 2; got"),
        ({"columns": [[0, 1, 2], []]}, ValueError, "each of them once, as 0 to 2; got"),
    ],
)
def test_flags_are_checked(given: dict[str, Any], error: type[Exception], words: str, samples: Samples) -> None:
    with pytest.raises(error, match=words):
        osl.two_sample_test(*samples, **given)


def one_hot(rng: np.random.Generator, shares: Any, n: int) -> np.ndarray:
    """A number and a category with a feature for each of its values."""
    values = rng.choice(len(shares), size=n, p=shares)
    return np.column_stack([rng.normal(size=n), np.eye(len(shares))[values]])


def test_values_of_a_category_are_one_column() -> None:
    """A little of a change in each of 30 values shows in their sum, as in a chi-square test, and in none alone.

    By chance 8 of 20 of the pairs without a change are called different once in 10^5 seeds.
    """
    shares = np.full(30, 1 / 30)
    columns = [[0], list(range(1, 31))]
    options: dict[str, Any] = {"n_permutations": 199, "n_directions": 8, "method": "auto"}
    hits = {"one column": 0, "many": 0, "no change": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        tilted = shares * (1 + 0.45 * rng.permutation(np.resize([-1, 1], 30)))
        x, y, same = one_hot(rng, shares, 300), one_hot(rng, tilted, 300), one_hot(rng, shares, 300)
        found = osl.two_sample_test(x, y, columns=columns, rng=seed, **options)
        assert found.column_pvalues.shape == found.column_statistics.shape == (2,)
        hits["one column"] += found.column_pvalues[1] <= 0.05
        hits["many"] += osl.two_sample_test(x, y, rng=seed, **options).column_pvalues[1:].min() <= 0.05
        hits["no change"] += osl.two_sample_test(x, same, columns=columns, rng=seed, **options).pvalue <= 0.05
    assert hits["one column"] >= hits["many"] + 4
    assert hits["no change"] < 8


def test_values_of_a_category_are_no_pair() -> None:
    rng = np.random.default_rng(0)
    x, y = one_hot(rng, [0.1, 0.3, 0.6], 200), one_hot(rng, [0.6, 0.3, 0.1], 200)
    assert osl.two_sample_test(x, y, method="auto", rng=0, n_permutations=99).pair in {(1, 2), (1, 3), (2, 3)}
    found = osl.two_sample_test(x, y, method="auto", columns=[[0], [1, 2, 3]], rng=0, n_permutations=99)
    assert found.pair is not None
    assert 0 in found.pair
    alone = osl.two_sample_test(
        x[:, 1:], y[:, 1:], method="auto", columns=[[0, 1, 2]], rng=0, n_permutations=99
    )
    assert (alone.pair, "pairs" in alone.parts) == (None, False)


def test_columns_of_one_feature_are_the_plain_ones(samples: Samples) -> None:
    plain = osl.two_sample_test(*samples, method="auto", rng=0)
    again = osl.two_sample_test(*samples, method="auto", columns=[[0], [1], [2]], rng=0)
    np.testing.assert_array_equal(again.column_pvalues, plain.column_pvalues)
    turned = osl.two_sample_test(*samples, method="auto", columns=[[2], [0], [1]], rng=0)
    # Ties between equal ranks may be told apart otherwise.
    np.testing.assert_allclose(turned.column_pvalues, plain.column_pvalues[[2, 0, 1]], atol=0.005)


def test_pairs_are_not_priced_in_space_beyond_a_size() -> None:
    def in_space(n_coordinates: int) -> list[int | None]:
        return [
            own.most_directions for own in testing._auto_statistics(n_coordinates) if own.method == "projected"
        ]

    assert [in_space(n) for n in (10, 200_000, 400_000, 800_000, 810_000)] == [[128], [128], [64], [32], []]


def test_mean_over_the_first_directions(samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "_MOST_IN_SPACE", 4)
    monkeypatch.setattr(testing, "_FEWEST_IN_SPACE", 1)
    theta = osl.directions.IID().sample(11, 3, rng=0).theta
    found = osl.two_sample_test(*samples, method="auto", directions=theta, rng=1)
    options = {"method": "projected", "directions": theta[:4], "rng": 1}
    assert found.parts["PW_2"] == osl.two_sample_test(*samples, 2, **options).pvalue
    assert found.parts["SW_2"] == osl.two_sample_test(*samples, 2, directions=theta, rng=1).pvalue


@pytest.mark.parametrize("memory", [30_000, 60_000, "256MB"])
def test_memory_and_workers_change_nothing(memory: int | str, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 40, 3))
    options = {"method": "auto", "n_directions": 40, "n_permutations": 600, "rng": 5}
    expected = osl.two_sample_test(x, y, **options, workers=1)
    found = osl.two_sample_test(x, y, **options, memory=memory, workers=3)
    assert (found.pvalue, found.parts, found.n_permutations) == (
        expected.pvalue,
        expected.parts,
        expected.n_permutations,
    )
    np.testing.assert_array_equal(found.column_pvalues, expected.column_pvalues)


def test_one_sort_serves_all(samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[str, int] = {"sort_with_units": 0, "order_points": 0}
    for name in rows:
        sort = getattr(permutations, name)

        def counted(table: Any, other: Any, name: str = name, sort: Any = sort) -> Any:
            rows[name] += len(table)
            return sort(table, other)

        monkeypatch.setattr(permutations, name, counted)
    osl.two_sample_test(*samples, method="auto", n_permutations=600, stop_early=True, n_directions=13, rng=0)
    # 13 directions, whose order also serves PW_2, and three axes.
    assert rows == {"order_points": 13, "sort_with_units": 3}


def test_arrays_of_other_libraries(backend: Any, samples: Samples) -> None:
    x, y = (np.round(cloud, 1).astype(np.float32) for cloud in samples)
    expected = osl.two_sample_test(x, y, method="auto", rng=2)
    found = osl.two_sample_test(backend.asarray(x), backend.asarray(y), method="auto", rng=2)
    np.testing.assert_array_equal(found.null_distribution, expected.null_distribution)
    np.testing.assert_array_equal(found.column_pvalues, expected.column_pvalues)
    assert found.parts == expected.parts


@pytest.mark.parametrize("design", ["pairs", "clusters"])
def test_groups(design: str, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 20, 3))
    numbers = np.arange(20) if design == "pairs" else np.arange(20) // 4
    groups = (numbers, numbers if design == "pairs" else 100 + numbers)
    options = {"groups": groups, "n_permutations": 199, "rng": 3}
    found = osl.two_sample_test(x, y, method="auto", **options)
    assert found.parts["SW_1"] == osl.two_sample_test(x, y, **options).pvalue
    assert found.parts["SW_2"] == osl.two_sample_test(x, y, 2, **options).pvalue
    column = osl.two_sample_test(x[:, :1], y[:, :1], **options)
    assert column.parts["SW_1"] == column.column_pvalues[0]


def test_kernels_and_references_agree(samples: Samples) -> None:
    found = []
    for name in ("numba", "reference"):
        names = (pricing.sort_with_units, labels.draw_labels, pricing.line_totals, pricing.space_totals)
        with names[0].using(name), names[1].using(name), names[2].using(name), names[3].using(name):
            options = {"method": "auto", "n_permutations": 70, "n_directions": 9, "rng": 0}
            found.append(osl.two_sample_test(*samples, **options))
    assert found[0].parts == found[1].parts
    assert found[0].pvalue == found[1].pvalue
    np.testing.assert_array_equal(found[0].column_pvalues, found[1].column_pvalues)


def test_columns_keep_their_own_units() -> None:
    """Neither the scale of a column nor that of its neighbours changes its p-value."""
    x, y = np.random.default_rng(1).normal(size=(2, 30, 3))
    plain = osl.two_sample_test(x, y, rng=0)
    units = np.array([1e-150, 1.0, 1e150])
    scaled = osl.two_sample_test(x * units, y * units, rng=0)
    np.testing.assert_array_equal(plain.column_pvalues, scaled.column_pvalues)
    np.testing.assert_allclose(scaled.column_statistics, plain.column_statistics * units, rtol=1e-12)


def test_points_are_left_as_they_were(samples: Samples) -> None:
    x, y = (np.asfortranarray(cloud) for cloud in samples)
    before = x.copy(), y.copy()
    osl.two_sample_test(x, y, method="auto", rng=0)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])


def test_equal_points_are_not_told_apart() -> None:
    same = osl.two_sample_test(np.full((9, 3), 0.1), np.full((7, 3), 0.1), method="auto", rng=0)
    assert same.pvalue == 1
    assert same.column_pvalues.tolist() == [1, 1, 1]
    assert set(same.parts.values()) == {1}
    # A column that never varies beside one that does.
    x, y = (np.column_stack([np.ones(9), np.arange(9) + shift]) for shift in (0, 20))
    found = osl.two_sample_test(x, y, method="auto", rng=0)
    assert found.column_pvalues[0] == 1
    assert found.pvalue < 0.01


# Levels: outside these limits once in 100,000 seeds, if the level is 5%.
N_NULL = 2000 if FULL else 300
FEWEST, MOST = (int(k) for k in binom.ppf([5e-6, 1 - 5e-6], N_NULL, 0.05))


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 4))


def heavy(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_cauchy(size=(n, 4))


def tied(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 3, size=(n, 4)).astype(float)


def wide(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 60)) + rng.normal(size=(n, 1))


def n_rejected(draw: Callable[[np.random.Generator], Samples], **options: Any) -> np.ndarray:
    """How often the whole, and any column, has a p-value of 5% or less."""
    hits = np.zeros(2, dtype=int)
    for seed in range(N_NULL):
        given = {"method": "auto", "n_permutations": 39, "n_directions": 5, "workers": 1, **options}
        found = osl.two_sample_test(*draw(np.random.default_rng(seed)), rng=seed, **given)
        hits += found.pvalue <= 0.05, found.column_pvalues.min() <= 0.05
    return hits


@pytest.mark.parametrize("law", [normal, heavy, tied, wide], ids=lambda law: law.__name__)
def test_level(law: Callable[..., np.ndarray]) -> None:
    hits = n_rejected(lambda rng: (law(rng, 14), law(rng, 22)))
    assert (hits <= MOST).all()
    assert (hits >= FEWEST).all() or law is tied


def test_level_where_tests_stop_early() -> None:
    hits = n_rejected(lambda rng: (normal(rng, 8), normal(rng, 9)), n_permutations=399, n_directions=3)
    assert (hits >= FEWEST).all()
    assert (hits <= MOST).all()


def test_the_check_of_the_level_can_fail() -> None:
    """Without an adjustment for there being several parts, or columns, there are too many rejections."""
    parts = columns = 0
    options = {"method": "auto", "n_permutations": 39, "n_directions": 3, "workers": 1}
    for seed in range(N_NULL):
        x, y = (np.random.default_rng([seed, k]).normal(size=(n, 6)) for k, n in enumerate((14, 22)))
        found = osl.two_sample_test(x, y, rng=seed, **options)
        parts += min(found.parts.values()) <= 0.05
        alone = (osl.two_sample_test(x[:, k, None], y[:, k, None], rng=seed, **options) for k in range(6))
        columns += min(one.column_pvalues[0] for one in alone) <= 0.05
    assert parts > MOST
    assert columns > 1.5 * MOST


def test_other_columns_are_not_called_different() -> None:
    """One column differs by far. Others are called so in 5% of samples: 20 of 150 once in 30,000 seeds."""
    found = np.zeros(2, dtype=int)
    for seed in range(150):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_t(2, size=(2, 30, 5))
        y[:, 2] += 5
        options = {"n_permutations": 39, "n_directions": 5, "rng": seed, "workers": 1}
        small = osl.two_sample_test(x, y, **options).column_pvalues <= 0.05
        found += small[2], np.delete(small, 2).any()
    assert found[0] == 150
    assert found[1] <= 19


def power(change: Callable[[np.random.Generator], Samples], n_runs: int) -> dict[str, float]:
    hits: dict[str, float] = {}
    for seed in range(n_runs):
        x, y = change(np.random.default_rng(seed))
        options = {"n_permutations": 99, "n_directions": 96, "rng": seed}
        found = osl.two_sample_test(x, y, method="auto", **options)
        for name, pvalue in {"auto": found.pvalue, **found.parts}.items():
            hits[name] = hits.get(name, 0) + (pvalue <= 0.05) / n_runs
    return hits


def one_scaled(rng: np.random.Generator) -> Samples:
    """One of eight columns is wider; another has a long tail, which fills the distances with noise."""
    x, y = rng.normal(size=(2, 600, 8))
    y[:, 1] *= 1.35
    x[:, 7], y[:, 7] = rng.lognormal(size=(2, 600))
    both = np.concatenate([x, y])
    x, y = np.split((both - both.mean(axis=0)) / both.std(axis=0), 2)
    return x, y


def one_of_many_shifted(rng: np.random.Generator) -> Samples:
    x, y = rng.normal(size=(2, 200, 61))
    y[:, 17] += 0.6
    return x, y


def light_among_heavy(rng: np.random.Generator) -> Samples:
    x, y = rng.standard_t(1.5, size=(2, 300, 10))
    x[:, 4], y[:, 4] = rng.normal(size=300), rng.normal(size=300) + 0.4
    return x, y


def all_correlated(rng: np.random.Generator) -> Samples:
    x, y = rng.normal(size=(2, 100, 20))
    return x, np.sqrt(0.3) * rng.normal(size=(100, 1)) + np.sqrt(0.7) * y


def two_humps(rng: np.random.Generator) -> Samples:
    """One of eight columns has two humps, and the mean and the spread of before."""
    x, y = rng.normal(size=(2, 300, 8))
    y[:, 2] = 0.9 * rng.choice([-1.0, 1.0], 300) + np.sqrt(1 - 0.9**2) * y[:, 2]
    return x, y


def one_pair_apart(rng: np.random.Generator) -> Samples:
    """Two of eight columns go together in the first sample only."""
    x, y = rng.normal(size=(2, 300, 8))
    x[:, 1] = 0.5 * x[:, 0] + np.sqrt(0.75) * x[:, 1]
    return x, y


@pytest.mark.parametrize(
    ("change", "best", "most_alone"),
    [
        # SW_1 finds 20% of the first: more than half of 20 once in 1,800 seeds.
        (one_scaled, "columns", 0.5),
        (one_of_many_shifted, "columns", 0.9),
        (light_among_heavy, "columns", 0.4),
        (all_correlated, "PW_2", 0.9),
        (two_humps, "columns", 0.4),
        (one_pair_apart, "pairs", 0.4),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_power(change: Callable[..., Samples], best: str, most_alone: float) -> None:
    """Found in 95% of samples or more: fewer than 15 of 20 once in 3,000 seeds."""
    found = power(change, 20)
    assert found["auto"] >= 0.75
    assert found[best] >= 0.75
    # Negative control: SW_1 alone finds less.
    assert found["SW_1"] <= most_alone


def test_ranks_are_fair_between_unlike_tails() -> None:
    """The largest standardised statistic would be that of a skewed column far too often; ranks are not."""
    rng = np.random.default_rng(0)
    values = np.stack([rng.normal(size=2000), rng.lognormal(0, 1.5, size=2000)])
    refined = combining.rank_labellings(values, np.zeros(2)).refined
    standard = (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True)
    extreme = np.argsort(refined.min(axis=0))[:100]
    # Of the 100 most extreme labellings half each: beyond 30 to 70 once in 20,000 seeds.
    assert 30 <= refined[:, extreme].argmin(axis=0).sum() <= 70
    # Negative control.
    extreme = np.argsort(-standard.max(axis=0))[:20]
    assert standard[:, extreme].argmax(axis=0).sum() >= 17


def test_ranking_does_not_depend_on_the_order_of_labellings(rng: np.random.Generator) -> None:
    values = np.round(rng.normal(size=(5, 80)), 1)
    shuffled = rng.permutation(80)
    same = np.full(5, 1e-9)
    ranked, again = (combining.rank_labellings(v, same) for v in (values, values[:, shuffled]))
    np.testing.assert_array_equal(ranked.refined[:, shuffled], again.refined)
    assert (ranked.refined <= ranked.pvalues).all()
    assert (ranked.refined > ranked.pvalues - 1 / 80).all()


def test_values_that_differ_by_rounding_are_equal() -> None:
    values = np.array([[1.0, 1 + 1e-12, 1 - 1e-12, 2.0, 0.5]])
    ranked = combining.rank_labellings(values, np.array([1e-9]))
    assert ranked.pvalues.tolist() == [[0.8, 0.8, 0.8, 0.2, 1.0]]
    assert len(set(ranked.refined[0, :3])) == 1
    # Negative control.
    assert len(set(combining.rank_labellings(values, np.zeros(1)).pvalues[0])) == 5


def test_many_statistics_in_parts(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    values = rng.normal(size=(7, 30))
    whole = combining.rank_labellings(values, np.zeros(7))
    monkeypatch.setattr(combining, "_VALUES_AT_ONCE", 60)
    np.testing.assert_array_equal(combining.rank_labellings(values, np.zeros(7)).refined, whole.refined)


def test_stopping_early(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 60, 3))
    options = {"method": "auto", "rng": 0, "n_permutations": 2000}
    early, whole = (osl.two_sample_test(x, y, stop_early=stop, **options) for stop in (True, False))
    assert (early.n_permutations, whole.n_permutations) == (255, 2000)
    assert early.stopped_early
    assert not whole.stopped_early
    assert early.pvalue > 0.1
    assert abs(early.pvalue - whole.pvalue) < 4 * early.pvalue_stderr
    assert "which no more of them would make small" in repr(early)
    # What is small, or may be, gets all permutations, and the same p-values.
    one, other = (osl.two_sample_test(x, y + 0.5, stop_early=stop, **options) for stop in (True, False))
    assert (one.n_permutations, one.pvalue, one.parts) == (2000, other.pvalue, other.parts)
    assert osl.two_sample_test(x, y, rng=0).n_permutations == 999
    assert osl.two_sample_test(x, y, rng=0, stop_early=True).stopped_early


def test_a_small_pvalue_of_a_column_is_not_cut_short() -> None:
    """The whole is far from 10%, one column is not: its p-value must rest on all permutations."""
    rng = np.random.default_rng(0)
    x, y = 100 * rng.normal(size=(2, 200, 3))
    x[:, 0], y[:, 0] = rng.normal(size=200), rng.normal(size=200) + 1
    found = osl.two_sample_test(x, y, rng=2, stop_early=True)
    assert found.pvalue > 0.2
    assert found.column_pvalues[0] == 0.001
    assert found.n_permutations == 999
    assert osl.two_sample_test(x, y, rng=2, stop_early=True, columns=False).stopped_early


@pytest.mark.parametrize("n", [1, 2, 255, 999, 100_000])
def test_tails_of_binomials(n: int) -> None:
    """What a test stops by, against SciPy: sums of logs lose a few digits where n is large."""
    least = np.unique(np.linspace(1, n, 40, dtype=int))
    found = [combining._binomial_tail(k, n, combining.OPEN_LEVEL) for k in least]
    np.testing.assert_allclose(found, binom.sf(least - 1, n, combining.OPEN_LEVEL), rtol=1e-9, atol=1e-300)


def test_looks_double() -> None:
    for count, early in itertools.product((1, 255, 256, 257, 512, 5000), (True, False)):
        found = combining.looks(count, early=early)
        assert found[-1] == count
        assert list(found) == sorted(set(found))
        assert len(found) == 1 or early
