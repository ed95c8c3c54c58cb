"""Where control variates can be fitted, and where the library uses one by itself."""

from __future__ import annotations

from orthoslice.directions.layout import Layout

# With fewer units, or directions, the fit of scores by controls is too uncertain.
_FEWEST_UNITS = 4
_FEWEST_ROWS = 16

# Below these dimensions, sets of directions gain what a control would; above, covariances take much memory. For
# powers above _LARGEST_POWER, a few directions dominate the mean, and the control does not predict them.
_DIMS, _LARGEST_POWER = range(12, 1025), 4

# The time that the control may take, in units of what the scores take. Where blocks are orthonormal bases, and
# average quadratic forms without error, it makes squared errors at least 1.2 times smaller, so that further
# directions in that time would make root mean squared errors 8% smaller at most. Shorter blocks leave more to
# gain, and the share grows by what they lack: with 128 of 500 dimensions squared errors are 3 times smaller for
# two samples of one Gaussian, and 100 times and more where clouds differ.
_LARGEST_SHARE, _SHARE_OF_LACK = 0.4, 1.5

# A model of both times: operations of matrix products in a nanosecond, nanoseconds for sorting a projection and
# for all else that the control does.
_FLOPS, _SORTED, _ALONE = 20.0, 10.0, 1.5e6


def fewest_for_mean(dim: int) -> int:
    """Directions that find the mean of the Gaussian control at least.

    The larger the dimension, the nearer is it to a polynomial whose mean is known, and the longer takes each.
    """
    return min(max(32 * dim, 1 << 10), 1 << 11) if dim <= 128 else max((1 << 18) // dim, 1 << 8)


def is_fitted(layout: Layout) -> bool:
    """Whether there are enough units and directions to fit scores by controls."""
    return layout.n_units >= _FEWEST_UNITS and layout.n_directions >= _FEWEST_ROWS


def is_worthwhile(
    dim: int, p: float, layout: Layout, n_points: int | None = None, n_directions: int | None = None
) -> bool:
    """Whether the Gaussian control pays for sliced distances of clouds with `n_points` in both, if known."""
    if dim not in _DIMS or p > _LARGEST_POWER or not is_fitted(layout):
        return False
    if n_points is None:
        return True
    lack = 1 - min(layout.longest_block / dim, 1.0)
    share = _share_of_time(dim, n_directions or layout.n_directions, n_points)
    return share <= _LARGEST_SHARE + _SHARE_OF_LACK * lack


def _share_of_time(dim: int, n_directions: int, n_points: int) -> float:
    """How long the control takes, in units of what the scores of all directions take."""
    # Both covariances; their quadratic forms on directions that are scored, and on those for the mean.
    products = 2 * n_points * dim**2 + 4 * (n_directions + fewest_for_mean(dim)) * dim**2
    scores = n_directions * n_points * (2 * dim / _FLOPS + _SORTED)
    return (_ALONE + products / _FLOPS) / scores
