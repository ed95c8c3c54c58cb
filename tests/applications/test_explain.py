"""Where two clouds differ: features are exact, directions never worse than their start, points have names."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wasserstein_distance

import orthoslice as osl
from orthoslice.applications import ascent
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.directions import Orthogonal
from orthoslice.exact import wasserstein


def samples(rng, n=120, m=90, dim=5):
    return rng.normal(size=(n, dim)), rng.normal(size=(m, dim))


def by_name(found):
    return {feature.name: feature for feature in found.features}


def distance_along(x, y, theta, p, **weights):
    return float(wasserstein((x @ theta)[:, None], (y @ theta)[:, None], p, **weights).distance)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_features_are_exact(p, rng):
    x, y = samples(rng)
    y[:, 2] *= 3
    found = osl.explain(x, y, p, rng=0, n_directions=8)
    scores = [wasserstein(x[:, [k]], y[:, [k]], p).value for k in range(5)]
    for k, score in enumerate(scores):
        feature = by_name(found)[f"x{k}"]
        np.testing.assert_allclose(feature.score, score, rtol=1e-12)
        np.testing.assert_allclose(feature.share, score / sum(scores), rtol=1e-12)
    if p == 1:
        np.testing.assert_allclose(scores[0], wasserstein_distance(x[:, 0], y[:, 0]), rtol=1e-12)
    assert (np.diff([f.score for f in found.features]) <= 0).all()
    assert found.features[0].name == "x2"


@pytest.mark.parametrize("p", [1, 2, 3])
def test_weights(p, rng):
    """A point of twice the weight is the same as two points."""
    x, y = samples(rng, 30, 20, 3)
    twice = np.repeat(x, np.where(np.arange(30) % 3 == 0, 2, 1), axis=0)
    weights = np.where(np.arange(30) % 3 == 0, 2, 1) / len(twice)
    one = osl.explain(x, y, p, x_weights=weights, rng=0)
    two = osl.explain(twice, y, p, rng=0)
    for name in ("x0", "x1", "x2"):
        a, b = by_name(one)[name], by_name(two)[name]
        np.testing.assert_allclose(a[1:7], b[1:7], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.distance, two.distance, rtol=1e-9)
    # Twins are matched with neighbouring points, so that only their common move is the same.
    np.testing.assert_allclose(one.directions[0].distance, two.directions[0].distance, rtol=0.02)
    # Negative control: without weights it is another answer.
    assert abs(osl.explain(x, y, p, rng=0).distance / two.distance - 1) > 1e-4


def test_points_that_weigh_nothing_do_not_count(rng):
    x, y = samples(rng, 30, 20, 3)
    weights = np.r_[np.full(29, 1 / 29), 0.0]
    x[29] = 1e3
    found = osl.explain(x, y, x_weights=weights, rng=0, n_points=30)
    alone = osl.explain(x[:29], y, rng=0)
    np.testing.assert_allclose(found.distance, alone.distance, rtol=1e-9)
    assert 29 not in [q.row for q in found.points]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_directions_are_what_they_say(p, rng):
    x, y = samples(rng)
    y[:, 1] += y[:, 0]
    found = osl.explain(x, y, p, rng=3)
    thetas = np.array([d.theta for d in found.directions])
    np.testing.assert_allclose(thetas @ thetas.T, np.eye(3), atol=1e-12)
    for direction in found.directions:
        np.testing.assert_allclose(direction.distance, distance_along(x, y, direction.theta, p), rtol=1e-9)
        assert [direction.loadings[f"x{k}"] for k in range(5)] == direction.theta.tolist()
        sizes = np.abs(list(direction.loadings.values()))
        assert (np.diff(sizes) <= 0).all()
    distances = [d.distance for d in found.directions]
    assert distances == sorted(distances, reverse=True)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_first_direction_beats_all_starts(p, rng):
    gains = []
    for _ in range(5):
        x, y = samples(rng, 40, 30, 4)
        found = osl.explain(x, y, p, rng=0, n_directions=32)
        drawn = Orthogonal().sample(32, 4, 0).theta
        starts = [*drawn, *np.eye(4), np.subtract(x.mean(axis=0), y.mean(axis=0))]
        best = max(distance_along(x, y, theta / np.linalg.norm(theta), p) for theta in starts)
        gains.append(found.directions[0].distance / best - 1)
    assert min(gains) >= -1e-12
    assert max(gains) > 0.01  # the ascent is no idle walk


def test_a_slope_may_point_to_the_opposite_direction(rng):
    """As rounding has it where clouds are equal: halfway there no direction is left."""
    x = ReadyCloud(rng.normal(size=(20, 3)))
    start = ascent.Found(np.array([0.0, 0.6, 0.8]), 0.0)
    assert ascent._better(ascent.Landscape(x, x, 1.0, 10**8), start, -start.theta, np.zeros((0, 3))) is None


def test_climbing_never_goes_down(rng):
    x, y = (ReadyCloud(c) for c in samples(rng, 30, 30, 6))
    land = ascent.Landscape(x, y, 1.0, 10**8)
    for start in np.linalg.qr(rng.normal(size=(6, 6)))[0]:
        scores = [ascent.climb(land, start, np.zeros((0, 6)), steps).score for steps in range(6)]
        assert (np.diff(scores) >= 0).all()
        assert scores[0] == land.scores(start[None])[0]
        # Negative control: whole steps towards the gradient, without a look at the score, do go down.
    theta, walked = start, []
    for _ in range(30):
        walked.append(land.scores(theta[None])[0])
        theta = land.slope(theta) / np.linalg.norm(land.slope(theta))
    assert min(np.diff(walked)) < 0


def test_a_difference_between_the_axes_is_found(rng):
    """Features alone are all the same; their correlation is not, along the diagonals."""
    x, y = samples(rng, 3000, 3000, 6)
    y[:, 1] = 0.9 * y[:, 0] + np.sqrt(1 - 0.81) * y[:, 1]
    found = osl.explain(x, y, rng=0, n_found=2)
    diagonals = np.array([[1, -1], [1, 1]]) / np.sqrt(2)
    angles = [abs(np.array([d.theta[:2] for d in found.directions]) @ diagonal) for diagonal in diagonals]
    assert np.max(angles, axis=1).min() > 0.95
    assert max(f.score for f in found.features) < found.directions[0].distance ** 2 / 20


def test_large_clouds_are_searched_in_part(rng, monkeypatch):
    monkeypatch.setattr(ascent, "_SEARCHED", 50)
    x, y = samples(rng, 400, 300)
    y[:, 3] += 0.2 + 0.2 * y[:, 2]
    weights = rng.random(400)
    for given in (None, weights / weights.sum()):
        found = osl.explain(x, y, x_weights=given, rng=0)
        assert found.directions[0].distance >= found.features[0].score ** 0.5 * (1 - 1e-12)
        again = osl.explain(x, y, x_weights=given, rng=0)
        assert [d.theta.tolist() for d in again.directions] == [d.theta.tolist() for d in found.directions]
        direction = found.directions[0]
        extra = {} if given is None else {"x_weights": weights / weights.sum()}
        np.testing.assert_allclose(
            direction.distance, distance_along(x, y, direction.theta, 2, **extra), rtol=1e-6
        )


def test_results_do_not_depend_on_threads_or_memory(rng):
    x, y = samples(rng, 200, 150)
    one, two = osl.explain(x, y, rng=1, workers=1), osl.explain(x, y, rng=1, workers=2, memory=200_000)
    np.testing.assert_allclose([f.score for f in one.features], [f.score for f in two.features], rtol=1e-12)
    np.testing.assert_allclose(
        [d.distance for d in one.directions], [d.distance for d in two.directions], rtol=1e-9
    )
    assert [q.row for q in one.points] == [q.row for q in two.points]
    assert osl.explain(x, y, rng=one.seed, workers=1).points == one.points


@pytest.mark.parametrize("p", [1, 2, 3])
def test_points_that_move(p, rng):
    """A shift moves every point by its length, and one far point moves back further than the others."""
    x = rng.normal(size=(60, 4))
    found = osl.explain(x, x + np.array([3, 0, 4, 0]), p, rng=0, n_points=60, n_directions=4000)
    np.testing.assert_allclose([q.distance for q in found.points], 5, rtol=0.03)
    moved = np.append(x, [[20.0, 0, 0, 0]], axis=0)
    found = osl.explain(moved, rng.normal(size=(61, 4)), p, rng=0)
    assert found.points[0].row == 60
    assert found.points[0].distance > 5 * found.typical_move
    np.testing.assert_allclose(found.points[0].distance, 20, rtol=0.25)


def test_moves_add_up_to_the_distance(rng):
    """The mean of the p-th powers of all moves is SW_p^p times dim for p = 2."""
    x, y = samples(rng, 40, 30, 3)
    found = osl.explain(x, y, rng=0, n_points=40)
    mean = np.mean([q.distance**2 for q in found.points])
    np.testing.assert_allclose(mean / 3, found.distance**2, rtol=1e-9)
    options = {"directions": "orthogonal", "control": None}
    expected = osl.sliced_wasserstein(x, y, n_directions=128, rng=0, **options).distance
    np.testing.assert_allclose(found.distance, expected, rtol=1e-9)


def test_frames_give_names(rng):
    x, y = samples(rng, 30, 20, 3)
    frame = pd.DataFrame(x, columns=["age", "income", "height"], index=[f"person {k}" for k in range(30)])
    other = pd.DataFrame(y + np.array([0, 9, 0]), columns=frame.columns)[["height", "age", "income"]]
    found = osl.explain(frame, other, rng=0)
    assert found.features[0].name == "income"
    assert next(iter(found.directions[0].loadings)) == "income"
    assert all(str(q.row).startswith("person ") for q in found.points)
    assert found.to_frame()["name"].tolist() == [f.name for f in found.features]
    assert osl.explain(x, other, rng=0).features[0].name in other.columns
    assert {f.name for f in osl.explain(x, y, names="abc", rng=0).features} == set("abc")
    wide = x * [1, 1, 100]
    assert "Note: 'c' has 9" in str(osl.explain(wide, y, names=np.array(["a", "b", "c"]), rng=0))
    with pytest.raises(ValueError, match="`names` must be None beside a data frame"):
        osl.explain(frame, other, names=["a", "b", "c"])
    with pytest.raises(ValueError, match="one name a feature, 3; got 2"):
        osl.explain(x, y, names=["a", "b"])
    with pytest.raises(ValueError, match="`names` must differ"):
        osl.explain(x, y, names="aab")


def test_words(rng):
    x, y = rng.normal(size=(2, 4000, 6)) * 2 + 10
    y[:, 0] += 3
    y[:, 1] -= 3
    y[:, 2] = 3 * (y[:, 2] - 10) + 10
    y[:, 3] = 0.3 * (y[:, 3] - 10) + 10
    y[:, 4] = 10 + 2 * rng.choice([-1, 1], size=4000)
    changes = {f.name: f.change for f in osl.explain(x, y, rng=0).features}
    assert changes["x0"].startswith("higher in y: mean 9.9")
    assert "standard deviations)" in changes["x0"]
    assert changes["x1"].startswith("lower in y: ")
    assert changes["x2"].startswith("more spread in y: standard deviation ")
    assert changes["x3"].startswith("less spread in y: ")
    assert changes["x4"] == "another shape"
    assert changes["x5"] == "no change found"


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_passed_is_left_as_it_is(rng, p, order):
    for weights in (None, np.arange(1, 41) / np.arange(1, 41).sum()):
        x, y = (np.asarray(rng.normal(size=(n, 3)), order=order) for n in (40, 30))
        before = x.copy(), y.copy()
        osl.explain(x, y, p, x_weights=weights, n_directions=8, rng=0)
        np.testing.assert_array_equal(x, before[0])
        np.testing.assert_array_equal(y, before[1])


def test_features_of_one_law_are_rarely_told_to_have_changed():
    """Any of ten is in at most 5% of pairs: 17 or more of 200 have a probability of 2%; the seed is fixed.

    The control: features that did change are told to, in words that say how.
    """
    rng = np.random.default_rng(2)
    alarms = found = 0
    for _ in range(200):
        x, y = rng.normal(size=(60, 10)), rng.normal(size=(50, 10))
        y[:, 3] += 1
        told = {f.name: f for f in osl.explain(x, y, n_directions=4, n_found=1, rng=0).features}
        alarms += any(f.change != "no change found" for name, f in told.items() if name != "x3")
        found += told["x3"].change.startswith("higher in y")
    assert alarms <= 16
    assert found >= 150


def test_pvalues_of_features_are_those_of_kolmogorov_and_smirnov(rng):
    from scipy import stats

    x, y = (rng.integers(0, 9, size=(n, 2)).astype(float) for n in (80, 60))
    y[:, 1] += 3
    told = sorted(osl.explain(x, y, rng=0).features, key=lambda f: f.name)
    gaps = [stats.ks_2samp(x[:, k], y[:, k]).statistic for k in range(2)]
    raw = [stats.kstwobign.sf(gap * np.sqrt(80 * 60 / 140)) for gap in gaps]
    assert [f.pvalue for f in told] == pytest.approx([max(raw[0], 2 * raw[1]), 2 * raw[1]])
    weights = np.arange(1, 81) / np.arange(1, 81).sum()
    assert osl.explain(x, y, x_weights=weights, rng=0).features[0].pvalue is None


def test_a_feature_whose_units_dwarf_the_others(rng):
    x, y = samples(rng)
    (note,) = osl.explain(x * [1, 1, 1e3, 1, 1], y, rng=0).notes
    assert note.startswith("'x2' has 99.9% of the variance")
    assert "`*osl.scaled([x, y])`" in note
    assert osl.explain(*osl.scaled([x * [1, 1, 1e3, 1, 1], y]), rng=0).notes == ()
    assert osl.explain(x, y, rng=0).notes == ()
    assert osl.explain(x[:, :1], y[:, :1] * 1e3, rng=0).notes == ()


def test_text(rng):
    x, y = samples(rng, 50, 40, 7)
    text = repr(osl.explain(x, y + 2 * np.eye(7)[1], names=[*"abcdefg"], rng=0))
    lines = text.split("\n")
    assert lines[0] == "How y (40 points) differs from x (50 points), 7 features"
    assert lines[2].split()[:2] == ["b", "85%"] or lines[2].strip().startswith("b ")
    assert "the 2 others" in text
    assert "`osl.two_sample_test(x, y)`" in text
    assert "asserstein" not in text
    assert max(map(len, lines)) < 160


@pytest.mark.parametrize("p", [1, 2])
def test_equal_clouds(p, rng):
    x, _ = samples(rng)
    found = osl.explain(x, x[::-1], p, rng=0)
    assert "Not at all" in repr(found)
    assert all(f.score == f.share == 0 for f in found.features)
    assert found.points == ()
    assert all(d.distance == 0 for d in found.directions)


def test_scales_and_offsets(rng):
    x, y = samples(rng, 40, 30, 3)
    plain = osl.explain(x, y, 3, rng=0)
    for unit in (1e-120, 1e100):
        found = osl.explain(x * unit, y * unit, 3, rng=0)
        np.testing.assert_allclose(found.distance, plain.distance * unit, rtol=1e-9)
        np.testing.assert_allclose(found.directions[0].distance, plain.directions[0].distance * unit, rtol=1e-6)
        np.testing.assert_allclose(found.features[0].x_spread, plain.features[0].x_spread * unit, rtol=1e-9)
    moved = osl.explain(x + 1e6, y + 1e6, 3, rng=0)
    np.testing.assert_allclose(moved.directions[0].distance, plain.directions[0].distance, rtol=1e-6)
    np.testing.assert_allclose(moved.features[0].x_mean, plain.features[0].x_mean + 1e6, rtol=1e-12)


def test_other_libraries(backend, rng):
    x, y = samples(rng, 40, 30, 3)
    found = osl.explain(backend.asarray(x), backend.asarray(y), rng=0)
    plain = osl.explain(x, y, rng=0)
    np.testing.assert_allclose(found.distance, plain.distance, rtol=1e-5)
    assert [f.name for f in found.features] == [f.name for f in plain.features]


def test_a_line_and_a_memory_map(rng, tmp_path):
    x, y = samples(rng, 40, 30, 1)
    found = osl.explain(x, y, rng=0)
    np.testing.assert_allclose(found.directions[0].distance ** 2, found.features[0].score, rtol=1e-12)
    x, y = samples(rng, 400, 300, 3)
    x += 50
    mapped = np.memmap(tmp_path / "x", dtype=np.float64, mode="w+", shape=x.shape)
    mapped[:] = x
    one, two = osl.explain(mapped, y, rng=0), osl.explain(x, y, rng=0)
    np.testing.assert_allclose(one.distance, two.distance, rtol=1e-9)
    # Ascents stop where little is gained, a rounding earlier or later.
    distances = [[d.distance for d in found.directions] for found in (one, two)]
    np.testing.assert_allclose(*distances, rtol=1e-3)


def test_refusals(rng):
    x, y = samples(rng, 4, 4, 2)
    with pytest.raises(ValueError, match="single clouds"):
        osl.explain(x[None], y)
    with pytest.raises(ValueError, match="`n_found` must be"):
        osl.explain(x, y, n_found=0)
    with pytest.raises(ValueError, match="at least 1"):
        osl.explain(x, y, 0.5)
    jax = pytest.importorskip("jax")
    with pytest.raises(TypeError, match="cannot be traced"):
        jax.jit(lambda a: osl.explain(a, a).distance)(jax.numpy.asarray(x))


@pytest.mark.parametrize("p", [1, 2, 3])
def test_in_the_plane_the_best_of_all_angles_is_found(p):
    angles = np.linspace(0, np.pi, 2000, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_t(2, size=(40, 2)), rng.integers(-1, 2, size=(30, 2)).astype(float)
        best = ascent.Landscape(ReadyCloud(x), ReadyCloud(y), p, 10**8).scores(circle).max() ** (1 / p)
        assert osl.explain(x, y, p, rng=0).directions[0].distance > 0.999 * best


def test_memory_is_bounded(rng):
    """Clouds of 2 x 8 MB within 8 MB: twice that besides what the search keeps of its 4,096 points."""
    x, y = rng.normal(size=(2, 20_000, 50))
    options = {"rng": 0, "memory": "8MB", "workers": 1, "n_found": 1}
    osl.explain(x[:100], y[:100], **options)  # what is compiled or loaded does not count
    peaks = []
    for memory in ("8MB", "80MB"):
        tracemalloc.start()
        osl.explain(x, y, **options | {"memory": memory})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 20e6
    # Negative control: with more memory it takes more.
    assert peaks[1] > 1.5 * peaks[0]


def test_a_great_many_features(rng):
    """The square of 20,000 features would not fit."""
    x, y = rng.normal(size=(2, 20, 20_000)).astype(np.float32)
    y[:, 1234] += 30
    found = osl.explain(x, y, rng=0, n_found=2, n_directions=16)
    assert found.features[0].name == "x1234"
    assert found.directions[0].distance >= found.features[0].score ** 0.5 * (1 - 1e-6)
