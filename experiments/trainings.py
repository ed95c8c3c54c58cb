"""What trainings share: rows that are written as they go, states to go on from, several runs at a time.

A :class:`Training` makes one unit of its work at a time, a sweep over data or some hundred steps, and gives one
row for it. :func:`train_all` takes jobs, makes a training of each, and advances all of a process in turn, so
that whenever the time is over, all have come equally far. Nothing here needs more than NumPy's neighbours: the
machine that trains may have no package to draw with.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

Row: TypeAlias = dict[str, Any]

WORK = Path(__file__).resolve().parents[1] / "build"
"""Rows and states of an experiment's trainings are kept in a folder of its name in here."""

MACHINE = "machine.json"
SECONDS_BETWEEN_STATES = 60.0


class Training(Protocol):
    """One training under way, with everything that it needs to go on."""

    def advance(self, n_done: int) -> Row:
        """Make the unit after `n_done` units; returns its row, without the job's key and its seconds."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and texts from which `load_state_dict` of a new object goes on, bit for bit."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def finish(self, stem: Path) -> None:
        """Called at the end and at every stop, to leave files beside `stem`, whose name theirs begin with."""
        ...


class Job(NamedTuple):
    """A training that is to be made."""

    name: str
    """Of its files."""
    key: Row
    """What its rows begin with."""
    n_units: int
    make: Callable[[], Training]
    """Picklable: a function or a `functools.partial` of one."""
    lane: int = 0
    """Jobs of one lane run in one process, in turn; those to be compared in time share one."""


class Place(NamedTuple):
    """Where trainings run and where their data is; it changes nothing of what they are."""

    device: str = "cpu"
    data: str | None = None
    """A folder; None looks for it, and fetches it."""

    @classmethod
    def default(cls) -> Place:
        """A GPU, if there is one."""
        import torch

        return cls("cuda" if torch.cuda.is_available() else "cpu")

    def describe(self) -> dict[str, str]:
        """What the numbers of a training may depend on beside its configuration."""
        import torch

        on_gpu = self.device.startswith("cuda")
        name = torch.cuda.get_device_name(self.device) if on_gpu else platform.machine()
        return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


class Files(NamedTuple):
    """Where a run keeps its rows and its state."""

    rows: Path
    state: Path

    @classmethod
    def of(cls, name: str, folder: Path) -> Files:
        return cls(folder / f"{name}.csv", folder / f"{name}.pt")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; what is written takes the place of `path` at once, or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    yield partial
    os.replace(partial, path)


def write_rows(path: Path, rows: Sequence[Row], columns: Sequence[str] | None = None) -> None:
    """Rows as CSV, nothing for None; with `columns` there is a header even if there are no rows."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0] if columns is None else columns)
        writer.writerows(row.values() for row in rows)


def read_rows(path: Path) -> list[Row]:
    """Rows with numbers where there are numbers, and None where there is nothing."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: _parse(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _parse(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def rounded(row: Row, digits: int = 6) -> Row:
    """Floats to a few digits: a file of all rows stays small, and nothing is known to more."""
    return {
        name: float(f"{value:.{digits}g}") if isinstance(value, float) else value for name, value in row.items()
    }


def claim_folder(folder: Path, config: Any, free: Collection[str]) -> None:
    """Refuse a folder of runs with other settings, which would be taken up as if they were these.

    `free` names the settings that may differ: they say which runs there are, the others what a run is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.loads(json.dumps(dataclasses.asdict(config)))
    settings = {name: value for name, value in settings.items() if name not in free}
    path = folder / "settings.json"
    if not path.exists():
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept != settings:
        names = sorted(name for name in kept.keys() | settings.keys() if kept.get(name) != settings.get(name))
        raise ValueError(
            f"`folder` must hold runs with the same settings; {', '.join(names)} differ in {folder}. "
            "Pass another folder, or delete it to start anew."
        )


def note_machine(folder: Path, place: Place) -> None:
    """Keep where the runs of a folder were trained; the last machine counts."""
    (folder / MACHINE).write_text(json.dumps(place.describe(), indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """No help from other threads of torch, which costs more than it brings for small networks on a CPU."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_all(jobs: Sequence[Job], folder: Path, *, n_jobs: int = 1, minutes: float | None = None) -> list[Job]:
    """Train every job that is not finished; returns those that are not when the minutes are over.

    With `n_jobs` above 1 lanes are shared out among `n_jobs` processes of one thread each.
    """
    deadline = float("inf") if minutes is None else time.time() + 60 * minutes
    folder.mkdir(parents=True, exist_ok=True)
    lanes = [[job for job in jobs if job.lane % n_jobs == lane] for lane in range(n_jobs)]
    if n_jobs == 1:
        left = set(advance_in_turn(jobs, folder, deadline))
    else:
        # Read by the children when they load BLAS and OpenMP: threads of several runs would fight for cores.
        os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
        with ProcessPoolExecutor(n_jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            parts = pool.map(advance_in_turn, lanes, [folder] * n_jobs, [deadline] * n_jobs)
            left = {name for part in parts for name in part}
    return [job for job in jobs if job.name in left]


@contextlib.contextmanager
def trained(
    name: str, config: Any, list_jobs: Callable[[Any, Place], list[Job]], free: Collection[str]
) -> Iterator[tuple[list[Row], Path, Place]]:
    """Train what is not trained yet; gives the rows of all runs, and the folder and the place of the trainings.

    With `config.is_kept` that is a folder under ``build/``. That of a small run is gone afterwards.
    """
    with contextlib.ExitStack() as stack:
        if config.is_kept:
            folder, place = WORK / name, Place.default()
        else:
            folder, place = Path(stack.enter_context(tempfile.TemporaryDirectory())), Place()
        claim_folder(folder, config, free)
        jobs = list_jobs(config, place)
        if train_all(jobs, folder, minutes=0):
            note_machine(folder, place)
            train_all(jobs, folder)
        yield collect_rows(jobs, folder), folder, place


def read_machine(name: str) -> dict[str, str]:
    """Where the kept runs of an experiment were trained."""
    found: dict[str, str] = json.loads((WORK / name / MACHINE).read_text(encoding="utf-8"))
    return found


def collect_rows(jobs: Sequence[Job], folder: Path) -> list[Row]:
    """The rows of all jobs, in their order, of no more units than they are to have."""
    paths = ((Files.of(job.name, folder).rows, job.n_units) for job in jobs)
    return [row for path, n_units in paths if path.exists() for row in read_rows(path)[:n_units]]


def advance_in_turn(jobs: Sequence[Job], folder: Path, deadline: float = float("inf")) -> list[str]:
    """Advance all jobs by one unit after the other, those behind first, until `time.time()` is `deadline`.

    Returns the names of those that are not finished. Rows are written after every unit, states every minute and
    at the end.
    """
    unfinished = [job for job in jobs if len(collect_rows([job], folder)) < job.n_units]
    if time.time() >= deadline:
        return [job.name for job in unfinished]
    with contextlib.ExitStack() as stack:
        stack.enter_context(one_thread())
        under_way = [_Started(job, folder) for job in unfinished]
        for started in under_way:
            stack.callback(started.save)
        while under_way and time.time() < deadline:
            min(under_way, key=lambda started: len(started.rows)).advance()
            under_way = [started for started in under_way if not started.is_finished]
        return [started.job.name for started in under_way]


class _Started:
    """A training with its files."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.files = job, Files.of(job.name, folder)
        self.training = job.make()
        self.rows: list[Row] = []
        self.saved_at, self.n_saved = time.monotonic(), 0
        if self.files.state.exists():
            # Imported late: those who only read rows need no torch.
            import torch

            state = torch.load(self.files.state, map_location="cpu", weights_only=True)
            self.training.load_state_dict(state["training"])
            # A run may have been stopped between writing its rows and its state.
            self.rows = read_rows(self.files.rows)[: state["n_units"]]
            self.n_saved = len(self.rows)

    @property
    def is_finished(self) -> bool:
        return len(self.rows) >= self.job.n_units

    def advance(self) -> None:
        """One more unit, and its row."""
        start = time.perf_counter()
        row = self.training.advance(len(self.rows))
        row["seconds"] = time.perf_counter() - start
        if both := row.keys() & self.job.key.keys():
            raise ValueError(f"A row must not have columns of the job's key; both have {', '.join(both)}.")
        row = self.job.key | row
        self.rows.append(rounded(row))
        if self.is_finished:
            # Before the last row is written, which says that all is done.
            self.training.finish(self.files.rows.with_name(self.job.name))
        write_rows(self.files.rows, self.rows)
        self._report()
        if self.is_finished or time.monotonic() - self.saved_at > SECONDS_BETWEEN_STATES:
            self.save()

    def save(self) -> None:
        """Write the state, unless that is done."""
        if self.n_saved == len(self.rows):
            return
        import torch

        if not self.is_finished:
            self.training.finish(self.files.rows.with_name(self.job.name))
        with replacing(self.files.state) as partial:
            torch.save({"training": self.training.state_dict(), "n_units": len(self.rows)}, partial)
        self.saved_at, self.n_saved = time.monotonic(), len(self.rows)

    def _report(self) -> None:
        facts = [f"{name} {value}" for name, value in self.rows[-1].items() if name not in self.job.key]
        count = f"{len(self.rows)} of {self.job.n_units}"
        print(f"{self.job.name}: {count}, {', '.join(facts)}", file=sys.stderr, flush=True)


def command(
    name: str,
    doc: str | None,
    configs: tuple[Any, Any],
    list_jobs: Callable[[Any, Place], list[Job]],
    free: Collection[str],
    work: Callable[[Any, Path, Place], None] | None = None,
    *,
    beyond: Any = None,
) -> int:
    """The command line of an experiment's trainings: exit 0 all is done, 1 some runs are not finished.

    Parameters
    ----------
    name, doc
        Of the experiment, and what the command does.
    configs
        The full and the small configuration.
    list_jobs
        Makes the jobs of a configuration.
    free
        As in :func:`claim_folder`.
    work
        What else is done in the folder after the trainings, if there is something.
    beyond
        The configuration for ``--beyond``, if there is one.
    """
    # argparse, since this also runs where little else is installed.
    parser = argparse.ArgumentParser(f"python -m experiments.{name}", description=doc)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the runs")
    parser.add_argument("--minutes", type=float, help="stop after this time; call again to go on")
    parser.add_argument("--folder", type=Path, help=f"rows and states; by default {name} in build/")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 and so on; by default a GPU if there is one")
    parser.add_argument(
        "--data", help="a folder with the data sets; by default they are looked for and fetched"
    )
    parser.add_argument("--only", default="", help="runs whose names start so")
    if beyond is not None:
        parser.add_argument("--beyond", action="store_true", help="also what is not among the kept results")
    parser.add_argument("--smoke", action="store_true", help="the small runs")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"`--jobs` must be at least 1; got {options.jobs}.")
    config = beyond if getattr(options, "beyond", False) else configs[options.smoke]
    folder = options.folder or WORK / (f"{name}_smoke" if options.smoke else name)
    place = Place(options.device or Place.default().device, options.data)
    jobs = [job for job in list_jobs(config, place) if job.name.startswith(options.only)]
    claim_folder(folder, config, free)
    note_machine(folder, place)
    left = train_all(jobs, folder, n_jobs=options.jobs, minutes=options.minutes)
    if work is not None and not left:
        work(config, folder, place)
    message = f"{len(left)} runs are not finished; call again to go on." if left else "All is done."
    print(message, file=sys.stderr)
    return 1 if left else 0
