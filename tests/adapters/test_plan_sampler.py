"""Pairs for flow matching: one contract for this sampler and the real one of torchcfm."""

from __future__ import annotations

import numpy as np
import pytest

import orthoslice as osl

torch = pytest.importorskip("torch", reason="pip install 'orthoslice[torch]'")

from orthoslice.adapters import PlanSampler  # noqa: E402


def theirs():
    reason = "pip install --no-deps torchcfm (it needs torch and POT only for this)"
    return pytest.importorskip("torchcfm.optimal_transport", reason=reason).OTPlanSampler(method="exact")


@pytest.fixture(params=[lambda: PlanSampler(rng=0), theirs], ids=["ours", "torchcfm"])
def sampler(request):
    return request.param()


def batches(n=128, m=128, *, shape=(2, 3), seed=0):
    """Batches whose rows carry their number in the first coordinate, too small to matter for costs."""
    x0, x1 = (torch.from_numpy(np.random.default_rng(seed + k).normal(size=(k, *shape))) for k in (n, m + 1))
    x1 = x1[:m] + 1
    for x in (x0, x1):
        x.flatten(1)[:, 0] = torch.arange(len(x)) * 1e-9
    return x0, x1


def row_of(points):
    return (points.flatten(1)[:, 0] * 1e9).round().long()


def cost(x0, x1):
    return float((x1 - x0).flatten(1).square().sum(1).mean())


def exact(x0, x1):
    return float(osl.wasserstein(x0.flatten(1), x1.flatten(1)).value)


class TestContract:
    """What training loops rely on; torchcfm's own sampler passes it too."""

    def test_optimal_pairs_of_the_points(self, sampler):
        x0, x1 = batches()
        a, b = sampler.sample_plan(x0, x1, replace=False)
        assert a.shape == x0.shape
        assert b.shape == x1.shape
        assert a.dtype == b.dtype == x0.dtype
        assert sorted(row_of(a).tolist()) == sorted(row_of(b).tolist()) == list(range(128))
        assert a.equal(x0[row_of(a)])
        assert b.equal(x1[row_of(b)])
        assert cost(a, b) == pytest.approx(exact(x0, x1), rel=1e-9)
        # Negative control: pairs as they came are dearer.
        assert cost(x0, x1) > 1.2 * cost(a, b)

    def test_with_replacement_pairs_are_drawn_from_the_same_plan(self, sampler):
        x0, x1 = batches()
        a, b = sampler.sample_plan(x0, x1, replace=True)
        plan = dict(zip(*(row_of(x).tolist() for x in sampler.sample_plan(x0, x1, replace=False)), strict=True))
        assert [plan[i] for i in row_of(a).tolist()] == row_of(b).tolist()
        # 128 draws of 128 are 81 different ones; outside 60 to 105 less often than once in a million.
        assert 60 < len(set(row_of(a).tolist())) < 105

    def test_labels_go_with_their_points(self, sampler):
        x0, x1 = batches()
        y0, y1 = torch.arange(128), torch.arange(128) + 500
        for replace in (False, True):
            a, b, ya, yb = sampler.sample_plan_with_labels(x0, x1, y0, y1, replace=replace)
            assert ya.equal(row_of(a))
            assert yb.equal(row_of(b) + 500)
        assert sampler.sample_plan_with_labels(x0, x1)[2:] == (None, None)
        assert sampler.sample_plan_with_labels(x0, x1, y1=y1)[2] is None

    def test_sizes_may_differ(self, sampler):
        x0, x1 = batches(60, 150)
        a, b = sampler.sample_plan(x0, x1)
        assert len(a) == len(b) == 60
        assert b.equal(x1[row_of(b)])
        # One drawn partner of several: the mean of 60 costs lies near the optimum (within 5 deviations).
        spread = float((b - a).flatten(1).square().sum(1).std()) / 60**0.5
        assert abs(cost(a, b) - exact(x0, x1)) < 5 * spread

    def test_paths_are_chained_pairs(self, sampler):
        populations = torch.stack([*batches(40, 40), batches(40, 40, seed=5)[1] + 1], dim=1)
        paths = torch.as_tensor(np.asarray(sampler.sample_trajectory(populations)))
        assert paths.shape == populations.shape
        assert paths[:, 0].equal(populations[:, 0])
        for t in (0, 1):
            before, after = populations[:, t], populations[:, t + 1]
            assert cost(paths[:, t], paths[:, t + 1]) == pytest.approx(exact(before, after), rel=1e-9)

    def test_gradients_go_to_the_points(self, sampler):
        x0, x1 = batches(30, 30)
        x1.requires_grad_()
        _, b = sampler.sample_plan(x0, x1, replace=False)
        b.sum().backward()
        assert x1.grad.equal(torch.ones_like(x1))


def test_points_stay_in_their_place():
    x0, x1 = batches(50, 70)
    assert PlanSampler(rng=0).sample_plan(x0, x1)[0].equal(x0)


def test_partners_are_drawn_by_mass():
    """Two points and three: a partner of the first is the nearest one with probability 2/3."""
    x0, x1 = torch.tensor([[0.0], [10.0]]), torch.tensor([[0.0], [5.0], [10.0]])
    sampler = PlanSampler(rng=3)
    drawn = torch.stack([sampler.sample_plan(x0, x1)[1][:, 0] for _ in range(400)])
    assert set(drawn[:, 0].tolist()) == {0.0, 5.0}
    assert set(drawn[:, 1].tolist()) == {5.0, 10.0}
    # 400 draws: five standard errors.
    for share in ((drawn[:, 0] == 0).double().mean(), (drawn[:, 1] == 10).double().mean()):
        assert abs(float(share) - 2 / 3) < 5 * (2 / 9 / 400) ** 0.5


def test_a_seed_repeats_the_stream():
    x0, x1 = batches(1500, 1500, shape=(3,))

    def two(rng):
        # By rounds: an auction draws nothing.
        sampler = PlanSampler(rng=rng, n_sweeps=6)
        return [row_of(sampler.sample_plan(x0, x1)[1]) for _ in range(2)]

    first, second = two(4)
    assert all(a.equal(b) for a, b in zip(two(4), (first, second), strict=True))
    assert not first.equal(second)


class TestWithinClasses:
    def test_pairs_of_a_class_are_optimal_among_themselves(self):
        x0, x1 = batches()
        y0, y1 = (torch.from_numpy(np.random.default_rng(k).permutation(np.arange(128) % 4)) for k in (0, 1))
        sampler = PlanSampler(within_classes=True, rng=0)
        a, b, ya, yb = sampler.sample_plan_with_labels(x0, x1, y0, y1)
        assert ya.equal(yb)
        assert a.equal(x0)
        assert sorted(row_of(b).tolist()) == list(range(128))
        for k in range(4):
            assert cost(a[ya == k], b[ya == k]) == pytest.approx(exact(x0[y0 == k], x1[y1 == k]), rel=1e-9)
        # Negative control: without classes pairs go across them.
        _, _, ya, yb = PlanSampler(rng=0).sample_plan_with_labels(x0, x1, y0, y1)
        assert not ya.equal(yb)

    def test_noise_takes_the_classes_beside_it(self):
        x0, x1 = batches()
        y1 = torch.arange(128) % 5
        sampler = PlanSampler(within_classes=True, rng=0)
        a, b, ya, yb = sampler.sample_plan_with_labels(x0, x1, y1=y1)
        assert ya is None
        assert yb.equal(y1)
        assert yb.equal(y1[row_of(b)])
        assert a.equal(x0)
        assert cost(a, b) < cost(x0, x1)

    def test_counts_may_differ(self):
        x0, x1 = batches(60, 90)
        y0, y1 = (torch.arange(60) >= 20).long(), (torch.arange(90) >= 70).long()
        sampler = PlanSampler(within_classes=True, rng=0)
        for replace in (False, True):
            a, b, ya, yb = sampler.sample_plan_with_labels(x0, x1, y0, y1, replace=replace)
            assert ya.equal(yb)
            assert ya.equal(y0[row_of(a)])
            assert yb.equal(y1[row_of(b)])

    def test_refusals(self):
        x0, x1 = batches(6, 8)
        sampler = PlanSampler(within_classes=True)
        with pytest.raises(ValueError, match="gets no classes to pair within; call `sample_plan_with_labels`"):
            sampler.sample_plan(x0, x1)
        with pytest.raises(ValueError, match=r"`y1` must be the classes of `x1`.*got None"):
            sampler.sample_plan_with_labels(x0, x1, torch.zeros(6))
        with pytest.raises(ValueError, match=r"`y0` may be left out.*got 6 and 8 points"):
            sampler.sample_plan_with_labels(x0, x1, y1=torch.zeros(8))
        with pytest.raises(ValueError, match=r"`y1` must have a class for every point, \(8,\); got \(8, 2\)"):
            sampler.sample_plan_with_labels(x0, x1, torch.zeros(6), torch.zeros(8, 2))
        with pytest.raises(ValueError, match="`y1` must have every class of `y0`; it has no 1"):
            sampler.sample_plan_with_labels(x0, x1, torch.ones(6).long(), torch.zeros(8).long())


def test_refusals():
    with pytest.raises(ValueError, match=r"`x0` must be a torch tensor of points .*; got shape \(3,\)"):
        PlanSampler().sample_plan(torch.ones(3), torch.ones(3))
    with pytest.raises(ValueError, match=r"`x1` must be a torch tensor of points \(n, \.\.\.\), .*; got list"):
        PlanSampler().sample_plan(torch.ones(3, 1), [[1.0]])


@pytest.mark.parametrize("within_classes", [False, True])
def test_a_matcher_of_torchcfm_takes_it(within_classes):
    reason = "pip install --no-deps torchcfm (it needs torch and POT only for this)"
    module = pytest.importorskip("torchcfm.conditional_flow_matching", reason=reason)
    matcher = module.ExactOptimalTransportConditionalFlowMatcher(sigma=0.0)
    matcher.ot_sampler = PlanSampler(within_classes=within_classes, rng=0)
    x0, x1 = batches()
    y1 = torch.arange(128) % 3
    t, xt, ut, y0, label = matcher.guided_sample_location_and_conditional_flow(x0, x1, y1=y1)
    assert y0 is None
    # Straight paths between the pairs: where each began and ends, to rounding.
    ends = xt + (1 - t)[:, None, None] * ut
    pairs = PlanSampler(within_classes=within_classes, rng=0).sample_plan_with_labels(x0, x1, y1=y1)
    torch.testing.assert_close(ends, pairs[1], rtol=1e-6, atol=1e-6)
    assert label.equal(pairs[3])
    if not within_classes:
        _, xt, ut = matcher.sample_location_and_conditional_flow(x0, x1)
        assert xt.shape == ut.shape == x0.shape


def test_options_of_torchcfm_are_answered_and_torch_generators_taken():
    for call in (lambda: PlanSampler(method="exact"), lambda: PlanSampler("exact")):
        with pytest.raises(TypeError, match=r"`method`, `reg` and other options .* are left out"):
            call()
    x0, x1 = batches(20, 30)
    one, same, other = (
        PlanSampler(rng=torch.Generator().manual_seed(k)).sample_plan(x0, x1)[1] for k in (3, 3, 4)
    )
    assert one.equal(same)
    assert not one.equal(other)
    with pytest.raises(TypeError, match="`rng` must be None, an integer"):
        PlanSampler(rng="x")


def test_what_is_refused():
    x, sampler = torch.randn(8, 2), osl.adapters.PlanSampler(rng=0)
    with pytest.raises(ValueError, match="`y0` must be a tensor with a label for every point"):
        sampler.sample_plan_with_labels(x, x + 1, torch.zeros(5), torch.zeros(8))
    with pytest.raises(ValueError, match="`y1` must be a tensor with a label for every point"):
        sampler.sample_plan_with_labels(x, x + 1, torch.zeros(8), np.zeros(8))
    with pytest.raises(ValueError, match=r"`x0` must be a torch tensor of points .*one or more"):
        sampler.sample_plan(x[:0], x)
    for bad in (x, np.zeros((8, 3, 2))):
        with pytest.raises(ValueError, match="`X` must be a torch tensor of populations"):
            sampler.sample_trajectory(bad)
