"""The lexicographic order of points on a GPU, and orthonormal rows by Cholesky factors."""

from __future__ import annotations

import numpy as np
import pytest

from orthoslice.backend.arrays.operations import _orthonormal_rows_cholesky, lexsort_rows, orthonormal_rows
from orthoslice.backend.kernels.cuda.lexsort import lexicographic_order

torch = pytest.importorskip("torch")


# Runs of 2,048 points are merged: there may be one without a partner, and one that is not full.
@pytest.mark.parametrize(
    ("n", "dim"), [(1, 1), (2, 3), (63, 2), (257, 4), (1000, 1), (2048, 2), (2049, 9), (4500, 3), (10300, 6)]
)
def test_order_is_that_of_stable_sorts(rng, n, dim, cuda_device):
    """Many points tie in their first coordinates, some are equal, and minus zero is zero."""
    points = torch.as_tensor(rng.integers(-1, 2, (2, n, dim)), dtype=torch.float32, device=cuda_device)
    points[0, n // 2] *= -0.0
    with lexsort_rows.using("passes"):
        expected = lexsort_rows(points)
    assert torch.equal(lexicographic_order(points), expected)
    assert torch.equal(lexicographic_order(points.mT.contiguous().mT), expected)


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
