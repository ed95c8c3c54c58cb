"""A comparison as a page that opens anywhere: words, pictures, and how to repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orthoslice.applications.compare.words import SCALED
from orthoslice.backend.writing import replacing
from orthoslice.cli.report.page import render_page

if TYPE_CHECKING:
    from os import PathLike

    from orthoslice.applications.compare.compare import Comparison

__all__ = ["render_report", "write_report"]


def write_report(
    path: str | PathLike[str],
    comparison: Comparison,
    *,
    command: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    scale_hint: str = SCALED,
) -> None:
    """Write what a comparison found as a web page in one file, which needs neither network nor scripts.

    Parameters
    ----------
    path
        Where to write it, such as ``"report.html"``. A file that is there is replaced once all is
        written.
    comparison
        Of :func:`orthoslice.compare`.
    command
        How the command line was called, word by word, to be told in the report.
    notes
        What else to tell, such as what was left out when files were read.
    scale_hint
        How to ask for common units, in words that follow "if its units are not meant to count more".

    Examples
    --------
    >>> import tempfile, numpy as np, orthoslice as osl
    >>> from pathlib import Path
    >>> rng = np.random.default_rng(0)
    >>> found = osl.compare(rng.normal(size=(60, 2)), rng.normal(size=(50, 2)) + 1, n_permutations=99, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(Path(folder) / "report.html", found)
    ...     Path(folder, "report.html").read_text(encoding="utf-8").count("<figure>")
    9
    """
    page = render_report(comparison, command=command, notes=notes, scale_hint=scale_hint)
    with replacing(path) as file:
        file.write(page.encode())


def render_report(
    comparison: Comparison,
    *,
    command: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    scale_hint: str = SCALED,
) -> str:
    """The page of :func:`write_report` as text."""
    return render_page(comparison, command, notes, scale_hint)
