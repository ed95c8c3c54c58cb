"""W by the algorithm for GPUs: on one, or in host memory, by plain code and by kernels made for the host."""

from __future__ import annotations

import contextlib
import math
import time

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from orthoslice import wasserstein, wasserstein_bounds
from orthoslice.backend import stopping
from orthoslice.exact import on_device, transport, verification
from orthoslice.exact.certificate import Problem, transform
from orthoslice.exact.on_device import solve, transform_on
from orthoslice.exact.simplex import Limits

torch = pytest.importorskip("torch")

KINDS = ["normal", "clusters", "heavy tails", "one law", "grid"]


@pytest.fixture(autouse=True)
def one_thread():
    """Steps are short: threads of torch that wait for each other take longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def clouds(rng, kind, n, dim):
    x, y = rng.normal(size=(n, dim)), rng.normal(size=(n, dim))
    if kind != "one law":
        y = 1.3 * y + 0.3
    if kind == "clusters":
        x, y = (c + 8 * rng.normal(size=(20, dim))[rng.integers(20, size=n)] for c in (x, y))
    elif kind == "heavy tails":
        x, y = (c / np.sqrt(rng.exponential(size=(n, 1))) for c in (x, y))
    elif kind == "grid":
        # Many costs tie, no points do.
        side = math.ceil(n ** (1 / dim))
        grid = np.stack(np.meshgrid(*[np.arange(side)] * dim), axis=-1).reshape(-1, dim)
        x, y = (grid[rng.permutation(len(grid))[:n]] + shift for shift in (0.0, 0.5))
    return x, y


def problem(x, y, p):
    unit = float(np.ptp(np.concatenate([x, y]), axis=0).max()) * math.sqrt(x.shape[1])
    ones = np.ones(len(x), dtype=np.int64)
    return Problem(x / unit, y / unit, ones, ones, p)


def least_cost(given):
    costs = cdist(given.x, given.y) ** given.p
    return costs[linear_sum_assignment(costs)].mean()


@pytest.fixture(params=["reference", "cuda"])
def place(request, cuda_device, monkeypatch):
    """Where it runs, by plain code or by kernels."""
    if request.param == "cuda":
        monkeypatch.setattr(on_device, "cuda_refusal", lambda *_, **__: None)
        yield cuda_device
    else:
        with plain():
            yield cuda_device


@pytest.fixture
def taken(kernel_device, monkeypatch):
    """Tensors are taken for such on a GPU, wherever they are."""
    for module in (transport, on_device):
        monkeypatch.setattr(module, "cuda_refusal", lambda *_, **__: None)
    monkeypatch.setattr(transport, "is_on_gpu", lambda array: isinstance(array, torch.Tensor))
    return kernel_device


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dim", "p"), [(2, 1.0), (3, 2.0), (16, 2.0), (5, 1.5), (2, 3.0)])
@pytest.mark.thin
def test_the_bracket_holds_the_least_cost_and_is_narrow(rng, kind, dim, p):
    x, y = clouds(rng, kind, 256, dim)
    given = problem(x, y, p)
    found = solve(given, Limits(1e-3, math.inf), 1 << 24, "cpu")
    true = least_cost(given)
    assert sorted(found.partner.tolist()) == list(range(256))
    assert found.lower <= true * (1 + 1e-12)
    assert found.cost >= true * (1 - 1e-12)
    assert found.is_done
    assert found.cost - found.lower <= 1e-3 * found.cost


def test_many_points_are_warmed_by_some_of_them(rng, monkeypatch):
    monkeypatch.setattr(on_device, "_MOST_WARMED", 200)
    monkeypatch.setattr(on_device, "_FEW_WARMED", 100)
    seen = []
    soft = on_device._soft_totals

    def counted(x, y, *rest):
        seen.append((x.n, y.n))
        return soft(x, y, *rest)

    monkeypatch.setattr(on_device, "soft_totals", counted)
    given = problem(*clouds(rng, "normal", 300, 3), 2.0)
    found = solve(given, Limits(1e-3, math.inf), 1 << 24, "cpu")
    true = least_cost(given)
    assert found.lower <= true * (1 + 1e-12)
    assert true * (1 - 1e-12) <= found.cost <= found.lower / (1 - 1e-3)
    assert seen[0] == (100, 100)
    assert seen.count((300, 100)) == 1
    assert seen[-1] == (300, 300)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(("kind", "dim", "p"), [("normal", 3, 2.0), ("heavy tails", 2, 1.0)])
def test_kernels_find_what_plain_code_does(rng, kind, dim, p, place):
    given = problem(*clouds(rng, kind, 150, dim), p)
    found = solve(given, Limits(1e-2, math.inf), 1 << 24, place)
    true = least_cost(given)
    assert sorted(found.partner.tolist()) == list(range(150))
    assert found.lower <= true * (1 + 1e-12)
    assert found.cost >= true * (1 - 1e-12)
    assert found.cost - found.lower <= 1e-2 * found.cost


@pytest.mark.usefixtures("empty_is_nan")
def test_rounds_are_the_same_however_they_are_played(rng, cuda_device, monkeypatch):
    """By plain code, many rows at once, and a single block; with ties and lists that become too dear."""
    n, size, eps = 300, 3, 1e-3
    columns = np.stack([rng.permutation(n)[:size] for _ in range(n)])
    near, ends = rng.integers(1, 9, size=(n, size)) / 8, []
    for name, few in (("reference", 0), ("cuda", 0), ("cuda", n)):
        monkeypatch.setattr(on_device.sweep, "FEW_BIDDERS", few)
        lists = on_device.Lists(
            torch.tensor(columns, dtype=torch.int32, device=cuda_device),
            torch.tensor(near, device=cuda_device),
            torch.full((n,), 1.5, dtype=torch.float64, device=cuda_device),
        )
        price = torch.zeros(n, dtype=torch.float64, device=cuda_device)
        owner, column = (torch.full((n,), -1, dtype=torch.int32, device=cuda_device) for _ in range(2))
        hall = on_device.new_hall(price, owner, column, eps)
        hall.queue[0] = torch.arange(n, dtype=torch.int32)
        hall.counts[0] = n
        play = {"reference": on_device._play, "cuda": on_device._play_cuda}[name]
        for _ in range(20):
            play(None, lists, hall, 8, int(hall.counts[0]))
        left, _, n_stale = hall.counts.tolist()
        ends.append([a.cpu().numpy() for a in (price, owner, column, hall.stale[:n_stale].sort().values)])
        assert (ends[-1][2] >= 0).sum() + left + n_stale == n
    for end in ends[1:]:
        for one, other in zip(ends[0], end, strict=True):
            np.testing.assert_array_equal(one, other)
    price, owner, column, stale = ends[0]
    has = np.flatnonzero(column >= 0)
    assert (owner[column[has]] == has).all()
    values = near + price[columns]
    own = np.where(columns[has] == column[has, None], values[has], np.inf).min(axis=1)
    assert (own <= values[has].min(axis=1) + eps + 1e-12).all()
    assert len(stale) > 0
    assert (values[stale].min(axis=1) > 1.5).all()


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_tensors_get_a_proof_that_is_checked_on_the_device(rng, kind, taken, monkeypatch):
    monkeypatch.setattr(transport, "_MOST_PAIRS", 10_000)
    x, y = (torch.tensor(c, dtype=getattr(torch, kind), device=taken) for c in clouds(rng, "normal", 140, 3))
    with plain():
        found = wasserstein(x, y, rtol=1e-2)
        exact = wasserstein(x, y)
        assert found.certificate.place is not None
        assert exact.certificate.place is None
        assert found.lower <= exact.upper
        assert found.upper >= exact.lower
        assert found.upper <= 1.01 * found.lower
        assert (found.method, found.converged, found.verify()) == ("auction", True, True)
        np.testing.assert_allclose(found.coupling.cost() ** 0.5, found.upper, rtol=1e-9)
        f, g = found.potentials
        assert (f[:, None] + g <= cdist(x.cpu().double(), y.cpu().double()) ** 2 * (1 + 1e-12) + 1e-12).all()
        assert found.lower**2 <= f.mean() + g.mean() + 1e-12
        bounds = wasserstein_bounds(x, y, rtol=1e-2)
        assert (bounds.lower, bounds.upper, bounds.verify()) == (found.lower, found.upper, True)
        # A changed potential proves less, and bounds that were made up do not hold.
        found.certificate.g[:] = np.roll(found.certificate.g, 1)
        assert not found.verify()


def plain():
    stack = contextlib.ExitStack()
    for operation in (on_device.least_totals, on_device.soft_totals, on_device.nearest, on_device.play):
        stack.enter_context(operation.using("reference"))
    return stack


def test_what_is_left_to_the_host(rng, taken, monkeypatch):
    """Weights, unequal sizes, exact answers, many equal points, and less memory or chip than lists take."""
    monkeypatch.setattr(transport, "_MOST_PAIRS", 100)
    x, y = (torch.tensor(c, device=taken) for c in clouds(rng, "normal", 140, 2))
    heavy = torch.arange(1.0, 141.0, dtype=torch.float64, device=taken)
    twice = torch.cat([x[:70], x[:70]])
    with plain():
        for arguments in (
            {"x": x, "y": y, "x_weights": heavy / heavy.sum()},
            {"x": x, "y": y[:130]},
            {"x": x, "y": y, "rtol": 0.0},
            {"x": twice, "y": y},
            {"x": x, "y": y, "memory": 30_000},
            {"x": x, "y": y.cpu().numpy()},
        ):
            if isinstance(arguments["y"], np.ndarray):
                assert transport.gpu_of(x, arguments["y"]) is None
                continue
            found = wasserstein(**{"rtol": 1e-2} | arguments)
            assert found.certificate.place is None
            assert found.verify()
        assert wasserstein(x, y, rtol=1e-2).certificate.place is not None
        monkeypatch.setattr(on_device.sweep, "most_shared_bytes", lambda _: 4000)
        assert wasserstein(x, y, rtol=1e-2).certificate.place is None


def test_the_host_goes_on_where_the_device_gets_nowhere(rng, taken, monkeypatch):
    """Scales so far apart that float32 does not tell the points of a cluster from each other."""
    monkeypatch.setattr(transport, "_MOST_PAIRS", 100)
    x, y = (c * 1e-9 for c in clouds(rng, "normal", 140, 2))
    x[:70] += 1.0
    y[:70] += 1.0
    x, y = (torch.tensor(c, device=taken) for c in (x, y))
    with plain():
        found = wasserstein(x, y, rtol=1e-3)
        assert found.certificate.place is None
        assert found.upper <= 1.001 * found.lower
        assert found.verify()
        monkeypatch.setattr(transport, "_MOST_HOST_PAIRS", 100)
        found = wasserstein(x, y, rtol=1e-3)
        assert found.certificate.place is not None
        assert not found.converged
        assert found.verify()


def test_it_stops_in_time_with_what_it_has(rng, monkeypatch):
    given = problem(*clouds(rng, "normal", 300, 3), 2.0)
    true = least_cost(given)
    passed = solve(given, Limits(1e-3, time.monotonic() - 1), 1 << 24, "cpu")
    assert not passed.is_done
    assert passed.lower <= true <= passed.cost
    # Asked to stop at each of the first levels.
    gaps = []
    for stop_at in (1, 8, 12):
        asked, seen = stopping.Stop(), []
        token = stopping._current.set(asked)
        try:

            def advance(levels, asked=asked, seen=seen, stop_at=stop_at):
                seen.append(levels)
                asked.asked = len(seen) >= stop_at

            found = solve(given, Limits(1e-9, math.inf), 1 << 24, "cpu", advance)
        finally:
            stopping._current.reset(token)
        assert not found.is_done
        assert found.lower <= true * (1 + 1e-12)
        assert found.cost >= true * (1 - 1e-12)
        gaps.append(found.cost - found.lower)
    assert gaps[0] >= gaps[1] >= gaps[2]
    assert gaps[2] < 0.05 * true


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_potentials_on_a_device_are_those_of_the_host(rng, p, cuda_device):
    x, y = clouds(rng, "normal", 200, 3)
    given = problem(x, y[:170], p)._replace(b=np.ones(170, dtype=np.int64))
    price = rng.normal(size=170) / 100
    with plain():
        found = transform_on(cuda_device, given, price)
    np.testing.assert_allclose(found, transform(given, price), rtol=0, atol=1e-15)
    least = verification.least_slack_on(cuda_device, given.x, given.y, p, -price)
    exact = verification.least_slack(given.x, given.y, p, -price)
    assert (least <= exact).all()
    np.testing.assert_allclose(least, exact, rtol=0, atol=1e-14)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(("dim", "p"), [(1, 2.0), (2, 2.0), (3, 1.0), (2, 3.0)])
@pytest.mark.parametrize("kind", ["even", "normal", "heavy tails"])
@pytest.mark.thin
def test_tiles_that_are_left_out_do_not_matter(rng, kind, dim, p, cuda_device, monkeypatch):
    """Minima, soft minima and lists with far tiles left out, against plain code that looks at all pairs."""
    monkeypatch.setattr(on_device, "_FEW_TILES", 2)
    monkeypatch.setattr(on_device, "_PIECE", 20)
    given = clouds(rng, kind, 2500, dim) if kind != "even" else rng.random((2, 2500, dim))
    x, y = (torch.tensor(c / 50, device=cuda_device) for c in given)
    x, y = (c[on_device.by_neighbours(c)].cpu().numpy() for c in (x, y[:2400]))
    middle = np.zeros(dim)
    x, y = (on_device._points(c, middle, cuda_device) for c in (x, y))
    # Prices near those that prove the distance, in units of the spacing.
    price = 0.002**p * torch.rand(2400, dtype=torch.float64, device=cuda_device)
    for count, slack, is_wide in ((1, 0.0, True), (2, 0.0, False), (1, 25 * 0.0005**p, False)):
        near = on_device.nearby(x, y, price, p, count=count, slack=slack, is_wide=is_wide)
        if kind == "even" and dim < 3:
            assert near is not None
            assert 0 < len(near.tiles) < 0.5 * 20 * 19
            assert near.starts[-1] == len(near.tiles)
    eps = 0.0005**p
    for kernel, plain_code, more in (
        (on_device._least_totals_cuda, on_device._least_totals, ()),
        (on_device._soft_totals_cuda, on_device._soft_totals, (eps,)),
    ):
        found, true = kernel(x, y, price, p, *more), plain_code(x, y, price, p, *more)
        off = 1e-6 * float(true.abs().max()) + 1e-4 * eps if more else 1e-14
        torch.testing.assert_close(found, true, rtol=0, atol=off)
    made = []
    for make in (on_device._nearest_cuda, on_device._nearest):
        lists = on_device.Lists(
            torch.zeros((2500, 2), dtype=torch.int32, device=cuda_device),
            torch.zeros((2500, 2), dtype=torch.float64, device=cuda_device),
            torch.zeros(2500, dtype=torch.float64, device=cuda_device),
        )
        make(x, y, price, p, torch.arange(2500, device=cuda_device), lists, 1 << 24)
        made.append((lists.near + price[lists.columns.long()]).sort(dim=1).values)
        torch.testing.assert_close(lists.bound, made[-1][:, -1], rtol=0, atol=1e-5)
    torch.testing.assert_close(made[0], made[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("n", "dim"), [(1, 2), (128, 1), (129, 2), (5000, 3)])
def test_points_of_a_tile_are_near_each_other(rng, n, dim):
    points = torch.tensor(rng.normal(size=(n, dim)))
    order = on_device.by_neighbours(points)
    assert sorted(order.tolist()) == list(range(n))
    if n > 1000:
        low, high = on_device._points(points[order].numpy(), np.zeros(dim), "cpu").box
        assert float((high - low).prod(dim=0).median()) < 0.05 * float((high.amax(1) - low.amin(1)).prod())
