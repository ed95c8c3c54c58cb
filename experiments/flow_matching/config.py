"""What is trained: problems, ways to pair noise with data, and the settings of a velocity field."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

ProblemName: TypeAlias = Literal["sixteen", "mnist", "small_digits"]
PairingName: TypeAlias = Literal["independent", "match", "exact"]

EULER_STEPS = (1, 5, 100)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run depends on.

    Noise and data come in pools, which are paired once; a training step takes a batch of all pairs, whatever
    pool they are of. Runs of one seed have the same pools and start from the same weights.
    """

    problems: tuple[ProblemName, ...] = ("sixteen", "mnist")
    pairings: tuple[PairingName, ...] = ("independent", "match", "exact")
    n_seeds: int = 5
    pool_size: int = 2048
    n_pools: int = 16
    n_components: int = 64
    """Of digits: coordinates along their principal components."""
    n_steps: int = 20_000
    hidden: tuple[int, ...] = (512, 512, 512)
    learning_rate: float = 1e-3
    """To begin with; it falls to 0 in a straight line."""
    batch_size: int = 256
    unit_steps: int = 500
    n_points: int = 1000
    """That a run is measured by."""
    n_paths: int = 30
    n_images: int = 8
    """Paths of a picture, and digits for every row of it."""
    is_kept: bool = True
    """Whether pairs and training are kept under `build/` and taken up again; a small run starts anew."""
    seed: int = 2019

    @property
    def n_units(self) -> int:
        return self.n_steps // self.unit_steps

    @property
    def n_pairs(self) -> int:
        return self.n_pools * self.pool_size


SMOKE = Config(
    problems=("sixteen", "small_digits"),
    n_seeds=3,
    pool_size=400,
    n_pools=2,
    n_components=8,
    n_steps=300,
    hidden=(64, 64),
    learning_rate=5e-3,
    batch_size=128,
    unit_steps=150,
    n_points=300,
    n_paths=10,
    n_images=3,
    is_kept=False,
)


class Run(NamedTuple):
    """One training."""

    pairing: PairingName
    seed: int


def list_runs(config: Config) -> list[Run]:
    """Every run of a problem; they are trained side by side in this order."""
    return [Run(*run) for run in itertools.product(config.pairings, range(config.n_seeds))]
