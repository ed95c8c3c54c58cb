"""Samplers that users write: tried once before their first use; bounds do not rely on their promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.backend.arrays import namespace
from orthoslice.check.options import _try_sampler
from orthoslice.directions import Orthogonal, Sampler
from orthoslice.directions.base import DenseDirections

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 3)), RNG.normal(size=(30, 3)) + 1
CALLS = [osl.sliced_wasserstein, osl.projected_wasserstein, osl.wasserstein_bounds]


@dataclass(frozen=True, kw_only=True, repr=False)
class Mine(Sampler):
    """Orthogonal blocks, with a fault at will."""

    fault: str = ""
    name: ClassVar[str] = "mine"

    def block_rows(self, n_directions: int, dim: int) -> int:
        return 0 if self.fault == "no rows" else min(n_directions, dim)

    def with_default_size(self, dim: int) -> Any:
        return self, 0 if self.fault == "no directions" else 8 * dim

    def is_basis(self, block_rows: int, dim: int) -> bool:
        return block_rows == dim

    def draw(self, key: Any, rows: int, dim: int, dtype: Any) -> DenseDirections:
        drawn = Orthogonal().draw(key, rows, dim, dtype).theta
        xp = namespace(drawn)
        if self.fault == "long":
            drawn = 2 * drawn
        if self.fault == "nan":
            drawn = drawn * np.nan
        if self.fault == "short":
            drawn = drawn[:-1]
        if self.fault == "wide":
            drawn = xp.concat([drawn, drawn[:, :1]], axis=1)
        if self.fault == "equal":
            drawn = xp.concat([drawn[:rows]] * key.high.shape[0], axis=0)
        if self.fault == "no basis":
            drawn = drawn + drawn[:1]
            drawn = drawn / xp.sqrt(xp.sum(drawn**2, axis=1, keepdims=True))
        return DenseDirections(drawn)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("long", r"must give rows of unit length; row 0 has norm 2"),
        ("nan", r"must give rows of unit length; row 0 has norm nan"),
        ("short", r"so shape \(24, 3\); got \(23, 3\)"),
        ("wide", r"so shape \(24, 3\); got \(24, 4\)"),
        ("equal", r"8 blocks have the same rows\. Draw from the `key` or `rng`"),
        ("no basis", r"`is_basis` of .* its blocks of 3 rows are not"),
        ("no rows", r"`block_rows` of .* must be 1 or more; got 0"),
        ("no directions", r"`with_default_size` of .* got 0"),
    ],
)
def test_faults_are_found(call, fault, message):
    with pytest.raises(ValueError, match=message):
        call(X, Y, directions=Mine(fault=fault), rng=0)


@pytest.mark.parametrize("call", CALLS)
def test_a_good_one_is_taken_and_looked_at_once(call):
    _try_sampler.cache_clear()
    for seed in range(3):
        call(X, Y, directions=Mine(), rng=seed)
    assert _try_sampler.cache_info().misses == 1


def test_our_own_are_not_looked_at():
    _try_sampler.cache_clear()
    for name in ("orthogonal", "iid", "hadamard"):
        osl.sliced_wasserstein(X, Y, directions=name, rng=0)
    assert _try_sampler.cache_info().misses == 0


def test_a_changed_copy_of_our_own_is_looked_at():
    class Longer(Orthogonal):
        def draw(self, key: Any, rows: int, dim: int, dtype: Any) -> DenseDirections:
            return DenseDirections(2 * super().draw(key, rows, dim, dtype).theta)

    with pytest.raises(ValueError, match="unit length"):
        osl.sliced_wasserstein(X, Y, directions=Longer(), rng=0)


def test_equal_blocks_are_no_fault_in_one_dimension_or_of_a_single_block():
    osl.sliced_wasserstein(X[:, :1], Y[:, :1], directions=Mine(fault="equal"), rng=0)
    osl.sliced_wasserstein(X, Y, directions=Mine(fault="equal"), n_directions=3, rng=0)


def test_unhashable_samplers_are_named():
    @dataclass(kw_only=True, repr=False, eq=True, frozen=True)
    class Listed(Mine):
        extra: Any = None

    with pytest.raises(TypeError, match="Samplers must be hashable"):
        osl.sliced_wasserstein(X, Y, directions=Listed(extra=[1]), rng=0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Leaning(Mine):
    """Blocks of unit rows that lean on each other now and then, and are said to be bases."""

    def draw(self, key: Any, rows: int, dim: int, dtype: Any) -> DenseDirections:
        drawn = super().draw(key, rows, dim, dtype).theta.reshape(-1, rows, dim)
        # The first keys, which a look sees, are in order.
        if key.high.shape[0] != 8:
            drawn = drawn[:, :1] + 0 * drawn
        return DenseDirections(drawn.reshape(-1, dim))


def test_bounds_do_not_believe_what_they_can_compute():
    """Rows that are all the same are no basis, though the sampler says so; a basis would add them up."""
    x = RNG.normal(size=(20, 3))
    for p in (1, 1.5, 2, 3):
        y = x + np.array([1.0, 2.0, 2.0])
        for n in (6, 30):
            bounds = osl.wasserstein_bounds(x, y, p, directions=Leaning(), n_directions=n, rng=0)
            assert bounds.lower <= 3 * (1 + 1e-12)
            assert bounds.upper >= 3 * (1 - 1e-12)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_frames_that_are_no_bases_give_bounds(p):
    """Many given rows, more than a basis: a true bound, and better than that of any row alone."""
    theta = RNG.normal(size=(60, 3))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    shift = np.array([1.0, 2.0, 2.0])
    bounds = osl.wasserstein_bounds(X, X + shift, p, directions=theta)
    alone = np.abs(theta @ shift).max()
    assert alone * (1 - 1e-12) <= bounds.lower <= 3 <= bounds.upper
    exact = osl.wasserstein(X, Y, p).distance
    bounds = osl.wasserstein_bounds(X, Y, p, directions=np.eye(3))
    assert bounds.lower <= exact <= bounds.upper
    # The axes together say more than the best of them.
    assert bounds.lower > max(osl.wasserstein(X[:, k : k + 1], Y[:, k : k + 1], p).distance for k in range(3))
