"""Velocity fields of all runs of a problem, trained side by side, and the paths that they lead along."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.flow_matching.config import EULER_STEPS, Config, ProblemName, list_runs
from experiments.flow_matching.pairs import paired
from experiments.flow_matching.problems import make_problem, starts
from experiments.stacked import StackedMLP, generator_of
from experiments.trainings import replacing

# What random numbers are for.
_WEIGHTS, _BATCHES = range(2)

# The time is also seen through these multiples of half a turn.
_TURNS = 4

PATH_STEPS = 20
"""Pieces that drawn paths have."""


class FlowTraining:
    """Flow matching: v(x_t, t) learns y - x at x_t = (1 - t) x + t y, for noise x and its partner y.

    Runs of one seed start from the same weights and see the same rows of pairs at the same times.
    """

    def __init__(self, name: ProblemName, config: Config, folder: Path, device: str) -> None:
        self.config, self.device = config, device
        self.problem = make_problem(name, config)
        self.runs = list_runs(config)
        parts = [paired(self.problem, config, run, folder) for run in self.runs]
        self.noise, self.data = (
            torch.as_tensor(np.stack(part), device=device) for part in zip(*parts, strict=True)
        )
        dim = self.problem.dim
        self.network = StackedMLP(
            (dim + 1 + 2 * _TURNS, *config.hidden, dim),
            [generator_of(device, config.seed, run.seed, _WEIGHTS) for run in self.runs],
            torch.nn.functional.silu,
        )
        self.optimizer = torch.optim.Adam(self.network.parameters(), config.learning_rate)

    def velocity(self, x: Tensor, t: Tensor) -> Tensor:
        """v(x, t) of points `(runs, n, dim)` at times that broadcast to `(runs, n, 1)`."""
        t = t.expand(*x.shape[:-1], 1)
        turns = math.pi * torch.arange(1, _TURNS + 1, device=x.device) * t
        return self.network(torch.cat([x, t, turns.sin(), turns.cos()], dim=-1))

    def advance(self, n_done: int) -> dict[str, float]:
        """Some hundred steps; returns the mean loss over seeds and steps, for every pairing."""
        config = self.config
        shape = config.unit_steps, config.batch_size

        def draw(seed: int) -> tuple[Tensor, Tensor]:
            random = generator_of(self.device, config.seed, seed, _BATCHES, n_done)
            rows = torch.randint(config.n_pairs, shape, generator=random, device=self.device)
            return rows, torch.rand(*shape, 1, generator=random, device=self.device)

        # In the order of the runs, in which the seed changes first.
        seeds = [*range(config.n_seeds)] * len(config.pairings)
        drawn = [draw(seed) for seed in range(config.n_seeds)]
        rows, times = (torch.stack([part[seed] for seed in seeds]) for part in zip(*drawn, strict=True))
        total = torch.zeros(len(self.runs), device=self.device)
        which = torch.arange(len(self.runs), device=self.device)[:, None]
        for step in range(config.unit_steps):
            share_left = 1 - (n_done * config.unit_steps + step) / config.n_steps
            for group in self.optimizer.param_groups:
                group["lr"] = config.learning_rate * share_left
            at, t = (which, rows[:, step]), times[:, step]
            total += self._step(self.noise[at], self.data[at], t)
        means = (total / config.unit_steps).reshape(-1, config.n_seeds).mean(dim=1).tolist()
        losses = {f"loss_{name}": mean for name, mean in zip(config.pairings, means, strict=True)}
        return {"steps": (n_done + 1) * config.unit_steps, **losses}

    def _step(self, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        loss = (self.velocity(torch.lerp(x, y, t), t) - (y - x)).square().sum(dim=-1).mean(dim=-1)
        self.optimizer.zero_grad()
        loss.sum().backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def paths(self, n_steps: int) -> Tensor:
        """Places of Euler's method after 0 to `n_steps` steps, `(steps + 1, runs, n, dim)`."""
        x = torch.as_tensor(
            np.stack([starts(self.problem, self.config, run.seed) for run in self.runs]), device=self.device
        )
        places = [x]
        for step in range(n_steps):
            t = torch.full((1, 1, 1), step / n_steps, device=self.device)
            places.append(places[-1] + self.velocity(places[-1], t) / n_steps)
        return torch.stack(places)

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])

    def finish(self, stem: Path) -> None:
        """Leave where the flows lead, how bent their paths are, and something to draw."""
        config = self.config
        paths = self.paths(EULER_STEPS[-1])
        ends = [*(self.paths(steps)[-1] for steps in EULER_STEPS[:-1]), paths[-1]]
        # Of the first seed.
        shown = paths[:: EULER_STEPS[-1] // PATH_STEPS, :: config.n_seeds, : config.n_paths, :2]
        left = {"points": torch.stack(ends), "paths": shown, **bends(paths)}
        files = {name: part.cpu().numpy() for name, part in left.items()}
        if self.problem.to_images is not None:
            first = files["points"][:, :: config.n_seeds, : config.n_images]
            images = self.problem.to_images(first.reshape(-1, self.problem.dim))
            files["images"] = images.reshape(*first.shape[:-1], *images.shape[1:])
        with replacing(stem.with_suffix(".npz")) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **files)


def bends(paths: Tensor) -> dict[str, Tensor]:
    """How far paths `(steps + 1, runs, n, dim)` are from straight lines at constant speed, `(runs,)` each.

    `bend` is the mean squared difference of the velocity from the way that is made in all, over the mean square
    of that (Liu, Gong and Liu 2023); `length` is the mean length of paths over that of straight ones.
    """
    moves = paths.diff(dim=0)
    whole = paths[-1] - paths[0]
    strays = (len(moves) * moves - whole).square().sum(dim=-1).mean(dim=(0, 2))
    lengths = moves.norm(dim=-1).sum(dim=0)
    return {
        "bend": strays / whole.square().sum(dim=-1).mean(dim=-1),
        "length": lengths.mean(dim=-1) / whole.norm(dim=-1).mean(dim=-1),
    }
