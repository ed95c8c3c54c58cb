"""Limits of memory, read off the process itself while a call on memory maps runs in a fresh one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orthoslice as osl

# Anonymous memory, which is what cannot be dropped and read again; pages of a memory map can.
PEAK = """
import contextlib, gc, json, re, sys, threading
import numpy as np
import orthoslice as osl
from orthoslice.backend.kernels.when_to_compile import expecting_many

def held():
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", status.read()).group(1))

name, memory, options, *paths = json.loads(sys.argv[1])
x, y = (np.load(path, mmap_mode="r") for path in paths)
run = lambda x, y, memory: (
    osl.pairwise([x, y], memory=memory, **options)
    if name == "pairwise"
    else getattr(osl, name)(x, y, memory=memory, **options)
)
# Kernels are compiled, and numba is loaded, for long rows too, and for points that are read where they lie.
with expecting_many():
    run(x[:20_000], y[:20_000], "64MB")
    with contextlib.suppress(ValueError):
        run(x[:20_000], y[:20_000], memory // 10)
gc.collect()
before, peak, done = held(), [0], threading.Event()

def watch():
    while not done.is_set():
        peak[0] = max(peak[0], held())
        done.wait(0.001)

watching = threading.Thread(target=watch)
watching.start()
run(x, y, memory)
done.set()
watching.join()
print(peak[0] - before)
"""

N, DIM, MB = 200_000, 8, 10**6

# What a call may hold besides: pieces of a file that is read, and what an allocator keeps of them.
SLACK = 6 * MB


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder, rng = tmp_path_factory.mktemp("maps"), np.random.default_rng(0)
    paths = [folder / "x.npy", folder / "y.npy"]
    for path, shift in zip(paths, (0.0, 0.3), strict=True):
        np.save(path, rng.normal(size=(N, DIM)).astype(np.float32) + np.float32(shift))
    return [str(path) for path in paths]


def peak(maps: list[str], name: str, memory: int, **options: object) -> int:
    given = json.dumps([name, memory, {"rng": 0, "workers": 2} | options, *maps])
    run = subprocess.run([sys.executable, "-c", PEAK, given], capture_output=True, text=True, check=True)
    return int(run.stdout)


# What a direction takes by the docstrings, in bytes a point of both clouds, and few of them.
CALLS = {
    "sliced_wasserstein": (12, {"n_directions": 4}),
    "projected_wasserstein": (48, {"n_directions": 4}),
    "explain": (64, {"n_directions": 4, "n_found": 1}),
    "pairwise": (12, {"n_directions": 4}),
    "two_sample_test": (52, {"n_directions": 4, "n_permutations": 3}),
}


@pytest.mark.thin
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the process's memory is read as on Linux")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("memory", [2 * MB, 24 * MB])
def test_memory_maps_keep_the_limit(maps: list[str], name: str, memory: int) -> None:
    """Within a quarter, or what a single direction takes where that is more, however many workers there are."""
    per_point, options = CALLS[name]
    assert peak(maps, name, memory, **options) < 1.25 * max(memory, per_point * 2 * N) + SLACK


# What is held all at once, in bytes a point, besides 16 a coordinate.
WHOLE = {
    "match": (160, {"n_directions": 4, "n_sweeps": 3}),
    "wasserstein_bounds": (160, {"n_directions": 4}),
    "pairwise": (48, {"n_directions": 4, "method": "projected"}),
    "two_sample_test": (112, {"n_directions": 4, "n_permutations": 3, "method": "projected"}),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the process's memory is read as on Linux")
@pytest.mark.parametrize("name", [name for name in WHOLE if name != "wasserstein_bounds"])
def test_whole_points_keep_the_limit(maps: list[str], name: str) -> None:
    per_point, options = WHOLE[name]
    least = 2 * N * (16 * DIM + per_point + 8)
    assert peak(maps, name, least, **options) < 1.25 * least + SLACK


@pytest.mark.parametrize("name", WHOLE)
def test_too_little_for_whole_points_is_said(maps: list[str], name: str) -> None:
    x, y = (np.load(path, mmap_mode="r") for path in maps)
    per_point, options = WHOLE[name]
    takes = 2 * N * (16 * DIM + per_point)
    clouds = ([x, y],) if name == "pairwise" else (x, y)
    with pytest.raises(ValueError, match=r"`memory` must hold all points twice.*: (\d+)MB; got 2MB") as error:
        getattr(osl, name)(*clouds, memory="2MB", **options)
    told = int(str(error.value).split("MB;")[0].split()[-1]) * MB
    assert 0.9 * takes < told < 1.1 * takes + MB
