"""Generators of all runs, trained side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import orthoslice as osl
from experiments import mixture
from experiments.fig6_generators.config import Config, list_runs
from experiments.stacked import StackedMLP, generator_of
from experiments.trainings import replacing

LOSSES = {"sw": osl.nn.SlicedWassersteinLoss, "pw": osl.nn.ProjectedWassersteinLoss}

# What random numbers are for: runs of one seed have the same of each kind, whatever their distance.
_WEIGHTS, _TARGET, _BATCHES, _POINTS = range(4)


class GeneratorTraining:
    """All runs of a configuration: generators, Adam, a loss for each, and the points made so far.

    Runs of one seed start from the same weights and see the same noise and the same batches of the target, so
    that they differ in their distance alone.
    """

    def __init__(self, config: Config, device: str) -> None:
        self.config, self.device = config, device
        self.runs = list_runs(config)
        self.network = StackedMLP(
            (2, *config.hidden, 2), [self._random(run.seed, _WEIGHTS) for run in self.runs]
        )
        self.losses = [
            LOSSES[run.method](config.n_directions, p=run.p, seed=config.seed + run.seed).to(device)
            for run in self.runs
        ]
        self.optimizer = torch.optim.Adam(self.network.parameters(), config.learning_rate)
        self.target = self._of_seeds(lambda seed: mixture.sample(config.n_target, self._random(seed, _TARGET)))
        self.points = torch.zeros(len(config.measured_units), len(self.runs), config.n_points, 2)

    def _random(self, seed: int, purpose: int, *more: int) -> torch.Generator:
        return generator_of(self.device, self.config.seed, seed, purpose, *more)

    def _of_seeds(self, make: Any) -> Tensor:
        """What is made of every seed, `(seeds, ...)`."""
        return torch.stack([make(seed) for seed in range(self.config.n_seeds)])

    def _for_runs(self, of_seeds: Tensor) -> Tensor:
        """What belongs to every run, `(runs, ...)`: that of its seed."""
        # In the order of the runs, in which the seed changes first.
        return of_seeds.repeat(len(self.runs) // self.config.n_seeds, *(1 for _ in of_seeds.shape[1:]))

    def generate(self, noise: Tensor) -> Tensor:
        """Points `(runs, n, 2)` from noise `(runs, n, 2)`."""
        return torch.tanh(self.network(noise))

    def advance(self, n_done: int) -> dict[str, float]:
        """Some hundred steps; returns the mean loss over seeds and steps, for every distance."""
        config = self.config
        shape = config.unit_steps, config.batch_size

        def draw(seed: int) -> tuple[Tensor, Tensor]:
            random = self._random(seed, _BATCHES, n_done)
            noise = torch.randn(*shape, 2, generator=random, device=self.device)
            which = torch.randint(config.n_target, shape, generator=random, device=self.device)
            return noise, self.target[seed][which]

        noise, target = map(torch.stack, zip(*map(draw, range(config.n_seeds)), strict=True))
        total = torch.zeros(len(self.runs), device=self.device)
        for step in range(config.unit_steps):
            total += self._step(self._for_runs(noise[:, step]), self._for_runs(target[:, step]))
        if n_done + 1 in config.measured_units:
            self.points[config.measured_units.index(n_done + 1)] = self._measured_points()
        means = (total / config.unit_steps).reshape(-1, config.n_seeds).mean(dim=1).tolist()
        names = (f"loss_{run.method}{run.p}" for run in self.runs[:: config.n_seeds])
        return {"steps": (n_done + 1) * config.unit_steps, **dict(zip(names, means, strict=True))}

    def _step(self, noise: Tensor, target: Tensor) -> Tensor:
        points = self.generate(noise)
        # Without a tape: the gradient comes with the value.
        parts = [
            loss.value_and_grad(x, y) for loss, x, y in zip(self.losses, points.detach(), target, strict=True)
        ]
        values, gradients = (torch.stack(part) for part in zip(*parts, strict=True))
        self.optimizer.zero_grad()
        points.backward(gradients)
        self.optimizer.step()
        return values

    def _measured_points(self) -> Tensor:
        shape = self.config.n_points, 2
        noise = self._of_seeds(
            lambda seed: torch.randn(shape, generator=self._random(seed, _POINTS), device=self.device)
        )
        with torch.no_grad():
            return self.generate(self._for_runs(noise)).cpu()

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "losses": [loss.state_dict() for loss in self.losses],
            "points": self.points,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        for loss, kept in zip(self.losses, state["losses"], strict=True):
            loss.load_state_dict(kept)
        self.points = state["points"]

    def finish(self, stem: Path) -> None:
        """Leave the points of all measured units, `(units, runs, n, 2)`."""
        with replacing(stem.with_suffix(".npz")) as partial, partial.open("wb") as file:
            np.savez_compressed(file, points=self.points.numpy())
