"""Proofs are checked by other code than made them: true ones pass, and no tampered one does."""

from __future__ import annotations

import dataclasses
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from helpers import weights

from orthoslice.clouds.cloud import Cloud
from orthoslice.exact import transport, wasserstein
from orthoslice.exact.verification import accurate_costs, least_slack, lower_bound, rounding, upper_bound


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 20.0])
def test_costs_are_as_accurate_as_they_say(rng, p):
    x = rng.normal(size=(200, 7)) / 20
    y = x + 10.0 ** rng.integers(-9, 0, size=(200, 1)) * rng.normal(size=(200, 7)) / 20
    for cost, a, b in zip(accurate_costs(x, y, p), x.tolist(), y.tolist(), strict=True):
        square = sum((Fraction(s) - Fraction(t)) ** 2 for s, t in zip(a, b, strict=True))
        # The true power in twice the digits: square is exact, and its root is refined by one step of Newton's.
        root = Fraction(math.sqrt(square))
        root = (root + square / root) / 2
        true = root**3 if p in (1.5, 3.0) else root ** int(p)
        found = Fraction(cost) ** 2 if p == 1.5 else Fraction(cost)
        assert abs(found / true - 1) <= (2 if p == 1.5 else 1) * rounding(p)


def test_slack_is_that_of_exact_arithmetic(rng):
    x, y, g = (
        rng.integers(-8, 8, size=(20, 3)) / 64,
        rng.integers(-8, 8, size=(15, 3)) / 64,
        rng.normal(size=15),
    )
    found = least_slack(x, y, 2.0, g)
    for i, low in enumerate(found):
        costs = [
            sum((Fraction(s) - Fraction(t)) ** 2 for s, t in zip(x[i], row, strict=True)) for row in y.tolist()
        ]
        true = min(c - Fraction(v) for c, v in zip(costs, g.tolist(), strict=True))
        assert Fraction(low) <= true
        assert math.isclose(low, float(true), rel_tol=1e-12, abs_tol=1e-13)


def test_any_potentials_and_couplings_give_bounds(rng):
    x, y = rng.normal(size=(30, 2)) / 30, rng.normal(size=(20, 2)) / 30
    a = weights(rng, 30)
    value = wasserstein(x, y, x_weights=a).value
    clouds = Cloud(x, a), Cloud(y)
    for _ in range(20):
        assert lower_bound(*clouds, 2.0, rng.normal(size=20) / 10) <= value
        ix, iy = rng.integers(30, size=40), rng.integers(20, size=40)
        assert upper_bound(*clouds, 2.0, ix, iy, weights(rng, 40), 2**62) >= value


def test_equal_clouds_are_proved_and_powers_that_underflow_are_not_zero(rng):
    x = rng.normal(size=(20, 3)) / 30
    same = wasserstein(x, x[::-1])
    assert same.lower == same.upper == 0
    assert same.verify()
    moved = x[::-1].copy()
    x[0], moved[-1] = (0, 0, 0), (1e-200, 0, 0)
    found = wasserstein(x, moved)
    assert 0 < found.distance <= found.upper
    assert found.verify()
    found.__dict__["upper"] = 0.0
    assert not found.verify()


@pytest.fixture(params=["network simplex", "auction"])
def proved(request, rng, monkeypatch):
    """A true answer of weighted clouds by either method."""
    monkeypatch.setattr(transport, "_MOST_PAIRS", 2**20 if request.param == "network simplex" else 0)
    x, y, a = rng.normal(size=(60, 3)), rng.normal(size=(50, 3)) + 1, weights(rng, 60)
    found = wasserstein(x, y, x_weights=a)
    assert found.method == request.param
    assert found.verify()
    return found


def test_proofs_go_from_process_to_process(proved, rng):
    """Also before anything of them was read, from a line and from an assignment."""
    x = rng.normal(size=(20, 2))
    for found in (proved, wasserstein(x, x + rng.normal(size=(20, 2))), wasserstein(x[:, :1], x[:, 1:])):
        copy = pickle.loads(pickle.dumps(dataclasses.replace(found)))
        assert (copy.lower, copy.upper, copy.method) == (found.lower, found.upper, found.method)
        assert copy.verify()


def test_masses_that_are_off_fail(proved):
    pairs = proved.coupling
    less, moved = pairs.mass.copy(), pairs.iy.copy()
    less[3] *= 1 - 1e-6
    # The same masses of x; a pair of y's points changes places.
    moved[[0, 1]] = moved[[1, 0]] if moved[0] != moved[1] else (moved[0], (moved[1] + 1) % 50)
    negative = pairs.mass.copy()
    negative[0] = -negative[0]
    for wrong in ({"mass": less}, {"iy": moved}, {"mass": negative}, {"ix": np.roll(pairs.ix, 1)}):
        claim = dataclasses.replace(proved, coupling=dataclasses.replace(pairs, **wrong))
        claim.__dict__["upper"] = proved.upper
        assert not claim.verify(), wrong


def test_bounds_that_claim_too_much_fail(proved):
    for change in ({"upper": proved.upper * (1 - 1e-9)}, {"lower": proved.lower * (1 + 1e-9)}):
        claim = dataclasses.replace(proved)
        claim.__dict__.update({"upper": proved.upper, "lower": proved.lower} | change)
        assert not claim.verify()


def test_potentials_that_are_not_feasible_fail(proved):
    g = proved.certificate.g.copy()
    g[7] += 1e-6
    for certificate in (
        dataclasses.replace(proved.certificate, find=lambda: g),
        dataclasses.replace(proved.certificate, at_y=np.roll(proved.certificate.at_y, 1)),
        dataclasses.replace(proved.certificate, at_y=proved.certificate.at_y[[0, *range(49)]]),
    ):
        claim = dataclasses.replace(proved, certificate=certificate)
        claim.__dict__.update({"upper": proved.upper, "lower": proved.lower})
        assert not claim.verify()


def test_other_clouds_fail(proved):
    x, y = proved.certificate.clouds
    moved = y.points.copy()
    moved[11] += 1e-6
    certificate = dataclasses.replace(proved.certificate, clouds=(x, Cloud(moved, y.weights)))
    claim = dataclasses.replace(proved, certificate=certificate)
    claim.__dict__.update({"upper": proved.upper, "lower": proved.lower})
    assert not claim.verify()


@pytest.mark.parametrize("scale", [1e-150, 1e-10, 1.0, 1e10, 1e150])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (6, 1), (6, 3)])
def test_equal_clouds_are_proved_equal(rng, shape, scale):
    x = scale * rng.normal(size=shape)
    for p in (1, 2, 3):
        found = wasserstein(x, x[::-1], p)
        assert found.lower == found.upper == 0
        assert found.verify()
    other = dataclasses.replace(found, coupling=dataclasses.replace(found.coupling, iy=np.zeros(shape[0], int)))
    assert len(x) == 1 or not other.verify()
