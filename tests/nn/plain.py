"""The losses in a few lines of torch, and how to compare with them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import assert_rounded, bridge_torch

import orthoslice as osl
from orthoslice.backend.arrays import STEPS, Key
from orthoslice.directions import Orthogonal, drawing
from orthoslice.estimates import fused as whole_steps

torch = pytest.importorskip("torch")
nn = osl.nn

LOSSES = {"sliced": nn.SlicedWassersteinLoss, "projected": nn.ProjectedWassersteinLoss}
DISTANCES = {"sliced": osl.sliced_wasserstein, "projected": osl.projected_wasserstein}
SEED = 2**63 + 2**31 + 5
DIM, COUNT = 5, 12

both = pytest.mark.parametrize("kind", sorted(LOSSES))
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def as_if_on_a_gpu(monkeypatch):
    """Have whole steps run in host memory, by kernels that are emulated there."""
    bridge_torch(monkeypatch, False)
    monkeypatch.setattr(whole_steps, "_clouds_refusal", lambda *_: None)
    for refusal in ("cuda_refusal", "room_refusal"):
        monkeypatch.setattr(drawing, refusal, lambda *_, **__: None)


def points(rng, place, n, dim=DIM):
    return torch.tensor(rng.normal(size=(n, dim)), dtype=torch.float32, device=place)


def drawn(step=None, sampler=None, count=COUNT, dim=DIM, seed=SEED):
    """The directions of a step, or of an `rng=`, in float64."""
    key = Key.from_seed(seed, np.zeros(1))
    key = key if step is None else key.fold(step, STEPS)
    return torch.tensor((sampler or Orthogonal()).sample(count, dim, key).theta)


def plain(kind, x, y, theta, p=2):
    """The loss in float64 and its gradients, in a few lines of torch."""
    x, y = (a.detach().cpu().double().requires_grad_() for a in (x, y))
    most = math.lcm(len(x), len(y))
    orders = [torch.argsort(theta @ a.T, dim=1, stable=True) for a in (x, y)]
    i, j = (o.repeat_interleave(most // o.shape[1], dim=1) for o in orders)
    if kind == "sliced":
        difference = torch.gather(theta @ x.T, 1, i) - torch.gather(theta @ y.T, 1, j)
        value = (difference.abs() ** p).mean()
    else:
        value = ((x[i] - y[j]).square().sum(dim=-1) ** (p / 2)).mean()
    return value, torch.autograd.grad(value, (x, y))


def assert_same_step(loss, kind, x, y, theta, p=2, **options):
    """One call against the plain one: value, and gradients by both clouds."""
    x, y = (a.detach().clone().requires_grad_() for a in (x, y))
    value = loss(x, y, **options)
    expected, gradients = plain(kind, x, y, theta, p)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert value.device == x.device
    assert_rounded(value, expected, np.float32, DIM * COUNT)
    for found, gradient in zip(torch.autograd.grad(value, (x, y)), gradients, strict=True):
        assert_rounded(found, gradient, np.float32, DIM * COUNT)


def assert_half(found, exact, dtype):
    """One rounding to half precision, on the scale of the largest; NumPy has no bfloat16."""
    assert found.dtype == dtype
    assert (found.cpu().double() - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()
