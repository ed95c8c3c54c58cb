"""Python in the guide runs."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"


def test_examples_of_the_guide_run():
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert any(">>>" in block for block in blocks)
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "guide", str(GUIDE), 0)
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.summarize().failed == 0
