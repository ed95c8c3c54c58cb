"""Independent blocks of directions: their layout, their means and what those are worth."""

from __future__ import annotations

import bisect
import functools
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray

# Blocks up to which layouts keep tables of all their blocks.
_MOST_KEPT = 1 << 12


class Run(NamedTuple):
    """Consecutive blocks of one size.

    Examples
    --------
    >>> import orthoslice as osl
    >>> osl.directions.Orthogonal().runs(10, dim=4)
    (Run(n_blocks=2, rows=4), Run(n_blocks=1, rows=2))
    """

    n_blocks: int
    rows: int


def whole_blocks(n_directions: int, rows: int) -> tuple[Run, ...]:
    """As many blocks of this size as fit, and one with the rows that are left."""
    count, left = divmod(n_directions, rows)
    runs = (Run(count, rows), Run(1, left))
    return tuple(run for run in runs if run.n_blocks and run.rows)


@functools.lru_cache(maxsize=256)
def layout_of(runs: tuple[Run, ...], unit_blocks: int = 1, is_stepped: bool = False) -> Layout:
    """A layout, perhaps one that was made before and has its tables already."""
    return Layout(runs, unit_blocks, is_stepped)


class _kept_if_short(functools.cached_property[HostArray]):
    """A table of a layout that is worked out once, unless it is long: layouts are kept beyond a call."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> HostArray:  # type: ignore[override]
        if instance is not None and instance.n_blocks > _MOST_KEPT:
            return self.func(instance)
        table: HostArray = super().__get__(instance, owner)
        return table


@dataclass(frozen=True)
class Layout:
    """How directions are grouped: runs of equal blocks, and `unit_blocks` blocks to an independent unit.

    Blocks that do not fill a unit belong to the last one.

    Examples
    --------
    >>> layout = Layout((Run(2, 16), Run(1, 1)))
    >>> layout.n_directions, layout.n_blocks, layout.unit_rows.tolist()
    (33, 3, [16, 16, 1])
    """

    runs: tuple[Run, ...]
    unit_blocks: int = 1
    is_stepped: bool = False
    """Whether the rows of a unit go once round a circle on which scores are constant between jumps."""

    @_kept_if_short
    def block_rows(self) -> HostArray:
        """Rows of every block."""
        counts, rows = zip(*self.runs, strict=True)
        return np.repeat(rows, counts)

    @_kept_if_short
    def unit_rows(self) -> HostArray:
        """Rows of every unit."""
        if self.unit_blocks == 1:
            return self.block_rows
        starts = np.arange(self.n_units) * self.unit_blocks
        return np.add.reduceat(self.block_rows, starts)

    @_kept_if_short
    def unit_ends(self) -> HostArray:
        """After how many rows every unit ends, with a 0 before the first."""
        return np.concatenate([[0], np.cumsum(self.unit_rows)])

    @functools.cached_property
    def size_changes(self) -> list[int]:
        """The blocks at which another size begins, and last the number of all blocks."""
        sizes = [run.rows for run in self.runs]
        ends = itertools.accumulate(run.n_blocks for run in self.runs)
        return [end for end, a, b in zip(ends, sizes, [*sizes[1:], 0], strict=True) if a != b]

    @functools.cached_property
    def n_directions(self) -> int:
        return sum(n * rows for n, rows in self.runs)

    @functools.cached_property
    def n_blocks(self) -> int:
        return sum(run.n_blocks for run in self.runs)

    @functools.cached_property
    def n_units(self) -> int:
        return max(1, self.n_blocks // self.unit_blocks)

    @functools.cached_property
    def longest_block(self) -> int:
        return max(run.rows for run in self.runs)

    def rows_between(self, first_unit: int, stop_unit: int) -> int:
        """Rows of the units from the first up to, and without, the other."""
        return self._rows_before(stop_unit) - self._rows_before(first_unit)

    def _rows_before(self, unit: int) -> int:
        if unit == self.n_units:
            return self.n_directions
        block = unit * self.unit_blocks
        run = bisect.bisect_right(self._run_starts, block) - 1
        return self._run_rows[run] + (block - self._run_starts[run]) * self.runs[run].rows

    @functools.cached_property
    def _run_starts(self) -> list[int]:
        """Blocks before every run."""
        return [0, *itertools.accumulate(run.n_blocks for run in self.runs[:-1])]

    @functools.cached_property
    def _run_rows(self) -> list[int]:
        """Rows before every run."""
        return [0, *itertools.accumulate(run.n_blocks * run.rows for run in self.runs[:-1])]

    def first(self, n_units: int) -> Layout:
        """The layout of the first units only."""
        if n_units >= self.n_units:
            return self
        runs, left = [], n_units * self.unit_blocks
        for run in self.runs:
            count = min(run.n_blocks, left)
            left -= count
            if count:
                runs.append(Run(count, run.rows))
        return Layout(tuple(runs), self.unit_blocks, self.is_stepped)
