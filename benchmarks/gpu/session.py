"""Libraries asked in this process, where they share a GPU; JAX, which would take it for itself, in its own."""

from __future__ import annotations

import gc
import importlib
import os
from typing import Any

import numpy as np
import torch

from benchmarks.libraries import Job, NotOffered, Solver
from benchmarks.machine import wait_for_compilers
from benchmarks.problems import Contender
from benchmarks.problems import Path as SortPath
from benchmarks.processes import Pool, Refusal, Worker, pot_backends, reason
from benchmarks.worker import Session, failure

# Few enough that all their launches fit in the queue.
_QUEUED_CALLS = 10
_QUEUED_S = 0.05
_CYCLES_A_SECOND = 2e9
_WARM_UPS = 3

# Compiling a function of JAX takes seconds; what takes longer than this is stuck.
_REPLY_LIMIT_S = 30.0


class DeviceSession(Session):
    """One contender and the problem it was last given, with its data on the device."""

    def __init__(self, library: str, arrays: str, device: str) -> None:
        super().__init__(library, arrays)
        self.device = torch.device(device)

    def hello(self) -> dict[str, Any]:
        if self.library != "reference":
            return super().hello()
        self.module = importlib.import_module("benchmarks.libraries.reference_torch")
        facts: dict[str, Any] = self.module.describe()
        return facts

    def prepare(self, job: dict[str, Any], data: str) -> dict[str, Any]:
        self.job = Job(**job)
        with np.load(data) as file:
            self.data = {name: file[name] for name in file.files}
        if self.job.arrays == "torch" or self.library == "reference":
            self.data = {name: torch.from_numpy(a).to(self.device) for name, a in self.data.items()}
        self.solver = self.module.prepare(self.job, self.data)
        self.pace_s, self.device_is_known = None, False
        if self.job.form == "graph" and self.device.type == "cuda":
            self.solver = captured(self.solver)
        return {}

    def batch(self, seconds: float, calls: int) -> dict[str, Any]:
        wait_for_compilers()
        reply = super().batch(seconds, calls)
        if self.device.type == "cuda" and reply["seconds"][0] < _QUEUED_S and not self.device_is_known:
            reply["device_seconds"] = [device_seconds(self.solver, reply["seconds"][0])]
            self.device_is_known = True
        return reply

    def memory(self, answer: str) -> dict[str, Any]:
        """Bytes that one call adds at its peak to what torch holds before it, by torch's own count."""
        result = self.solver.call(self.next_seed())
        np.savez(answer, **self.solver.read(result))
        if self.device.type != "cuda":
            raise NotOffered("only a GPU's memory is counted")
        # A training step starts without gradients.
        for array in self.data.values():
            array.grad = None
        del result
        gc.collect()
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        self.solver.call(self.next_seed())
        torch.cuda.synchronize(self.device)
        return {"bytes": torch.cuda.max_memory_allocated(self.device) - before}

    def drop(self) -> dict[str, Any]:
        """Forget the problem. Objects that are counted are gone at once; a collection would take longer."""
        self.solver, self.data = None, {}
        if self.library == "reference" and self.device.type == "cuda":
            # What float64 took should not stand in the way of the contenders.
            torch.cuda.empty_cache()
        return {}


def device_seconds(solver: Solver, host_s: float) -> float:
    """Seconds a call that the device takes if it need not wait for launches: they queue while it sleeps."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    calls = max(1, min(_QUEUED_CALLS, int(_QUEUED_S / host_s)))
    torch.cuda._sleep(int(2 * calls * host_s * _CYCLES_A_SECOND))
    start.record()
    for seed in range(calls):
        solver.call(seed)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / calls


def captured(solver: Solver) -> Solver:
    """The same call replayed from a CUDA graph. Gradients stay where the capture put them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for seed in range(_WARM_UPS):
            solver.call(seed)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = solver.call(_WARM_UPS)

    def replay(seed: int, kept: Solver = solver) -> Any:
        # What was captured works on memory that the solver holds, so it is kept.
        graph.replay()
        return result

    return Solver(replay, solver.read, solver.wait)


class Here(Worker):
    """A contender asked in this process, as if it had one of its own."""

    def __init__(self, contender: Contender, device: str) -> None:
        self.session = DeviceSession(contender.library, contender.arrays, device)

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = getattr(self.session, operation)(**fields)
        except Exception as error:
            raise Refusal(reason(failure(error))) from None
        return reply

    @property
    def alive(self) -> bool:
        return True

    def close(self) -> None:
        self.session.drop()


class DevicePool(Pool):
    """Contenders on one device: all in this process but for JAX."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        # JAX, imported by POT, would take three quarters of the memory.
        os.environ.update(pot_backends("torch"))

    def start(self, contender: Contender, threads: int | None) -> Worker:
        if contender.arrays == "jax":
            worker = Worker(contender, threads, self.device)
            worker.reply_limit_s = _REPLY_LIMIT_S
            return worker
        return Here(contender, self.device)

    @property
    def best_path(self) -> SortPath:
        return "default"
