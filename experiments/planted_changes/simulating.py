"""Pairs of tables with and without a change, and which methods call them different; kept as they are done."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.planted_changes.changes import CHANGES, Planted, nothing
from experiments.planted_changes.detectors import METHODS, OTHERS, OURS, detect, detect_otherwise
from experiments.planted_changes.tables import TABLES, Table, n_rows, some_rows
from experiments.processes import as_done
from experiments.trainings import Row, read_rows, write_rows

NOTHING = "nothing"

SIDES = {"ours": ((OURS,), detect), "others": (OTHERS, detect_otherwise)}
"""Who is asked about a pair: after a change of ours, the others need not be asked again."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How many pairs of tables are drawn, and how they are tested."""

    n_pairs: int = 10
    """With each change."""
    n_unchanged: int = 190
    """Of each table, without a change."""
    n_unchanged_slow: int = 25
    """Of each table in `SLOW` instead: 1,000 of all seven together."""
    n_unchanged_others: int = 10
    """Of each table for the other methods."""
    n_permutations: int = 999
    """Which the command line takes too."""
    tables: tuple[str, ...] = tuple(TABLES)
    chunk: int = 5
    """Pairs between which what is done is kept."""
    is_kept: bool = True
    """Whether it is kept under `build/` and taken up again, and uses all cores; a small run does neither."""
    seed: int = 20190416


SLOW = ("sensors", "many customers")
"""Tables whose test takes seconds."""

SMOKE = Config(
    n_pairs=3,
    n_unchanged=12,
    n_unchanged_others=12,
    n_permutations=59,
    tables=("wine",),
    chunk=6,
    is_kept=False,
)


class Chunk(NamedTuple):
    """Consecutive pairs of one case, and who is asked about them."""

    side: str
    table: str
    change: str
    first: int
    count: int


def cases(config: Config) -> list[Planted]:
    """All changes, and every table without one."""
    unchanged = [Planted(table, NOTHING, nothing) for table in config.tables]
    return [*(own for own in CHANGES if own.table in config.tables), *unchanged]


def n_pairs(config: Config, case: Planted, side: str) -> int:
    if case.name != NOTHING:
        return config.n_pairs
    if side == "others":
        return config.n_unchanged_others
    return config.n_unchanged_slow if case.table in SLOW else config.n_unchanged


def draw_pair(case: Planted, seed: int, number: int) -> tuple[Table, Table]:
    """Two tables of one law, the second of them changed."""
    # Cases are told apart by their names: more of them leave the others as they are.
    rng = np.random.default_rng([seed, zlib.crc32(f"{case.table}: {case.name}".encode()), number])
    n = TABLES[case.table].n_rows
    both = TABLES[case.table].draw(rng, 2 * n)
    assert n_rows(both) == 2 * n
    return some_rows(both, slice(n)), case.apply(rng, some_rows(both, slice(n, None)))


def simulate(config: Config, chunk: Chunk) -> Row:
    """In how many pairs of a chunk each method finds a difference; None for methods that are not installed."""
    (case,) = (own for own in cases(config) if (own.table, own.name) == (chunk.table, chunk.change))
    methods, ask = SIDES[chunk.side]
    pairs = range(chunk.first, chunk.first + chunk.count)
    found = [ask(*draw_pair(case, config.seed, k), config.n_permutations, k) for k in pairs]
    hits = {m: [int(hit) for own in found if (hit := own[m]) is not None] for m in methods}
    return chunk._asdict() | {m: sum(own) if own else None for m, own in hits.items()}


def count_found(config: Config, folder: Path) -> dict[Planted, Row]:
    """How often every method finds every change; chunks that the folder holds are not simulated again."""
    found: dict[Planted, Row] = {case: dict.fromkeys(METHODS, 0) for case in cases(config)}
    for side, (methods, _) in SIDES.items():
        for case, row in _done_chunks(config, side, folder / f"{side}.csv"):
            for method in methods:
                before, own = found[case][method], row[method]
                found[case][method] = None if before is None or own is None else before + own
    return found


def _done_chunks(config: Config, side: str, path: Path) -> list[tuple[Planted, Row]]:
    """The rows of all chunks of one side; those that are in the file are not simulated again."""
    chunks = {
        Chunk(side, own.table, own.name, first, min(config.chunk, n_pairs(config, own, side) - first)): own
        for own in cases(config)
        for first in range(0, n_pairs(config, own, side), config.chunk)
    }
    kept = read_rows(path) if path.exists() else []
    done = {Chunk(*(row[name] for name in Chunk._fields)): row for row in kept}
    # Of all cases something is done when time is over; the longest come first in a round.
    left = sorted((c for c in chunks if c not in done), key=lambda c: (c.first, -TABLES[c.table].n_rows))
    for row in as_done(functools.partial(simulate, config), left, parallel=config.is_kept):
        done[Chunk(*(row[name] for name in Chunk._fields))] = row
        write_rows(path, list(done.values()))
    return [(case, done[chunk]) for chunk, case in chunks.items()]
