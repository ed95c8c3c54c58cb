"""The command line as a process: Ctrl-C at any time, closed streams, full disks, files that are cut short."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orthoslice as osl

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")

START = "from orthoslice.__main__ import main\nmain()\n"


@pytest.fixture
def process(tables, tmp_path):
    """Run Python code beside two tables, with words as a command line; Ctrl-C is heard."""

    def run(code, *words, **options):
        environment = {**os.environ, "PYTHONPATH": str(Path(osl.__file__).parents[1]), "ORTHOSLICE_QUIET": "1"}
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path,
            env=environment,
            text=True,
            timeout=120,
            check=False,
            **({"capture_output": True} | options),
        )

    return run


AT_IMPORT = """
import os, signal, sys
class Interrupt:
    def find_spec(name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
"""
AT_EXIT = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
IN_A_FINALISER = """
import os, signal
import orthoslice.cli.running as running
real = running.read_tables
class Lost:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def read(*arguments):
    Lost()
    return real(*arguments)
running.read_tables = read
"""
AS_ANOTHER_ERROR = """
import os, signal
import orthoslice.cli.running as running
def read(*_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("something broke")
running.read_tables = read
"""
PLACES = {
    "first moment": AT_IMPORT.format(module="orthoslice.backend.stopping"),
    "typer": AT_IMPORT.format(module="typer"),
    "numpy": AT_IMPORT.format(module="numpy"),
    "numba": AT_IMPORT.format(module="numba"),
    "pyarrow": AT_IMPORT.format(module="pyarrow.csv"),
    "finaliser": IN_A_FINALISER,
    "another error": AS_ANOTHER_ERROR,
    "exit": AT_EXIT,
}


@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_at_any_time(process, place):
    """Exit code 130 and no traceback, while modules are loaded, where Python forgets errors, and at the end."""
    done = process(PLACES[place] + START, "distance", "a.csv", "b.csv")
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.stdout == "" or json.loads(done.stdout)["command"] == "distance"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("p.csv", "numpy.savetxt"),
        ("p.npz", "numpy.savez_compressed"),
        ("r.html", "orthoslice.applications.compare.report.page.render_page"),
    ],
)
def test_ctrl_c_while_a_file_is_written(run, tables, tmp_path, monkeypatch, name, place):
    """What was there stays, and nothing is left beside it."""

    def interrupt(file, *_, **__):
        if name != "r.html":
            file.write(b"half")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(place, interrupt)
    (tmp_path / name).write_text("good")
    before = sorted(tmp_path.iterdir())
    command = ("report", *tables, "--n-permutations", 9) if name == "r.html" else ("plan", *tables)
    assert run(*command, "-o", tmp_path / name).exit_code == 130
    assert (tmp_path / name).read_text() == "good"
    assert sorted(tmp_path.iterdir()) == before


LIMIT = """
import resource
import orthoslice.cli.row_pairs as row_pairs
import orthoslice.applications.compare.comparison as comparing
real = row_pairs.replacing
def limited(path):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    return real(path)
row_pairs.replacing = comparing.replacing = limited
"""


@pytest.mark.parametrize("name", ["p.csv", "p.npz", "r.html"])
def test_a_full_disk_leaves_a_good_file(process, tmp_path, name):
    """Files beyond the size that a process may write."""
    (tmp_path / name).write_text("good")
    before = sorted(tmp_path.iterdir())
    words = ("report", "--n-permutations", "9") if name == "r.html" else ("plan",)
    done = process(LIMIT + START, *words, "a.csv", "b.csv", "-o", name)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == f"Error: [Errno 27] cannot be written: File too large: '{name}'"
    assert (tmp_path / name).read_text() == "good"
    assert sorted(tmp_path.iterdir()) == before


def test_closed_streams(process):
    # Another process closes them: this one may have threads, which code between fork and exec must not meet.
    closing = "import os, sys; os.close({}); os.execv(sys.executable, [sys.executable, '-c', *sys.argv[1:]])"
    closed = process(closing.format(1), START, "info")
    assert closed.returncode == 2
    assert closed.stderr == "Error: standard output must be open, if only as /dev/null; it is closed.\n"
    # What belongs on stderr does not get into the answer.
    silent = process(closing.format(2), START, "bounds", "a.csv", "b.csv")
    assert silent.returncode == 0
    assert json.loads(silent.stdout)["command"] == "bounds"
    nothing = process(closing.format(0), START, "bounds", "-", "b.csv")
    assert nothing.returncode == 2
    assert nothing.stderr == "Error: Standard input must be open to be read (-); it is closed.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("bounds", "a.csv", "b.csv", "--words")])
def test_an_answer_that_does_not_fit_is_an_error(process, words):
    with open("/dev/full", "w") as full:
        done = process(START, *words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "Error: [Errno 28] No space left on device"
    assert "Traceback" not in done.stderr


CUT = """
import os
import orthoslice.cli.running as running
real = running.read_tables
def read(*arguments):
    tables = real(*arguments)
    os.truncate("cut\\x1b.npy", 4096)
    return tables
running.read_tables = read
"""


@pytest.mark.parametrize("command", ["distance", "bounds"])
def test_a_file_that_is_cut_short_while_it_is_read(process, tmp_path, command):
    """Pages of a map that are gone: SIGBUS, in the main thread or in one that shares the work."""
    np.save(tmp_path / "cut\x1b.npy", np.random.default_rng(0).normal(size=(20_000, 4)))
    done = process(CUT + START, command, "cut\x1b.npy", "cut\x1b.npy")
    assert done.returncode == 2
    assert done.stderr == "Error: cut\\x1b.npy: was cut short while it was read.\n"


def test_a_bus_error_of_another_cause_is_not_ours(process, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    raised = (
        "import os, signal\nfrom pathlib import Path\nfrom orthoslice.cli.formats.mapped import watch_mapped\n"
        "watch_mapped(Path('a.npy'))\nfor _ in range(2): os.kill(os.getpid(), signal.SIGBUS)\n"
    )
    done = process(raised)
    assert done.returncode == -signal.SIGBUS
    assert done.stderr == ""
