"""True answers, to check estimates against.

Optimal transport gives W_p of clouds of moderate size in any dimension. In the plane an angular sweep gives
SW_p^p, PW_p^p, the score of every direction as a function of its angle, and the mean squared errors of the
paper's estimators; two points against two points have a closed form in any dimension.
"""

from orthoslice.exact.angular import AngularScore, angular_score
from orthoslice.exact.gradients import wasserstein_value
from orthoslice.exact.mse import estimator_mse_plane
from orthoslice.exact.plane import projected_plane, sliced_plane
from orthoslice.exact.transport import Transport, wasserstein
from orthoslice.exact.two_points import sliced_two_points

__all__ = [
    "AngularScore",
    "Transport",
    "angular_score",
    "estimator_mse_plane",
    "projected_plane",
    "sliced_plane",
    "sliced_two_points",
    "wasserstein",
    "wasserstein_value",
]
