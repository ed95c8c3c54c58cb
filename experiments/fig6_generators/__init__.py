"""Figure 6: generators of 16 Gaussians in the plane, trained with SW or with PW.

`config` says what is trained, `training` trains all runs side by side, `jobs` measures what they leave, and
`picture` and `claims` are made of that. ``python -m experiments.fig6_generators --device cuda --minutes 5``
trains for five minutes and can be called again. ``python -m experiments fig6_generators`` trains what is left,
draws and judges.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.fig6_generators.config import SMOKE, Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["REFUTED", "SMOKE", "Config", "check", "plot", "run"]

REFUTED: tuple[str, ...] = ()
"""Claims of the paper that the kept results do not bear out."""

# What follows is imported late: a machine that trains needs nothing to draw with.


def run(config: Config) -> list[dict[str, Any]]:
    """Train what is not trained yet, and measure it."""
    from experiments.common import MissingExtra
    from experiments.fig6_generators import jobs

    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("This experiment needs torch: pip install 'orthoslice[torch]'.")
    if config.is_kept:
        jobs.train(config, jobs.FOLDER)
        return jobs.measure(config, jobs.read_points(jobs.FOLDER).points)
    with tempfile.TemporaryDirectory() as folder:
        jobs.train(config, Path(folder))
        return jobs.measure(config, jobs.read_points(Path(folder)).points)


def check(rows: list[dict[str, Any]]) -> list[Claim]:
    """What the paper says of the modes, judged with intervals over seeds."""
    from experiments.fig6_generators.claims import judge

    return judge(rows)


def plot(rows: list[dict[str, Any]]) -> Figure:
    """Samples over the target, as the paper draws them, and what was measured against steps."""
    from experiments.fig6_generators.picture import draw

    return draw(rows)
