"""The exact Wasserstein distance of two clouds, and a coupling that attains it."""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from orthoslice.backend.array_types import HostArray
from orthoslice.backend.arrays import Operation, PlainWork
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.stopping import stoppable
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_memory, check_p
from orthoslice.clouds.cloud import Cloud, host_clouds
from orthoslice.clouds.lengths import pair_lengths, power_mean, scaled_for_lengths
from orthoslice.clouds.masses import integer_masses
from orthoslice.clouds.ready import in_canonical_order
from orthoslice.couplings.coupling import Coupling
from orthoslice.exact._inputs import FloatArray, IntArray
from orthoslice.exact.certificate import Certificate, Problem, line_potential, transform

if TYPE_CHECKING:
    from orthoslice.exact.auction import Limits

# The most pairs n * m that are given to other solvers. Beyond, the auction is mostly faster, and without
# POT it takes over before HiGHS gets slow. In the plane POT stays ahead for unequal masses with heavy tails;
# there its memory is the limit, about 50 bytes a pair at the peak.
_MOST_PAIRS = {"assignment": 2**16, "network simplex": 2**19, "linear program": 2**12}
_MOST_PAIRS_IN_FEW, _FEW_DIMENSIONS = 2**25, 2
_PAIR_BYTES = {"assignment": 8, "network simplex": 50, "linear program": 1300}
# With a tolerance only problems this small are still solved exactly.
_TINY_PAIRS = 2**12
_DEFAULT_MEMORY = "256MB"

# Sums of whole numbers up to 2**53 are exact in float64, so solvers that add and subtract masses never round.
_MASS_BITS = 50
# Weights that are shares of a number up to this one are taken as such; lcm of two such sums fits a float.
_LARGEST_COUNT = 2**24
# Sums of a few thousand weights that are equal differ by less, relatively.
_SUM_ROUNDING = 2.0**-45
# Relative gap to the optimum: up to _SMALL_GAP there is no other try, above _LARGEST_GAP an error.
_SMALL_GAP, _LARGEST_GAP = 1e-9, 1e-6
# SciPy's assignment takes about 0.4 n^3 ns. Counted in the numbers of plain code, and by a tenth.
_CUBES_A_NUMBER = 1250
# Relative; bounds that are worked out twice, in another order, differ by less.
_SAME = 2.0**-40
# Levels of an auction, about, for a bar that shows progress.
_LEVELS = 20
# Costs given to solvers are cut off at about _ROOM times the answer: larger ones would round it away.
_ROOM = 1e4
# With units below 2**-_WIDE times the largest coordinate, lengths are not squared: squares could underflow.
_WIDE = 400


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
        How it was found: "sorting", "assignment", "auction", "network simplex" or "linear program".
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

        All costs are worked out anew, from differences of coordinates in float64, and all rounding is taken to
        the outside: n * m costs, no matter how the answer was found. Also checks that the coupling moves the
        mass of every point.
        """
        pairs: tuple[Any, Any, Any] = self.coupling.ix, self.coupling.iy, self.coupling.mass
        return (
            self.certificate.has_masses(*pairs)
            and self.certificate.upper(*pairs) <= self.upper
            and self.certificate.lower() >= self.lower * (1 - _SAME)
        )

    def __repr__(self) -> str:
        if self.proved is not None and (not self.converged or self.lower < (1 - _SMALL_GAP) * self.upper):
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


class _Found(NamedTuple):
    """Pairs of the points of a problem, the potential of y, and what is known of the accuracy."""

    pairs: _Pairs
    method: str
    find: Callable[[], FloatArray]
    lower: float | None = None
    is_done: bool = True


class Effort(NamedTuple):
    """How accurate the answer shall be, and what it may take; `memory` is None where nothing was said."""

    rtol: float
    time_limit: float | None
    memory: int | None
    progress: bool

    def limits(self, p: float) -> Limits:
        from orthoslice.exact.auction import Limits

        deadline = math.inf if self.time_limit is None else time.monotonic() + self.time_limit
        return Limits(1 - (1 + self.rtol) ** -p, deadline)


_EXACT = Effort(0.0, None, None, False)


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
        Clouds `(n, dim)` and `(m, dim)` of any supported library. The work is done in float64 on the host.
    p
        The power, at least 1.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.
    rtol
        How far `upper` may be above `lower`, relatively. 0 means exact: to rounding.
    time_limit
        Seconds after which the bracket found by then is returned, with `converged` False. So does the first
        Ctrl-C of larger problems; the second one interrupts. Other solvers are not stopped (see Notes).
    memory
        Working memory in bytes or as text, beyond the clouds. None means 256MB, and what other solvers need.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    Transport
        `value` (W_p^p) and `distance` (W_p) as floats, `lower`, `upper`, `coupling`, `potentials`, the `method`
        that was used, and whether it `converged`.

    Notes
    -----
    In one dimension, or against a single point, no more than a sort is needed. Otherwise the method is an
    auction: points of one cloud bid for points of the other, with a least raise that falls from level to level,
    and prices are the potentials. Where all n * m costs do not fit in `memory`, they are worked out again when
    they are needed. In benchmarks exact answers had brackets of 1e-14 to 2e-9.

    Small problems are solved faster by others: SciPy for uniform clouds of equal size up to 256 points, POT's
    network simplex (``pip install "orthoslice[exact]"``) for weights and unequal sizes up to 2**19 pairs, or
    2**25 in the plane, or without POT SciPy's HiGHS up to 2**12. For these last two, weights are whole
    numbers: counts where they are shares of a total up to 2**24 (to rounding), else multiples of 2**-50, which
    can change `value` by ``(n + m) * 2**-50`` times the largest cost ``|x - y|^p`` and matters only where it is
    smaller than that. Their answer is checked against the dual problem: beyond that change, `value` exceeds the
    optimum by at most 1e-9 of itself, or 1e-6 where costs span many scales, or an error is raised. Clouds that
    are the same law, but for how their weights were rounded, have distance 0. Solvers round by the largest cost
    that they see. Where that is far above the answer (far points, large p), what no optimal coupling pays
    is cut off and the problem is solved again.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [3.0, 1.0]])
    >>> transport = wasserstein(x, y, p=1)
    >>> transport
    Transport(W_1 = 1.5 by assignment)
    >>> transport.coupling.to_dense().tolist()
    [[0.5, 0.0], [0.0, 0.5]]

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(500, 3)), rng.normal(size=(500, 3)) + 1
    >>> transport = wasserstein(x, y, rtol=0.01)
    >>> transport.upper < 1.01 * transport.lower, transport.verify()
    (True, True)
    """
    p = check_p(p)
    effort = check_effort(rtol, time_limit, memory, progress)
    cloud_x, cloud_y = host_clouds("wasserstein", x, y, x_weights, y_weights)
    return transport_clouds(cloud_x, cloud_y, p, effort)


def check_effort(rtol: float, time_limit: float | None, memory: int | str | None, progress: bool) -> Effort:
    """The options of :func:`wasserstein`, checked."""
    if isinstance(rtol, bool) or not isinstance(rtol, int | float) or not 0 <= rtol < 1:
        raise ValueError(f"`rtol` must be a number from 0 (exact) to 1; got {rtol!r}.")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"`time_limit` must be a positive number of seconds or None; got {time_limit!r}.")
    return Effort(float(rtol), time_limit, None if memory is None else check_memory(memory), progress)


def transport_clouds(cloud_x: Cloud, cloud_y: Cloud, p: float, effort: Effort) -> Transport:
    """As :func:`wasserstein`, of clouds that were checked."""
    scaled_x, scaled_y, exponent = scaled_for_lengths(cloud_x, cloud_y)
    # In canonical order, so that weights are rounded alike whatever the order of the rows.
    (at_x, x), (at_y, y) = _support(scaled_x), _support(scaled_y)
    problem, unit = _in_units(x, y, p)
    found = _solve(x, y, problem, unit, effort)
    pairs = _Pairs(at_x[found.pairs.ix], at_y[found.pairs.iy], found.pairs.mass)
    length = pair_lengths(scaled_x.points, scaled_y.points, pairs.ix, pairs.iy)
    top = math.frexp(length.max())[1]
    unit_value = math.fsum(pairs.mass * np.ldexp(length, -top) ** p)
    certificate = Certificate(problem, (cloud_x, cloud_y), exponent + unit, found.find)
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


def _in_units(x: Cloud, y: Cloud, p: float) -> tuple[Problem, int]:
    """Points over a power of two, no two of which are then farther apart than 1, and that power."""
    low = np.minimum(x.points.min(axis=0), y.points.min(axis=0))
    high = np.maximum(x.points.max(axis=0), y.points.max(axis=0))
    unit = math.frexp(float((high - low).max()) * math.sqrt(x.dim))[1]
    a, b = _agreeing_masses(x, y)
    off = _moved_mass(x, a), _moved_mass(y, b)
    return Problem(np.ldexp(x.points, -unit), np.ldexp(y.points, -unit), a, b, p, off), unit


def _solve(x: Cloud, y: Cloud, problem: Problem, unit: int, effort: Effort) -> _Found:
    """A coupling of points of which all weigh something, by the method that is fastest."""
    if x.dim == 1 or 1 in (x.n, y.n):
        # On a line couplings by order are optimal; with a single point there is only one coupling.
        pairs = _match_in_order(problem.a, problem.b)
        return _Found(pairs, "sorting", lambda: line_potential(problem, pairs.ix, pairs.iy))
    if x.weights is None and y.weights is None and x.n == y.n:
        found: _Found = _match_evenly(x, y, problem, effort)
        return found
    ot, method = _solver()
    if not _is_for(method, problem, effort):
        return _auction(problem, effort)
    pairs, f = _couple_masses(x, y, problem, unit, ot, method)
    return _Found(pairs, method, lambda: transform(problem.flipped, -f))


def _is_for(method: str, problem: Problem, effort: Effort) -> bool:
    """Whether a problem is small enough for another solver than the auction."""
    pairs = len(problem.x) * len(problem.y)
    most = _MOST_PAIRS[method]
    if method == "network simplex" and problem.x.shape[1] <= _FEW_DIMENSIONS:
        most = _MOST_PAIRS_IN_FEW
    if effort.rtol > 0 or effort.time_limit is not None:
        most = _TINY_PAIRS
    return pairs <= most and (effort.memory is None or pairs * _PAIR_BYTES[method] <= effort.memory)


_match_evenly: Operation[_Found] = Operation("match_evenly")
"""match_evenly(x, y, problem, effort) -> _Found, for uniform clouds of one size."""


def _is_large(x: Cloud, y: Cloud, problem: Problem, effort: Effort) -> str | None:
    return "small problems are solved faster by others" if _is_for("assignment", problem, effort) else None


def _assignment_work(x: Cloud, y: Cloud, problem: Problem, effort: Effort) -> PlainWork:
    """What SciPy does until it pays to compile the auction, which takes ten times as long as other kernels."""
    may_wait = effort == _EXACT and _PAIR_BYTES["assignment"] * x.n**2 <= check_memory(_DEFAULT_MEMORY)
    return PlainWork(x.n**3 // _CUBES_A_NUMBER if may_wait else sys.maxsize, "float64")


@_match_evenly.implementation("numba", _is_large, plain_work=_assignment_work)
def _match_by_auction(x: Cloud, y: Cloud, problem: Problem, effort: Effort) -> _Found:
    return _auction(problem, effort)


@_match_evenly.implementation("reference", lambda *_: None)
def _match_by_assignment(x: Cloud, y: Cloud, problem: Problem, effort: Effort) -> _Found:
    return _Found(_assign(x, y, problem.p), "assignment", lambda: _auction(problem, _EXACT).find())


def _auction(problem: Problem, effort: Effort) -> _Found:
    from orthoslice.exact.auction import solve  # loads numba

    memory = check_memory(_DEFAULT_MEMORY) if effort.memory is None else effort.memory
    with stoppable(), progress_bar("levels", _LEVELS, effort.progress) as advance:
        solution = solve(problem, effort.limits(problem.p), memory, advance)
    ix, iy, mass = solution.placed
    pairs = _Pairs(ix, iy, mass / float(problem.a.sum()))
    return _Found(pairs, "auction", lambda: solution.g, solution.lower, solution.is_done)


def _support(cloud: Cloud) -> tuple[NDArray[np.intp], Cloud]:
    """The points that weigh something, in canonical order."""
    ready = in_canonical_order(cloud)
    assert ready.order is not None
    if ready.weights is None:
        return cast(HostArray, ready.order), ready
    at = np.flatnonzero(ready.weights)
    weights: HostArray = cast(HostArray, ready.weights)[at]
    return cast(HostArray, ready.order)[at], Cloud(
        ready.points[at], None if weights.min() == weights.max() else weights
    )


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


def _costs(x: Cloud, y: Cloud, p: float, unit: float | None) -> tuple[FloatArray, float]:
    """(|x - y| / unit)^p for all pairs, and the unit: the largest length where it is None."""
    from scipy.spatial.distance import cdist

    exponent = math.frexp(max(float(np.abs(c.points).max()) for c in (x, y)))[1]
    if unit is None or unit > math.ldexp(1.0, max(exponent - _WIDE, -1074)):
        cost: FloatArray = cdist(*(np.ldexp(c.points, -exponent) for c in (x, y)))
        np.ldexp(cost, exponent, out=cost)
    else:
        cost = np.zeros((x.n, y.n))
        for k in range(x.dim):
            np.hypot(cost, np.subtract.outer(x.points[:, k], y.points[:, k]), out=cost)
    unit = float(cost.max()) if unit is None else unit
    with np.errstate(over="ignore"):
        if unit > 0:
            np.divide(cost, unit, out=cost)
        return np.power(cost, p, out=cost), unit


def _root_cost(x: Cloud, y: Cloud, pairs: _Pairs, p: float) -> float:
    return power_mean(pair_lengths(x.points, y.points, pairs.ix, pairs.iy), pairs.mass, p)


def _assign(x: Cloud, y: Cloud, p: float) -> _Pairs:
    from scipy.optimize import linear_sum_assignment

    best, least, unit = None, math.inf, None
    while True:
        cost, unit = _costs(x, y, p, unit)
        ix, iy = linear_sum_assignment(np.minimum(cost, 1.0, out=cost))
        pairs = _Pairs(ix, iy, np.full(len(ix), 1 / len(ix)))
        length = _root_cost(x, y, pairs, p)
        best, least = (pairs, length) if length < least else (best, least)
        # No pair of an optimal coupling costs more than the whole coupling, so dearer pairs may be cut off.
        needed = 1.01 * least * len(ix) ** (1 / p)
        if best is not None and (least == 0 or p * math.log(unit / needed) < math.log(_ROOM)):
            return best
        unit = needed


def _solver() -> tuple[ModuleType | None, str]:
    try:
        import ot
    except ImportError:
        return None, "linear program"
    return ot, "network simplex"


def _couple_masses(
    x: Cloud, y: Cloud, problem: Problem, exponent: int, ot: ModuleType | None, method: str
) -> tuple[_Pairs, FloatArray]:
    """Weighted clouds or unequal sizes, by POT or HiGHS: pairs, and a potential of x in the problem's units."""
    p, a, b = problem.p, _exact_floats(problem.a), _exact_floats(problem.b)
    solve_masses = _highs if ot is None else partial(_network_simplex, ot)
    best, least, bound, unit, span, f = None, math.inf, -1.0, None, 0.0, np.zeros(x.n)
    while True:
        cost, unit = _costs(x, y, p, unit)
        span = max(span, unit)
        flow, potential = solve_masses(np.minimum(cost, 1.0), a, b)
        ix, iy = np.nonzero(flow)
        pairs = _Pairs(ix, iy, flow[ix, iy] / a.sum())
        _check_masses(method, pairs, a, b)
        length = _root_cost(x, y, pairs, p)
        best, least = (pairs, length) if length < least else (best, least)
        proved = unit * max(_dual_bound(cost, potential, a / a.sum(), b / b.sum()), 0.0) ** (1 / p)
        if proved > bound:
            bound, f = proved, potential * math.ldexp(unit, -exponent) ** p
        gap = 0.0 if least == 0 else 1 - min(bound / least, 1.0) ** p
        # Pairs that cost far more than the answer are hardly ever used, and the true costs decide whether the
        # coupling is better without.
        needed = least * _ROOM ** (1 / p)
        if gap <= _SMALL_GAP or p * math.log(unit / needed) < math.log(10):
            break
        unit = needed
    # Rounding moved a mass of `moved`, each part by at most `span`: moved * span**p of the answer is open.
    moved, part = _moved_mass(x, a) + _moved_mass(y, b), (least / span) ** p if span else 0.0
    if best is None or (gap > _LARGEST_GAP and gap * part > moved):
        low, high = max(part * (1 - gap) - moved, 0.0), part + moved
        raise RuntimeError(
            f"The {method} stopped short: `distance` lies between {span * low ** (1 / p):.9g} and "
            f"{span * high ** (1 / p):.9g}, and no more is certain. A smaller `p` is easier; so are uniform "
            "clouds of equal size."
        )
    return best, f


def _agreeing_masses(x: Cloud, y: Cloud) -> tuple[IntArray, IntArray]:
    """Masses of both clouds as integers with the same sum; the same ones where the laws are the same.

    Sums of weights are rounded. Where both clouds have the same mass at every place but for rounding, the
    distance is 0, and the mass that rounding left over must not travel.
    """
    counts_x, counts_y = _counts(x), _counts(y)
    if counts_x is not None and counts_y is not None:
        total = math.lcm(int(counts_x.sum()), int(counts_y.sum()))
        return counts_x * (total // counts_x.sum()), counts_y * (total // counts_y.sum())
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
    total = 1
    for weight in np.unique(cloud.weights).tolist():
        total = math.lcm(total, Fraction(weight).limit_denominator(_LARGEST_COUNT).denominator)
        if total > _LARGEST_COUNT:
            return None
    counts = np.rint(total * cloud.weights)
    is_close = np.abs(total * cloud.weights - counts) <= 4 * np.finfo(np.float64).eps * counts
    return counts.astype(np.int64) if is_close.all() and counts.sum() == total else None


def _moved_mass(cloud: Cloud, mass: FloatArray | IntArray) -> float:
    """How much mass was moved, at most, to round weights to whole numbers."""
    if cloud.weights is None:
        return 0.0
    return float(np.abs(mass / mass.sum() - cloud.weights).sum()) + cloud.n * np.finfo(np.float64).eps


def _dual_bound(cost: FloatArray, potential: FloatArray, a: FloatArray, b: FloatArray) -> float:
    """A lower bound on the cost of any coupling: the dual value of a potential of x and its best partner."""
    potential = potential - np.median(potential)
    partner = (cost - potential[:, None]).min(axis=0)
    # Terms of both signs cancel, so a bound on the rounding error is subtracted.
    rounding = len(a) * np.finfo(np.float64).eps * (a @ np.abs(potential) + b @ np.abs(partner))
    return float(a @ potential + b @ partner - rounding)


def _check_masses(method: str, pairs: _Pairs, a: FloatArray, b: FloatArray) -> None:
    """Raise unless the pairs move the mass of every point."""
    for index, mass in ((pairs.ix, a), (pairs.iy, b)):
        off = float(np.abs(np.bincount(index, pairs.mass, len(mass)) - mass / mass.sum()).max())
        if not off <= 1e-9 / len(mass):
            raise RuntimeError(f"The {method} moved the wrong mass: it is off by {off:.2g} at a point.")


def _exact_floats(mass: IntArray) -> FloatArray:
    """Masses as whole floats that add up without rounding."""
    total = sum(mass.tolist())
    if total < 2**53:
        return mass.astype(np.float64)
    # The total is 2**62. Sums are rounded, not masses, so that no sum is off by more than one.
    sums = np.cumsum(mass) >> (total.bit_length() - 1 - _MASS_BITS)
    whole: FloatArray = np.diff(sums, prepend=0).astype(np.float64)
    return whole


def _network_simplex(
    ot: ModuleType, cost: FloatArray, a: FloatArray, b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Flow and potential of x, by POT; the number of pivots is not bounded, so that it runs to the end."""
    # Shuffled: points in order of a coordinate took 1.8 times as long (one problem of 1,000 weighted points).
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(len(a)), rng.permutation(len(b))
    table = np.ix_(rows, columns)
    found, log = ot.emd(a[rows], b[columns], cost[table], numItermax=2**60, log=True, center_dual=False)
    if log["warning"] is not None:
        raise RuntimeError(f"POT's network simplex failed: {log['warning']}")
    flow, potential = np.empty_like(found), np.empty_like(log["u"])
    flow[table], potential[rows] = found, log["u"]
    return flow, potential


def _highs(cost: FloatArray, a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Flow and potential of x, by SciPy's dual simplex."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    n, m = cost.shape
    rows, columns = kron(eye_array(n), np.ones((1, m))), kron(np.ones((1, n)), eye_array(m))
    # Tolerances of HiGHS are absolute, so masses are given a mean of about 1. One equation follows from the
    # others.
    unit = a.sum() / max(n, m)
    equations, masses = vstack([rows, columns]).tocsc()[:-1], np.concatenate([a, b])[:-1] / unit
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    answer = linprog(cost.ravel(), A_eq=equations, b_eq=masses, method="highs-ds", options=tight)
    if answer.status != 0:
        raise RuntimeError(f"SciPy's linear program failed: {answer.message}")
    flow = np.where(answer.x > 1e-10, answer.x, 0.0).reshape(n, m) * unit
    return flow, answer.eqlin.marginals[:n]
