"""The benchmark of scale: what it measures is right, and its model finds the costs it was made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import scale, streams

import orthoslice as osl

pytest.importorskip("dask")


COSTS = scale.Model(3.0, 5e-8, (1e-8, 2e-8, 4e-8), 0.5)


def _row(n: int, who: str, count: int, way: str = "points") -> scale.Measured:
    cpu = COSTS.seconds(n, count, way, scale.case_workers(who))
    return scale.Measured(n, who, "1GB", count, way, 1.0, cpu, 1.0, 0.0, 1.0, 0.1, 2.0)


def test_the_model_finds_its_costs() -> None:
    sizes = [(n, who, count) for n in (10**5, 10**6, 10**7) for who in ("1", "2") for count in (8, 32)]
    rows = [_row(*size, way) for size in sizes for way in scale.WAYS]
    model = scale.fit(rows)
    np.testing.assert_allclose(
        [model.per_worker, model.per_point, *model.per_number, model.per_gb],
        [COSTS.per_worker, COSTS.per_point, *COSTS.per_number, COSTS.per_gb],
        rtol=1e-6,
    )
    # Twice as long as predicted, and no longer than that.
    slow = replace(_row(10**8, "2", 32, "ranges"), cpu_seconds=2 * _row(10**8, "2", 32, "ranges").cpu_seconds)
    page = "\n".join(scale.lines([*rows, slow, _row(10**6, "memory", 32)]))
    assert "| 100,000,000 | 2 | ranges | 32 | 556.8 | 278.4 | 2.00 |" in page
    assert "off by a factor of 1.00" in page
    assert "**1e+11 points a cloud on 100 workers**, 32 directions" in page
    # Nine of ten projections leave a worker, of four bytes each; points meet on one, and go to nine others.
    np.testing.assert_allclose(scale.sent_gb(10**9, 32, "ranges", 10), 2 * 32 * 4 * 0.9)
    np.testing.assert_allclose(scale.sent_gb(10**9, 32, "points", 10), 2 * 3 * 4 * (0.9 + 9))


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    scale.write_cloud(path, 2500, 1)
    table = np.load(path)
    assert table.shape == (2500, scale.DIM)
    np.testing.assert_array_equal(scale.lazy_cloud(path, 2500).compute(scheduler="synchronous"), table)


def test_streams_are_inside(tmp_path: Path) -> None:
    rows = streams.run(tmp_path, lambda _: None, smoke=True)
    assert {row.law for row in rows} == set(streams.LAWS)
    assert all(row.is_inside for row in rows)
    assert all(row.relative_width < 1e-3 for row in rows)
    assert "NO" not in "\n".join(streams.lines(rows))
    # Rows that are there are not measured again.
    assert streams.run(tmp_path, lambda _: None, smoke=True) == rows
    assert osl.Stream(1).bins * 32 < 10**6
