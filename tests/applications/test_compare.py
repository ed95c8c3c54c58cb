"""`osl.compare`: what its parts say, which rows they are about, and its words."""

from __future__ import annotations

import threading
import tracemalloc
import types
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import orthoslice as osl
from orthoslice.applications.columns import TableColumn, compare_columns, edges_of, tally_rows
from orthoslice.applications.compare import moves
from orthoslice.applications.compare.compare import prepare_comparison
from orthoslice.applications.compare.pairs import pair_of
from orthoslice.applications.compare.words import number, tell, tell_columns
from orthoslice.backend.stopping import stop_asked, stoppable
from orthoslice.clouds import cloud
from orthoslice.exact import transport

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(300, 4)), DRAW.normal(size=(200, 4)) + np.array([1, 0, 0, 0])


def test_parts_are_those_of_the_functions():
    found = osl.compare(X, Y, rng=7)
    assert found.sliced.distance == osl.sliced_wasserstein(X, Y, rng=7).distance
    assert found.projected.distance == osl.projected_wasserstein(X, Y, rng=7).distance
    bounds = osl.wasserstein_bounds(X, Y, rtol=0.0)
    assert (found.bounds.lower, found.bounds.upper) == (bounds.lower, bounds.upper)
    test = osl.two_sample_test(X, Y, method="auto", rng=7)
    assert (found.test.statistic, found.test.pvalue) == (test.statistic, test.pvalue)
    assert found.explanation.features == osl.explain(X, Y, rng=7).features
    assert found.seed == 7
    assert not found.is_sampled
    other = osl.compare(X, Y, 3, rng=7)
    assert (other.sliced.p, other.bounds.p, other.test.p) == (3, 3, 3)


@pytest.mark.parametrize("weights", [None, np.full(300, 1 / 300) + np.linspace(-1e-3, 1e-3, 300)])
@pytest.mark.parametrize("max_rows", [100, 5000])
def test_data_is_checked_once(monkeypatch, weights, max_rows):
    """Each table when it comes in; all parts get what was checked."""
    checked = []
    check = cloud.check_points
    monkeypatch.setattr(cloud, "check_points", lambda name, points: checked.append(name) or check(name, points))
    osl.compare(pd.DataFrame(X), pd.DataFrame(Y), x_weights=weights, max_rows=max_rows, rng=0)
    assert checked == ["x", "y"]


def test_it_can_be_repeated_without_a_seed():
    first = osl.compare(X, Y, n_permutations=19)
    again = osl.compare(X, Y, n_permutations=19, rng=first.seed)
    assert first.sliced.distance == again.sliced.distance
    assert first.shuffled_move == again.shuffled_move


def test_shuffled_rows_are_nearer_than_those_that_differ():
    """As far as chance puts samples of these sizes: the distance of two samples of one law."""
    found = osl.compare(X, Y + 3, rng=0)
    assert found.shuffled_move < found.bounds.lower / 2
    same = osl.compare(X[:150], X[150:], rng=0)
    assert same.bounds.upper == pytest.approx(same.shuffled_move, rel=0.2)


def test_the_typical_gap():
    found = osl.compare(X, Y, rng=0)
    gaps = np.linalg.norm(X[:, None] - X, axis=-1)[np.triu_indices(300, 1)]
    assert found.typical_gap == pytest.approx(np.median(gaps), rel=0.1)
    weights = np.zeros(300)
    weights[:2] = 0.5
    two = osl.compare(X, Y, x_weights=weights, rng=0)
    assert two.typical_gap == pytest.approx(np.linalg.norm(X[0] - X[1]))


def test_large_tables_are_sampled_but_for_the_sliced_distance():
    found = osl.compare(X, Y, max_rows=250, rng=0)
    assert (len(found.sample_x), len(found.sample_y)) == (250, 200)
    assert found.is_sampled
    assert found.sliced.distance == osl.sliced_wasserstein(X, Y, rng=0).distance
    rows = {row.tobytes() for row in X}
    assert len({row.tobytes() for row in found.sample_x} & rows) == 250
    assert "about 250 and 200 rows chosen at random" in repr(found)
    assert "chosen at random" not in repr(osl.compare(X, Y, rng=0))
    # 64,000 bytes hold 17 rows of four columns.
    assert len(osl.compare(X, Y, memory=64_000, n_permutations=19, rng=0).sample_x) == 17


def test_samples_of_weighted_rows_keep_their_weights():
    weights = DRAW.random(300)
    found = osl.compare(X, Y, x_weights=weights / weights.sum(), max_rows=100, rng=0)
    assert found.sample_x_weights.sum() == pytest.approx(1)
    place = {row.tobytes(): k for k, row in enumerate(X)}
    kept = weights[[place[row.tobytes()] for row in found.sample_x]]
    np.testing.assert_allclose(found.sample_x_weights, kept / kept.sum())
    assert found.test is None
    assert found.shuffled_move is None
    assert "rows with weights" in repr(found)
    with pytest.raises(ValueError, match="Weights must not vanish on 2 rows chosen at random"):
        osl.compare(X, Y, x_weights=np.eye(300)[0], max_rows=2, rng=0)


def test_maps_are_read_where_they_are(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = osl.compare(mapped, Y, max_rows=100, rng=0)
    assert found.x is mapped
    assert not isinstance(found.sample_x, np.memmap)
    assert found.sliced.distance == pytest.approx(
        float(osl.sliced_wasserstein(X, Y, rng=0).distance), rel=1e-12
    )


def test_names():
    frame = pd.DataFrame(X, columns=list("abcd"))
    found = osl.compare(frame, pd.DataFrame(Y, columns=list("abcd"))[list("dcba")], names=("old", "new"), rng=0)
    assert found.features == ("a", "b", "c", "d")
    assert found.names == ("old", "new")
    assert found.explanation.features[0].name == "a"
    text = repr(found)
    assert "old (300 rows) and new (200 rows), 4 columns" in text
    assert "higher in new: mean" in text
    with pytest.raises(ValueError, match="must be None beside a data frame"):
        osl.compare(frame, frame, features=list("abcd"))
    with pytest.raises(ValueError, match="one name a feature, 4; got 3"):
        osl.compare(X, Y, features=list("abc"))
    with pytest.raises(ValueError, match="single clouds"):
        osl.compare(np.zeros((2, 3, 4)), Y)


@pytest.mark.parametrize(
    ("y", "answer"),
    [(X[::-1], "No: they are equal."), (Y, "Yes."), (X + 1e-3, "No difference was found.")],
)
def test_the_answer_follows_the_test(y, answer):
    found = osl.compare(X, y, rng=0)
    sections = {question: short for question, short, _ in tell(found)}
    assert sections["Are they different?"] == answer


def test_equal_tables():
    found = osl.compare(X, X, rng=0)
    sections = {question: short for question, short, _ in tell(found)}
    assert sections["In which columns do they differ?"] == "In none: both hold the same rows."
    assert found.bounds.upper == 0
    assert sections["How far apart are they?"] == "Not at all: their distance is 0."


@pytest.mark.parametrize("mapped", [False, True])
def test_equality_is_told_by_all_rows(tmp_path, mapped):
    """A sample of each would differ; one number that is another by its last bit is told."""
    x, y = X * [1, 0, 1, 1], X[::-1] * [1, -0.0, 1, 1]
    other = y.copy()
    other[7, 2] = np.nextafter(other[7, 2], 9)
    # Every column of this holds the same numbers.
    turned = y.copy()
    turned[:, 2] = np.roll(turned[:, 2], 1)
    twice = np.concatenate([y[:-1], y[:1]])
    if mapped:
        for name, rows in (("y", y), ("other", other)):
            np.save(tmp_path / f"{name}.npy", rows)
        y, other = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("y", "other"))
    found = osl.compare(x, y, max_rows=50, n_permutations=19, rng=0)
    assert found.is_sampled
    assert "Are they different? No: they are equal." in repr(found)
    assert "Not at all: their distance is 0." in repr(found)
    assert "chosen at random" not in repr(found)
    assert (found.pvalue, found.bounds.upper, found.projected.distance) == (1, 0, 0)
    for rows in (other, turned, twice):
        for most in (50, 300):
            differs = osl.compare(x, rows, max_rows=most, n_permutations=19, rng=0)
            assert not differs.is_equal
            assert "they are equal" not in repr(differs)


def test_shuffles_are_many():
    found = osl.compare(X, Y, rng=0, n_permutations=19)
    assert len(found.shuffled_moves) == 20
    assert found.shuffled_moves.min() < found.shuffled_move < found.shuffled_moves.max()
    assert "in 20 shuffles)" in repr(found)
    assert len(osl.compare(np.tile(X, (10, 1)), Y, rng=0, n_permutations=19).shuffled_moves) == 13


def test_the_distance_is_exact_where_that_takes_seconds(monkeypatch):
    x, y = np.random.default_rng(3).normal(size=(2, 60, 3))
    found = osl.compare(x, y + 1, rng=0, n_permutations=19)
    assert found.exact == osl.wasserstein(x, y + 1).distance
    assert found.bounds.lower <= found.exact <= found.bounds.upper < (1 + 1e-9) * found.bounds.lower
    assert f"have to move by {found.exact:.3g} on average." in repr(found)
    assert "This is exact (the Wasserstein distance W_2" in repr(found)
    # Shuffled rows are told by the same measure.
    draw, pooled = np.random.default_rng(found.seed), np.concatenate([x, y + 1])
    rows = draw.permutation(pooled)
    assert found.shuffled_moves[0] == pytest.approx(osl.wasserstein(rows[:60], rows[60:]).distance, rel=1e-9)
    # Of more rows there are bounds near each other, which the words tell.
    monkeypatch.setattr(moves, "_EXACT_PAIRS", 60 * 60 - 1)
    monkeypatch.setattr(transport, "_MOST_PAIRS", 60 * 60 - 1)
    near = osl.compare(x, y + 1, rng=0, n_permutations=19)
    assert near.exact is None
    assert near.bounds.lower <= found.exact <= near.bounds.upper < 1.001 * near.bounds.lower
    assert "This is certain" in repr(near) or "Both ends are certain" in repr(near)
    np.testing.assert_allclose(near.shuffled_moves, found.shuffled_moves, rtol=0.01)
    # A column is sorted, however many rows there are.
    assert osl.compare(x[:, :1], y[:, :1], rng=0, n_permutations=19).exact is not None


def test_the_distance_is_exact_with_weights_and_unequal_sizes_too():
    x, y = np.random.default_rng(3).normal(size=(2, 20, 3))
    assert osl.compare(x, y[:15], rng=0, n_permutations=19).exact == osl.wasserstein(x, y[:15]).distance
    weights = np.arange(1, 21) / 210
    weighted = osl.compare(x, y, x_weights=weights, rng=0, n_permutations=19)
    assert weighted.exact == osl.wasserstein(x, y, x_weights=weights).distance


def test_bounds_stop_in_time(monkeypatch):
    """They are certain then too, and no wider than those that sorts make."""
    x, y = np.random.default_rng(3).normal(size=(2, 60, 3))
    monkeypatch.setattr(moves, "_EXACT_PAIRS", 0)
    for limits in (moves._BOUNDS, moves._BOUNDS_BY_CHANCE):
        monkeypatch.setitem(limits, "rtol", 0.0)
        monkeypatch.setitem(limits, "time_limit", 1e-9)
    found, sorts = osl.compare(x, y + 1, rng=0, n_permutations=19), osl.wasserstein_bounds(x, y + 1, rng=0)
    true = osl.wasserstein(x, y + 1).distance
    assert sorts.lower <= found.bounds.lower <= true <= found.bounds.upper <= sorts.upper
    assert len(found.shuffled_moves) == 20


def test_words_of_the_distance_agree_with_the_test():
    """In 60 columns single rows lie far apart by themselves; a shift of all of them is sure all the same."""
    x, y = (np.random.default_rng(k).normal(size=(200, 60)) for k in range(2))
    found = osl.compare(x, y + 0.2, rng=0, n_permutations=99)
    assert found.pvalue == 0.01
    assert found.bounds.upper < 1.1 * found.shuffled_moves.max()
    assert "hides small changes, but not from the test" in repr(found)
    assert "hides small changes" not in repr(osl.compare(X, Y, rng=0, n_permutations=99))


def test_words_of_shuffles_agree_with_the_verdict():
    """Where shuffled rows are nearer and no difference was found, and where some are as far and one was."""
    same = osl.compare(X[:150], X[150:], rng=0, n_permutations=99)
    assert same.pvalue > same.level
    away = same.bracket[0]
    nearer, farther = (replace(same, shuffled_moves=np.full(20, f * away)) for f in (0.97, 1.03))
    told = "All of these are nearer, as chance alone makes it in 1 of 21 comparisons."
    assert told in repr(nearer)
    assert told not in repr(farther)
    differs = osl.compare(X, Y, rng=0, n_permutations=99)
    assert differs.pvalue <= differs.level
    away = differs.bracket[1]
    told = "Some of these are as far apart: this one number does not see all that the test sees."
    for shares, is_told in (([0.2] * 19 + [1.01], True), ([0.2] * 19 + [0.9], False), ([0.95] * 20, False)):
        words = repr(replace(differs, shuffled_moves=away * np.array(shares)))
        assert (told in words) == is_told
        assert ("Rows lie apart by themselves" in words) == (shares[0] > 0.9)


def test_a_few_rows_cannot_tell():
    found = osl.compare(X[:3], X[:3] + 100, rng=0)
    assert "It cannot be told." in repr(found)
    assert "So few rows give no p-value below 0.1, whatever they hold." in repr(found)
    assert "So few rows" not in repr(osl.compare(X[:8], X[:8] + 100, rng=0))
    # With two of each every third shuffle is as extreme, but for the chance of which were made.
    for seed in range(4):
        two = osl.compare(X[:2], X[:2] + 100, rng=seed, n_permutations=99)
        assert "It cannot be told." in repr(two)
        assert "So few rows give no p-value below 0.33, whatever they hold." in repr(two)
        assert ("an accident of the shuffles" in repr(two)) == (round(two.pvalue, 2) < 0.33)
        assert "a small difference might show" not in repr(two)


def test_columns_that_do_not_show_are_not_named():
    """Unless none of them shows: of many columns each may have a small part."""
    one = tell(osl.compare(X * [1, 1, 1, 1e-6], Y * [1, 1, 1, 1e-6], rng=0))
    assert not any("x3" in line for section in one for line in section.lines)
    wide = np.random.default_rng(0).normal(size=(20, 300))
    many = {question: lines for question, _, lines in tell(osl.compare(wide[:, :], wide + 3, rng=0))}
    assert sum("higher in y" in line for line in many["In which columns do they differ?"]) == 5


def test_words_hold_no_exponents_and_no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = repr(osl.compare(X * 1000, Y * 1000, rng=0))
        # Nearly equal clouds: the interval is not to be trusted, which is said and not warned of.
        near = repr(osl.compare(X[:5], X[:5] + 1e-6 * DRAW.normal(size=(5, 4)), rng=0))
    assert "e+0" not in text
    assert "How accurate the sliced distance is cannot be told" in near
    assert "95% interval" not in near


def test_numbers():
    assert [number(v) for v in (999.7, 0.00012345, 12.0, 1e-7, -1234.5)] == [
        "1,000",
        "0.000123",
        "12",
        "1e-07",
        "-1,230",
    ]


def test_stopping_ends_with_its_block():
    """After the block no estimate is asked to stop, and threads get no signal."""
    with stoppable() as stop:
        stop.asked = True
        assert stop_asked()
        est = osl.sliced_wasserstein(
            X, Y, n_directions=10_000, directions="iid", rng=0, workers=1, memory=50_000
        )
    assert not stop_asked()
    assert est.n_directions < 10_000
    whole = osl.sliced_wasserstein(X, Y, n_directions=10_000, directions="iid", rng=0)
    np.testing.assert_allclose(est.scores, whole.scores[: est.n_directions], rtol=1e-12)
    heard = []

    def work():
        with stoppable():
            heard.append(stop_asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [False]


def test_a_stopped_estimate_has_whole_blocks():
    with stoppable() as stop:
        stop.asked = True
        est = osl.sliced_wasserstein(
            X,
            Y,
            n_directions=4000,
            directions="orthogonal",
            control="gaussian",
            rng=0,
            workers=1,
            memory=50_000,
        )
    assert est.n_directions % 4 == 0
    assert est.n_blocks == est.n_directions // 4
    # Nothing to show before the first block is done.
    with stoppable() as stop:
        stop.asked = True
        with pytest.raises(KeyboardInterrupt):
            osl.sliced_wasserstein(X, Y, n_directions=4000, directions="sobol", rng=0, workers=1, memory=20_000)


def test_gradients_are_of_all_directions():
    with stoppable() as stop:
        stop.asked = True
        value, gradient = osl.value_and_grad(X, Y, n_directions=4000, rng=0)
    expected = osl.value_and_grad(X, Y, n_directions=4000, rng=0)
    assert value == expected[0]
    np.testing.assert_array_equal(gradient, expected[1])


def test_wide_clouds_take_no_square_of_their_columns():
    """A matrix (dim, dim) would take 128 MB here, and so would 4,096 points."""
    x, y = np.random.default_rng(0).normal(size=(2, 4, 4000))
    prepared = prepare_comparison(x, y, rng=0, memory="16MB", workers=1, n_directions=16)
    found = {"sliced": prepared.work_out("sliced")}
    tracemalloc.start()
    try:
        found["bounds"] = prepared.work_out("bounds")
        assert prepared.finish(found).sliced.trusted in (True, False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 80 * 10**6


def test_a_pair_is_told_by_what_changed(rng):
    """By its correlation if that did, or else by how far out both columns are at once, which counts too."""
    test = types.SimpleNamespace(pair=(0, 1), parts={"pairs": 0.01})
    u, v = rng.normal(size=(2, 300))
    x = np.stack([u, u + 0.3 * v], axis=1)
    wide = pair_of(test, ["age", "height"], x, 1.5 * x)
    assert wide.correlations[0] == wide.correlations[1]
    assert wide.in_words("b") == "age and height (they are both high or both low more in b)"
    back = pair_of(test, ["age", "height"], 1.5 * x, x)
    assert back.in_words("b") == "age and height (they are both high or both low less in b)"
    apart = pair_of(test, ["age", "height"], x, np.stack([u, v], axis=1))
    first, second = apart.correlations
    assert apart.in_words("b") == f"age and height (rank correlation {first:.2f} -> {second:.2f})"


def test_rows_that_were_written_twice_are_told(rng):
    x, y = rng.normal(size=(120, 2)), rng.normal(size=(40, 2))
    found = osl.compare(x, np.repeat(y, 2, axis=0), names=("a", "b"), n_permutations=99, rng=0)
    assert found.repeated == (0.0, 1.0)
    assert "In b 100% of the rows occur more than once, in a 0%. Were rows written twice?" in repr(found)
    # As many rows of each are looked at, so that half of those written twice are met twice.
    few, many = osl.compare(x, np.repeat(x, 2, axis=0), n_permutations=99, rng=0).repeated
    assert few == 0
    assert 0.3 < many < 0.7
    # The control: rows of few values occur more than once in both tables.
    codes = rng.integers(0, 3, size=(2, 100, 2)).astype(float)
    found = osl.compare(*codes, n_permutations=99, rng=0)
    assert min(found.repeated) == 1
    assert "more than once" not in repr(found)


def test_columns_are_not_surer_than_the_verdict(rng):
    """All columns share half of what the test looks at, so that one may stand out where the whole does not."""
    x, y = rng.normal(size=(200, 3)), rng.normal(size=(200, 3)) + np.array([0.4, 0, 0])
    columns = [TableColumn(name, k) for k, name in enumerate("abc")]
    edges = edges_of([x, y], columns)
    found = compare_columns(*(tally_rows(own, columns, edges) for own in (x, y)), columns)
    assert tell_columns(found, ("x", "y"), 0.05).answer == "In 1 of 3, by all 200 and 200 rows:"
    assert tell_columns(found, ("x", "y"), 0.05, verdict=0.04) == tell_columns(found, ("x", "y"), 0.05)
    unsure = tell_columns(found, ("x", "y"), 0.05, verdict=0.07)
    assert unsure.answer == "Perhaps in 1 of 3, by all 200 and 200 rows:"
    assert "of everything together, p = 0.07" in unsure.lines[-1]
    nothing = tell_columns(found, ("x", "y"), 1e-9, verdict=0.5)
    assert nothing.answer.startswith("In none was a change found")
