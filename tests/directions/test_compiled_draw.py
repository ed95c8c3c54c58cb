"""Blocks drawn in one compiled call are those that the array code draws."""

from __future__ import annotations

import numpy as np
import pytest

from orthoslice.backend.arrays import Key
from orthoslice.directions import IID, HadamardRademacher, Orthogonal, Sampler
from orthoslice.directions.drawing import Blocks, draw_blocks


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step", [None, 0, 12345, 2**31 + 5])
@pytest.mark.parametrize(
    ("sampler", "rows", "dim"),
    [(IID(), 1, 1), (IID(), 1, 7), (Orthogonal(), 1, 3), (Orthogonal(), 2, 2), (Orthogonal(), 5, 9)],
)
def test_compiled_blocks_are_those_of_the_reference(
    sampler: Sampler, rows: int, dim: int, step: int | None, dtype: type[np.floating]
) -> None:
    pytest.importorskip("numba")
    key = Key.from_seed(2**63 + 11, np.zeros(1))
    counted = None if step is None else np.asarray(step, dtype=np.int64)
    blocks = Blocks(sampler, key, 3, 4, rows, dim, np.dtype(dtype), step=counted)
    drawn = {}
    for name in ("numba", "reference"):
        with draw_blocks.using(name):
            drawn[name] = draw_blocks(blocks).theta
    assert drawn["numba"].dtype == dtype
    # Angles of up to 2 pi are rounded otherwise, and orthogonal parts of normals may be a few times shorter.
    np.testing.assert_allclose(drawn["numba"], drawn["reference"], rtol=0, atol=16 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step", [None, 0, 2**31 + 5])
@pytest.mark.parametrize("factors", ["reflections", "signs"])
@pytest.mark.parametrize("dim", [1, 2, 7, 64])
def test_compiled_hadamard_blocks(factors: str, dim: int, step: int | None, dtype: type[np.floating]) -> None:
    """Factors, and the number of rows of a block, which they do not show."""
    pytest.importorskip("numba")
    key = Key.from_seed(2**63 + 11, np.zeros(1))
    counted = None if step is None else np.asarray(step, dtype=np.int64)
    sampler = HadamardRademacher(factors=factors)
    blocks = Blocks(sampler, key, 3, 4, 1, dim, np.dtype(dtype), step=counted)
    drawn = {}
    for name in ("numba", "reference"):
        with draw_blocks.using(name):
            drawn[name] = draw_blocks(blocks)
    found, expected = drawn["numba"], drawn["reference"]
    assert found.signs.dtype == dtype
    assert (found.rows, found.dim, found.paired) == (expected.rows, expected.dim, expected.paired)
    np.testing.assert_allclose(found.signs, expected.signs, rtol=0, atol=16 * float(np.finfo(dtype).eps))


def test_independent_rows_of_a_block_are_not_made_orthogonal() -> None:
    """Directions that price given ones: as many in a block as were given, which may be more than dimensions."""
    key = Key.from_seed(5, np.zeros(1))
    blocks = Blocks(IID(), key, 0, 1, 6, 3, np.dtype(np.float64))
    with draw_blocks.using("numba"), pytest.raises(TypeError, match="as blocks of one row"):
        draw_blocks(blocks)
    theta = draw_blocks(blocks).theta
    np.testing.assert_allclose(np.linalg.norm(theta, axis=1), 1, rtol=1e-12)
    assert np.abs(theta @ theta.T - np.eye(6)).max() > 0.1


def test_compiled_blocks_of_one_size_are_a_prefix_of_larger_ones() -> None:
    pytest.importorskip("numba")
    key = Key.from_seed(5, np.zeros(1))
    whole, part = (
        draw_blocks(Blocks(Orthogonal(), key, 0, 1, rows, 6, np.dtype(np.float64))).theta for rows in (6, 4)
    )
    np.testing.assert_array_equal(whole[:4], part)
