"""Samples of one law, and how often they are called different: in chunks, which are kept as they are done."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import orthoslice as osl
from experiments.processes import as_done
from experiments.trainings import Row, read_rows, write_rows

FloatArray = NDArray[np.float64]

UNADJUSTED = "parts, not adjusted"
METHODS = ("combined", "columns", UNADJUSTED)


@dataclass(frozen=True, kw_only=True)
class Config:
    """How many pairs of samples are drawn of each law, and how they are tested."""

    n_simulations: int = 2000
    """One percent is then two standard errors."""
    sizes: tuple[int, int] = (60, 45)
    n_permutations: int = 399
    """Of which 255 do where the p-value is large then. 5% of 400 is a whole number, so the level is exact."""
    n_directions: int | None = 8
    """The level does not depend on them."""
    chunk: int = 50
    """Simulations between which what is done is kept."""
    is_kept: bool = True
    """Whether it is kept under `build/` and taken up again, and uses all cores; a small run does neither."""
    seed: int = 20190416


SMOKE = Config(n_simulations=60, sizes=(16, 12), n_permutations=59, n_directions=8, chunk=30, is_kept=False)


def normal(rng: np.random.Generator, n: int) -> FloatArray:
    """Six normal columns that are correlated."""
    return rng.standard_normal((n, 6)) + rng.standard_normal((n, 1))


def heavy_tailed(rng: np.random.Generator, n: int) -> FloatArray:
    """Columns of unlike tails, from normal to one without a mean."""
    return np.column_stack([rng.standard_t(df, size=n) for df in (0.9, 1.5, 2.5, 4.0, 10.0, 100.0)])


def tied(rng: np.random.Generator, n: int) -> FloatArray:
    """Whole numbers from 0 to 3: many rows are equal."""
    return rng.integers(0, 4, size=(n, 3)).astype(np.float64)


def mixed(rng: np.random.Generator, n: int) -> FloatArray:
    """What a table of customers has: amounts, counts, a category as 0 and 1, and columns that hang together."""
    kind = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    size = rng.standard_normal(n) + 0.5 * kind
    others = (size, np.exp(size + rng.standard_normal(n)), rng.poisson(2 + kind), rng.standard_normal(n))
    return np.column_stack([*others, *(kind == k for k in range(3))]).astype(np.float64)


def wide(rng: np.random.Generator, n: int) -> FloatArray:
    """More columns than rows: 200, in ten groups that are correlated."""
    return rng.standard_normal((n, 200)) + np.repeat(rng.standard_normal((n, 10)), 20, axis=1)


TABLES: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "normal": normal,
    "heavy-tailed": heavy_tailed,
    "tied": tied,
    "mixed": mixed,
    "wide": wide,
}


# Those with several features, as `columns` of the test takes them.
COLUMNS = {"mixed": [[0], [1], [2], [3], [4, 5, 6]]}


class Chunk(NamedTuple):
    """Consecutive simulations of one table."""

    table: str
    first: int
    count: int


def simulate(config: Config, chunk: Chunk) -> Row:
    """How many simulations of a chunk each method rejects."""
    number = list(TABLES).index(chunk.table)
    hits = np.zeros(len(METHODS), dtype=np.int64)
    for simulation in range(chunk.first, chunk.first + chunk.count):
        rng = np.random.default_rng([config.seed, number, simulation])
        x, y = (TABLES[chunk.table](rng, n) for n in config.sizes)
        found = osl.two_sample_test(
            x,
            y,
            method="auto",
            columns=COLUMNS.get(chunk.table),
            n_permutations=config.n_permutations,
            n_directions=config.n_directions,
            rng=simulation,
            workers=1,
        )
        assert found.column_pvalues is not None
        smallest = (found.pvalue, found.column_pvalues.min(), min(found.parts.values()))
        hits += np.array(smallest) <= 0.05
    return chunk._asdict() | dict(zip(METHODS, hits.tolist(), strict=True))


def count_rejections(config: Config, folder: Path) -> dict[str, dict[str, int]]:
    """Rejections of every table by every method; chunks that the folder holds are not simulated again."""
    path = folder / "chunks.csv"
    firsts = range(0, config.n_simulations, config.chunk)
    chunks = [
        Chunk(table, first, min(config.chunk, config.n_simulations - first))
        # Tables take turns, so that what is done when time is over is of all of them.
        for first, table in itertools.product(firsts, TABLES)
    ]
    kept = read_rows(path) if path.exists() else []
    done = {Chunk(row["table"], row["first"], row["count"]): row for row in kept}
    left = [chunk for chunk in chunks if chunk not in done]
    for row in as_done(functools.partial(simulate, config), left, parallel=config.is_kept):
        done[Chunk(row["table"], row["first"], row["count"])] = row
        write_rows(path, list(done.values()))
    rows = [done[chunk] for chunk in chunks]
    return {t: {m: sum(row[m] for row in rows if row["table"] == t) for m in METHODS} for t in TABLES}
