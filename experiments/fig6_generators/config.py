"""What is trained: which distances, how many seeds, and the settings of a generator."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from experiments.trainings import Job, Place

MethodName: TypeAlias = Literal["sw", "pw"]

NAME = "fig6_generators"

FREE = ("n_drawn", "is_kept")
"""Settings that change nothing of a training."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run depends on.

    From the paper: 16 Gaussians, noise of two dimensions, two layers of 256 with relu, tanh at the end, Adam
    with learning rate 1e-4 until convergence. It does not say which p, so 1 and 2 are trained; nor the size of
    the sample and of a batch, how many directions, or when a training has converged.
    """

    methods: tuple[MethodName, ...] = ("sw", "pw")
    powers: tuple[int, ...] = (1, 2)
    n_seeds: int = 10
    n_steps: int = 10_000
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 1e-4
    batch_size: int = 512
    n_directions: int = 64
    n_target: int = 10_000
    """Points of the mixture that a seed trains on, with fresh batches of them."""
    unit_steps: int = 250
    """Steps between rows of training, and between chances to stop."""
    n_points: int = 1000
    """That a generator is measured by."""
    n_drawn: int = 600
    """Of these, that the picture shows."""
    is_kept: bool = True
    """Whether training is kept under `build/` and taken up again; a small run starts anew."""
    seed: int = 2019

    @property
    def n_units(self) -> int:
        return self.n_steps // self.unit_steps

    @property
    def measured_units(self) -> tuple[int, ...]:
        """After which units generators are measured: 1, 2, 4 and so on, half of them, and the last."""
        powers = itertools.takewhile(lambda unit: unit < self.n_units, (1 << k for k in itertools.count()))
        return tuple(sorted({*powers, self.n_units // 2, self.n_units} - {0}))


SMOKE = Config(
    powers=(2,),
    n_seeds=3,
    n_steps=400,
    hidden=(64,),
    learning_rate=2e-3,
    batch_size=256,
    n_directions=8,
    n_target=1000,
    unit_steps=100,
    n_points=400,
    n_drawn=100,
    is_kept=False,
)


class Run(NamedTuple):
    """One training."""

    method: MethodName
    p: int
    seed: int


def list_runs(config: Config) -> list[Run]:
    """Every run; they are trained side by side in this order."""
    return [Run(*run) for run in itertools.product(config.methods, config.powers, range(config.n_seeds))]


def list_jobs(config: Config, place: Place) -> list[Job]:
    """All runs are one job."""
    return [Job(NAME, {}, config.n_units, functools.partial(make_training, config, place.device))]


def make_training(config: Config, device: str) -> Any:
    """All runs, before their first step."""
    # Late, so that a process that only lists or draws loads no torch.
    from experiments.fig6_generators.training import GeneratorTraining

    return GeneratorTraining(config, device)
