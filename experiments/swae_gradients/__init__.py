"""How much the gradients of an auto-encoder vary with iid, orthogonal and Hadamard-Rademacher directions.

The auto-encoder is that of figure 3. After some sweeps of its training, gradients of SW_1 are drawn many times
with the same images and the same codes of the prior, so that only directions vary: by the codes, and by the
encoder's weights. Then images and codes of the prior vary too, and the gradient is that of the whole loss.
``python -m experiments.swae_gradients`` trains and measures, and can be stopped and called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.swae_gradients.config import FREE, SMOKE, Config, list_jobs
from experiments.trainings import Row, read_machine, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.common import Claim

__all__ = ["REFUTED", "SMOKE", "Config", "check", "machine", "plot", "run"]

REFUTED: tuple[str, ...] = (
    "At equal time gradients by the codes vary less with orthogonal directions than with iid ones.",
    "At equal time gradients by the codes vary less with HD than with orthogonal directions.",
)
"""Claims that the kept results do not bear out."""

# What follows is imported late: a machine that trains needs nothing to draw with.


def run(config: Config) -> list[Row]:
    """Train and measure what is not measured yet; a row a measurement."""
    from experiments.common import require

    require("torch", "torch")
    with trained("swae_gradients", config, list_jobs, FREE) as (rows, _, _):
        return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def machine() -> dict[str, str]:
    """Where the kept runs were trained and timed."""
    return read_machine("swae_gradients")


def check(rows: list[Row]) -> list[Claim]:
    """Whose gradients vary less at equal directions and at equal time, with intervals over seeds."""
    from experiments.swae_gradients.claims import judge

    return judge(rows)


def plot(rows: list[Row]) -> Figure:
    """Variance against the count of directions and against time, and its share in that of the whole loss."""
    from experiments.swae_gradients.picture import draw

    return draw(rows)
