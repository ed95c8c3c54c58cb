"""Figure 6: generators of 16 Gaussians in the plane, trained with SW or with PW.

`config` says what is trained, `training` trains all runs side by side, and `measures` says how the points that
they make lie over the modes. ``python -m experiments.fig6_generators --device cuda --minutes 5``
trains for five minutes and can be called again. ``python -m experiments fig6_generators`` trains what is left,
draws and judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.fig6_generators.config import FREE, NAME, SMOKE, Config, list_jobs
from experiments.trainings import read_machine, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["REFUTED", "SMOKE", "Config", "check", "machine", "plot", "run"]

REFUTED: tuple[str, ...] = ()
"""Claims of the paper that the kept results do not bear out."""

# What follows is imported late: a machine that trains needs nothing to draw with.


def run(config: Config) -> list[dict[str, Any]]:
    """Train what is not trained yet, and measure it."""
    from experiments.common import require
    from experiments.fig6_generators.measures import collect

    require("torch", "torch")
    with trained(NAME, config, list_jobs, FREE) as (_, folder, _):
        return collect(config, folder)


def machine() -> dict[str, str]:
    """Where the kept runs were trained."""
    return read_machine(NAME)


def check(rows: list[dict[str, Any]]) -> list[Claim]:
    """What the paper says of the modes, judged with intervals over seeds."""
    from experiments.fig6_generators.claims import judge

    return judge(rows)


def plot(rows: list[dict[str, Any]]) -> Figure:
    """Samples over the target, as the paper draws them, and what was measured against steps."""
    from experiments.fig6_generators.picture import draw

    return draw(rows)
