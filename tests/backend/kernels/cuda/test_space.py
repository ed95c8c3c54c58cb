"""Pairs priced in full space by CUDA kernels, against the plain reference in float64."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_rounded

from orthoslice.backend.kernels.cuda import space
from orthoslice.clouds.cloud import Cloud
from orthoslice.costs.space import price_in_space
from orthoslice.couplings.coupling import Pairs, couple_ranks

torch = pytest.importorskip("torch")

LARGE = [(4097, 4097, 5), (4097, 1000, 130)] if torch.cuda.is_available() else []
SIZES = [(1, 1, 3), (2, 2, 1), (63, 63, 17), (257, 257, 3), (1000, 1000, 2), (20, 20, 130)]
SIZES += [(2, 1, 3), (63, 40, 17), (257, 300, 2), *LARGE]
POWERS = [1, 1.1, 2, 3]
BOTH = (True, True, False, False)


def problem(rng, n, m, dim, kernel_device, dtype=torch.float32, slices=3):
    """Clouds that share a few points, coupled by random numbers."""
    x, y = (torch.tensor(rng.normal(size=(k, dim)), dtype=dtype, device=kernel_device) for k in (n, m))
    y[: min(n, m) // 3] = x[: min(n, m) // 3]
    lines = (torch.tensor(rng.normal(size=(slices, k)), device=kernel_device) for k in (n, m))
    return x, y, couple_ranks(*lines)


def priced(row, x, y, p, pairs, wanted=BOTH):
    with price_in_space.using(row):
        scores, gradients = price_in_space(Cloud(x), Cloud(y), p, pairs, wanted)
    return (scores, *gradients)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "m", "dim"), SIZES)
def test_prices(rng, n, m, dim, dtype, kernel_device):
    kind = torch.float32 if dtype is np.float32 else torch.float64
    x, y, pairs = problem(rng, n, m, dim, kernel_device, kind)
    for p in POWERS if n < 300 else [1.1]:
        found = priced("cuda", x, y, p, pairs)
        assert [a.dtype for a in found] == [torch.float64, kind, kind]
        for a, b in zip(found, priced("reference", x.double(), y.double(), p, pairs), strict=True):
            assert_rounded(a, b, dtype, p * dim)
        if n == m and p == 1.1:
            for a, b in zip(found, priced("cuda", x, y, p, pairs), strict=True):
                assert torch.equal(a, b)


@pytest.mark.parametrize("n", [21, 13])
@pytest.mark.parametrize("wanted", [(False, False), (True, False), (False, True)])
def test_only_wanted_gradients(rng, n, wanted, kernel_device):
    x, y, pairs = problem(rng, n, 21, 5, kernel_device)
    expected = priced("reference", x.double(), y.double(), 3, pairs)
    kept = (expected[0], *(g for g, want in zip(expected[1:], wanted, strict=True) if want))
    found = priced("cuda", x, y, 3, pairs, (*wanted, False, False))
    for a, b in zip(found, kept, strict=True):
        assert_rounded(a, b, np.float32, 15)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("mass", ["shared", "own"])
def test_masses_and_layouts(rng, mass, kernel_device):
    """Any pairs with masses of their own; one order for all slices; nothing contiguous, nothing changed."""
    x, y, _ = problem(rng, 21, 17, 6, kernel_device)
    x, y = x.repeat_interleave(2, dim=1)[:, ::2], y.T.contiguous().T
    ix = torch.tensor(rng.integers(0, 21, size=(1, 60)), device=kernel_device)[:, ::2]
    iy = torch.tensor(rng.integers(0, 17, size=(30, 4)), device=kernel_device).T
    share = torch.tensor(rng.random(30 if mass == "shared" else (4, 30)), device=kernel_device)
    pairs = Pairs(ix, iy, share, None)
    before = [a.clone() for a in (x, y, ix, iy, share)]
    found = priced("cuda", x, y, 1.5, pairs)
    for a, b in zip(found, priced("reference", x.double(), y.double(), 1.5, pairs), strict=True):
        assert_rounded(a, b, np.float32, 120)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, y, ix, iy, share), strict=True))


@pytest.mark.parametrize("p", POWERS)
def test_coinciding_points_cost_and_pull_nothing(rng, p, kernel_device):
    x = torch.tensor(1e4 * rng.normal(size=(20, 17)), dtype=torch.float32, device=kernel_device)
    same = torch.tensor(np.argsort(rng.random((4, 20)), axis=1), device=kernel_device)
    for mass in (torch.full((1,), 0.05, dtype=torch.float64), torch.full((20,), 0.05, dtype=torch.float64)):
        for found in priced("cuda", x, x.clone(), p, Pairs(same, same, mass.to(kernel_device), None)):
            assert (found == 0).all()


@pytest.mark.parametrize("p", POWERS)
def test_nan_is_not_swallowed(p, kernel_device):
    x = torch.tensor([[0.0, np.nan], [1.0, 2.0]], device=kernel_device)
    index = torch.tensor([[0, 1], [1, 1]], device=kernel_device)
    pairs = Pairs(index, index, torch.full((2,), 0.5, dtype=torch.float64, device=kernel_device), None)
    scores, x_gradient, y_gradient = priced("cuda", x, torch.ones_like(x), p, pairs)
    assert scores.isnan().tolist() == [True, False]
    for gradient in (x_gradient, y_gradient):
        assert gradient.isnan().any(dim=1).tolist() == [True, False]


def test_powers_share_kernels(rng, kernel_device, monkeypatch):
    """Nothing is compiled for a power: it is an argument."""
    started, bind_kernel = set(), space.bind

    def note(kernel, program, *rest):
        started.add((kernel, program))
        return bind_kernel(kernel, program, *rest)

    monkeypatch.setattr(space, "bind", note)
    x, y, pairs = problem(rng, 4, 4, 2, kernel_device)
    for p in (1.5, 1.6, 2.5, 3, 7, 1, 2):
        priced("cuda", x, y, p, pairs)
    assert len(started) == 2


def test_slices_are_summed_in_parts(rng, kernel_device):
    """Groups of threads share them."""
    x, y, pairs = problem(rng, 5, 5, 40, kernel_device, slices=19)
    found = priced("cuda", x, y, 2, pairs)
    for a, b in zip(found, priced("reference", x.double(), y.double(), 2, pairs), strict=True):
        assert_rounded(a, b, np.float32, 19)


def test_refusals(rng, kernel_device):
    x, y, pairs = problem(rng, 4, 4, 2, kernel_device)
    tape, half = x.clone().requires_grad_(), x.half()
    batch = Pairs(pairs.ix[:, None], pairs.iy[:, None], pairs.mass, None)
    cases = {
        "gradients by weights": (x, y, 2, pairs, (False, False, True, False)),
        "without a batch": (x[None], y[None], 2, batch, BOTH),
        "clouds of one type": (x, y.double(), 2, pairs, BOTH),
        "gradient tape": (tape, y, 2, pairs, BOTH),
        "float32 and float64, not torch.float16": (half, half, 2, pairs, BOTH),
    }
    for reason, arguments in cases.items():
        with pytest.raises(TypeError, match=reason):
            priced("cuda", *arguments)
