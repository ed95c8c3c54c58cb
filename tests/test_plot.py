"""Pictures show what results hold, and can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.applications.compare import pictures

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
plt = pytest.importorskip("matplotlib.pyplot")

ANGULAR = '<script>alert("x")</script> & $x_1'


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def clouds():
    return osl.datasets.digits(0), osl.datasets.digits(1)


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 3)), rng.normal(size=(60, 3)) * [1, 2, 1] + [2, 0, 0]


def mark(picture, kind):
    (found,) = (m for m in picture.marks if isinstance(m, kind))
    return found


def test_directions_are_all_counted(clouds):
    est = osl.sliced_wasserstein(*clouds, control=None, rng=0)
    picture = pictures.picture_directions(est)
    bars, lengths = mark(picture, pictures.Bars), est.scores**0.5
    np.testing.assert_array_equal(bars.counts, np.histogram(lengths, bars.edges)[0])
    assert bars.counts.sum() == est.n_directions
    assert mark(picture, pictures.Rule).at == est.distance
    # A control variate changes scores, not how far apart clouds are along a direction.
    controlled = pictures.picture_directions(osl.sliced_wasserstein(*clouds, control="gaussian", rng=0))
    np.testing.assert_allclose(mark(controlled, pictures.Bars).edges, bars.edges)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_quantiles_are_as_far_apart_as_the_clouds_along_the_direction(small, p):
    x, y = small
    (direction,) = osl.explain(x, y, p, n_found=1, rng=0).directions
    dots = mark(pictures.picture_quantiles(x, y, direction), pictures.Dots)
    assert len(dots.xs) == 60
    np.testing.assert_allclose((np.abs(dots.xs - dots.ys) ** p).mean() ** (1 / p), direction.distance)
    same = mark(pictures.picture_quantiles(x, x[::-1], direction), pictures.Dots)
    np.testing.assert_allclose(same.xs, same.ys, atol=1e-12)


def test_weights_count_like_repeated_points(small, backend):
    x, y = small[0], np.concatenate(small)
    times = np.random.default_rng(1).integers(1, 4, size=len(x))
    assert times.sum() % 2 == 1  # so that none of 99 levels falls between two points
    theta = np.array([0.6, 0.8, 0.0])
    repeated = pictures.picture_quantiles(np.repeat(x, times, axis=0), y, theta)
    arrays = [backend.asarray(a) for a in (x, y, theta)]
    weighted = pictures.picture_quantiles(*arrays, x_weights=backend.asarray(times / times.sum()))
    plain = pictures.picture_quantiles(*arrays)
    expected = mark(repeated, pictures.Dots).xs
    assert len(expected) == 99
    np.testing.assert_allclose(mark(weighted, pictures.Dots).xs, expected, **backend.tolerance(3))
    assert not np.allclose(mark(plain, pictures.Dots).xs, expected, rtol=1e-3)


def test_quantiles_look_where_clouds_differ_most(small):
    x, y = small
    chosen = osl.explain(x, y, n_found=1, rng=0).directions[0]
    found, expected = (pictures.picture_quantiles(x, y, d, rng=0) for d in (None, chosen))
    np.testing.assert_array_equal(mark(found, pictures.Dots).ys, mark(expected, pictures.Dots).ys)
    assert found.title == expected.title


def test_features_add_up(clouds):
    told = osl.explain(*clouds, rng=0)
    picture = pictures.picture_features(told, n_shown=4)
    lengths = np.concatenate([m.lengths for m in picture.marks])
    assert picture.y.names[:4] == tuple(f.name for f in told.features[:4])
    assert picture.y.names[4] == "the 60 others together"
    np.testing.assert_allclose(lengths.sum(), 100)
    assert len(pictures.picture_features(told, n_shown=63).y.names) == 64  # one left over has its name


def test_bounds_stand_between_the_estimates(clouds):
    bounds = osl.wasserstein_bounds(*clouds, rng=0)
    sw, pw = (f(*clouds, rng=0) for f in (osl.sliced_wasserstein, osl.projected_wasserstein))
    picture = pictures.picture_bounds(bounds, sliced=sw, projected=pw)
    low, middle, high = picture.marks
    assert (middle.low, middle.high) == (bounds.lower, bounds.upper)
    assert (low.low, low.high) == sw.distance_interval()
    assert (high.low, high.high) == pw.distance_interval()
    assert [m.row for m in picture.marks] == [0, 1, 2]
    with pytest.raises(ValueError, match="the same `p`; got 2 and 1"):
        pictures.picture_bounds(bounds, sliced=osl.sliced_wasserstein(*clouds, 1, rng=0))


def test_null_counts_every_permutation(small):
    test = osl.two_sample_test(*small, n_permutations=199, rng=0)
    picture = pictures.picture_null(test)
    assert mark(picture, pictures.Bars).counts.sum() == 199
    assert mark(picture, pictures.Rule).at == test.statistic
    assert picture.x.low < test.statistic < picture.x.high


def test_null_of_all_statistics_is_of_pvalues(small):
    test = osl.two_sample_test(*small, method="auto", n_permutations=199, rng=0)
    picture = pictures.picture_null(test)
    assert picture.x.label == "smallest p-value"
    assert mark(picture, pictures.Bars).counts.sum() == 199
    assert mark(picture, pictures.Rule).at == test.statistic


@pytest.mark.parametrize("control", [None, "gaussian"])
def test_convergence_ends_at_the_estimate(clouds, control):
    est = osl.sliced_wasserstein(*clouds, rtol=1e-3, control=control, rng=0)
    picture = pictures.picture_convergence(est)
    line, band = mark(picture, pictures.Line), mark(picture, pictures.Band)
    assert line.xs[-1] == est.n_directions
    np.testing.assert_allclose(line.ys[-1], est.distance)
    np.testing.assert_allclose((band.low[-1], band.high[-1]), est.distance_interval())


def test_convergence_passes_through_shorter_runs(clouds):
    """At n directions the picture shows what a run with n directions reports."""
    est, shorter = (osl.sliced_wasserstein(*clouds, n_directions=n, control=None, rng=0) for n in (512, 256))
    picture = pictures.picture_convergence(est, level=0.9)
    line, band = mark(picture, pictures.Line), mark(picture, pictures.Band)
    (k,), (j,) = np.flatnonzero(line.xs == 256), np.flatnonzero(band.xs == 256)
    np.testing.assert_allclose(line.ys[k], shorter.distance)
    np.testing.assert_allclose((band.low[j], band.high[j]), shorter.distance_interval(0.9))


def test_many_units_are_thinned_out(small):
    est = osl.sliced_wasserstein(*small, directions="iid", n_directions=3000, rng=0)
    line = mark(pictures.picture_convergence(est), pictures.Line)
    assert len(line.xs) == 200
    assert line.xs[-1] == 3000


def test_a_picture_says_why_it_cannot_be_drawn(small):
    jax = pytest.importorskip("jax")
    x, y = small
    batch = osl.sliced_wasserstein(x, np.stack([y, y]), rng=0)
    gone = jax.jit(lambda x, y: osl.sliced_wasserstein(x, y, rng=0))(x, y)
    for picture in (osl.plot.directions, osl.plot.convergence):
        with pytest.raises(ValueError, match=r"one pair of clouds; got a batch of shape \(2,\)"):
            picture(batch)
        with pytest.raises(ValueError, match="went through a pytree"):
            picture(gone)


def test_no_error_bar_no_band(small):
    est = osl.sliced_wasserstein(*small, directions=np.eye(3))
    picture = pictures.picture_convergence(est)
    assert not [m for m in picture.marks if isinstance(m, pictures.Band)]
    assert osl.plot.convergence(est).lines


def draw_all(x, y, names):
    """Every picture at the size it has by default."""
    sw, pw = (f(x, y, rng=0) for f in (osl.sliced_wasserstein, osl.projected_wasserstein))
    told = osl.explain(x, y, names=names, rng=0)
    yield osl.plot.directions(sw)
    yield osl.plot.directions(pw)
    yield osl.plot.convergence(sw)
    yield osl.plot.bounds(osl.wasserstein_bounds(x, y, rng=0), sliced=sw, projected=pw)
    yield osl.plot.null(osl.two_sample_test(x, y, n_permutations=99, rng=0))
    yield osl.plot.features(told)
    yield osl.plot.quantiles(x, y, told.directions[0], labels=(ANGULAR, "_b_"))


@pytest.mark.parametrize("kind", ["apart", "same", "one point"])
def test_nothing_overlaps_and_nothing_is_cut_off(kind, small):
    x, y = small
    y = {"apart": y, "same": x, "one point": x[:1] + 1}[kind]
    for ax in draw_all(x, y, [ANGULAR, "b" * 200, "c"]):
        figure = ax.figure
        figure.canvas.draw()
        key = ax.get_legend()
        whole, page = ax.get_tightbbox(), figure.bbox
        assert whole.x0 >= page.x0 - 1
        assert whole.y0 >= page.y0 - 1
        assert whole.x1 <= page.x1 + 1
        assert whole.y1 <= page.y1 + 1
        words = [ax._left_title, ax.xaxis.label, ax.yaxis.label, *(() if key is None else [key])]
        boxes = [ax.bbox, *(w.get_window_extent() for w in words if w is key or w.get_text())]
        assert not [k for k, box in enumerate(boxes) if any(box.overlaps(other) for other in boxes[:k])]


def test_pictures_go_where_they_are_told(small):
    _, ax = plt.subplots()
    assert osl.plot.quantiles(*small, np.array([1.0, 0.0, 0.0]), ax=ax) is ax
    assert plt.get_fignums() == [1]
    assert all(line.get_color().lower() in ("#0072b2", "#808080") for line in ax.lines)


def test_units_are_said(small):
    est, test = osl.sliced_wasserstein(*small, rng=0), osl.two_sample_test(*small, n_permutations=9, rng=0)
    assert osl.plot.directions(est, unit="mm").get_xlabel().endswith("(mm)")
    assert osl.plot.convergence(est, unit="mm").get_ylabel().endswith("(mm)")
    assert osl.plot.null(test, unit="mm").get_xlabel().endswith("(mm)")
    assert osl.plot.quantiles(*small, unit="mm", rng=0).get_ylabel() == "y (mm)"
    assert osl.plot.bounds(osl.wasserstein_bounds(*small, rng=0), unit="mm").get_xlabel() == "distance (mm)"


def test_without_matplotlib_it_says_what_to_install(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'orthoslice\[plot\]'"):
        osl.plot.directions(osl.sliced_wasserstein(*small, rng=0))


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import sys, json, orthoslice as osl; osl.plot; "
    code += "print(json.dumps(['matplotlib' in sys.modules, hasattr(osl.plot, 'null')]))"
    environment = {**os.environ, "PYTHONPATH": str(Path(osl.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout) == [False, True]


def test_everything_that_can_be_drawn_is_listed():
    drawn = {name for name, f in vars(osl.plot).items() if callable(f) and not name.startswith("_")}
    assert drawn - {"Any"} == set(osl.plot.__all__)


# In notebooks


def test_results_show_themselves_in_notebooks(small):
    x, y = small
    est, test = osl.sliced_wasserstein(x, y, rng=0), osl.two_sample_test(x, y, n_permutations=99, rng=0)
    bounds, told = osl.wasserstein_bounds(x, y, rng=0), osl.explain(x, y, names=[ANGULAR, "b", "c"], rng=0)
    low, high = est.distance_interval()
    assert f"{est.distance:.6g}" in est._repr_html_()
    assert f"{low:.6g} to {high:.6g}" in est._repr_html_()
    assert f"{bounds.lower:.6g}" in bounds._repr_html_()
    assert "p-value" in test._repr_html_()
    assert "0 of 99 permutations of labels" in test._repr_html_()
    page = told._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; $x_1" in page
    for shown in (est, test, bounds, told):
        text = shown._repr_html_()
        assert "color:" not in text.replace("color:inherit", "")  # of any theme
        assert len(text) < 4000
    assert "Not at all" in osl.explain(x, x, rng=0)._repr_html_()


def test_doubts_are_shown_in_notebooks(small):
    x, y = small
    doubted = osl.projected_wasserstein(x[:10], x[:10] + 1e-4 * y[:10], rng=0)
    assert not doubted.trusted
    assert "NOT to be trusted" in doubted._repr_html_()
    missed = osl.sliced_wasserstein(x, y, rtol=1e-9, n_directions=64, rng=0)
    assert "tolerance was NOT met" in missed._repr_html_()
    assert "none: " in osl.sliced_wasserstein(x, y, directions=np.eye(3))._repr_html_()
    few = osl.two_sample_test(x[:2], y[:2], n_permutations=9, rng=0)
    assert "only 6 labellings" in few._repr_html_()
    batch = osl.sliced_wasserstein(x, np.stack([y, y]), rng=0)
    assert batch._repr_html_().startswith("<pre")
    assert "a batch of shape (2,)" in batch._repr_html_()
