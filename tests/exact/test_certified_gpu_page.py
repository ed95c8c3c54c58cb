"""The stored brackets of W on a GPU: their page is that of their rows, and all of them hold and verify."""

from __future__ import annotations

import sys
from pathlib import Path

# `pytest` alone, unlike `python -m pytest`, does not look for packages in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import certified_gpu


def test_the_stored_page_is_made_of_the_stored_rows():
    rows = certified_gpu.stored()
    assert rows
    assert (certified_gpu.RESULTS / "certified_gpu.md").read_text() == certified_gpu.page(rows)
    for row in rows:
        cell = certified_gpu.CELLS[int(row["cell"])]
        assert (row["kind"], int(row["n"]), int(row["dim"])) == (cell.kind, cell.n, cell.dim)
        assert row["verified"] == "True"
        assert 0 < float(row["lower"]) <= float(row["upper"])
        assert abs(float(row["upper"]) / float(row["lower"]) - 1 - float(row["gap"])) < 1e-12
        assert (row["converged"] == "True") == (float(row["gap"]) <= cell.rtol)
