"""Folders of images: every image is a row, every pixel a column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from orthoslice.cli.sources import (
    FileError,
    Source,
    check_quarter,
    check_width,
    guarded,
    need,
    piece_rows,
    reading,
)
from orthoslice.labels import Table

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

# What a pixel takes while an image is decoded, and brought to another mode.
_PIXEL_BYTES = 8


def open_images(name: str, folder: Path, resize: tuple[int, int] | None, memory: int) -> Source:
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in _IMAGES)
    if not files:
        raise FileError(f"{name}: is a folder without images ({', '.join(_IMAGES)}).")
    pil = need("PIL.Image", "data", "Reading images")
    first = _look(pil, files[0], memory)
    size = resize or first[0]
    modes = set()
    for file in files:
        found, mode = _look(pil, file, memory)
        modes.add(mode)
        if resize is None and found != size:
            raise FileError(
                f"{file}: images must be of one size; got {found[0]}x{found[1]} beside {size[0]}x{size[1]}. "
                "Pass --resize WIDTHxHEIGHT."
            )
    grey = modes <= {"1", "L", "LA", "I", "I;16", "F"}
    channels = [""] if grey else [" red", " green", " blue"]
    check_width(name, size[0] * size[1] * len(channels), memory, "pass a smaller --resize WIDTHxHEIGHT")
    columns = [f"pixel {r},{c}{k}" for r in range(size[1]) for c in range(size[0]) for k in channels]
    step = piece_rows(memory, len(columns))

    def pieces(chosen: list[int]) -> Iterator[Table]:
        for start in range(0, len(files), step):
            rows = [_pixels(pil, f, size, grey) for f in files[start : start + step]]
            yield np.stack(rows)[:, chosen]

    return Source(name, columns, lambda chosen: guarded(name, "images", pieces(chosen)))


def _look(pil: Any, file: Path, memory: int) -> tuple[tuple[int, int], str]:
    """Width, height and mode of an image that fits in memory, from its header."""
    with reading(str(file), "an image"), pil.open(file) as image:
        if image.width * image.height > pil.MAX_IMAGE_PIXELS:
            raise FileError(f"{file}: is larger than {pil.MAX_IMAGE_PIXELS:,} pixels; make it smaller first.")
        taken = _PIXEL_BYTES * image.width * image.height
        what = f"an image of {image.width}x{image.height} pixels"
        check_quarter(str(file), what, taken, memory, "make it smaller first")
        return image.size, image.mode


def _pixels(pil: Any, file: Path, size: tuple[int, int], grey: bool) -> Table:
    """The pixels of an image in a row, from 0 to 255 where it has 8 bits."""
    with reading(str(file), "an image"), pil.open(file) as image:
        plain = (
            image if grey and image.mode in ("L", "I", "I;16", "F") else image.convert("L" if grey else "RGB")
        )
        if plain.size != size:
            plain = plain.convert("F").resize(size) if plain.mode.startswith("I") else plain.resize(size)
        return np.asarray(plain, dtype=np.float32).ravel()
