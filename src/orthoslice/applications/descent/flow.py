"""Moving a cloud onto another."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from orthoslice.applications.descent.descent import Descent, DescentOptions, move
from orthoslice.applications.descent.step_size import Callback
from orthoslice.backend.arrays import RNG, is_traced, resolve_rng
from orthoslice.check.names import answers_other_names
from orthoslice.clouds.cloud import single_clouds


@answers_other_names
def flow(
    x: Any,
    y: Any,
    *,
    method: Literal["sliced", "projected"] = "sliced",
    p: float = 2,
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    fresh: bool = True,
    n_steps: int = 300,
    rtol: float = 0.01,
    rng: RNG = None,
    callback: Callback | None = None,
    memory: int | str = "256MB",
    workers: int | None = None,
    progress: bool = False,
) -> Descent:
    """Move a cloud onto another, step by step: row k of the answer is where ``x[k]`` went.

    Every step draws directions and moves the points so that all their projections land on those of y (slice
    matching, with momentum); there is no learning rate. For color transfer, for turning noise into data, for
    morphing one shape into another.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`, as in :func:`sliced_wasserstein`; sizes may differ.
    method
        ``"sliced"`` descends SW_2^2. ``"projected"`` descends PW_2^2, which ends on y only from a start whose
        couplings agree, such as a shifted y; from elsewhere it draws the cloud together.
    p
        2; steps have a known length for no other power.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.
    fresh
        Whether every step draws directions of its own. If not, the sliced objective never rises, but the points
        fit those directions only.
    rtol
        Stop when the points are this near to where they would end, in units of the spread of y.
    directions, n_directions, n_steps, rng, callback, memory, workers, progress
        As in :func:`barycenter`.

    Returns
    -------
    Descent
        `points`, the `history` of the objective, whether it `converged`, and how to repeat it.

    Notes
    -----
    On a line it is the monotone map, which is the optimal one: points do not cross. In up to three dimensions
    or so points come to lie on those of y themselves. In high dimension
    projections agree long before the clouds do: see "Barycenters and flows" in the docs for figures.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(300, 2)), rng.random((300, 2)) + 5
    >>> moved = osl.flow(x, y, rng=0)
    >>> moved.converged, moved.points.shape
    (True, (300, 2))
    >>> bool(osl.wasserstein(moved.points, y).distance < 0.01 * osl.wasserstein(x, y).distance)
    True
    """
    cloud_x, cloud_y = single_clouds(x, y, x_weights, y_weights)
    if is_traced(cloud_x.points, cloud_y.points, cloud_x.weights, cloud_y.weights):
        raise TypeError("`flow` needs values and cannot be traced (jit, grad or vmap). Call it outside.")
    _, seed = resolve_rng(rng, np.zeros(1))
    assert seed is not None
    options = DescentOptions(
        method, p, directions, n_directions, fresh, n_steps, rtol, callback, memory, workers, progress
    )
    return move("Flow", cloud_x, [cloud_y], [1.0], seed, options)
