"""Every command: what it answers, in JSON and in words, and how it ends."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from record_schema import DOCS, SCHEMA, check

import orthoslice as osl
from orthoslice.cli import running


def test_the_check_can_fail(run, tables):
    record = run("test", *tables, "--n-permutations", 9).record
    check(record)
    without = {key: value for key, value in record.items() if key != "options"}
    columns = [record["columns"][0] | {"mean": [1.0]}]
    for bad in (
        without,
        record | {"schema_version": 2},
        record | {"more": 1},
        record | {"units": "metres"},
        record | {"test": {}},
        record | {"verdict": record["verdict"] | {"different": 1}},
        record | {"verdict": record["verdict"] | {"pvalue": "0.01"}},
        record | {"verdict": record["verdict"] | {"pvalue": 1.5}},
        record | {"columns": columns},
    ):
        with pytest.raises(AssertionError):
            check(bad)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (
            "compare",
            {
                "sliced",
                "projected",
                "bounds",
                "exact",
                "shuffled",
                "test",
                "pair",
                "features",
                "verdict",
                "columns",
                "repeated",
                "rows_looked_at",
                "equal",
            },
        ),
        ("distance", {"sliced", "projected", "rows_looked_at", "equal"}),
        ("bounds", {"bounds", "exact", "rows_looked_at", "equal"}),
        ("test", {"test", "pair", "verdict", "columns", "repeated", "rows_looked_at", "equal"}),
        ("pairwise", {"pairwise"}),
    ],
)
def test_records_follow_the_schema(run, tables, command, parts):
    result = run(command, *tables)
    assert result.exit_code == 0
    check(result.record)
    always = {"schema_version", "orthoslice", "command", "options", "inputs", "units", "left_out", "notes"}
    assert set(result.record) == always | parts
    assert result.record["command"] == command
    assert [i["rows"] for i in result.record["inputs"]] == [80, 60]
    assert [i["columns"] for i in result.record["inputs"]] == [2, 2]


def test_every_key_of_the_schema_is_documented():
    """In words, beside the schema."""
    text = (DOCS / "cli.md").read_text(encoding="utf-8")

    def keys(rule):
        yield from rule.get("properties", ())
        parts = [*rule.get("properties", {}).values(), *rule.get("$defs", {}).values()]
        for part in parts + ([rule["items"]] if "items" in rule else []):
            yield from keys(part)

    found = set(keys(SCHEMA))
    assert "adjusted_pvalue" in found
    assert not {key for key in found if f'"{key}"' not in text and f"`{key}`" not in text}


@pytest.mark.parametrize("units", ["standard", "raw"])
def test_compare_says_what_the_library_says(run, tables, units):
    found = run("compare", *tables, "--seed", 3, *(["--units", "raw"] if units == "raw" else [])).record
    x, y = (np.loadtxt(t, delimiter=",", skiprows=1, usecols=(0, 1)) for t in tables)
    if units == "standard":
        x, y = osl.scaled([x, y])
    assert found["units"] == units
    expected = osl.sliced_wasserstein(x, y, rng=3)
    assert found["sliced"]["distance"] == float(expected.distance)
    assert found["sliced"]["n_directions"] == expected.n_directions
    bounds = osl.wasserstein_bounds(x, y, rtol=0.0, rng=3)
    assert (found["bounds"]["lower"], found["bounds"]["upper"]) == (bounds.lower, bounds.upper)
    assert found["test"]["pvalue"] == osl.two_sample_test(x, y, rng=3).pvalue
    assert [f["name"] for f in found["features"]] == ["age", "height"]
    assert found["sliced"]["distance"] < found["bounds"]["lower"] <= found["bounds"]["upper"]
    assert found["bounds"]["lower"] < found["projected"]["distance"]


def test_compare_in_words(run, tables):
    result = run("compare", *tables, "--words")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "a.csv (80 rows) and b.csv (60 rows), 2 columns" in text
    assert "Are they different? Yes." in text
    assert "none of the shuffles made them as different as they are (p = 0.001)" in text
    assert "To become like b.csv, the rows of a.csv have to move by" in text
    assert "age" in text
    assert "higher in b.csv: mean" in text
    assert "column 'name' is left out: it holds identifiers" in result.stderr
    assert "Lengths are in standard deviations of the columns." in text
    same = " ".join(run("compare", tables[0], tables[0], "--words").stdout.split())
    left = "1 was left out: 'name' (identifiers: no two rows have the same)."
    assert f"No: they are equal in the 2 columns looked at; {left} Both hold the same rows." in same
    assert "Yes" not in same


def test_compare_is_quick_once_all_is_compiled(run, tmp_path):
    """Two real tables in less than 5 s of processor time, which other processes do not change."""
    data = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    files = [tmp_path / f"{name}.csv" for name in data.target_names]
    for k, file in enumerate(files):
        header = ",".join(data.feature_names)
        np.savetxt(file, data.data[data.target == k], delimiter=",", header=header, comments="")
    assert run("compare", *files).exit_code == 0
    began = time.process_time()
    found = run("compare", *files, "--standardize").record
    assert time.process_time() - began < 5
    assert [i["rows"] for i in found["inputs"]] == [212, 357]
    assert found["test"]["pvalue"] == 0.001


ODD = {
    "row": np.array([[1.0, 2.0, 3.0]]),
    "constant": np.ones((20, 3)),
    "zero": np.zeros((5, 3)),
    "tiny": np.random.default_rng(0).normal(size=(30, 3)) * 1e-300,
    "huge": np.random.default_rng(0).normal(size=(30, 3)) * 1e300,
    "far": np.random.default_rng(0).normal(size=(30, 3)) + 1e9,
    "single": np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32),
}


@pytest.mark.parametrize("a", ODD)
@pytest.mark.parametrize("b", ["constant", "tiny", "single"])
def test_odd_tables(run, tmp_path, a, b):
    """An answer without NaN, or one line: never a traceback, and never a warning."""
    for name in (a, b):
        np.save(tmp_path / f"{name}.npy", ODD[name])
    files = tmp_path / f"{a}.npy", tmp_path / f"{b}.npy"
    for options in ((), ("--words",), ("--standardize",)):
        result = run("compare", *files, "--n-permutations", 19, *options)
        assert "nan" not in result.stdout
        if "huge" in (a, b) and "--standardize" not in options:  # arrays are as they are
            assert result.exit_code == 2
            assert result.stderr.endswith("Or add --standardize.\n")
        else:
            assert result.exit_code == 0


def test_words_say_how_to_scale(run, tmp_path):
    draw = np.random.default_rng(1)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", draw.normal(size=(50, 3)) * [1, 1, 1000])
    files = tmp_path / "a.npy", tmp_path / "b.npy"
    assert "add --standardize" in " ".join(run("compare", *files, "--words").stdout.split())
    assert "--standardize" not in run("compare", *files, "--words", "--standardize").stdout


def test_options_reach_the_library(run, tables):
    found = run(
        "distance",
        *tables,
        "--p",
        3,
        "--n-directions",
        24,
        "--directions",
        "iid",
        "--seed",
        5,
        "--columns",
        "height",
        "--units",
        "raw",
    ).record
    x, y = (np.loadtxt(t, delimiter=",", skiprows=1, usecols=1)[:, None] for t in tables)
    expected = osl.sliced_wasserstein(x, y, 3, n_directions=24, directions="iid", rng=5)
    assert found["sliced"]["distance"] == float(expected.distance)
    assert found["sliced"]["n_directions"] == 24
    assert found["sliced"]["p"] == 3
    scaled = run("distance", *tables, "--standardize").record
    x, y = (np.loadtxt(t, delimiter=",", skiprows=1, usecols=(0, 1)) for t in tables)
    units = osl.scaled([x, y])
    assert scaled["sliced"]["distance"] == pytest.approx(
        float(osl.sliced_wasserstein(*units, rng=0).distance), rel=1e-12
    )
    white = run("distance", *tables, "--whiten").record
    units = osl.scaled([x, y], "whiten")
    assert white["sliced"]["distance"] == pytest.approx(
        float(osl.sliced_wasserstein(*units, rng=0).distance), rel=1e-12
    )
    assert run("test", *tables, "--n-permutations", 19).record["test"]["pvalue"] == 0.05


def test_weights_are_a_column(run, tmp_path):
    """A row of weight 2 is a row that is there twice."""
    (tmp_path / "twice.csv").write_text("u,v\n0,1\n0,1\n3,2\n")
    (tmp_path / "weighted.csv").write_text("u,n,v\n0,2,1\n3,1,2\n")
    (tmp_path / "other.csv").write_text("v,u,n\n5,5,1\n6,7,1\n")
    # Standard deviations count every row once.
    raw = ("--units", "raw")
    plain = run("compare", tmp_path / "twice.csv", tmp_path / "other.csv", "--columns", "u,v", *raw).record
    weighted = run("compare", tmp_path / "weighted.csv", tmp_path / "other.csv", "--weights", "n", *raw).record
    assert weighted["sliced"]["distance"] == pytest.approx(plain["sliced"]["distance"])
    assert "test" not in weighted
    assert "verdict" not in weighted
    means = {c["name"]: c["mean"] for c in weighted["columns"]}
    assert means == {c["name"]: pytest.approx(c["mean"]) for c in plain["columns"]}
    assert any("rows with weights" in note for note in weighted["notes"])


def test_a_level_makes_the_exit_code(run, tables):
    assert run("test", *tables, "--level", 0.05).exit_code == 1
    assert run("test", tables[0], tables[0], "--level", 0.05).exit_code == 0
    assert run("test", *tables).exit_code == 0


def test_a_tolerance_that_is_missed_exits_with_1(run, tables):
    result = run("distance", *tables, "--rtol", 1e-9, "--n-directions", 64)
    assert result.exit_code == 1
    assert result.record["sliced"]["converged"] is False
    assert "the sliced distance is less accurate than --rtol" in result.stderr
    result = run("distance", *tables, "--rtol", 0.2)
    assert result.exit_code == 0
    assert result.record["sliced"]["converged"] is True


@pytest.mark.parametrize("missed", ["sliced", "projected"])
def test_a_tolerance_that_one_distance_misses(run, tables, monkeypatch, missed):
    """Either of the two is enough; words and notes name it."""
    real = running.PreparedComparison.work_out

    def work_out(self, part):
        return dataclasses.replace(real(self, part), converged=part != missed)

    monkeypatch.setattr(running.PreparedComparison, "work_out", work_out)
    for options in ((), ("--words",)):
        result = run("distance", *tables, "--rtol", 0.2, *options)
        assert result.exit_code == 1
        assert f"the {missed} distance is less accurate than --rtol asks for" in result.stderr
        assert result.stderr.count("--rtol") == 1
    found = run("distance", *tables, "--rtol", 0.2).record
    assert [found[part]["converged"] for part in ("sliced", "projected")] == [
        missed != "sliced",
        missed != "projected",
    ]
    assert f"The {missed} distance is less accurate than was asked for." in found["notes"]


def test_pairwise_puts_what_is_alike_side_by_side(run, tmp_path):
    draw = np.random.default_rng(0)
    files = [tmp_path / f"{k}.npy" for k in range(4)]
    for file, centre in zip(files, (0, 10, 0.1, 10.1), strict=True):
        np.save(file, draw.normal(size=(40, 3)) + centre)
    found = run("pairwise", *files).record["pairwise"]
    assert found["labels"] == ["0.npy", "1.npy", "2.npy", "3.npy"]
    assert {frozenset(found["order"][:2]), frozenset(found["order"][2:])} == {
        frozenset({0, 2}),
        frozenset({1, 3}),
    }
    expected = osl.pairwise([np.load(f) for f in files], rng=0).distance
    np.testing.assert_array_equal(found["distance"], expected)
    shown = run("pairwise", *files, "--words").stdout
    places = [shown.index(f"{k}.npy") for k in found["order"]]
    assert places == sorted(places)


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".NPZ"])
def test_plan_writes_pairs(run, tables, tmp_path, suffix):
    output = tmp_path / f"plan{suffix}"
    result = run("plan", *tables, "-o", output)
    assert result.exit_code == 0
    check(result.record)
    assert result.record["plan"]["path"] == str(output)
    if suffix == ".csv":
        assert output.read_text().startswith("row_a,row_b,mass,distance\n")
        rows = np.loadtxt(output, delimiter=",", skiprows=1)
    else:
        with np.load(output) as pairs:
            rows = np.column_stack([pairs[k] for k in ("row_a", "row_b", "mass", "distance")])
    assert len(rows) == result.record["plan"]["n_pairs"]
    np.testing.assert_allclose(np.bincount(rows[:, 0].astype(int), rows[:, 2]), 1 / 80)
    np.testing.assert_allclose(np.bincount(rows[:, 1].astype(int), rows[:, 2]), 1 / 60)
    np.testing.assert_allclose((rows[:, 2] * rows[:, 3] ** 2).sum(), result.record["plan"]["cost"])
    assert result.record["plan"]["distance"] >= run("bounds", *tables).record["bounds"]["lower"]


def test_plan_writes_over_no_input(run, tables, tmp_path):
    before = tables[0].read_text()
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.csv").symlink_to(tables[0])
    os.link(tables[0], tmp_path / "twin.csv")
    for output in ("a.csv", "sub/../a.csv", "link.csv", "twin.csv"):
        result = run("plan", *tables, "-o", tmp_path / output)
        assert result.exit_code == 2
        assert "none of those that are read" in result.stderr
        assert tables[0].read_text() == before
    assert run("plan", *tables, "-o", "plan.txt").exit_code == 2
    assert run("plan", *tables, "-o", "/no/such/folder/plan.csv").exit_code == 2


def test_report_hands_the_comparison_on(run, tables, tmp_path, monkeypatch):
    written = {}

    def write_report(comparison, path, **_):
        written.update(path=path, comparison=comparison)

    monkeypatch.setattr(osl.Comparison, "write_report", write_report)
    assert run("report", *tables, "-o", tmp_path / "r.html", "--n-permutations", 19).exit_code == 0
    found = written["comparison"]
    assert written["path"] == tmp_path / "r.html"
    assert found.names == ("a.csv", "b.csv")
    assert found.features == ("age", "height")
    assert found.test.n_permutations == 19
    assert None not in (found.sliced, found.projected, found.bounds, found.explanation, found.shuffled_move)


ACTS = "\x1b]0;title\x07\x7f\x9b\u202e\u2066\u200f[bold]"


def test_names_of_files_and_columns_do_not_act(run, tmp_path):
    """Controls of terminals, turns of direction and markup: in words, notes, errors and JSON."""
    files = [tmp_path / f"{k}{ACTS}.csv" for k in "ab"]
    for k, file in enumerate(files):
        file.write_text(f"u{ACTS},t{ACTS}\n1,x\n{k},y\n", encoding="utf-8")
    np.savez(tmp_path / "keys.npz", **{f"k{ACTS}": np.ones((2, 2)), "z": np.ones((2, 2))})
    output = tmp_path / f"p{ACTS}.csv"
    for words in (
        *[(command, *files) for command in ("compare", "distance", "bounds", "test", "pairwise")],
        ("plan", *files, "-o", output),
        ("compare", *files, "--columns", "v"),
        ("compare", *files, "--columns", f"t{ACTS}"),
        ("compare", files[0], tmp_path / f"no{ACTS}.csv"),
        ("compare", tmp_path / "keys.npz", tmp_path / "keys.npz"),
    ):
        for options in ((), ("--words",)):
            result = run(*words, *options)
            text = result.stdout + result.stderr
            assert not {c for c in text if c in ACTS and not c.isprintable()}
            if result.stdout.startswith("{"):
                assert result.record["inputs"][0]["name"] == str(files[0])
            if options and result.stdout:
                assert "[bold]" in text
                assert r"\x1b]0;title" in text


def test_a_comparison_in_python_shows_names_that_do_not_act():
    x = np.random.default_rng(0).normal(size=(30, 2))
    found = osl.compare(x, x + 1, names=(f"a{ACTS}", "b"), features=[f"u{ACTS}", "v"], n_permutations=9, rng=0)
    for text in (repr(found), repr(found.explanation)):
        assert not {c for c in text if c in ACTS and not c.isprintable()}
        assert r"u\x1b]0;title" in text


def test_info_tells_versions_and_refusals(run, monkeypatch):
    found = run("info").record
    assert found["versions"]["orthoslice"] == osl.__version__
    assert found["kernels"]["numba"] == "in use"
    monkeypatch.setattr("orthoslice.cli.about.numba_refusal", lambda: "numba cannot be imported (too old)")
    assert run("info").record["kernels"]["numba"] == "not in use: numba cannot be imported (too old)"
    assert "numba" in run("info", "--words").stdout


def test_version_and_help(run):
    assert run("--version").stdout == f"orthoslice {osl.__version__}\n"
    text = run("--help").stdout
    for command in (
        "compare",
        "distance",
        "bounds",
        "test",
        "pairwise",
        "plan",
        "report",
        "info",
        "warmup",
        "demo",
    ):
        assert command in text
        assert run(command, "--help").exit_code == 0
    help_of_compare = run("compare", "--help").stdout
    for option in ("p", "rtol", "directions", "n-directions", "weights", "columns", "standardize", "whiten"):
        assert f"--{option}" in help_of_compare
    for option in ("drop-missing", "seed", "memory", "json"):
        assert f"--{option}" in help_of_compare


def test_help_loads_no_more_than_it_needs():
    code = (
        "import sys, orthoslice.cli; from typer.testing import CliRunner; "
        "assert CliRunner().invoke(orthoslice.cli.app, ['compare', '--help']).exit_code == 0; "
        "print([m for m in ('numba', 'pyarrow', 'pandas', 'torch', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_standard_input(run, tables):
    found = run("distance", "-", tables[1], stdin=tables[0].read_bytes()).record
    assert found["sliced"] == run("distance", *tables).record["sliced"]
    assert found["inputs"][0]["name"] == "-"
    assert "Only one" in run("distance", "-", "-", stdin=b"").stderr


def test_ctrl_c_prints_the_estimate_so_far(run, tables, monkeypatch):
    """The signal comes while directions are being scored, after the first of them."""
    from orthoslice.estimates import passes

    real, seen = passes.Passes._score, []

    def score(self, task, draw):
        if len(seen) == 1:
            signal.raise_signal(signal.SIGINT)
        seen.append(task)
        return real(self, task, draw)

    monkeypatch.setattr(passes.Passes, "_score", score)
    monkeypatch.setattr(passes, "_HOST_BYTES", 1 << 14)
    monkeypatch.setattr("orthoslice.check.options.default_workers", lambda: 1)
    result = run("distance", *tables, "--rtol", 1e-9, "--n-directions", 100_000, "--directions", "iid")
    assert result.exit_code == running.EXIT_INTERRUPTED
    check(result.record)
    assert 0 < result.record["sliced"]["n_directions"] < 100_000
    assert "projected" not in result.record
    assert any("Ctrl-C" in note for note in result.record["notes"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_before_there_is_anything(run, tables, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("orthoslice.cli.running.read_tables", interrupt)
    result = run("distance", *tables)
    assert result.exit_code == 130
    assert result.stderr == "orthoslice: stopped before there was anything to show.\n"
    assert result.stdout == ""


def test_a_real_process_hears_ctrl_c(tmp_path):
    """SIGINT to `python -m orthoslice` in the middle of a long run: JSON on stdout, no traceback on stderr."""
    draw = np.random.default_rng(0)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", draw.normal(size=(3000, 8)))
    environment = {**os.environ, "PYTHONPATH": str(Path(osl.__file__).parents[1]), "ORTHOSLICE_QUIET": "1"}
    code = (
        "import os, orthoslice.estimates.passes as passes, orthoslice.cli as cli\n"
        "real = passes.Passes._score\n"
        "def score(self, *args):\n"
        "    found = real(self, *args)\n"
        "    os.write(2, b'scored\\n')\n"
        "    return found\n"
        "passes.Passes._score = score\n"
        "cli.app()\n"
    )
    arguments = ["distance", "a.npy", "b.npy", "--rtol", "1e-9", "--n-directions", "10000000"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(3):
            assert process.stderr.readline() == "scored\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err
    record = json.loads(out)
    check(record)
    assert record["sliced"]["n_directions"] < 10_000_000


AFTER_WARMUP = """
import gc, sys
import numpy as np, orthoslice as osl
from numba.core.dispatcher import Dispatcher
from orthoslice.backend.kernels import when_to_compile
from orthoslice.cli.warmup import compile_kernels

def missed():
    # How many kernels were in the cache, and those that were not.
    kernels = [o for o in gc.get_objects() if issubclass(type(o), Dispatcher)]
    found = sum(sum(k.stats.cache_hits.values()) for k in kernels)
    return found, sorted((k.py_func.__name__, *k.stats.cache_misses) for k in kernels if k.stats.cache_misses)

assert compile_kernels() == ""
when_to_compile.PLAIN_NUMBERS = when_to_compile.LOADING_NUMBERS = 0
draw = np.random.default_rng(0)
for dtype in (np.float64, np.float32):
    x, y, z = (draw.normal(size=(n, 5)).astype(dtype) for n in (300, 280, 300))
    weights = draw.random(300).astype(dtype)
    weights /= weights.sum()
    for own in (None, weights):
        osl.sliced_wasserstein(x, y, x_weights=own, rng=0)
        osl.projected_wasserstein(x, y, x_weights=own, rng=0)
        osl.value_and_grad(x, y, x_weights=own, rng=0)
        osl.match(x, z, x_weights=own, rng=0)
        osl.wasserstein_bounds(x, y, x_weights=own, rng=0)
        osl.compare(x, y, x_weights=own, rng=0, n_permutations=19)
    osl.compare(np.tile(x, 4)[:, ::-1], np.tile(y, 4), rng=0, n_permutations=19)
    osl.projected_wasserstein(*(draw.normal(size=(n, 2)).astype(dtype) for n in (5000, 4500)), rng=0)
    for p in (1, 2):
        osl.two_sample_test(x, y, p=p, rng=0, n_permutations=19)
        osl.bootstrap(x, y, p=p, rng=0)
    osl.two_sample_test(x, y, method="auto", rng=0, n_permutations=19)
    osl.pairwise([x, y, z], rng=0)
    osl.explain(x, y, rng=0)
    osl.barycenter([x, y], rng=0, n_steps=2)
    osl.flow(x, y, rng=0, n_steps=2)
    osl.exact.sliced_plane(x[:20, :2], y[:20, :2], 2)
    osl.wasserstein(x, z)
    osl.wasserstein(*(draw.normal(size=(n, 6)) for n in (300, 300)))
    counts = draw.integers(1, 9, size=1200)
    osl.wasserstein(*draw.normal(size=(2, 1200, 6)), x_weights=counts / counts.sum())
    if "torch" in sys.argv:
        import torch
        for loss in (osl.nn.SlicedWassersteinLoss(seed=0), osl.nn.ProjectedWassersteinLoss(seed=0)):
            moved = torch.from_numpy(x).requires_grad_()
            for _ in range(2):
                loss(moved, torch.from_numpy(y)).backward()
print(*missed())
"""


def test_after_warmup_public_calls_compile_nothing():
    """In a process of its own, whose kernels are those of the warmup: none meets types that are new to it."""
    pytest.importorskip("numba")
    options = ["torch"] if importlib.util.find_spec("torch") else []
    done = subprocess.run(
        [sys.executable, "-c", AFTER_WARMUP, *options], capture_output=True, text=True, check=True
    )
    count, _, new = done.stdout.strip().partition(" ")
    assert int(count) > 30
    assert new == "[]"


def test_warmup_without_a_compiler(run, monkeypatch):
    monkeypatch.setattr(
        "orthoslice.cli.warmup.numba_refusal", lambda: "numba cannot be imported (it is not there)"
    )
    result = run("warmup")
    assert result.exit_code == 0
    assert "there is nothing to compile: numba cannot be imported" in result.stderr


def test_ctrl_c_after_the_first_part(run, tables, monkeypatch):
    """What was worked out by then is printed; the part under way is not waited for."""

    def interrupt(*_, **__):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")

    monkeypatch.setattr("orthoslice.applications.compare.compare.two_sample_test", interrupt)
    result = run("compare", *tables)
    assert result.exit_code == running.EXIT_INTERRUPTED
    check(result.record)
    assert {"sliced"} == set(result.record) & {"sliced", "test", "verdict", "bounds", "projected", "features"}
    assert result.record["sliced"] == run("distance", *tables).record["sliced"]
    assert "How far apart are they?" in run("compare", *tables, "--words").stdout


MEMORY_SCRIPT = """
import re, sys, threading
from pathlib import Path
from typer.testing import CliRunner
from orthoslice.cli import app

def anonymous():
    return 1024 * int(re.search(r"RssAnon:\\\\s*(\\\\d+)", Path("/proc/self/status").read_text()).group(1))

def run(*files):
    options = ["--memory", "96MB", "--n-directions", "16", "--n-permutations", "19"]
    options += ["--max-rows", "500"]
    result = CliRunner().invoke(app, ["compare", *files, *options])
    assert result.exit_code == 0, result.output

run(*(file.replace("large", "small") for file in sys.argv[1:]))
before = peak = anonymous()
done = threading.Event()

def watch():
    global peak
    while not done.wait(0.005):
        peak = max(peak, anonymous())

watcher = threading.Thread(target=watch)
watcher.start()
run(*sys.argv[1:])
done.set()
watcher.join()
print(peak - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="tells the memory of a process on Linux only"
)
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_files_larger_than_memory(tmp_path, suffix):
    """A pair of tables of 120 MB each within 96 MB, beyond what a small comparison leaves behind.

    What counts is memory of the process's own: pages of mapped files can be given back at any time.
    """
    draw = np.random.default_rng(0)
    # Parquet is read in double precision.
    for name, n_rows in (("small", 50), ("large", 1_200_000 if suffix == ".npy" else 600_000)):
        rows = draw.normal(size=(n_rows, 25)).astype(np.float32)
        if suffix == ".npy":
            np.save(tmp_path / f"{name}.npy", rows)
        else:
            pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
            table = pa.table({f"c{k}": rows[:, k] for k in range(25)})
            pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=100_000, compression="none")
    del rows
    environment = {**os.environ, "PYTHONPATH": str(Path(osl.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT.replace("\\\\", "\\"), f"large{suffix}", f"large{suffix}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 96e6
