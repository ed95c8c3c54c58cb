"""W_p^p as a number that torch and JAX can differentiate, by points and by weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.array_types import FloatArray
from orthoslice.backend.arrays import Array, detach, device, is_traced, namespace, to_numpy
from orthoslice.backend.arrays.autodiff import Outcome, Wanted, differentiable
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_p
from orthoslice.clouds.cloud import single_clouds
from orthoslice.exact.transport import Transport, check_effort, wasserstein


class _Request(NamedTuple):
    p: float
    rtol: float


@answers_other_names
def wasserstein_value(
    x: Any, y: Any, p: float = 2, *, x_weights: Any = None, y_weights: Any = None, rtol: float = 0.0
) -> Array:
    """W_p^p of two clouds as a scalar of their library, with a gradient for torch and JAX.

    By the points the derivative is that of the optimal coupling's cost; by the weights it is the potentials
    less their mean, since weights sum to 1 (the envelope theorem). Where several couplings are optimal, it is
    one of several one-sided derivatives. Not for `jit`: the answer is found on the host.

    Parameters
    ----------
    x, y, p, x_weights, y_weights, rtol
        As in :func:`wasserstein`.

    Returns
    -------
    Array
        A scalar.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3)
    >>> value = wasserstein_value(x, y)
    >>> value.backward()
    >>> value.item(), x.grad[0].tolist()
    (3.0, [-1.0, -1.0, -1.0])
    """
    request = _Request(check_p(p), check_effort(rtol, None, None, False).rtol)
    cloud_x, cloud_y = single_clouds(x, y, x_weights, y_weights)
    inputs = cloud_x.points, cloud_y.points, cloud_x.weights, cloud_y.weights
    return differentiable(_compute, request, inputs, (), (2, 2, 1, 1), compilable=False)[0]


def _compute(request: _Request, inputs: tuple[Array | None, ...], _: Any, wanted: Wanted) -> Outcome:
    like: Any = inputs[0]
    if is_traced(*(a for a in inputs if a is not None)):
        raise TypeError(
            "`wasserstein_value` needs values and cannot be compiled (jit or vmap). Call it outside."
        )
    x, y, a, b = (None if array is None else to_numpy(detach(array)) for array in inputs)
    found = wasserstein(x, y, request.p, x_weights=a, y_weights=b, rtol=request.rtol)
    by_points = point_gradients(found) if any(wanted[:2]) else (None, None)
    by_weights: tuple[FloatArray | None, ...] = (None, None)
    if any(wanted[2:]):
        by_weights = tuple(_centred(f, w) for f, w in zip(found.potentials, (a, b), strict=True))
    xp = namespace(like)

    def given(array: Any) -> Array:
        return xp.asarray(array, dtype=like.dtype, device=device(like))

    gradients = (
        given(gradient) if is_wanted else None
        for gradient, is_wanted in zip((*by_points, *by_weights), wanted, strict=True)
    )
    return Outcome(given(np.asarray(found.value)), (), tuple(gradients))


def _centred(potential: FloatArray, weights: Any) -> FloatArray:
    """The derivative by weights that are divided by their sum."""
    mean = potential.mean() if weights is None else potential @ weights
    return np.asarray(potential - mean)


def point_gradients(found: Transport) -> tuple[FloatArray, FloatArray]:
    """The derivative of the cost of a coupling by the points of x and of y, `(n, dim)` and `(m, dim)`."""
    pairs = found.coupling
    difference = pairs.x[pairs.ix] - pairs.y[pairs.iy]
    length = np.linalg.norm(difference, axis=1)
    # Points that coincide do not move: 0 is a subgradient for p = 1, and the derivative for p > 1.
    power = np.zeros_like(length)
    np.power(length, found.p - 2, out=power, where=length > 0)
    pull = (found.p * pairs.mass * power)[:, None] * difference
    by_x, by_y = np.zeros_like(pairs.x), np.zeros_like(pairs.y)
    np.add.at(by_x, pairs.ix, pull)
    np.subtract.at(by_y, pairs.iy, pull)
    return by_x, by_y
