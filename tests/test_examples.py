"""The examples run, with warnings as errors, and draw something."""

from __future__ import annotations

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")

from examples.__main__ import SCRIPTS, run  # noqa: E402


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
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
