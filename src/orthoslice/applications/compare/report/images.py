"""Two folders of images as images: their means, the difference of these, and what has the farthest to go."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orthoslice.applications.columns import number
from orthoslice.applications.compare.compare import UNITS
from orthoslice.applications.match.match import match
from orthoslice.backend.arrays import HostArray
from orthoslice.backend.markup import escaped

if TYPE_CHECKING:
    from orthoslice.applications.compare.comparison import Comparison

_PIXEL = re.compile(r"pixel (\d+),(\d+)( red| green| blue)?")

# The most pixels that a side of a shown image has.
_MOST_SIDE = 128

# How many images of each table are paired, and how many pairs are shown.
_PAIRED, _SHOWN = 500, 4

# Brighter and darker in the second table, and what is between them.
_BRIGHTER, _DARKER, _EQUAL = (np.array(c, dtype=float) for c in ((192, 78, 0), (0, 114, 178), (255, 255, 255)))

# Between two images side by side.
_BETWEEN = np.full(3, 128.0)


class Shape(NamedTuple):
    """How the features of a table are the pixels of an image."""

    height: int
    width: int
    n_channels: int


def image_shape(found: Comparison) -> Shape | None:
    """The shape of images, as the names of their pixels say it; None for other tables and for other units."""
    last = _PIXEL.fullmatch(str(found.features[-1]))
    if last is None or found.units != UNITS:
        return None
    shape = Shape(int(last[1]) + 1, int(last[2]) + 1, 1 if last[3] is None else 3)
    is_whole = math.prod(shape) == len(found.features)
    return shape if is_whole and all(_PIXEL.fullmatch(str(name)) for name in found.features) else None


def render_images(found: Comparison, shape: Shape) -> str:
    """The mean images, their difference, and pairs of images that have the farthest to go."""
    a, b = found.names
    rows = (found.x, found.x_weights), (found.y, found.y_weights)
    means = [np.average(np.asarray(points), axis=0, weights=weights) for points, weights in rows]
    gap = (means[1] - means[0]).reshape(shape).mean(axis=2)
    most = float(np.abs(gap).max())
    parts = (gap / (most or 1.0))[..., None]
    coloured = _EQUAL + np.maximum(parts, 0) * (_BRIGHTER - _EQUAL) + np.maximum(-parts, 0) * (_DARKER - _EQUAL)
    drawn = [
        _figure(f"Mean of {a}", _grey_or_colour(means[0], found, shape), f"of {len(found.x):,} images"),
        _figure(f"Mean of {b}", _grey_or_colour(means[1], found, shape), f"of {len(found.y):,} images"),
        _figure(
            "Difference of the means",
            coloured,
            f"orange where {b} is brighter, blue where it is darker, by up to {number(most)}",
        ),
    ]
    pairs = list(_farthest(found, shape)) if found.x_weights is None and found.y_weights is None else []
    few = min(_PAIRED, len(found.sample_x), len(found.sample_y))
    told = (
        f"<p>{few:,} images of each were paired so that they have little way to go. These pairs, "
        f"{escaped(a)} on the left, have the farthest:</p>\n"
    )
    return _grid(drawn) + (told + _grid(pairs) if pairs and not found.is_equal else "")


def _farthest(found: Comparison, shape: Shape) -> Iterator[str]:
    few = min(_PAIRED, len(found.sample_x), len(found.sample_y))
    x, y = (np.asarray(points[:few], dtype=np.float64) for points in (found.sample_x, found.sample_y))
    coupling = match(x, y, rng=found.seed)
    apart = np.linalg.norm(x[coupling.ix] - y[coupling.iy], axis=1)
    for k in np.argsort(-apart, kind="stable")[:_SHOWN]:
        both = [_grey_or_colour(points, found, shape) for points in (x[coupling.ix[k]], y[coupling.iy[k]])]
        between = np.tile(_BETWEEN, (shape.height, max(1, shape.width // 8), 1))
        yield _figure(f"{number(apart[k])} apart", np.concatenate([both[0], between, both[1]], axis=1), "")


def _grey_or_colour(row: HostArray, found: Comparison, shape: Shape) -> HostArray:
    """A row of pixels as an image `(height, width, 3)` from 0 to 255."""
    low, high = (float(f([f(found.sample_x), f(found.sample_y)])) for f in (np.min, np.max))
    low, high = min(low, 0.0), max(high, 255.0 if high > 1 else 1.0)
    pixels = 255 * (np.asarray(row, dtype=np.float64).reshape(shape) - low) / (high - low)
    return np.broadcast_to(pixels, (*shape[:2], 3))


def _figure(title: str, pixels: HostArray, caption: str) -> str:
    told = f"<p>{escaped(caption)}</p>" if caption else ""
    step = math.ceil(max(pixels.shape[:2]) / _MOST_SIDE)
    data = base64.b64encode(encode_png(pixels[::step, ::step])).decode()
    image = f'<img alt="{escaped(title)}" src="data:image/png;base64,{data}">'
    return f"<figure>\n<figcaption><h3>{escaped(title)}</h3>{told}</figcaption>\n{image}\n</figure>\n"


def _grid(figures: list[str]) -> str:
    return f'<div class="figures images">\n{"".join(figures)}</div>\n'


def encode_png(pixels: HostArray) -> bytes:
    r"""Pixels `(height, width, 3)` from 0 to 255 as a PNG file.

    Examples
    --------
    >>> encode_png(np.zeros((2, 3, 3)))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    octets = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    height, width, _ = octets.shape
    # Each line begins with the number of its filter, none.
    lines = b"".join(b"\0" + line.tobytes() for line in octets)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
