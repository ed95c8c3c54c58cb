"""Matchings are couplings, never dearer than what they come from, and near the optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import Backend, unit_rows, weights
from hypothesis import given
from hypothesis import strategies as st

import orthoslice as osl
from orthoslice import datasets


def best_direction(x: Any, y: Any, p: float, count: int, **options: Any) -> float:
    """The least cost of the couplings that `count` directions of seed 0 induce."""
    est = osl.projected_wasserstein(x, y, p, n_directions=count, rng=0, **options)
    return float(np.min(np.asarray(est._scores)) * est._scale**p)


def assert_couples(coupling: osl.Coupling, a: np.ndarray, b: np.ndarray, rtol: float = 1e-11) -> None:
    plan = coupling.to_dense()
    assert plan.min() >= 0
    np.testing.assert_allclose(plan.sum(axis=1), a, rtol=rtol, atol=1e-15)
    np.testing.assert_allclose(plan.sum(axis=0), b, rtol=rtol, atol=1e-15)


def gaussians(dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(dim)
    return rng.normal(size=(2000, dim)), rng.normal(size=(2000, dim))


@pytest.mark.parametrize(("dim", "most"), [(2, 1.01), (10, 1.03), (50, 1.03)])
def test_gaussians_are_matched_almost_optimally(dim: int, most: float) -> None:
    x, y = gaussians(dim)
    exact = osl.wasserstein(x, y).distance
    # By auction, and by rounds of groups.
    for n_sweeps, above in ((None, 1.001), (30, most)):
        coupling = osl.match(x, y, rng=0, n_sweeps=n_sweeps)
        assert sorted(coupling.iy.tolist()) == coupling.ix.tolist() == list(range(2000))
        assert 1 - 1e-12 <= float(coupling.cost()) ** 0.5 / exact < above
        assert osl.match(x, y, rng=0, n_sweeps=0).cost() > 1.1 * coupling.cost(), "sweeps are of use"


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize("kind", ["far", "ties", "heavy tails", "one line"])
def test_an_auction_makes_pairs_within_a_thousandth(kind: str, p: float) -> None:
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(600, 3)), 1.3 * rng.normal(size=(600, 3)) + 0.3
    if kind == "far":
        x, y = 1e-7 * x + 1e3, 1e-7 * y + 1e3
    elif kind == "ties":
        x, y = np.round(x), np.round(y)
    elif kind == "heavy tails":
        x, y = (c / np.sqrt(rng.exponential(size=(600, 1))) for c in (x, y))
    else:
        x, y = x[:, :1] * np.ones(3), y[:, :1] * np.ones(3)
    coupling = osl.match(x, y, p, rng=0)
    assert sorted(coupling.iy.tolist()) == coupling.ix.tolist() == list(range(600))
    np.testing.assert_array_equal(coupling.mass, 1 / 600)
    exact = osl.wasserstein(x, y, p).distance
    assert exact * (1 - 1e-9) <= float(coupling.cost(p)) ** (1 / p) <= exact * (1 + 1.01e-3)


def test_where_no_auction_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user chose, large powers, little memory, many points and no compiler: rounds of groups."""
    from orthoslice.applications.match import match as module

    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(2, 600, 3))
    rounds = osl.match(x, y, rng=0, n_sweeps=30)
    held: list[int] = []
    auction = module.auction_partners
    monkeypatch.setattr(
        module, "auction_partners", lambda x, *rest: held.append(len(x.points)) or auction(x, *rest)
    )
    assert (osl.match(x, y, rng=0).iy != rounds.iy).any()
    assert held == [600]
    least = 1200 * (16 * 3 + 160)
    # All costs beside the points: 18 MB.
    many = rng.normal(size=(2, 1100, 100))
    osl.match(*many, rng=0, memory="20MB")
    assert held == [600]
    osl.match(*many, rng=0, memory="32MB")
    assert held.pop() == 1100
    for options in ({"n_directions": 32}, {"directions": "orthogonal"}, {"p": 9}, {"memory": 2 * least}):
        osl.match(x, y, rng=0, **options)
    monkeypatch.setattr("orthoslice.applications.match.auctioned.numba_refusal", lambda: "it is not there")
    osl.match(x, y, rng=0)
    monkeypatch.undo()
    monkeypatch.setattr(module, "_MOST_AUCTIONED_IN_FEW", 599)
    osl.match(x, y, rng=0)
    assert held == [600]


@pytest.mark.parametrize("problem", ["digits", (2, 512), (10, 1024)], ids=str)
def test_digits_and_other_small_clouds_are_matched_optimally(problem: Any) -> None:
    """One group holds them all."""
    if problem == "digits":
        x, y = datasets.digits(0), datasets.digits(1)[:178]
    else:
        dim, n = problem
        x, y = (cloud[:n] for cloud in gaussians(dim))
    assert float(osl.match(x, y, rng=0).cost()) == pytest.approx(osl.wasserstein(x, y).value, rel=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3, 2.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_small_clouds_of_unequal_size_are_coupled_optimally(p: float, weighted: bool) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(70, 3)), rng.normal(size=(45, 3)) + 0.5
    a, b = (weights(rng, n) if weighted else np.full(n, 1 / n) for n in (70, 45))
    options = {"x_weights": a, "y_weights": b} if weighted else {}
    coupling = osl.match(x, y, p, rng=0, **options)
    assert_couples(coupling, a, b)
    assert float(coupling.cost(p)) == pytest.approx(osl.wasserstein(x, y, p, **options).value, rel=1e-9)
    assert len(set(zip(coupling.ix.tolist(), coupling.iy.tolist(), strict=True))) == len(coupling.ix)


@pytest.mark.parametrize("weighted", [False, True])
def test_large_clouds_of_unequal_size_are_coupled_almost_optimally(weighted: bool) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(900, 3)), rng.normal(size=(600, 3)) + 0.5
    a, b = (weights(rng, n) if weighted else np.full(n, 1 / n) for n in (900, 600))
    options = {"x_weights": a, "y_weights": b} if weighted else {}
    exact = osl.wasserstein(x, y, **options).value
    start = osl.match(x, y, rng=0, n_sweeps=0, **options)
    assert_couples(start, a, b)
    # By auction, and by rounds of groups.
    for n_sweeps, above in ((None, 1.002), (30, 1.02)):
        coupling = osl.match(x, y, rng=0, n_sweeps=n_sweeps, **options)
        assert_couples(coupling, a, b)
        assert exact * (1 - 1e-9) <= coupling.cost() < above * exact < 1.2 * exact < start.cost()


@pytest.mark.parametrize(("n", "dim"), [(400, 2), (1300, 6)])
def test_weights_that_are_zero_or_ties_and_any_order_of_rows(n: int, dim: int) -> None:
    """With weights pairs are those of the solver of W, below and above where it is an auction."""
    rng = np.random.default_rng(8)
    x, y = np.round(rng.normal(size=(n, dim)), 1), np.round(rng.normal(size=(n, dim)) + 0.5, 1)
    a, b = weights(rng, n), weights(rng, n)
    a[:7] = 0
    a /= a.sum()
    one = osl.match(x, y, x_weights=a, y_weights=b, rng=0)
    assert_couples(one, a, b)
    assert one.cost() < 1.002 * osl.wasserstein(x, y, x_weights=a, y_weights=b).value
    turn = rng.permutation(n)
    two = osl.match(x[turn], y, x_weights=a[turn], y_weights=b, rng=3, workers=1)
    np.testing.assert_allclose(two.to_dense(), one.to_dense()[turn], atol=1e-15)


@st.composite
def problems(draw: Any) -> tuple[np.ndarray, np.ndarray, float, dict[str, Any]]:
    """Clouds of all sizes, with ties and duplicates, of one size or not, weighted or not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, dim = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    m = n if draw(st.booleans()) else draw(st.integers(1, 40))
    x, y = rng.normal(size=(n, dim)), rng.normal(size=(m, dim))
    if draw(st.booleans()):
        x, y = np.round(x), np.round(y)
    options = {}
    if draw(st.booleans()):
        options = {"x_weights": weights(rng, n), "y_weights": weights(rng, m)}
        if n > 1 and draw(st.booleans()):
            w = options["x_weights"]
            w[0] = 0
            options["x_weights"] = w / w.sum()
    return x, y, draw(st.sampled_from([1.0, 2.0, 3.0])), options


@pytest.mark.parametrize("n_sweeps", [0, None])
@given(problem=problems())
def test_never_above_the_best_direction(problem: Any, n_sweeps: int | None) -> None:
    x, y, p, options = problem
    coupling = osl.match(x, y, p, n_directions=5, n_sweeps=n_sweeps, rng=0, **options)
    uniform = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
    assert_couples(coupling, options.get("x_weights", uniform[0]), options.get("y_weights", uniform[1]))
    cost = float(coupling.cost(p))
    assert cost <= best_direction(x, y, p, 5, **options) * (1 + 1e-12) + 1e-15
    exact = osl.wasserstein(x, y, p, **options).value
    assert cost >= exact * (1 - 1e-9) - 1e-12
    if n_sweeps is None:
        assert cost <= exact * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("p", [1, 2, 3])
def test_never_above_the_best_direction_on_every_backend(backend: Backend, p: float) -> None:
    """More points than a group has, so that the steps do not hide each other."""
    rng = np.random.default_rng(9)
    x, y = rng.normal(size=(150, 3)), rng.normal(size=(150, 3)) + 0.3
    exact, start = osl.wasserstein(x, y, p).value, best_direction(x, y, p, 6)
    coupling = osl.match(backend.asarray(x), backend.asarray(y), p, n_directions=6, rng=0)
    assert type(coupling.iy) is type(coupling.mass) is type(backend.asarray(x))
    tolerance = backend.tolerance(150)["rtol"]
    assert_couples(coupling, np.full(150, 1 / 150), np.full(150, 1 / 150), tolerance)
    cost = float(coupling.cost(p))
    assert exact * (1 - tolerance) <= cost < 1.2 * exact < start
    single = osl.match(backend.asarray(x), backend.asarray(y), p, n_directions=6, n_sweeps=0, rng=0)
    assert cost < float(single.cost(p)) <= start * (1 + tolerance)


@pytest.mark.parametrize("weighted", [False, True])
def test_unequal_sizes_on_every_backend(backend: Backend, weighted: bool) -> None:
    rng = np.random.default_rng(10)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=(50, 2)) + 0.3
    a, b = weights(rng, 30), weights(rng, 50)
    options = {"x_weights": a, "y_weights": b} if weighted else {}
    coupling = osl.match(
        backend.asarray(x), backend.asarray(y), rng=0, **{k: backend.asarray(w) for k, w in options.items()}
    )
    plan = coupling.to_dense()
    np.testing.assert_allclose(plan.sum(axis=1), a if weighted else np.full(30, 1 / 30), atol=1e-7)
    np.testing.assert_allclose(plan.sum(axis=0), b if weighted else np.full(50, 1 / 50), atol=1e-7)
    start = best_direction(x, y, 2, 32, **options)
    assert float(coupling.cost()) <= start * (1 + backend.tolerance(80)["rtol"])


@pytest.mark.parametrize("n", [1, 2, 5, 300])
def test_equal_clouds_cost_nothing(backend: Backend, n: int) -> None:
    """Duplicates among them, in another order; rows and columns of single points too."""
    rng = np.random.default_rng(n)
    x = np.round(rng.normal(size=(n, 2)), 1)
    shuffled = x[rng.permutation(n)]
    coupling = osl.match(backend.asarray(x), backend.asarray(shuffled), rng=0)
    assert float(coupling.cost(1)) == 0
    np.testing.assert_array_equal(shuffled[backend.numpy(coupling.iy)], x)


def test_workers_chunks_and_rows_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(1500, 3)), rng.normal(size=(1500, 3))
    one = osl.match(x, y, rng=7, n_sweeps=6, workers=1)
    np.testing.assert_array_equal(osl.match(x, y, rng=7, n_sweeps=6, workers=3, memory=10**6).iy, one.iy)
    assert (osl.match(x, y, rng=8, n_sweeps=6).iy != one.iy).any()
    turn = rng.permutation(1500)
    # By rounds, and by auction.
    for n_sweeps in (6, None):
        one = osl.match(x, y, rng=7, n_sweeps=n_sweeps, workers=1)
        np.testing.assert_array_equal(osl.match(x[turn], y, rng=7, n_sweeps=n_sweeps).iy, one.iy[turn])
        np.testing.assert_array_equal(turn[osl.match(x, y[turn], rng=7, n_sweeps=n_sweeps).iy], one.iy)
    w = weights(rng, 1500)
    one, two = (osl.match(x, y, x_weights=w, rng=7, n_sweeps=3, workers=k) for k in (1, 2))
    np.testing.assert_array_equal(one.to_sparse().toarray(), two.to_sparse().toarray())


def test_given_directions_and_their_merging() -> None:
    """Merged, the couplings of two directions are at most as dear as the better one of them."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(400, 2)), rng.normal(size=(400, 2)) + 1
    theta = unit_rows(rng, 2, 2)
    costs = [float(osl.induced_coupling(x, y, row).cost()) for row in theta]
    assert osl.match(x, y, directions=theta, n_sweeps=0, rng=0).cost() < min(costs)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_sizes_whose_squares_do_not_fit(scale: float) -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(300, 3)), rng.normal(size=(300, 3))
    np.testing.assert_array_equal(osl.match(scale * x, scale * y, rng=0).iy, osl.match(x, y, rng=0).iy)


def test_matching_far_from_the_origin() -> None:
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(300, 3)), rng.normal(size=(300, 3))
    far = osl.match(x + 1e6, y + 1e6, rng=0)
    cost = float(((x - y[far.iy]) ** 2).sum(axis=1).mean())
    assert cost < 1.01 * osl.wasserstein(x, y).value


SHAPES = [(1, 1, False), (300, 300, False), (30, 20, False), (30, 30, True)]


@pytest.mark.parametrize(("n", "m", "weighted"), SHAPES)
def test_no_value_is_looked_at_on_a_device(
    n: int, m: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors on torch's `meta` device have no values: whatever reads one fails."""
    torch = pytest.importorskip("torch")
    x, y, w = (torch.zeros(shape, device="meta") for shape in ((n, 3), (m, 3), (n,)))
    with pytest.raises(RuntimeError):
        float(x[0, 0])
    # Torch knows no autocast there.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda place: False)
    coupling = osl.match(x, y, rng=0, n_sweeps=2, x_weights=w if weighted else None)
    parts = coupling.ix, coupling.iy, coupling.mass, coupling.cost()
    assert {part.device.type for part in parts} == {"meta"}


@pytest.mark.parametrize("weighted", [False, True])
def test_the_upper_bound_is_that_of_a_matching(weighted: bool) -> None:
    rng = np.random.default_rng(11)
    x, y = rng.normal(size=(200, 3)), rng.normal(size=(200, 3))
    options = {"x_weights": weights(rng, 200)} if weighted else {}
    bounds = osl.wasserstein_bounds(x, y, rng=0, **options)
    exact = osl.wasserstein(x, y, **options).distance
    assert exact <= bounds.upper < 1.01 * exact < best_direction(x, y, 2, 128, **options) ** 0.5
    assert float(bounds.coupling.cost()) == pytest.approx(bounds.upper**2, rel=1e-5)


def test_a_loss_with_a_gradient() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[1.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    osl.match(x, y, 1, rng=0).cost(1).backward()
    assert x.grad.tolist() == [[0.0, 0.0], [0.0, -0.5]]


def test_what_is_refused() -> None:
    jax = pytest.importorskip("jax")
    x = np.zeros((3, 2))
    with pytest.raises(TypeError, match="`match` needs values and cannot be traced"):
        jax.jit(lambda a: osl.match(a, a, rng=0).iy)(jax.numpy.zeros((3, 2)))
    with pytest.raises(ValueError, match="single clouds"):
        osl.match(x[None], x, rng=0)
    with pytest.raises(ValueError, match="`n_sweeps` must be at least 0; got -1"):
        osl.match(x, x, n_sweeps=-1, rng=0)


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    osl.match(x, x + 1, rng=0, progress=True)
    assert "steps" in capsys.readouterr().err
