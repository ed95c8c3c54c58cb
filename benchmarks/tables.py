"""Rows as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.libraries import LABELS
from benchmarks.runner import Row
from benchmarks.targets import Target, ours, select

WRONG = "†"


def name_of(row: Row) -> str:
    """Who was measured: library, and what sets it apart from others of its name."""
    name = LABELS.get(row["library"], str(row["library"]))
    details = [
        row.get("form"),
        "torch"
        if row["arrays"] == "torch" and row["library"] in ("orthoslice", "pot") and not row.get("form")
        else None,
        row["sort_path"],
        row["directions"] if row["directions"] != "given" else None,
        row["dtype"] if row["dtype"] != "float32" else None,
        f"on {row['data']} data" if row["data"] else None,
    ]
    text = ", ".join(detail for detail in details if detail)
    return f"{name} ({text})" if text else name


def short_problem(problem: str) -> str:
    """`n=10000, d=64, N=500` as `10000, 64, 500`."""
    return ", ".join(
        part if part[:2] in ("m=", "p=", "th") else part[part.index("=") + 1 :] for part in problem.split(", ")
    )


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [list(header), ["---"] * len(header), *map(list, lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def seconds_text(seconds: float | None) -> str:
    """Three digits and the unit that suits them."""
    if seconds is None:
        return "-"
    if seconds >= 0.9995:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"


def ratio_text(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.2g}x"


def targets_table(targets: Iterable[Target]) -> str:
    """The demands and whether they were met."""
    met = {True: "met", False: "**not met**", None: ""}
    lines = [(t.what, t.asked, t.measured, met[t.met]) for t in targets]
    return table(("what", "asked", "measured", ""), lines)


def side_by_side(rows: Sequence[Row], group: str) -> str:
    """One line a problem, one column a contender: its time and how many times ours that is."""
    shown = select(rows, group=group)
    names = list(dict.fromkeys(name_of(row) for row in shown))
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in shown):
        base = ours(rows, group, problem)
        cells = {name_of(row): _cell(row, base) for row in select(shown, problem=problem)}
        lines.append([problem, *(cells.get(name, "-") for name in names)])
    return table(["problem", *names], lines)


def _cell(row: Row, base: Row | None) -> str:
    if row["median_s"] is None:
        return str(row["status"]) + (f" ({row['note']})" if row["note"] else "")
    mark = WRONG if row["status"] == "wrong" else ""
    text = f"{seconds_text(row['median_s'])}{mark}"
    if base is None or base is row or base["median_s"] is None:
        return text
    return f"{text} ({ratio_text(row['median_s'] / base['median_s'])})"


def floor_table(rows: Sequence[Row]) -> str:
    """Our time beside that of the steps it cannot do without."""
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in select(rows, group="floor")):
        parts = {row["task"]: row for row in select(rows, group="floor", problem=problem)}
        mine = ours(rows, "forward", problem)
        total = mine["median_s"] if mine else None
        multiply, sort = (parts[task]["median_s"] if task in parts else None for task in ("matmul", "sort"))
        elements = (parts["sort"]["n"] + parts["sort"]["m"]) * parts["sort"]["n_directions"]
        lines.append(
            [
                problem,
                seconds_text(multiply),
                seconds_text(sort),
                *(_per_element(seconds, elements) for seconds in (multiply, sort, total)),
                seconds_text(total),
            ]
        )
    header = ("problem", "projections", "NumPy's sorts", "projection ns/element", "sort ns/element")
    return table((*header, "orthoslice ns/element", "orthoslice"), lines)


def _per_element(seconds: float | None, elements: int) -> str:
    return "-" if seconds is None else f"{1e9 * seconds / elements:.2g}"


def memory_table(rows: Sequence[Row]) -> str:
    """Bytes of one call beyond the data, by what was asked."""
    lines = [
        (row["task"], row["problem"], name_of(row), _bytes_cell(row)) for row in select(rows, group="memory")
    ]
    return table(("distance", "problem", "library", "peak beyond the data"), lines)


def _bytes_cell(row: Row) -> str:
    return str(row["status"]) if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:.1f} MB"


def cold_start_table(rows: Sequence[Row]) -> str:
    """Seconds of a fresh process."""
    lines = [
        (row["library"], seconds_text(row["median_s"]), row["status"])
        for row in select(rows, group="cold_start")
    ]
    return table(("process", "median", ""), lines)


def wrong_notes(rows: Iterable[Row]) -> list[str]:
    """One line for each wrong answer that is not the control's."""
    return [
        f"- {row['group']}, {row['problem']}: {name_of(row)} is {row['note']}."
        for row in rows
        if row["status"] == "wrong" and row["library"] != "control"
    ]


def all_rows_table(rows: Iterable[Row]) -> str:
    """Every timed row with its spread and its error."""
    lines = [
        (
            row["group"],
            row["problem"] + (f", {row['task']}" if row["group"] == "floor" else ""),
            name_of(row),
            seconds_text(row["median_s"]),
            f"{seconds_text(row['low_s'])} to {seconds_text(row['high_s'])}",
            str(row["n_reps"]),
            "-" if row["error"] is None else f"{row['error']:.1e} of {row['tolerance']:.1e}",
            "; ".join(filter(None, [row["status"] if row["status"] != "ok" else "", row["note"]])),
        )
        for row in rows
        if row["median_s"] is not None
    ]
    header = ("group", "problem", "library", "median", "quartiles", "calls", "error of allowed", "note")
    return table(header, lines)
