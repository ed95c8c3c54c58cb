"""Matchings made better without ever being made worse: merged with others, or matched anew in groups.

A matching of two clouds of n points is a permutation with the cost of each of its pairs. Groups are made by
halving: the points are cut in two equal parts along a first direction, each part along a second one, and so on,
so that points of a group are near each other along all these directions.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    HostArray,
    Indices,
    Operation,
    PlainWork,
    concat_rows,
    constant,
    device,
    library,
    namespace,
    scatter_add,
    wide_int,
)
from orthoslice.backend.kernels import rows_refusal
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.kernels.cuda.groups import LARGEST_GROUP, match_groups
from orthoslice.backend.threads import ordered_map
from orthoslice.clouds.canonical import gather_points
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.masses import total_mass
from orthoslice.couplings.coupling import powered_norm
from orthoslice.couplings.orders import stable_order

# Pieces of work for each worker: groups differ in how long they take.
_PIECES = 4

# Coordinates of the pairs that are priced at once.
_GATHERED = 1 << 18

# Where points only exchange partners two by two, a sweep takes as many turns as a group has points.
_LARGEST_PLAIN_GROUP = 64


MASS_UNITS = 2.0**62
"""The mass of a cloud, in units in which masses of pairs are integers and add up without rounding."""


class Match(NamedTuple):
    """Point i of x goes to point `partner[i]` of y, `(n,)`, at the price `cost[i] = |x_i - y_partner[i]|^p`."""

    partner: Array
    cost: Array


class MassPairs(NamedTuple):
    """A coupling: pair k moves `mass[k]` from point `ix[k]` of x to point `iy[k]` of y, all `(pairs,)`."""

    ix: Array
    iy: Array
    mass: Array


def make_match(partner: Array, x: Cloud, y: Cloud, p: float) -> Match:
    """A matching with its costs."""
    costs = [
        pair_costs(x.points[part, :], gather_points(y.points, partner[part]), p)
        for part in parts_of_pairs(x.points, x.n)
    ]
    return Match(partner, costs[0] if len(costs) == 1 else concat_rows(costs))


def parts_of_pairs(points: Array, n_pairs: int) -> list[slice]:
    """Pairs that are gathered and priced at once: on the host as many as a cache holds, elsewhere all."""
    step = max(1, _GATHERED // points.shape[-1]) if isinstance(points, np.ndarray) else n_pairs
    return [slice(first, first + step) for first in range(0, n_pairs, step)]


def pair_costs(x: Array, y: Array, p: float) -> Array:
    """|x - y|^p of points `(..., dim)`."""
    return powered_norm(x - y, p)


def inverse(permutation: Array) -> Array:
    """Where each of 0 .. n - 1 stands in a permutation `(n,)`."""
    if isinstance(permutation, np.ndarray):
        place = np.empty_like(permutation)
        place[permutation] = np.arange(len(permutation), dtype=permutation.dtype)
        return place
    xp, n = namespace(permutation), permutation.shape[0]
    return scatter_add(xp.arange(n, dtype=permutation.dtype, device=device(permutation)), permutation, n)


def levels_for(n: int, size: int) -> int:
    """How often n places have to be halved for groups of at most `size`.

    Examples
    --------
    >>> levels_for(1000, 256), levels_for(1024, 256), levels_for(1, 256)
    (2, 2, 0)
    """
    return max(0, math.ceil(math.log2(n / size)))


def group_starts(n: int, levels: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where the groups begin that n places fall into if they are halved `levels` times, and the end.

    A place belongs to the group in whose share of 0 .. n its middle lies.

    Examples
    --------
    >>> group_starts(5, 1).tolist()
    [0, 2, 5]
    """
    return (2 * np.arange((1 << levels) + 1, dtype=np.int64) * n + (1 << levels) - 1) >> (levels + 1)


halve: Operation[Array] = Operation("halve")
"""halve(keys (levels, n), masses (n,) or None) -> order (n,): the places of groups one after the other.

At every level each group is cut in two halves of equal mass, in the order of that level's keys; equal keys go
by place. Places of one group are in ascending order.
"""


def _halve_refusal(keys: Array, masses: Array | None) -> str | None:
    return "it takes places of equal mass" if masses is not None else rows_refusal(keys)


@halve.implementation("numba", _halve_refusal, plain_work=lambda keys, _: PlainWork.of(keys, times=6))
def _halve_numba(keys: Array, masses: Array | None) -> Array:
    from orthoslice.backend.kernels.numba.matching import halve_places

    order = np.arange(keys.shape[1])
    halve_places(np.ascontiguousarray(keys, dtype=np.float64), order)
    return order


@halve.implementation("reference", lambda *_: None)
def _halve(keys: Array, masses: Array | None) -> Array:
    xp, (levels, n) = namespace(keys), keys.shape
    integer = wide_int(keys)
    place = xp.arange(n, dtype=integer, device=device(keys))
    group = xp.zeros_like(place)
    # 2^(level + 1) (place + 1/2) / n, as a quotient and a remainder: nothing can overflow.
    whole, rest = (2 * place + 1) // n, (2 * place + 1) % n
    for level in range(levels):
        order = xp.astype(stable_order(keys[level, :]), integer)
        order = xp.take(order, xp.argsort(xp.take(group, order), stable=True))
        if masses is None:
            share = whole
            over = xp.astype(2 * rest >= n, integer)
            whole, rest = 2 * whole + over, 2 * rest - n * over
        else:
            mass = xp.take(masses, order)
            # A point is in the half in which the middle of its mass lies.
            share = (xp.cumulative_sum(mass) - (mass + 1) // 2) // (total_mass(keys) >> (level + 1))
        group = xp.take(share, inverse(order))
    return xp.argsort(group, stable=True)


merge_matches: Operation[Match] = Operation("merge_matches")
"""merge_matches(match, other (n,), x, y, p) -> Match: never dearer than `match` or the permutation `other`.

Their union falls into cycles that go from x to y by one and back by the other. Each keeps its cheaper side.
"""


@merge_matches.implementation(
    "numba",
    lambda match, other, x, y, p: rows_refusal(x.points, y.points),
    plain_work=lambda match, other, x, y, p: PlainWork.of(x.points, times=1 + 20 / x.dim),
)
def _merge_matches_numba(match: Match, other: HostArray, x: Cloud, y: Cloud, p: float) -> Match:
    from orthoslice.backend.kernels.numba.matching import merge_cycles

    merged = Match(*(cast(HostArray, a).copy() for a in match))
    merge_cycles(x.points, y.points, p, *cast("tuple[HostArray, HostArray]", merged), other)
    return merged


@merge_matches.implementation("reference", lambda *_: None)
def _merge_matches(match: Match, other: Array, x: Cloud, y: Cloud, p: float) -> Match:
    xp, n = namespace(x.points), x.n
    cost = make_match(other, x, y, p).cost
    following = xp.take(inverse(match.partner), other)
    # The least point of a cycle is its name, found in ceil(log2 n) steps, each of which looks twice as far.
    name = xp.arange(n, dtype=following.dtype, device=device(following))
    for _ in range(levels_for(n, 1)):
        name = xp.minimum(name, xp.take(name, following))
        following = xp.take(following, following)
    gain = scatter_add(match.cost - cost, name, n)
    better = xp.take(gain, name) > 0
    return Match(xp.where(better, other, match.partner), xp.where(better, cost, match.cost))


rematch: Operation[Match] = Operation("rematch")
"""rematch(match, order (n,), levels, x, y, p, workers) -> Match: never dearer.

The order makes groups of points of x, as :func:`halve` does with `levels` levels. Points of a group may swap
partners: optimally on the host and on NVIDIA GPUs, elsewhere by exchanges of two that lower the cost.
"""


def largest_group(like: Array) -> int:
    """The largest size of groups other than on the host; `like` are the partners of a matching."""
    return LARGEST_GROUP if cuda_refusal(like, dtype="int64") is None else _LARGEST_PLAIN_GROUP


def _rematch_refusal(
    match: Match, order: Array, levels: int, x: Cloud, y: Cloud, p: float, workers: int
) -> str | None:
    return rows_refusal(x.points, y.points)


def _rematch_work(match: Match, order: Array, levels: int, x: Cloud, y: Cloud, *_: object) -> PlainWork:
    # All pairs of a group are priced, by as many coordinates as they have, and an assignment is solved.
    return PlainWork.of(x.points, times=x.n / (1 << levels))


@rematch.implementation("numba", _rematch_refusal, plain_work=_rematch_work)
def _rematch_numba(
    match: Match, order: HostArray, levels: int, x: Cloud, y: Cloud, p: float, workers: int
) -> Match:
    from orthoslice.backend.kernels.numba.matching import rematch_groups

    changed = Match(*(cast(HostArray, a).copy() for a in match))
    work = (
        functools.partial(
            rematch_groups, x.points, y.points, p, order, starts, *cast("tuple[HostArray, HostArray]", changed)
        )
        for starts in pieces_of(group_starts(x.n, levels), workers)
    )
    for _ in ordered_map(work, workers):
        pass
    return changed


@rematch.implementation(
    "scipy", lambda match, *_: None if library(match.cost) == "numpy" else "it takes NumPy arrays"
)
def _rematch_scipy(
    match: Match, order: Array, levels: int, x: Cloud, y: Cloud, p: float, workers: int
) -> Match:
    from scipy.optimize import linear_sum_assignment

    changed = Match(*(cast(HostArray, a).copy() for a in match))
    starts = group_starts(x.n, levels)
    for first, stop in itertools.pairwise(starts):
        members = order[first:stop]
        theirs = match.partner[members]
        costs = pair_costs(x.points[members, None, :], y.points[None, theirs, :], p)
        row, column = linear_sum_assignment(costs)
        if cast(HostArray, costs)[row, column].sum() < cast(HostArray, match.cost)[members].sum():
            changed.partner[members] = theirs[column]
            changed.cost[members] = costs[row, column]
    return changed


def _groups_refusal(
    match: Match, order: Array, levels: int, x: Cloud, y: Cloud, p: float, workers: int
) -> str | None:
    if levels < levels_for(x.n, LARGEST_GROUP):
        return f"it takes groups of at most {LARGEST_GROUP} points"
    return cuda_refusal(match.partner, order, dtype="int64")


@rematch.implementation("cuda", _groups_refusal)
def _rematch_cuda(match: Match, order: Array, levels: int, x: Cloud, y: Cloud, p: float, workers: int) -> Match:
    # The kernel works in float32. Its pairs are kept where they are cheaper in the precision of the clouds.
    xp = namespace(x.points)
    near, far = (xp.astype(c.points, xp.float32) for c in (x, y))
    merged: Match = merge_matches(match, match_groups(near, far, order, match.partner, levels, p), x, y, p)
    return merged


@rematch.implementation("reference", lambda *_: None)
def _rematch(match: Match, order: Array, levels: int, x: Cloud, y: Cloud, p: float, workers: int) -> Match:
    xp = namespace(x.points)
    first, stop = (constant(_own_group, (x.n, levels, edge), order) for edge in (0, 1))
    place = xp.arange(x.n, dtype=order.dtype, device=device(order))
    # All that follows is in the order of the groups, so that members of one stand side by side.
    partner, cost = (xp.take(a, order) for a in match)
    near = gather_points(x.points, order)
    # In turn t member i of a group meets member i ^ t: in 2^k - 1 turns all pairs of 2^k members meet once.
    for turn in range(1, 1 << levels_for(int(np.diff(group_starts(x.n, levels)).max()), 1)):
        mate = first + ((place - first) ^ turn)
        mate = xp.where(mate < stop, mate, place)
        price = pair_costs(near, gather_points(y.points, xp.take(partner, mate)), p)
        cheaper = price + xp.take(price, mate) < cost + xp.take(cost, mate)
        partner = xp.where(cheaper, xp.take(partner, mate), partner)
        cost = xp.where(cheaper, price, cost)
    back = inverse(order)
    return Match(xp.take(partner, back), xp.take(cost, back))


def _own_group(n: int, levels: int, edge: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For every place of n where its group begins (edge 0) or ends (1)."""
    starts = group_starts(n, levels)
    return np.repeat(starts[edge : len(starts) - 1 + edge], np.diff(starts))


def integer_masses(pairs: MassPairs) -> MassPairs:
    """The pairs of NumPy arrays that carry mass, which is counted in `MASS_UNITS`."""
    mass = np.rint(pairs.mass * MASS_UNITS).astype(np.int64)
    return MassPairs(*(np.ascontiguousarray(a[mass > 0]) for a in (pairs.ix, pairs.iy, mass)))


def recouple(
    pairs: MassPairs, order: HostArray, levels: int, x: Cloud, y: Cloud, p: float, workers: int
) -> MassPairs:
    """Pairs of whole masses in which every group of `pairs` moves its mass at the least cost; NumPy arrays.

    The order makes groups of pairs, as :func:`halve` does with `levels` levels.
    """
    from orthoslice.backend.kernels.numba.matching import recouple_groups

    out = np.zeros((3, 2 * len(order)), dtype=np.int64)
    ix, iy, mass = (cast(HostArray, a).astype(np.int64, copy=False) for a in pairs)
    work = (
        functools.partial(recouple_groups, x.points, y.points, p, order, starts, ix, iy, mass, out)
        for starts in pieces_of(group_starts(len(order), levels), workers)
    )
    for _ in ordered_map(work, workers):
        pass
    ix, iy, mass = out[:, out[2] > 0]
    # The same two points may be a pair in several groups: their masses add up.
    name, which = np.unique(ix * y.n + iy, return_inverse=True)
    total = np.zeros(len(name), dtype=np.int64)
    np.add.at(total, which, mass)
    return MassPairs(name // y.n, name % y.n, total)


def pieces_of(starts: Indices, workers: int) -> list[Indices]:
    """The groups in pieces for workers: each piece has the starts of its groups, and the end of the last."""
    groups = len(starts) - 1
    edges = np.linspace(0, groups, min(groups, _PIECES * workers if workers > 1 else 1) + 1).astype(np.int64)
    return [starts[a : b + 1] for a, b in itertools.pairwise(edges)]
