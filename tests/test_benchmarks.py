"""The benchmarks in small: their files, and above all that wrong answers are caught. No time is asserted."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thinning import every
from typer.testing import CliRunner

# `pytest` alone, unlike `python -m pytest`, does not look for packages in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    GROUPS,
    agreement,
    problems,
    processes,
    report,
    runner,
    small,
    suite,
    tables,
    targets,
    worker,
)
from benchmarks.__main__ import RESULTS, app
from benchmarks.data import KINDS, TIED, equal_points, make_clouds
from benchmarks.gpu import page as gpu_page
from benchmarks.gpu import problems as gpu_problems
from benchmarks.gpu import targets as gpu_targets
from benchmarks.gpu.page import GPU
from benchmarks.machine import wait_for_compilers
from benchmarks.problems import CONTROL, NUMPY, OTT, OURS, POT, TORCH, Contender, Problem

ROOT = Path(__file__).resolve().parents[1]
TINY = Problem(group="control", n=30, dim=3, n_directions=8, contenders=CONTROL)
FLOORS = {"floor", "floors"}
"""Groups that we have no part in."""
STATUSES = {"ok", "wrong", "not installed", "not offered"}


def make_row(**known: Any) -> runner.Row:
    """A row as `forward` would have it, with some columns replaced."""
    row = runner.empty_row(replace(TINY, group="forward"), OURS)
    times = {"median_s": 1.0, "low_s": 0.9, "high_s": 1.1, "n_reps": 3}
    return row | times | {"sort_path": "AVX2", "error": 0.0, "tolerance": 1e-4} | known


@pytest.mark.parametrize("benchmark", every(2, [GPU, report.CPU]), ids=lambda benchmark: benchmark.name)
def test_smoke_run(tmp_path: Path, benchmark: report.Benchmark) -> None:
    """One run of everything in tiny sizes: the command, its files, their columns, every answer right."""
    name = benchmark.name
    command = [sys.executable, "-m", "benchmarks", name, "--smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complaints"] == []
    record = json.loads((tmp_path / f"{name}.json").read_text())
    assert list(record["groups"]) == list(benchmark.groups)
    with (tmp_path / f"{name}.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    rows = report.all_rows(record)
    assert header == runner.COLUMNS
    assert len(lines) == len(rows)
    check_rows(rows, set(benchmark.groups))
    for group in record["groups"].values():
        assert group["run"]["smoke"]
        assert group["run"]["machine"]["cores"] >= 1
        assert any(library.startswith("orthoslice") for library in group["run"]["libraries"])
    for figure in benchmark.figures:
        assert (tmp_path / f"{name}_{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (tmp_path / f"{name}_{figure}.svg").read_bytes()
    written = "".join((tmp_path / f"{name}.{suffix}").read_text() for suffix in ("json", "csv", "md"))
    assert str(ROOT) not in written
    assert str(tmp_path) not in written
    assert sys.prefix not in written


def check_rows(rows: list[runner.Row], groups: set[str]) -> None:
    """Every entry is ok or not installed, except the control, which is wrong and has no time."""
    assert {row["status"] for row in rows} <= STATUSES
    assert [row["library"] for row in rows if row["status"] == "wrong"] == ["control"]
    assert all(row["median_s"] is None for row in rows if row["status"] != "ok")
    mine = [row for row in rows if row["library"] == "orthoslice"]
    assert {row["group"] for row in mine} == groups - {"control"} - FLOORS
    for row in mine:
        if row["arrays"] == "jax" and row["status"] == "not installed":
            continue
        if row["group"] == "memory" and row["status"] == "not offered":
            continue  # Only Linux tells, and only a GPU of its own memory.
        assert row["status"] == "ok"
        measured = row["peak_bytes"] if row["group"] == "memory" else row["median_s"]
        assert measured is not None
        assert measured >= 0


def test_a_wrong_answer_is_caught_and_not_timed(tmp_path: Path) -> None:
    with processes.Pool() as pool:
        control, right = runner.measure(TINY, problems.SMOKE_SCHEDULE, pool, tmp_path)
    assert control.row["status"] == "wrong"
    assert control.row["median_s"] is None
    assert control.row["error"] > control.row["tolerance"]
    assert right.row["status"] == "ok"
    assert right.row["n_reps"] >= 1
    assert suite.complaints([control.row, right.row]) == []


def test_a_check_that_misses_the_control_is_complained_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "judge", lambda *_: agreement.Verdict(0.0, 1e-4))
    with processes.Pool() as pool:
        control, _ = runner.measure(TINY, problems.SMOKE_SCHEDULE, pool, tmp_path)
    assert len(suite.complaints([control.row])) == 1


@pytest.mark.parametrize("value", [1.001, 0.999, math.nan, math.inf, -1.0])
def test_wrong_values(value: float) -> None:
    verdict = agreement.judge({"value": value}, {"value": 1.0}, NUMPY)
    assert not verdict.agrees
    assert not verdict.may_be_timed
    assert verdict.text.startswith("wrong by")


def test_tolerance_follows_the_type() -> None:
    answer, expected = {"value": 1 + 1e-6}, {"value": 1.0}
    assert agreement.judge(answer, expected, NUMPY).agrees
    assert not agreement.judge(answer, expected, replace(NUMPY, dtype="float64")).agrees


@pytest.mark.parametrize("vector", [[1.0, 2.1], [2.0, 1.0], [1.0, math.nan], [1.0, 2.0, 3.0]])
def test_a_wrong_gradient_beside_a_right_value(vector: list[float]) -> None:
    expected = {"value": 1.0, "vector": np.array([1.0, 2.0])}
    assert agreement.judge({"value": 1.0, "vector": np.array([1.0, 2.0])}, expected, TORCH).agrees
    assert not agreement.judge({"value": 1.0, "vector": np.array(vector)}, expected, TORCH).agrees


def test_equal_points_may_share_a_gradient_in_any_way() -> None:
    """But their sum is settled, as is what other points have."""
    numbers = equal_points(np.array([[1.0], [2.0], [1.0]]), np.array([[2.0]]))
    assert len(set(numbers)) == 3
    expected = {"value": 1.0, "vector": np.array([1.0, 2.0, 3.0, 4.0]), "numbers": numbers}
    for vector, agrees in (([3, 2, 1, 4], True), ([3, 2, 2, 4], False), ([2, 1, 3, 4], False)):
        found = agreement.judge({"value": 1.0, "vector": np.array(vector, float)}, expected, TORCH)
        assert found.agrees == agrees


@pytest.mark.parametrize("kind", KINDS)
def test_clouds_of_every_kind(kind: str) -> None:
    x, y = make_clouds(kind, np.random.default_rng(0), 60, 50, 3)
    assert (x.shape, y.shape) == ((60, 3), (50, 3))
    assert np.isfinite(x).all()
    assert np.isfinite(y).all()
    assert (len(np.unique(x, axis=0)) < 60) == (kind in (*TIED, "constant"))


def test_own_directions_are_judged_by_standard_errors() -> None:
    expected = {"value": 1.0, "stderr": 0.01}
    drawn = replace(NUMPY, directions="iid")
    assert agreement.judge({"value": 1.05}, expected, drawn).agrees
    assert not agreement.judge({"value": 1.05}, expected, NUMPY).agrees
    assert not agreement.judge({"value": 1.1}, expected, drawn).agrees


def test_a_known_defect_is_timed_and_marked_and_no_other() -> None:
    off, far_off = {"value": 1.04}, {"value": 2.0}
    known = agreement.judge(off, {"value": 1.0}, POT)
    assert known.may_be_timed
    assert not known.agrees
    assert "float32" in known.text
    assert not agreement.judge(far_off, {"value": 1.0}, POT).may_be_timed
    for contender in (OURS, OTT, TORCH, NUMPY, replace(POT, dtype="float64")):
        assert not agreement.judge(off, {"value": 1.0}, contender).may_be_timed
    wrong = make_row(library="pot", status="wrong", note=known.text)
    assert tables.WRONG in tables.side_by_side([make_row(), wrong], "forward")
    assert "wrong by 4%" in tables.wrong_notes([wrong])[0]
    assert suite.complaints([wrong]) == []
    assert suite.complaints([make_row(status="wrong", note="wrong by 4%")])


def test_a_missing_library_is_a_row() -> None:
    missing = worker.failure(ModuleNotFoundError("No module named 'ott'", name="ott.tools"))
    assert processes.reason(missing) == "not installed"
    row = make_row(library="ott", arrays="jax", status="not installed", median_s=None, sort_path=None)
    assert "not installed" in tables.side_by_side([make_row(), row], "forward")
    assert suite.complaints([row]) == []


def test_what_fails_is_told_without_paths() -> None:
    reply = worker.failure(OSError("cannot read /home/someone/data.npy\nand more"))
    assert processes.reason(reply) == "failed: OSError: cannot read ..."


def test_a_process_that_dies_is_refused() -> None:
    with processes.Pool() as pool:
        process = pool.worker(NUMPY)
        process.process.kill()
        process.process.wait()
        with pytest.raises(processes.Refusal, match="ended"):
            process.ask("drop")
        assert pool.worker(NUMPY).ask("drop") == {}


def test_ratios_take_the_best_path_of_a_peer_and_our_default() -> None:
    problem = "n=256, d=128, N=128"
    rows = [
        make_row(problem=problem, median_s=1.0),
        make_row(problem=problem, median_s=0.1, path="other"),
        make_row(problem=problem, library="numpy", median_s=5.0),
        make_row(problem=problem, library="numpy", median_s=0.5, path="other"),
        make_row(problem=problem, library="pot", median_s=25.0),
        make_row(problem=problem, library="pot", median_s=None, status="failed"),
    ]
    assert targets.ratio(rows, "forward", problem, library="numpy") == 0.5
    found = {t.what.rpartition(" against ")[2]: t.met for t in targets.evaluate(rows) if problem in t.what}
    assert found == {"POT": True, "plain NumPy": False, "plain torch": None}


def test_targets_name_problems_that_are_run() -> None:
    names = {(problem.group, problem.name) for problem in problems.full_problems(2)}
    asked = {
        "forward": targets.FORWARD,
        "backward": targets.BACKWARD,
        "projected": [targets.PROJECTED],
        "memory": [targets.PROJECTED, targets.PROJECTED_MORE],
        "unequal": [targets.UNEQUAL],
        "hadamard": [targets.HADAMARD],
    }
    assert {(group, name) for group, wanted in asked.items() for name in wanted} <= names
    assert {group for group, _ in names} | {"cold_start"} == set(GROUPS)


def make_data_rows(slowness: dict[str, float | None]) -> list[runner.Row]:
    """Rows of our times on kinds of data, each beside Gaussian clouds that take a second."""
    return [
        make_row(group="data", problem=f"n=256, d=16, N=128, {kind}", median_s=seconds, data=data)
        for kind, slow in slowness.items()
        for seconds, data in ((slow, None), (1.0, "Gaussian"))
    ]


def test_the_worst_kind_of_data_decides() -> None:
    for slow, met in [(1.4, True), (1.6, False), (None, None)]:
        rows = make_data_rows({"integers": 1.1, "one-hot": slow, "Cauchy": 0.7})
        found = next(t for t in targets.evaluate(rows) if t.what.startswith("sliced, any kind"))
        assert found.met is met
        worst = "1 of 3" if slow is None else f"{slow:g}x at n=256, d=16, N=128, one-hot"
        assert found.measured.startswith(worst)


def test_a_kind_of_data_takes_turns_with_gaussian_clouds(tmp_path: Path) -> None:
    """In processes of their own, each judged by the answer to its own clouds."""
    problem = next(p for p in problems.smoke_problems(2) if p.group == "data" and p.data == "offset")
    with processes.Pool() as pool:
        own, gaussian = runner.measure(problem, problems.SMOKE_SCHEDULE, pool, tmp_path)
    assert (own.row["status"], gaussian.row["status"]) == ("ok", "ok")
    assert own.worker is not gaussian.worker
    assert own.question.expected["value"] != gaussian.question.expected["value"]
    assert (own.question.kind, gaussian.question.kind) == ("offset", "Gaussian")
    assert "Gaussian" not in tables.name_of(own.row)
    assert tables.name_of(gaussian.row).endswith("on Gaussian data)")


def make_gpu_rows(problem: str, seconds: dict[str, float | None], **known: Any) -> list[runner.Row]:
    """Rows of our loss, eager and compiled torch, and POT; those with a time given."""
    rows = []
    for contender in gpu_problems.EVERYONE:
        name = f"{contender.library} {contender.form}".strip()
        if name in seconds:
            place = {"library": contender.library, "form": contender.form or None, "problem": problem}
            rows.append(make_row(median_s=seconds[name], sort_path=None, **(place | known)))
    return rows


def test_gpu_ratios_are_of_the_loss_against_eager_torch() -> None:
    problem = "n=256, d=128, N=128"
    times = {"orthoslice function": 0.1, "orthoslice loss": 1.0, "torch eager": 3.5, "torch compiled": 2.0}
    rows = make_gpu_rows(problem, times | {"pot": 11.0})
    assert gpu_targets.torch_ratio(rows, "forward", problem) == 3.5
    found = {t.what: t.met for t in gpu_targets.evaluate(rows) if t.met is not None}
    assert found == {
        f"forward, {problem}, against {peer}": met for peer, met in [("plain torch", True), ("POT", False)]
    }
    text = gpu_page.with_summary("forward")(rows)
    assert "| 3.5x | 2x | 11x | - |" in text


def test_the_worst_size_decides() -> None:
    sizes = {f"n={n}, d=16, N=1024": late for n, late in [(15, 2.0), (16, 0.9), (17, 3.0)]}
    rows = [
        row
        for problem, late in sizes.items()
        for row in make_gpu_rows(problem, {"orthoslice loss": 1.0, "torch eager": late}, group="sizes")
    ]
    assert gpu_targets.evaluate(rows)[-1].met is False
    assert "0.9x at n=16, d=16" in gpu_targets.evaluate(rows)[-1].measured
    rows += make_gpu_rows("n=31, d=16, N=1024", {"orthoslice loss": 1.0, "torch eager": None}, group="sizes")
    assert gpu_targets.evaluate(rows)[-1].met is None


@pytest.mark.parametrize(
    ("errors", "values", "gradients"),
    [
        ([(1e-8, 2e-8), (1.1e-7, 1e-8), (0.0, 0.0)], True, True),
        ([(1e-8, 2e-8), (1.3e-7, 1e-8), (2e-8, 1e-8)], False, False),
        ([(0.0, 0.0), (1e-3, 2e-3), (1e-7, 0.0)], True, True),
    ],
)
def test_errors_count_beyond_the_last_place(errors: Any, values: bool, gradients: bool) -> None:
    """Values may be one unit in the last place off; of gradients the median counts."""
    for group, met in (("data", values), ("data_backward", gradients)):
        rows = [
            make_row(group=group, problem=f"n={k}", library=library, form=form, error=error)
            for k, pair in enumerate(errors)
            for library, form, error in zip(("orthoslice", "torch"), ("loss", "eager"), pair, strict=True)
        ]
        found = [t.met for t in gpu_targets.evaluate(rows) if "error against" in t.what and t.met is not None]
        assert found == [met]
    assert all(t.met is None for t in gpu_targets.evaluate([]) if "error against" in t.what)


def test_memory_of_half_is_not_below_half() -> None:
    problem = "n=256, d=128, N=128"
    for peak, met in [(49, True), (50, False), (51, False)]:
        rows = [
            make_row(group="memory", problem=problem, library=library, form=form, peak_bytes=held)
            for library, form, held in [("orthoslice", "loss", peak), ("torch", "eager", 100)]
        ]
        assert [t.met for t in gpu_targets.evaluate(rows) if t.met is not None] == [met]


def test_floors_follow_from_rates() -> None:
    """A copy reads and writes; long rows go to memory and back; gradients double the work."""
    rates = gpu_page.Rates(bytes=1e12, flops=1e13)
    row = make_row(n=1000, m=1000, dim=10, n_directions=100)
    assert gpu_page.floor_of(row, rates) == pytest.approx((4 * 21_000 / 1e12, 4e6 / 1e13))
    both = gpu_page.floor_of(row | {"task": "gradients"}, rates)
    assert both == pytest.approx((4 * 41_000 / 1e12, 8e6 / 1e13))
    long = gpu_page.floor_of(row | {"n": 10**5, "m": 10**5}, rates)
    assert long.bytes_s == pytest.approx(4 * (2e6 + 1000 + 4e7) / 1e12)
    assert long.seconds == max(long.bytes_s, long.flops_s)
    copy = make_row(group="floors", task="copy", n=10, m=10, dim=5, median_s=2.0)
    assert gpu_page.rates([copy]) == (2 * 4 * problems.COPIES * 100 / 2, None)


def test_gpu_targets_name_problems_that_are_run() -> None:
    names = {(problem.group, problem.name) for problem in gpu_problems.full_problems()}
    groups = ("forward", "backward", "drawing", "memory")
    assert {(group, name) for group in groups for name in gpu_targets.SLICED} <= names
    for ending in ("", "_backward"):
        with_weights = {f"{name}, Gaussian with weights" for name in gpu_targets.SLICED}
        asked = {
            "weighted": with_weights,
            "jax": gpu_targets.SLICED,
            "band": [gpu_targets.BAND],
            "hadamard": gpu_targets.HADAMARD,
            "projected": [gpu_targets.PROJECTED],
        }
        assert {(group + ending, name) for group, wanted in asked.items() for name in wanted} <= names
    assert ("forward", gpu_targets.LONGEST) in names
    assert {group for group, _ in names} == set(GPU.groups)
    counts = {problem.n for problem in gpu_problems.full_problems() if problem.group == "sizes"}
    assert {15, 16, 17, 2**19 - 1, 2**19 + 1, 10**6} <= counts


def targets_met(rows: list[runner.Row]) -> dict[str, bool]:
    return {t.what: t.met for t in gpu_targets.evaluate(rows) if t.met is not None}


@pytest.mark.parametrize(("seconds", "met"), [(2.0, True), (2.01, False)])
def test_weights_may_take_twice_the_time(seconds: float, met: bool) -> None:
    problem = "n=256, d=128, N=128"
    place = {"group": "weighted", "problem": f"{problem}, Gaussian with weights"}
    rows = [make_row(median_s=seconds, **place), make_row(median_s=1.0, data="Gaussian", **place)]
    assert targets_met(rows) == {f"weighted, {problem}, against ours without weights": met}


@pytest.mark.parametrize(("seconds", "met"), [(0.5, True), (0.51, False)])
def test_large_hadamard_blocks_take_half_the_time(seconds: float, met: bool) -> None:
    problem = "n=1024, d=2048, N=2048"
    rows = [
        make_row(group="hadamard_backward", problem=problem, directions=name, median_s=time)
        for name, time in [("hadamard", seconds), ("orthogonal", 1.0), ("iid", 0.1)]
    ]
    assert targets_met(rows) == {f"hadamard_backward, {problem}, against orthogonal directions": met}
    small = [{**row, "problem": "n=256, d=128, N=128"} for row in rows]
    assert set(targets_met(small).values()) == {True}


@pytest.mark.parametrize(("points", "met"), [("n=4096, d=128, N=1024", True), ("n=16384, d=128, N=512", False)])
def test_large_clouds_are_twice_as_fast_in_jax(points: str, met: bool) -> None:
    rows = [
        make_row(group="jax", problem=points, library=library, arrays="jax", form="jit", median_s=seconds)
        for library, seconds in [("orthoslice", 1.0), ("jnp", 1.5)]
    ]
    assert targets_met(rows) == {f"jax, {points}, against plain jnp": met}


@pytest.mark.parametrize(
    ("group", "problem"), [("projected", gpu_targets.PROJECTED), ("forward", gpu_targets.LONGEST)]
)
def test_two_times_are_asked_in_milliseconds(group: str, problem: str) -> None:
    for seconds, met in [(0.0055, True), (0.0061, False)]:
        assert targets_met([make_row(group=group, problem=problem, median_s=seconds)]) == {
            f"{group}, {problem}": met
        }


def test_a_gradient_on_drawn_directions_is_not_compared() -> None:
    """But the value is; and without a standard error vectors are compared, as are those of projections."""
    expected = {"value": 1.0, "stderr": 0.01, "vector": np.array([1.0, 2.0])}
    drawn, other = replace(TORCH, directions="iid"), np.array([2.0, 1.0])
    assert agreement.judge({"value": 1.05, "vector": other}, expected, drawn).agrees
    assert not agreement.judge({"value": 1.1, "vector": other}, expected, drawn).agrees
    assert not agreement.judge({"value": 1.0, "vector": other}, expected, TORCH).agrees
    del expected["stderr"]
    assert not agreement.judge({"value": 1.0, "vector": other}, expected, drawn).agrees


def test_groups_of_few_problems_come_first() -> None:
    """After the control, which always runs; those of every kind of data are cut first if time runs out."""
    pytest.importorskip("torch")
    from benchmarks.gpu.suite import in_order

    order = in_order({"data", "jax", "floors", "weighted_data"}, gpu_problems.full_problems())
    assert order == ["control", "floors", "jax", "weighted_data", "data"]


def test_what_is_left_out_is_complained_of() -> None:
    """Where the time is up nothing is begun, no row is stored, and no target counts as measured."""
    pytest.importorskip("torch")
    from benchmarks.gpu import suite as gpu_suite

    kept: list[Any] = []
    outcome = gpu_suite.run_suite(
        {"band"}, smoke=True, say=lambda _: None, keep=lambda *given: kept.append(given), seconds=-1.0
    )
    assert (outcome.rows, kept) == ([], [])
    assert len(outcome.complaints) == 2
    assert all("left out" in text for text in outcome.complaints)
    assert targets_met(outcome.rows) == {}


def test_nothing_is_timed_while_kernels_are_compiled() -> None:
    """Threads that compile are waited for; others, which may never end, are not."""
    done, may_end = [], threading.Event()
    other = threading.Thread(target=may_end.wait, name="another")
    ours = threading.Thread(target=lambda: done.append(time.sleep(0.05)), name="orthoslice-compiler")
    for thread in (other, ours):
        thread.start()
    wait_for_compilers()
    assert len(done) == 1
    assert other.is_alive()
    may_end.set()
    other.join()


def test_kinds_with_weights() -> None:
    """The same points, and weights that sum to 1 and differ; none for other kinds."""
    weighted = problems.make_data(replace(TINY, data="integers with weights"))
    plain = problems.make_data(replace(TINY, data="integers"))
    assert set(weighted) - set(plain) == {"x_weights", "y_weights"}
    assert np.array_equal(weighted["x"], plain["x"])
    for name in ("x_weights", "y_weights"):
        assert weighted[name].sum() == pytest.approx(1, abs=1e-6)
        assert weighted[name].max() > 10 * weighted[name].min() > 0


def test_gpu_benchmark_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["gpu"])
    assert result.exit_code == 2
    assert "no NVIDIA GPU" in result.output


def test_report_renders_what_is_stored(tmp_path: Path) -> None:
    known = {"machine": dict.fromkeys(("cpu", "cores", "memory_gib", "system", "python", "load_before"))}
    run = {"date": "today", "smoke": False, "libraries": {}} | known
    run["machine"] |= {"thread_variables": {}, "gpu": "a GPU"}
    report.store(tmp_path, run, make_gpu_rows("n=64, d=8, N=16", {"orthoslice loss": 1.0}), GPU)
    assert CliRunner().invoke(app, ["report", "--out", str(tmp_path)]).exit_code == 0
    assert "- a GPU" in (tmp_path / "gpu.md").read_text()
    assert not (tmp_path / "cpu.md").exists()


def test_a_second_run_replaces_only_its_groups(tmp_path: Path) -> None:
    report.store(tmp_path, {"date": "first"}, [make_row(), make_row(group="floor", task="sort")])
    record = report.store(tmp_path, {"date": "second"}, [make_row(median_s=2.0)])
    assert record == report.load(tmp_path)
    assert {name: group["run"]["date"] for name, group in record["groups"].items()} == {
        "forward": "second",
        "floor": "first",
    }


def test_the_other_sort_path_is_another_process() -> None:
    other = replace(NUMPY, path="other")
    assert processes.process_key(NUMPY, None) != processes.process_key(other, None)
    assert processes.process_key(TORCH, None) == processes.process_key(replace(TORCH, path="other"), None)
    assert processes.environment(Contender(library="pot"), 1)["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["cpu", "--only", "nothing"],
        ["cpu", "--smoke", "--out", str(RESULTS)],
        ["gpu", "--only", "nothing"],
        ["gpu", "--smoke", "--out", str(RESULTS)],
        ["report", "--out", str(RESULTS / "none")],
    ],
)
def test_bad_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_small_problems_of_one_library_leave_the_others(tmp_path: Path) -> None:
    numbers = {"n": 16, "dim": 2, "directions": 16, "ours_us": 1.0, "plain_us": 2.0}
    old = [{"what": what, **numbers} for what in "abc"]
    stored = tmp_path / "small.csv"
    with stored.open("w", newline="") as file:
        writer = csv.DictWriter(file, old[0])
        writer.writeheader()
        writer.writerows(old)
    new = [{**old[1], "ours_us": 3.0}, {**old[1], "n": 32}]
    assert small.with_others(new, stored) == [old[0], *new, old[2]]
    assert small.with_others(new, tmp_path / "none.csv") == new
    assert "| 16 | 1.50 |" in small.page(new)
