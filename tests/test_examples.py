"""The examples run, with warnings as errors, hold what they claim, and draw something."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")

from examples.__main__ import SCRIPTS, run  # noqa: E402

# What `make test` runs; the others take longer.
QUICK = ("plot_collapse", "plot_conjecture", "plot_explain", "plot_groups")
MARKED = [s if s.stem in QUICK else pytest.param(s, marks=pytest.mark.full) for s in SCRIPTS]


@pytest.mark.parametrize("script", MARKED, ids=lambda s: s.stem)
def test_examples_show_a_picture(script, tmp_path):
    torch = pytest.importorskip("torch")
    if "skimage" in script.read_text():
        pytest.importorskip("skimage", reason="the extra `examples` is not installed")
    # What an example seeds shall not reach other tests.
    with torch.random.fork_rng():
        picture = run(script, tmp_path)
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert min(pixels.shape[:2]) > 200
    assert 0.02 < np.mean(pixels.min(axis=-1) < 0.9) < 0.98


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_examples_are_headed_by_a_claim_that_they_check(script):
    tree = ast.parse(script.read_text(encoding="utf-8"))
    assert re.search(r"\*\*Claim: .*?\*\*", ast.get_docstring(tree), re.DOTALL)
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
