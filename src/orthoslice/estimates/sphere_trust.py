"""When an interval over planes cannot be trusted, for distances on spheres.

Points near the axis of a great circle, or near a pole, are blown apart. Where clouds are tight, or differ by
little, few planes do that, and may carry much of the value without having been drawn.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.arrays import HostArray, to_numpy
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.ready import make_ready
from orthoslice.costs.draw import Draw
from orthoslice.costs.scores import Score
from orthoslice.directions.planes import PlaneDirections

# Points of each cloud at which planes are looked for that were not drawn.
_LOOKED_AT = 8


def missed_on_planes(x: Cloud, y: Cloud, score: Score, p: float, most: float) -> float:
    """How much dearer than `most`, the dearest of those drawn, planes are that blow up points of single clouds.

    Planes have their first axis at a point, where :class:`.Stereographic` has its pole; or both axes at right
    angles to it.
    """
    dim, rng = x.dim, np.random.default_rng(0)
    places = [rng.choice(c.n, size=_LOOKED_AT, p=_shares(c)) for c in (x, y)]
    points = np.concatenate([c.points[place] for c, place in zip((x, y), places, strict=True)])
    away = rng.normal(size=(len(points), dim, 2))
    axes = np.swapaxes(np.linalg.qr(np.concatenate([points[:, :, None], away], axis=2))[0], 1, 2)
    # LAPACK may turn a vector round, and the other pole is far away.
    axes[:, 0] = points
    planes = [axes[:, :2]] if dim == 2 else [axes[:, :2], axes[:, 1:]]
    found = [_scores(x, y, score, p, some.astype(x.dtype)).max() for some in planes]
    return float(max(*found, most) - most)


def _shares(cloud: Cloud) -> HostArray | None:
    """The weights, with the sum 1 that NumPy asks for."""
    if cloud.weights is None:
        return None
    weights = to_numpy(cloud.weights).astype(np.float64)
    return np.asarray(weights / weights.sum())


def _scores(x: Cloud, y: Cloud, score: Score, p: float, frames: HostArray) -> HostArray:
    slices = len(frames)
    drawn = PlaneDirections(frames[:, 0], frames[:, 1])
    draw = Draw(drawn, slices, 1, slice(0, slices), False, None, slices)
    return to_numpy(score.evaluate(*make_ready(x, y, for_ties=False), p, draw, (False,) * 4).costs)
