"""Many tables: each against a reference, or each group of one table against all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

from orthoslice.applications.columns import ColumnChange, adjust
from orthoslice.applications.compare.words import Section, is_open, looked_at, rows_in_words, small_pvalue
from orthoslice.backend.markup import shown
from orthoslice.check.options import check_memory
from orthoslice.cli import running, schema
from orthoslice.cli.options import Drawing, Reading
from orthoslice.cli.rows import Rows
from orthoslice.cli.tables import Loaded, pieces_of

# The most columns that are named of a table.
_SHOWN_COLUMNS = 3


class Batch(NamedTuple):
    """A table that was compared with another."""

    name: str
    n_rows: int
    pvalue: float
    adjusted: float
    """The p-value adjusted for the number of tables (Holm)."""
    columns: tuple[ColumnChange, ...]
    least: float
    """The smallest p-value that so many rows and shuffles can have."""


Pairs = Callable[[running.Answer, int], Iterator[running.Answer]]


def each_against_first(answer: running.Answer, memory: int) -> Iterator[running.Answer]:
    """Every table but the first, after the first."""
    first, *others = answer.tables
    for table in others:
        yield replace(answer, tables=[first, table])


def each_against_others(answer: running.Answer, memory: int) -> Iterator[running.Answer]:
    """Every table, after all others together."""
    for table in answer.tables:
        yield replace(answer, tables=[_together([t for t in answer.tables if t is not table], memory), table])


def _together(tables: list[Loaded], memory: int) -> Loaded:
    """The rows of several tables as one."""
    first = tables[0]
    tallies = [table.tally for table in tables if table.tally is not None]
    with Rows("the others", first.points.dtype, memory // 4) as rows:
        for table in tables:
            for piece in pieces_of(table.points, memory):
                rows.add(piece)
        points = rows.whole(first.points.shape[1])
    return replace(first, name="the others", points=points, tally=reduce(lambda a, b: a.merged(b), tallies))


def compare_batches(
    answer: running.Answer, pairs: Pairs, reading: Reading, drawing: Drawing, options: dict[str, Any]
) -> list[Batch]:
    """Test every pair, and adjust the p-values for their number."""
    found: list[Batch] = []
    with running.status("Testing") as progress:
        for pair in pairs(answer, check_memory(reading.memory)):
            batch = pair.tables[1]
            progress(f"Testing {batch.name} ({len(found) + 1:,})")
            ready = running.prepare(pair, reading, drawing, **options)
            compared = ready.finish({"test": ready.work_out("test")})
            assert compared.pvalue is not None
            # Columns of samples are compared by all rows, whose p-values have no least one.
            least = (
                0.0 if compared.is_sampled else max(compared.least_pvalue, 1 / (options["n_permutations"] + 1))
            )
            found.append(Batch(batch.name, len(batch.points), compared.pvalue, 1.0, compared.columns, least))
    adjusted = adjust([batch.pvalue for batch in found])
    return [batch._replace(adjusted=p) for batch, p in zip(found, adjusted, strict=True)]


def tell_batches(
    batches: list[Batch],
    reference: str | None,
    level: float,
    left_out: Mapping[str, str],
    dropped: Mapping[str, int],
) -> list[Section]:
    """The batches in words, those that differ most surely first; without `reference` each from all others."""
    other = "the others" if reference is None else reference
    different = [b for b in batches if b.adjusted <= level]
    width = max(len(shown(b.name)) for b in batches)
    lines = []
    # P-values of permutations tie at their least one: the larger change then comes first.
    for batch in sorted(
        batches, key=lambda b: (b.adjusted, -max((c.distance for c in b.columns), default=0.0))
    ):
        changed = [c for c in batch.columns if c.pvalue is not None and c.pvalue <= level]
        told = "no difference was found"
        if is_open(batch.adjusted, level, least := batch.least * len(batches)):
            few = f": so few rows or shuffles give no p below {least:.2g} among so many tables"
            told = f"it cannot be told{few * (least > level)}"
        if batch.adjusted <= level:
            some = [f"{shown(c.name)}: {c.in_words(other, batch.name)}" for c in changed[:_SHOWN_COLUMNS]]
            told = "; ".join(some) if some else "columns differ together, none of them alone"
            left = len(changed) - len(some)
            told += f"; and {left} more column{'s' * (left > 1)}" if left else ""
        size = rows_in_words(batch.n_rows)
        lines.append(f"{shown(batch.name):{width}}  {size:>14}  {small_pvalue(batch.adjusted)}  {told}")
    lines.append(f"(p is adjusted for the number of tables, {len(batches)}. Columns are compared by all rows.)")
    if reference is None and len(different) > 1:
        lines.append(
            "(Each is compared with all others together. One that is different is a part of them, and makes "
            "the rest seem different too. Of equal p, the one with the largest change comes first.)"
        )
    answer = f"No difference was found{looked_at(len(batches[0].columns), left_out, dropped)}."
    if different:
        answer = f"{len(different)} of {len(batches)} do."
    elif any(is_open(b.adjusted, level, b.least * len(batches)) for b in batches):
        answer = "It cannot be told."
    return [Section(f"Which differ from {shown(other)}?", shown(answer), tuple(lines))]


def of_batches(batches: list[Batch], level: float) -> dict[str, Any]:
    """The batches as a part of the record."""
    return {
        "verdict": schema.of_verdict(min(b.adjusted for b in batches), level),
        "batches": [
            {
                "name": b.name,
                "rows": b.n_rows,
                "pvalue": b.pvalue,
                "adjusted_pvalue": b.adjusted,
                "different": b.adjusted <= level,
                "columns": [schema.of_change(change, level) for change in b.columns],
            }
            for b in batches
        ],
    }
