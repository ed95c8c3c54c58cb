"""Safe in the real world: many threads, forks, no numba, a cache that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import orthoslice as osl
from orthoslice import kernels, threads


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


def test_without_numba_the_reference_answers(clouds: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = osl.sliced_wasserstein(*clouds, rng=0).value
    monkeypatch.setattr(kernels, "numba_refusal", lambda: "numba cannot be imported")
    plain = osl.sliced_wasserstein(*clouds, rng=0).value
    assert plain == pytest.approx(fast, rel=1e-12)


def test_a_missing_numba_is_refused_with_its_reason() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np, orthoslice as osl\n"
        "from orthoslice.kernels import numba_refusal\n"
        "print(numba_refusal()); rng = np.random.default_rng(0)\n"
        "x = rng.normal(size=(600, 3))\n"
        "print(float(osl.projected_wasserstein(x, x[::-1].copy(), rng=0).value))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    reason, value = done.stdout.splitlines()
    assert reason.startswith("numba cannot be imported")
    assert float(value) == 0


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
