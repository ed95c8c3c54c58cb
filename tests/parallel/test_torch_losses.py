"""Losses over two and four processes: those of one process that holds all points."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this build of torch has no gloo", allow_module_level=True)

from parallel import sharded_cases  # noqa: E402
from thinning import every  # noqa: E402

# Seconds for everything; ranks that wait for each other give up by themselves, and say where they were.
_PATIENCE = 240


@pytest.fixture(scope="module", params=every(2, [2, 4]))
def failures(request, tmp_path_factory):
    """By case and rank, what went wrong."""
    sharded_cases.compile_kernels()
    size, folder = request.param, tmp_path_factory.mktemp("ranks")
    started = torch.multiprocessing.spawn(sharded_cases.run_rank, (size, str(folder)), nprocs=size, join=False)
    deadline = time.monotonic() + _PATIENCE
    try:
        while not started.join(timeout=max(0.1, deadline - time.monotonic())):
            assert time.monotonic() < deadline, f"the ranks are not done after {_PATIENCE} s"
    finally:
        for process in started.processes:
            process.kill()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]


@pytest.mark.parametrize("case", sharded_cases.CASES)
def test_ranks_agree_with_one_process(case, failures):
    found = [of_rank.get(case, "not run, since a case before it failed") for of_rank in failures]
    assert not any(found), "\n".join(f"rank {k}: {text}" for k, text in enumerate(found) if text)


def test_example_runs_under_torchrun():
    script = Path(__file__).parents[2] / "examples" / "distributed_encoder.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*command, str(script), "--steps", "30"], capture_output=True, text=True, timeout=_PATIENCE
    )
    assert run.returncode == 0, run.stderr
    # Lines of two processes may stand side by side.
    sums = re.findall(r"rank (\d): [^;]*; parameters sum to (-?\d+\.\d{6})", run.stdout)
    assert sorted(rank for rank, _ in sums) == ["0", "1"]
    # All ranks have the same parameters: they got the same gradients.
    assert len({total for _, total in sums}) == 1
