"""Files as people have them, and the command line as they run it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from orthoslice.cli import app


@pytest.fixture(autouse=True)
def _as_in_a_terminal() -> Iterator[None]:
    """Ctrl-C is heard, although shells let what they start in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a command; the result has an exit code, what was printed, and the record if that was JSON."""

    def run(*arguments: Any, stdin: bytes | None = None) -> Any:
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
        # Whatever is not an exit code would have been a traceback.
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        result.record = json.loads(result.stdout) if result.stdout.startswith("{") else None
        return result

    return run


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    """Two CSV files of 80 and 60 rows: `age` differs, `height` does not, `name` is text."""
    draw = np.random.default_rng(0)
    paths = []
    for name, n, shift in (("a", 80, 0.0), ("b", 60, 5.0)):
        rows = [
            f"{40 + shift + 2 * u:.6f},{170 + 3 * v:.6f},n{k}"
            for k, (u, v) in enumerate(draw.normal(size=(n, 2)))
        ]
        path = tmp_path / f"{name}.csv"
        path.write_text("age,height,name\n" + "\n".join(rows) + "\n")
        paths.append(path)
    return paths[0], paths[1]
