"""The coupling of the single best direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.applications.distances import projected_wasserstein
from orthoslice.backend.arrays import RNG, detach, device, namespace, to_numpy
from orthoslice.check.names import answers_other_names
from orthoslice.clouds.cloud import single_clouds
from orthoslice.couplings.coupling import Coupling, induced_coupling
from orthoslice.directions import Given


@answers_other_names
def cheapest_coupling(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
) -> Coupling:
    """The coupling by order of a single direction: of all that are drawn, the cheapest in full space.

    The plan of min-SWGG, or of POT's ``min_sliced_transport_plan``. It is monotone along one line,
    `coupling.direction`, so that it can be looked at. Its cost is an upper bound on W_p^p; :func:`match` merges
    the couplings of many directions, and is closer to the optimum.

    Parameters
    ----------
    x, y, p, x_weights, y_weights, directions, n_directions, rng, memory, workers
        As in :func:`projected_wasserstein`, for single clouds `(n, dim)`.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(100, 2)) * [3, 1], rng.normal(size=(80, 2)) * [3, 1] + 1
    >>> plan = osl.cheapest_coupling(x, y, rng=0)
    >>> plan.direction.shape, plan.to_dense().shape
    ((2,), (100, 80))
    >>> bool(osl.match(x, y, rng=0).cost() < plan.cost() < osl.projected_wasserstein(x, y, rng=0).value)
    True
    """
    cloud, other = single_clouds(x, y, x_weights, y_weights)
    options: dict[str, Any] = {"directions": directions, "n_directions": n_directions, "rng": rng}
    options |= {"memory": memory, "workers": workers, "control": None}
    found = projected_wasserstein(cloud, other, p, **options)
    # Scores in the units that the clouds were scaled to: their p-th powers neither underflow nor overflow.
    best, sampler = int(np.argmin(to_numpy(found._raw))), found.directions
    if isinstance(sampler, Given):
        row = detach(sampler.theta)[best, :]
    else:
        wide = sampler.row(best, found.n_directions, cloud.dim, found.seed)
        row = namespace(cloud.points).asarray(wide, dtype=cloud.dtype, device=device(cloud.points))
    return induced_coupling(cloud, other, row)
