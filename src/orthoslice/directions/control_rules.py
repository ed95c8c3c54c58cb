"""Where control variates can be fitted, and where the library uses one by itself."""

from __future__ import annotations

from orthoslice.directions.layout import Layout

# Fewer units, or directions, say too little of how scores and controls go together.
_FEWEST_UNITS = 4
_FEWEST_ROWS = 16

# In lower dimensions sets of directions do what a control would, in higher ones it takes too long; and large
# powers are carried by a few directions, of which it knows nothing.
_DIMS = range(12, 129)
_LARGEST_POWER = 4

# Points in both clouds: fewer are scored in less time than the control takes.
_FEWEST_POINTS = 256


def is_fitted(layout: Layout) -> bool:
    """Whether so many directions say how scores and controls go together."""
    return layout.n_units >= _FEWEST_UNITS and layout.n_directions >= _FEWEST_ROWS


def is_worthwhile(dim: int, p: float, layout: Layout, n_points: int | None = None) -> bool:
    """Whether sliced distances are better off with the Gaussian control; of so many points in all, if known."""
    if dim not in _DIMS or p > _LARGEST_POWER or not is_fitted(layout):
        return False
    return n_points is None or n_points >= max(_FEWEST_POINTS, 2 * dim)
