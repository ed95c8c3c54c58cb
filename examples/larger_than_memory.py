"""Clouds larger than memory, on a laptop or, unchanged, on a cluster.

Run `python examples/larger_than_memory.py` for two processes on this machine, or give the address of a
scheduler: `python examples/larger_than_memory.py tcp://scheduler:8786`. Chunks are made where they are used and
never lie in one place; those of files (`da.from_zarr`, `dd.read_parquet`) are read there.
"""

from __future__ import annotations

import sys

import dask.array as da
from distributed import Client

import orthoslice as osl

LAPTOP = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2GB", "dashboard_address": ":0"}


def compare(n_points: int, rows: int) -> osl.Estimate:
    """Estimate the distance of two clouds in chunks of `rows` rows."""
    rng = da.random.default_rng(0)
    x = rng.normal(size=(n_points, 3), chunks=(rows, 3))
    y = 1.1 * rng.normal(size=(n_points, 3), chunks=(rows, 3))
    return osl.sliced_wasserstein(x, y, n_directions=32, rng=0)


def main(address: str | None = None, n_points: int = 2_000_000, rows: int = 200_000) -> osl.Estimate:
    """Compare on the cluster at this address, or on one made for the purpose."""
    with Client(address) if address else Client(**LAPTOP) as client:
        found = compare(n_points, rows)
        print(f"{len(client.nthreads())} workers: {found}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
