"""Figure 5: codes in the plane, held to the uniform law on the disc by SW_1 or by PW_1.

`config` says what is trained and `training` adds to `experiments.autoencoder` what is watched; `measures` says
how far out codes lie. ``python -m experiments.fig5_hidden_codes --jobs 5 --minutes 9`` trains for nine minutes
and can be called again. ``python -m experiments fig5_hidden_codes`` trains what is left, draws and judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.fig5_hidden_codes.config import FREE, SMOKE, Config, list_jobs, list_runs
from experiments.trainings import Row, read_machine, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["REFUTED", "SMOKE", "Config", "check", "machine", "plot", "run"]

REFUTED: tuple[str, ...] = (
    "Codes of both generally match the prior: W_2 is less than 0.1 above the prior's to itself.",
    "As the text says, codes trained with SW lie nearer to the centre.",
)
"""Claims of the paper that the kept results do not bear out; its caption and its text contradict each other."""

# What follows is imported late: a machine that trains needs nothing to draw with.


def run(config: Config) -> list[Row]:
    """Train what is not trained yet; rows of three kinds: a sweep, the measures of a run's end, and a code."""
    from experiments.common import require
    from experiments.fig5_hidden_codes.measures import collect

    require("torch", "torch")
    with trained("fig5_hidden_codes", config, list_jobs, FREE) as (rows, folder, _):
        return collect(rows, list_runs(config), folder, config)


def machine() -> dict[str, str]:
    """Where the kept runs were trained."""
    return read_machine("fig5_hidden_codes")


def check(rows: list[Row]) -> list[Claim]:
    """Which distance lets codes collapse: what the caption and what the text say, with intervals over seeds."""
    from experiments.fig5_hidden_codes.claims import judge

    return judge(rows)


def plot(rows: list[Row]) -> Figure:
    """Codes of one seed, their radii, and the mean radius over training."""
    from experiments.fig5_hidden_codes.picture import draw

    return draw(rows)
