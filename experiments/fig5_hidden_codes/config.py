"""What is trained: the auto-encoder with codes in the plane, held to the disc by SW_1 or PW_1 or to its law."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.trainings import Job, Place

DISTANCES = {"sliced": "SW$_1$", "projected": "PW$_1$", "law": "SW$_1$ to the law"}
"""Names of distances, and what they are called in pictures."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run depends on.

    From the paper: codes of two coordinates, uniform on the unit disc, the rest as in figure 3. That leaves
    open which of its learning rates; it is the larger.
    """

    learning_rates: tuple[float, ...] = (1e-4,)
    sweeps: tuple[int, ...] = (26,)
    """For each learning rate."""
    distances: tuple[str, ...] = ("sliced", "projected")
    n_seeds: int = 5
    n_directions: int = 50
    directions: str = "orthogonal"

    data: str = "mnist"
    n_images: int = 50_000
    batch_size: int = 500
    depth: int = 16
    precision: str = "bf16"

    n_codes: int = 10_000
    """Of the first images, kept when a run is finished or stopped."""
    n_exact: int = 2_000
    """Points in a cloud for the exact W_2; the codes kept are cut into clouds of that size."""
    n_drawn: int = 1_500
    """Codes in a scatter plot."""
    is_kept: bool = True
    """Whether training is kept under `build/` and taken up again; a small run starts anew."""
    seed: int = 2019


SMOKE = Config(
    learning_rates=(1e-3,),
    sweeps=(3,),
    n_seeds=2,
    n_directions=8,
    data="digits",
    n_images=160,
    batch_size=40,
    depth=2,
    n_codes=160,
    n_exact=80,
    n_drawn=50,
    is_kept=False,
)

BEYOND = Config(learning_rates=(1e-4, 1e-3), sweeps=(40, 20))
"""With longer runs, and with a learning rate that is ten times as large."""

FREE = {"learning_rates", "sweeps", "distances", "n_seeds", "n_exact", "n_drawn", "is_kept"}
"""Settings that say which runs there are and what is made of them; the others say what a run is."""


class Run(NamedTuple):
    """One training: its settings beside those that all share."""

    learning_rate: float
    distance: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.learning_rate:g}_{self.distance}_{self.seed}"


def list_runs(config: Config) -> list[Run]:
    """Every run, all distances of a seed before the next seed."""
    return [
        Run(rate, distance, seed)
        for rate in config.learning_rates
        for seed in range(config.n_seeds)
        for distance in config.distances
    ]


def list_jobs(config: Config, place: Place) -> list[Job]:
    """Every run as a job; all distances of a seed share a process."""
    sweeps = dict(zip(config.learning_rates, config.sweeps, strict=True))
    return [
        Job(
            run.name,
            run._asdict(),
            sweeps[run.learning_rate],
            functools.partial(make_training, run, config, place),
            lane=number // len(config.distances),
        )
        for number, run in enumerate(list_runs(config))
    ]


def make_training(run: Run, config: Config, place: Place) -> Any:
    """The training of a run, before its first step."""
    # Late, so that a process that only lists or draws loads no torch.
    from experiments.autoencoder import Recipe
    from experiments.fig5_hidden_codes.training import PlaneAutoEncoder

    recipe = Recipe(
        data=config.data,
        distance=run.distance,
        directions=config.directions,
        n_directions=config.n_directions,
        learning_rate=run.learning_rate,
        seed=config.seed + run.seed,
        code_dim=2,
        prior="disc",
        n_images=config.n_images,
        batch_size=config.batch_size,
        depth=config.depth,
        precision=config.precision,
    )
    return PlaneAutoEncoder(recipe, config.n_codes, place.device, place.data)
