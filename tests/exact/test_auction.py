"""W by auction: against other exact solvers, in any memory, stopped early, and certificates that can fail."""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time

import numpy as np
import pytest
from helpers import FULL, weights

import orthoslice as osl
from orthoslice.exact import auction, transport, wasserstein
from orthoslice.exact.auction import Limits, solve
from orthoslice.exact.certificate import Problem, line_potential, transform
from orthoslice.exact.simplex import settle

N_PROBLEMS = 1000 if FULL else 150


@pytest.fixture
def only_auctions(monkeypatch):
    """Small problems by auction too."""
    monkeypatch.setattr(transport, "_MOST_PAIRS", 0)


def random_clouds(rng):
    """Clouds with ties, heavy tails, a far origin or many scales, from 1e-150 to 1e150, some in float32."""
    n, m = (int(k) for k in rng.integers(2, 40, size=2))
    m = n if rng.random() < 0.4 else m
    dim, kind = int(rng.integers(2, 6)), rng.integers(5)
    x, y = rng.normal(size=(n, dim)), rng.normal(size=(m, dim)) + 0.5
    if kind == 1:
        x, y = (rng.integers(0, 3, size=c.shape).astype(float) for c in (x, y))
    elif kind == 2:
        x, y = (c / np.sqrt(rng.random((len(c), 1))) for c in (x, y))
    elif kind == 3:
        x, y = x + 1e6, y + 1e6
    elif kind == 4:
        x, y = (c * 10.0 ** rng.integers(-3, 4, size=(len(c), 1)) for c in (x, y))
    scale = 10.0 ** rng.choice([0, -150, 150, -20, 30])
    dtype = np.float32 if rng.random() < 0.3 and 1e-30 < scale < 1e30 else np.float64
    return (x * scale).astype(dtype), (y * scale).astype(dtype)


def random_weights(rng, n):
    """None, counts with zeros, or anything."""
    kind = rng.integers(4)
    if kind < 2:
        return None
    given = rng.integers(0, 4, size=n).astype(float) if kind == 2 else rng.dirichlet(np.ones(n))
    given[0] += given.sum() == 0
    return given / given.sum()


def test_brackets_hold_on_random_problems(rng, only_auctions, monkeypatch):
    for _ in range(N_PROBLEMS):
        x, y = random_clouds(rng)
        options = {"x_weights": random_weights(rng, len(x)), "y_weights": random_weights(rng, len(y))}
        p, rtol = float(rng.choice([1, 1.5, 2, 3])), float(rng.choice([0, 1e-3, 0.05]))
        found = wasserstein(x, y, p, rtol=rtol, **options)
        with monkeypatch.context() as patch:
            patch.setattr(transport, "_MOST_PAIRS", 2**20)
            true = wasserstein(x, y, p, **options).distance
        assert found.lower <= true * (1 + 1e-12)
        assert found.upper >= true * (1 - 1e-12)
        assert found.upper <= (1 + max(rtol, 1e-9)) * found.lower or found.upper == 0
        assert found.verify()


@pytest.mark.parametrize("seed", [34, 103, 214, 233, 291, 357, 391, 425])
def test_rows_in_several_pieces_keep_their_slackness(only_auctions, seed):
    """A row that leaves one of its columns still holds the others, at no more than they are worth to it."""
    rng = np.random.default_rng(seed)
    (n, m), dim = rng.integers(5, 40, size=2), int(rng.integers(2, 6))
    x, y = (rng.integers(0, 3, size=(k, dim)).astype(float) for k in (n, m))
    a, b = (rng.integers(0, 4, size=k).astype(float) for k in (n, m))
    for p in (1.0, 3.0):
        found = wasserstein(x, y, p, x_weights=a / a.sum(), y_weights=b / b.sum())
        assert found.lower > (1 - 1e-9) * found.upper


def test_lists_know_of_columns_that_became_cheaper(rng, only_auctions, monkeypatch):
    """After columns bid, nothing outside a row's list is cheaper than its bound, and lists have true costs."""
    monkeypatch.setattr(auction, "_SHORT_LIST", 3)
    monkeypatch.setattr(auction, "_BIDDING", 10**6)
    fill_room, taken = auction.fill_room, []

    def checked(costs, price, lists, *rest):
        before = lists.columns.copy()
        fill_room(costs, price, lists, *rest)
        total = costs.table + price
        here = np.arange(len(total))[:, None]
        assert np.allclose(lists.near, costs.table[here, lists.columns], rtol=1e-12)
        total[here, lists.columns] = np.inf
        assert (lists.bound <= total.min(axis=1) + 1e-12).all()
        assert all(len(set(row)) == 3 for row in lists.columns.tolist())
        taken.append((before != lists.columns).sum())

    monkeypatch.setattr(auction, "fill_room", checked)
    for _ in range(10):
        x, y = rng.standard_t(1.5, size=(120, 2)), rng.standard_t(1.5, size=(90, 2))
        wasserstein(x, y)
    assert sum(taken) > 100


@pytest.mark.parametrize("memory", [10**5, 10**9])
@pytest.mark.parametrize("shape", [(300, 300), (300, 200), (150, 260)])
def test_costs_in_memory_or_worked_out_anew(rng, only_auctions, memory, shape):
    x, y = rng.normal(size=(shape[0], 3)), rng.normal(size=(shape[1], 3)) + 1
    found = wasserstein(x, y, memory=memory)
    assert found.method == "auction"
    assert found.converged
    assert math.isclose(found.distance, reference(x, y), rel_tol=1e-12)
    assert found.lower > (1 - 1e-10) * found.upper


def reference(x, y, p=2.0, x_weights=None, y_weights=None):
    import ot

    cost = np.linalg.norm(x[:, None] - y, axis=-1) ** p
    a, b = (np.empty(0) if w is None else w for w in (x_weights, y_weights))
    return float(ot.emd2(a, b, cost, numItermax=10**7)) ** (1 / p)


def test_larger_problems_are_exact_by_default(rng):
    x, y = rng.normal(size=(1100, 5)), 1.3 * rng.normal(size=(1100, 5)) + 0.3
    found = wasserstein(x, y, 1)
    assert found.method == "auction"
    assert math.isclose(found.distance, reference(x, y, 1.0), rel_tol=1e-12)
    assert sorted(found.coupling.ix) == sorted(found.coupling.iy) == list(range(1100))


def test_heavy_tails_take_paths_or_the_simplex(rng, monkeypatch):
    """Where bids go on and on, something else takes over: without any bids the answer is the same."""
    x, y = (rng.standard_t(1.5, size=(200, 2)) for _ in range(2))
    ones = np.ones(200, dtype=np.int64)
    problem = Problem(x / 1e6, y / 1e6, ones, ones, 2.0)
    answers = []
    for bidding, memory in ((0, 10**5), (0, 10**8), (10**6, 10**5)):
        monkeypatch.setattr(auction, "_BIDDING", bidding)
        monkeypatch.setattr(auction, "_BIDDING_AGAIN", bidding)
        monkeypatch.setattr(auction, "_BIDDING_FIRST", bidding)
        solution = solve(problem, Limits(0.0, math.inf), memory)
        assert solution.lower > (1 - 1e-9) * solution.cost
        answers.append(solution.cost)
    assert math.isclose(answers[0], answers[1], rel_tol=1e-12)
    assert math.isclose(answers[0], answers[2], rel_tol=1e-12)


@pytest.mark.parametrize("many_bids", [-1, 10**9])
@pytest.mark.parametrize("bidding", [0, 1, 10**9])
def test_weights_go_on_from_where_bids_ended(rng, only_auctions, monkeypatch, many_bids, bidding):
    """In the middle of a level, after one, or never."""
    monkeypatch.setattr(auction, "_BIDDING_FIRST", bidding)
    monkeypatch.setattr(auction, "_MANY_BIDS", many_bids)
    ends = []
    monkeypatch.setattr(auction, "settle", lambda *given: ends.append(given) or settle(*given))
    x, y = rng.normal(size=(150, 3)), 1.3 * rng.normal(size=(90, 3)) + 0.3
    given = {"x_weights": weights(rng, 150), "y_weights": weights(rng, 90)}
    found = wasserstein(x, y, **given)
    assert math.isclose(found.distance, reference(x, y, 2.0, **given), rel_tol=1e-9)
    assert found.upper - found.lower < 1e-7 * found.upper
    assert found.verify()
    # Every end was a coupling of all masses.
    assert bool(ends) == (bidding < 2 or many_bids < 0)
    for _, a, b, _, (placed, _, _) in ends:
        for at, whole in ((placed.ix, a), (placed.iy, b)):
            moved = np.zeros_like(whole)
            np.add.at(moved, at, placed.mass)
            assert (moved == whole).all()


def test_pieces_grow_when_masses_split(rng, monkeypatch):
    monkeypatch.setattr(auction, "_SPARE_PIECES", 0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(50, 2))
    a, b = (np.rint(1e6 * weights(rng, n)).astype(np.int64) for n in (60, 50))
    a[0] += b.sum() - a.sum()
    solution = solve(Problem(x / 100, y / 100, a, b, 2.0), Limits(0.0, math.inf), 10**8)
    ix, iy, mass = solution.placed
    assert (np.bincount(ix, mass, 60) == a).all()
    assert (np.bincount(iy, mass, 50) == b).all()
    assert solution.lower > (1 - 1e-9) * solution.cost


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_potentials_are_feasible_and_attain_the_value(rng, p):
    x, y = rng.normal(size=(40, 3)), rng.normal(size=(30, 3)) + 1
    a, b = np.append(weights(rng, 39), 0.0), weights(rng, 30)
    for options in ({}, {"x_weights": a, "y_weights": b}):
        found = wasserstein(x, y, p, **options)
        f, g = found.potentials
        slack = np.linalg.norm(x[:, None] - y, axis=-1) ** p - f[:, None] - g
        assert slack.min() > -1e-12 * found.value
        mass_x, mass_y = (options.get(f"{c}_weights", np.full(n, 1 / n)) for c, n in (("x", 40), ("y", 30)))
        assert math.isclose(f @ mass_x + g @ mass_y, found.value, rel_tol=1e-9)


def test_potentials_on_the_line(rng):
    x, y = np.sort(rng.normal(size=(50, 1)), axis=0), np.sort(rng.normal(size=(50, 1)), axis=0) + 0.2
    ones, order = np.ones(50, dtype=np.int64), np.arange(50)
    problem = Problem(x, y, ones, ones, 2.0)
    g = line_potential(problem, order, order)
    value = transform(problem, -g).mean() + g.mean()
    assert math.isclose(value, float(((x - y) ** 2).mean()), rel_tol=1e-10)
    assert wasserstein(x, y).verify()


def test_certificates_that_claim_too_much_fail(rng, only_auctions):
    x, y = rng.normal(size=(300, 3)), rng.normal(size=(300, 3)) + 1
    found = wasserstein(x, y, rtol=0.01)
    assert found.verify()
    assert not dataclasses.replace(found, proved=found.lower * 1.001).verify()
    wrong = dataclasses.replace(found.coupling, iy=np.roll(found.coupling.iy, 1))
    better = dataclasses.replace(found, coupling=wrong)
    better.__dict__["upper"] = found.upper
    assert not better.verify()
    doubled = dataclasses.replace(found.coupling, iy=np.zeros_like(found.coupling.iy))
    assert not dataclasses.replace(found, coupling=doubled).verify()


def test_a_time_limit_gives_the_bracket_so_far(rng):
    x, y = rng.normal(size=(1500, 2)), rng.normal(size=(1500, 2))
    early, exact = wasserstein(x, y, time_limit=1e-9), wasserstein(x, y)
    assert not early.converged
    assert early.lower <= exact.distance <= early.upper
    assert early.upper > 1.01 * early.lower
    assert early.verify()
    assert "stopped early" in repr(early)
    bounds = osl.wasserstein_bounds(x, y, time_limit=1e-9, rng=0)
    assert not bounds.converged
    assert early.lower <= bounds.lower <= exact.distance <= bounds.upper <= early.upper


def test_ctrl_c_gives_the_bracket_so_far(rng):
    x, y = rng.normal(size=(3000, 2)), rng.normal(size=(3000, 2))
    wasserstein(x[:600], y[:600])  # compiled
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
    timer.start()
    start = time.monotonic()
    found = wasserstein(x, y)
    timer.join()
    assert signal.getsignal(signal.SIGINT) is before
    assert not found.converged or time.monotonic() - start < 0.05
    assert found.lower <= found.upper


def test_bounds_are_as_narrow_as_asked_for(rng):
    x, y = rng.normal(size=(400, 8)), rng.normal(size=(300, 8)) + 0.5
    wide, narrow = osl.wasserstein_bounds(x, y, rng=0), osl.wasserstein_bounds(x, y, rtol=1e-3)
    assert narrow.upper <= 1.001 * narrow.lower
    assert wide.lower <= narrow.upper
    assert narrow.lower <= wide.upper
    assert narrow.verify()
    assert narrow.potentials[0].shape == (400,)
    with pytest.raises(ValueError, match="if `rtol` is given"):
        wide.verify()


def test_duplicates_become_one_point(rng, only_auctions):
    x, y = rng.integers(0, 4, size=(2, 900, 3)).astype(float)
    found = wasserstein(x, y)
    assert found.method == "auction"
    assert math.isclose(found.distance, reference(x, y), rel_tol=1e-9)
    assert found.verify()
    many = np.zeros((12_000, 2))
    assert wasserstein(many, many).distance == 0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"rtol": -1}, "`rtol` must be"),
        ({"rtol": "1%"}, "`rtol` must be"),
        ({"time_limit": 0}, "`time_limit` must"),
    ],
)
def test_bad_options_are_named(option, message):
    with pytest.raises(ValueError, match=message):
        wasserstein(np.zeros((3, 2)), np.ones((3, 2)), **option)
