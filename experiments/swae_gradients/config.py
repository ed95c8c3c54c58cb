"""What is measured: gradients of an auto-encoder's distance at some moments of its training."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.trainings import Job, Place


@dataclass(frozen=True, kw_only=True)
class Config:
    """The training, which is one of figure 3, and what is drawn how often."""

    estimators: tuple[str, ...] = ("iid", "orthogonal", "hadamard")
    n_seeds: int = 5
    sweeps: tuple[int, ...] = (0, 2, 10)
    """After how many of them it is measured."""
    code_counts: tuple[int, ...] = (32, 50, 64, 128, 256, 512)
    """Directions for gradients by the codes."""
    encoder_counts: tuple[int, ...] = (50, 128)
    """Directions for gradients by the encoder's weights."""
    n_code_repeats: int = 100
    n_encoder_repeats: int = 60
    n_timed: int = 50

    directions: str = "orthogonal"
    n_directions: int = 50
    learning_rate: float = 1e-4
    data: str = "mnist"
    n_images: int = 50_000
    batch_size: int = 500
    code_dim: int = 128
    depth: int = 16
    precision: str = "tf32"
    is_kept: bool = True
    """Whether it is kept under `build/` and taken up again; a small run starts anew."""
    seed: int = 2019


SMOKE = Config(
    n_seeds=5,
    sweeps=(0, 1),
    code_counts=(16, 32),
    encoder_counts=(16,),
    n_code_repeats=30,
    n_encoder_repeats=12,
    n_timed=2,
    n_directions=16,
    learning_rate=1e-3,
    data="digits",
    n_images=120,
    batch_size=40,
    code_dim=16,
    depth=2,
    is_kept=False,
)

FREE = {"n_seeds", "is_kept"}
"""Settings that say which runs there are; the others say what a run is."""


class Measurement(NamedTuple):
    """One row to be made."""

    sweep: int
    of: str
    """What the gradient is by: codes, or the encoder's weights."""
    varies: str
    """Directions alone, or everything: images and codes of the prior too."""
    estimator: str
    n_directions: int


def list_measurements(config: Config) -> list[Measurement]:
    """All of a run, in the order of its training; estimators take turns."""
    kinds = [("codes", "directions", count) for count in config.code_counts]
    kinds += [
        ("encoder", varies, count) for varies in ("directions", "everything") for count in config.encoder_counts
    ]
    return [
        Measurement(sweep, of, varies, estimator, count)
        for sweep in config.sweeps
        for of, varies, count in kinds
        for estimator in config.estimators
    ]


def list_jobs(config: Config, place: Place) -> list[Job]:
    """A job a seed."""
    n_units = len(list_measurements(config))
    return [
        Job(
            f"seed_{seed}", {"seed": seed}, n_units, functools.partial(make_training, seed, config, place), seed
        )
        for seed in range(config.n_seeds)
    ]


def make_training(seed: int, config: Config, place: Place) -> Any:
    """A training that measures, before its first step."""
    from experiments.autoencoder import AutoEncoder, Recipe
    from experiments.swae_gradients.measuring import Measuring

    recipe = Recipe(
        data=config.data,
        distance="sliced",
        directions=config.directions,
        n_directions=config.n_directions,
        learning_rate=config.learning_rate,
        seed=config.seed + seed,
        code_dim=config.code_dim,
        prior="cube",
        n_images=config.n_images,
        batch_size=config.batch_size,
        depth=config.depth,
        precision=config.precision,
    )
    return Measuring(AutoEncoder(recipe, place.device, place.data), config)
