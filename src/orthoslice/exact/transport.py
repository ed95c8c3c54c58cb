"""W of two clouds, exact or to a tolerance: units, masses, a solver for the size, the answer and its proof."""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from orthoslice.backend.array_types import FloatArray, HostArray, IntArray
from orthoslice.backend.arrays import Operation, PlainWork, detach
from orthoslice.backend.kernels import numba_refusal
from orthoslice.backend.kernels.cuda import cuda_refusal, is_on_gpu
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.stopping import stoppable
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_memory, check_p
from orthoslice.clouds.cloud import Cloud, host_clouds
from orthoslice.clouds.lengths import pair_lengths, power_mean, scaled_for_lengths
from orthoslice.clouds.masses import integer_masses
from orthoslice.clouds.ready import in_canonical_order
from orthoslice.couplings.coupling import Coupling
from orthoslice.exact.certificate import (
    Certificate,
    Problem,
    dual_value,
    line_potential,
    squared_lengths,
    transform,
)
from orthoslice.exact.simplex import Limits, settle

# The most pairs n * m that are solved by the network simplex method. Beyond, the auction is mostly faster.
_MOST_PAIRS = 2**20
# Bytes a pair: its cost, and once more while costs are worked out.
_PAIR_BYTES = 16
_DEFAULT_MEMORY = "256MB"

_EPS = float(np.finfo(np.float64).eps)

# Differences of coordinates that NumPy works out sooner than SciPy's function for it is loaded.
_FEW_DIFFERENCES = 1 << 21

# Prices of an assignment are found in as many rounds as the longest chain of rows that decide each other's has
# links: some tens for a few hundred rows.
_MOST_ROUNDS = 256

# Weights that are shares of a number up to this one are taken as such; lcm of two such sums fits a float.
_LARGEST_COUNT = 2**24
# Sums of a few thousand weights that are equal differ by less, relatively.
_SUM_ROUNDING = 2.0**-45
# Costs are cut off and the problem is solved again until rounding is this share of the answer.
_SMALL_GAP = 1e-10
# SciPy's assignment takes about 0.4 n^3 ns. Counted in the numbers of plain code, and by a tenth.
_CUBES_A_NUMBER = 1250
# The rounding of potentials, as a share of their range.
_POTENTIAL_ROUNDING = 2.0**-44
# Relative. Lower bounds that potentials of x prove and those of y differ by less.
_SAME = 2.0**-40
# Levels of an auction, about, for a bar that shows progress.
_LEVELS = 20
# Costs given to solvers are cut off at about _ROOM times the answer: larger ones would round it away.
_ROOM = 1e4
# Mean costs up to 1 that are above this lost no digits to underflow, nor did the squares that they are made of.
_TINY_MEAN = 1e-100
# With units below 2**-_WIDE times the largest coordinate, lengths are not squared: squares could underflow.
_WIDE = 400
# Closer brackets are found on the host, and so are those of clouds of which a larger share equals another
# point: masses of equal points are one there.
_LEAST_GPU_RTOL, _MOST_TWINS = 1e-6, 0.01
# Up to so many pairs the host goes on where lists in float32 tell too little to come to a narrow bracket.
_MOST_HOST_PAIRS = 20_000**2


@dataclass(frozen=True, eq=False, kw_only=True)
class Transport:
    """A Wasserstein distance, the coupling that attains it, and a proof.

    Attributes
    ----------
    value, distance : float
        W_p^p and W_p: what the coupling costs.
    lower, upper : float
        ``lower <= W_p <= upper`` for certain, whatever was rounded.
    p : float
        The power.
    coupling : Coupling
        An optimal coupling, or with `rtol` one that is as near as that, in NumPy arrays; there may be others.
    potentials : tuple of arrays
        `f (n,)` and `g (m,)` with ``f[i] + g[j] <= |x[i] - y[j]|**p``, up to rounding, whose means add up to
        `value`, to the accuracy of the answer. They are the derivatives of W_p^p by the weights.
    method : str
        How it was found: "sorting", "assignment", "network simplex" or "auction".
    converged : bool
        Whether the answer is as accurate as was asked for. False after `time_limit` or Ctrl-C.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> found = osl.wasserstein(x, x[::-1] + 1)
    >>> round(found.distance**2, 9), found.verify(), found.upper - found.lower < 1e-9
    (3.0, True, True)
    """

    p: float
    coupling: Coupling
    method: str
    unit_value: float
    exponent: int
    """`value` is ``unit_value * 2**(p * exponent)``, which may overflow where `distance` does not."""
    certificate: Certificate
    proved: float | None = None
    """The lower bound that was found with the coupling; None if it is worked out when it is read."""
    converged: bool = True

    @property
    def value(self) -> float:
        return _power_of_two(self.unit_value, self.p * self.exponent)

    @property
    def distance(self) -> float:
        try:
            return math.ldexp(self.unit_value ** (1 / self.p), self.exponent)
        except OverflowError:
            raise OverflowError("This distance exceeds the range of float64. Pass smaller units.") from None

    @functools.cached_property
    def lower(self) -> float:
        return min(self.certificate.lower() if self.proved is None else self.proved, self.upper)

    @functools.cached_property
    def upper(self) -> float:
        return self.certificate.upper(
            cast(IntArray, self.coupling.ix),
            cast(IntArray, self.coupling.iy),
            cast(FloatArray, self.coupling.mass),
        )

    @functools.cached_property
    def potentials(self) -> tuple[FloatArray, FloatArray]:
        power = self.p * self.certificate.exponent
        f, g = self.certificate.potentials()
        unit = _power_of_two(1.0, power)
        return unit * f, unit * g

    def verify(self) -> bool:
        """Check from scratch that the coupling proves `upper` and that the potentials prove `lower`.

        By plain array code that shares nothing with what found the answer, from the clouds as they were given:
        the coupling's masses are added up as whole numbers, its pairs are priced with compensated sums, and all
        n * m costs are held against the potentials of y, no matter what those of x are. All rounding is taken
        to the outside. `lower` is shown to 1e-12 of itself.
        """
        pairs: tuple[Any, Any, Any] = self.coupling.ix, self.coupling.iy, self.coupling.mass
        low, high = self.certificate.verified(*pairs)
        return low >= self.lower * (1 - _SAME) and high <= self.upper

    def __repr__(self) -> str:
        is_near = self.proved is not None and self.lower < (1 - _SMALL_GAP) * self.upper
        if is_near or not self.converged:
            early = "" if self.converged else ", stopped early"
            return f"Transport({self.lower:.6g} <= W_{self.p:g} <= {self.upper:.6g} by {self.method}{early})"
        return f"Transport(W_{self.p:g} = {self.distance:.6g} by {self.method})"


def _power_of_two(number: float, power: float) -> float:
    """`number * 2**power`, which is out of range only if the result is."""
    whole = math.floor(power)
    try:
        return math.ldexp(number * 2.0 ** (power - whole), whole)
    except OverflowError:
        raise OverflowError(
            "The p-th power of this distance exceeds the range of float64. "
            "Read `distance`, which does not, or pass smaller units."
        ) from None


class _Pairs(NamedTuple):
    """Which points are matched, with which mass."""

    ix: NDArray[np.intp]
    iy: NDArray[np.intp]
    mass: FloatArray


def _known(g: FloatArray) -> FloatArray:
    """A potential that was found with its pairs; like all ways to find one, this can be pickled."""
    return g


class _Found(NamedTuple):
    """Pairs of the points of a problem, the potential of y, and what is known of the accuracy."""

    pairs: _Pairs
    method: str
    find: Callable[[], FloatArray]
    lower: float | None = None
    is_done: bool = True
    is_on_gpu: bool = False


class Effort(NamedTuple):
    """How accurate the answer shall be, and what it may take; `memory` is None where nothing was said."""

    rtol: float
    time_limit: float | None
    memory: int | None
    progress: bool
    place: Any = None
    """The GPU on which both clouds are, as torch names it; None for any other place."""

    def limits(self, p: float) -> Limits:
        deadline = math.inf if self.time_limit is None else time.monotonic() + self.time_limit
        return Limits(1 - (1 + self.rtol) ** -p, deadline)


@answers_other_names
def wasserstein(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    x_weights: Any = None,
    y_weights: Any = None,
    rtol: float = 0.0,
    time_limit: float | None = None,
    memory: int | str | None = None,
    progress: bool = False,
) -> Transport:
    """The Wasserstein distance W_p of two clouds, exact or as accurate as asked for, with a proof.

    W_p^p is the least cost ``sum mass * |x - y|^p`` of any coupling (equation 4 of the paper, which prints max
    for min). The answer has a coupling, which bounds W_p from above, and potentials, which bound it from below:
    ``lower <= W_p <= upper`` is certain, and `verify` checks both from scratch. Exact answers are for clouds of
    up to some ten thousand points; a bracket of 0.1% takes a fraction of the time.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)` of any supported library. The work is done in float64 on the host, or
        with `rtol` on the GPU that both are on, as the notes say.
    p
        The power, at least 1.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.
    rtol
        How far `upper` may be above `lower`, relatively. 0 means exact: to rounding.
    time_limit
        Seconds after which the bracket found by then is returned, with `converged` False. So does the first
        Ctrl-C; the second one interrupts.
    memory
        Working memory in bytes or as text, beyond the clouds. None means 256MB, or a quarter of what is free on
        the GPU that does the work.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    Transport
        `value` (W_p^p) and `distance` (W_p) as floats, `lower`, `upper`, `coupling`, `potentials`, the `method`
        that was used, and whether it `converged`.

    Notes
    -----
    In one dimension, or against a single point, no more than a sort is needed. Up to 2**20 pairs, or 1,000
    points a side, the method is a network simplex. Otherwise it is an auction: points of one cloud bid for
    points of the other, with a least raise that falls from level to level, and prices are the potentials. Where
    all n * m costs do not fit in `memory`, they are worked out again when they are needed. In benchmarks exact
    answers had brackets of 1e-14 to 2e-9.

    Torch tensors on an NVIDIA GPU with more than 2**20 pairs are worked on there, if they are as many and
    without weights, fewer than one point in 100 equals another one, and `rtol` is at least 1e-6: by potentials
    of soft minima over all pairs, and an auction from their prices in which all points bid at once. `verify`
    and `potentials` then look at all pairs there too.

    Weights are whole numbers for both: counts where they are shares of a total up to 2**24 (to rounding), else
    multiples of 2**-62, and the bracket allows for what that moves. Clouds that are the same law, but for how
    their weights were rounded, have distance 0. Potentials round by their range. Where that is far above the
    answer (far points, large p), the simplex cuts off what no optimal coupling pays and solves the problem
    again.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [3.0, 1.0]])
    >>> transport = wasserstein(x, y, p=1)
    >>> transport
    Transport(W_1 = 1.5 by network simplex)
    >>> transport.coupling.to_dense().tolist()
    [[0.5, 0.0], [0.0, 0.5]]

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(500, 3)), rng.normal(size=(500, 3)) + 1
    >>> transport = wasserstein(x, y, rtol=0.01)
    >>> transport.upper < 1.01 * transport.lower, transport.verify()
    (True, True)
    """
    p = check_p(p)
    effort = check_effort(rtol, time_limit, memory, progress)._replace(place=gpu_of(x, y))
    cloud_x, cloud_y = host_clouds("wasserstein", x, y, x_weights, y_weights)
    return transport_clouds(cloud_x, cloud_y, p, effort)


def check_effort(rtol: float, time_limit: float | None, memory: int | str | None, progress: bool) -> Effort:
    """The options of :func:`wasserstein`, checked."""
    if isinstance(rtol, bool) or not isinstance(rtol, int | float) or not 0 <= rtol < 1:
        raise ValueError(f"`rtol` must be a number from 0 (exact) to 1; got {rtol!r}.")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"`time_limit` must be a positive number of seconds or None; got {time_limit!r}.")
    return Effort(float(rtol), time_limit, None if memory is None else check_memory(memory), progress)


def gpu_of(x: Any, y: Any) -> Any:
    """The GPU on which the points of both clouds are, where kernels can be compiled for it, or None."""
    points = [c.points if isinstance(c, Cloud) else c for c in (x, y)]
    kinds = "float32", "float64"
    if not all(is_on_gpu(p) for p in points) or cuda_refusal(*map(detach, points), dtype=kinds) is not None:
        return None
    return points[0].device


def transport_clouds(cloud_x: Cloud, cloud_y: Cloud, p: float, effort: Effort) -> Transport:
    """As :func:`wasserstein`, of clouds that were checked."""
    scaled_x, scaled_y, exponent = scaled_for_lengths(cloud_x, cloud_y)
    (at_x, x), (at_y, y) = _support(scaled_x), _support(scaled_y)
    masses, is_large = _shared_counts(x, y), x.n * y.n > _MOST_PAIRS
    if masses is None or is_large or 1 in (x.dim, x.n, y.n):
        # In canonical order: weights are rounded alike whatever the order of the rows, and equal points are
        # neighbours.
        (at_x, x), (at_y, y) = _in_order(at_x, x), _in_order(at_y, y)
        masses = _shared_counts(x, y) or _agreeing_masses(x, y)
    # Points in their own units are for `settle_few`: many of them are not kept twice.
    problem, unit = _in_units(x, y, p, masses, is_large)
    found = _solve(x, y, problem, unit, effort)
    pairs = _Pairs(at_x[found.pairs.ix], at_y[found.pairs.iy], found.pairs.mass)
    length = pair_lengths(scaled_x.points, scaled_y.points, pairs.ix, pairs.iy)
    top = math.frexp(length.max())[1]
    unit_value = math.fsum((pairs.mass * np.ldexp(length, -top) ** p).tolist())
    place = effort.place if found.is_on_gpu else None
    certificate = Certificate(problem, (cloud_x, cloud_y), at_y, exponent + unit, found.find, place)
    return Transport(
        p=p,
        coupling=Coupling(cloud_x.points, cloud_y.points, pairs.ix, pairs.iy, pairs.mass),
        method=found.method,
        unit_value=unit_value,
        exponent=exponent + top,
        certificate=certificate,
        proved=None if found.lower is None else certificate.root(found.lower, -1),
        converged=found.is_done,
    )


def _in_units(
    x: Cloud, y: Cloud, p: float, masses: tuple[IntArray, IntArray], in_place: bool
) -> tuple[Problem, int]:
    """Points over a power of two, no two of which are then farther apart than 1, and that power."""
    low = np.minimum(x.points.min(axis=0), y.points.min(axis=0))
    high = np.maximum(x.points.max(axis=0), y.points.max(axis=0))
    unit = math.frexp(float((high - low).max()) * math.sqrt(x.dim))[1]
    a, b = masses
    off = _moved_mass(x, a), _moved_mass(y, b)
    at_x, at_y = (np.ldexp(c.points, -unit, out=c.points if in_place else None) for c in (x, y))
    return Problem(at_x, at_y, a, b, p, off), unit


def _solve(x: Cloud, y: Cloud, problem: Problem, unit: int, effort: Effort) -> _Found:
    """A coupling of points of which all weigh something, by the method that is fastest."""
    if x.dim == 1 or 1 in (x.n, y.n):
        # On a line couplings by order are optimal; with a single point there is only one coupling.
        pairs = _match_in_order(problem.a, problem.b)
        return _Found(pairs, "sorting", functools.partial(line_potential, problem, pairs.ix, pairs.iy))
    memory = check_memory(_DEFAULT_MEMORY) if effort.memory is None else effort.memory
    n_pairs = len(problem.x) * len(problem.y)
    with stoppable(), progress_bar("levels", _LEVELS, effort.progress) as advance:
        if n_pairs <= min(_MOST_PAIRS, memory // _PAIR_BYTES):
            if _uneven_refusal(x, y) is not None and (missing := numba_refusal()) is not None:
                raise ImportError(
                    f"W of clouds with weights or of unequal sizes needs numba: {missing}. Bounds by "
                    "`osl.wasserstein_bounds` without `rtol` do without it."
                )
            settled: _Found = settle_few(x, y, problem, unit, effort.limits(problem.p))
            return settled
        limits = effort.limits(problem.p)
        if _suits_gpu(x, y, problem, effort):
            found = _solve_on_gpu(problem, limits, effort, advance)
            if found.is_done or limits.passed or n_pairs > _MOST_HOST_PAIRS:
                return found
        from orthoslice.exact.auction import solve  # loads numba

        solution = solve(problem, limits, memory, advance)
    ix, iy, mass = solution.placed
    pairs = _Pairs(ix, iy, mass / float(problem.a.sum()))
    return _Found(pairs, "auction", functools.partial(_known, solution.g), solution.lower, solution.is_done)


def _suits_gpu(x: Cloud, y: Cloud, problem: Problem, effort: Effort) -> bool:
    """Whether an auction of all points at once is the way: few of which are equal, and for a bracket only."""
    if effort.place is None or effort.rtol < _LEAST_GPU_RTOL or _uneven_refusal(x, y) is not None:
        return False
    from orthoslice.exact.on_device import held_bytes, room_refusal

    if effort.memory is not None and effort.memory < 2 * held_bytes(problem):
        return False
    if room_refusal(problem, effort.place) is not None:
        return False
    # Equal points follow each other.
    n_twins = sum(int((c[1:] == c[:-1]).all(axis=1).sum()) for c in problem[:2])
    return n_twins <= _MOST_TWINS * len(problem.x)


def _solve_on_gpu(problem: Problem, limits: Limits, effort: Effort, advance: Callable[[int], None]) -> _Found:
    from orthoslice.exact.on_device import solve  # loads torch

    found = solve(problem, limits, effort.memory, effort.place, advance)
    n = len(found.partner)
    pairs = _Pairs(np.arange(n), found.partner, np.full(n, 1 / n))
    return _Found(
        pairs, "auction", functools.partial(_known, found.g), found.lower, found.is_done, is_on_gpu=True
    )


def _support(cloud: Cloud) -> tuple[NDArray[np.intp], Cloud]:
    """The points that weigh something."""
    if cloud.weights is None:
        return np.arange(cloud.n), cloud
    at = np.flatnonzero(cloud.weights)
    if len(at) == cloud.n:
        return at, cloud
    weights: HostArray = cast(HostArray, cloud.weights)[at]
    return at, Cloud(cloud.points[at], None if weights.min() == weights.max() else weights)


def _in_order(at: NDArray[np.intp], cloud: Cloud) -> tuple[NDArray[np.intp], Cloud]:
    ready = in_canonical_order(cloud)
    return at[cast(HostArray, ready.order)], ready


def _match_in_order(a: IntArray, b: IntArray) -> _Pairs:
    """The first mass of one cloud goes to the first of the other, and so on."""
    if len(a) == len(b) and (a == b).all():
        ranks = np.arange(len(a))
        return _Pairs(ranks, ranks, a / a.sum())
    ends_x, ends_y = np.cumsum(a), np.cumsum(b)
    ends = np.concatenate([ends_x, ends_y])
    # Merges both: either is in order. Masses between ends that coincide are 0.
    ends.sort(kind="stable")
    mass = np.diff(ends, prepend=0)
    ends, mass = ends[mass > 0], mass[mass > 0] / ends[-1]
    return _Pairs(np.searchsorted(ends_x, ends), np.searchsorted(ends_y, ends), mass)


def _costs(
    x: Cloud, y: Cloud, p: float, unit: float | None, squares: Callable[[FloatArray, FloatArray], FloatArray]
) -> tuple[FloatArray, float]:
    """(|x - y| / unit)^p for all pairs, and the unit: the largest length where it is None."""
    exponent = math.frexp(max(float(np.abs(c.points).max()) for c in (x, y)))[1]
    if unit is None or unit > math.ldexp(1.0, max(exponent - _WIDE, -1074)):
        cost = squares(np.ldexp(x.points, -exponent), np.ldexp(y.points, -exponent))
        unit = math.ldexp(math.sqrt(cost.max()), exponent) if unit is None else unit
        scale, power = math.ldexp(unit, -exponent) ** 2, p / 2
    else:
        cost, scale, power = np.zeros((x.n, y.n)), unit, p
        for k in range(x.dim):
            np.hypot(cost, np.subtract.outer(x.points[:, k], y.points[:, k]), out=cost)
    with np.errstate(over="ignore"):
        if scale > 0:
            np.divide(cost, scale, out=cost)
        return cost if power == 1 else np.power(cost, power, out=cost), unit


def _squares(x: FloatArray, y: FloatArray) -> FloatArray:
    """|x - y|^2 for all pairs."""
    from orthoslice.backend.kernels.numba.auction import fill_costs

    squares = np.empty((len(x), len(y)))
    fill_costs(x, np.ascontiguousarray(y.T), 2.0, 0, len(x), squares)
    return squares


def _plain_squares(x: FloatArray, y: FloatArray) -> FloatArray:
    if len(x) * y.size <= _FEW_DIFFERENCES:
        return squared_lengths(x, y)
    from scipy.spatial.distance import cdist

    return cast(FloatArray, cdist(x, y, "sqeuclidean"))


def _root_cost(x: Cloud, y: Cloud, pairs: _Pairs, p: float) -> float:
    return power_mean(pair_lengths(x.points, y.points, pairs.ix, pairs.iy), pairs.mass, p)


settle_few: Operation[_Found] = Operation("settle_few")
"""settle_few(x, y, problem, exponent, limits) -> _Found: an optimal coupling of few enough pairs."""


def _assignment_work(x: Cloud, y: Cloud, problem: Problem, exponent: int, limits: Limits) -> PlainWork:
    """What SciPy does until it pays to compile the simplex method, which takes as long as ten other kernels."""
    is_plain = _uneven_refusal(x, y) is None and limits.deadline == math.inf
    return PlainWork(x.n**3 // _CUBES_A_NUMBER if is_plain else sys.maxsize, "float64")


def _uneven_refusal(x: Cloud, y: Cloud, *_: Any) -> str | None:
    is_even = x.weights is None and y.weights is None and x.n == y.n
    return None if is_even else "it takes clouds of one size without weights"


@settle_few.implementation("numba", lambda *_: None, plain_work=_assignment_work)
def _settle(x: Cloud, y: Cloud, problem: Problem, exponent: int, limits: Limits) -> _Found:
    """The optimal coupling by the network simplex method."""
    p, total = problem.p, float(problem.a.sum())
    found: list[tuple[float, _Pairs, FloatArray]] = []
    unit: float | None = None
    while True:
        cost, unit = _costs(x, y, p, unit, _squares)
        (ix, iy, mass), price, is_done = settle(np.minimum(cost, 1.0, out=cost), problem.a, problem.b, limits)
        pairs = _Pairs(ix, iy, mass / total)
        # Nothing is cut off in the first round: its costs are true, unless what counts is near underflow.
        mean = 0.0 if found else float(pairs.mass @ cost[ix, iy])
        length = unit * mean ** (1 / p) if mean > _TINY_MEAN else _root_cost(x, y, pairs, p)
        found.append((length, pairs, -price * math.ldexp(unit, -exponent) ** p))
        least, best, _ = min(found, key=lambda answer: answer[0])
        rounding = _POTENTIAL_ROUNDING * np.ptp(price)
        # Pairs that cost far more than the answer are hardly ever used, and the true costs decide whether the
        # coupling is better without.
        needed = least * _ROOM ** (1 / p)
        is_exact = least == 0 or rounding <= _SMALL_GAP * (least / unit) ** p
        if not is_done or is_exact or p * math.log(unit / needed) < math.log(10):
            break
        unit = needed
    return _Found(
        best,
        "network simplex",
        functools.partial(_best_potential, problem, [g for *_, g in found]),
        None,
        is_done,
    )


@settle_few.implementation("reference", _uneven_refusal)
def _assign(x: Cloud, y: Cloud, problem: Problem, exponent: int, limits: Limits) -> _Found:
    from scipy.optimize import linear_sum_assignment

    best, least, unit = None, math.inf, None
    while True:
        cost, unit = _costs(x, y, problem.p, unit, _plain_squares)
        ix, iy = linear_sum_assignment(np.minimum(cost, 1.0, out=cost))
        pairs = _Pairs(ix, iy, np.full(len(ix), 1 / len(ix)))
        length = _root_cost(x, y, pairs, problem.p)
        best, least = (pairs, length) if length < least else (best, least)
        # No pair of an optimal coupling costs more than the whole coupling, so dearer pairs may be cut off.
        needed = 1.01 * least * len(ix) ** (1 / problem.p)
        if best is not None and (least == 0 or problem.p * math.log(unit / needed) < math.log(_ROOM)):
            return _Found(
                best, "assignment", functools.partial(_prove, x, y, problem, exponent, limits, iy, unit)
            )
        unit = needed


def _prove(
    x: Cloud, y: Cloud, problem: Problem, exponent: int, limits: Limits, iy: IntArray, unit: float
) -> FloatArray:
    """The potential that proves an assignment, for costs in this unit."""
    cost, _ = _costs(x, y, problem.p, unit, _plain_squares)
    price = _assignment_price(np.minimum(cost, 1.0, out=cost), iy)
    if price is None:
        return _settle(x, y, problem, exponent, limits).find()
    potential: FloatArray = -price * math.ldexp(unit, -exponent) ** problem.p
    return potential


def _assignment_price(cost: FloatArray, iy: IntArray) -> FloatArray | None:
    """Prices that prove an assignment of rows to the columns `iy`; None where they take many rounds to settle.

    A row must not find another column cheaper than its own: so its costs with the price are at most those of
    another row, for which it would take that row's column. Rounds of that, until nothing changes.
    """
    own = cost[np.arange(len(iy)), iy]
    over = cost[:, iy] - own
    minima = np.zeros(len(iy))
    for _ in range(_MOST_ROUNDS):
        before, minima = minima, np.min(over + minima, axis=1)
        if np.all(before - minima <= _EPS):
            price = np.empty(len(iy))
            price[iy] = minima - own
            return price
    return None


def _best_potential(problem: Problem, found: list[FloatArray]) -> FloatArray:
    """The potential of y that proves most."""
    if len(found) == 1:
        return found[0]
    return max(found, key=lambda g: dual_value(problem, transform(problem, -g), -g))


def _shared_counts(x: Cloud, y: Cloud) -> tuple[IntArray, IntArray] | None:
    """Masses of both clouds as integers with the same sum, if weights are counts to rounding."""
    counts_x, counts_y = _counts(x), _counts(y)
    if counts_x is None or counts_y is None:
        return None
    total_x, total_y = int(counts_x.sum()), int(counts_y.sum())
    total = math.lcm(total_x, total_y)
    return counts_x * (total // total_x), counts_y * (total // total_y)


def _agreeing_masses(x: Cloud, y: Cloud) -> tuple[IntArray, IntArray]:
    """Masses of both clouds as integers with the same sum; the same ones where the laws are the same.

    Sums of weights are rounded. Where both clouds have the same mass at every place but for rounding, the
    distance is 0, and the mass that rounding left over must not travel.
    """
    a, b = cast(IntArray, integer_masses(x)), cast(IntArray, integer_masses(y))
    _, site = np.unique(np.concatenate([x.points, y.points]), axis=0, return_inverse=True)
    excess = np.zeros(site.max() + 1, dtype=np.int64)
    np.subtract.at(excess, site[: x.n], a)
    held = -excess
    np.add.at(excess, site[x.n :], b)
    if (np.abs(excess) <= _SUM_ROUNDING * held).all():
        # In ascending order of mass the last write stays: the heaviest point of a place.
        heaviest, order = np.zeros_like(excess), np.argsort(b)
        heaviest[site[x.n :][order]] = order
        b[heaviest] -= excess
    return a, b


def _counts(cloud: Cloud) -> IntArray | None:
    """Integers with a sum up to _LARGEST_COUNT, proportional to the weights to rounding; None if none are."""
    if cloud.weights is None:
        return np.ones(cloud.n, dtype=np.int64)
    # Often the least weight is that of a single row; otherwise a common denominator is looked for.
    weights = cast(FloatArray, cloud.weights)
    counts = _shares(weights, round(1 / float(weights.min())))
    if counts is not None:
        return counts
    total = 1
    for weight in np.unique(weights).tolist():
        total = math.lcm(total, Fraction(weight).limit_denominator(_LARGEST_COUNT).denominator)
        if total > _LARGEST_COUNT:
            return None
    return _shares(weights, total)


def _shares(weights: FloatArray, total: int) -> IntArray | None:
    """Integers with this sum, up to _LARGEST_COUNT, that are the weights to rounding; None if they are not."""
    if total > _LARGEST_COUNT:
        return None
    counts = np.rint(total * weights)
    is_close = np.abs(total * weights - counts) <= 4 * _EPS * counts
    return counts.astype(np.int64) if is_close.all() and counts.sum() == total else None


def _moved_mass(cloud: Cloud, mass: FloatArray | IntArray) -> float:
    """How much mass was moved, at most, to round weights to whole numbers."""
    if cloud.weights is None:
        return 0.0
    return float(np.abs(mass / mass.sum() - cloud.weights).sum()) + cloud.n * _EPS
