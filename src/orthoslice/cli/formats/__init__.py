"""Kinds of files: a reader for every suffix, folders of images, and standard input.

A reader is a function from a file to a :class:`~orthoslice.cli.formats.source.Source`. A new kind of file is a
reader and its row in ``READERS``.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path

from orthoslice.cli.formats.arrays import open_archive, open_array, open_h5ad, open_zarr
from orthoslice.cli.formats.columns import open_excel, open_feather, open_json_lines, open_parquet
from orthoslice.cli.formats.images import open_images
from orthoslice.cli.formats.source import STANDARD_INPUT, FileError, How, Source, reading, split
from orthoslice.cli.formats.text import open_csv, open_stream, open_tsv

READERS: dict[str, Callable[[str, Path, str | None, How], Source]] = {
    ".csv": open_csv,
    ".csv.gz": open_csv,
    ".csv.zst": open_csv,
    ".tsv": open_tsv,
    ".tsv.gz": open_tsv,
    ".tsv.zst": open_tsv,
    ".jsonl": open_json_lines,
    ".parquet": open_parquet,
    ".feather": open_feather,
    ".arrow": open_feather,
    ".xlsx": open_excel,
    ".npy": open_array,
    ".npz": open_archive,
    ".h5ad": open_h5ad,
    ".zarr": open_zarr,
}

# Those that may hold several tables.
_WITH_KEYS = (".npz", ".h5ad", ".zarr", ".xlsx")


def open_source(name: str, how: How) -> Source:
    """Open a file by what its name ends with, a folder of images, or standard input (`-`).

    `FILE::KEY` is an array inside a file. Whatever is wrong with a file is a :class:`FileError` of one line.
    """
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise FileError("Standard input must be open to be read (-); it is closed.")
        with reading(name, "CSV"):
            return open_stream(name, sys.stdin.buffer, how)
    path, key = split(name)
    kind = _kind_of(path)
    with reading(name, f"a {kind} file" if kind in READERS else "images"):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode) and kind != ".zarr":
            return open_images(name, path, how)
        if kind not in READERS:
            raise FileError(
                f"{name}: must end with one of {', '.join(READERS)}, be a folder of images, or - for CSV from "
                "standard input."
            )
        if key is not None and kind not in _WITH_KEYS:
            raise FileError(f"{name}: a {kind} file holds one table; leave ::{key} out.")
        return READERS[kind](name, path, key, how)


def _kind_of(path: Path) -> str:
    """What a name ends with: the last two suffixes, if there is a reader for both."""
    both = "".join(path.suffixes[-2:]).lower()
    return both if both in READERS else path.suffix.lower()
