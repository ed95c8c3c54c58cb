"""Sections of the guide whose examples run as they stand."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

import orthoslice as osl

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
SECTIONS = ["Where do they differ?", "Common units", "In other libraries"]


@pytest.mark.parametrize("title", SECTIONS)
def test_examples_of_a_section(title):
    pages = GUIDE.read_text(encoding="utf-8").split("\n## ")
    (text,) = (page for page in pages if page.startswith(f"{title}\n"))
    names = {"osl": osl, "np": np, "rng": np.random.default_rng(0)}
    example = doctest.DocTestParser().get_doctest(text, names, title, str(GUIDE), 0)
    assert example.examples
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(example, out=told.append)
    assert not failed, "".join(told)
