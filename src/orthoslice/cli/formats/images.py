"""Folders of images: every image is a row, every pixel a column."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray
from orthoslice.cli.formats.source import (
    FileError,
    How,
    Source,
    check_quarter,
    check_width,
    guarded,
    need,
    piece_rows,
    reading,
)

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

# What a pixel takes while an image is decoded, and brought to another mode.
_PIXEL_BYTES = 8


def open_images(name: str, folder: Path, how: How) -> Source:
    resize, memory = how.resize, how.memory
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in _IMAGES)
    if not files:
        raise FileError(f"{name}: is a folder without images ({', '.join(_IMAGES)}).")
    pil = need("PIL.Image", "data", "Reading images")
    facts = [_read_header(pil, file, memory) for file in files]
    size = resize or facts[0].size
    for file, image in zip(files, facts, strict=True):
        if resize is None and image.size != size:
            raise FileError(
                f"{file}: images must be of one size; got {image.size[0]}x{image.size[1]} beside "
                f"{size[0]}x{size[1]}. Pass --resize WIDTHxHEIGHT."
            )
        if image.is_deep != facts[0].is_deep:
            raise FileError(
                f"{file}: images must be all of 8 bits or all of more; got mode {image.mode} beside "
                f"{facts[0].mode}."
            )
    grey = all(image.is_deep or image.mode in ("1", "L", "LA") for image in facts)
    channels = [""] if grey else [" red", " green", " blue"]
    check_width(name, size[0] * size[1] * len(channels), memory, "pass a smaller --resize WIDTHxHEIGHT")
    columns = [f"pixel {r},{c}{k}" for r in range(size[1]) for c in range(size[0]) for k in channels]
    step = piece_rows(memory, len(columns))

    def pieces(chosen: list[int]) -> Iterator[HostArray]:
        for start in range(0, len(files), step):
            rows = [_pixels(pil, f, size, grey) for f in files[start : start + step]]
            yield np.stack(rows)[:, chosen]

    n_clear, n_moving = sum(image.is_clear for image in facts), sum(image.moves for image in facts)
    notes = []
    if n_clear:
        notes.append(f"{name}: transparency is left out ({n_clear:,} of {len(files):,} images have it).")
    if n_moving:
        notes.append(f"{name}: first frames count alone ({n_moving:,} of {len(files):,} images have several).")
    return Source(name, columns, lambda chosen: guarded(name, "images", pieces(chosen)), notes=tuple(notes))


class _ImageFacts(NamedTuple):
    """What the header of an image says."""

    size: tuple[int, int]
    mode: str
    is_clear: bool
    """Whether parts of it may be transparent."""
    moves: bool
    """Whether it has more frames than one."""

    @property
    def is_deep(self) -> bool:
        """Whether pixels are grey in more than 8 bits, which colours would clip."""
        return self.mode.startswith("I") or self.mode == "F"


def _read_header(pil: Any, file: Path, memory: int) -> _ImageFacts:
    """What the header of an image says, if the image fits in memory."""
    with reading(str(file), "an image"):
        if not stat.S_ISREG(file.stat().st_mode):
            raise FileError(f"{file}: must be a plain file, as images are.")
        with pil.open(file) as image:
            if image.width * image.height > pil.MAX_IMAGE_PIXELS:
                raise FileError(
                    f"{file}: is larger than {pil.MAX_IMAGE_PIXELS:,} pixels; make it smaller first."
                )
            what = f"an image of {image.width}x{image.height} pixels"
            taken = _PIXEL_BYTES * image.width * image.height
            check_quarter(str(file), what, taken, memory, "make it smaller first")
            is_clear = image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info
            return _ImageFacts(image.size, image.mode, is_clear, getattr(image, "n_frames", 1) > 1)


def _pixels(pil: Any, file: Path, size: tuple[int, int], grey: bool) -> HostArray:
    """The pixels of an image in a row, from 0 to 255 where it has 8 bits."""
    with reading(str(file), "an image"), pil.open(file) as image:
        is_plain = grey and image.mode not in ("1", "LA")
        plain = image if is_plain else image.convert("L" if grey else "RGB")
        if plain.size != size:
            plain = plain.convert("F").resize(size) if plain.mode.startswith("I") else plain.resize(size)
        return np.asarray(plain, dtype=np.float32).ravel()
