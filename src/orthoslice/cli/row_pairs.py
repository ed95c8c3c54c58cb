"""Pairs of rows, and where they are written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from orthoslice.applications.match.match import match, match_bytes
from orthoslice.backend.array_types import HostArray
from orthoslice.backend.writing import replacing
from orthoslice.check.options import check_memory
from orthoslice.cli.formats.source import FileError, split
from orthoslice.cli.options import Drawing, Reading
from orthoslice.cli.tables import Loaded
from orthoslice.clouds.cloud import Cloud


def check_output(output: Path, suffixes: Sequence[str], inputs: Sequence[str]) -> None:
    """Raise unless a file may be written there, before anything takes long."""
    if output.suffix.lower() not in suffixes:
        raise FileError(f"{output}: the output must end with {' or '.join(suffixes)}.")
    # Of a link, the folder where the file is.
    folder = Path(os.path.realpath(output)).parent
    if not folder.is_dir():
        raise FileError(f"{output}: there is no folder {folder} to write to.")
    if not os.access(folder, os.W_OK):
        raise FileError(f"{output}: nothing may be written to {folder} (no permission).")
    if output.is_dir() or any(_is_same(output, split(name)[0]) for name in inputs):
        raise FileError(f"{output}: the output must be a file, and none of those that are read.")


def _is_same(output: Path, read: Path) -> bool:
    """Whether these are one file, whatever they are called."""
    return output.exists() and read.exists() and output.samefile(read)


def write_pairs(tables: list[Loaded], reading: Reading, drawing: Drawing, output: Path) -> dict[str, Any]:
    """Pair the rows of two tables, write the pairs, and say what they cost."""
    a, b = tables
    room, p = check_memory(reading.memory), 2.0 if drawing.p is None else drawing.p
    # Half of the memory holds the tables that were read.
    size = 2 * sum(match_bytes(Cloud(a.points, a.weights), Cloud(b.points, b.weights)))
    if size > room:
        raise FileError(f"A plan takes all rows in memory, about {size:,} bytes; raise --memory to that.")
    coupling = match(
        np.asarray(a.points),
        np.asarray(b.points),
        p,
        x_weights=a.weights,
        y_weights=b.weights,
        directions=drawing.directions.value,
        n_directions=drawing.n_directions,
        rng=drawing.seed,
        memory=room // 2,
    )
    apart = np.linalg.norm(
        cast(HostArray, coupling.x[coupling.ix]).astype(np.float64) - coupling.y[coupling.iy], axis=1
    )
    pairs = {"row_a": coupling.ix, "row_b": coupling.iy, "mass": coupling.mass, "distance": apart}
    with replacing(output) as file:
        if output.suffix.lower() == ".npz":
            np.savez_compressed(file, **pairs)
        else:
            numbers, formats = np.column_stack(list(pairs.values())), ("%d", "%d", "%.17g", "%.17g")
            np.savetxt(file, numbers, fmt=formats, delimiter=",", header=",".join(pairs), comments="")
    cost = float(coupling.cost(p))
    return {"path": str(output), "n_pairs": len(apart), "p": p, "cost": cost, "distance": cost ** (1 / p)}
