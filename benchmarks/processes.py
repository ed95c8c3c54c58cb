"""The processes: one a library and sort path, asked one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.libraries import PACKAGES
from benchmarks.machine import THREAD_VARIABLES, other_path_environment
from benchmarks.problems import BOTH_PATHS, Contender
from benchmarks.problems import Path as SortPath

ROOT = Path(__file__).resolve().parents[1]
REPLY_LIMIT_S = 300.0

# POT imports every array library it finds; a process that uses NumPy alone should hold NumPy alone.
_POT_BACKENDS = ("PYTORCH", "JAX", "CUPY", "TENSORFLOW")
_JAX = {
    "cpu": {"JAX_PLATFORMS": "cpu"},
    # JAX would take three quarters of the memory at once.
    "cuda": {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}


class Refusal(Exception):
    """A library cannot take part: it is not installed, it failed, or it took too long."""


def environment(contender: Contender, threads: int | None, device: str = "cpu") -> dict[str, str]:
    """The variables of a process; they must be set before NumPy is imported."""
    variables = dict(os.environ) | _JAX[device] | {"PYTHONUTF8": "1"} | pot_backends(contender.arrays)
    if contender.path == "other":
        variables |= other_path_environment() or {}
    if threads is not None:
        variables |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    return variables


def pot_backends(arrays: str) -> dict[str, str]:
    """Variables that keep POT from importing array libraries other than the one used."""
    used = {"torch": "PYTORCH"}.get(arrays)
    return {f"POT_BACKEND_DISABLE_{name}": "1" for name in _POT_BACKENDS if name != used}


class Worker:
    """A running process and how to ask it."""

    reply_limit_s = REPLY_LIMIT_S

    def __init__(self, contender: Contender, threads: int | None, device: str = "cpu") -> None:
        command = [sys.executable, "-m", "benchmarks.worker", contender.library, contender.arrays]
        self.process = subprocess.Popen(
            command if threads is None else [*command, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment(contender, threads, device),
        )

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Send a request and wait for the reply."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"operation": operation, **fields}).encode() + b"\n")
            self.process.stdin.flush()
            ready = select.select([self.process.stdout], [], [], self.reply_limit_s)[0]
            timed_out, line = not ready, self.process.stdout.readline() if ready else b""
        except BrokenPipeError:
            timed_out, line = False, b""
        if timed_out:
            self.close()
            raise Refusal(f"failed: no reply to `{operation}` in {self.reply_limit_s:.0f} s")
        if not line:
            raise Refusal(f"failed: the process ended with status {self.process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "failed" in reply:
            raise Refusal(reason(reply))
        return reply

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        # A process that died cannot take what is left in its pipe.
        with contextlib.suppress(BrokenPipeError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def reason(reply: dict[str, Any]) -> str:
    """Why a process refused, in the words of a row's status."""
    missing = (reply.get("missing") or "").partition(".")[0]
    if missing in PACKAGES.values():
        return "not installed"
    if reply["failed"].startswith("NotOffered"):
        return "not offered"
    return f"failed: {reply['failed']}"


class Pool:
    """Processes by library, arrays, sort path and cores, started when first needed."""

    def __init__(self) -> None:
        self._workers: dict[tuple[Any, ...], Worker] = {}
        self._refused: dict[tuple[Any, ...], str] = {}
        self._best: SortPath | None = None
        self.facts: dict[tuple[Any, ...], dict[str, Any]] = {}
        """What each process said of itself: version, threads, sort path."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.close()

    def worker(self, contender: Contender, threads: int | None = None) -> Worker:
        """The process for a contender; raises `Refusal` where it cannot be had."""
        key = process_key(contender, threads)
        if key in self._refused:
            raise Refusal(self._refused[key])
        worker = self._workers.get(key)
        if worker is not None:
            if worker.alive:
                return worker
            worker.close()
        self._workers[key] = worker = self.fresh(contender, threads)
        return worker

    def start(self, contender: Contender, threads: int | None) -> Worker:
        return Worker(contender, threads)

    def fresh(self, contender: Contender, threads: int | None = None) -> Worker:
        """A new process that the caller closes."""
        worker = self.start(contender, threads)
        key = process_key(contender, threads)
        try:
            self.facts[key] = worker.ask("hello")
        except Refusal as refusal:
            worker.close()
            self._refused[key] = str(refusal)
            raise
        return worker

    @property
    def best_path(self) -> SortPath:
        """The sort path that sorts faster here."""
        if self._best is None:
            paths = BOTH_PATHS[:1] if other_path_environment() is None else BOTH_PATHS
            workers = {path: self.worker(Contender(library="numpy", path=path)) for path in paths}
            seconds = {path: worker.ask("probe")["seconds"] for path, worker in workers.items()}
            best: SortPath = min(paths, key=lambda path: seconds[path])
            self._best = best
        return self._best


def process_key(contender: Contender, threads: int | None) -> tuple[Any, ...]:
    """What needs a process of its own: a process holds one prepared problem, so no two contenders share one."""
    path = contender.path if sorts_with_numpy(contender) else "default"
    options = (contender.dtype, contender.directions, contender.form, contender.data)
    return contender.library, contender.arrays, path, *options, threads


def sorts_with_numpy(contender: Contender) -> bool:
    """Whether the sort path matters to a contender. Our kernels may use NumPy's sort on torch's memory."""
    if contender.form:
        return False
    return contender.library in ("orthoslice", "numpy", "control", "reference") or (
        contender.library == "pot" and contender.arrays == "numpy"
    )
