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

# The control may take this share of the time that the scores take. It makes squared errors at least 1.2 times
# smaller, so that further directions in that time would make root mean squared errors 8% smaller at most.
_LARGEST_SHARE = 0.4

# A model of both times: operations of matrix products in a nanosecond, nanoseconds for sorting a projection and
# for all else that the control does, and directions that its mean takes at most for small clouds.
_FLOPS, _SORTED, _ALONE, _FOR_MEAN = 20.0, 10.0, 1.5e6, 2048


def is_fitted(layout: Layout) -> bool:
    """Whether there are enough units and directions to fit scores by controls."""
    return layout.n_units >= _FEWEST_UNITS and layout.n_directions >= _FEWEST_ROWS


def is_worthwhile(
    dim: int, p: float, layout: Layout, n_points: int | None = None, n_directions: int | None = None
) -> bool:
    """Whether the Gaussian control pays for sliced distances of clouds with `n_points` in both, if known."""
    if dim not in _DIMS or p > _LARGEST_POWER or not is_fitted(layout):
        return False
    return (
        n_points is None or _share_of_time(dim, n_directions or layout.n_directions, n_points) <= _LARGEST_SHARE
    )


def _share_of_time(dim: int, n_directions: int, n_points: int) -> float:
    """How long the control takes, in units of what the scores of all directions take."""
    # Both covariances; their quadratic forms on directions that are scored, and on those for the mean.
    products = 2 * n_points * dim**2 + 4 * (n_directions + _FOR_MEAN) * dim**2
    scores = n_directions * n_points * (2 * dim / _FLOPS + _SORTED)
    return (_ALONE + products / _FLOPS) / scores
