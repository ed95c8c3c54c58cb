"""The benchmark of scale: what it measures is right, and its model finds the costs it was made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import scale, streams

import orthoslice as osl

pytest.importorskip("dask")


def _row(n: int, who: str, count: int, costs: tuple[float, float, float]) -> scale.Measured:
    cpu = scale.Model(*costs).seconds(n, count)
    return scale.Measured(n, who, "1GB", count, "projections", 1.0, cpu, 1.0, 0.0, 1.0, 0.1, 2.0)


def test_the_model_finds_its_costs() -> None:
    costs = (3.0, 5e-8, 4e-8)
    rows = [_row(n, "2", count, costs) for n in (10**5, 10**6, 10**7) for count in (8, 32)]
    model = scale.fit(rows)
    np.testing.assert_allclose([model.fixed, model.per_point, model.per_number], costs, rtol=1e-6)
    page = "\n".join(scale.lines([*rows, _row(10**8, "2", 32, costs), _row(10**6, "memory", 32, costs)]))
    assert "| 100,000,000 | 2 | 269.0 | 269.0 |" in page
    assert "**1e+11 points a cloud on 100 workers**, 32 directions" in page
    # Nine of ten projections leave a worker, of four bytes each.
    np.testing.assert_allclose(scale.sent_gb(10**9, 32, 10), 2 * 32 * 4 * 0.9)


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
