"""Safe in the real world: many threads, forks, no numba, a cache that cannot be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import orthoslice as osl
from orthoslice.backend import kernels, threads
from orthoslice.backend.arrays.operations import Operation


@pytest.fixture
def clouds(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(3000, 8)), rng.normal(size=(2000, 8))


def test_results_do_not_depend_on_the_number_of_threads(clouds: tuple) -> None:
    for distance in (osl.sliced_wasserstein, osl.projected_wasserstein):
        values = [float(distance(*clouds, rng=0, workers=w).value) for w in (1, 2, 5)]
        np.testing.assert_allclose(values, values[0], rtol=1e-12)


def test_many_threads_at_once_and_blas_restored(clouds: tuple) -> None:
    def blas_threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = blas_threads()
    expected = osl.sliced_wasserstein(*clouds, rng=0, workers=1).value
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(osl.sliced_wasserstein, *clouds, rng=0, workers=2) for _ in range(12)]
        for call in calls:
            assert call.result().value == pytest.approx(expected, rel=1e-12)
    assert blas_threads() == before


def test_an_error_in_a_worker_reaches_the_caller() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(threads.ordered_map([fail, fail, fail], workers=2))


NESTED = """
import dataclasses, faulthandler, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import orthoslice as osl
from orthoslice.control import Control, KnownMean

faulthandler.dump_traceback_later(60, exit=True)
x, y = np.random.default_rng(0).normal(size=(2, 3000, 8))

def ask():
    return float(osl.sliced_wasserstein(x, y, rng=0, workers=4, control=None).value)

@dataclasses.dataclass(frozen=True)
class Asking(Control):
    way: str

    def evaluate(self, x, y, p, directions, rows):
        with ThreadPoolExecutor(1) as own:
            value = ask() if self.way == "itself" else own.submit(ask).result()
        return value * directions.project(x.points[:1], rows)[:, 0]

    def mean(self, x, y, p):
        return KnownMean(np.asarray(0.0))

alone, shared = (
    osl.sliced_wasserstein(x, y, control=Asking(sys.argv[1]), n_directions=512, rng=0, workers=w).value
    for w in (1, 4)
)
assert np.isclose(alone, shared, rtol=1e-12)
"""


@pytest.mark.parametrize("way", ["itself", "in a thread of its own"])
def test_a_control_that_calls_the_library(way: str) -> None:
    """It runs in the pool's threads, and would wait for them to be free."""
    subprocess.run([sys.executable, "-c", NESTED, way], timeout=120, check=True)


def test_work_within_work_within_work() -> None:
    """More pieces that wait for others than there are threads."""

    def count(depth: int) -> int:
        return 1 if depth == 0 else sum(threads.ordered_map([lambda: count(depth - 1)] * 3, workers=3))

    assert count(5) == 3**5


def test_a_forced_implementation_is_seen_by_those_who_asked_for_it() -> None:
    """By threads that share the work, and not by other threads."""
    operation = Operation("thing")
    for name in ("first", "second"):
        operation.implementation(name, lambda: None)(lambda name=name: name)
    together = threading.Barrier(3, timeout=60)

    def answer() -> str:
        # Three pieces at once: at least two are in threads of the pool.
        together.wait()
        return operation()

    with ThreadPoolExecutor(1) as other, ThreadPoolExecutor(3) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "_pool", lambda: pool)
        with operation.using("second"):
            assert other.submit(operation).result() == "first"
            assert list(threads.ordered_map([answer] * 3, workers=3)) == ["second"] * 3
        assert list(threads.ordered_map([answer] * 3, workers=3)) == ["first"] * 3


FORK = """
import os, warnings
import numpy as np
import orthoslice as osl
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(3000, 8)), rng.normal(size=(3000, 8))
first = float(osl.sliced_wasserstein(x, y, rng=0, workers=2).value)
child = os.fork()
if child == 0:
    second = float(osl.sliced_wasserstein(x, y, rng=0, workers=2).value)
    os._exit(0 if second == first else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_makes_its_own_threads() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "0"


FORK_DURING_A_CALL = """
import os, threading, warnings
import numpy as np
import orthoslice as osl
from threadpoolctl import threadpool_info
from orthoslice.backend import threads
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(3000, 8)), rng.normal(size=(3000, 8))

def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

before = blas_threads()
entered, leave = threading.Event(), threading.Event()

def piece():
    entered.set()
    leave.wait()
    return blas_threads()

here = {here}
seen = []
call = threading.Thread(target=lambda: seen.extend(threads.ordered_map([piece, piece], 2)))
call.start()
entered.wait()
if here == "holding the lock":
    # As another thread does for a moment, when it enters or leaves.
    held, go = threading.Event(), threading.Event()
    def hold():
        with threads._blas_use.lock:
            held.set()
            go.wait()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    threading.Timer(0.2, go.set).start()
child = os.fork()
if child == 0:
    good = blas_threads() == before
    first = osl.sliced_wasserstein(x, y, rng=0, workers=2).value
    second = osl.sliced_wasserstein(x, y, rng=0, workers=1).value
    good &= bool(np.isclose(first, second, rtol=1e-12)) and blas_threads() == before
    os._exit(0 if good else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
leave.set()
call.join()
assert blas_threads() == before and seen == [{1}, {1}]
print(status, before)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("here", ["in a piece of work", "holding the lock"])
def test_a_fork_during_another_threads_call(here: str) -> None:
    """The child has as many BLAS threads as before the call, and no lock that stays locked."""
    done = subprocess.run(
        [sys.executable, "-c", FORK_DURING_A_CALL.replace("{here}", repr(here))],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        # More than the one that the call sets.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"},
    )
    assert done.stdout.strip() == "0 {2}"


def test_a_fork_inside_a_call() -> None:
    """The thread that forks goes on in the child, and leaves what it entered in the parent."""
    code = (
        "import os, warnings; warnings.simplefilter('ignore')\n"
        "from orthoslice.backend import threads\n"
        "call = threads.ordered_map([int, int, int], 2); next(call)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    call.close()\n"
        "    use = threads._blas_use\n"
        "    again = list(threads.ordered_map([int, int, int], 2))\n"
        "    os._exit(0 if again == [0, 0, 0] and use.users == 0 and use.limit is not None else 1)\n"
        "call.close()\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), threads._blas_use.users)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "0 0"


def test_a_call_at_exit() -> None:
    """Python takes no new work for threads then: the calling thread does it."""
    code = (
        "import atexit\n"
        "import numpy as np, orthoslice as osl\n"
        "x, y = np.random.default_rng(0).normal(size=(2, 3000, 8))\n"
        "distance = osl.sliced_wasserstein\n"
        "def value(): return float(distance(x, y, rng=0, workers=2).value)\n"
        "atexit.register(lambda: print(value()))\n"
        "{before}"
    )
    answers = []
    for before in ("print(value())", "print(0)"):
        done = subprocess.run(
            [sys.executable, "-c", code.replace("{before}", before)], capture_output=True, text=True, check=True
        )
        answers.append(done.stdout.split())
    assert answers[0][0] == answers[0][1] == answers[1][1]


def test_an_error_in_a_piece_at_exit_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def submit(self, piece: object) -> None:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(threads, "_pool", Closed)
    assert list(threads.ordered_map([int, int], workers=2)) == [0, 0]
    with pytest.raises(ZeroDivisionError):
        list(threads.ordered_map([fail], workers=2))


def test_without_numba_the_reference_answers(clouds: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = osl.sliced_wasserstein(*clouds, rng=0).value
    monkeypatch.setattr(kernels, "numba_refusal", lambda: "numba cannot be imported")
    plain = osl.sliced_wasserstein(*clouds, rng=0).value
    assert plain == pytest.approx(fast, rel=1e-12)


def test_a_missing_numba_is_refused_with_its_reason() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np, orthoslice as osl\n"
        "from orthoslice.backend.kernels import numba_refusal\n"
        "print(numba_refusal()); rng = np.random.default_rng(0)\n"
        "x = rng.normal(size=(600, 3))\n"
        "print(float(osl.projected_wasserstein(x, x[::-1].copy(), rng=0).value))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    reason, value = done.stdout.splitlines()
    assert reason.startswith("numba cannot be imported")
    assert float(value) == 0


CALLEE = """
from orthoslice.backend.kernels.numba._compile import compiled

@compiled
def inner(value):
    return value + {added}
"""
CALLER = """
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.callee import inner

@compiled
def outer(value):
    return inner(value)
"""


def test_the_cache_sees_edits_of_what_a_kernel_calls(tmp_path: Path) -> None:
    """In another file too; what was not edited is not compiled again."""
    pytest.importorskip("numba")
    shutil.copytree(
        Path(osl.__file__).parent, tmp_path / "orthoslice", ignore=shutil.ignore_patterns("__pycache__")
    )
    kernels_there = tmp_path / "orthoslice" / "backend" / "kernels" / "numba"
    (kernels_there / "caller.py").write_text(CALLER)
    code = (
        "from orthoslice.backend.kernels.numba.caller import outer\n"
        "print(outer(1), sum(outer.stats.cache_hits.values()))"
    )
    said = []
    for added in (1, 1, 2):
        (kernels_there / "callee.py").write_text(CALLEE.format(added=added))
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        )
        said.append(done.stdout.strip())
    assert said == ["2 0", "2 1", "3 0"]
    assert len(list((tmp_path / "cache").rglob("*outer*.nbc"))) == 1


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """Compile without a cache, not an error."""
    cache = tmp_path / "file"
    cache.write_text("in the way")
    code = "import numpy as np, orthoslice as osl; print(osl.sliced_wasserstein(np.eye(3), -np.eye(3)).value)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache / "below")},
    )
    assert float(done.stdout) > 0


KERNELS = """
import sys
from orthoslice.backend.kernels.numba._compile import compiled

@compiled
def inner(value):
    return value + 1

@compiled
def outer(value):
    return 2 * inner(value)

if sys.argv[1:]:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
print(outer(2), sum(outer.stats.cache_hits.values()))
"""


@pytest.fixture
def run_kernels(tmp_path: Path) -> Callable[..., str]:
    """Runs kernels in another process; says what they found, and how many came from `tmp_path / "cache"`."""
    pytest.importorskip("numba")
    (tmp_path / "kernels.py").write_text(KERNELS)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(*options: str) -> str:
        command = [sys.executable, tmp_path / "kernels.py", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return done.stdout.strip()

    return run


@pytest.mark.thin
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["emptied", "cut short", "one bit"])
def test_a_damaged_cache_is_made_anew(
    tmp_path: Path, run_kernels: Callable[..., str], kind: str, damage: str
) -> None:
    """Indices and machine code: compiled again, and found whole the next time."""
    assert run_kernels() == "6 0"
    files = list((tmp_path / "cache").rglob(f"*.{kind}"))
    assert len(files) == 2
    for file in files:
        whole = file.read_bytes()
        middle = len(whole) // 2
        changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        file.write_bytes({"emptied": b"", "cut short": whole[:middle], "one bit": changed}[damage])
    assert [run_kernels(), run_kernels()] == ["6 0", "6 1"]


def test_a_disk_without_room(tmp_path: Path, run_kernels: Callable[..., str]) -> None:
    """Computed without a cache; what was half written is not left behind."""
    pytest.importorskip("resource")
    for _ in range(2):
        assert run_kernels("100") == "6 0"
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
