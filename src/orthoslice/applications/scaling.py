"""Clouds in common units: every feature standardised, or all of them whitened, by all points together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

from orthoslice.backend.arrays import Array, detach, namespace, wide_float
from orthoslice.check.frames import column_names, is_frame, like_frame
from orthoslice.check.many_clouds import agreeing_clouds, named_clouds

METHODS = ("standard", "whiten")

# Numbers that are widened at a time.
_PIECE_ITEMS = 1 << 22

# A feature is constant if half its range is at most _ROUNDINGS eps times its largest magnitude.
_ROUNDINGS = 16


class Scaling(NamedTuple):
    """New units for points: `(points - centre) * factors`, then times `mixing` if there is one."""

    centre: Array
    """The mean of every feature, `(dim,)`."""
    factors: Array
    """One over its standard deviation, `(dim,)`; 0 where it is constant."""
    mixing: Array | None
    """What takes correlations away, `(dim, dim)`: symmetric, so that new features resemble the old ones."""

    def apply(self, points: Array) -> Array:
        """Points `(n, dim)` in the new units, in their own floating type."""
        xp, dtype = namespace(points), points.dtype
        parts = []
        for piece in _widened_pieces(points):
            moved = (piece - self.centre) * self.factors
            parts.append(xp.astype(moved if self.mixing is None else moved @ self.mixing, dtype))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def scaled(clouds: Any, method: Literal["standard", "whiten"] = "standard") -> Any:
    """Put clouds in common units, so that no feature counts more because of the units it came in.

    Distances add up features as they are: where income is in dollars and age in years, they are about income.
    Mean and spread are those of all points of all clouds together. Nothing in them depends on which cloud a
    point is in, so :func:`two_sample_test` keeps its exact level on what comes out.

    Parameters
    ----------
    clouds
        Clouds `(n, dim)`, such as ``[x, y]``, or many of them as in :func:`pairwise`: a sequence, a mapping
        from names, or pairs ``(name, cloud)``. Arrays of one library or data frames, whose columns are matched
        by name.
    method
        - ``"standard"``: every feature has mean 0 and standard deviation 1 over all points. What is constant,
          up to 16 roundings, becomes 0.
        - ``"whiten"``: besides, features are uncorrelated. The mixture is the one that keeps every new feature
          as close to the old one as can be (ZCA of the correlations), and does not depend on units.
          Combinations of features that are constant, up to rounding, become 0. It takes more points than
          features: a few times as many, or noise becomes as large as what matters. With no more points than
          features all points would be equally far apart, which is refused.

    Returns
    -------
    list or dict
        The clouds, in their order: a list, or a dict by name where there are names. Data frames come back as
        frames, with the columns in the order of the first one.

    Notes
    -----
    Standard deviations divide by the number of points, and every point counts once, also where you will pass
    weights. Units are constants: gradients go through the points, not through mean and spread.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 2)) * [1, 1000]
    >>> y = rng.normal(size=(200, 2)) * [1, 1000] + [1, 0]
    >>> bool(osl.two_sample_test(x, y, rng=0).pvalue > 0.05)
    True
    >>> x, y = osl.scaled([x, y])
    >>> np.concatenate([x, y]).std(axis=0).round(12)
    array([1., 1.])
    >>> osl.two_sample_test(x, y, rng=0).pvalue
    0.001
    """
    check_scale("method", method)
    named, has_names = named_clouds(clouds)
    if not named:
        raise ValueError("`clouds` must hold one or more clouds; got none.")
    points = [cloud.points for cloud in agreeing_clouds(named)]
    scaling = fit_scaling(points, method)
    given = list(named.values())
    found = [_like(scaling.apply(p), one, given[0]) for p, one in zip(points, given, strict=True)]
    return dict(zip(named, found, strict=True)) if has_names else found


def check_scale(name: str, method: object) -> None:
    """Raise unless `method` is a way to scale."""
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"`{name}` must be 'standard' or 'whiten'; got {method!r}.")


def fit_scaling(clouds: Sequence[Array], method: str) -> Scaling:
    """Units in which the points `(n, dim)` of all clouds together are standardised or whitened."""
    xp, like = namespace(clouds[0]), clouds[0]
    wide, dim = wide_float(like), like.shape[1]
    clouds = [detach(cloud) for cloud in clouds]
    n = sum(int(cloud.shape[0]) for cloud in clouds)
    if method == "whiten" and n <= dim + 1:
        raise ValueError(
            f"`whiten` takes more points than features; got {n} points with {dim} features, all of which would "
            "come out equally far apart. Use 'standard', or fewer features, such as principal components."
        )
    # The range comes first: divided by it, squares neither overflow nor underflow.
    low, high = (_reduce([xp.astype(f(c, axis=0), wide) for c in clouds], g) for f, g in _extremes(xp))
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    eps = float(xp.finfo(like.dtype).eps)
    constant = half <= _ROUNDINGS * eps * xp.maximum(xp.abs(low), xp.abs(high))
    one = xp.ones_like(half)
    unit = xp.where(constant, one, half)
    mean = _pooled(clouds, n, lambda piece: xp.sum((piece - middle) / unit, axis=0))

    def deviations(piece: Array) -> Array:
        return (piece - middle) / unit - mean

    if method == "standard":
        variance, mixing = _pooled(clouds, n, lambda piece: xp.sum(deviations(piece) ** 2, axis=0)), None
        spread = xp.where(constant, one, xp.sqrt(variance))
    else:
        covariance = _pooled(clouds, n, lambda piece: deviations(piece).T @ deviations(piece))
        spread = xp.where(constant, one, xp.sqrt(xp.linalg.diagonal(covariance)))
        still, zero = constant[:, None] | constant[None, :], xp.zeros_like(covariance)
        correlation = xp.where(still, zero, covariance / (spread[:, None] * spread[None, :]))
        mixing = xp.where(still, zero, _inverse_root(correlation, eps))
    factors = xp.where(constant, xp.zeros_like(one), 1 / (unit * spread))
    return Scaling(middle + unit * mean, factors, mixing)


def _inverse_root(correlation: Array, eps: float) -> Array:
    """The symmetric matrix whose square inverts the correlations, where they can be inverted."""
    xp, dim = namespace(correlation), correlation.shape[0]
    values, vectors = xp.linalg.eigh(correlation)
    # Where features depend on others, an eigenvalue is 0 up to the rounding of the data or of eigenvalues.
    rounding = max(_ROUNDINGS * dim * float(xp.finfo(correlation.dtype).eps), (_ROUNDINGS * eps) ** 2 * dim)
    kept = values > rounding * xp.max(values)
    roots = xp.where(kept, 1 / xp.sqrt(xp.where(kept, values, xp.ones_like(values))), xp.zeros_like(values))
    return cast(Array, (vectors * roots) @ vectors.T)


def _extremes(xp: Any) -> tuple[tuple[Any, Any], ...]:
    return (xp.min, xp.minimum), (xp.max, xp.maximum)


def _reduce(parts: list[Array], join: Callable[[Array, Array], Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = join(total, part)
    return total


def _pooled(clouds: Sequence[Array], n: int, summed: Callable[[Array], Array]) -> Array:
    """The mean over the n points of all clouds; `summed` sums over the rows of a piece."""
    parts = (summed(piece) for cloud in clouds for piece in _widened_pieces(cloud))
    total = next(parts)
    for part in parts:
        total = total + part
    return total / n


def _widened_pieces(points: Array) -> Iterator[Array]:
    """All points, a few at a time, in the widest floating type of their library."""
    xp, wide = namespace(points), wide_float(points)
    step = max(1, _PIECE_ITEMS // points.shape[1])
    for first in range(0, points.shape[0], step):
        last = min(first + step, points.shape[0])
        yield xp.astype(points[first:last, :], wide, copy=False)


def _like(points: Array, given: object, first: object) -> Any:
    """Scaled points as the caller's type: a data frame again if one was passed."""
    if not is_frame(given):
        return points
    columns = column_names("clouds", first if is_frame(first) else given)
    assert columns is not None
    return like_frame(points, given, columns)
