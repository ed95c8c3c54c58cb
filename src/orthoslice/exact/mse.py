"""Exact mean squared errors of the estimators in the plane."""

from __future__ import annotations

from typing import Any, Literal

from orthoslice.check.names import answers_other_names
from orthoslice.directions.auto import Method
from orthoslice.directions.base import check_count
from orthoslice.exact._inputs import check_plane, unshrink
from orthoslice.exact.angular import shrunken_score


@answers_other_names
def estimator_mse_plane(
    x: Any,
    y: Any,
    p: float,
    *,
    method: Method = "sliced",
    directions: Literal["iid", "orthogonal"] = "iid",
    n_directions: int,
    x_weights: Any = None,
    y_weights: Any = None,
) -> float:
    """Exact mean squared error of an estimator of SW_p^p or PW_p^p in the plane.

    The estimator is the mean score of `n_directions` directions and is unbiased, so that its error is
    its variance. Independent directions: Var f / N. Orthogonal ones come in
    independent pairs (Haar on O(2)), whose two scores f(phi) and f(phi + pi/2) have a covariance; an
    odd number leaves one direction alone in the last block. Both integrals are closed forms on the
    pieces of :func:`angular_score`: the paper's figure 1 is computed with this, not simulated.

    Parameters
    ----------
    x, y
        Clouds `(n, 2)` and `(m, 2)` of any supported library.
    p
        The power, 1 or 2.
    method
        Whether SW, ``"sliced"``, or PW, ``"projected"``, is estimated.
    directions
        How directions are drawn: ``"iid"`` or ``"orthogonal"``.
    n_directions
        How many, at least 1.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.

    Returns
    -------
    float
        Expected square of the error of the estimated p-th power of the distance.

    Notes
    -----
    Past 2**22 critical angles (two clouds of 2,048 points) a ValueError is raised. Time
    O((n^2 + m^2) log(n + m)), memory about 0.3 kB a critical angle.

    Examples
    --------
    Two points a side, where orthogonal directions are twelve times better (first row of the paper's table):

    >>> x, y = [[1, 1], [0, 0]], [[0, -0.5], [1, -1]]
    >>> round(estimator_mse_plane(x, y, 1, directions="iid", n_directions=2), 6)
    0.073996
    >>> round(estimator_mse_plane(x, y, 1, directions="orthogonal", n_directions=2), 6)
    0.006047
    """
    if directions not in ("iid", "orthogonal"):
        raise ValueError(f'`directions` must be "iid" or "orthogonal"; got {directions!r}.')
    check_count("n_directions", n_directions)
    problem = check_plane("estimator_mse_plane", x, y, p, x_weights, y_weights)
    function = shrunken_score(problem, method)
    error = function.variance() / n_directions
    if directions == "orthogonal":
        n_pairs = n_directions // 2
        error += 2 * n_pairs * function.quarter_turn_covariance() / n_directions**2
    # Rounding may leave a hair below zero where the errors of a pair cancel.
    return unshrink(max(error, 0.0), problem.exponent, 2 * problem.p)
