"""The exact Wasserstein distance of two clouds, and a coupling that attains it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_p
from orthoslice.clouds.cloud import Cloud, host_clouds
from orthoslice.clouds.lengths import fit_lengths, pair_lengths, power_mean
from orthoslice.clouds.masses import integer_masses
from orthoslice.clouds.ready import in_canonical_order
from orthoslice.couplings.coupling import Coupling
from orthoslice.exact._inputs import FloatArray, IntArray

# The most pairs n * m of each method, by its memory at the peak (measured): 8 bytes a pair for the cost matrix
# alone, 41 in POT's network simplex, 1.3 kB in HiGHS. That is 1.1, 1.4 and 0.7 GB.
MAX_PAIRS = {"assignment": 2**27, "network simplex": 2**25, "linear program": 2**19}

# Sums of whole numbers up to 2**53 are exact in float64, so solvers that add and subtract masses never round.
_MASS_BITS = 50
# Weights that are shares of a number up to this one are taken as such; lcm of two such sums fits a float.
_LARGEST_COUNT = 2**24
# Sums of a few thousand weights that are equal differ by less, relatively.
_SUM_ROUNDING = 2.0**-45
# Relative gap to the optimum: up to _SMALL_GAP there is no other try, above _LARGEST_GAP an error.
_SMALL_GAP, _LARGEST_GAP = 1e-9, 1e-6
# Costs given to solvers are cut off at about _ROOM times the answer: larger ones would round it away.
_ROOM = 1e4
# With units below 2**-_WIDE times the largest coordinate, lengths are not squared: squares could underflow.
_WIDE = 400


@dataclass(frozen=True, eq=False, kw_only=True)
class Transport:
    """An exact Wasserstein distance and the coupling that attains it.

    Attributes
    ----------
    value, distance : float
        W_p^p and W_p.
    p : float
        The power.
    coupling : Coupling
        An optimal coupling, in NumPy arrays; there may be others.
    method : str
        How it was found: "sorting", "assignment", "network simplex" or "linear program".
    """

    p: float
    coupling: Coupling
    method: str
    unit_value: float
    exponent: int
    """`value` is ``unit_value * 2**(p * exponent)``, which may overflow where `distance` does not."""

    @property
    def value(self) -> float:
        power = self.p * self.exponent
        whole = math.floor(power)
        try:
            return math.ldexp(self.unit_value * 2.0 ** (power - whole), whole)
        except OverflowError:
            raise OverflowError(
                "The p-th power of this distance exceeds the range of float64. "
                "Read `distance`, which does not, or pass smaller units."
            ) from None

    @property
    def distance(self) -> float:
        try:
            return math.ldexp(self.unit_value ** (1 / self.p), self.exponent)
        except OverflowError:
            raise OverflowError("This distance exceeds the range of float64. Pass smaller units.") from None

    def __repr__(self) -> str:
        return f"Transport(W_{self.p:g} = {self.distance:.6g} by {self.method})"


class _Plan(NamedTuple):
    """Which points are matched, with which mass."""

    ix: NDArray[np.intp]
    iy: NDArray[np.intp]
    mass: FloatArray


@answers_other_names
def wasserstein(x: Any, y: Any, p: float = 2, *, x_weights: Any = None, y_weights: Any = None) -> Transport:
    """The exact Wasserstein distance W_p of two clouds, and a coupling that attains it.

    W_p^p is the least cost ``sum mass * |x - y|^p`` of any coupling (equation 4 of the paper, which prints max
    for min). It needs all n * m costs and about cubic time, so it is for clouds up to some thousand points.
    Beyond, :func:`orthoslice.wasserstein_bounds` encloses it and :func:`orthoslice.sliced_wasserstein`
    estimates a distance of its own that never exceeds it.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)` of any supported library. The work is done in float64 on the host.
    p
        The power, at least 1.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.

    Returns
    -------
    Transport
        `value` (W_p^p) and `distance` (W_p) as floats, `coupling`, and the `method` that was used.

    Raises
    ------
    ValueError
        Where n * m is above 2**27 (11,585 points a side) for uniform clouds of equal size, or 2**25 (5,793)
        otherwise: the costs would take more than about a gigabyte.

    Notes
    -----
    In one dimension, or against a single point, no more than a sort is needed, and there is no limit. Uniform
    clouds of equal size are an assignment problem (SciPy). Weights and unequal sizes go to POT's network
    simplex (``pip install "orthoslice[exact]"``), or without POT to SciPy's HiGHS, which is far slower and
    stops at 2**19 pairs. For these two, weights are whole numbers: counts where they are shares of a total up
    to 2**24 (to rounding), else multiples of 2**-50, which can change `value` by ``(n + m) * 2**-50`` times the
    largest cost ``|x - y|^p`` and matters only where it is smaller than that. Their answer is checked against
    the dual problem: beyond that change, `value` exceeds the optimum by at most 1e-9 of itself, or 1e-6 where
    costs span many scales, or an error is raised. In practice it is right to the last digits. Clouds that are
    the same law, but for how their weights were rounded, have distance 0. Solvers round by the largest cost
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
    """
    p = check_p(p)
    cloud_x, cloud_y = host_clouds("wasserstein", x, y, x_weights, y_weights)
    fit_x, fit_y, exponent = fit_lengths(cloud_x, cloud_y)
    plan, method = _solve(fit_x, fit_y, p)
    length = pair_lengths(fit_x.points, fit_y.points, plan.ix, plan.iy)
    top = math.frexp(length.max())[1]
    unit_value = math.fsum(plan.mass * np.ldexp(length, -top) ** p)
    coupling = Coupling(cloud_x.points, cloud_y.points, plan.ix, plan.iy, plan.mass)
    return Transport(p=p, coupling=coupling, method=method, unit_value=unit_value, exponent=exponent + top)


def _solve(x: Cloud, y: Cloud, p: float) -> tuple[_Plan, str]:
    """An optimal plan, by the cheapest method that finds one."""
    # In canonical order, so that weights are rounded alike whatever the order of the rows.
    (at_x, x), (at_y, y) = _support(x), _support(y)
    if x.dim == 1 or 1 in (x.n, y.n):
        # On a line couplings by order are optimal; with a single point there is only one coupling.
        plan, method = _match_in_order(*_agreeing_masses(x, y)), "sorting"
    elif x.weights is None and y.weights is None and x.n == y.n:
        plan, method = _assign(x, y, p), "assignment"
    else:
        plan, method = _couple_masses(x, y, p)
    return _Plan(at_x[plan.ix], at_y[plan.iy], plan.mass), method


def _support(cloud: Cloud) -> tuple[NDArray[np.intp], Cloud]:
    """The points that weigh something, in canonical order."""
    ready = in_canonical_order(cloud)
    assert ready.order is not None
    if ready.weights is None:
        return ready.order, ready
    at = np.flatnonzero(ready.weights)
    weights = ready.weights[at]
    return ready.order[at], Cloud(ready.points[at], None if weights.min() == weights.max() else weights)


def _match_in_order(a: IntArray, b: IntArray) -> _Plan:
    """The first mass of one cloud goes to the first of the other, and so on."""
    ends_x, ends_y = np.cumsum(a), np.cumsum(b)
    ends = np.union1d(ends_x, ends_y)
    mass = np.diff(ends, prepend=0) / ends[-1]
    return _Plan(np.searchsorted(ends_x, ends), np.searchsorted(ends_y, ends), mass)


def _check_size(x: Cloud, y: Cloud, method: str) -> None:
    limit = MAX_PAIRS[method]
    if x.n * y.n > limit:
        hint = ""
        if method == "linear program":
            hint = (
                f' With POT installed (pip install "orthoslice[exact]") it is {MAX_PAIRS["network simplex"]}.'
            )
        raise ValueError(
            f"`x` and `y` must have at most {limit} pairs of points, n * m, for an exact answer ({method}); "
            f"got {x.n} * {y.n} = {x.n * y.n}.{hint} Use `osl.wasserstein_bounds` for bounds, "
            "or `osl.sliced_wasserstein` for an estimate of another distance."
        )


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


def _root_cost(x: Cloud, y: Cloud, plan: _Plan, p: float) -> float:
    return power_mean(pair_lengths(x.points, y.points, plan.ix, plan.iy), plan.mass, p)


def _assign(x: Cloud, y: Cloud, p: float) -> _Plan:
    from scipy.optimize import linear_sum_assignment

    _check_size(x, y, "assignment")
    best, least, unit = None, math.inf, None
    while True:
        cost, unit = _costs(x, y, p, unit)
        ix, iy = linear_sum_assignment(np.minimum(cost, 1.0, out=cost))
        plan = _Plan(ix, iy, np.full(len(ix), 1 / len(ix)))
        length = _root_cost(x, y, plan, p)
        best, least = (plan, length) if length < least else (best, least)
        # No pair of an optimal plan costs more than the whole plan, so what does may be cut off.
        needed = 1.01 * least * len(ix) ** (1 / p)
        if best is not None and (least == 0 or p * math.log(unit / needed) < math.log(_ROOM)):
            return best
        unit = needed


def _couple_masses(x: Cloud, y: Cloud, p: float) -> tuple[_Plan, str]:
    """Weighted clouds or unequal sizes: network simplex where POT is installed, or HiGHS."""
    a, b = (_exact_floats(mass) for mass in _agreeing_masses(x, y))
    try:
        import ot
    except ImportError:
        method, solve = "linear program", _highs
    else:
        method, solve = "network simplex", partial(_network_simplex, ot)
    _check_size(x, y, method)
    best, least, bound, unit, span = None, math.inf, 0.0, None, 0.0
    while True:
        cost, unit = _costs(x, y, p, unit)
        span = max(span, unit)
        flow, potential = solve(np.minimum(cost, 1.0), a, b)
        ix, iy = np.nonzero(flow)
        plan = _Plan(ix, iy, flow[ix, iy] / a.sum())
        _check_masses(method, plan, a, b)
        length = _root_cost(x, y, plan, p)
        best, least = (plan, length) if length < least else (best, least)
        bound = max(bound, unit * max(_dual_bound(cost, potential, a / a.sum(), b / b.sum()), 0.0) ** (1 / p))
        gap = 0.0 if least == 0 else 1 - min(bound / least, 1.0) ** p
        # Pairs that cost far more than the answer are hardly ever used, and the true costs decide whether the
        # plan is better without.
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
    return best, method


def _agreeing_masses(x: Cloud, y: Cloud) -> tuple[IntArray, IntArray]:
    """Masses of both clouds as integers with the same sum; the same ones where the laws are the same.

    Sums of weights are rounded. Where both clouds have the same mass at every place but for rounding, the
    distance is 0, and the mass that rounding left over must not travel.
    """
    counts_x, counts_y = _counts(x), _counts(y)
    if counts_x is not None and counts_y is not None:
        total = math.lcm(int(counts_x.sum()), int(counts_y.sum()))
        return counts_x * (total // counts_x.sum()), counts_y * (total // counts_y.sum())
    a, b = integer_masses(x), integer_masses(y)
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


def _moved_mass(cloud: Cloud, mass: FloatArray) -> float:
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


def _check_masses(method: str, plan: _Plan, a: FloatArray, b: FloatArray) -> None:
    """Raise unless the plan moves the mass of every point."""
    for index, mass in ((plan.ix, a), (plan.iy, b)):
        off = float(np.abs(np.bincount(index, plan.mass, len(mass)) - mass / mass.sum()).max())
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
    flow, log = ot.emd(a, b, cost, numItermax=2**60, log=True, center_dual=False)
    if log["warning"] is not None:
        raise RuntimeError(f"POT's network simplex failed: {log['warning']}")
    return flow, log["u"]


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
