"""The command line: parse, make the public calls, render."""

from __future__ import annotations

import enum
import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


class Output(enum.Enum):
    """How results are printed."""

    auto = "auto"
    table = "table"
    json = "json"


@app.callback()
def main() -> None:
    """Sliced and projected Wasserstein distances of point clouds, with error bars."""


@app.command()
def demo(
    first: Annotated[int, typer.Argument(min=0, max=9, help="A digit.")] = 0,
    second: Annotated[int, typer.Argument(min=0, max=9, help="Another digit.")] = 1,
    p: Annotated[float, typer.Option(min=1, help="The power of the distance.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="The same seed repeats the numbers.")] = 0,
    output: Annotated[
        Output, typer.Option("--format", help="auto: a table, or JSON when piped.")
    ] = Output.auto,
) -> None:
    """Compare images of two handwritten digits: SW, PW, their intervals, and bounds on W."""
    try:
        title, rows = _compare_digits(first, second, p, seed)
    except (ValueError, TypeError, OverflowError) as error:
        Console(stderr=True).print(f"[red]Error:[/red] {error}")
        raise typer.Exit(2) from None
    _render(rows, title, output)


def _compare_digits(first: int, second: int, p: float, seed: int) -> tuple[str, list[dict[str, Any]]]:
    import orthoslice as osl
    from orthoslice.datasets import digits

    x, y = digits(first), digits(second)
    rows = []
    for name, distance in (("SW", osl.sliced_wasserstein), ("PW", osl.projected_wasserstein)):
        est = distance(x, y, p, rng=seed)
        low, high = est.distance_interval(0.95)
        rows.append(
            {
                "quantity": f"{name}_{p:g}",
                "estimate": float(est.distance),
                "low": float(low),
                "high": float(high),
                "how": f"95% interval over directions, {est.n_blocks} blocks",
            }
        )
    bounds = osl.wasserstein_bounds(x, y, p, rng=seed)
    rows.insert(
        1,
        {
            "quantity": f"W_{p:g}",
            "estimate": None,
            "low": bounds.lower,
            "high": bounds.upper,
            "how": "certain bounds",
        },
    )
    return f"Digit {first} {x.shape} against digit {second} {y.shape}", rows


def _render(rows: list[dict[str, Any]], title: str, output: Output) -> None:
    if output is Output.json or (output is Output.auto and not sys.stdout.isatty()):
        print(json.dumps({"title": title, "rows": rows}, indent=2))
        return
    table = Table(title=title)
    for column in ("quantity", "estimate", "low", "high"):
        table.add_column(column, justify="left" if column == "quantity" else "right")
    table.add_column("how")
    for row in rows:
        numbers = ("" if row[key] is None else f"{row[key]:.5g}" for key in ("estimate", "low", "high"))
        table.add_row(row["quantity"], *numbers, row["how"])
    Console().print(table)
