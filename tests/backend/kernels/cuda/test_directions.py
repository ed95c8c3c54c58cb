"""Directions drawn by CUDA kernels against those of the samplers."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_rounded

from orthoslice.backend.arrays import DIRECTIONS, STEPS, Key
from orthoslice.backend.arrays.key import PRICES
from orthoslice.backend.kernels.cuda import bind
from orthoslice.backend.kernels.cuda import directions as cuda_directions
from orthoslice.backend.kernels.cuda.directions import (
    DrawnAhead,
    orthonormal_rows,
    orthonormalise,
    room_refusal,
    steps_ahead,
    unit_rows,
)
from orthoslice.directions import IID, HadamardRademacher, Orthogonal
from orthoslice.directions.drawing import Blocks, draw_blocks

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("cuda_device", "empty_is_nan")

# Both words of it are negative as signed integers.
SEED = 2**63 + 2**31 + 12345
SHAPES = [(1, 1), (1, 3), (2, 5), (3, 2), (3, 7), (7, 7), (16, 40), (20, 33), (128, 130)]


@pytest.fixture
def tiled(monkeypatch):
    """Have all thread blocks share the work, as if no matrix fitted on a chip."""
    monkeypatch.setattr(cuda_directions, "most_shared_bytes", lambda device: 0)


@pytest.fixture
def key(cuda_device):
    return Key.from_seed(SEED, torch.zeros(1, device=cuda_device))


def drawn(sampler, step, first, count, rows, dim, purpose=DIRECTIONS):
    """What the sampler draws in float64 from the key that is folded by hand."""
    key = Key.from_seed(SEED, np.zeros(1))
    if step is not None:
        key = key.fold(step, STEPS)
    index = first + np.arange(count, dtype=np.int32)
    return torch.tensor(sampler.blocks(key, index, rows, dim, np.dtype(np.float64), purpose).theta)


@pytest.mark.parametrize(("dim", "count"), SHAPES)
def test_independent_rows(key, dim, count):
    found = unit_rows(key, None, STEPS, 0, count, dim, DIRECTIONS)
    assert found.dtype == torch.float32
    assert_rounded(found, torch.tensor(IID().sample(count, dim, SEED).theta), np.float32)


@pytest.mark.parametrize(("dim", "count"), SHAPES)
def test_orthonormal_rows(key, dim, count):
    """Whole blocks, less than one, and a last one of which only the first rows are kept."""
    found = orthonormal_rows(key, None, STEPS, 0, min(count, dim), count, dim, DIRECTIONS)
    assert found.dtype == torch.float32
    assert_rounded(found, torch.tensor(Orthogonal().sample(count, dim, SEED).theta), np.float32)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 48])
def test_blocks_of_fewer_rows_than_dimensions(key, rows):
    found = orthonormal_rows(key, None, STEPS, 0, rows, 50, 48, DIRECTIONS)
    assert_rounded(found, torch.tensor(Orthogonal(block_size=rows).sample(50, 48, SEED).theta), np.float32)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize(("rows", "total", "dim"), [(1, 1, 1), (3, 5, 7), (66, 66, 66), (65, 65, 141)])
def test_blocks_that_do_not_fit_on_a_chip(key, rows, total, dim):
    """One panel or two, one chunk of columns or two, whole blocks and parts."""
    found = orthonormal_rows(key, None, STEPS, 0, rows, total, dim, DIRECTIONS)
    expected = Orthogonal(block_size=rows).sample(total, dim, SEED).theta
    assert_rounded(found, torch.tensor(expected), np.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes minutes without a GPU")
@pytest.mark.parametrize(("rows", "total", "dim"), [(128, 128, 3072), (784, 784, 784), (100, 250, 301)])
def test_large_blocks_are_always_the_same(key, rows, total, dim, monkeypatch):
    """The number of thread blocks that share the work, and their order, change no bit."""
    first = orthonormal_rows(key, None, STEPS, 0, rows, total, dim, DIRECTIONS)
    expected = Orthogonal(block_size=rows).sample(total, dim, SEED).theta
    assert_rounded(first, torch.tensor(expected), np.float32)
    for multiprocessors in (1, 5, None, None, None):
        if multiprocessors is not None:
            monkeypatch.setattr(cuda_directions, "_multiprocessors", lambda _, few=multiprocessors: few)
        cuda_directions._kept_work.cache_clear()
        assert torch.equal(first, orthonormal_rows(key, None, STEPS, 0, rows, total, dim, DIRECTIONS))
        monkeypatch.undo()


def test_numbers_of_blocks_bind_nothing(key):
    """The number of the first block is an argument of a launch, so that chunks share one bound kernel."""
    for first in range(3):
        unit_rows(key, None, STEPS, first, 3, 5, DIRECTIONS)
        orthonormal_rows(key, None, STEPS, first, 3, 3, 5, DIRECTIONS)
        if first == 0:
            before = bind.cache_info().currsize
    assert bind.cache_info().currsize == before


@pytest.mark.parametrize("step", [0, 1, 2**31 - 1])
def test_a_step_of_a_training_run(key, step, cuda_device):
    now = torch.tensor(step, device=cuda_device)
    assert_rounded(unit_rows(key, now, STEPS, 0, 4, 5, DIRECTIONS), drawn(IID(), step, 0, 4, 1, 5), np.float32)
    found = orthonormal_rows(key, now, STEPS, 0, 5, 10, 5, DIRECTIONS)
    assert_rounded(found, drawn(Orthogonal(), step, 0, 2, 5, 5), np.float32)
    assert now.item() == step


@pytest.mark.parametrize("purpose", [DIRECTIONS, PRICES])
@pytest.mark.parametrize("first", [1, 1000])
def test_any_block_is_reached_directly(key, first, purpose):
    rows = unit_rows(key, None, STEPS, first, 3, 5, purpose)
    assert_rounded(rows, drawn(IID(), None, first, 3, 1, 5, purpose), np.float32)
    blocks = orthonormal_rows(key, None, STEPS, first, 5, 10, 5, purpose)
    assert_rounded(blocks, drawn(Orthogonal(), None, first, 2, 5, 5, purpose), np.float32)


@pytest.mark.thin
@pytest.mark.parametrize(("rows", "total", "dim"), [(5, 5, 5), (5, 13, 5), (1, 3, 4), (17, 20, 33)])
def test_directions_drawn_ahead(key, rows, total, dim, cuda_device):
    """Of any step after any other, and of another key, they are those of that step alone, bit for bit."""
    other = Key.from_seed(1, key.high)
    step = torch.zeros((), dtype=torch.int64, device=cuda_device)
    ahead = DrawnAhead(step, STEPS, rows, total, dim, DIRECTIONS)
    assert ahead.is_in_order()
    calls = [(key, now) for now in (0, 1, 9, 8, 8, 2**31 + 5, -1, -3)]
    for chosen, now in (*calls, (other, 2**31 + 5), (other, 2**31 + 6), (key, 2**31 + 6)):
        step.fill_(now)
        found = ahead(chosen, step)
        assert torch.equal(found, orthonormal_rows(chosen, step, STEPS, 0, rows, total, dim, DIRECTIONS)), now
        assert step.item() == now


@pytest.mark.usefixtures("tiled")
def test_large_blocks_drawn_ahead(key, cuda_device):
    """The same, where all thread blocks share the work."""
    step = torch.zeros((), dtype=torch.int64, device=cuda_device)
    ahead = DrawnAhead(step, STEPS, 3, 3, 5, DIRECTIONS)
    for now in (0, 1, 9):
        found = ahead(key, step.fill_(now))
        assert torch.equal(found, orthonormal_rows(key, step, STEPS, 0, 3, 3, 5, DIRECTIONS)), now


@pytest.mark.parametrize("shared_bytes", [1 << 30, 0])
def test_what_is_drawn_ahead_is_used(key, shared_bytes, cuda_device, monkeypatch):
    """The negative control: what is held for a step comes out as it is, and not for steps of another group."""
    monkeypatch.setattr(cuda_directions, "most_shared_bytes", lambda device: shared_bytes)
    step = torch.zeros((), dtype=torch.int64, device=cuda_device)
    ahead = DrawnAhead(step, STEPS, 5, 5, 5, DIRECTIONS)
    ahead(key, step)
    ahead._kept.fill_(7)
    group = steps_ahead(step.get_device(), 5, 5, 5)
    assert group > 1
    for now in (group - 1, 0):
        assert (ahead(key, step.fill_(now)) == 7).all()
    assert not (ahead(key, step.fill_(group)) == 7).any()


def orthonormalised(gaussian, total, device):
    """What the kernel makes of blocks `(blocks, rows, dim)` of our own."""
    given = torch.tensor(gaussian, dtype=torch.float64, device=device)
    return orthonormalise(given, total)


def gram_schmidt(gaussian):
    """Rows made orthonormal in turn, by QR with a positive diagonal in float64."""
    q, r = np.linalg.qr(np.swapaxes(gaussian, -1, -2))
    signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1)
    return np.swapaxes(q * signs[..., None, :], -1, -2)


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("pairs", [[(0, 1)], [(3, 18)], [(0, 1), (0, 2), (16, 17), (0, 19)]])
def test_rows_that_are_nearly_parallel(rng, pairs, apart, cuda_device):
    """Within a panel of 16 rows and across panels; the second block is as Gaussian as they come.

    A Gaussian row comes as close to those before it once in a million draws.
    """
    gaussian = rng.normal(size=(2, 20, 24))
    for i, j in pairs:
        gaussian[0, j] = gaussian[0, i] + apart * gaussian[0, j]
    found = orthonormalised(gaussian, 40, cuda_device).reshape(2, 20, 24)
    gram = found.double() @ found.double().mT
    assert_rounded(gram, torch.eye(20).expand(2, 20, 20), np.float32)
    assert_rounded(found, torch.tensor(gram_schmidt(gaussian)), np.float32)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("apart", [1e-3, 1e-6])
def test_nearly_parallel_rows_of_large_blocks(rng, apart, cuda_device):
    """Within a panel of 64 rows and across panels."""
    gaussian = rng.normal(size=(1, 66, 72))
    for i, j in ((0, 1), (3, 40), (0, 65)):
        gaussian[0, j] = gaussian[0, i] + apart * gaussian[0, j]
    found = orthonormalised(gaussian, 66, cuda_device)
    assert_rounded(found.double() @ found.double().T, torch.eye(66), np.float32)
    assert_rounded(found, torch.tensor(gram_schmidt(gaussian)[0]), np.float32)


@pytest.mark.parametrize("scale", [1e-6, 1, 1e6])
def test_rows_of_any_length(rng, scale, cuda_device):
    gaussian = scale * rng.normal(size=(1, 7, 9))
    gaussian[0, 3] *= 1e4
    expected = torch.tensor(gram_schmidt(gaussian)[0])
    assert_rounded(orthonormalised(gaussian, 7, cuda_device), expected, np.float32)


def test_signs_and_order_are_kept(cuda_device):
    """Orthogonal rows are only divided by their lengths: a convention of signs would show."""
    gaussian = np.diag([2.0, -3.0, 0.5, -0.25])[None]
    expected = torch.diag(torch.tensor([1.0, -1.0, 1.0, -1.0]))
    assert_rounded(orthonormalised(gaussian, 4, cuda_device), expected, np.float32)


def test_rows_that_do_not_fit_on_a_chip(monkeypatch):
    """Independent rows must; blocks need not."""
    monkeypatch.setattr(cuda_directions, "most_shared_bytes", lambda device: 227 * 1024)
    assert room_refusal(0, None, 128 * 128) is None
    assert "fit on a chip" in room_refusal(0, None, 3 * 128 * 128)
    assert room_refusal(0, 3 * 128 * 128, 3 * 128 * 128) is None


def test_steps_that_are_drawn_ahead(monkeypatch):
    """As many as keep a GPU busy, and no more than fit in a stated amount of memory."""
    # In host memory there are fewer.
    monkeypatch.undo()
    monkeypatch.setattr(cuda_directions, "most_shared_bytes", lambda device: 227 * 1024)
    cases = {(128, 128, 128): 8, (128, 1024, 128): 8, (16, 1024, 16): 1, (784, 784, 784): 16}
    cases |= {(128, 128, 3072): 16, (512, 1024, 512): 8, (784, 7840, 784): 1, (2000, 2000, 2000): 3}
    cases |= {(4096, 4096, 4096): 1}
    assert {case: steps_ahead(0, *case) for case in cases} == cases


def test_refusals(key):
    host = Key(*(word.cpu() for word in key))
    cases = {
        "independent and orthogonal": (HadamardRademacher(), key, 3, torch.float32),
        "blocks of one row": (IID(), key, 3, torch.float32),
        "draws float32": (IID(), key, 1, torch.float64),
        "tensors on an NVIDIA GPU": (IID(), host, 1, torch.float32),
    }
    for reason, (sampler, keys, rows, dtype) in cases.items():
        with draw_blocks.using("cuda"), pytest.raises(TypeError, match=reason):
            draw_blocks(Blocks(sampler, keys, 0, 2, rows, 3, dtype))
