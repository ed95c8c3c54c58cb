"""Bounds on W_p hold for certain: a fuzz over problems whose answers are known in exact arithmetic.

Answers are rational: W_p^p on the line and against a single point, the least of all permutations for small
clouds, and the square of the shift for clouds that were moved. Roots of rationals have 200 binary digits.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers import FULL
from thinning import every

import orthoslice as osl

N_PROBLEMS = 10_000 if FULL else 280
# Sizes of clouds that are all alike; the largest takes a second.
SIZES = (1, 2, 3, 10, 100, 1000, 10**4, *((10**5, 10**6) if FULL else ()))


class Problem(NamedTuple):
    """Two clouds, the power `p`, and `cost`: W_p to the power `root`, or to the power `p` where that is 0."""

    kind: str
    x: Any
    y: Any
    p: int
    cost: Fraction
    root: int = 0
    x_weights: Any = None
    y_weights: Any = None


def exact_weights(weights, n):
    if weights is None:
        return [Fraction(1, n)] * n
    total = sum(map(Fraction, weights.tolist()))
    return [Fraction(w) / total for w in weights.tolist()]


def exact_line(x, y, p, x_weights=None, y_weights=None):
    """W_p^p of numbers on the line, by a merge of their quantiles."""
    sides = []
    for values, weights in ((x, x_weights), (y, y_weights)):
        masses = exact_weights(weights, len(values))
        sides.append(sorted(zip(map(Fraction, values), masses, strict=True)))
    (a, b), total = sides, Fraction(0)
    i = j = 0
    left_a, left_b = a[0][1], b[0][1]
    while True:
        mass = min(left_a, left_b)
        total += mass * abs(a[i][0] - b[j][0]) ** p
        left_a, left_b = left_a - mass, left_b - mass
        if left_a == 0:
            i += 1
            if i == len(a):
                return total
            left_a = a[i][1]
        if left_b == 0:
            j += 1
            if j == len(b):
                return total
            left_b = b[j][1]


def exact_root(value: Fraction) -> Fraction:
    """The square root to 200 binary digits."""
    bits = 2 * max(0, 200 + (value.denominator.bit_length() - value.numerator.bit_length()) // 2 + 1)
    return Fraction(math.isqrt((value.numerator << bits) // value.denominator), 1 << (bits // 2))


def squares(x, y):
    exact = [[list(map(Fraction, row)) for row in c.tolist()] for c in (x, y)]
    return [[sum((s - t) ** 2 for s, t in zip(a, b, strict=True)) for b in exact[1]] for a in exact[0]]


def numbers(rng, shape):
    """Of one scale, of several, or with ties; sometimes from one end of the range to the other."""
    kind = rng.integers(5)
    if kind == 0:
        return rng.normal(size=shape)
    if kind == 1:
        return rng.integers(-3, 4, size=shape) / 8
    if kind == 2:
        return 1e6 + rng.normal(size=shape)
    exponent = (
        rng.integers(-300, 300, size=(shape[0], 1)) if kind == 3 else rng.choice([-300, -160, 0, 150, 300])
    )
    return rng.normal(size=shape) * 10.0**exponent


def some_weights(rng, n):
    if n == 1 or rng.random() < 0.4:
        return None
    counts = rng.integers(1, 5, size=n)
    return (counts / counts.sum() if rng.random() < 0.7 else rng.dirichlet(np.ones(n))).astype(float)


def share_rows(rng, x, y):
    """Rows that both clouds have, far out or not."""
    k = int(rng.integers(0, min(len(x), len(y)) + 1))
    y[:k] = x[rng.permutation(len(x))[:k]]
    return y


def line(rng):
    n, m = (int(k) for k in rng.integers(1, 7, size=2))
    x, y = numbers(rng, (n, 1)), numbers(rng, (m, 1))
    y = share_rows(rng, x, y) if rng.random() < 0.5 else y
    a, b, p = some_weights(rng, n), some_weights(rng, m), int(rng.integers(1, 4))
    return Problem("line", x, y, p, exact_line(x[:, 0].tolist(), y[:, 0].tolist(), p, a, b), 0, a, b)


def permutations(rng):
    n, dim, p = int(rng.integers(1, 5)), int(rng.integers(2, 4)), int(rng.integers(1, 3))
    x, y = numbers(rng, (n, dim)), numbers(rng, (n, dim))
    y = share_rows(rng, x, y) if rng.random() < 0.5 else y
    if rng.random() < 0.2:
        y = x + rng.choice([1e-9, 1e-15]) * rng.normal(size=x.shape) * np.abs(x)
    square = squares(x, y)
    price = square if p == 2 else [[exact_root(v) for v in row] for row in square]
    cost = min(sum(price[i][j] for i, j in enumerate(order)) for order in itertools.permutations(range(n)))
    return Problem("permutations", x, y, p, cost / n)


def single_point(rng):
    n, dim, p = int(rng.integers(1, 9)), int(rng.integers(2, 6)), int(rng.integers(1, 3))
    x, y, b = numbers(rng, (1, dim)), numbers(rng, (n, dim)), some_weights(rng, n)
    row = squares(x, y)[0]
    prices = row if p == 2 else [exact_root(v) for v in row]
    cost = sum(w * v for w, v in zip(exact_weights(b, n), prices, strict=True))
    return Problem("single point", x, y, p, cost, 0, None, b)


def moved(rng):
    """A cloud and its copy elsewhere: every coordinate and shift is a whole number, so nothing is rounded."""
    n, dim = int(rng.integers(1, 40)), int(rng.integers(1, 9))
    x = rng.integers(-1000, 1000, size=(n, dim)) + rng.integers(0, 2) * 1_700_000_000
    shift = rng.integers(-50, 51, size=dim) * 10 ** int(rng.integers(0, 6))
    weights = some_weights(rng, n) if rng.random() < 0.4 else None
    order = np.arange(n) if weights is not None else rng.permutation(n)
    x, y, scale = x, (x + shift)[order], Fraction(1)
    kind = rng.integers(3)
    if kind == 1:
        x, y, weights = torch.tensor(x), torch.tensor(y), None if weights is None else torch.tensor(weights)
    elif kind == 2:
        power = int(rng.choice([-1000, -500, 0, 500]))
        x, y, scale = x * 2.0**power, y * 2.0**power, Fraction(2) ** power
    square = sum(Fraction(int(s)) ** 2 for s in shift) * scale**2
    return Problem("moved", x, y, int(rng.integers(1, 4)), square, 2, weights, weights)


def constant(rng):
    """Many equal points against as many others."""
    n, dim = (
        int(rng.choice(SIZES)) if rng.random() < 0.1 else int(rng.integers(1, 2000)),
        int(rng.integers(1, 4)),
    )
    c = rng.normal(size=dim) * 10.0 ** rng.choice([-200, 0, 0, 0, 150])
    weights = rng.dirichlet(np.ones(n)) if n > 1 and rng.random() < 0.4 else None
    square = sum(Fraction(v) ** 2 for v in c.tolist())
    return Problem(
        "constant", np.zeros((n, dim)), np.tile(c, (n, 1)), int(rng.integers(1, 3)), square, 2, weights
    )


FAMILIES = (line, line, permutations, permutations, single_point, moved, constant)


def problems(numbers):
    for k in numbers:
        rng = np.random.default_rng([10, k])
        yield k, FAMILIES[k % len(FAMILIES)](rng)


def bound(problem, k):
    options = {"n_directions": (None, 8, 3)[k % 3], "rng": k, "workers": 1}
    weights = {"x_weights": problem.x_weights, "y_weights": problem.y_weights}
    return osl.wasserstein_bounds(problem.x, problem.y, problem.p, **weights, **options)


def holds(problem, lower, upper):
    """Whether lower <= W_p <= upper; roots are known to 60 digits."""
    power = problem.root or problem.p
    hair = Fraction(1, 10**50)
    below = Fraction(lower) ** power <= problem.cost * (1 + hair)
    return below and Fraction(upper) ** power >= problem.cost * (1 - hair)


def violations(numbers, tighten=0.0):
    found = []
    for k, problem in problems(numbers):
        b = bound(problem, k)
        if not holds(problem, b.lower * (1 + tighten), b.upper * (1 - tighten)):
            found.append((k, problem.kind, b))
    return found


@pytest.mark.parametrize("part", every(2, range(2)))
def test_none_is_violated(part):
    half = N_PROBLEMS // 2
    assert violations(range(part * half, (part + 1) * half)) == []


def test_tighter_bounds_would_be_violated():
    """Negative control: 1e-9 is more than most bounds have to spare on the line."""
    found = violations(range(140), tighten=1e-9)
    assert {"line", "moved", "constant", "single point"} <= {kind for _, kind, _ in found}


def test_slack_is_needed(monkeypatch):
    """Negative control: without allowance for rounding some bound is false."""
    monkeypatch.setattr("orthoslice.applications.bounds._EPS", 0.0)
    monkeypatch.setattr("orthoslice.applications.bounds._down", lambda value: value)
    assert violations(range(140))


@pytest.mark.thin
@pytest.mark.parametrize("p", [1, 2, 50])
@pytest.mark.parametrize("n", [10, 10**5])
def test_sums_in_sequence_are_allowed_for(n, p):
    """In the plane scores are sums over all points, and their errors add up."""
    x, shift = np.zeros((n, 2)), np.array([0.3, 0.4])
    bounds = osl.wasserstein_bounds(x, x + shift, p, rng=0, n_directions=8)
    assert (
        Fraction(bounds.lower) ** 2
        <= sum(Fraction(s) ** 2 for s in shift.tolist())
        <= Fraction(bounds.upper) ** 2
    )
    assert bounds.upper - bounds.lower < 1e-9


def test_a_million_points_on_a_line():
    for c in (0.1, 1 / 3):
        bounds = osl.wasserstein_bounds(np.zeros((10**6, 1)), np.full((10**6, 1), c), 1, rng=0)
        assert bounds.lower <= c <= bounds.upper
        assert bounds.upper - bounds.lower < 1e-12


def test_bounds_stay_tight_across_scales():
    """A shared point that is hundreds of orders of magnitude away changes next to nothing."""
    x, y = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[1e-162, 0.0], [1.0, 1.0]])
    bounds = osl.wasserstein_bounds(x, y, rng=0)
    assert 0 < bounds.lower <= 1e-162 / math.sqrt(2) <= bounds.upper < 1.001 * bounds.lower
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 2)), rng.normal(size=(5, 2)) + 1
    for far in (1e20, 1e300, -1.7e308):
        x[0] = y[0] = far
        bounds = osl.wasserstein_bounds(x, y, rng=0)
        exact = osl.wasserstein(x, y).distance
        assert 0.8 * exact < bounds.lower <= exact * (1 + 1e-14)
        assert exact * (1 - 1e-14) <= bounds.upper < 1.5 * exact


def test_memory_and_workers_are_those_of_the_matching_too(rng, monkeypatch):
    seen = {}

    def spy(*arguments, **options):
        seen.update(options)
        return osl.match(*arguments, **options)

    monkeypatch.setattr("orthoslice.applications.bounds.match", spy)
    osl.wasserstein_bounds(rng.normal(size=(30, 3)), rng.normal(size=(20, 3)), rng=0, memory="3MB", workers=1)
    assert (seen["memory"], seen["workers"]) == ("3MB", 1)
