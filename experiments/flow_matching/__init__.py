"""Flow matching, beyond the paper: noise paired with data at random, by `osl.match`, and as cheaply as can be.

`config` says what is trained, `problems` are the laws, `pairs` pairs noise with data, `training` trains all
runs of a problem side by side, `jobs` measures what they leave, and `picture` and `claims` are made of that.
``python -m experiments.flow_matching --pair`` and then ``--device cuda --minutes 5`` pair and train, and can be
called again. ``python -m experiments flow_matching`` does what is left, draws and judges.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.flow_matching.config import SMOKE, Config
from experiments.trainings import Place, read_machine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["REFUTED", "SMOKE", "Config", "check", "machine", "plot", "run"]

REFUTED: tuple[str, ...] = ()
"""Claims that the kept results do not bear out."""

# What follows is imported late: a machine that trains needs nothing to draw with.


def run(config: Config) -> list[dict[str, Any]]:
    """Pair and train what is left of it, and measure it."""
    from experiments.common import require
    from experiments.flow_matching.jobs import FOLDER

    require("torch", "torch")
    if config.is_kept:
        return _run_in(FOLDER, config, Place.default())
    with tempfile.TemporaryDirectory() as folder:
        return _run_in(Path(folder), config, Place())


def _run_in(folder: Path, config: Config, place: Place) -> list[dict[str, Any]]:
    from experiments.flow_matching import jobs

    jobs.prepare(config, folder)
    jobs.train(config, folder, place)
    return jobs.measure(config, folder)


def machine() -> dict[str, str]:
    """Where the kept runs were trained."""
    return read_machine("flow_matching")


def check(rows: list[dict[str, Any]]) -> list[Claim]:
    """What pairs by `osl.match` are good for, judged with intervals over seeds."""
    from experiments.flow_matching.claims import judge

    return judge(rows)


def plot(rows: list[dict[str, Any]]) -> Figure:
    """Paths, distances against the number of Euler steps, and digits."""
    from experiments.flow_matching.picture import draw

    return draw(rows)
