"""The command line as a whole; its commands are in `comparing`, `keeping` and `upkeep`."""

from __future__ import annotations

from typing import Annotated

import typer

from orthoslice.cli.options import unwrapped

_EPILOG = (
    "Files: .csv and .tsv (.gz, .zst), .jsonl, .parquet, .feather, .arrow, .xlsx, .npy, .npz, .h5ad, .zarr, "
    "folders of images, or - for CSV from standard input. An array inside a file is FILE::KEY, such as "
    "cells.h5ad::X_pca."
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=_EPILOG,
)


def _version(asked: bool) -> None:
    if asked:
        from orthoslice import __version__

        print(f"orthoslice {__version__}")
        raise typer.Exit


def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Are two data sets different, by how much, and where?

    Start with [bold]orthoslice compare a.csv b.csv[/bold]. It says whether the difference could be chance, how
    far apart the tables are, and which columns differ.

    Answers are words on a terminal and JSON in a pipe. Exit codes: 0 done, 1 the answer is no (see
    [bold]test --level[/bold] and [bold]--rtol[/bold]), 2 bad usage or a bad file, 130 stopped by Ctrl-C.
    """


app.callback(help=unwrapped(main))(main)
