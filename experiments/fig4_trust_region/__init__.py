"""Figure 4: PPO held near its old policy by SW_1 or PW_1, on two tasks of MuJoCo.

`config` says what is trained, `penalty` is D, `ppo` puts it into stable-baselines3's loss, `training` makes one
run and `jobs` all of them; `curves` holds the statistics, and `picture` and `claims` what is made of them.
``python -m experiments.fig4_trust_region --jobs 16 --minutes 9`` trains for nine minutes and can be called
again. ``python -m experiments fig4_trust_region`` trains what is left, draws and judges.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.fig4_trust_region.config import SMOKE, Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["REFUTED", "SMOKE", "Config", "check", "plot", "run"]

REFUTED = (
    "HalfCheetah: PW ends with a higher return than SW and than no trust region.",
    "HalfCheetah: PW is more stable than both: its curves lie less below the best they have reached.",
)
"""Claims of the paper that the kept results do not bear out."""

# What follows is imported late: a machine that trains needs nothing to draw with, and one that draws no MuJoCo.


def run(config: Config) -> list[dict[str, Any]]:
    """Train what is not trained yet, on every core for a kept run; a row every few rollouts of every run."""
    from experiments.common import require
    from experiments.fig4_trust_region.jobs import WORK, collect_rows, train_all
    from orthoslice.backend.threads import default_workers

    require("rl", "torch", "gymnasium", "stable_baselines3")
    if config.is_kept:
        if train_all(config, WORK, minutes=0):
            require("rl", "mujoco")
            train_all(config, WORK, n_jobs=default_workers())
        return collect_rows(config, WORK)
    with tempfile.TemporaryDirectory() as folder:
        train_all(config, Path(folder))
        return collect_rows(config, Path(folder))


def check(rows: list[dict[str, Any]]) -> list[Claim]:
    """What the paper says of the two tasks, judged with intervals over seeds."""
    from experiments.fig4_trust_region.claims import judge

    return judge(rows)


def plot(rows: list[dict[str, Any]]) -> Figure:
    """Return against steps as the paper draws it, with bootstrap intervals, and against the strength."""
    from experiments.fig4_trust_region.picture import draw

    return draw(rows)
