"""All estimators that take part: ours through the public functions, peers on directions of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import orthoslice as osl
from benchmarks.variance import peers
from benchmarks.variance.problems import Array
from orthoslice.directions import (
    IID,
    Auto,
    Equispaced,
    HadamardRademacher,
    Kerdock,
    Optimized,
    Orthogonal,
    Sampler,
    Sobol,
)

DISTANCES = {"SW": osl.sliced_wasserstein, "PW": osl.projected_wasserstein}

# What a set of this kind takes to make or to draw is out of proportion beyond.
_LARGEST_OPTIMIZED, _LARGEST_KERDOCK = 16, 256


@dataclass(frozen=True)
class Case:
    """One quantity of one pair of clouds, from `n_directions` directions."""

    x: Array
    y: Array
    score: str
    p: int
    n_directions: int

    @property
    def dim(self) -> int:
        return int(self.x.shape[1])


@dataclass(frozen=True)
class Method:
    """An estimator; `unbiased` where its mean is the truth, so that its variance is its squared error."""

    name: str
    ours: bool
    run: Callable[[Case, int], Any]
    takes: Callable[[Case], bool] = lambda case: True
    unbiased: bool = True
    brief: bool = False
    """Whether it runs on every data set of a problem that has many."""
    draw: Callable[[int, int, int], Array] | None = None
    """Its directions, of a peer."""
    sampler: Sampler | None = None


def _ours(
    name: str, sampler: Sampler, control: Any = None, *, brief: bool = False, takes: Any = lambda case: True
) -> Method:
    def run(case: Case, seed: int) -> Any:
        return DISTANCES[case.score](
            case.x,
            case.y,
            case.p,
            directions=sampler,
            n_directions=case.n_directions,
            control=control,
            rng=seed,
            workers=1,
        )

    return Method(name, True, run, takes, brief=brief, sampler=sampler)


def _peer(
    name: str,
    draw: Callable[[int, int, int], Array],
    correct: Callable[[Array, Array, Array, Array], float] | None = None,
    *,
    unbiased: bool = True,
    takes: Callable[[Case], bool] = lambda case: True,
) -> Method:
    def run(case: Case, seed: int) -> float:
        theta = draw(case.n_directions, case.dim, seed)
        est = DISTANCES[case.score](case.x, case.y, case.p, directions=theta, control=None, workers=1)
        if correct is None:
            return float(est.value)
        return correct(theta, np.asarray(est.scores), case.x, case.y)

    directions = draw if correct is None else None
    return Method(name, False, run, takes, unbiased=unbiased, draw=directions)


def _sliced(case: Case) -> bool:
    return case.score == "SW"


def _in_space(case: Case) -> bool:
    return case.dim == 3


def _optimized(case: Case) -> bool:
    return 3 <= case.dim <= _LARGEST_OPTIMIZED


def _kerdock(case: Case) -> bool:
    return 4 <= case.dim <= _LARGEST_KERDOCK


METHODS: Sequence[Method] = (
    _ours("iid", IID(), brief=True),
    _ours("orthogonal", Orthogonal(), brief=True),
    _ours("orthogonal + gaussian", Orthogonal(), "gaussian", brief=True, takes=_sliced),
    _ours("hadamard", HadamardRademacher(), takes=lambda case: case.dim >= 4),
    _ours("equispaced", Equispaced(replicates=1), brief=True, takes=lambda case: case.dim == 2),
    _ours("sobol", Sobol(replicates=1)),
    _ours("optimized", Optimized(replicates=1), brief=True, takes=_optimized),
    _ours("optimized, 4 rotations", Optimized(), takes=_optimized),
    _ours(
        "optimized, 4 rotations + gaussian",
        Optimized(),
        "gaussian",
        takes=lambda c: _sliced(c) and _optimized(c),
    ),
    _ours("kerdock", Kerdock(replicates=1), brief=True, takes=_kerdock),
    _ours("kerdock, 4 rotations", Kerdock(), takes=_kerdock),
    _ours("kerdock, 4 rotations + gaussian", Kerdock(), "gaussian", takes=lambda c: _sliced(c) and _kerdock(c)),
    _ours("auto, 1 replicate", Auto(replicates=1), "auto", brief=True),
    _ours("auto", Auto(), "auto", brief=True),
    _peer("QMC (Sobol)", peers.plain_sobol),
    _peer("RQMC (scrambled Sobol)", peers.sobol),
    _peer("UnifOrtho", peers.orthogonal),
    _peer("spiral", peers.spiral, takes=_in_space),
    _peer("lower control (Nguyen, Ho)", peers.iid, peers.lower, unbiased=False, takes=_sliced),
    _peer("upper control (Nguyen, Ho)", peers.iid, peers.upper, unbiased=False, takes=_sliced),
    _peer(
        "harmonics (Leluc et al.)",
        peers.iid,
        peers.harmonics,
        unbiased=False,
        takes=lambda case: _sliced(case) and peers.harmonic_degree(case.n_directions, case.dim) > 0,
    ),
)
"""All methods, in the order of the tables."""
