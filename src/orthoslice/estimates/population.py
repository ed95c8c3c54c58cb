"""What an estimate says of the laws behind its clouds, where these are samples: an error bar, and a bias.

Two samples of one law are a distance apart, so the distance of two samples is not that of their laws. To first
order the error is that of the mean Kantorovich potential (averaged over directions) over samples instead of
laws, which gives the error bar (del Barrio and Loubes 2019; Manole, Balakrishnan and Wasserman 2022). To second
order the distance of samples is too large, by an amount that doubles when samples are halved: halves give it.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import SAMPLES, Array, HostArray, Key, Operation, PlainWork, add_totals, to_numpy
from orthoslice.backend.kernels import rows_refusal
from orthoslice.backend.threads import ordered_map
from orthoslice.clouds.cloud import Cloud, shared_batch
from orthoslice.clouds.conditioning import far_centre
from orthoslice.clouds.mapped import MappedPoints
from orthoslice.clouds.ready import ReadyCloud, with_masses
from orthoslice.costs.lines import sorted_scores
from orthoslice.costs.weighted import weighted_slopes
from orthoslice.couplings.coupling import flat_rows
from orthoslice.directions import Orthogonal
from orthoslice.directions.base import DenseDirections, Directions
from orthoslice.directions.drawing import Blocks, draw_blocks

# Potentials are averaged over clip(dim, _LEAST, _MOST) directions, twice: a basis averages their linear part
# without error. With three quarters of a basis the standard error was off by a fifth; intervals covered 92%.
_LEAST, _MOST = 8, 128

# Bytes a point that a worker takes to sort a direction and to price it, and to keep potentials.
_ROW_BYTES, _KEPT_BYTES = 80, 32

FEWEST_POINTS = 16
"""The fewest points of each sample: fewer do not tell how a potential varies."""

NEAR = 2.0
"""If `value - bias <= NEAR * bias`, both samples may be of one law, where the first order says nothing.
Intervals were found to cover from half of that on."""


class SampleError(NamedTuple):
    """How far the value of two samples is from that of their laws, one entry for every pair of a batch."""

    stderr: Array
    """The standard deviation, to first order."""
    bias: Array
    """By how much it is too large on average, to second order."""


def sample_error(x: Cloud, y: Cloud, p: float, seed: int, memory: int, workers: int) -> SampleError:
    """The error of SW_p^p of clouds without weights, each an independent sample of its law, for p > 1."""
    tables = [to_numpy(c.points) for c in (x, y)]
    # The origin is subtracted a few points at a time: neither cloud is copied.
    origin = (
        cast(HostArray, far_centre(tables[0], tuple(range(tables[0].ndim - 1)))).reshape(-1).astype(np.float64)
    )
    x, y = (Cloud(MappedPoints(table, origin=origin)) for table in tables)
    rows = min(_MOST, max(_LEAST, x.dim))
    key = Key.from_seed(seed, np.zeros(1))
    rng = np.random.default_rng(seed)
    # Random halves of both: rows may have come in some order.
    firsts = [_random_half(rng, c.n) for c in (x, y)]
    # Two independent sets of directions: in products of their potentials the errors of both average out.
    halves = [_draw(key, half, rows, x.dim) for half in range(2)]
    count, chunk = halves[0].theta.shape[0], _chunk_rows(x, y, memory // workers)
    pieces = [(half, slice(k, min(k + chunk, count))) for half in range(2) for k in range(0, count, chunk)]
    work = (functools.partial(_study_directions, x, y, p, halves[half], at, firsts) for half, at in pieces)
    studied: list[tuple[HostArray, ...]] = [(), ()]
    for (half, _), sums in zip(pieces, ordered_map(work, workers), strict=True):
        studied[half] = cast("tuple[HostArray, ...]", add_totals(studied[half], sums))
    (x1, y1, bias1), (x2, y2, bias2) = ((part / count for part in sums) for sums in studied)
    variance = sum(
        np.maximum(np.mean(a * b, axis=-1), 0.0) / (a.shape[-1] - 1) for a, b in ((x1, x2), (y1, y2))
    )
    return SampleError(np.sqrt(variance), (bias1 + bias2) / 2)


def _chunk_rows(x: Cloud, y: Cloud, memory: int) -> int:
    """How many directions fit in a worker's memory, besides its scratch space for one and the potentials."""
    points, pairs = x.n + y.n, math.prod(shared_batch(x, y))
    return max(1, (memory - (_ROW_BYTES + _KEPT_BYTES * pairs) * points) // (8 * pairs * points))


def _random_half(rng: np.random.Generator, n: int) -> HostArray:
    chosen = np.zeros(n, dtype=bool)
    chosen[rng.permutation(n)[: -(-n // 2)]] = True
    return chosen


def _draw(key: Key, half: int, rows: int, dim: int) -> DenseDirections:
    block_rows = min(rows, dim)
    count = -(-rows // block_rows)
    blocks = Blocks(Orthogonal(), key, half * count, count, block_rows, dim, np.dtype(np.float64), SAMPLES)
    return cast(DenseDirections, draw_blocks(blocks))


def _study_directions(
    x: Cloud, y: Cloud, p: float, directions: Directions, rows: slice, firsts: list[HostArray]
) -> tuple[HostArray, HostArray, HostArray]:
    """Sums over directions: the potentials of both clouds, and how much larger the value of half samples is."""
    px, py = (c.project(directions, rows, widely=True) for c in (x, y))
    scores, halves, by_x, by_y = study_lines(px, py, p, *firsts)
    return by_x, by_y, np.sum(halves - scores, axis=0)


study_lines: Operation[tuple[HostArray, HostArray, HostArray, HostArray]] = Operation("study_lines")
"""study_lines(px (slices, ..., n), py (slices, ..., m), p, first_x (n,), first_y (m,)) -> four tables.

Scores `(slices, ...)`, the mean scores of two halves, where `first_x` and `first_y` say which points are in the
first, and the potentials `(..., n)` and `(..., m)`, summed over slices.
"""


@study_lines.implementation(
    "numba",
    lambda px, *_: rows_refusal(px),
    plain_work=lambda px, py, *_: PlainWork.of(px, py, times=6),
)
def _study_lines_numba(
    px: HostArray, py: HostArray, p: float, first_x: HostArray, first_y: HostArray
) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    from orthoslice.backend.kernels.numba.weighted import study_rows

    lead, (rows_x, rows_y) = flat_rows(px, py)
    scores, halves, *potentials = study_rows(rows_x, rows_y, p, first_x, first_y, math.prod(lead[1:]))
    by_x, by_y = (by.reshape(*lead[1:], -1) for by in potentials)
    return scores.reshape(lead), halves.reshape(lead), by_x, by_y


@study_lines.implementation("reference", lambda *_: None)
def _study_lines(
    px: HostArray, py: HostArray, p: float, first_x: HostArray, first_y: HostArray
) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    # Of these clouds only the number of points is read.
    x, y = with_masses(*(ReadyCloud(q[0, ..., None], np.full(q.shape[-1], 1 / q.shape[-1])) for q in (px, py)))
    scores, _, (by_x, by_y) = weighted_slopes(px, py, x, y, p, 1.0, False, (False, False, True, True))
    halves = [sorted_scores(px[..., i], py[..., j], p) for i, j in ((first_x, first_y), (~first_x, ~first_y))]
    return cast(
        "tuple[HostArray, HostArray, HostArray, HostArray]", (scores, (halves[0] + halves[1]) / 2, by_x, by_y)
    )
