"""Estimates as numbers."""

from __future__ import annotations

import numpy as np
import pytest

import orthoslice as osl


def test_an_estimate_is_its_distance_as_a_number(backend, rng):
    x, y = rng.normal(size=(40, 3)), rng.normal(size=(50, 3)) + 2
    near, far = (osl.sliced_wasserstein(backend.asarray(x), backend.asarray(z), rng=0) for z in (y, y + 5))
    distance = float(near.distance)
    assert float(near) == distance
    assert round(near, 2) == round(distance, 2)
    assert round(near) == round(distance)
    assert f"{near:.3f}" == f"{distance:.3f}"
    assert f"{near}" == str(near)
    assert near < distance + 1
    assert near <= distance <= near
    assert np.float64(distance + 1) > near > distance - 1
    assert near >= distance
    assert max(far, near) is far
    assert sorted([far, near]) == [near, far]


def test_what_is_not_one_number_is_refused(rng):
    x, y = rng.normal(size=(2, 40, 3)), rng.normal(size=(50, 3))
    est = osl.sliced_wasserstein(x, y, rng=0)
    for use in (float, round, lambda e: f"{e:.3f}", lambda e: e < 6):
        with pytest.raises(TypeError, match=r"a batch is not one number: read `distance`, of shape \(2,\)"):
            use(est)
    with pytest.raises(TypeError, match="not supported between"):
        _ = osl.sliced_wasserstein(x[0], y) < "six"
