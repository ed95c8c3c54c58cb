"""Means and covariances of clouds, and what the mean direction costs between Gaussians that have them."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import Array, HostArray, erf, library, namespace
from orthoslice.clouds.cloud import Cloud, DistantCloud
from orthoslice.directions.spheres import mean_power

# Coordinates that are widened and multiplied at a time: a cloud is never copied.
_PIECE_ITEMS = 1 << 18

# Directions that are drawn at a time for the mean over all of them.
_PIECE_ROWS = 1 << 12

# In these dimensions it would take longer to draw directions than to use them: they are drawn only once.
_KEPT_DIMS = range(8, 129)

# Nodes of the quadrature over the normal distribution, for powers without a closed form.
_NODES = 32

# Features may depend on each other, in two dimensions say: this keeps their equations solvable.
_RIDGE = 1e-11

# P(|Z| > _CERTAIN) is far below 2**-53: from |a| > _CERTAIN |b| on, E|a + b Z| is |a| in float64.
_CERTAIN = 30.0


class Moments(NamedTuple):
    """How far apart the means of two clouds are, `(..., dim)`, and their covariances, `(..., dim, dim)`."""

    gap: Array
    x: Array
    y: Array


def moments_of(x: Cloud, y: Cloud) -> Moments:
    """The first two moments of both clouds, in their type: a control variate needs no exact moments."""
    (mean_x, cov_x), (mean_y, cov_y) = (_mean_and_covariance(c) for c in (x, y))
    return Moments(mean_x - mean_y, cov_x, cov_y)


def _mean_and_covariance(cloud: Cloud) -> tuple[Array, Array]:
    if isinstance(cloud, DistantCloud):
        assert cloud.seen is not None
        assert cloud.seen.covariance is not None
        return cloud.seen.mean.astype(cloud.dtype), cloud.seen.covariance.astype(cloud.dtype)
    xp, points = namespace(cloud.points), cloud.points
    step = cloud.n
    if library(points) == "numpy":
        step = max(1, _PIECE_ITEMS * cloud.n // points.size)
    # Sums of squares about a point of the cloud, not about a distant origin, keep their digits.
    origin = xp.asarray(points[..., :1, :])
    total: Any = 0.0
    square: Any = 0.0
    for first in range(0, cloud.n, step):
        rows = slice(first, first + step)
        part = xp.asarray(points[..., rows, :]) - origin
        if cloud.weights is None:
            total = total + xp.sum(part, axis=-2) / cloud.n
        else:
            share = xp.sqrt(xp.astype(cloud.weights[..., rows], part.dtype))[..., None]
            part = share * part
            total = total + xp.sum(share * part, axis=-2)
        # A matrix with its own transpose: BLAS does half of the work then.
        square = square + xp.matmul(xp.matrix_transpose(part), part)
    if cloud.weights is None:
        square = square / cloud.n
    return origin[..., 0, :] + total, square - total[..., :, None] * total[..., None, :]


def gaussian_cost(a: Array, u: Array, v: Array, p: float) -> Array:
    """W_p^p of two normal distributions on a line: means `a` apart, variances `u` and `v`.

    The coupling by order is linear, so the cost is E|a + b Z|^p with b the difference of the deviations and Z
    standard normal. In closed form for p = 1 and p = 2. Other powers are the mean over 32 fixed nodes: a
    control variate does not need this cost to the last digit, only the same function everywhere.
    """
    xp = namespace(a)
    b = xp.sqrt(u) - xp.sqrt(v)
    if p == 2:
        return a * a + b * b
    if p == 1:
        size, spread = xp.abs(a), xp.abs(b)
        divisor = xp.maximum(spread, size / _CERTAIN)
        ratio = size / xp.where(divisor > 0, divisor, xp.ones_like(divisor))
        tail = math.sqrt(2 / math.pi) * spread * xp.exp(-0.5 * ratio * ratio)
        return tail + size * erf(math.sqrt(0.5) * ratio)
    total = xp.zeros_like(a)
    for node, weight in zip(*_normal_nodes(), strict=True):
        total = total + weight * xp.abs(a + node * b) ** p
    return total


@functools.cache
def _normal_nodes() -> tuple[list[float], list[float]]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return nodes.tolist(), (weights / weights.sum()).tolist()


def mean_gaussian_cost(
    gap: HostArray, cov_x: HostArray, cov_y: HostArray, high: HostArray, low: HostArray, p: float, rows: int
) -> HostArray:
    """The mean of :func:`gaussian_cost` over all directions and the variance of that number, `(..., 2)`.

    From `rows` independent directions for the key `high, low`. Their mean would be too uncertain as it is. But
    the cost is nearly a polynomial of three quadratic forms of the direction (the squared gap of the means,
    both variances), and the means over the sphere of their products are known. So only the difference from such
    a polynomial is averaged; it is fitted on one half of the directions for use on the other, and vice versa.
    """
    batch = np.broadcast_shapes(gap.shape[:-1], cov_x.shape[:-2], cov_y.shape[:-2])
    answer = np.empty((*batch, 2))
    dim = gap.shape[-1]
    words = [int(word[0]) & 0xFFFFFFFF for word in (high, low)]
    rng = np.random.Generator(np.random.Philox(key=words[0] << 32 | words[1]))
    theta, rotation = _some_directions(rng, rows, dim)
    for place in np.ndindex(*batch):
        delta = np.broadcast_to(gap, (*batch, dim))[place].astype(np.float64)
        forms = [np.broadcast_to(c, (*batch, dim, dim))[place].astype(np.float64) for c in (cov_x, cov_y)]
        unit = (sum(float(np.trace(c)) for c in forms) + float(delta @ delta)) / dim
        if not unit > 0:
            # Equal points, or input that is not sound.
            answer[place] = 0.0 * unit
            continue
        delta, forms = delta / math.sqrt(unit), [c / unit for c in forms]
        mean, variance = _controlled_mean(delta, forms[0], forms[1], theta, rotation, p)
        answer[place] = mean * unit ** (p / 2), variance * unit**p
    return answer


def _some_directions(rng: np.random.Generator, rows: int, dim: int) -> tuple[list[HostArray], HostArray | None]:
    """Directions in pieces, each `(slices, dim)`, and what they are to be turned by, `(dim, dim)`, or None.

    Where it would take longer to draw them than to use them, they are drawn once and turned at random by one
    rotation for all, which makes every mean unbiased. The variance is computed as if all directions were drawn
    anew; given the fixed ones it differs, but hardly so from 8 dimensions on.
    """
    starts = range(0, rows, _PIECE_ROWS)
    if dim not in _KEPT_DIMS:
        return [_unit(rng.standard_normal((min(_PIECE_ROWS, rows - k), dim))) for k in starts], None
    q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
    # QR alone is not Haar: LAPACK's sign convention biases the columns.
    rotation: HostArray = q * np.sign(np.diagonal(r))
    return [_fixed_directions(dim, k)[: rows - k] for k in starts], rotation


def _unit(rows: HostArray) -> HostArray:
    unit: HostArray = rows / np.sqrt(np.vecdot(rows, rows))[:, None]
    return unit


@functools.lru_cache(maxsize=8)
def _fixed_directions(dim: int, first: int) -> HostArray:
    rows = _unit(np.random.default_rng([dim, first]).standard_normal((_PIECE_ROWS, dim)))
    rows.flags.writeable = False
    return rows


def _controlled_mean(
    delta: HostArray,
    cov_x: HostArray,
    cov_y: HostArray,
    theta: list[HostArray],
    rotation: HostArray | None,
    p: float,
) -> tuple[float, float]:
    turned, form_x, form_y = delta, cov_x, cov_y
    if rotation is not None:
        # Rotating the clouds has the effect of rotating the directions.
        turned, form_x, form_y = rotation @ delta, *(rotation @ c @ rotation.T for c in (cov_x, cov_y))
    pieces = [_on_directions(turned, form_x, form_y, part) for part in theta]
    a, u, v = pieces[0] if len(pieces) == 1 else (np.concatenate(part) for part in zip(*pieces, strict=True))
    costs = cast(HostArray, gaussian_cost(a, u, v, p))
    away = _features(a, u, v, p) - _feature_means(delta, cov_x, cov_y, p)
    half = len(costs) // 2
    means, variances = [], []
    for fit, use in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        left = costs[use] - away[use] @ _slopes(away[fit], costs[fit])
        mean, n = float(left.sum()) / len(left), len(left)
        means.append(mean)
        # Where `left` is constant, rounding may make its variance negative.
        variances.append(max(float(left @ left) / n - mean * mean, 0.0) / n)
    return sum(means) / 2, sum(variances) / 4


def _slopes(features: HostArray, costs: HostArray) -> HostArray:
    """Least squares with an intercept. Any slopes leave the mean unbiased, so a small ridge does no harm."""
    n, total = len(costs), features.sum(axis=0)
    gram = features.T @ features - total[:, None] * (total / n)
    moment = features.T @ costs - total * (costs.sum() / n)
    size = np.sqrt(np.maximum(gram.diagonal(), np.finfo(np.float64).tiny))
    gram /= size[:, None] * size
    gram.flat[:: len(size) + 1] += _RIDGE
    slopes: HostArray = np.linalg.solve(gram, moment / size) / size
    return slopes


def _on_directions(
    delta: HostArray, cov_x: HostArray, cov_y: HostArray, theta: HostArray
) -> tuple[HostArray, HostArray, HostArray]:
    """Gaps of the means and variances of both clouds on rows `theta`, each `(slices,)`."""
    u, v = (np.maximum(np.vecdot(theta @ c, theta), 0.0) for c in (cov_x, cov_y))
    return theta @ delta, u, v


def _features(a: HostArray, u: HostArray, v: HostArray, p: float) -> HostArray:
    """Functions of a direction like the cost, whose means are known, `(slices, features)`."""
    forms = (a * a, u, v)
    columns = [*forms, *(forms[i] * forms[j] for i in range(3) for j in range(i, 3))]
    if p != 2:
        power = np.abs(a) ** p
        columns += [power, power * u, power * v]
    return np.stack(columns, axis=1)


def _feature_means(delta: HostArray, cov_x: HostArray, cov_y: HostArray, p: float) -> HostArray:
    """Their means over the sphere, `(features,)`.

    E theta'A theta = tr A / d, and for a product of two forms (tr A tr B + 2 tr AB) / (d (d + 2)). A power of a
    coordinate with a form: split the direction into its part along the mean gap and the rest, which is uniform.
    """
    dim, squared = len(delta), float(delta @ delta)
    forms = (np.outer(delta, delta), cov_x, cov_y)
    traces = [float(np.trace(c)) for c in forms]
    means = [t / dim for t in traces]
    for i in range(3):
        for j in range(i, 3):
            both = traces[i] * traces[j] + 2 * float((forms[i] * forms[j]).sum())
            means.append(both / (dim * (dim + 2)))
    if p != 2:
        low, high = mean_power(dim, p), mean_power(dim, p + 2)
        means.append(low * squared ** (p / 2))
        for c, trace in zip((cov_x, cov_y), traces[1:], strict=True):
            along = float(delta @ c @ delta) / squared if squared > 0 else 0.0
            across = (trace - along) / max(dim - 1, 1)
            means.append(squared ** (p / 2) * (along * high + across * (low - high)))
    return np.array(means)
