"""What commands have in common: the files they take, how answers are told, and how they end."""

from __future__ import annotations

from typing import Any

import typer

from orthoslice.cli.options import Deciding, Drawing, Grouping, Printing, Reading


def scale_hint(answer: Any) -> str:
    """How to measure columns in common units; nothing if they are."""
    return "add --standardize" if answer.scale is None else ""


def files_of(a: str, b: str | None, grouping: Grouping) -> tuple[str, ...]:
    """The files of a comparison: two, or one that is split."""
    if grouping.by is None and b is None:
        raise ValueError("Pass two tables, or one with --by COLUMN to compare its groups.")
    if grouping.by is not None and b is not None:
        raise ValueError("--by splits one table; pass one.")
    return (a,) if b is None else (a, b)


def all_parts() -> tuple[str, ...]:
    from orthoslice.applications.compare.compare import PARTS

    return PARTS


def comparison_options(*groups: Any) -> dict[str, Any]:
    """What a comparison takes of these groups of options."""
    found: dict[str, Any] = {}
    for group in groups:
        found |= {"level": group.limit} if isinstance(group, Deciding) else group._asdict()
    return found


def record_of(name: str, answer: Any, found: Any) -> dict[str, Any]:
    from orthoslice.applications.compare.words import notes_of
    from orthoslice.cli import schema

    told = [*answer.notes, *notes_of(found, scale_hint(answer))]
    return schema.record(name, answer, told) | schema.of_comparison(found)


def tell_comparison(
    name: str, answer: Any, found: Any, printing: Printing, deciding: Deciding | None = None
) -> None:
    from orthoslice.applications.compare.words import tell
    from orthoslice.cli import render, running

    if not running.printed_as_json(record_of(name, answer, found), printing.json):
        render.print_sections(tell(found, scale_hint(answer)))
    leave(answer, is_different(found.pvalue, deciding))


def tell_batches(
    name: str,
    answer: Any,
    reference: str | None,
    reading: Reading,
    drawing: Drawing,
    options: dict[str, Any],
    deciding: Deciding,
    printing: Printing,
) -> None:
    """More than two tables: each against the first, or against all others where they are groups of one."""
    from orthoslice.cli import batches, render, running, schema

    pairs = batches.each_against_others if reference is None else batches.each_against_first
    found = batches.compare_batches(answer, pairs, reading, drawing, options)
    record = schema.record(name, answer, answer.notes) | batches.of_batches(found, deciding.limit)
    if not running.printed_as_json(record, printing.json):
        names = dict(zip((t.name for t in answer.tables), answer.labels, strict=True))
        called = [batch._replace(name=names[batch.name]) for batch in found]
        told = batches.tell_batches(called, reference, deciding.limit, answer.left_out, answer.dropped)
        render.print_sections(told)
    leave(answer, is_different(min(b.adjusted for b in found), deciding))


def is_different(pvalue: float | None, deciding: Deciding | None) -> bool:
    """Whether a level was passed that the p-value does not exceed."""
    if pvalue is None or deciding is None or deciding.level is None:
        return False
    return pvalue <= deciding.level


def quantities(found: Any) -> list[dict[str, Any]]:
    """Distances and bounds as rows of a table, from the smallest to the largest."""
    from orthoslice.applications.compare.words import quiet_interval
    from orthoslice.cli.schema import finite

    rows: list[dict[str, Any]] = []
    for name, est in (("SW", found.sliced), ("W", found.bounds), ("PW", found.projected)):
        if est is None:
            continue
        row: dict[str, Any] = {"quantity": f"{name}_{found.p:g}", "estimate": None}
        if name == "W":
            row |= {"low": est.lower, "high": est.upper, "how": "certain bounds"}
        else:
            low, high = (finite(limit) for limit in quiet_interval(est))
            row |= {"estimate": float(est.distance), "low": low, "high": high}
            row["how"] = f"95% interval over directions, {est.n_blocks} blocks"
            row["how"] += ", not to be trusted" if est._doubt else ""
        rows.append(row)
    return rows


def leave(answer: Any, is_different: bool = False) -> None:
    code = answer.exit_code or int(is_different)
    if code:
        raise typer.Exit(code)
