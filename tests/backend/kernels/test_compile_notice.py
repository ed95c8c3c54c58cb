"""The message about waiting for a compiler: after a second in all, once a process, unless switched off."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import orthoslice
from orthoslice.backend.kernels import compile_notice

LINE = "orthoslice: compiling kernels for this processor, once ... (ORTHOSLICE_QUIET=1 silences this)\n"


@pytest.fixture(autouse=True)
def afresh(monkeypatch):
    monkeypatch.delenv("ORTHOSLICE_QUIET", raising=False)
    monkeypatch.setattr(compile_notice, "_said", set())
    monkeypatch.setattr(compile_notice, "_waits", {})


def test_short_waits_add_up(monkeypatch, capsys):
    """Five waits of a third of the patience, none of which prints a message alone."""
    monkeypatch.setattr(compile_notice, "_PATIENCE_S", 0.3)
    with compile_notice.say_if_slow("another thing"):
        pass
    for k in range(5):
        with compile_notice.say_if_slow("compiling"):
            time.sleep(0.1)
        if k == 0:
            assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "orthoslice: compiling ... (ORTHOSLICE_QUIET=1 silences this)\n"


def test_nested_waits_count_once(monkeypatch, capsys):
    monkeypatch.setattr(compile_notice, "_PATIENCE_S", 60)
    with compile_notice.say_if_slow("compiling"), compile_notice.say_if_slow("compiling"):
        time.sleep(0.05)
    assert 0.05 <= compile_notice._waits["compiling"].waited_s < 30
    assert compile_notice._waits["compiling"].waiting == 0
    before = compile_notice._waits["compiling"].waited_s
    threads = [threading.Thread(target=_wait) for _ in range(4)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Four at once waited no longer than the clock on the wall.
    assert compile_notice._waits["compiling"].waited_s - before <= time.monotonic() - began
    assert capsys.readouterr().err == ""


def _wait():
    with compile_notice.say_if_slow("compiling"):
        time.sleep(0.05)


def test_kernels_of_the_host_are_announced_when_compiled_and_not_when_loaded(tmp_path):
    """Twice the same process, with a cache of machine code that the first one fills."""
    pytest.importorskip("numba")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from orthoslice.backend.kernels import compile_notice\n"
        "compile_notice._PATIENCE_S = 0.0\n"
        "from orthoslice.backend.kernels.numba._compile import compiled\n"
        "@compiled\n"
        "def inner(value):\n"
        "    return value + 1\n"
        "@compiled\n"
        "def outer(value):\n"
        "    return 2 * inner(value)\n"
        "assert (outer(2), outer(2.5)) == (6, 7.0)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(orthoslice.__file__).parents[1]),
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }
    heard = []
    for quiet in ("", "", "1"):
        if quiet:
            environment["NUMBA_CACHE_DIR"] = str(tmp_path / "another")
        done = subprocess.run(
            [sys.executable, str(script)],
            env=environment | {"ORTHOSLICE_QUIET": quiet},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        heard.append(done.stderr)
    assert heard == [LINE, "", ""]
