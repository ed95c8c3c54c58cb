"""`--scheduler`: the sliced distance is worked out by the workers of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from orthoslice.cli import clusters

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def tables(tmp_path, rng):
    x, y = rng.normal(size=(300, 4)) + 5, 1.2 * rng.normal(size=(250, 4)) + 5
    return x, y, tmp_path


def written(tables, suffix):
    *clouds, folder = tables
    paths = [folder / f"{name}{suffix}" for name in "ab"]
    for path, cloud in zip(paths, clouds, strict=True):
        if suffix == ".npy":
            np.save(path, cloud)
        elif suffix == "_f.npy":
            np.save(path, np.asfortranarray(cloud))
        else:
            heads = ",".join(["one", "two", "three", "weight"])
            np.savetxt(path, np.abs(cloud), delimiter=",", header=heads, comments="")
    return paths


@pytest.mark.parametrize("suffix", [".npy", "_f.npy", ".csv"])
def test_workers_find_what_one_process_finds(run, tables, address, monkeypatch, suffix):
    monkeypatch.setattr(clusters, "_CHUNK_BYTES", 1000)
    real, sent = distributed.Client.scatter, []

    def scatter(client, data, **options):
        sent.append(data)
        return real(client, data, **options)

    monkeypatch.setattr(distributed.Client, "scatter", scatter)
    paths = written(tables, suffix)
    options = ["--weights", "weight"] if suffix == ".csv" else []
    alone = run("distance", *paths, *options)
    found = run("distance", *paths, *options, "--scheduler", address)
    assert found.exit_code == alone.exit_code == 0, found.stderr
    for part in ("sliced", "projected"):
        for name, value in alone.record[part].items():
            assert found.record[part][name] == pytest.approx(value, rel=1e-9), (part, name)
    # Workers open files by their path where they can; rows of others are sent.
    assert bool(sent) == (suffix != ".npy")


def test_a_comparison_has_all_its_parts(run, tables, address):
    result = run("compare", *written(tables, ".npy"), "--scheduler", address, "--n-permutations", 19)
    assert result.exit_code == 0, result.stderr
    assert {"sliced", "projected", "bounds", "test", "features"} <= set(result.record)


def test_no_scheduler_answers(run, tables, monkeypatch):
    monkeypatch.setattr(clusters, "_PATIENCE", 0.5)
    result = run("distance", *written(tables, ".npy"), "--scheduler", "tcp://127.0.0.1:1")
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert "--scheduler must be the address of a Dask scheduler that answers" in result.stderr
    assert "got 'tcp://127.0.0.1:1' (Timed out" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_an_address_that_is_none(run, tables):
    """It is refused, and what is asked of Dask afterwards goes where it went before."""
    before = dask.config.get("scheduler", None)
    result = run("distance", *written(tables, ".npy"), "--scheduler", "nonsense")
    assert result.exit_code == 2
    assert "such as tcp://host:8786; got 'nonsense' (missing port" in result.stderr
    assert dask.config.get("scheduler", None) == before


@pytest.mark.parametrize("there", [None, 7])
def test_rows_of_files_that_a_worker_does_not_see_are_sent(run, tables, address, monkeypatch, there):
    """Workers that do not find the file, or find another one: the same answer."""
    monkeypatch.setattr(distributed.Client, "run", lambda _, look, path: {"one": there, "two": look(path)})
    monkeypatch.setattr(clusters, "_read", None)
    paths = written(tables, ".npy")
    alone, found = run("distance", *paths), run("distance", *paths, "--scheduler", address)
    assert found.exit_code == 0, found.stderr
    assert found.record["sliced"]["distance"] == pytest.approx(alone.record["sliced"]["distance"], rel=1e-9)


def test_workers_that_come_later(run, tables):
    """A scheduler without workers waits for some, and says so."""
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster:
        later = threading.Timer(1, cluster.scale, [1])
        later.start()
        result = run("distance", *written(tables, ".npy"), "--scheduler", cluster.scheduler_address)
        later.join()
    assert result.exit_code == 0, result.stderr
    assert "has no workers yet, and waits" in result.stderr
