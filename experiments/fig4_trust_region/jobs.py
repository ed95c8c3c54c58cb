"""All trainings, several at a time, each a process with one thread."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from experiments.fig4_trust_region.config import Config, Run, list_runs
from experiments.trainings import WORK as ALL_WORK
from experiments.trainings import Files, claim_folder, read_rows

WORK = ALL_WORK / "fig4_trust_region"
"""Where rows and states of trainings are kept."""

_WHICH_RUNS = {
    *("tasks", "methods", "n_seeds", "n_steps", "strength", "extra_task", "reference_methods", "extra_methods"),
    *("n_extra_steps", "sweep_methods", "sweep_strengths", "is_kept"),
}
"""Settings that say which runs there are; the others say what a run is."""


def train_all(config: Config, folder: Path, *, n_jobs: int = 1, minutes: float | None = None) -> list[Run]:
    """Train every run that is not finished; returns those that are not when the minutes are over."""
    deadline = float("inf") if minutes is None else time.time() + 60 * minutes
    claim_folder(folder, config, _WHICH_RUNS)
    runs = list_runs(config)
    if n_jobs == 1:
        finished = [_train(run, config, folder, deadline) for run in runs]
        return [run for run, is_finished in zip(runs, finished, strict=True) if not is_finished]
    # Read by the children when they load BLAS and OpenMP: threads of several runs would fight for cores.
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    unfinished = []
    with ProcessPoolExecutor(n_jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_train, run, config, folder, deadline): run for run in runs}
        for count, future in enumerate(as_completed(futures), start=1):
            run, is_finished = futures[future], future.result()
            unfinished += [] if is_finished else [run]
            if is_finished:
                print(f"{run.name} is finished; {count} of {len(runs)} seen", file=sys.stderr, flush=True)
    return unfinished


def collect_rows(config: Config, folder: Path) -> list[dict[str, Any]]:
    """The rows of all runs, in the order of the runs."""
    paths = (Files.of(run.name, folder).rows for run in list_runs(config))
    return [row for path in paths if path.exists() for row in read_rows(path)]


def _train(run: Run, config: Config, folder: Path, deadline: float) -> bool:
    # Late, so that a process that only submits loads neither torch nor a simulator.
    from experiments.fig4_trust_region.training import train

    return train(run, config, folder, deadline)
