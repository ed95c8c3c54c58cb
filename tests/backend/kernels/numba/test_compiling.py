"""What a first call compiles: what it uses, and no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

# Prints the functions that were compiled for clouds of usual sizes, then those that a long row takes besides.
SCRIPT = """
import json
import numpy as np
from numba.core import event
from orthoslice.backend.kernels.numba import matching, random, sliced, sorting, ties

class Compiled(event.Listener):
    def on_start(self, happening):
        pass
    def on_end(self, happening):
        function = happening.data["dispatcher"].py_func
        names.append(f"{function.__module__}.{function.__name__}")

names, draw = [], np.random.default_rng(0)
event.register("numba:compile", Compiled())
ties.order_with_ties(draw.normal(size=(3, 600)), np.full((1, 600), 1e-15))
sliced.order_projections(draw.normal(size=(3, 600)))
matching.halve_places(draw.normal(size=(2, 100)), np.arange(100))
random.threefry_words(np.arange(2, dtype=np.int32), np.arange(2, dtype=np.int32), 2, 2)
usual = list(names)
sliced.order_projections(np.zeros((1, sorting.SHORTEST_SPLIT)))
print(json.dumps([usual, names[len(usual):]]))
"""


@pytest.mark.full
def test_a_first_call_compiles_what_it_uses(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "ORTHOSLICE_QUIET": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    usual, for_long_rows = json.loads(done.stdout)
    kernels = "orthoslice.backend.kernels.numba."
    assert f"{kernels}ties.order_rows" in usual
    # A number in the code that is passed on is a type of its own, and there are eight of them.
    assert usual.count(f"{kernels}random._mix") == 1
    # Radix sorts of rows that are long, or crowded.
    for rare in ("splitting._order_pieces", "splitting._find_pieces", "ties._sort_by_radix"):
        assert f"{kernels}{rare}" not in usual
    assert f"{kernels}splitting._order_pieces" in for_long_rows
    # Of numba's own functions, sorting and texts of errors take longest: seconds, not hundredths.
    assert not [name for name in usual if "quicksort" in name or "unicode" in name]
