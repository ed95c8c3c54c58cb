"""The auto-encoder of figures 3 and 5: its network, the law of its codes, and a training of it.

The network is that of Kolouri et al., "Sliced-Wasserstein Autoencoder" (2018), made for images of 32 x 32, with
what Keras does by default: weights of Glorot and Bengio, RMSprop that forgets by 0.9. One thing differs:
the bias of the last layer, see :meth:`Decoder.start_grey`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

import orthoslice as osl
from experiments.data import images_on

PrecisionName: TypeAlias = Literal["bf16", "tf32"]
PriorName: TypeAlias = Literal["cube", "disc"]
DistanceName: TypeAlias = Literal["sliced", "projected", "law"]
"""SW_1 or PW_1 to as many points of the prior as there are codes, or SW_1 to the law of the prior itself."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that one training depends on, but for where it runs."""

    data: str
    distance: DistanceName
    directions: str
    n_directions: int
    learning_rate: float
    seed: int
    code_dim: int
    prior: PriorName
    n_images: int = 50_000
    batch_size: int = 500
    depth: int = 16
    """Channels of the first convolutions; the others have multiples of it."""
    precision: PrecisionName = "bf16"
    """What convolutions multiply in on a GPU. Weights, dense layers and distances are in single precision."""


class Encoder(nn.Module):
    """Images `(n, 1, 32, 32)` to codes `(n, code_dim)`."""

    def __init__(self, code_dim: int, depth: int, is_half: bool = False) -> None:
        super().__init__()
        self.is_half = is_half
        layers: list[nn.Module] = []
        for before, after in ((1, depth), (depth, 2 * depth), (2 * depth, 4 * depth)):
            layers += [*_convolution(before, after), *_convolution(after, after), nn.AvgPool2d(2)]
        self.convolutions = nn.Sequential(*layers)
        self.dense = nn.Sequential(nn.Linear(64 * depth, 128), nn.ReLU(), nn.Linear(128, code_dim))

    def forward(self, x: Tensor) -> Tensor:
        codes: Tensor = self.dense(_convolve(self.convolutions, x, self.is_half).flatten(1))
        return codes


class Decoder(nn.Module):
    """Codes `(n, code_dim)` to what pixels are before the sigmoid, `(n, 1, 32, 32)`."""

    def __init__(self, code_dim: int, depth: int, is_half: bool = False) -> None:
        super().__init__()
        self.depth, self.is_half = depth, is_half
        # Nothing lies between the two, as in the original.
        self.dense = nn.Sequential(nn.Linear(code_dim, 128), nn.Linear(128, 64 * depth), nn.ReLU())
        layers: list[nn.Module] = []
        for before, after in ((4 * depth, 4 * depth), (4 * depth, 4 * depth), (4 * depth, 2 * depth)):
            layers += [nn.Upsample(scale_factor=2), *_convolution(before, after), *_convolution(after, after)]
        self.convolutions = nn.Sequential(*layers, nn.Conv2d(2 * depth, 1, 3, padding=1))

    def start_grey(self, pixel: float) -> None:
        """Have the first images be as bright as this everywhere, about.

        From 0.5 on, the pixels of the border are the last to become dark, and drag all others to where a
        sigmoid has no slope: with a bias of 0, 27 of 30 trainings were left with black images for good.
        """
        nn.init.constant_(self.convolutions[-1].bias, math.log(pixel / (1 - pixel)))

    def forward(self, codes: Tensor) -> Tensor:
        seeds = self.dense(codes).unflatten(1, (4 * self.depth, 4, 4))
        return _convolve(self.convolutions, seeds.contiguous(memory_format=torch.channels_last), self.is_half)


def _convolve(layers: nn.Module, x: Tensor, is_half: bool) -> Tensor:
    """Apply these layers, which multiply in half precision if so wished; the result is in single precision."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=is_half):
        result: Tensor = layers(x)
    return result.float()


def _convolution(before: int, after: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(before, after, 3, padding=1), nn.LeakyReLU(0.2)


def initialize(network: nn.Module, seed: int) -> None:
    """Uniform weights after Glorot and Bengio, and no bias; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            nn.init.zeros_(module.bias)


LAWS: dict[PriorName, Callable[[int], osl.laws.Law]] = {"cube": osl.laws.Cube, "disc": osl.laws.Ball}
"""What codes follow that :func:`draw_prior` draws."""


def draw_prior(name: PriorName, n: int, dim: int, generator: torch.Generator) -> Tensor:
    """Codes as they should be: uniform on [-1, 1]^dim, or on the unit disc."""
    uniform = torch.rand(n, dim, generator=generator, device=generator.device)
    if name == "cube":
        return 2 * uniform - 1
    # The area within a radius grows with its square.
    radius, angle = uniform[:, 0].sqrt(), 2 * torch.pi * uniform[:, 1]
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def make_loss(
    distance: DistanceName, directions: str, n_directions: int, seed: int, target: osl.laws.Law | None = None
) -> nn.Module:
    """SW_1 or PW_1 with fresh directions at every step."""
    kind: Callable[..., nn.Module] = {
        "sliced": osl.nn.SlicedWassersteinLoss,
        "law": osl.nn.SlicedWassersteinLoss,
        "projected": osl.nn.ProjectedWassersteinLoss,
    }[distance]
    return kind(n_directions, p=1, directions=directions, seed=seed, target=target)


class AutoEncoder:
    """One training of it. Runs with one seed start alike, and see the same batches and codes of the prior."""

    def __init__(self, recipe: Recipe, device: str = "cpu", folder: str | None = None) -> None:
        self.recipe, self.device = recipe, device
        self.images = images_on(device, recipe.data, recipe.n_images, folder)
        on_gpu = torch.device(device).type == "cuda"
        if on_gpu:
            # All batches have one shape: looking for the fastest kernels once pays.
            torch.backends.cudnn.benchmark = True
        size = recipe.code_dim, recipe.depth, on_gpu and recipe.precision == "bf16"
        self.encoder, self.decoder = Encoder(*size), Decoder(*size)
        self.network = nn.ModuleList([self.encoder, self.decoder])
        initialize(self.network, recipe.seed)
        self.decoder.start_grey(self._mean_pixel())
        self.network.to(device, memory_format=torch.channels_last)
        target = LAWS[recipe.prior](recipe.code_dim) if recipe.distance == "law" else None
        loss = make_loss(recipe.distance, recipe.directions, recipe.n_directions, recipe.seed, target)
        self.loss = loss.to(device)
        self.optimizer = torch.optim.RMSprop(
            self.network.parameters(), lr=recipe.learning_rate, alpha=0.9, eps=1e-7
        )
        self.generator = torch.Generator(device).manual_seed(recipe.seed)

    def advance(self, n_done: int) -> dict[str, Any]:
        """One sweep over the images in random order; means of the loss and of its two parts over batches."""
        size = self.recipe.batch_size
        order = torch.randperm(len(self.images), generator=self.generator, device=self.device)
        # Whole batches alone: the distance of a small one would be larger.
        chosen = order[: len(order) // size * size].split(size)
        reconstruction, penalty = torch.stack([self.step(part) for part in chosen]).mean(dim=0).tolist()
        return {
            "sweep": n_done + 1,
            "loss": reconstruction + penalty,
            "reconstruction": reconstruction,
            "penalty": penalty,
        }

    def step(self, chosen: Tensor) -> Tensor:
        """One step with these images; returns both parts of the loss, without waiting for a GPU."""
        parts = self.parts_of_loss(chosen, self.loss, self.generator)
        parts.sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return parts.detach()

    def parts_of_loss(self, chosen: Tensor, loss: nn.Module, generator: torch.Generator) -> Tensor:
        """The mean norm of what is lost of an image, and the distance of the codes to the prior."""
        x = self.batch(chosen)
        codes = self.encoder(x)
        lost = torch.sigmoid(self.decoder(codes)) - x
        # A run that is held to the law draws codes too, so that its batches are those of the others.
        priors = self.draw_prior(generator)
        penalty = loss(codes) if self.recipe.distance == "law" else loss(codes, priors)
        return torch.stack([lost.flatten(1).norm(dim=1).mean(), penalty])

    def draw_prior(self, generator: torch.Generator) -> Tensor:
        """As many codes of the prior as there are images in a batch."""
        return draw_prior(self.recipe.prior, self.recipe.batch_size, self.recipe.code_dim, generator)

    def _mean_pixel(self) -> float:
        """Of images with zeros around."""
        every = torch.arange(min(len(self.images), 10_000), device=self.device)
        return float(self.batch(every).mean())

    def batch(self, chosen: Tensor) -> Tensor:
        """Images `(n, 1, 32, 32)` with pixels from 0 to 1, zeros around."""
        x = functional.pad(self.images[chosen].float() / 255, (2, 2, 2, 2))
        return x.contiguous(memory_format=torch.channels_last)

    def encode(self, n_images: int) -> Tensor:
        """Codes of the first images."""
        every = torch.arange(n_images, device=self.device).split(self.recipe.batch_size)
        with torch.no_grad():
            return torch.cat([self.encoder(self.batch(chosen)) for chosen in every])

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next sweep depends on."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": self.loss.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loss.load_state_dict(state["loss"])
        self.generator.set_state(state["generator"])

    def finish(self, stem: Path) -> None:
        """Nothing is left but rows and state."""
