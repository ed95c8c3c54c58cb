"""The auto-encoder with codes in the plane, which watches how far out they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.autoencoder import AutoEncoder, Recipe
from experiments.trainings import replacing


class PlaneAutoEncoder(AutoEncoder):
    """A training whose rows have the mean radius of codes, and which leaves codes behind."""

    def __init__(self, recipe: Recipe, n_codes: int, device: str = "cpu", folder: str | None = None) -> None:
        super().__init__(recipe, device, folder)
        self.n_codes = n_codes

    def advance(self, n_done: int) -> dict[str, Any]:
        row = super().advance(n_done)
        return row | {"mean_radius": self.encode(self.n_codes).norm(dim=1).mean().item()}

    def finish(self, stem: Path) -> None:
        with replacing(codes_path(stem)) as partial, partial.open("wb") as file:
            np.save(file, self.encode(self.n_codes).cpu().numpy())


def codes_path(stem: Path) -> Path:
    """Where the codes of a run are: its name may have a point in it, which begins no suffix."""
    return stem.with_name(f"{stem.name}.npy")
