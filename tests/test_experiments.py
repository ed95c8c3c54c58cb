"""The experiments in small: their files, their claims, and the statistics that they rest on."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import importlib.util
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

# `pytest` alone, unlike `python -m pytest`, does not look for packages in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments import NAMES, common, fig1_mse_map, fig2_mse_scatter, power_two_sample, table_2x2
from experiments.__main__ import app
from experiments.planted_changes import detectors
from experiments.planted_changes import simulating as planting
from experiments.planted_changes.changes import CHANGES
from experiments.planted_changes.tables import TABLES
from experiments.two_sample_level import simulating

ROOT = Path(__file__).resolve().parents[1]
CODES = [
    *("kind", "learning_rate", "distance", "seed", "sweep", "loss", "reconstruction", "penalty"),
    *("mean_radius", "radius_95", "share_outside", "w2", "w2_of_prior", "x", "y"),
]
COLUMNS = {
    "fig1_mse_map": ["phi_deg", "rho_deg", "mse_iid", "mse_orthogonal"],
    "fig2_mse_scatter": [
        *("dim", "m", "problem", "mse_iid", "mse_iid_stderr", "mse_orthogonal", "mse_orthogonal_stderr"),
        *("value", "value_stderr", "value_exact"),
    ],
    "table_2x2": [
        *("data_set", "quantity", "exact", "paper", "difference", "agrees", "largest_move", "n_tried"),
        *table_2x2.COORDINATES,
    ],
    "fig3_swae": [
        *("data", "precision", "n_directions", "learning_rate", "estimator", "seed", "sweep"),
        *("loss", "reconstruction", "penalty", "seconds"),
    ],
    "fig4_trust_region": [
        *("task", "method", "strength", "seed", "steps", "n_episodes", "mean_return"),
        *("sw", "pw", "kl", "shift", "std", "rollout_ms", "update_ms"),
    ],
    "fig5_hidden_codes": CODES,
    "law_as_prior": CODES,
    "fig6_generators": [
        *("kind", "method", "p", "seed", "steps", "w2", "central_modes", "perimeter_modes"),
        *("central_share", "reach", "x", "y"),
    ],
    "swae_gradients": [
        *("seed", "sweep", "of", "varies", "estimator", "n_directions", "n_repeats"),
        *("variance", "variance_stderr", "squared_mean", "ms"),
    ],
    "match_quality": [
        *("problem", "n", "dim", "repeat", "least", "best_direction", "merged", "match", "seconds"),
    ],
    "flow_matching": [
        *("kind", "problem", "pairing", "seed", "euler_steps", "w2", "sw2", "bend", "length"),
        *("pair_cost", "pair_seconds", "number", "t", "x", "y", "pixels"),
    ],
    "conjecture_pw": [
        *("kind", "p", "m", "value", "mse_iid", "mse_orthogonal", "n_data_sets", "n_worse", "share_worse"),
        *("low", "high", "median_ratio", "worst_ratio"),
    ],
    "two_sample_level": [
        *("table", "method", "n_simulations", "n_rejected", "share", "low", "high"),
    ],
    "planted_changes": [
        *("table", "n_rows", "change", "method", "n_pairs", "n_found", "share", "low", "high"),
    ],
    "power_two_sample": [
        *("problem", "effect", "method", "n_simulations", "n_rejected", "power", "low", "high"),
    ],
}
SUFFIXES = (".csv", ".json", ".png", ".svg")
every_experiment = pytest.mark.parametrize("name", NAMES)
# Trainings take longest, and have tests of their own.
TRAININGS = {"fig3_swae", "swae_gradients", "fig4_trust_region", "fig6_generators"}
every_small_run = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name in TRAININGS)) for name in NAMES]
)

Outcomes = Callable[[str], common.Outcome]


def module(name: str) -> ModuleType:
    return importlib.import_module(f"experiments.{name}")


def folder_bytes(folder: Path, name: str) -> dict[str, bytes]:
    return {suffix: (folder / f"{name}{suffix}").read_bytes() for suffix in SUFFIXES}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """The outcome of a small run, made once."""
    done: dict[str, common.Outcome] = {}

    def outcome(name: str) -> common.Outcome:
        if name == "fig4_trust_region":
            pytest.importorskip("stable_baselines3", reason="pip install 'orthoslice[rl]'")
        if name in ("fig6_generators", "flow_matching"):
            pytest.importorskip("torch", reason="pip install 'orthoslice[torch]'")
        if name not in done:
            done[name] = common.execute(name, tmp_path_factory.mktemp(name), smoke=True)
        return done[name]

    return outcome


@every_small_run
def test_files(smoke: Outcomes, name: str) -> None:
    outcome = smoke(name)
    with (outcome.folder / f"{name}.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header == COLUMNS[name]
    assert len(lines) == len(outcome.rows)
    assert all(list(row) == header for row in outcome.rows)
    files = folder_bytes(outcome.folder, name)
    assert files[".png"].startswith(b"\x89PNG")
    assert b"<svg" in files[".svg"]
    record = json.loads(files[".json"])
    assert record["experiment"] == name
    assert record["config"].get("seed") == record["seed"]
    assert set(record["versions"]) >= {"orthoslice", "numpy", "scipy", "python"}
    assert record["seconds"] >= 0
    for place in (ROOT, outcome.folder, Path.home()):
        assert not any(str(place).encode() + b"/" in content for content in files.values())


@every_small_run
def test_claims_hold_in_small(smoke: Outcomes, name: str) -> None:
    claims = smoke(name).claims
    assert claims
    assert [claim for claim in claims if not claim.held] == []


@every_experiment
def test_kept_results_are_whole(name: str) -> None:
    files = folder_bytes(common.RESULTS, name)
    record = json.loads(files[".json"])
    assert record["config"] == json.loads(json.dumps(dataclasses.asdict(module(name).Config())))
    failed = tuple(claim["claim"] for claim in record["claims"] if not claim["held"])
    assert failed == getattr(module(name), "REFUTED", ())
    assert all(len(content) < 400_000 for content in files.values())
    assert files[".csv"].decode().splitlines()[0].split(",") == COLUMNS[name]
    page = (common.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"results/{name}.png" in page


def test_map_is_completed_by_reflection(smoke: Outcomes) -> None:
    gain = fig1_mse_map.gain_on_torus(smoke("fig1_mse_map").rows)
    n = fig1_mse_map.SMOKE.n_angles
    assert gain.shape == (n, n)
    for j, i in np.random.default_rng(0).integers(n, size=(20, 2)):
        iid, orthogonal = common.plane_errors(*fig1_mse_map.clouds(2 * np.pi * i / n, 2 * np.pi * j / n), 1)
        assert math.isclose(gain[j, i], iid - orthogonal, abs_tol=1e-12)


def test_map_has_the_vectors_of_the_caption() -> None:
    x, y = fig1_mse_map.clouds(0.4, 1.1)
    np.testing.assert_allclose(x, [[0, 0], [1, 0]])
    np.testing.assert_allclose(x[0] - y[0], [math.cos(1.1), math.sin(1.1)])
    np.testing.assert_allclose(y[0] - y[1], [math.cos(0.4), math.sin(0.4)])


def test_map_refuses_an_odd_grid() -> None:
    with pytest.raises(ValueError, match="`n_angles` must be even"):
        fig1_mse_map.run(fig1_mse_map.Config(n_angles=7))


def test_regions_on_the_torus() -> None:
    mask = np.zeros((6, 8), dtype=bool)
    assert fig1_mse_map.region_sizes(mask) == []
    mask[0, 0] = mask[-1, 0] = mask[0, -1] = True
    mask[3, 3:5] = True
    assert fig1_mse_map.region_sizes(mask) == [3, 2]
    # Opposite corners touch at a point only.
    corners = np.zeros((6, 8), dtype=bool)
    corners[0, 0] = corners[-1, -1] = True
    assert fig1_mse_map.region_sizes(corners) == [1, 1]
    assert fig1_mse_map.region_sizes(corners, diagonal=True) == [2]
    assert fig1_mse_map.region_sizes(np.ones((4, 4), dtype=bool)) == [16]


def test_a_third_region_is_noticed(smoke: Outcomes) -> None:
    rows = [dict(row) for row in smoke("fig1_mse_map").rows]
    rows[3]["mse_orthogonal"] = 2 * rows[3]["mse_iid"]
    first, *_ = fig1_mse_map.check(rows)
    assert not first.held


def test_table_has_the_known_numbers(smoke: Outcomes) -> None:
    rows = smoke("table_2x2").rows
    exact = [row["exact"] for row in rows[:6]]
    known = [0.795775, 0.073996, 0.006047, 1.079091, 0.011722, 0.017150]
    np.testing.assert_allclose(exact, known, rtol=0, atol=5.1e-7)
    # The nearest points from the file, with its nine digits, still have the paper's numbers.
    nearest = next(row for row in rows if row["data_set"] == "second_nearest")
    points = np.array([float(f"{nearest[key]:.9g}") for key in table_2x2.COORDINATES])
    assert np.abs(points - table_2x2.SECOND).max() <= 0.005
    np.testing.assert_allclose(table_2x2.numbers(points), table_2x2.PRINTED_SECOND, rtol=0, atol=1e-6)


def test_two_changed_coordinates_have_the_papers_numbers(smoke: Outcomes) -> None:
    changed = [row for row in smoke("table_2x2").rows if row["data_set"] == "second_two_changes"]
    points = table_2x2.SECOND.copy()
    points[[2, 7]] = -2.02, 0.42
    np.testing.assert_allclose([changed[0][key] for key in table_2x2.COORDINATES], points, atol=1e-12)
    np.testing.assert_allclose(table_2x2.numbers(points), table_2x2.PRINTED_SECOND, rtol=0, atol=1e-6)


def test_conjecture_fails_at_three_and_holds_at_two(smoke: Outcomes) -> None:
    rows = smoke("conjecture_pw").rows
    examples = {row["p"]: row for row in rows if row["kind"] == "counterexample"}
    for p, iid, orthogonal in ((1, 0.0497682896671, 0.0649576280193), (2, 0.590811410697, 0.917991136665)):
        found = [examples[p]["mse_iid"], examples[p]["mse_orthogonal"]]
        np.testing.assert_allclose(found, [iid, orthogonal], rtol=2e-12)
    searches = [row for row in rows if row["kind"] == "search"]
    assert all(row["n_worse"] == 0 for row in searches if row["m"] == 2)
    assert all(0 < row["low"] < row["share_worse"] < row["high"] < 1 for row in searches if row["m"] > 2)


def test_kernel_tests_have_their_level_and_power() -> None:
    # 200 tests at 5%: more than 24 rejections once in ten thousand seeds.
    hits = dict.fromkeys(("MMD, median", "MMD, tuned", "energy"), 0)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((2, 15, 3))
        for method, pvalue in power_two_sample.kernel_pvalues(x, y, 39, rng).items():
            hits[method] += pvalue <= 0.05
    assert all(n <= 24 for n in hits.values())
    # Negative control: a clear difference is noticed.
    assert max(power_two_sample.kernel_pvalues(x, y + 3, 39, rng).values()) == 1 / 40


def test_a_level_run_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(simulating.SMOKE, n_simulations=4, chunk=3, n_permutations=19)
    done: list[simulating.Chunk] = []
    simulate = simulating.simulate
    monkeypatch.setattr(simulating, "simulate", lambda c, chunk: done.append(chunk) or simulate(c, chunk))
    whole = simulating.count_rejections(config, tmp_path)
    assert len(done) == 2 * len(simulating.TABLES)
    assert simulating.count_rejections(config, tmp_path) == whole
    assert len(done) == 2 * len(simulating.TABLES)
    # More simulations keep the whole chunks, and only those.
    simulating.count_rejections(dataclasses.replace(config, n_simulations=6), tmp_path)
    assert [chunk[1:] for chunk in done[10:]] == [(3, 3)] * len(simulating.TABLES)


def test_a_wrong_level_is_noticed(smoke: Outcomes) -> None:
    rows = smoke("two_sample_level").rows
    n = rows[0]["n_simulations"]
    for wrong in (0.0, 0.3):
        spoilt = [row | {"share": wrong, "n_rejected": wrong * n} for row in rows]
        held = [claim.held for claim in module("two_sample_level").check(spoilt)]
        assert held == ([False, False, True] if wrong else [n < 300, True, False])
    # With many simulations one percent decides.
    for share, holds in ((0.0601, False), (0.0599, True), (0.0401, True), (0.0399, False)):
        many = [row | {"share": share, "n_simulations": 2000} for row in rows]
        assert module("two_sample_level").check(many)[0].held == holds


def test_planted_changes_are_thirty_and_change_something() -> None:
    assert len(CHANGES) == len({(own.table, own.name) for own in CHANGES}) == 30
    assert {own.table for own in CHANGES} == set(TABLES)
    for case in (own for own in CHANGES if own.table != "many customers"):
        x, y = planting.draw_pair(case, 1, 0)
        again = planting.draw_pair(case, 1, 0)
        assert all(np.array_equal(y[name], again[1][name], equal_nan=y[name].dtype.kind == "f") for name in y)
        plain = planting.draw_pair(case._replace(apply=lambda rng, table: table), 1, 0)
        assert list(x) == list(y)
        assert all(len(x[name]) == len(y[name]) == TABLES[case.table].n_rows for name in x)
        same = [np.array_equal(y[n], plain[1][n], equal_nan=y[n].dtype.kind == "f") for n in y]
        assert not all(same), case


def test_rules_of_others_are_as_documented() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.standard_normal(500), rng.standard_normal(4000)
    # Up to 1,000 rows a test, beyond a distance of a tenth of a standard deviation.
    assert detectors.has_drifted(few, few + 0.3)
    assert not detectors.has_drifted(few, few + 0.02)
    assert detectors.has_drifted(many, many + 0.12)
    assert not detectors.has_drifted(many, many + 0.08)
    assert detectors.has_drifted(np.repeat(["a", "b"], 50), np.repeat(["a", "b"], [80, 20]))
    assert not detectors.has_drifted(np.repeat(["a", "b"], 1000), np.repeat(["a", "b"], [1050, 950]))
    assert detectors.column_pvalue(few, np.where(few > 1, np.nan, few)) < 0.05


def test_tables_are_encoded_as_files_are(tmp_path: Path) -> None:
    """What the command line decides of the same rows in files."""
    pytest.importorskip("pyarrow")
    from orthoslice.cli import app as command_line

    (case,) = (own for own in CHANGES if own.name == "shares of a category")
    pair = planting.draw_pair(case, 1, 0)
    for name, table in zip("ab", pair, strict=True):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows([["" if v != v else v for v in row] for row in zip(*table.values(), strict=True)])
    words = ["test", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--missing", "indicate", "--seed", "0"]
    done = CliRunner().invoke(command_line, [*words, "--json", "--n-permutations", "59"])
    decided = json.loads(done.stdout)["verdict"]["pvalue"]
    encoded = detectors.encode(*pair)
    assert detectors.our_pvalue(encoded, 59, 0) == pytest.approx(decided)


def test_being_behind_is_noticed(smoke: Outcomes) -> None:
    rows, check = smoke("planted_changes").rows, module("planted_changes").check
    ours = [r for r in rows if r["method"] == detectors.OURS]

    def spoilt(share: float, is_null: bool) -> list[common.Row]:
        changed = {"share": share, "n_found": round(share * 30), "n_pairs": 30}
        return [r | changed if r in ours and (r["change"] == planting.NOTHING) is is_null else r for r in rows]

    assert [claim.held for claim in check(rows)] == [True, True, True]
    assert [claim.held for claim in check(spoilt(0.0, False))] == [True, False, True]
    assert [claim.held for claim in check(spoilt(0.6, True))] == [False, True, True]


def test_simulated_errors_agree_with_exact_ones() -> None:
    # Five standard errors on each of 18 comparisons: a false alarm once in a hundred thousand runs.
    x, y = np.random.default_rng(5).standard_normal((2, 6, 4, 2))
    config = fig2_mse_scatter.Config(n_blocks=20_000, n_iid=20_000, n_together=3)
    pairs = zip(fig2_mse_scatter._exact(x, y), fig2_mse_scatter._simulated(x, y, config), strict=True)
    for exact, simulated in pairs:
        for key in ("mse_iid", "mse_orthogonal", "value"):
            assert abs(simulated[key] - exact[key]) < 5 * simulated[f"{key}_stderr"]
        # Negative control: the two errors are not the same number.
        gap = abs(simulated["mse_iid"] - exact["mse_orthogonal"])
        assert gap > 5 * simulated["mse_iid_stderr"]


def test_standard_error_of_a_variance() -> None:
    sample = np.random.default_rng(6).standard_normal((500, 4000))
    spread, stderr = fig2_mse_scatter.variance(sample)
    assert math.isclose(spread.mean(), 1, abs_tol=5 * math.sqrt(2 / 499 / 4000))
    assert math.isclose(float(stderr.mean()), float(spread.std()), rel_tol=0.06)


def test_wilson_interval() -> None:
    np.testing.assert_allclose(common.wilson(0, 10), (0, 0.277533), atol=1e-6)
    np.testing.assert_allclose(common.wilson(5, 10), (0.236593, 0.763407), atol=1e-6)


def test_rows_as_text(tmp_path: Path) -> None:
    common.write_rows(tmp_path / "rows.csv", [{"a": 1, "b": 1 / 3, "c": None}, {"a": 2, "b": 1e-12, "c": True}])
    assert (tmp_path / "rows.csv").read_text() == "a,b,c\n1,0.333333333,\n2,1e-12,True\n"


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": 0.25, "c": None, "d": "text"}, {"a": 2, "b": 1e-12, "c": True, "d": "1 x"}]
    common.write_rows(tmp_path / "rows.csv", rows)
    assert common.read_rows(tmp_path / "rows.csv") == rows


def test_one_part_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows take their old place, and are those of a whole run; the others stay."""
    small = dataclasses.replace(power_two_sample.SMOKE, n_simulations=2, n_permutations=19)
    monkeypatch.setattr(power_two_sample, "SMOKE", small)
    chosen = {name: power_two_sample.PROBLEMS[name] for name in ("mean of one feature", "mixture", "digits")}
    monkeypatch.setattr(power_two_sample, "PROBLEMS", chosen)
    monkeypatch.setattr(power_two_sample, "check", lambda rows: [("a claim", True, str(len(rows)))])
    arguments = ["power_two_sample", "--smoke", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    whole = common.read_rows(tmp_path / "power_two_sample.csv")
    spoilt = [row | {"n_rejected": -1} for row in whole]
    common.write_rows(tmp_path / "power_two_sample.csv", spoilt)
    assert CliRunner().invoke(app, [*arguments, "--part", "mixture"]).exit_code == 0
    found = common.read_rows(tmp_path / "power_two_sample.csv")
    expected = [new if new["problem"] == "mixture" else old for new, old in zip(whole, spoilt, strict=True)]
    assert found == expected
    for extra, message in (
        (["--part", "pbmc"], "There is no problem 'pbmc'; there are mean of one feature, mixture, digits"),
        (["--part", "mixture", "--out", str(tmp_path / "new")], "has no rows in"),
    ):
        result = CliRunner().invoke(app, [*arguments, *extra])
        assert result.exit_code == 2
        assert message in result.output


def test_a_problem_without_its_library_is_left_out_aloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert power_two_sample.run_part(power_two_sample.SMOKE, "pbmc68k") == []
    assert (
        "pbmc68k is left out: it needs scanpy, pip install 'orthoslice[experiments]'" in capsys.readouterr().err
    )


def test_cells_of_blood() -> None:
    pytest.importorskip("scanpy", reason="pip install 'orthoslice[experiments]'")
    x, y = power_two_sample.cells_mixed(np.random.default_rng(0), 0.4, power_two_sample.Config())
    assert x.shape == y.shape == (60, 50)
    monocytes = {row.tobytes() for row in power_two_sample.cells("CD14+ Monocyte")}
    assert [sum(row.tobytes() in monocytes for row in sample) for sample in (x, y)] == [0, 24]
    assert len({row.tobytes() for row in np.concatenate([x, y])}) == 120


def test_command_lists_names() -> None:
    result = CliRunner().invoke(app, ["--list"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(NAMES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig3"], "There is no experiment 'fig3'; there are fig1_mse_map, fig2_mse_scatter, table_2x2"),
        ([], "Name an experiment: fig1_mse_map"),
        (["table_2x2", "--smoke", "--out", str(common.RESULTS)], "must not write over the full results"),
    ],
)
def test_command_refuses(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_command_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gymnasium" else find(name))
    result = CliRunner().invoke(app, ["fig4_trust_region", "--smoke", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "needs gymnasium: pip install 'orthoslice[rl]'" in result.output


def test_command_tells_whether_claims_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = fig1_mse_map.Config(n_angles=12)
    monkeypatch.setattr(fig1_mse_map, "SMOKE", small)
    for held, code in ((True, 0), (False, 1)):
        monkeypatch.setattr(fig1_mse_map, "check", lambda rows, held=held: [("a claim", held, "a detail")])
        result = CliRunner().invoke(app, ["fig1_mse_map", "--smoke", "--out", str(tmp_path)])
        assert result.exit_code == code
        assert f'"held": {json.dumps(held)}' in result.output
        record = json.loads((tmp_path / "fig1_mse_map.json").read_text())
        assert record["config"]["n_angles"] == 12
        assert record["claims"] == [{"claim": "a claim", "held": held, "detail": "a detail"}]
