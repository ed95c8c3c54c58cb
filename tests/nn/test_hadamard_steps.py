"""Sliced losses on Walsh-Hadamard blocks by the kernels of a whole step."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_rounded
from nn.plain import SEED, assert_half, plain, points

import orthoslice as osl
from orthoslice.backend.arrays import STEPS, Key
from orthoslice.backend.kernels.cuda import hadamard as cuda_hadamard
from orthoslice.directions import HadamardRademacher
from orthoslice.directions.spheres import mean_shortening
from orthoslice.estimates.fused import whole_step as whole_step_operation

torch = pytest.importorskip("torch")
nn = osl.nn

PAPER, SHORT = HadamardRademacher(factors="signs"), HadamardRademacher(block_size=3)


def rows(count, dim, step, sampler, seed=SEED):
    """The rows of a step, or of an `rng=`, in float64: shorter than 1 where the space is padded."""
    key = Key.from_seed(seed, np.zeros(1))
    key = key if step is None else key.fold(step, STEPS)
    size = sampler.block_rows(count, dim)
    index = np.arange(-(-count // size), dtype=np.int32)
    return torch.tensor(sampler.blocks(key, index, size, dim, np.dtype(np.float64)).theta[:count])


def expected_step(x, y, theta, p, dim, sampler):
    value, gradients = plain("sliced", x, y, theta, p)
    factor = 1 / mean_shortening(dim, sampler.ambient_dim(dim), p)
    return factor * value, [factor * gradient for gradient in gradients]


def assert_step(loss, x, y, count, step, p=2, sampler=None, rng=None):
    """One call against the plain one: value, and gradients by both clouds."""
    sampler, dim = sampler or HadamardRademacher(), x.shape[1]
    x, y = (a.detach().clone().requires_grad_() for a in (x, y))
    value = loss(x, y, rng=rng)
    expected, gradients = expected_step(x, y, rows(count, dim, step, sampler), p, dim, sampler)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert_rounded(value, expected, np.float32, dim * count)
    for found, gradient in zip(torch.autograd.grad(value, (x, y)), gradients, strict=True):
        assert_rounded(found, gradient, np.float32, dim * count)


@pytest.fixture
def hadamard_step(whole_step, monkeypatch):
    """As `whole_step`, and every plan is one of these."""
    with whole_step_operation.using("cuda hadamard"):
        yield whole_step


@pytest.mark.thin(pairs=True)
@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("drawers", [1 << 30, 0])
@pytest.mark.parametrize(
    "sampler", [None, PAPER, HadamardRademacher(rounds=1), HadamardRademacher(block_size=3)]
)
@pytest.mark.parametrize(("dim", "count"), [(8, 8), (5, 12), (4, 13), (1, 3), (2, 1), (70, 20), (128, 300)])
def test_whole_steps(rng, dim, count, sampler, drawers, hadamard_step, monkeypatch):
    """Padded or not, less than a block, many blocks, and a last one that is not full; steps and a seed.

    Factors are drawn where they are used, or before.
    """
    monkeypatch.setattr("orthoslice.backend.kernels.cuda.hadamard._DRAWERS", drawers)
    loss = nn.SlicedWassersteinLoss(count, directions=sampler or "hadamard", seed=SEED).to(hadamard_step)
    for step in range(2):
        x, y = points(rng, hadamard_step, 40, dim), points(rng, hadamard_step, 40, dim) + 0.5
        assert_step(loss, x, y, count, step, sampler=sampler)
        assert loss.step.item() == step + 1
    assert_step(loss, x, y, count, None, sampler=sampler, rng=SEED)
    assert loss.step.item() == 2


@pytest.mark.thin(pairs=True)
@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("p", [1, 2, 3.5])
@pytest.mark.parametrize(("n", "m"), [(20, 20), (20, 13), (13, 20), (1, 1), (65, 65)])
@pytest.mark.parametrize("memory", ["1GB", 4000, 1])
def test_sizes_powers_and_memory(rng, n, m, p, memory, hadamard_step):
    """Clouds of two sizes, and directions that are taken a few at a time, across the borders of blocks."""
    loss = nn.SlicedWassersteinLoss(13, p=p, directions="hadamard", memory=memory, seed=SEED).to(hadamard_step)
    x, y = points(rng, hadamard_step, n, 5), points(rng, hadamard_step, m, 5) + 0.5
    assert_step(loss, x, y, 13, 0, p)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True), (False, False)])
def test_wanted_gradients(rng, wanted, hadamard_step, monkeypatch):
    """Those that are wanted and no others, to the last digit; sums over blocks shared out or not."""
    x, y = points(rng, hadamard_step, 70, 4), points(rng, hadamard_step, 70, 4) + 0.5
    theta = rows(22, 4, 0, HadamardRademacher())
    expected, gradients = expected_step(x, y, theta, 2, 4, HadamardRademacher())
    for enough in (512, 5, 1):
        monkeypatch.setattr("orthoslice.backend.kernels.cuda.hadamard._ENOUGH_BLOCKS", enough)
        cuda_hadamard.carrying_back.cache_clear()
        loss = nn.SlicedWassersteinLoss(22, directions="hadamard", seed=SEED).to(hadamard_step)
        taken = [a.clone().requires_grad_(want) for a, want in zip((x, y), wanted, strict=True)]
        value = loss(*taken)
        assert_rounded(value, expected, np.float32, 100)
        if any(wanted):
            found = torch.autograd.grad(value, [a for a in taken if a.requires_grad])
            kept = [g for g, want in zip(gradients, wanted, strict=True) if want]
            for one, other in zip(found, kept, strict=True):
                assert_rounded(one, other, np.float32, 100)
    cuda_hadamard.carrying_back.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(rng, dtype, hadamard_step):
    x, y = points(rng, hadamard_step, 20, 8).to(dtype).requires_grad_(), points(rng, hadamard_step, 20, 8)
    value = nn.SlicedWassersteinLoss(8, directions="hadamard", seed=SEED).to(hadamard_step)(x, y)
    sampler = HadamardRademacher()
    expected, (gradient, _) = expected_step(x, y, rows(8, 8, 0, sampler), 2, 8, sampler)
    assert_rounded(value, expected, np.float32, 64)
    assert_half(torch.autograd.grad(value, x)[0], gradient, dtype)


@pytest.mark.parametrize("m", [20, 13])
def test_a_target_and_the_distance(rng, m, hadamard_step):
    """Directions are new at every step, though the target stays."""
    x, y = points(rng, hadamard_step, 20, 6), points(rng, hadamard_step, m, 6) + 0.5
    sampler = HadamardRademacher()
    options = {"directions": "hadamard", "target": y, "distance": True, "seed": SEED}
    loss = nn.SlicedWassersteinLoss(9, **options).to(hadamard_step)
    for step in range(2):
        expected, (gradient, _) = expected_step(x, y, rows(9, 6, step, sampler), 2, 6, sampler)
        value, found = loss.value_and_grad(x)
        assert_rounded(value, expected.sqrt(), np.float32, 64)
        assert_rounded(found, gradient / (2 * expected.sqrt()), np.float32, 64)


@pytest.mark.parametrize("m", [50, 30])
@pytest.mark.parametrize("dim", [70, 300])
@pytest.mark.parametrize("drawers", [1 << 30, 0])
def test_clouds_far_from_the_origin(rng, dim, m, drawers, hadamard_step, monkeypatch):
    """In some coordinates only; float32 of their projections would have lost all but a few digits."""
    monkeypatch.setattr("orthoslice.backend.kernels.cuda.hadamard._DRAWERS", drawers)
    far = torch.zeros(dim, device=hadamard_step)
    far[[0, dim - 1]] = 1e5
    x, y = points(rng, hadamard_step, 50, dim) + far, points(rng, hadamard_step, m, dim) + far
    loss = nn.SlicedWassersteinLoss(20, directions="hadamard", seed=SEED).to(hadamard_step)
    assert_step(loss, x, y, 20, 0)


@pytest.mark.parametrize("m", [40, 30])
def test_not_finite_points(rng, m, hadamard_step):
    """NaN comes out as NaN, and so do infinities and numbers whose square overflows."""
    loss = nn.SlicedWassersteinLoss(20, directions="hadamard", seed=SEED).to(hadamard_step)
    for value in (np.nan, np.inf, 1e30):
        x, y = points(rng, hadamard_step, 40, 12), points(rng, hadamard_step, m, 12)
        assert loss(x, y).isfinite()
        x[3, 5] = value
        assert loss(x, y).isnan()


def test_evaluation_does_not_count(rng, hadamard_step):
    x, y = points(rng, hadamard_step, 20, 8), points(rng, hadamard_step, 20, 8)
    loss = nn.SlicedWassersteinLoss(8, directions="hadamard", seed=SEED).to(hadamard_step)
    loss.eval()
    first = loss(x, y)
    assert torch.equal(loss(x, y), first)
    assert loss.step.item() == 0
    loss.train()
    assert torch.equal(loss(x, y), first)
    assert not torch.equal(loss(x, y), first)


def test_the_same_bits_every_time(rng, hadamard_step, monkeypatch):
    """Wherever factors are drawn."""
    x, y = points(rng, hadamard_step, 100, 60).requires_grad_(), points(rng, hadamard_step, 100, 60)
    values = []
    for drawers in (1 << 30, 1 << 30, 0):
        monkeypatch.setattr("orthoslice.backend.kernels.cuda.hadamard._DRAWERS", drawers)
        loss = nn.SlicedWassersteinLoss(200, directions="hadamard", seed=SEED).to(hadamard_step)
        values.append(loss(x, y, rng=1))
    gradients = [torch.autograd.grad(value, x)[0] for value in values]
    assert all(torch.equal(a, values[0]) for a in values)
    assert all(torch.equal(a, gradients[0]) for a in gradients)


@pytest.mark.parametrize("memory", ["1GB", 4000])
def test_equal_clouds_have_equal_projections(rng, memory, hadamard_step):
    """In any order of the points; a rounding of one cloud only would leave a positive distance."""
    x = points(rng, hadamard_step, 50, 40)
    loss = nn.SlicedWassersteinLoss(30, directions="hadamard", memory=memory, seed=SEED).to(hadamard_step)
    assert loss(x, x[torch.as_tensor(rng.permutation(50), device=hadamard_step)]).item() == 0
    assert loss(x, x + 1e-4).item() > 0


def test_devices_that_are_not_nvidias(rng, monkeypatch):
    """No driver is asked about them: there need not be one."""

    def ask(device):
        raise ImportError("No module named 'cuda'")

    monkeypatch.setattr(cuda_hadamard, "most_shared_bytes", ask)
    x, y = points(rng, "cpu", 20, 6), points(rng, "cpu", 20, 6) + 0.5
    loss = nn.SlicedWassersteinLoss(8, directions="hadamard", seed=SEED)
    assert_step(loss, x, y, 8, 0)
