"""A metric of torchmetrics: batches, processes, epochs."""

from __future__ import annotations

import pickle

import pytest

import orthoslice as osl

torch = pytest.importorskip("torch")
torchmetrics = pytest.importorskip("torchmetrics", reason="pip install 'orthoslice[metrics]'")


def batches(seed, count=3, n=12, dim=4):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(count, n, dim, generator=generator))


def filled(real, other, **options):
    metric = osl.adapters.SlicedWassersteinMetric(n_directions=40, rng=3, **options)
    for x in real:
        metric.update(x, real=True)
    for x in other:
        metric.update(x, real=False)
    return metric


@pytest.mark.parametrize("p", [1, 2])
def test_batches_are_one_cloud(p):
    real, other = batches(0), [x + 1 for x in batches(1, count=2, n=9)]
    expected = osl.sliced_wasserstein(torch.cat(real), torch.cat(other), p, n_directions=40, rng=3).distance
    found = filled(real, other, p=p).compute()
    torch.testing.assert_close(found, expected)
    assert found.ndim == 0


def test_it_is_a_metric_of_torchmetrics():
    metric = filled(batches(0), batches(1))
    assert isinstance(metric, torchmetrics.Metric)
    assert metric.higher_is_better is False
    copy = pickle.loads(pickle.dumps(metric))
    torch.testing.assert_close(copy.compute(), metric.compute())
    tracker = torchmetrics.MetricTracker(osl.adapters.SlicedWassersteinMetric(n_directions=8), maximize=False)
    for shift in (2.0, 1.0, 3.0):
        tracker.increment()
        tracker.update(torch.zeros(5, 2), real=True)
        tracker.update(torch.full((5, 2), shift), real=False)
    _, which = tracker.best_metric(return_step=True)
    assert which == 1


def test_states_merge():
    real, other = batches(0, count=4), batches(1, count=4)
    whole = filled(real, other)
    part = filled(real[:2], other[:1])
    part.merge_state(filled(real[2:], other[1:]))
    torch.testing.assert_close(part.compute(), whole.compute())


def test_two_processes():
    """What `sync` does between processes: each gathers what both have, and both give the same answer."""
    real, other = batches(0, count=4), batches(1, count=4)
    parts = [(real[:1], other[:3]), (real[1:], other[3:])]
    states = [(torch.cat(r), torch.cat(o)) for r, o in parts]

    def gather(tensor, group=None):
        """Both processes' tensors, for whichever of the two states this one is part of."""
        which = next(k for k in (0, 1) if any(torch.equal(tensor, state[k]) for state in states))
        return [state[which] for state in states]

    expected = filled(real, other).compute()
    alone = []
    for r, o in parts:
        options = {"dist_sync_fn": gather, "distributed_available_fn": lambda: True}
        torch.testing.assert_close(filled(r, o, **options).compute(), expected)
        alone.append(filled(r, o).compute())
    # Negative control: without the exchange each has an answer of its own.
    assert all(abs(a - expected) > 1e-3 for a in alone)


def test_epochs():
    real, other = batches(0), batches(1)
    keeping, forgetting = filled(real, other, reset_real=False), filled(real, other)
    for metric in (keeping, forgetting):
        metric.reset()
        for x in other:
            metric.update(x + 5, real=False)
    assert keeping.compute() > 2
    with pytest.raises(ValueError, match=r"call `update\(x, real=True\)` first"):
        forgetting.compute()


def test_gradients_are_not_kept():
    x = torch.ones(3, 2, requires_grad=True)
    assert not filled([x], [x * 2]).compute().requires_grad


def test_refusals():
    metric = osl.adapters.SlicedWassersteinMetric()
    with pytest.raises(ValueError, match=r"\(n, dim\); got shape \(2, 3, 4, 4\).*`x\.flatten\(1\)`"):
        metric.update(torch.zeros(2, 3, 4, 4), real=True)
    with pytest.raises(TypeError, match="`rng` must be an integer, so that all processes"):
        osl.adapters.SlicedWassersteinMetric(rng=None)
