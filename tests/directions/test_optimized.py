"""Optimized directions: the least energy, made once, kept on disk whatever the disk is like."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sampler_contract import PointSetContract

import orthoslice as osl
from orthoslice.backend import caching
from orthoslice.costs.pools import mean_power
from orthoslice.directions import IID, Equispaced, Optimized, Orthogonal
from orthoslice.directions.optimized import _descend, _spread_out, energy


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory for the cache, and nothing in memory."""
    monkeypatch.setenv("ORTHOSLICE_CACHE_DIR", str(tmp_path / "cache"))
    _spread_out.cache_clear()
    yield tmp_path / "cache"
    _spread_out.cache_clear()


class TestOptimized(PointSetContract):
    sampler = Optimized()
    dims = (3, 5, 16)

    def test_less_energy_than_others(self) -> None:
        """Than orthogonal blocks and the best of 100 independent draws; in dim 3 by far."""
        for dim, n, gain in ((3, 12, 0.2), (3, 48, 0.05), (5, 20, 0.4), (10, 40, 0.8)):
            # What is over the energy of infinitely many directions is what counts.
            floor = mean_power(dim, 1) ** 2 * dim * np.pi / 2
            best = min(energy(IID().sample(n, dim, rng=s).theta) for s in range(100))
            orthogonal = energy(Orthogonal().sample(n, dim, rng=0).theta)
            assert energy(_spread_out(n, dim)) - floor < gain * (min(best, orthogonal) - floor)

    def test_known_best_sets(self) -> None:
        """6 lines in space are those of the icosahedron; up to `dim` lines are orthonormal."""
        cosines = np.abs(_spread_out(6, 3) @ _spread_out(6, 3).T)
        np.testing.assert_allclose(cosines[~np.eye(6, dtype=bool)], 5**-0.5, rtol=1e-6)
        for rows in (1, 4, 7):
            np.testing.assert_array_equal(_spread_out(rows, 7) @ _spread_out(rows, 7).T, np.eye(rows))

    def test_equispaced_in_the_plane(self) -> None:
        ours, even = (s.sample(20, 2, rng=3).theta for s in (Optimized(), Equispaced(replicates=4)))
        np.testing.assert_array_equal(ours, even)

    def test_energy_is_the_error(self) -> None:
        """The second moment of the mean of |<v, u>| over random u is the energy (4 standard errors)."""
        rng = np.random.default_rng(0)
        points = _descend(Orthogonal().sample(7, 3, rng=0).theta)
        u = rng.normal(size=(400_000, 3))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        second_moment = np.mean(np.abs(u @ points.T).mean(axis=1) ** 2)
        # E |<a, u>| |<b, u>| = 2 / (3 pi) (sqrt(1 - t^2) + t arcsin t) in space.
        assert second_moment == pytest.approx(2 / (3 * np.pi) * energy(points), rel=4.5e-4)
        assert second_moment > 1.0005 * 0.25

    def test_sets_are_not_too_large(self) -> None:
        assert Optimized(replicates=1).runs(3000, 3) == ((3, 1000),)
        assert Optimized().runs(1000, 3) == ((4, 250),)
        with pytest.raises(ValueError, match="`block_size` must be at most 1024; got 2000"):
            Optimized(block_size=2000)

    def test_made_quickly(self, cache: Path) -> None:
        """A tenth of a second of processor time for 200 rows; allowed is five times that."""
        start = time.process_time()
        _spread_out(200, 4)
        assert time.process_time() - start < 0.5


def test_kept_on_disk(cache: Path) -> None:
    first = _spread_out(20, 4)
    (file,) = cache.iterdir()
    _spread_out.cache_clear()
    before = file.stat().st_mtime_ns
    np.testing.assert_array_equal(_spread_out(20, 4), first)
    assert file.stat().st_mtime_ns == before
    # It is this file that is read.
    stored = io.BytesIO()
    np.save(stored, -first)
    caching.keep(file.name, stored.getvalue())
    _spread_out.cache_clear()
    np.testing.assert_array_equal(_spread_out(20, 4), -first)


DAMAGES = ["", "nonsense", "cut short", "another shape", "not unit", "nan", "pickle", "a sign", "a digit"]


@pytest.mark.parametrize("content", DAMAGES)
def test_broken_files_are_made_anew(cache: Path, content: str) -> None:
    first = _spread_out(20, 4)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    broken = {"another shape": first[:10], "not unit": 2 * first, "nan": first * np.nan}
    if content in broken:
        np.save(file, broken[content])
    elif content in ("a sign", "a digit"):
        # Unit rows still, to rounding.
        offset, bit = (7, 0x80) if content == "a sign" else (0, 1)
        changed = bytearray(whole)
        changed[whole.index(first[7].tobytes()) + offset] ^= bit
        file.write_bytes(changed)
    elif content == "pickle":
        np.save(file, np.array([first, None], dtype=object), allow_pickle=True)
    else:
        file.write_bytes(whole[:-8] if content == "cut short" else content.encode())
    _spread_out.cache_clear()
    np.testing.assert_array_equal(_spread_out(20, 4), first)
    assert file.read_bytes() == whole


def test_no_place_to_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the directory should be, as no test may assume that permissions hold for it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ORTHOSLICE_CACHE_DIR", str(tmp_path / "file"))
    _spread_out.cache_clear()
    assert _spread_out(20, 4).shape == (20, 4)
    assert not caching.can_keep()
    _spread_out.cache_clear()


def test_a_cache_that_cannot_be_written(cache: Path) -> None:
    """A file stands where the folder should be: not even root can write there."""
    cache.write_text("no folder", encoding="utf-8")
    assert _spread_out(20, 4).shape == (20, 4)
    assert cache.read_text(encoding="utf-8") == "no folder"


def test_same_set_in_every_process(cache: Path) -> None:
    """Made twice from nothing, with other numbers of threads."""
    program = (
        "import os, sys, hashlib\n"
        "from orthoslice.directions.optimized import _spread_out\n"
        "print(hashlib.sha256(_spread_out(300, 20).tobytes()).hexdigest())"
    )
    digests = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "ORTHOSLICE_CACHE_DIR": str(cache / threads), "OMP_NUM_THREADS": threads}
        environment["OPENBLAS_NUM_THREADS"] = threads
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1


def test_where_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ORTHOSLICE_CACHE_DIR", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for platform, variable, expected in (
        ("linux", "XDG_CACHE_HOME", tmp_path / ".cache" / "orthoslice"),
        ("darwin", None, tmp_path / "Library" / "Caches" / "orthoslice"),
        ("win32", "LOCALAPPDATA", tmp_path / "AppData" / "Local" / "orthoslice" / "Cache"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        if variable is not None:
            monkeypatch.delenv(variable, raising=False)
        assert caching.cache_directory() == expected
        if variable is not None:
            monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
            assert str(caching.cache_directory()).startswith(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize("p", [1, 2])
def test_far_better_than_orthogonal_in_space(p: float, rng: np.random.Generator) -> None:
    """48 directions: less than a twentieth of the squared error, over 100 runs; the medians are a 60th."""
    x, y = rng.normal(size=(300, 3)), rng.normal(size=(300, 3)) * [1.0, 1.5, 0.5] + 0.2
    truth = osl.sliced_wasserstein(
        x, y, p, directions=Optimized(block_size=500), n_directions=4000, rng=99
    ).value
    errors = [
        np.mean(
            [
                (osl.sliced_wasserstein(x, y, p, directions=d, n_directions=48, rng=s).value - truth) ** 2
                for s in range(100)
            ]
        )
        for d in (Optimized(replicates=1), "orthogonal")
    ]
    assert errors[0] < errors[1] / 20
