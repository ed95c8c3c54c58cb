"""Figure 3: the sliced Wasserstein auto-encoder, with iid, orthogonal and Hadamard-Rademacher directions.

`config` says what is trained, `experiments.autoencoder` is the network and its training, `timing` measures a
step; `curves` holds the statistics, and `picture`, `claims` and `tables` what is made of them.
``python -m experiments.fig3_swae --jobs 5 --minutes 9`` trains for nine minutes and can be called again.
``python -m experiments fig3_swae`` trains what is left, draws and judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.fig3_swae.config import FREE, SMOKE, Config, list_jobs
from experiments.trainings import Row, read_machine, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["REFUTED", "SMOKE", "Config", "check", "machine", "plot", "run"]

REFUTED: tuple[str, ...] = (
    "Learning rate 0.0001: orthogonal and iid behave similarly: final log losses differ by less than 0.01.",
    "Learning rate 1e-05: orthogonal converges faster than iid: lower log loss on average over training.",
    "A step takes less time with HD than with orthogonal directions.",
)
"""Claims of the paper that the kept results do not bear out."""

# What follows is imported late: a machine that trains needs nothing to draw with.


def run(config: Config) -> list[Row]:
    """Train what is not trained yet; a row a sweep of every run."""
    from experiments.common import require

    require("torch", "torch")
    with trained("fig3_swae", config, list_jobs, FREE) as (rows, _, _):
        return rows


def machine() -> dict[str, str]:
    """Where the kept runs were trained."""
    return read_machine("fig3_swae")


def check(rows: list[Row]) -> list[Claim]:
    """What the paper says of two learning rates and of time, judged with intervals over seeds and rounds."""
    from experiments.fig3_swae.claims import judge
    from experiments.fig3_swae.timing import KEPT
    from experiments.trainings import read_rows

    return judge(rows, read_rows(KEPT) if KEPT.exists() else [])


def plot(rows: list[Row]) -> Figure:
    """Log training loss against sweeps and time, differences between estimators, and what a step costs."""
    from experiments.fig3_swae.picture import draw

    return draw(rows)
