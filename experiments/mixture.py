"""Sixteen Gaussians on a grid in the plane, which the paper trains generators on: samples, and modes covered.

Four of the modes are in the centre, twelve on the perimeter. With every point given to the nearest mode, each
has a sixteenth of the law, but for 1e-5.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SPACING = 0.3
SPREAD = 0.1
SIDE = 4
N_MODES = SIDE**2
N_CENTRAL = (SIDE - 2) ** 2
N_PERIMETER = N_MODES - N_CENTRAL

_TICKS = SPACING * (np.arange(SIDE) - (SIDE - 1) / 2)
MODES: NDArray[np.float64] = np.stack(np.meshgrid(_TICKS, _TICKS, indexing="ij"), axis=-1).reshape(-1, 2)
"""(16, 2)"""

IS_CENTRAL: NDArray[np.bool_] = np.abs(MODES).max(axis=1) < SPACING
"""(16,)"""

LEAST_SHARE = 1 / (4 * N_MODES)
"""Of all points, that a covered mode has: a quarter of what it has under the law itself."""


def sample(n: int, generator: Any) -> Any:
    """Points `(n, 2)` of the mixture, a torch tensor where the generator is."""
    import torch

    place = generator.device
    modes = torch.as_tensor(MODES, dtype=torch.float32, device=place)
    which = torch.randint(N_MODES, (n,), generator=generator, device=place)
    return modes[which] + SPREAD * torch.randn(n, 2, generator=generator, device=place)


def shares(points: NDArray[np.floating]) -> NDArray[np.float64]:
    """The share of points `(n, 2)` to which each mode is the nearest, `(16,)`."""
    nearest = np.square(points[:, None] - MODES).sum(axis=-1).argmin(axis=1)
    return np.bincount(nearest, minlength=N_MODES) / len(points)


def describe(points: NDArray[np.floating]) -> dict[str, float | int]:
    """How points `(n, 2)` lie over the modes: how many are covered, the share in the centre, the reach.

    `reach` is the root mean square distance from the middle; under the law it is 0.495.
    """
    of_mode = shares(points)
    covered = of_mode >= LEAST_SHARE
    return {
        "central_modes": int(covered[IS_CENTRAL].sum()),
        "perimeter_modes": int(covered[~IS_CENTRAL].sum()),
        "central_share": float(of_mode[IS_CENTRAL].sum()),
        "reach": float(np.sqrt(np.square(points).sum(axis=1).mean())),
    }
