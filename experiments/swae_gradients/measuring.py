"""How much gradients vary from draw to draw, and what a draw costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.autoencoder import AutoEncoder, make_loss
from experiments.swae_gradients.config import Config, Measurement, list_measurements


class Measuring:
    """A training that stops at some sweeps; a unit is one measurement, and the sweeps before it if need be."""

    def __init__(self, training: AutoEncoder, config: Config) -> None:
        self.training, self.config = training, config
        self.measurements = list_measurements(config)
        self.n_sweeps = 0

    def advance(self, n_done: int) -> dict[str, Any]:
        """The next row."""
        wanted = self.measurements[n_done]
        while self.n_sweeps < wanted.sweep:
            self.training.advance(self.n_sweeps)
            self.n_sweeps += 1
        draw, call = self._gradients(wanted)
        repeats = self.config.n_code_repeats if wanted.of == "codes" else self.config.n_encoder_repeats
        found = spread(torch.stack([draw() for _ in range(repeats)]))
        return {**wanted._asdict(), "n_repeats": repeats, **found, "ms": self._milliseconds(call)}

    def _gradients(self, wanted: Measurement) -> tuple[Callable[[], Tensor], Callable[[], Any]]:
        """What draws a gradient, as a vector, and what draws that of the distance by the codes alone."""
        training, recipe = self.training, self.training.recipe
        # The same images, codes of the prior and seeds for all estimators.
        generator = torch.Generator(training.device).manual_seed(recipe.seed)
        loss = make_loss("sliced", wanted.estimator, wanted.n_directions, recipe.seed).to(training.device)
        chosen = torch.arange(recipe.batch_size, device=training.device)
        prior = training.draw_prior(generator)
        weights = list(training.encoder.parameters())
        codes = training.encoder(training.batch(chosen))
        constant = codes.detach()

        def by_codes() -> Tensor:
            gradient: Tensor = loss.value_and_grad(constant, prior)[1]
            return gradient

        def by_encoder() -> Tensor:
            parts = torch.autograd.grad(codes, weights, by_codes(), retain_graph=True)
            return torch.cat([part.flatten() for part in parts])

        def of_whole_loss() -> Tensor:
            size = (recipe.batch_size,)
            images = torch.randint(recipe.n_images, size, generator=generator, device=training.device)
            parts = torch.autograd.grad(training.parts_of_loss(images, loss, generator).sum(), weights)
            return torch.cat([part.flatten() for part in parts])

        if wanted.varies == "everything":
            return of_whole_loss, by_codes
        return (by_encoder if wanted.of == "encoder" else lambda: by_codes().flatten()), by_codes

    def _milliseconds(self, call: Callable[[], Any]) -> float:
        """Of one call, after others have warmed it up."""
        wait: Callable[[], Any] = torch.cuda.synchronize if self.training.device != "cpu" else int
        wait()
        start = time.perf_counter()
        for _ in range(self.config.n_timed):
            call()
        wait()
        return 1e3 * (time.perf_counter() - start) / self.config.n_timed

    def state_dict(self) -> dict[str, Any]:
        """Where the training is."""
        return {"training": self.training.state_dict(), "n_sweeps": self.n_sweeps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.training.load_state_dict(state["training"])
        self.n_sweeps = state["n_sweeps"]

    def finish(self, stem: Path) -> None:
        """Nothing is left but rows and state."""


def spread(draws: Tensor) -> dict[str, float]:
    """The mean squared deviation of vectors `(draws, dim)` from their mean, with its standard error.

    `squared_mean` is the squared length of their true mean, estimated without bias.
    """
    n, mean = len(draws), draws.mean(dim=0)
    squares = (draws - mean).square().sum(dim=1).double() * n / (n - 1)
    variance = squares.mean().item()
    return {
        "variance": variance,
        "variance_stderr": (squares.std() / n**0.5).item(),
        "squared_mean": mean.square().sum().item() - variance / n,
    }
