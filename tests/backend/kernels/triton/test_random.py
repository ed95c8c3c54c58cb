"""The stream drawn by Triton kernels against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import both_rows

from orthoslice.backend.arrays import Stream, normals, signs
from orthoslice.backend.arrays.stream import folded

torch = pytest.importorskip("torch")


@pytest.fixture
def stream(device):
    """Five keys whose words have both signs."""
    index = torch.arange(5, dtype=torch.int32, device=device)
    return Stream.from_seed(2**63 + 5, torch.zeros(1, device=device)).fold(index, 0)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 2), (3, 7), (2, 64), (1, 257)])
def test_draws(stream, rows, columns, dtype):
    kernel, _ = both_rows(normals, stream, rows, columns, dtype)
    with normals.using("reference"):
        exact = normals(stream, rows, columns, torch.float64)
    assert kernel.dtype == dtype
    # Normals are below 7, and the kernel rounds once; CUDA's sines may differ by a few units of float64.
    np.testing.assert_allclose(kernel.cpu(), exact.cpu(), rtol=0, atol=8 * torch.finfo(dtype).eps)
    kernel, reference = both_rows(signs, stream, rows, columns, dtype)
    assert kernel.dtype == dtype
    assert torch.equal(kernel, reference)


def test_fewer_rows_are_a_prefix(stream):
    with normals.using("triton"):
        more, fewer = (normals(stream, rows, 5, torch.float64) for rows in (4, 2))
    assert torch.equal(more[:, :2], fewer)


@pytest.mark.parametrize("a", [-1, 0, 1, "table"])
@pytest.mark.parametrize("b", [0, 1])
def test_folds(stream, device, a, b):
    """One key for many integers, many keys for one, and many for many."""
    table = torch.arange(600, dtype=torch.int32, device=device) if a == "table" else a
    alone = Stream(stream.high[:1], stream.low[:1])
    five = table[::2][-5:] if a == "table" else a
    for given, counters in ((alone, table), (stream, five)):
        kernel, reference = both_rows(folded, given, counters, b)
        for found, expected in zip(kernel, reference, strict=True):
            assert found.dtype == torch.int32
            assert torch.equal(found, expected)


def test_keys_that_are_not_contiguous(stream):
    spread = Stream(*(torch.stack([word, word], dim=1)[:, 0] for word in stream))
    assert not spread.high.is_contiguous()
    with normals.using("triton"):
        assert torch.equal(normals(spread, 2, 3, torch.float64), normals(stream, 2, 3, torch.float64))


def test_nothing_to_draw(stream):
    with normals.using("triton"), signs.using("triton"):
        assert normals(stream, 0, 3, torch.float32).shape == (5, 0, 3)
        assert signs(stream, 2, 0, torch.float32).shape == (5, 2, 0)


def test_refusals(stream, monkeypatch):
    with normals.using("triton"), pytest.raises(TypeError, match=r"float32 and float64, not torch\.float16"):
        normals(stream, 1, 1, torch.float16)
    with normals.using("triton"), pytest.raises(TypeError, match="torch tensors"):
        normals(Stream.from_seed(0, np.zeros(1)), 1, 1, np.dtype(np.float64))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    host = Stream(*(word.cpu() for word in stream))
    with normals.using("triton"), pytest.raises(TypeError, match="memory of a CUDA device"):
        normals(host, 1, 1, torch.float32)
