"""Kernels compiled ahead of the first call, by calls on small clouds in several processes."""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from orthoslice.backend.kernels import numba_refusal
from orthoslice.backend.kernels.when_to_compile import expecting, is_kept, keep_ready

# Sizes on both sides of where one kernel takes over from another, and one of rows that are sorted otherwise.
# Kernels for rows of more than 2^18 numbers are left to their first use, where the work takes long anyway.
_SIZES = ((40, 50, 3), (600, 580, 3), (1100, 1080, 12))
_MANY = (4200, 4100, 2)


class _Clouds(NamedTuple):
    """Two clouds of unequal sizes, one more of the first's size, and its weights."""

    x: Any
    y: Any
    other: Any
    weights: Any


def _draw(dtype: str, n: int, m: int, dim: int) -> _Clouds:
    import numpy as np

    draw = np.random.default_rng(0)
    x, y, other = (draw.normal(size=(k, dim)).astype(dtype) for k in (n, m, n))
    weights = draw.random(n).astype(dtype)
    return _Clouds(x, y, other, weights / weights.sum())


def _estimate(dtype: str) -> None:
    """Distances, their gradients and trust in them, with weights and without."""
    import orthoslice as osl
    from orthoslice.backend.kernels.numba.sliced import slope_points

    for size in (*_SIZES, _MANY):
        x, y, other, weights = _draw(dtype, *size)
        for estimate in (osl.sliced_wasserstein, osl.projected_wasserstein):
            for target, own in ((y, None), (other, None), (y, weights)):
                estimate(x, target, x_weights=own, rng=0)
                # Scored in passes.
                estimate(x, target, x_weights=own, rng=0, rtol=0.5)
            # Strided points, as columns of a table are.
            estimate(x[:, ::-1], y, rng=0)
        # What the loss on the CPU calls.
        slope_points(x, y, x[:1], 2.0, 1.0)
        for own in (None, weights):
            osl.value_and_grad(x, y, x_weights=own, rng=0)
            osl.value_and_grad(x, y, method="projected", x_weights=own, rng=0)


def _meet_laws(dtype: str) -> None:
    """Clouds against known laws."""
    import orthoslice as osl

    for size in (*_SIZES, _MANY):
        x, *_ = _draw(dtype, *size)
        for p in (1, 2, 3):
            for law in (osl.laws.Normal(x.shape[1]), osl.laws.Cube(x.shape[1])):
                osl.sliced_wasserstein(x, law, p, n_directions=4, rng=0)
                osl.value_and_grad(x, law, p, n_directions=4, rng=0)


def _test(dtype: str) -> None:
    """Tests and intervals."""
    import orthoslice as osl

    for size in (_SIZES[0], _MANY):
        x, y, *_ = _draw(dtype, *size)
        for p in (1, 2):
            osl.two_sample_test(x, y, p=p, n_directions=8, n_permutations=9, rng=0)
            osl.bootstrap(x, y, p=p, n_directions=8, rng=0)
        osl.two_sample_test(x, y, method="projected", n_directions=8, n_permutations=9, rng=0)


def _couple(dtype: str) -> None:
    """Matchings, bounds and many clouds at once."""
    import orthoslice as osl

    for size in _SIZES[:2]:
        x, y, other, weights = _draw(dtype, *size)
        for target, own in ((y, None), (other, None), (y, weights)):
            osl.match(x, target, x_weights=own, rng=0)
            # By rounds, which auctions spare.
            osl.match(x, target, x_weights=own, n_sweeps=3, rng=0)
            osl.wasserstein_bounds(x, target, x_weights=own, rng=0)
        osl.pairwise([x, y, other], rng=0)
        osl.pairwise([x, y, other], method="projected", rng=0)


def _turn(dtype: str) -> None:
    """Planes, circles, and fast transforms."""
    import orthoslice as osl

    x, y, *_ = _draw(dtype, 20, 30, 2)
    osl.exact.sliced_plane(x, y, 2)
    osl.exact.projected_plane(x, y, 2)
    osl.circular_wasserstein(x[:, 0], y[:, 0], period=1)
    for size in _SIZES[:2]:
        x, y, *_ = _draw(dtype, *size)
        osl.sliced_wasserstein(x, y, directions="hadamard", rng=0)


def _describe(dtype: str) -> None:
    """What a comparison finds besides, and points that move."""
    import orthoslice as osl
    from orthoslice.applications.compare.compare import PARTS, prepare_comparison

    for size in _SIZES[:2]:
        x, y, _, weights = _draw(dtype, *size)
        for own in (None, weights):
            ready = prepare_comparison(x, y, x_weights=own, rng=0, n_permutations=9)
            for part in PARTS:
                ready.work_out(part)
        osl.barycenter([x, y], rng=0, n_steps=2)
        osl.flow(x, y, rng=0, n_steps=2)


def _transport(_: str) -> None:
    """Exact answers and their certificates, which are worked out in float64."""
    import orthoslice as osl

    x, _, other, _ = _draw("float64", 600, 600, 12)
    # The simplex method, and an auction without room for all costs.
    for memory in ("256MB", "1MB"):
        assert osl.wasserstein(x, other, memory=memory).verify()
    # An auction that the simplex method ends.
    x, y, _, weights = _draw("float64", *_SIZES[-1])
    osl.wasserstein(x, y, x_weights=weights)


_Call: TypeAlias = tuple[Callable[[str], None], str]

_TYPES = "float64", "float32"

# Two processes share the work such that few kernels are compiled by both: the second begins with what estimates
# do not need, and finds their kernels in the cache when it comes to what does. Each has about half of the work.
_APART: tuple[tuple[_Call, ...], ...] = (
    tuple(itertools.product((_estimate, _couple), _TYPES)),
    ((_transport, "float64"), *itertools.product((_turn, _meet_laws, _test, _describe), _TYPES)),
)


def compile_kernels() -> str:
    """Compile what the public functions need for clouds of usual sizes; or say why that is of no use.

    Once all is in the cache, there is nothing to do until sources, numba or the processor change.
    """
    why = numba_refusal()
    if why is not None:
        return f"there is nothing to compile: {why}."
    from orthoslice.backend.kernels.numba._compile import processor

    everything = f"everything-{processor()}"
    if is_kept(everything):
        return ""
    try:
        # Two processes that compile one function for two types at once may leave only one of them in the cache:
        # new ones look again.
        for _ in range(2):
            _share_calls()
    except (OSError, concurrent.futures.BrokenExecutor):
        # No processes can be started here, and this one compiles all.
        for calls in _APART:
            _make_calls(calls)
    keep_ready(everything)
    return ""


def _share_calls() -> None:
    spawning = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(len(_APART), spawning, initializer=_keep_quiet) as pool:
        list(pool.map(_make_calls, _APART))


def _keep_quiet() -> None:
    """No notices of compiling from a worker: its user asked for it."""
    os.environ["ORTHOSLICE_QUIET"] = "1"


def _make_calls(calls: tuple[_Call, ...]) -> None:
    with expecting(sys.maxsize):
        for make, dtype in calls:
            make(dtype)
