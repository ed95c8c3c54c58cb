"""What is trained: data, estimators, counts of directions, learning rates and seeds."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.trainings import Job, Place

ESTIMATORS = {"iid": "iid", "orthogonal": "orthogonal", "hadamard": "HD"}
"""Names of directions in the library, and in pictures."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run depends on.

    From the paper: MNIST's first 50,000 images, padded to 32 x 32, codes of 128 coordinates, uniform on
    [-1, 1]^128, learning rates 1e-4 and 1e-5, one iteration a sweep in random order. From the code that it
    refers to: the network, batches of 500, 50 directions, RMSprop. The rest is in `experiments.autoencoder`.
    """

    estimators: tuple[str, ...] = tuple(ESTIMATORS)
    learning_rates: tuple[float, ...] = (1e-4, 1e-5)
    n_seeds: int = 5
    n_directions: int = 50
    n_sweeps: int = 19

    # Beyond the paper: other counts of directions, other images, and convolutions that multiply more exactly.
    n_extra_sweeps: int = 15
    extra_counts: tuple[int, ...] = (128,)
    n_count_sweeps: int = 9
    """Sweeps with other counts of directions."""
    extra_data: tuple[str, ...] = ("fashion-mnist",)
    precision_estimators: tuple[str, ...] = ("orthogonal",)

    data: str = "mnist"
    n_images: int = 50_000
    batch_size: int = 500
    code_dim: int = 128
    depth: int = 16
    precision: str = "bf16"

    n_timing_rounds: int = 20
    n_timing_steps: int = 10
    is_kept: bool = True
    """Whether training is kept under `build/` and taken up again; a small run starts anew."""
    seed: int = 2019


SMOKE = Config(
    n_seeds=2,
    learning_rates=(1e-3,),
    n_directions=8,
    n_sweeps=3,
    n_extra_sweeps=2,
    extra_counts=(16,),
    n_count_sweeps=2,
    extra_data=(),
    precision_estimators=(),
    data="digits",
    n_images=160,
    batch_size=40,
    code_dim=16,
    depth=2,
    n_timing_rounds=2,
    n_timing_steps=1,
    is_kept=False,
)

FREE = {
    *(
        "estimators",
        "learning_rates",
        "n_seeds",
        "n_directions",
        "n_sweeps",
        "n_extra_sweeps",
        "n_count_sweeps",
    ),
    *("extra_counts", "extra_data", "precision_estimators", "n_timing_rounds", "n_timing_steps", "is_kept"),
}
"""Settings that say which runs there are; the others say what a run is."""


class Run(NamedTuple):
    """One training: its settings beside those that all share."""

    data: str
    precision: str
    n_directions: int
    learning_rate: float
    estimator: str
    seed: int

    @property
    def name(self) -> str:
        return "_".join(f"{value:g}" if isinstance(value, float) else str(value) for value in self)


def list_runs(config: Config) -> list[Run]:
    """Every run, those of the paper first, and all estimators of a seed before the next seed."""
    return [run for group in _groups(config) for run in group]


def _groups(config: Config) -> Iterator[list[Run]]:
    paper = config.data, config.precision, config.n_directions
    yield from (_seeds(config, paper, rate, config.estimators) for rate in config.learning_rates)
    extra = [(config.data, config.precision, count) for count in config.extra_counts]
    extra += [(data, config.precision, config.n_directions) for data in config.extra_data]
    for kind in extra:
        yield from (_seeds(config, kind, rate, config.estimators) for rate in config.learning_rates)
    exact = config.data, "tf32", config.n_directions
    yield from (_seeds(config, exact, rate, config.precision_estimators) for rate in config.learning_rates)


def _seeds(config: Config, kind: Any, rate: float, estimators: tuple[str, ...]) -> list[Run]:
    return [Run(*kind, rate, estimator, seed) for seed in range(config.n_seeds) for estimator in estimators]


def count_sweeps(run: Run, config: Config) -> int:
    """How many sweeps a run takes: fewer where it goes beyond the paper."""
    if run.n_directions != config.n_directions:
        return config.n_count_sweeps
    is_paper = (run.data, run.precision) == (config.data, config.precision)
    return config.n_sweeps if is_paper else config.n_extra_sweeps


def list_jobs(config: Config, place: Place) -> list[Job]:
    """Every run as a job; the estimators of a seed share a process, so that they share its fortunes."""
    lanes: dict[Any, int] = {}
    return [
        Job(
            run.name,
            run._asdict(),
            count_sweeps(run, config),
            functools.partial(make_training, run, config, place),
            lanes.setdefault(run._replace(estimator=""), len(lanes)),
        )
        for run in list_runs(config)
    ]


def make_training(run: Run, config: Config, place: Place) -> Any:
    """The training of a run, before its first step."""
    # Late, so that a process that only lists or draws loads no torch.
    from experiments.autoencoder import AutoEncoder, Recipe

    recipe = Recipe(
        data=run.data,
        distance="sliced",
        directions=run.estimator,
        n_directions=run.n_directions,
        learning_rate=run.learning_rate,
        seed=config.seed + run.seed,
        code_dim=config.code_dim,
        prior="cube",
        n_images=config.n_images,
        batch_size=config.batch_size,
        depth=config.depth,
        precision=run.precision,
    )
    return AutoEncoder(recipe, place.device, place.data)
