"""Networks of several runs, trained at once: each run has its own weights, noise and loss.

Weights of all runs are stacked and multiplied in one call. Gradients of a sum over runs are those of each run,
and Adam treats every weight by itself, so a run comes out as it would alone, up to rounding. What a run is made
of and what it is trained on depends on its own seed, not on the runs beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor


class StackedMLP(torch.nn.Module):
    """Fully connected layers for every run, as `torch.nn.Linear` starts them, with one activation in between.

    Parameters
    ----------
    widths
        Of the input, the hidden layers and the output.
    generators
        One for each run: what its weights are drawn from.
    activation
        Of hidden layers; the output has none.
    """

    def __init__(
        self,
        widths: Sequence[int],
        generators: Sequence[torch.Generator],
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.weights, self.biases = torch.nn.ParameterList(), torch.nn.ParameterList()
        for n_in, n_out in itertools.pairwise(widths):
            weight, bias = (
                torch.stack([_uniform(shape, n_in, generator) for generator in generators])
                for shape in ((n_in, n_out), (1, n_out))
            )
            self.weights.append(torch.nn.Parameter(weight))
            self.biases.append(torch.nn.Parameter(bias))

    def forward(self, x: Tensor) -> Tensor:
        """`x (runs, batch, in)` to `(runs, batch, out)`."""
        last = len(self.weights) - 1
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            x = x if number == last else self.activation(x)
        return x


def _uniform(shape: tuple[int, ...], n_in: int, generator: torch.Generator) -> Tensor:
    bound = n_in**-0.5
    return bound * (2 * torch.rand(shape, generator=generator, device=generator.device) - 1)


def generator_of(device: str, *numbers: int) -> torch.Generator:
    """Random numbers on a device that belong to these numbers: a seed, a run, a purpose, a unit of training.

    One for every unit makes it needless to save where random numbers were when a training is taken up again.
    """
    (seed,) = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(seed) >> 1)
