"""The auto-encoder of figure 5 held to the law of its prior, beside one that is held to points of the prior.

Points that are drawn anew at every step are a noisy target, and one that shrinks codes: two small samples of
one law come closest when one is pulled to its middle. `osl.laws` has the law itself. Networks have fewer
channels than those of figure 5, learn faster and see fewer images: one core trains all of them in an hour.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass

from matplotlib.figure import Figure

from experiments import fig5_hidden_codes
from experiments.common import Claim, require, student
from experiments.fig5_hidden_codes.claims import by_kind, check_trainings, column
from experiments.fig5_hidden_codes.config import FREE, list_jobs, list_runs
from experiments.fig5_hidden_codes.picture import draw
from experiments.trainings import Row, command, read_machine, trained

__all__ = ["REFUTED", "SMOKE", "Config", "check", "machine", "plot", "run"]

REFUTED: tuple[str, ...] = (
    "Codes held to the law come nearer to the prior: W_2 is smaller.",
    "Points of the prior shrink codes: their mean radius is smaller than with the law.",
)
"""Claims that the kept results do not bear out."""


@dataclass(frozen=True, kw_only=True)
class Config(fig5_hidden_codes.Config):
    """Everything that a run depends on; only what differs from figure 5 is here."""

    learning_rates: tuple[float, ...] = (1e-3,)
    sweeps: tuple[int, ...] = (16,)
    distances: tuple[str, ...] = ("sliced", "law")
    n_seeds: int = 3
    n_images: int = 20_000
    depth: int = 2
    n_exact: int = 500


SMOKE = dataclasses.replace(fig5_hidden_codes.SMOKE, distances=Config.distances)


def run(config: fig5_hidden_codes.Config) -> list[Row]:
    """Train what is not trained yet; rows as those of figure 5."""
    require("torch", "torch")
    from experiments.fig5_hidden_codes.measures import collect

    with trained("law_as_prior", config, list_jobs, FREE) as (rows, folder, _):
        return collect(rows, list_runs(config), folder, config)


def machine() -> dict[str, str]:
    """Where the kept runs were trained."""
    return read_machine("law_as_prior")


def check(rows: list[Row]) -> list[Claim]:
    """Which of both comes nearer to the prior, with intervals over seeds, whose networks start alike."""
    (left,) = by_kind(rows, "codes").values()
    if len(left["law"]) < 3:
        # An interval over two seeds says nothing.
        return check_trainings(rows)
    nearer = student(column(left["law"], "w2") - column(left["sliced"], "w2"))
    wider = student(column(left["law"], "mean_radius") - column(left["sliced"], "mean_radius"))
    return [
        *check_trainings(rows),
        Claim(
            "Codes held to the law come nearer to the prior: W_2 is smaller.",
            nearer[2] < 0,
            "W_2 to the prior, law - points: {:.4f} ({:.4f} to {:.4f})".format(*nearer),
        ),
        Claim(
            "Points of the prior shrink codes: their mean radius is smaller than with the law.",
            wider[1] > 0,
            "mean radius, law - points: {:.4f} ({:.4f} to {:.4f}); 2/3 is the disc's".format(*wider),
        ),
    ]


def plot(rows: list[Row]) -> Figure:
    """Codes of one seed, their radii, and the mean radius over training."""
    return draw(rows)


if __name__ == "__main__":
    sys.exit(command("law_as_prior", __doc__, (Config(), SMOKE), list_jobs, FREE))
