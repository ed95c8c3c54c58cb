"""The process that one library runs in: reads requests from stdin, answers on stdout, one line of JSON each.

Nothing here imports an array library before the cores are set.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import IO, Any

# Calls shorter than this are made once untimed when a turn starts: threads sleep by then, caches are cold.
_QUICK_S = 0.05
_TINY_POINTS = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("arrays")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    # Answers have a file of their own, so that what a library prints cannot break them.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(Session(options.library, options.arrays), sys.stdin, replies)


class Session:
    """One library and the problem it was last given."""

    def __init__(self, library: str, arrays: str) -> None:
        self.library = library
        self.arrays = arrays
        self.seed = 0
        self.data: dict[str, Any] = {}
        self.solver: Any = None
        self.pace_s: float | None = None

    def hello(self) -> dict[str, Any]:
        """Import the library and say what came."""
        from benchmarks.libraries import load
        from benchmarks.machine import numpy_sort_path

        self.module = load(self.library)
        if self.arrays == "torch":
            load("torch")
        return {**self.module.describe(), "sort_path": numpy_sort_path()}

    def probe(self) -> dict[str, Any]:
        """Seconds of a NumPy sort, to compare the two paths."""
        import numpy as np

        from benchmarks.libraries import Solver, read_value

        keys = np.random.default_rng(0).standard_normal((40, 20_000)).astype(np.float32)
        solver = Solver(lambda seed: np.sort(keys), read_value)
        return {"seconds": min(solver.seconds([0])[0] for _ in range(5))}

    def prepare(self, job: dict[str, Any], data: str) -> dict[str, Any]:
        """Load the data and make the call that will be timed."""
        import numpy as np

        from benchmarks.libraries import Job

        self.job = Job(**job)
        with np.load(data) as file:
            self.data = {name: file[name].astype(self.job.dtype) for name in file.files}
        self.solver = self.module.prepare(self.job, self.data)
        self.pace_s = None
        return {}

    def first(self, answer: str) -> dict[str, Any]:
        """The first call: its time, and its answer in a file."""
        import numpy as np

        seconds, result = self.solver.seconds([self.next_seed()])
        self.first_s = seconds
        np.savez(answer, **self.solver.read(result))
        return {"seconds": seconds}

    def turn(self, seconds: float, calls: int) -> dict[str, Any]:
        """Calls until the time or their number is used up; the last answer is given to be checked again."""
        gc.collect()
        if self.first_s < _QUICK_S:
            self.solver.call(self.next_seed())
        times: list[float] = []
        while True:
            taken, result = self.solver.seconds([self.next_seed()])
            times.append(taken)
            if sum(times) >= seconds or len(times) == calls:
                return {"seconds": times, "value": self.solver.read(result)["value"]}
            del result

    def batch(self, seconds: float, calls: int) -> dict[str, Any]:
        """Calls one after the other, waited for once: as many as fit in the time, by the pace so far."""
        if self.pace_s is None:
            self.pace_s, result = self.solver.seconds([self.next_seed()])
            if self.pace_s >= seconds:
                return self._batch_reply(1, result)
            del result
        count = min(calls, max(1, round(seconds / self.pace_s)))
        self.pace_s, result = self.solver.seconds([self.next_seed() for _ in range(count)])
        return self._batch_reply(count, result)

    def _batch_reply(self, count: int, result: Any) -> dict[str, Any]:
        return {"seconds": [self.pace_s], "batch": count, "value": self.solver.read(result)["value"]}

    def memory(self, answer: str) -> dict[str, Any]:
        """Bytes that one call adds at its peak to what the process holds before it.

        A tiny call beforehand loads code and starts threads; buffers that a library keeps for later count.
        """
        import numpy as np

        from benchmarks.libraries import NotOffered

        tiny = {name: array if name == "theta" else array[:_TINY_POINTS] for name, array in self.data.items()}
        self.module.prepare(self.job, tiny).call(0)
        del tiny
        gc.collect()
        try:
            before = reset_peak()
        except OSError as error:
            raise NotOffered("the system does not report it") from error
        result = self.solver.call(self.next_seed())
        peak = _status_bytes("VmHWM") - before
        np.savez(answer, **self.solver.read(result))
        return {"bytes": peak}

    def drop(self) -> dict[str, Any]:
        """Forget the problem."""
        self.solver, self.data = None, {}
        gc.collect()
        return {}

    def next_seed(self) -> int:
        self.seed += 1
        return self.seed


def serve(session: Session, requests: IO[str], replies: IO[str]) -> None:
    for line in requests:
        request = json.loads(line)
        operation = request.pop("operation")
        try:
            reply = getattr(session, operation)(**request)
        except Exception as error:
            reply = failure(error)
        wait_for_rest()
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def failure(error: Exception) -> dict[str, Any]:
    """What went wrong in one line, without the paths of this machine."""
    lines = str(error).strip().splitlines() or [""]
    text = re.sub(r"(?:[A-Za-z]:)?[/\\][^\s'\",:;)]+", "...", lines[0])[:200]
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return {"failed": f"{type(error).__name__}: {text}", "missing": missing}


def wait_for_rest(most_s: float = 0.5) -> None:
    """Return when no thread of this process spins any more: BLAS threads do for a while after each call."""
    stop = time.perf_counter() + most_s
    while time.perf_counter() < stop:
        used = time.process_time()
        time.sleep(0.01)
        if time.process_time() - used < 0.001:
            return


def reset_peak() -> int:
    """Start the kernel's record of the peak anew; bytes held now. Linux only."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def _status_bytes(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    match = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise OSError(f"the kernel does not report {field}")
    return 1024 * int(match[1])


if __name__ == "__main__":
    main()
