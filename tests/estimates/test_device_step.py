"""Sliced distances of tensors on a GPU, made as a whole, against the driver's own way and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import bridge_torch, unit_rows

import orthoslice as osl
from orthoslice.backend.arrays import differentiable
from orthoslice.estimates import device_step, entry, plan
from orthoslice.estimates.driver import estimate
from orthoslice.estimates.plan import draw_all

torch = pytest.importorskip("torch")


@pytest.fixture
def place(cuda_device, monkeypatch):
    """A GPU, or host memory where kernels are emulated as if it were one."""
    if cuda_device == "cpu":
        bridge_torch(monkeypatch, False)
        monkeypatch.setattr(device_step, "cuda_refusal", lambda *_: None)
        monkeypatch.setattr(entry, "is_on_gpu", lambda _: True)
    calls = []
    monkeypatch.setattr(plan, "differentiable", lambda *a, **k: calls.append(1) or differentiable(*a, **k))
    plan._plan_for.cache_clear()
    yield cuda_device
    plan._plan_for.cache_clear()
    assert calls, "no estimate was made as a whole"


def clouds(rng, place, n, m, dim, offset=0.0):
    x, y = rng.normal(size=(n, dim)) + offset, rng.normal(size=(m, dim)) + 0.3 + offset
    return [torch.tensor(c, dtype=torch.float32, device=place) for c in (x, y)]


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("n", "m", "dim"), [(1, 1, 1), (40, 40, 3), (64, 31, 5), (700, 700, 4)])
@pytest.mark.parametrize("directions", ["iid", "orthogonal", "hadamard", "given"])
def test_values_scores_and_gradients(rng, place, directions, n, m, dim, p):
    x, y = clouds(rng, place, n, m, dim)
    x.requires_grad_()
    theta = unit_rows(rng, 7, dim)
    told = torch.tensor(theta, dtype=torch.float32, device=place) if directions == "given" else directions
    est = osl.sliced_wasserstein(x, y, p, directions=told, n_directions=7, rng=3)
    est.value.backward()
    tables = [c.detach().cpu().double().numpy() for c in (x, y)]
    own = theta if directions == "given" else directions
    plain = osl.sliced_wasserstein(*tables, p, directions=own, n_directions=7, rng=3, control=None)
    np.testing.assert_allclose(est.value.item(), plain.value, rtol=2e-5)
    np.testing.assert_allclose(est.scores.cpu(), plain.scores, rtol=2e-4, atol=1e-6)
    _, slope = osl.value_and_grad(*tables, p, directions=own, n_directions=7, rng=3)
    np.testing.assert_allclose(x.grad.cpu(), slope, rtol=2e-3, atol=2e-5)
    assert est.seed == plain.seed == 3
    assert (est.n_directions, est.n_blocks) == (plain.n_directions, plain.n_blocks)


@pytest.mark.parametrize("directions", ["orthogonal", "hadamard"])
def test_far_from_the_origin(rng, place, directions):
    x, y = clouds(rng, place, 50, 50, 3, offset=3e4)
    options = {"n_directions": 9, "directions": directions, "rng": 0}
    est = osl.sliced_wasserstein(x, y, **options)
    exact = osl.sliced_wasserstein(*(c.cpu().double().numpy() for c in (x, y)), **options)
    np.testing.assert_allclose(est.value.item(), exact.value, rtol=1e-3)


def test_bad_values_become_nan(rng, place):
    x, y = clouds(rng, place, 20, 20, 3)
    long = torch.tensor(2 * unit_rows(rng, 4, 3), dtype=torch.float32, device=place)
    assert torch.isnan(osl.sliced_wasserstein(x, y, directions=long)._value).item()
    x[4, 1] = torch.nan
    assert torch.isnan(osl.sliced_wasserstein(x, y, n_directions=4, rng=0)._value).item()
    x[4, 1] = 1e30
    assert torch.isnan(osl.sliced_wasserstein(x, y, n_directions=4, rng=0)._value).item()


def test_estimates_are_like_those_of_the_driver(rng, place):
    """Intervals, trust and what is told besides."""
    x, y = clouds(rng, place, 60, 60, 4)
    est = osl.sliced_wasserstein(x, y, directions="orthogonal", n_directions=32, rng=5)
    request, cloud_x, cloud_y = entry.check_request(
        "SW",
        est._subject.score,
        (x, y, None, None),
        2,
        entry.Options("orthogonal", 32, None, None, "auto", 5, "256MB", None, False),
    )
    other = estimate(request, cloud_x, cloud_y, 5, 1.0)
    for ours, theirs in zip(est.interval(), other.interval(), strict=True):
        np.testing.assert_allclose(ours.cpu(), theirs.cpu(), rtol=1e-4)
    assert est.trusted == other.trusted
    assert {k for k, v in vars(est).items() if not k.startswith("_")} == {
        k for k, v in vars(other).items() if not k.startswith("_")
    }
    assert repr(est).split(";")[1] == repr(other).split(";")[1]


def test_directions_of_a_seed_are_kept(rng, place, monkeypatch):
    """They are what the seed draws anew, for as long as they are few; other seeds draw others."""
    x, y = clouds(rng, place, 30, 30, 3)
    drawn = []
    monkeypatch.setattr(plan, "draw_all", lambda *a: drawn.append(1) or draw_all(*a))
    plan.forget_directions()

    def scores(seed):
        return osl.sliced_wasserstein(x, y, n_directions=7, directions="orthogonal", rng=seed).scores

    first = scores(5)
    assert torch.equal(scores(5), first)
    assert len(drawn) == 1
    assert not torch.equal(scores(6), first)
    plan.forget_directions()
    assert torch.equal(scores(5), first)
    assert len(drawn) == 3
    monkeypatch.setattr(plan, "_KEPT_NUMBERS", 7 * 3 - 1)
    assert torch.equal(scores(5), first)
    assert torch.equal(scores(np.int64(5)), first)
    assert len(drawn) == 5
    plan.forget_directions()


def test_a_bad_cloud_of_a_batch_spoils_no_other(rng, place):
    x, y = (torch.tensor(rng.normal(size=(4, 20, 3)), dtype=torch.float32, device=place) for _ in range(2))
    sound = osl.sliced_wasserstein(x, y, n_directions=4, rng=0).value
    x[1, 4, 1] = torch.nan
    y[2, 0, 0] = 1e30
    spoilt = osl.sliced_wasserstein(x, y, n_directions=4, rng=0)._value
    assert spoilt.isnan().tolist() == [False, True, True, False]
    assert torch.equal(spoilt[[0, 3]], sound[[0, 3]])


@pytest.mark.parametrize(
    ("batch", "n", "m"), [((3,), 40, 40), ((2,), 300, 300), ((2, 2), 20, 33), ((2,), 700, 500)]
)
def test_batches(rng, place, batch, n, m):
    x, y = (torch.tensor(rng.normal(size=(*batch, k, 3)), dtype=torch.float32, device=place) for k in (n, m))
    x[0] += 3e3
    y[0] += 3e3
    x.requires_grad_()
    est = osl.sliced_wasserstein(x, y, n_directions=6, directions="orthogonal", rng=1)
    assert est.value.shape == batch
    est.value.sum().backward()
    tables = [c.detach().cpu().double().numpy() for c in (x, y)]
    plain = osl.sliced_wasserstein(*tables, n_directions=6, directions="orthogonal", rng=1, control=None)
    np.testing.assert_allclose(est.value.detach().cpu(), plain.value, rtol=2e-4)
    np.testing.assert_allclose(est.scores.cpu(), plain.scores, rtol=2e-3, atol=1e-5)
    low = est.interval()[0]
    np.testing.assert_allclose(low.cpu(), plain.interval()[0], rtol=2e-3)
    for k in np.ndindex(*batch):
        _, slope = osl.value_and_grad(*(t[k] for t in tables), n_directions=6, directions="orthogonal", rng=1)
        np.testing.assert_allclose(x.grad[k].cpu(), slope, rtol=2e-2, atol=2e-4)
