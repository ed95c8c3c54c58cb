"""Work in many processes, whose results come as they are done."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def as_done(work: Callable[[Task], Result], tasks: Sequence[Task], *, parallel: bool) -> Iterator[Result]:
    """The result of every task, in the order in which they are done; in this process unless `parallel`."""
    if not parallel or not tasks:
        yield from map(work, tasks)
        return
    # Read by the children when they load BLAS: their threads would fight for cores.
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        futures: list[Future[Result]] = [pool.submit(work, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
