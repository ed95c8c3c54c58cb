"""Barycenters and flows: known answers, descent, and what they share with the distances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import unit_rows, weights
from hypothesis import given
from hypothesis import strategies as st
from thinning import examples

import orthoslice as osl
from orthoslice.applications.descent import step_size
from orthoslice.clouds.cloud import Cloud
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Given
from orthoslice.estimates.request import Request, plan_layout

METHODS = ["sliced", "projected"]


def ring(rng, n, dim=2):
    """A noisy circle, in the first two coordinates."""
    angle = rng.uniform(0, 2 * np.pi, n)
    points = 0.05 * rng.normal(size=(n, dim))
    points[:, :2] += 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points


# --- value and gradient -------------------------------------------------------------------------------------


@pytest.mark.thin
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weighted", [False, True])
def test_value_and_grad_are_those_of_the_estimate(backend, rng, method, weighted):
    x, y = rng.normal(size=(12, 3)), rng.normal(size=(15, 3)) + 1
    named = {"x_weights": weights(rng, 12), "y_weights": weights(rng, 15)} if weighted else {}
    distance = {"sliced": osl.sliced_wasserstein, "projected": osl.projected_wasserstein}[method]
    tensor = torch.tensor(x, requires_grad=True)
    expected = distance(tensor, torch.tensor(y), rng=0, **{k: torch.tensor(w) for k, w in named.items()}).value
    expected.backward()
    on_backend = {k: backend.asarray(w) for k, w in named.items()}
    value, gradient = osl.value_and_grad(
        backend.asarray(x), backend.asarray(y), method=method, rng=0, **on_backend
    )
    np.testing.assert_allclose(backend.numpy(value), expected.item(), **backend.tolerance(15))
    np.testing.assert_allclose(backend.numpy(gradient), tensor.grad.numpy(), **backend.tolerance(15))


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_the_gradient_is_a_difference_quotient(rng, p):
    x, y = rng.normal(size=(7, 2)), rng.normal(size=(9, 2))
    theta = unit_rows(rng, 5, 2)
    _, gradient = osl.value_and_grad(x, y, p, directions=theta)
    move = 1e-6 * rng.normal(size=x.shape)
    up, down = (float(osl.sliced_wasserstein(x + s * move, y, p, directions=theta).value) for s in (1, -1))
    np.testing.assert_allclose((up - down) / 2, np.sum(gradient * move), rtol=1e-6)


def test_value_and_grad_leave_no_tape_and_fit_any_scale(rng):
    x, y = torch.tensor(rng.normal(size=(6, 2)), requires_grad=True), torch.tensor(rng.normal(size=(6, 2)))
    value, gradient = osl.value_and_grad(x, y, rng=0)
    assert not value.requires_grad
    assert not gradient.requires_grad
    assert x.grad is None
    large = [1e120 * a.detach().numpy() for a in (x, y)]
    far_value, far_gradient = osl.value_and_grad(*large, rng=0)
    np.testing.assert_allclose(far_value / 1e240, value.item(), rtol=1e-12)
    np.testing.assert_allclose(far_gradient / 1e120, gradient.numpy(), rtol=1e-9, atol=1e-15)


# --- steps --------------------------------------------------------------------------------------------------


def make_objective(clouds, shares, directions, count=None):
    sampler, layout = plan_layout(directions, count, clouds[0].dim, Sliced(), 2.0, adaptive=False)
    request = Request(
        name="test",
        score=Sliced(),
        p=2.0,
        sampler=sampler,
        layout=layout,
        memory=10**8,
        workers=1,
        rtol=None,
        atol=None,
        progress=False,
        control=None,
        scaled_on_device=False,
    )
    return step_size.Objective(request, clouds, shares, seed=0, fresh=False)


def second_moment(objective, dim):
    sampler = objective.request.sampler
    if isinstance(sampler, Given):
        return sampler.theta.T @ sampler.theta / len(sampler.theta)
    theta = sampler.sample(objective.request.layout.n_directions, dim, rng=0).theta
    return theta.T @ theta / len(theta)


@st.composite
def problems(draw):
    """Clouds of several sizes, with ties, weights or neither, and directions of several kinds."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dim = draw(st.integers(1, 5))
    n = draw(st.integers(1, 20))
    clouds = []
    for _ in range(draw(st.integers(1, 3))):
        points = 3 * rng.normal(size=(draw(st.integers(1, 20)), dim))
        points = np.round(points) if draw(st.booleans()) else points
        clouds.append(Cloud(points, weights(rng, len(points)) if draw(st.booleans()) else None))
    kind = draw(st.sampled_from(["orthogonal", "iid", "given", "lopsided"]))
    directions: object = {"orthogonal": osl.directions.Orthogonal(), "iid": osl.directions.IID()}.get(kind)
    count = draw(st.integers(1, 12))
    if directions is None:
        theta = rng.normal(size=(count, dim)) * (10.0 ** -np.arange(dim) if kind == "lopsided" else 1)
        directions, count = Given(theta=theta / np.linalg.norm(theta, axis=1, keepdims=True)), None
    start = np.round(rng.normal(size=(n, dim)), draw(st.sampled_from([0, 15])))
    own = weights(rng, n) if draw(st.booleans()) else None
    return Cloud(start, own), clouds, weights(rng, len(clouds)).tolist(), directions, count


def fall(objective, x, length=1.0):
    """By how much the objective falls in a step of this length, and by how much it must at least."""
    value, target = objective.evaluate(x, 0)
    moved = length * (target - x.points)
    mass = np.full(x.n, 1 / x.n) if x.weights is None else x.weights
    least = float(np.einsum("n,ni,ij,nj->", mass, moved, second_moment(objective, x.dim), moved))
    after, _ = objective.evaluate(Cloud(x.points + moved, x.weights), 0)
    return float(value) - float(after), least, float(value)


@examples(60)
@given(problems())
def test_a_step_lowers_the_objective_by_its_own_length(problem):
    """The quadratic above it has its minimum at the end of the step: `x^T A x` of the move less than here."""
    x, *rest = problem
    fell, least, value = fall(make_objective(*rest), x)
    assert fell >= least - 1e-9 * (value + 1)


def test_a_step_twice_as_long_would_not():
    """The bound that the last test rests on is one that a wrong length breaks."""
    rng = np.random.default_rng(0)
    objective = make_objective([Cloud(ring(rng, 30))], [1.0], osl.directions.Orthogonal(), 8)
    fell, least, value = fall(objective, Cloud(rng.normal(size=(30, 2))), length=2.0)
    assert fell < least - 1e-3 * value


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("directions", ["orthogonal", "iid", "hadamard", "given"])
def test_the_objective_never_rises_on_fixed_directions(seed, directions):
    rng = np.random.default_rng(seed)
    clouds = [ring(rng, 40, 3), np.round(2 * rng.normal(size=(25, 3))), rng.random((33, 3))]
    by_point = [None, weights(rng, 25), None]
    kind = unit_rows(rng, 2 + 5 * seed, 3) if directions == "given" else directions
    found = osl.barycenter(
        clouds,
        weights(rng, 3),
        point_weights=by_point,
        n_points=30 + 5 * seed,
        directions=kind,
        fresh=False,
        rng=0,
    )
    assert (np.diff(found.history) <= 1e-12 * found.history[0]).all()
    assert found.converged
    assert found.history[-1] < found.history[0]
    assert found.value == found.history[-1]
    assert len(found.history) == found.n_steps + 1 == len(found.movement) + 1


def test_the_objective_may_rise_on_fresh_directions(rng):
    """Negative control of the test above: on fresh directions a step can raise the objective."""
    found = osl.barycenter([ring(rng, 40, 3), rng.normal(size=(30, 3))], n_directions=6, rng=0)
    assert (np.diff(found.history) > 1e-3 * found.value).any()


# --- barycenters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fresh", [True, False])
def test_translated_copies_have_the_mean_translation(backend, rng, method, fresh):
    cloud = rng.normal(size=(17, 3))
    moves, shares = 3 * rng.normal(size=(4, 3)), weights(rng, 4)
    clouds = [backend.asarray(cloud + move) for move in moves]
    found = osl.barycenter(clouds, shares, method=method, fresh=fresh, rng=0, n_steps=4)
    # In whatever order its points are, which is that of the heaviest copy.
    tolerance = backend.tolerance(50) | {"atol": 1e-5 if not backend.wide else 1e-12}
    np.testing.assert_allclose(backend.numpy(found.points), cloud + shares @ moves, **tolerance)


def test_on_a_line_quantiles_are_averaged(rng):
    """Point i has the mean of the averaged quantile functions over its i-th share of the mass."""
    n, shares = 7, np.array([0.2, 0.5, 0.3])
    clouds = [rng.normal(size=(k, 1)) for k in (7, 10, 5)]
    by_point = [None, weights(rng, 10), weights(rng, 5)]
    found = osl.barycenter(clouds, shares, n_points=n, point_weights=by_point, rng=0)
    expected = np.zeros(n)
    for cloud, own, share in zip(clouds, by_point, shares, strict=True):
        order = np.argsort(cloud[:, 0])
        ends = np.cumsum((np.full(len(cloud), 1 / len(cloud)) if own is None else own)[order])
        edges = np.unique(np.concatenate([ends.clip(0, 1), np.arange(n + 1) / n]))
        middle = (edges[:-1] + edges[1:]) / 2
        quantile = cloud[order, 0][np.minimum(np.searchsorted(ends, middle), len(cloud) - 1)]
        place = (middle * n).astype(int)
        expected += share * n * np.bincount(place, weights=quantile * np.diff(edges), minlength=n)
    assert found.converged
    assert found.n_steps <= 3
    np.testing.assert_allclose(np.sort(found.points[:, 0]), expected, atol=1e-9)


def test_isotropic_gaussians_have_the_mean_deviation():
    """N(m_j, s_j^2) have the barycenter N(sum w_j m_j, (sum w_j s_j)^2).

    Deviations of samples are off by `s / sqrt(2 n dim)`, means by `s / sqrt(n)`; four standard errors are
    exceeded by chance once in 16,000 times, and the seed is fixed.
    """
    rng = np.random.default_rng(1)
    n, dim, shares = 1500, 3, np.array([0.25, 0.25, 0.5])
    scales, centres = np.array([0.5, 1.0, 3.0]), np.array([-4.0, 0.0, 5.0])
    clouds = [m + s * rng.normal(size=(n, dim)) for m, s in zip(centres, scales, strict=True)]
    found = osl.barycenter(clouds, shares, rng=0)
    assert found.converged
    error = math.sqrt(np.sum((shares * scales) ** 2) / n)
    np.testing.assert_allclose(found.points.mean(axis=0), shares @ centres, atol=4 * error)
    each = found.points.std(axis=0)
    np.testing.assert_allclose(each, shares @ scales, atol=4 * error / math.sqrt(2))
    # What the mean of the variances would be is told apart by far.
    assert abs(found.points.std() - math.sqrt(shares @ scales**2)) > 10 * error / math.sqrt(2 * dim)


def test_projected_barycenters_of_gaussians_are_dim_times_narrower():
    """As the documentation says: partners of different directions agree on one coordinate of `dim`."""
    rng = np.random.default_rng(1)
    clouds = [rng.normal(size=(1000, 2)), 3 * rng.normal(size=(1000, 2))]
    found = osl.barycenter(clouds, method="projected", rng=0)
    np.testing.assert_allclose(found.points.std(), 2 / 2, rtol=0.06)


def test_weights_of_points_count_like_repetitions(rng):
    cloud, other, start = rng.normal(size=(6, 2)), rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
    often = np.array([1, 2, 1, 1, 3, 1])
    options = {"initial": start, "fresh": False, "rng": 0}
    weighted = osl.barycenter([cloud, other], point_weights=[often / 9, None], **options)
    repeated = osl.barycenter([np.repeat(cloud, often, axis=0), other], **options)
    np.testing.assert_allclose(weighted.points, repeated.points, atol=1e-9)
    unweighted = osl.barycenter([cloud, other], **options)
    assert np.abs(weighted.points - unweighted.points).max() > 0.01


@pytest.mark.parametrize("n_points", [5, 60])
def test_any_number_of_points(rng, n_points):
    clouds = {"a": ring(rng, 40), "b": ring(rng, 30) + 5}
    found = osl.barycenter(clouds, n_points=n_points, rng=0)
    assert found.points.shape == (n_points, 2)
    np.testing.assert_allclose(found.points.mean(axis=0), (clouds["a"].mean(0) + clouds["b"].mean(0)) / 2)
    assert len(np.unique(found.points, axis=0)) == n_points
    radius = np.linalg.norm(found.points - found.points.mean(axis=0), axis=1)
    np.testing.assert_allclose(radius.mean(), 2, rtol=0.1)


def test_weights_may_have_names(rng):
    clouds = {"a": ring(rng, 20), "b": rng.normal(size=(20, 2))}
    w = weights(rng, 20)
    options = {"rng": 0, "n_steps": 3}
    named = osl.barycenter(clouds, {"b": 0.3, "a": 0.7}, point_weights={"b": w, "a": None}, **options)
    listed = osl.barycenter(list(clouds.values()), [0.7, 0.3], point_weights=[None, w], **options)
    np.testing.assert_array_equal(named.points, listed.points)


def test_clouds_that_do_not_count_do_not_matter(rng):
    a, b = ring(rng, 20), 100 * rng.normal(size=(20, 2))
    both = osl.barycenter([a, b], [1.0, 0.0], rng=0)
    alone = osl.barycenter([a], rng=0)
    np.testing.assert_allclose(both.points, alone.points)
    np.testing.assert_allclose(alone.points, a, atol=1e-12)


def test_scale_and_offset_go_through(rng):
    clouds = [ring(rng, 30), rng.normal(size=(25, 2))]
    found = osl.barycenter(clouds, fresh=False, rng=0)
    large = osl.barycenter([1e150 * c for c in clouds], fresh=False, rng=0)
    np.testing.assert_allclose(large.points / 1e150, found.points, atol=1e-9)
    far = osl.barycenter([c + 1e6 for c in clouds], fresh=False, rng=0)
    np.testing.assert_allclose(far.points - 1e6, found.points, atol=1e-6)


# --- flows --------------------------------------------------------------------------------------------------


def gallery(name, rng):
    """Small versions of what the examples move: start and target."""
    if name == "ring":
        return rng.normal(size=(300, 2)), ring(rng, 300)
    if name == "unequal":
        return rng.normal(size=(300, 2)) + 4, ring(rng, 400)
    if name == "shapes":
        v = rng.normal(size=(300, 3))
        return v / np.linalg.norm(v, axis=1, keepdims=True), ring(rng, 300, 3) + np.array([0, 0, 3])
    # Colors in [0, 1]^3: few hues, light and dark, against others.
    x = 0.3 + 0.2 * rng.random((400, 1)) + 0.05 * rng.normal(size=(400, 3))
    y = rng.random((400, 1)) ** 2 * np.array([0.9, 0.6, 0.2]) + 0.03 * rng.normal(size=(400, 3))
    return x.clip(0, 1), y.clip(0, 1)


@pytest.mark.parametrize("name", ["ring", "unequal", "shapes", "colors"])
def test_flows_reach_their_target(name, rng):
    """To 5% of the exact W_2 at the start, by default; three steps are not enough."""
    x, y = gallery(name, rng)
    start = float(osl.wasserstein(x, y).distance)
    found = osl.flow(x, y, rng=0)
    assert float(osl.wasserstein(found.points, y).distance) < 0.05 * start
    few = osl.flow(x, y, rng=0, n_steps=3)
    assert float(osl.wasserstein(few.points, y).distance) > 0.05 * start
    assert not few.converged
    assert few.n_steps == 3


def test_momentum_saves_steps(rng, monkeypatch):
    x, y = gallery("ring", rng)
    found = osl.flow(x, y, rng=0)
    monkeypatch.setattr(step_size, "_MOMENTUM", 0.0)
    plain = osl.flow(x, y, rng=0)
    assert found.n_steps < 0.7 * plain.n_steps
    assert found.value < 1.5 * plain.value


@pytest.mark.parametrize("directions", ["iid", "hadamard", osl.directions.Orthogonal(block_size=1)])
def test_flows_take_any_directions(rng, directions):
    """In blocks that are no bases, steps are as long as the draw allows."""
    x, y = gallery("shapes", rng)
    found = osl.flow(x, y, directions=directions, n_directions=40, rng=0)
    start, end = (float(osl.sliced_wasserstein(z, y, rng=1).distance) for z in (x, found.points))
    assert end < 0.02 * start


def test_flows_take_weights(rng):
    x, y = rng.normal(size=(200, 2)), ring(rng, 240)
    y = y[np.argsort(y[:, 0])]
    a, b = weights(rng, 200), np.linspace(0, 2 / 240, 240)
    b /= b.sum()
    a[7] = 0
    a /= a.sum()
    found = osl.flow(x, y, x_weights=a, y_weights=b, rng=0)
    start, end = (
        float(osl.sliced_wasserstein(z, y, x_weights=a, y_weights=b, rng=1).distance) for z in (x, found.points)
    )
    assert end < 0.05 * start
    np.testing.assert_array_equal(found.points[7], x[7])
    plain = osl.flow(x, y, rng=0).points
    assert float(osl.sliced_wasserstein(plain, y, x_weights=a, y_weights=b, rng=1).distance) > 0.1 * start


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bridged", [True, False])
def test_torch_goes_the_way_of_numpy(rng, monkeypatch, method, bridged):
    from helpers import bridge_torch

    bridge_torch(monkeypatch, bridged)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=(25, 3)) + 1
    expected = osl.flow(x, y, method=method, rng=3, n_steps=12)
    found = osl.flow(torch.tensor(x, requires_grad=True), torch.tensor(y), method=method, rng=3, n_steps=12)
    assert found.points.dtype == torch.float64
    assert not found.points.requires_grad
    np.testing.assert_allclose(found.points.numpy(), expected.points, atol=1e-9)
    np.testing.assert_allclose(found.history, expected.history, rtol=1e-9)
    single = osl.flow(torch.tensor(x).float(), torch.tensor(y).float(), method=method, rng=3, n_steps=3)
    assert single.points.dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("method", METHODS)
def test_gpu_tensors_stay_there(rng, method):
    x, y, w = rng.normal(size=(200, 3)), ring(rng, 300, 3), weights(rng, 300)
    on_gpu = [torch.tensor(a, device="cuda", dtype=torch.float32) for a in (x, y, w)]
    # Two steps: later ones of PW differ as soon as rounding lets two points change places.
    options = {"method": method, "rng": 0, "n_steps": 2}
    for a, b in ((None, None), (w, on_gpu[2])):
        expected = osl.flow(x, y, y_weights=a, **options)
        found = osl.flow(*on_gpu[:2], y_weights=b, **options)
        assert found.points.is_cuda
        np.testing.assert_allclose(found.history, expected.history, rtol=1e-3)
        middle = osl.barycenter(on_gpu[:2], [0.3, 0.7], point_weights=[None, b], n_points=100, **options)
        assert middle.points.is_cuda
        assert middle.points.isfinite().all()


def test_steps_move_points_in_the_span_of_few_directions(rng):
    """Above 512 dimensions a step has one block of 512 orthonormal rows, and matches all of them at once."""
    x, y = rng.normal(size=(8, 700)), rng.normal(size=(8, 700)) + 2
    found = osl.flow(x, y, rng=0, n_steps=2)
    assert found.n_directions == 512
    assert found.history[1] < 0.5 * found.history[0]


# --- what both share ----------------------------------------------------------------------------------------


def test_results_repeat(rng):
    x, y = rng.normal(size=(20, 2)), ring(rng, 20)
    found = osl.flow(x, y, n_steps=10)
    again = osl.flow(
        x, y, n_steps=10, directions=found.directions, n_directions=found.n_directions, rng=found.seed
    )
    np.testing.assert_array_equal(again.points, found.points)
    assert f"rng={found.seed}" in repr(found)
    assert "not converged after 10 steps" in repr(found)


def test_callbacks_see_every_step_and_may_stop(rng):
    x, y = 1e150 * rng.normal(size=(20, 2)), 1e150 * ring(rng, 20)
    seen = []

    def watch(step, points, value):
        seen.append((step, points.copy(), value))
        return np.bool_(step == 5)

    found = osl.flow(x, y, rng=0, callback=watch)
    assert [s for s, _, _ in seen] == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(seen[-1][1], found.points)
    np.testing.assert_allclose([v for _, _, v in seen], found.history[:-1])
    assert not found.converged


def test_progress_is_shown_when_asked_for(rng, capsys):
    osl.flow(rng.normal(size=(5, 2)), rng.normal(size=(5, 2)), rng=0, n_steps=3, progress=True)
    assert "steps" in capsys.readouterr().err
    osl.flow(rng.normal(size=(5, 2)), rng.normal(size=(5, 2)), rng=0, n_steps=3)
    assert capsys.readouterr().err == ""


X = np.zeros((4, 2))
BAD = [
    (lambda: osl.barycenter([]), ValueError, "at least one cloud"),
    (lambda: osl.barycenter(X, X), ValueError, r"got one array of shape \(4, 2\). Pass a list"),
    (lambda: osl.barycenter(5), TypeError, "got int"),
    (lambda: osl.barycenter([X, np.zeros((4, 3))]), ValueError, "Cloud 1.*share `dim`"),
    (lambda: osl.barycenter([X, torch.zeros(4, 2)]), TypeError, "one library"),
    (lambda: osl.barycenter([X, X * np.nan]), ValueError, "Cloud 1.*must be finite"),
    (lambda: osl.barycenter([X, X], [0.5]), ValueError, r"shape \(2,\); got shape \(1,\).*`point_weights=`"),
    (lambda: osl.barycenter([X, X], [0.5, 0.6]), ValueError, "sum to 1"),
    (lambda: osl.barycenter([X, X], [1.5, -0.5]), ValueError, "must not be negative"),
    (lambda: osl.barycenter([X, X], [np.nan, 1]), ValueError, "must not be negative"),
    (lambda: osl.barycenter([X, X], ["a", "b"]), TypeError, "`weights` must hold real numbers; got text"),
    (lambda: osl.barycenter({"a": X, "b": X}, {"a": 1}), ValueError, r"names of the clouds, \['a', 'b'\]"),
    (lambda: osl.barycenter([X, X], point_weights=[None]), ValueError, "got 1 for 2 clouds"),
    (lambda: osl.barycenter([X, X], point_weights=[None, [1.0]]), ValueError, "one weight a point"),
    (lambda: osl.barycenter([X, X], n_points=0), ValueError, "`n_points` must be at least 1"),
    (lambda: osl.barycenter([X, X], initial=np.zeros((3, 3))), ValueError, "`initial`.*share `dim`"),
    (lambda: osl.barycenter([X, X], initial=X, n_points=3), ValueError, r"shape \(3, dim\)"),
    (lambda: osl.barycenter([X, X], method="slice"), ValueError, "`method` must be one of"),
    (lambda: osl.barycenter([X, X], p=1), ValueError, "`p` must be 2.*value_and_grad"),
    (lambda: osl.barycenter(np.zeros((2, 3, 4, 2))), ValueError, "shape"),
    (lambda: osl.flow(X, np.zeros((2, 4, 2))), ValueError, "single clouds"),
    (lambda: osl.flow(X, X, p=3), ValueError, "`p` must be 2"),
    (lambda: osl.flow(X, X, n_steps=0), ValueError, "`n_steps` must be at least 1"),
    (lambda: osl.flow(X, X, rtol=0), ValueError, "`rtol` must be positive"),
    (lambda: osl.flow(X, X, rtol=None), TypeError, "`rtol` must be a number"),
    (lambda: osl.flow(X, X, callback=3), TypeError, "`callback` must be a function"),
    (lambda: osl.flow(X, X, directions="slices"), ValueError, "`directions` must be one of"),
    (lambda: osl.value_and_grad(X, X, method="exact"), ValueError, "`method` must be one of"),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_bad_input_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_values_that_could_not_be_checked_are_reported_when_read(rng):
    objective = make_objective([Cloud(X)], [1.0], osl.directions.Orthogonal(), 2)
    with pytest.raises(ValueError, match=r"must be finite.*came out as nan at step 0"):
        step_size._evaluate(objective, Cloud(X * np.nan), 0, 1.0)


def test_jit_is_refused(rng):
    import jax

    cloud = jax.numpy.zeros((4, 2))
    for function in (lambda x: osl.flow(x, cloud, rng=0).points, lambda x: osl.barycenter([x], rng=0).points):
        with pytest.raises(TypeError, match="cannot be traced"):
            jax.jit(function)(cloud)


@pytest.mark.parametrize("m", [1000, 700, 1500])
@pytest.mark.parametrize("weighted", [False, True])
def test_on_a_line_a_flow_is_the_monotone_map(rng, m, weighted):
    x, y = rng.normal(size=(1000, 1)), rng.exponential(size=(m, 1)) + 3
    shares = weights(rng, 1000) if weighted else None
    moved = osl.flow(x, y, x_weights=shares, rng=0)
    order = np.argsort(x[:, 0])
    assert moved.converged
    assert np.diff(moved.points[order, 0]).min() > -1e-12
    # Every point is where the optimal coupling sends it, on average.
    plan = osl.wasserstein(x, y, x_weights=shares).coupling
    sent = np.bincount(plan.ix, plan.mass * y[plan.iy, 0]) / np.bincount(plan.ix, plan.mass)
    np.testing.assert_allclose(moved.points[:, 0], sent, rtol=1e-9)
