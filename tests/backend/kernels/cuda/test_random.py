"""The key drawn by CUDA kernels against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import both_rows

from orthoslice.backend.arrays import Key, normals, signs
from orthoslice.backend.arrays.key import folded

torch = pytest.importorskip("torch")


@pytest.fixture
def key(kernel_device):
    """Five keys whose words have both signs."""
    index = torch.arange(5, dtype=torch.int32, device=kernel_device)
    return Key.from_seed(2**63 + 5, torch.zeros(1, device=kernel_device)).fold(index, 0)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 2), (3, 7), (2, 64), (1, 257)])
def test_draws(key, rows, columns, dtype):
    kernel, _ = both_rows(normals, key, rows, columns, dtype)
    with normals.using("reference"):
        exact = normals(key, rows, columns, torch.float64)
    assert kernel.dtype == dtype
    # Normals are below 7, and the kernel rounds once; CUDA's sines may differ by a few units of float64.
    np.testing.assert_allclose(kernel.cpu(), exact.cpu(), rtol=0, atol=8 * torch.finfo(dtype).eps)
    kernel, reference = both_rows(signs, key, rows, columns, dtype)
    assert kernel.dtype == dtype
    assert torch.equal(kernel, reference)


def test_fewer_rows_are_a_prefix(key):
    with normals.using("cuda"):
        more, fewer = (normals(key, rows, 5, torch.float64) for rows in (4, 2))
    assert torch.equal(more[:, :2], fewer)


@pytest.mark.parametrize("a", [-1, 0, 1, "table"])
@pytest.mark.parametrize("b", [0, 1])
def test_folds(key, kernel_device, a, b):
    """One key for many integers, many keys for one, and many for many."""
    table = torch.arange(600, dtype=torch.int32, device=kernel_device) if a == "table" else a
    alone = Key(key.high[:1], key.low[:1])
    five = table[::2][-5:] if a == "table" else a
    for given, counters in ((alone, table), (key, five)):
        kernel, reference = both_rows(folded, given, counters, b)
        for found, expected in zip(kernel, reference, strict=True):
            assert found.dtype == torch.int32
            assert torch.equal(found, expected)


def test_keys_that_are_not_contiguous(key):
    spread = Key(*(torch.stack([word, word], dim=1)[:, 0] for word in key))
    assert not spread.high.is_contiguous()
    with normals.using("cuda"):
        assert torch.equal(normals(spread, 2, 3, torch.float64), normals(key, 2, 3, torch.float64))


def test_nothing_to_draw(key):
    with normals.using("cuda"), signs.using("cuda"):
        assert normals(key, 0, 3, torch.float32).shape == (5, 0, 3)
        assert signs(key, 2, 0, torch.float32).shape == (5, 2, 0)


def test_refusals(key, monkeypatch):
    with normals.using("cuda"), pytest.raises(TypeError, match=r"float32 and float64, not torch\.float16"):
        normals(key, 1, 1, torch.float16)
    with normals.using("cuda"), pytest.raises(TypeError, match="torch tensors"):
        normals(Key.from_seed(0, np.zeros(1)), 1, 1, np.dtype(np.float64))
    monkeypatch.undo()
    host = Key(*(word.cpu() for word in key))
    with normals.using("cuda"), pytest.raises(TypeError, match="on an NVIDIA GPU"):
        normals(host, 1, 1, torch.float32)
