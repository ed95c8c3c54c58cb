"""The benchmark of variance in small: its files, its peers against what is known of them, its arithmetic."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# `pytest` alone, unlike `python -m pytest`, does not look for packages in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.variance import GROUPS, analysis, measure, page, peers, problems, suite
from benchmarks.variance.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.full
def test_smoke_run(tmp_path: Path) -> None:
    """The command in tiny sizes: rows, page and pictures; a second run has nothing left to do."""
    command = [sys.executable, "-m", "benchmarks", "variance", "--smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {target["met"] for target in json.loads(done.stdout)["targets"]} == {None}
    rows = measure.load(tmp_path / "variance.jsonl")
    assert {row["method"] for row in rows} >= {method.name for method in METHODS}
    assert {row["group"] for row in rows} <= set(GROUPS)
    assert all(np.isfinite(row["variance"]) for row in rows)
    text = (tmp_path / "variance.md").read_text()
    assert "nan" not in text.lower().replace("nan,", "")
    assert str(ROOT) not in text
    for name in ("dimension", "data", "gradients"):
        assert (tmp_path / f"variance_{name}.png").read_bytes().startswith(b"\x89PNG")
    before = (tmp_path / "variance.jsonl").read_bytes()
    assert suite.run(set(GROUPS), tmp_path, lambda text: None, smoke=True) == rows
    assert (tmp_path / "variance.jsonl").read_bytes() == before


@pytest.mark.parametrize("draw", [peers.iid, peers.orthogonal, peers.sobol, peers.plain_sobol])
@pytest.mark.parametrize("dim", [2, 5])
def test_directions_of_peers(draw: Any, dim: int) -> None:
    theta = draw(31, dim, 3)
    assert theta.shape == (31, dim)
    np.testing.assert_allclose(np.linalg.norm(theta, axis=1), 1)


def test_the_spiral_is_even() -> None:
    """Its points integrate quadratic functions nearly without error; iid points do not."""
    theta = peers.spiral(500, 3, 1)
    np.testing.assert_allclose(theta.T @ theta / 500, np.eye(3) / 3, atol=5e-3)
    assert np.abs(peers.iid(500, 3, 0).T @ peers.iid(500, 3, 0) / 500 - np.eye(3) / 3).max() > 5e-3


@pytest.mark.parametrize(("dim", "degree"), [(2, 6), (3, 4), (6, 2)])
def test_harmonics_integrate_what_they_span(dim: int, degree: int) -> None:
    """A polynomial of their degree exactly; one of a higher degree not."""
    n = 2 * math.comb(dim + degree - 1, dim - 1) + 1
    assert peers.harmonic_degree(n, dim) == degree
    theta = peers.iid(n, dim, 0)

    def mean_power(k: int) -> float:
        return math.prod(range(1, k, 2)) / math.prod(range(dim, dim + k, 2))

    nothing = np.zeros((1, dim))
    for k in (2, degree):
        assert peers.harmonics(theta, theta[:, 0] ** k, nothing, nothing) == pytest.approx(
            mean_power(k), rel=1e-9
        )
    higher = peers.harmonics(theta, theta[:, 0] ** (degree + 2), nothing, nothing)
    assert higher != pytest.approx(mean_power(degree + 2), rel=1e-6)
    assert peers.harmonic_degree(4 * 16, 16) == 0


def test_controls_of_peers(rng: np.random.Generator) -> None:
    """Where the score is the control, nothing is left of the error."""
    x, y = rng.normal(size=(2, 30, 4)) + np.arange(2)[:, None, None]
    gap = x.mean(axis=0) - y.mean(axis=0)
    theta = peers.iid(20, 4, 0)
    scores = (theta @ gap) ** 2
    assert peers.lower(theta, scores, x, y) == pytest.approx(gap @ gap / 4, rel=1e-9)
    scores = scores + np.var(x @ theta.T, axis=0) + np.var(y @ theta.T, axis=0)
    exact = (gap @ gap + x.var(axis=0).sum() + y.var(axis=0).sum()) / 4
    assert peers.upper(theta, scores, x, y) == pytest.approx(exact, rel=1e-9)
    assert peers.lower(theta, scores, x, y) != pytest.approx(exact, rel=1e-3)


def make_row(method: str, **known: Any) -> measure.Row:
    about = {"group": "shown", "problem": "Gaussians M=1000", "dim": 3, "directions": 12, "set": 0}
    row = {"score": "SW", "p": 1, "method": method, "ours": True, "unbiased": True, "exact": False}
    numbers = {"repetitions": 50, "mean": 1.0, "variance": 0.5, "fourth_moment": 0.75, "seconds": 1.0}
    return about | row | numbers | {"score_variance": None} | known


def test_ratios() -> None:
    """Bias counts, the truth comes from the method that knows it best, and iid from its single scores."""
    rows = [
        make_row("iid", score_variance=24.0, variance=3.0),
        make_row("orthogonal", variance=0.5),
        make_row(
            "harmonics (Leluc et al.)", variance=0.0, fourth_moment=0.0, mean=2.0, repetitions=1, unbiased=False
        ),
    ]
    found = analysis.ratios_of({row["method"]: row for row in rows})
    assert found["orthogonal"].value == pytest.approx(0.25)
    assert found["orthogonal"].stderr == pytest.approx(math.sqrt((0.75 - 0.25) / 50) / 2)
    assert found["harmonics (Leluc et al.)"].value == pytest.approx((1 - 0.5 / 50) / 2)
    exact = {row["method"]: row for row in [*rows, make_row("exact", mean=3.0, exact=True, variance=0.0)]}
    assert analysis.ratios_of(exact)["harmonics (Leluc et al.)"].value == pytest.approx(0.5)
    assert analysis.ratios_of(exact)["orthogonal"].value == pytest.approx(0.25)


def test_targets() -> None:
    def gain(ratio: float, n_sets: int) -> Any:
        rows = [
            make_row(name, set=k, p=p, **numbers)
            for k in range(n_sets)
            for p in (1, 2)
            for name, numbers in (
                ("iid", {"score_variance": 12.0}),
                ("auto, 1 replicate", {"variance": 1 / ratio, "fourth_moment": 0.0}),
            )
        ]
        return [t for t in analysis.evaluate(rows) if "d=3" in t.what and "Gaussians" in t.what]

    assert [t.met for t in gain(40, 20)] == [True, True]
    assert [t.met for t in gain(25, 20)] == [False, True]
    assert "5 of 20 data sets" in gain(25, 5)[0].measured
    assert all(t.met is None for t in analysis.evaluate([]))


def test_problems_are_what_they_say() -> None:
    for problem in problems.all_problems():
        if problem.group not in ("cells", "mnist"):
            x, y = problem.make(1)
            assert x.shape[1] == y.shape[1] == problem.dim, problem.title
            again = problem.make(1)
            np.testing.assert_array_equal(again[0], x)
    names = [(p.group, p.name, p.dim, p.n_directions) for p in problems.all_problems()]
    assert len(set(names)) == len(names)


def test_numbers_are_read_as_they_are_written() -> None:
    assert page.number(0.02234, 0.0012) == ".022(2)"
    assert page.number(0.98, 0.034) == ".98(4)"
    assert page.number(3.1e-5, 4e-6) == "3.1e-05(4)"
    assert page.number(1.26, 0.2) == "1.3(2)"
