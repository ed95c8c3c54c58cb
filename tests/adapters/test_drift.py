"""A drift detector: its false-alarm rate, its power, and what it asks for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import orthoslice as osl
from orthoslice.adapters import DriftDetector

LAWS = {
    "normal": lambda rng, n: rng.normal(size=(n, 3)),
    "heavy tails": lambda rng, n: rng.standard_t(2.5, size=(n, 3)) * [1, 10, 100],
    "ties": lambda rng, n: rng.integers(0, 3, size=(n, 3)).astype(float),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [None, "standard"])
def test_false_alarms_and_power(law, scale):
    """400 references of 10 batches, a batch each: outside these counts once in ten thousand seeds, if exact."""
    draw, rate, n, size = LAWS[law], 0.1, 108, 8
    alarms = drifts = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        options = {"scale": scale, "n_splits": 59, "n_directions": 6, "rng": seed, "workers": 1}
        detector = DriftDetector(size, false_alarm_rate=rate, **options).fit(draw(rng, n))
        alarms += detector.predict(draw(rng, size)).is_drift
        if seed < 20:
            drifts += detector.predict(draw(rng, size) + 3 * np.array([1, 10, 100])).is_drift
    assert alarms <= binom.isf(1e-4, 400, rate)
    if law != "ties":
        assert alarms >= binom.ppf(1e-4, 400, rate)
    # Negative control: what drifts is noticed.
    assert drifts >= 18


def test_threshold_and_pvalue_agree(rng):
    detector = DriftDetector(20, n_splits=99, n_directions=8, rng=1).fit(rng.normal(size=(200, 2)))
    seen = set()
    for shift in np.linspace(0, 1.2, 25):
        found = detector.predict(rng.normal(size=(20, 2)) + shift)
        assert found.is_drift == (found.pvalue <= 0.05) == (found.statistic > found.threshold)
        assert found.threshold == detector.threshold
        seen.add(found.is_drift)
    assert seen == {True, False}


def test_the_threshold_is_that_of_random_splits(rng):
    """By hand: batches that are left out of the reference, against the rest."""
    points = rng.normal(size=(120, 2))
    detector = DriftDetector(10, false_alarm_rate=0.2, n_splits=999, n_directions=8, rng=1).fit(points)
    splits = [rng.permutation(120) for _ in range(400)]
    parts = [(points[split[10:]], points[split[:10]]) for split in splits]
    by_hand = [osl.sliced_wasserstein(*part, 1, n_directions=8, rng=1).distance for part in parts]
    # 400 splits: five standard errors of the share beyond the threshold.
    beyond = np.mean(np.array(by_hand) > detector.threshold)
    assert abs(beyond - 0.2) < 5 * np.sqrt(0.16 / 400)


def test_the_statistic_is_a_distance(rng):
    points, batch = rng.normal(size=(120, 2)), rng.normal(size=(10, 2))
    detector = DriftDetector(10, p=2, n_splits=19, n_directions=8, rng=1).fit(points)
    expected = osl.sliced_wasserstein(points[10:], batch, 2, n_directions=8, rng=1).distance
    np.testing.assert_allclose(detector.predict(batch).statistic, expected, rtol=1e-9)


def test_scales_of_the_reference(rng):
    """In common units a drift of the small feature is seen; in those it came in it is not."""
    reference, batch = rng.normal(size=(600, 2)) * [1, 1000], rng.normal(size=(40, 2)) * [1, 1000] + [2, 0]
    for scale, seen in ((None, False), ("standard", True), ("whiten", True)):
        detector = DriftDetector(40, scale=scale, n_splits=99, rng=0).fit(reference)
        assert detector.predict(batch).is_drift == seen


def test_frames_and_other_libraries(rng):
    torch = pytest.importorskip("torch")
    points, batch = rng.normal(size=(120, 2)) * [1, 5], rng.normal(size=(10, 2)) * [1, 5]
    options = {"n_splits": 19, "n_directions": 8, "rng": 1}
    expected = DriftDetector(10, **options).fit(points).predict(batch)
    frames = DriftDetector(10, **options).fit(pd.DataFrame(points, columns=["a", "b"]))
    assert frames.predict(pd.DataFrame(batch[:, ::-1], columns=["b", "a"])) == expected
    with pytest.raises(ValueError, match="only `x` has 'b' and only `y` has 'c'"):
        frames.predict(pd.DataFrame(batch, columns=["a", "c"]))
    assert DriftDetector(10, **options).fit(torch.tensor(points)).predict(torch.tensor(batch)) == expected


def test_words(rng):
    detector = DriftDetector(10, rng=0, n_splits=19)
    assert "not fitted" in repr(detector)
    detector.fit(rng.normal(size=(120, 2)))
    assert "threshold 0." in repr(detector)
    assert repr(detector.predict(rng.normal(size=(10, 2)) + 9)).startswith("Drift(drift: ")


def test_refusals(rng):
    points = rng.normal(size=(120, 2))
    with pytest.raises(ValueError, match=r"call `fit\(reference\)` first"):
        DriftDetector(10).predict(points[:10])
    with pytest.raises(ValueError, match="10 times the points of a batch or more, 200; got 120"):
        DriftDetector(20).fit(points)
    with pytest.raises(ValueError, match="or more besides the 30 that set the units, 100; got 90"):
        DriftDetector(10, scale="standard").fit(points)
    with pytest.raises(ValueError, match=r"must be 99 or more for a false-alarm rate of 0\.01; got 98"):
        DriftDetector(20, false_alarm_rate=0.01, n_splits=98)
    assert DriftDetector(20, false_alarm_rate=0.01, n_splits=99).n_splits == 99
    with pytest.raises(ValueError, match="between 0 and 1"):
        DriftDetector(20, false_alarm_rate=1.5)
    with pytest.raises(ValueError, match="`scale` must be 'standard' or 'whiten'"):
        DriftDetector(20, scale="robust")
    with pytest.raises(ValueError, match="`batch` must have 10 points, for which the threshold holds; got 11"):
        DriftDetector(10, n_splits=19).fit(points).predict(points[:11])
