"""Where control variates can be fitted, and where the library uses one by itself."""

from __future__ import annotations

from orthoslice.directions.layout import Layout

# With fewer units, or directions, the fit of scores by controls is too uncertain.
_FEWEST_UNITS = 4
_FEWEST_ROWS = 16

# Below _DIMS, sets of directions gain what a control would; above, the control takes too long. For powers above
# _LARGEST_POWER, a few directions dominate the mean, and the control does not predict them.
_DIMS = range(12, 129)
_LARGEST_POWER = 4

# Points in both clouds: fewer are scored in less time than the control takes.
_FEWEST_POINTS = 256


def is_fitted(layout: Layout) -> bool:
    """Whether there are enough units and directions to fit scores by controls."""
    return layout.n_units >= _FEWEST_UNITS and layout.n_directions >= _FEWEST_ROWS


def is_worthwhile(dim: int, p: float, layout: Layout, n_points: int | None = None) -> bool:
    """Whether the Gaussian control pays for sliced distances of clouds with `n_points` in both, if known."""
    if dim not in _DIMS or p > _LARGEST_POWER or not is_fitted(layout):
        return False
    return n_points is None or n_points >= max(_FEWEST_POINTS, 2 * dim)
