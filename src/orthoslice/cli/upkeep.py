"""The commands that are about the installation, and a demonstration."""

from __future__ import annotations

from typing import Annotated

import typer

from orthoslice.cli.app import app
from orthoslice.cli.options import Printing, command
from orthoslice.cli.telling import quantities


@command(app, Printing)
def info(printing: Printing) -> None:
    """Say which versions are here, which kernels are in use, and why others are not."""
    from orthoslice.cli import render
    from orthoslice.cli.about import facts

    found = facts()
    if render.wants_json(printing.json):
        render.print_json({"command": "info"} | found)
        return
    render.print_facts(
        {f"{part}: {name}": value for part, told in found.items() for name, value in told.items()}
    )


@command(app)
def warmup() -> None:
    """Compile what a first call would, so that it does not have to wait. Once an installation is enough."""
    import time

    from orthoslice.cli import render, running
    from orthoslice.cli.warmup import compile_kernels

    began = time.perf_counter()
    with running.status("Compiling"):
        why_not = compile_kernels()
    render.say(why_not or f"all is compiled, in {time.perf_counter() - began:.0f} s.")


@command(app, Printing)
def demo(
    printing: Printing,
    first: Annotated[int, typer.Argument(min=0, max=9, help="A digit.")] = 0,
    second: Annotated[int, typer.Argument(min=0, max=9, help="Another digit.")] = 1,
    p: Annotated[float, typer.Option(min=1, help="The power of the distance.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="The same seed repeats the numbers.")] = 0,
) -> None:
    """Compare images of two handwritten digits: SW, PW, their intervals, and bounds on W."""
    from orthoslice.applications.compare.compare import prepare_comparison
    from orthoslice.cli import render
    from orthoslice.datasets import digits

    x, y = digits(first), digits(second)
    ready = prepare_comparison(x, y, p, max_rows=len(x) + len(y), rng=seed)
    found = ready.finish({part: ready.work_out(part) for part in ("sliced", "bounds", "projected")})
    rows, title = quantities(found), f"Digit {first} {x.shape} against digit {second} {y.shape}"
    if render.wants_json(printing.json):
        render.print_json({"title": title, "rows": rows})
    else:
        render.print_quantities(title, rows)
