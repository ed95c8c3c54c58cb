"""Planes: neighbours in rings of orthonormal directions."""

from __future__ import annotations

import numpy as np
import pytest
from sampler_contract import SamplerContract

from orthoslice.backend.arrays import Key
from orthoslice.directions import Planes
from orthoslice.directions.planes import PlaneDirections


class TestPlanes(SamplerContract):
    """Of the first axes."""

    sampler = Planes()


def draw(rows: int, dim: int, blocks: int) -> PlaneDirections:
    key = Key.from_seed(0, np.zeros(1)).fold(np.arange(blocks, dtype=np.int32), 1)
    return Planes().draw(key, rows, dim, np.dtype(np.float64))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_neighbours_in_a_ring(rows: int) -> None:
    drawn = draw(rows, 5, 3)
    first, second = (axes.reshape(3, rows, 5) for axes in (drawn.theta, drawn.second.theta))
    np.testing.assert_allclose(np.vecdot(second, second), 1, rtol=1e-12)
    np.testing.assert_allclose(np.vecdot(first, second), 0, atol=1e-12)
    np.testing.assert_array_equal(second[:, :-1], first[:, 1:])
    if rows == 5:
        np.testing.assert_array_equal(second[:, -1], first[:, 0])


def test_fewer_planes_are_the_first_of_more() -> None:
    few, many = draw(2, 4, 1), draw(4, 4, 1)
    np.testing.assert_allclose(few.second.theta, many.second.theta[:2], atol=1e-12)


def test_normals_of_a_block_in_space_are_orthonormal() -> None:
    drawn = draw(3, 3, 1)
    normals = np.cross(drawn.theta, drawn.second.theta)
    np.testing.assert_allclose(normals @ normals.T, np.eye(3), atol=1e-12)
