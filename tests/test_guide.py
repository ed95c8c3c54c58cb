"""Examples in the guide run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import orthoslice as osl

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
SECTIONS = [
    "From samples to laws",
    "All of it at once",
    "Where do they differ?",
    "Common units",
    "More points than memory",
    "Pictures and reports",
    "In other libraries",
]


def test_python_of_the_guide_runs():
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert any(">>>" in block for block in blocks)
    _run("\n".join(blocks), {}, "guide")


@pytest.mark.parametrize("title", SECTIONS)
def test_examples_of_a_section(title):
    """Those that need no more than data of their own."""
    pages = GUIDE.read_text(encoding="utf-8").split("\n## ")
    (text,) = (page for page in pages if page.startswith(f"{title}\n"))
    _run(text, {"osl": osl, "np": np, "rng": np.random.default_rng(0)}, title)


def _run(text, names, title):
    example = doctest.DocTestParser().get_doctest(text, names, title, str(GUIDE), 0)
    assert example.examples
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(example, out=told.append)
    assert not failed, "".join(told)
