"""A whole run on one GPU: the groups asked for, the device, and complaints about answers."""

from __future__ import annotations

import importlib.metadata
import math
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import GROUPS
from benchmarks.gpu.problems import SCHEDULE, SMOKE_SCHEDULE, full_problems, smoke_problems
from benchmarks.gpu.session import DevicePool
from benchmarks.machine import describe_machine
from benchmarks.problems import Problem
from benchmarks.processes import Refusal
from benchmarks.runner import Row, run
from benchmarks.suite import Outcome, complaints, describe_run


def device_refusal() -> str | None:
    """Why there is nothing to measure here, or None."""
    if torch.cuda.is_available() and torch.version.hip is None:
        return None
    return "There is no NVIDIA GPU that torch can use here; `--smoke` runs tiny sizes without one."


def run_suite(
    groups: Set[str],
    *,
    smoke: bool,
    say: Callable[[str], None],
    keep: Callable[[dict[str, Any], list[Row]], Any],
    seconds: float = math.inf,
) -> Outcome:
    """Run groups of problems, the negative control first; `keep` gets a group's rows after every problem.

    Groups of few problems come next. After `seconds` no problem is begun, and those that are left out are told.
    """
    device = "cpu" if smoke else "cuda"
    schedule = SMOKE_SCHEDULE if smoke else SCHEDULE
    problems = smoke_problems() if smoke else full_problems()
    machine = describe_machine() | {"gpu": "no GPU" if smoke else describe_gpu()}
    rows: list[Row] = []
    found: list[str] = []
    end = time.perf_counter() + seconds
    with DevicePool(device) as pool:
        for name in in_order(groups, problems):
            start = time.perf_counter()
            part: list[Row] = []
            for problem in (p for p in problems if p.group == name):
                if time.perf_counter() > end:
                    found.append(f"{name}: {problem.name}: left out: the time was up.")
                    continue
                try:
                    part += run([problem], schedule, pool, say)
                except Refusal as refusal:
                    found.append(f"{name}: {problem.name}: there is no reference: {refusal}")
                    continue
                # A run that is cut off keeps what it has.
                keep(describe_run(machine, pool, smoke=smoke), part)
            rows += part
            say(f"{name}: {time.perf_counter() - start:.1f} s")
        about = describe_run(machine, pool, smoke=smoke)
    return Outcome(rows, about, [*found, *complaints(rows)])


def in_order(groups: Set[str], problems: Sequence[Problem]) -> list[str]:
    """The control, then groups by how many problems they have: where time runs out, fewest groups are cut."""
    counts = Counter(problem.group for problem in problems)
    others = sorted((name for name in GROUPS if name in groups - {"control"}), key=lambda name: counts[name])
    return ["control", *others]


def describe_gpu() -> str:
    """Name, memory, driver, and what compiles for it."""
    known = torch.cuda.get_device_properties(0)
    parts = [known.name, f"{known.total_memory / 2**30:.0f} GiB", f"driver {_driver()}"]
    parts.append(f"CUDA {torch.version.cuda}")
    try:
        parts.append(f"cuda-bindings {importlib.metadata.version('cuda-bindings')}")
    except importlib.metadata.PackageNotFoundError:
        parts.append("no cuda-bindings")
    return ", ".join(parts)


def _driver() -> str:
    """Its version, from the kernel or else from NVIDIA's tool."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout
        except (OSError, subprocess.TimeoutExpired):
            text = ""
    match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return match[1] if match else "unknown"
