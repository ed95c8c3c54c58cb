"""More points than memory: time, memory and traffic of Dask runs from 10^5 to 10^8 points, and a model of more.

Every row is measured on a cluster of its own: processes on this machine with one thread and a limit of memory
each. Points are read from files. Rows are written as they come, so that a run can be stopped and goes on where
it was.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import orthoslice as osl
from benchmarks.machine import describe_machine
from orthoslice.backend.threads import single_threaded_blas
from orthoslice.check.options import check_memory
from orthoslice.costs.pieces import RowInPieces, mark_counts, order_roughly, piece_cost
from orthoslice.costs.segments import sort_segments
from orthoslice.directions.base import steady_product

DIM = 3
ROWS_OF_CHUNK = 1_000_000
GB = 1e9
LIMIT = 4 * GB
"""Memory of a worker."""

FILE = "scale.jsonl"

DISTANCES = {"SW": osl.sliced_wasserstein, "PW": osl.projected_wasserstein}


@dataclass(frozen=True)
class Case:
    """Clouds of `n` points each, and what works on them."""

    n: int
    who: str
    """``"memory"``: NumPy, all points in memory; ``"thread"``: Dask in a process; a number of processes."""
    memory: str = "256MB"
    """What a task may hold."""
    count: int = 32
    """Directions."""
    distance: str = "SW"

    @property
    def workers(self) -> int:
        return case_workers(self.who)


def case_workers(who: str) -> int:
    """Processes that share the work."""
    return int(who) if who.isdecimal() else 1


CASES = [
    Case(10**6, "memory"),
    # Whole directions.
    Case(10**8, "thread", "3.3GB"),
    *(Case(10**6, who) for who in ("thread", "1", "2", "4")),
    *(Case(10**7, who, "500MB", 8) for who in ("memory", "thread", "1", "2", "4")),
    *(Case(10**5, who) for who in ("memory", "thread", "1", "2", "4")),
    # Whole directions, and two ranges a direction.
    *(Case(10**7, who, "300MB", 8) for who in ("1", "2")),
    *(Case(10**7, who, "170MB", 8) for who in ("1", "2")),
    Case(2 * 10**7, "2", "340MB", 8),
    Case(10**8, "1", "1.8GB", 4),
    Case(10**8, "thread", "3.3GB", 4),
    # All points in a task, and eight ranges a direction.
    Case(10**6, "memory", count=8, distance="PW"),
    Case(10**7, "memory", count=4, distance="PW"),
    *(Case(10**7, who, "2GB", 4, "PW") for who in ("thread", "2")),
    *(Case(10**7, who, "320MB", 4, "PW") for who in ("thread", "1", "2")),
]
SMOKE_CASES = [
    Case(2000, "memory", count=2),
    Case(2000, "thread", "100KB", 2),
    Case(2000, "2", "20KB", 2),
    Case(2000, "memory", count=2, distance="PW"),
    Case(2000, "thread", "100KB", 2, "PW"),
]


@dataclass(frozen=True)
class Measured:
    """What a case took."""

    n: int
    who: str
    memory: str
    count: int
    way: str
    """What tasks get: ``"points"``, ``"projections"``, or ``"ranges"`` of them."""
    seconds: float
    cpu_seconds: float
    """Of the processes that did the work."""
    peak_gb: float
    """The most that one process ever held."""
    moved_gb: float
    """Between workers."""
    value: float
    stderr: float
    load: float
    distance: str = "SW"

    @property
    def ns(self) -> float:
        """Processor time for a point and direction."""
        return 1e9 * self.cpu_seconds / (2 * self.n * self.count)


def run(folder: Path, say: Callable[[str], None], *, smoke: bool = False) -> list[Measured]:
    """Measure all cases that the folder has no row of, and read those that it has."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = SMOKE_CASES if smoke else CASES
    path = folder / FILE
    for case in cases:
        done = [Case(row.n, row.who, row.memory, row.count, row.distance) for row in stored(path)]
        if case in done:
            continue
        row = measure(case)
        with path.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        what = f"{row.distance}, n = {row.n:,}, {row.who}"
        say(f"{what}: {row.seconds:.1f} s, {row.ns:.1f} ns, {row.peak_gb:.2f} GB")
    return stored(path)


def stored(path: Path) -> list[Measured]:
    """The rows of a file, none where there is no file."""
    return [Measured(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def measure(case: Case) -> Measured:
    """Run one case from files to the answer."""
    load = describe_machine()["load_before"] or 0.0
    # For the processes to come: memory of chunks goes back to the system, and is not kept in holes.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "1000000")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.npy" for name in "xy"]
        for seed, path in enumerate(paths):
            write_cloud(path, case.n, seed)
        if case.who.isdecimal():
            found = _on_cluster(case, paths)
        else:
            # A process of its own, whose peak is that of this case.
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                found = pool.submit(_alone, case, paths).result()
    told = {"way": way_of(case), "load": load, "distance": case.distance}
    return Measured(case.n, case.who, case.memory, case.count, **told, **found)


def way_of(case: Case) -> str:
    """What is done for a case: see :mod:`orthoslice.parallel.dask`."""
    room, points = check_memory(case.memory), 2 * case.n * DIM * 4
    if case.distance == "PW":
        # The points as they came and as they are worked on, and 96 bytes for each pair.
        return "points" if case.who == "memory" or 2 * points + 96 * case.n <= room else "ranges"
    if case.who == "memory" or (case.count > DIM * case.workers and 2 * points <= room):
        return "points"
    # The pieces of a direction, and twice as much to sort them in.
    return "projections" if 3 * 2 * case.n * 4 <= room else "ranges"


def write_cloud(path: Path, n: int, seed: int) -> None:
    """Points of a normal law in float32, a few at a time; those of the second cloud are wider."""
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, DIM))
    for k, first in enumerate(range(0, n, ROWS_OF_CHUNK)):
        rows = table[first : first + ROWS_OF_CHUNK]
        rows[:] = np.random.default_rng([seed, k]).standard_normal(rows.shape, dtype=np.float32)
        rows *= 1 + seed / 4
    table.flush()


def read_rows(path: str, first: int, stop: int) -> Any:
    """Some points of a file."""
    return np.array(np.load(path, mmap_mode="r")[first:stop])


def lazy_cloud(path: Path, n: int) -> Any:
    """The points of a file as a Dask array that any worker can read."""
    import dask
    import dask.array as da

    read = dask.delayed(read_rows, pure=True)
    parts = []
    for first in range(0, n, ROWS_OF_CHUNK):
        stop = min(first + ROWS_OF_CHUNK, n)
        parts.append(da.from_delayed(read(str(path), first, stop), (stop - first, DIM), dtype=np.float32))
    return da.concatenate(parts)


def _alone(case: Case, paths: list[Path]) -> dict[str, float]:
    x, y = (np.load(path) if case.who == "memory" else lazy_cloud(path, case.n) for path in paths)
    _warm_up()
    # BLAS too: its other threads spin while they wait.
    with single_threaded_blas():
        start, before = time.perf_counter(), time.process_time()
        estimate = DISTANCES[case.distance](x, y, n_directions=case.count, rng=0, memory=case.memory, workers=1)
        seconds, cpu = time.perf_counter() - start, time.process_time() - before
    return _told(estimate, seconds, cpu, peak_gb(), 0.0)


def _on_cluster(case: Case, paths: list[Path]) -> dict[str, float]:
    from distributed import Client, LocalCluster

    x, y = (lazy_cloud(path, case.n) for path in paths)
    with (
        LocalCluster(
            n_workers=case.workers, threads_per_worker=1, memory_limit=int(LIMIT), dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(_warm_up)
        before, start = client.run(time.process_time), time.perf_counter()
        estimate = DISTANCES[case.distance](x, y, n_directions=case.count, rng=0, memory=case.memory)
        seconds = time.perf_counter() - start
        cpu = sum(client.run(time.process_time).values()) - sum(before.values())
        moved = sum(client.run(_bytes_sent).values()) / GB
        return _told(estimate, seconds, cpu, max(client.run(peak_gb).values()), moved)


def _warm_up() -> None:
    """Have all kernels compiled, those for whole directions and those for ranges."""
    few = np.random.default_rng(0).standard_normal((4000, DIM), dtype=np.float32)
    for function in DISTANCES.values():
        function(few, few + 1, n_directions=8, rng=0)
    rows = steady_product(few[:2].copy(), few)
    mark_counts(rows, rows[0, :2])
    order_roughly(rows)
    sort_segments(rows, np.array([0, 2000, 4000]))
    # A part whose numbers are close to each other, and one whose are not.
    for side in (RowInPieces([rows[0] + 2000], 1), RowInPieces([rows[0]], 1)):
        piece_cost(side, side, len(few), 2.0)


def _bytes_sent(dask_worker: Any = None) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)


def peak_gb() -> float:
    """The most memory that this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():
        # The system's own count would start with that of the process that started this one.
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) * 1024 / GB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB


def _told(estimate: Any, seconds: float, cpu: float, peak: float, moved: float) -> dict[str, float]:
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_gb": peak,
        "moved_gb": moved,
        "value": float(estimate.value),
        "stderr": float(estimate.stderr),
    }


WAYS = ("points", "projections", "ranges")
"""What tasks can get."""


@dataclass(frozen=True)
class Model:
    """Processor seconds of a run, all workers together: a sum of costs that are the same for all runs."""

    per_worker: float
    """To get going, and for tasks."""
    per_point: float
    """For passes that check points and look at them."""
    per_number: tuple[float, ...]
    """For reading, projecting, sorting and pricing, for a point and direction, by what tasks get."""
    per_gb: float
    """For what is sent."""

    def seconds(self, n: float, n_directions: int, way: str, workers: int) -> float:
        costs = [self.per_worker, self.per_point, *self.per_number, self.per_gb]
        return float(_amounts(n, n_directions, way, workers) @ costs)


def _amounts(n: float, n_directions: int, way: str, workers: int) -> np.ndarray:
    """How often a run has each of the costs of the model."""
    numbers = [2 * n * n_directions * (way == one) for one in WAYS]
    return np.array([workers, 2 * n, *numbers, sent_gb(n, n_directions, way, workers)])


def fit(rows: list[Measured]) -> Model:
    """The model of the processor time of some rows, by least squares of relative errors; no cost is below 0."""
    from scipy.optimize import nnls

    amounts = [_amounts(row.n, row.count, row.way, case_workers(row.who)) / row.cpu_seconds for row in rows]
    # Columns of one size: nanoseconds and seconds would not go together. A way that no row goes has none.
    size = np.maximum(np.linalg.norm(amounts, axis=0), 1e-300)
    found = nnls(amounts / size, np.ones(len(rows)))[0] / size
    return Model(found[0], found[1], tuple(found[2:-1]), found[-1])


def sent_gb(n: float, n_directions: int, way: str, workers: int, distance: str = "SW") -> float:
    """What workers send each other.

    All points, to the one worker that puts them together and from there to all others; or on every direction
    all projections, or for PW all points and their masses. Less what stays where it is.
    """
    if way == "points":
        return 2 * n * DIM * 4 * (workers - 1) * (1 + 1 / workers) / GB
    return 2 * n * n_directions * (4 if distance == "SW" else DIM * 4 + 8) * (1 - 1 / workers) / GB


def lines(rows: list[Measured]) -> Iterator[str]:
    """The page, in Markdown."""
    yield "# Scale: points out of core\n"
    yield (
        f"Sliced distance of two clouds of n points in {DIM} dimensions, float32, read from files. *memory*: "
        "NumPy, all points in memory, one thread. *thread*: Dask in one process, one thread. Numbers: "
        f"processes of `distributed` with one thread and {LIMIT / GB:g} GB each, on one machine. Task memory: "
        "the argument `memory`. ns: processor time of the working processes, for a point and direction. The "
        "machine has two cores, which four processes share; load: how busy it was before.\n"
    )
    sliced, projected = ([row for row in rows if row.distance == name] for name in ("SW", "PW"))
    yield from _table(sliced)
    yield "\nProjected distance. What ranges get are points:\n"
    yield from _table(projected)
    yield from _model_lines(sliced)


def _table(rows: list[Measured]) -> Iterator[str]:
    columns = (
        *("n", "who", "task memory", "directions", "tasks get", "seconds", "ns", "x in memory at 10^6"),
        *("peak GB", "moved GB", "predicted GB", "load"),
    )
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"
    base = next((row.ns for row in rows if row.n == 10**6 and row.who == "memory"), None)
    for row in sorted(rows, key=lambda row: (row.n, row.who == "memory", row.who)):
        ratio = f"{row.ns / base:.2f}" if base else ""
        predicted = sent_gb(row.n, row.count, row.way, case_workers(row.who), row.distance)
        yield (
            f"| {row.n:,} | {row.who} | {row.memory} | {row.count} | {row.way} | {row.seconds:.1f} | "
            f"{row.ns:.1f} | {ratio} | {row.peak_gb:.2f} | {row.moved_gb:.2f} | {predicted:.2f} | "
            f"{row.load:.1f} |"
        )


def _model_lines(rows: list[Measured]) -> Iterator[str]:
    known = [row for row in rows if row.who.isdecimal() and row.n <= 10**7]
    if len(known) < 3:
        return
    model = fit(known)
    numbers = ", ".join(
        f"{1e9 * cost:.1f} ns ({way})" for way, cost in zip(WAYS, model.per_number, strict=True)
    )
    yield "\n## A model, and what it predicts\n"
    yield (
        f"Processor seconds of a run are the sum of {model.per_worker:.2f} s a worker, "
        f"{1e9 * model.per_point:.0f} ns a point, for each point and direction {numbers}, and "
        f"{model.per_gb:.2f} s a GB that is sent, as predicted. These constants are fitted to the "
        f"{len(known)} runs on 1, 2 and 4 processes with up to 10^7 points, by least squares of relative "
        f"errors: the worst of these is off by a factor of {_worst(model, known):.2f}. What the model says of "
        "the others:\n"
    )
    yield "| n | who | tasks get | directions | measured processor s | predicted | measured / predicted |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    others = [row for row in rows if row.who != "memory" and row not in known]
    for row in others:
        predicted = _predicted(model, row)
        yield (
            f"| {row.n:,} | {row.who} | {row.way} | {row.count} | {row.cpu_seconds:.1f} | {predicted:.1f} | "
            f"{row.cpu_seconds / predicted:.2f} |"
        )
    # Runs of less than a second are mostly imports.
    worst = _worst(model, [row for row in others if row.n >= 10**6])
    n, count, workers, gbit = 10**11, 32, 100, 10
    work = model.seconds(n, count, "ranges", workers) / workers
    moved = sent_gb(n, count, "ranges", workers)
    network = moved / workers / (gbit / 8)
    yield (
        f"\n**{n:.0e} points a cloud on {workers} workers**, {count} directions, each with one core: "
        f"{work / 3600:.1f} h of work by the model, {worst * work / 3600:.1f} h if it errs as on the worst row "
        f"above from 10^6 points on; and {moved / 1e3:.0f} TB sent, {network / 3600:.1f} h at {gbit} Gbit/s "
        f"a worker where none of it overlaps with work; {4 * n / workers / GB:.0f} GB of a cloud's direction "
        "lie on each worker at a time, so that directions are cut into ranges. With 32 cores a worker the "
        "network decides. Where directions outnumber `dim` times the workers, sending points would be less; "
        f"here {count} do not outnumber {DIM * workers}."
    )


def _predicted(model: Model, row: Measured) -> float:
    return model.seconds(row.n, row.count, row.way, case_workers(row.who))


def _worst(model: Model, rows: list[Measured]) -> float:
    """By which factor the model is off, at most."""
    ratios = [row.cpu_seconds / _predicted(model, row) for row in rows]
    return max((max(ratio, 1 / ratio) for ratio in ratios), default=1.0)
