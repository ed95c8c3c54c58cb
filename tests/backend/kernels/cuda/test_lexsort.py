"""The lexicographic order of points on a GPU, and orthonormal rows by Cholesky factors."""

from __future__ import annotations

import numpy as np
import pytest

from orthoslice.backend.arrays.operations import _orthonormal_rows_cholesky, lexsort_rows, orthonormal_rows
from orthoslice.backend.kernels.cuda.lexsort import lexicographic_order

torch = pytest.importorskip("torch")


# Runs of 1,024 points are merged: there may be one without a partner, and one that is not full.
@pytest.mark.parametrize(
    ("n", "dim"), [(1, 1), (2, 3), (63, 2), (257, 4), (1000, 1), (1024, 2), (1025, 12), (2300, 9), (5200, 3)]
)
def test_order_is_that_of_stable_sorts(rng, n, dim, cuda_device):
    """Many points tie in their first coordinates, some are equal, and minus zero is zero."""
    points = torch.as_tensor(rng.integers(-1, 2, (2, n, dim)), dtype=torch.float32, device=cuda_device)
    points[0, n // 2] *= -0.0
    with lexsort_rows.using("passes"):
        expected = lexsort_rows(points)
    assert torch.equal(lexicographic_order(points), expected)
    assert torch.equal(lexicographic_order(points.mT.contiguous().mT), expected)
    unaligned = torch.cat([points.new_zeros(1), points.flatten()])[1:].view(2, n, dim)
    assert torch.equal(lexicographic_order(unaligned), expected)


@pytest.mark.parametrize("dim", [4, 11, 20])
def test_points_that_differ_in_one_coordinate(rng, dim, cuda_device):
    """Each of them alone decides about some pair, whether coordinates are loaded one by one or in fours."""
    points = torch.zeros(1, 3 * dim, dim, device=cuda_device)
    for k in range(3 * dim):
        points[0, k, k % dim] = k // dim - 1
    points = points[:, torch.as_tensor(rng.permutation(3 * dim))]
    expected = np.lexsort(points[0].cpu().numpy().T[::-1])
    np.testing.assert_array_equal(lexicographic_order(points)[0].cpu().numpy(), expected)


def test_what_is_refused():
    with lexsort_rows.using("cuda"), pytest.raises(TypeError, match="NVIDIA GPU"):
        lexsort_rows(torch.zeros(1, 3, 2))


def test_cholesky_gives_the_rows_of_gram_schmidt(rng):
    gaussian = torch.as_tensor(rng.normal(size=(50, 20, 20)))
    found = _orthonormal_rows_cholesky(gaussian)
    identity = torch.eye(20, dtype=torch.float64).expand(50, 20, 20)
    torch.testing.assert_close(found @ found.mT, identity, atol=1e-14, rtol=0)
    # A square Gaussian matrix of this size has a condition of some hundreds, and a few of fifty have thousands.
    torch.testing.assert_close(found, orthonormal_rows(gaussian), atol=1e-8, rtol=0)


def test_cholesky_survives_rows_that_are_almost_parallel(rng):
    """Rows that differ by less than the Gram matrix can show."""
    gaussian = torch.as_tensor(rng.normal(size=(20, 33)))
    gaussian[5] = gaussian[4] + 1e-12 * gaussian[6]
    found = _orthonormal_rows_cholesky(gaussian)
    np.testing.assert_allclose(found @ found.mT, np.eye(20), atol=1e-12)
