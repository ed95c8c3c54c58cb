"""Products in full precision, whatever switches of torch say."""

from __future__ import annotations

import types

import numpy as np
import pytest
from backend.kernels.cuda.tf32 import round_products_to_tf32
from helpers import bridge_torch

import orthoslice as osl
from orthoslice.backend.kernels.cuda import products

torch = pytest.importorskip("torch")


@pytest.fixture
def switches():
    """Torch's own, put back afterwards."""
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this torch has only the old switch")
    before = torch.get_float32_matmul_precision()
    yield matmul
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision(before)


def test_either_name_of_the_switch_is_understood(switches):
    """Also where both were used, which makes torch raise when the old one is read."""
    for value in (True, False):
        switches.allow_tf32 = value
        assert products.is_tf32_on(switches) is value
    switches.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix of the legacy and new"):
        assert switches.allow_tf32
    assert products.is_tf32_on(switches)
    switches.fp32_precision = "ieee"
    assert not products.is_tf32_on(switches)
    torch.backends.fp32_precision = "tf32"
    assert not products.is_tf32_on(switches)
    switches.fp32_precision = "none"
    assert products.is_tf32_on(switches)


def test_switches_of_an_older_torch():
    for value in (True, False):
        assert products.is_tf32_on(types.SimpleNamespace(allow_tf32=value)) is value


def test_no_switch_is_turned(switches, monkeypatch):
    """While a product is made, other threads see what they set."""
    switches.allow_tf32 = True
    seen = []
    multiply = torch.Tensor.__matmul__

    def watched(a, b):
        seen.append((switches.allow_tf32, a.dtype))
        return multiply(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    monkeypatch.setattr(products, "_is_rounded", lambda factor: factor.dtype == torch.float32)
    assert products.product(torch.eye(2), torch.eye(2)).dtype == torch.float32
    assert seen == [(True, torch.float64)]


def test_where_factors_are_rounded(switches):
    """On a GPU, in single precision, while the switch is on."""
    switches.allow_tf32 = True

    def factor(is_cuda, dtype):
        return types.SimpleNamespace(is_cuda=is_cuda, dtype=dtype)

    assert products._is_rounded(factor(True, torch.float32))
    assert not products._is_rounded(factor(True, torch.float64))
    assert not products._is_rounded(factor(False, torch.float32))
    assert not products._is_rounded(np.eye(2))
    switches.allow_tf32 = False
    assert not products._is_rounded(factor(True, torch.float32))


@pytest.mark.parametrize("is_first", [True, False])
def test_products_that_are_added(is_first, rng, monkeypatch):
    a, b, before = (torch.tensor(rng.normal(size=(7, 7)), dtype=torch.float32) for _ in range(3))
    exact = a.double() @ b.double() + (0 if is_first else before.double())
    for rounds in (False, True):
        if rounds:
            round_products_to_tf32(monkeypatch)
            assert (before.clone().addmm_(a, b, beta=0 if is_first else 1) - exact).abs().max() > 1e-4
        total = before.clone()
        products.add_product(total, a, b, is_first=is_first)
        torch.testing.assert_close(total.double(), exact, rtol=0, atol=4e-6)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_distances_are_not_rounded(batch, rng, monkeypatch):
    """Neither their values nor their gradients, which projections and what carries slopes back go into."""
    bridge_torch(monkeypatch, False)
    x, y = (torch.tensor(rng.normal(size=(*batch, 30, 8)), requires_grad=True) for _ in "xy")
    expected = osl.sliced_wasserstein(x, y, rng=0).value.sum()
    (gradient,) = torch.autograd.grad(expected, x)
    round_products_to_tf32(monkeypatch)
    narrow = x.detach().float().requires_grad_()
    value = osl.sliced_wasserstein(narrow, y.detach().float(), rng=0).value.sum()
    torch.testing.assert_close(value.double(), expected, rtol=2e-6, atol=0)
    found = torch.autograd.grad(value, narrow)[0].double()
    torch.testing.assert_close(found, gradient, rtol=0, atol=2e-6 * gradient.abs().max().item())
