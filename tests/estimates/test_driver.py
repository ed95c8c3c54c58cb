"""Memory, chunks, threads, batches, progress: what must not change the answer, and what it costs."""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import unit_rows, weights

import orthoslice as osl
from orthoslice.backend.arrays.operations import Operation
from orthoslice.costs.lines import sorted_scores
from orthoslice.costs.space import price_in_space
from orthoslice.directions.layout import Layout, whole_blocks
from orthoslice.estimates import passes

DISTANCES = [osl.sliced_wasserstein, osl.projected_wasserstein]


@pytest.mark.parametrize("directions", ["iid", "orthogonal", "hadamard"])
@pytest.mark.parametrize("cost", [None, "exact", "pooled", "independent", "paper_pooled"])
def test_memory_and_workers_change_only_rounding(
    cost: str | None, directions: str, rng: np.random.Generator
) -> None:
    """Small memory splits blocks into single rows; scores keep their order."""
    x, y = rng.normal(size=(40, 6)), rng.normal(size=(30, 6))
    options = {"directions": directions, "n_directions": 45, "rng": 0, "p": 1}
    if cost is not None:
        options["cost"] = cost
    distance = osl.sliced_wasserstein if cost is None else osl.projected_wasserstein
    reference = distance(x, y, **options, workers=1)
    for memory, workers in ((1000, 1), (20_000, 1), (20_000, 3), ("1GiB", 2)):
        est = distance(x, y, **options, memory=memory, workers=workers)
        np.testing.assert_allclose(est.scores, reference.scores, rtol=1e-12)
        assert est.n_blocks == reference.n_blocks


@pytest.mark.parametrize(
    ("layout", "chunk", "sizes"),
    [
        (Layout(whole_blocks(128, 1)), 1000, [128]),
        (Layout(whole_blocks(128, 16)), 1000, [128]),
        (Layout(whole_blocks(128, 16)), 64, [64, 64]),
        (Layout(whole_blocks(120, 16)), 1000, [120]),
        (Layout(whole_blocks(17, 16)), 1000, [16, 1]),
        (Layout(whole_blocks(1001, 1000)), 10**4, [1000, 1]),
        (Layout(whole_blocks(40, 16)), 5, [4, 4, 4, 4, 4, 4, 4, 4, 4, 4]),
        (Layout(whole_blocks(100, 10), 4), 1000, [40, 60]),
    ],
)
def test_the_last_unit_goes_with_the_others(layout: Layout, chunk: int, sizes: list[int]) -> None:
    """Unless most rows of a block would not be used, or units price themselves."""
    tasks = list(passes.cut_units(layout, 0, layout.n_units, chunk))
    assert [t.n_rows for t in tasks] == sizes
    for task in tasks:
        assert task.n_blocks * task.block_rows >= task.drawn_rows >= task.row + task.n_rows


def test_looks_are_shared_by_the_workers(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """The first looks of an adaptive run take a small part of the cap, and all workers share them."""
    chunks: list[tuple[int, int]] = []
    cut = passes.cut_units

    def spy(layout: Layout, first: int, stop: int, chunk: int, extends: bool) -> Any:
        tasks = list(cut(layout, first, stop, chunk, extends))
        chunks.append((len(tasks), layout.rows_between(first, stop)))
        return iter(tasks)

    monkeypatch.setattr(passes, "cut_units", spy)
    x, y = rng.normal(size=(2000, 16)), rng.normal(size=(2000, 16))
    osl.sliced_wasserstein(x, y, rtol=1e-9, n_directions=512, workers=2, rng=0)
    assert [rows for _, rows in chunks] == [128, 128, 256]
    assert all(tasks >= 2 for tasks, _ in chunks)


@pytest.mark.parametrize(("says", "expected"), [(None, [64]), (1 << 20, [3] * 21 + [1])])
def test_an_implementation_says_how_much_memory_a_direction_takes(
    says: int | None, expected: list[int], monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """And then gets as many as fit: of four, the last lacks room to be drawn.

    One that says nothing is taken to need what the reference does.
    """
    known = list(sorted_scores._implementations)
    monkeypatch.setattr(sorted_scores, "_implementations", known.copy())
    rows: list[int] = []

    def counted(px: Any, py: Any, p: float) -> Any:
        rows.append(px.shape[0])
        return known[-1].run(px, py, p)

    stated = None if says is None else lambda *_: says
    sorted_scores.implementation("counted", lambda *_: None, before="numba", row_bytes=stated)(counted)
    x, y = rng.normal(size=(20, 4)), rng.normal(size=(20, 4))
    osl.sliced_wasserstein(x, y, directions="iid", n_directions=64, memory=4 << 20, workers=1, rng=0)
    assert rows == expected


PEAK = """
import resource, sys
import numpy as np
import orthoslice as osl

distance, (n, dim, n_directions) = getattr(osl, sys.argv[1]), map(int, sys.argv[2:])
rng = np.random.default_rng(0)
x, y = rng.normal(size=(n, dim)), rng.normal(size=(n, dim))
distance(x[:100], y[:100], n_directions=3, rng=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
distance(x, y, n_directions=n_directions, rng=0)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.parametrize("distance", ["sliced_wasserstein", "projected_wasserstein"])
@pytest.mark.parametrize(("n", "dim", "n_directions"), [(10**6, 3, 12), (10, 1000, 8000)])
def test_peak_memory_is_bounded(distance: str, n: int, dim: int, n_directions: int) -> None:
    """Many points, or many directions in high dimension: the peak beyond the data stays below 300 MB."""
    arguments = [distance, str(n), str(dim), str(n_directions)]
    peak = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True)
    assert int(peak.stdout) < 300e6


def test_batches_are_single_calls(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 1, 12, 3)), rng.normal(size=(4, 9, 3))
    a, b = weights(rng, 12), np.stack([weights(rng, 9) for _ in range(4)])
    for distance in DISTANCES:
        for options in ({}, {"x_weights": a, "y_weights": b}):
            est = distance(x, y, 1, rng=0, **options)
            assert est.value.shape == est.stderr.shape == est.distance.shape == (2, 4)
            for i in range(2):
                for j in range(4):
                    single = options and {"x_weights": a, "y_weights": b[j]}
                    one = distance(x[i, 0], y[j], 1, rng=0, **single)
                    assert est.value[i, j] == pytest.approx(one.value, rel=1e-12)
                    assert est.stderr[i, j] == pytest.approx(one.stderr, rel=1e-9)
    assert "batch of shape (2, 4)" in repr(est)


def test_adaptive_batch_waits_for_all(rng: np.random.Generator) -> None:
    """One pair is easy (equal clouds), the other is not: both get the directions of the hard one."""
    x = rng.normal(size=(20, 3))
    y = np.stack([x, rng.normal(size=(20, 3)) + 1])
    est = osl.sliced_wasserstein(x, y, rtol=0.002, directions="orthogonal", rng=0)
    assert est.converged is True
    assert est.value[0] == 0
    low, high = est.distance_interval()
    assert ((high - low) / 2 <= 0.002 * est.distance).all()
    assert est.n_blocks > 8


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str], rng: np.random.Generator) -> None:
    x = rng.normal(size=(10, 3))
    quiet = osl.sliced_wasserstein(x, x + 1, rng=0)
    assert capsys.readouterr() == ("", "")
    shown = osl.sliced_wasserstein(x, x + 1, rng=0, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "directions" in err
    assert shown.value == quiet.value


def test_default_number_of_directions() -> None:
    for dim, n, blocks in ((1, 128, 128), (2, 128, 8), (3, 128, 4), (16, 128, 8), (64, 512, 8), (300, 1024, 8)):
        x = np.zeros((2, dim))
        est = osl.sliced_wasserstein(x, x + 1, rng=0)
        assert (est.n_directions, est.n_blocks) == (n, blocks)
    est = osl.sliced_wasserstein(np.zeros((2, 3)), np.ones((2, 3)), directions="orthogonal", rng=0)
    assert (est.n_directions, est.n_blocks) == (129, 43)


def test_repr_repeats_the_estimate(rng: np.random.Generator) -> None:
    """The repr holds the arguments that repeat it."""
    x, y = rng.normal(size=(10, 300)), rng.normal(size=(10, 300))
    est = osl.sliced_wasserstein(x, y)
    arguments = repr(est).split("; ")[1].rstrip(")")
    names = vars(osl.directions)
    again = eval(f"osl.sliced_wasserstein(x, y, {arguments})", {"osl": osl, "x": x, "y": y, **names})
    assert again.value == est.value


@pytest.mark.parametrize("distance", DISTANCES)
def test_float32_far_from_the_origin(distance: Any, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(500, 3)), rng.normal(size=(400, 3)) + 0.5
    far = [(v + 1e5).astype(np.float32) for v in (x, y)]
    exact = distance(*(v.astype(np.float64) for v in far), rng=0)
    assert float(distance(*far, rng=0).value) == pytest.approx(float(exact.value), rel=1e-4)


@pytest.mark.parametrize("distance", DISTANCES)
def test_every_count_is_used_and_repeats(distance: Any, rng: np.random.Generator) -> None:
    """Blocks that are not whole count too, in the value, the error bar and the record."""
    x, y = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    for n in range(1, 14):
        est = distance(x, y, directions="orthogonal", n_directions=n, rng=0)
        assert (est.n_directions, est.n_blocks, len(est.scores)) == (n, -(-n // 4), n)
        assert est.value == pytest.approx(np.mean(est.scores), rel=1e-12)
        assert np.isnan(est.stderr) == (n <= 4)
        again = distance(x, y, directions=est.directions, n_directions=est.n_directions, rng=est.seed)
        assert again.value == est.value
    capped = distance(x, y, rtol=1e-9, n_directions=101, rng=0)
    assert capped.n_directions == 101


def test_no_tolerance_without_error_bar(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    for options in ({"directions": np.eye(4)}, {"directions": "orthogonal", "n_directions": 4}):
        with pytest.raises(ValueError, match="need an error bar"):
            osl.sliced_wasserstein(x, y, rtol=0.1, **options)
    with pytest.raises(ValueError, match="need an error bar"):
        osl.projected_wasserstein(x, y, rtol=0.1, cost="paper_pooled", n_directions=50)


def test_given_directions_can_be_priced_independently(rng: np.random.Generator) -> None:
    """The price comes from other directions, so the mean is PW, not SW / c."""
    x, y = rng.normal(size=(20, 5)), rng.normal(size=(20, 5))
    theta = osl.directions.IID().sample(4000, 5, rng=1).theta
    independent = osl.projected_wasserstein(x, y, cost="independent", directions=theta, rng=0)
    exact = osl.projected_wasserstein(x, y, directions=theta)
    assert float(independent.value) == pytest.approx(float(exact.value), rel=0.05)


def test_distance_intervals_are_not_negative() -> None:
    est = osl.sliced_wasserstein(np.zeros((1, 3)), np.eye(3)[:1], 1, n_directions=6, rng=8)
    low, high = est.distance_interval()
    assert low == 0
    assert est.interval()[0] < 0 < est.distance < high
    assert isinstance(est.distance, np.floating)


def test_forced_implementations_do_not_fall_back() -> None:
    operation = Operation("thing")
    operation.implementation("fast", lambda v: None if v > 0 else "it takes positive numbers")(
        lambda v: ("fast", v)
    )
    operation.implementation("reference", lambda _: None)(lambda v: ("reference", v))
    assert operation(1) == ("fast", 1)
    assert operation(-1) == ("reference", -1)
    with operation.using("reference"):
        assert operation(1) == ("reference", 1)
    with operation.using("fast"), pytest.raises(TypeError, match="it takes positive numbers"):
        operation(-1)
    with pytest.raises(ValueError, match="has the implementations"), operation.using("other"):
        pass


def test_implementations_from_outside_go_ahead_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Added last, they would never be asked: the reference takes everything."""
    x, y, theta = np.array([[0.0], [2.0]]), np.array([[1.0], [5.0]]), np.array([[1.0]])
    expected = osl.projected_wasserstein(x, y, directions=theta).value
    # A copy, so that what is added here is gone afterwards.
    monkeypatch.setattr(price_in_space, "_implementations", list(price_in_space._implementations))
    calls = []

    def few_points(x: Any, *_: Any) -> str | None:
        return None if x.n < 3 else "it takes one or two points"

    @price_in_space.implementation("outside", few_points, before=price_in_space.names[0])
    def price(x: Any, y: Any, p: float, pairs: Any, wanted: Any) -> Any:
        calls.append(x.n)
        with price_in_space.using("reference"):
            return price_in_space(x, y, p, pairs, wanted)

    assert price_in_space.names[0] == "outside"
    assert osl.projected_wasserstein(x, y, directions=theta).value == expected
    assert calls == [2]
    osl.projected_wasserstein(np.r_[x, x], np.r_[y, y], directions=theta)
    assert calls == [2], "refused, and the next was asked"
    price_in_space.implementation("late", few_points, before="reference")(price)
    assert price_in_space.names[-2:] == ["late", "reference"]
    with pytest.raises(ValueError, match="already"):
        price_in_space.implementation("late", few_points)
    with pytest.raises(ValueError, match="'missing'"):
        price_in_space.implementation("later", few_points, before="missing")


def count_calls(run: Callable[[], Any]) -> int:
    """How many functions a call calls; the first two compile, and look up what is kept."""
    for _ in range(3):
        with cProfile.Profile() as profile:
            run()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{"rng": 0}, {"directions": "given"}, {}], ids=str)
def test_a_small_problem_is_not_lost_in_calls(options: dict[str, Any], rng: np.random.Generator) -> None:
    """Checks and choices take longer than the work on 64 points, so they are counted; the same in every run."""
    pytest.importorskip("numba")
    x, y, theta = rng.normal(size=(64, 4)), rng.normal(size=(64, 4)), unit_rows(rng, 16, 4)
    given = options | ({"directions": theta} if "directions" in options else {"n_directions": 16})
    assert count_calls(lambda: osl.sliced_wasserstein(x, y, **given)) <= 150


def test_a_small_step_is_not_lost_in_calls(rng: np.random.Generator) -> None:
    pytest.importorskip("numba")
    x, y = (torch.tensor(rng.normal(size=(64, 4)), dtype=torch.float32) for _ in range(2))
    x.requires_grad_()
    loss = osl.nn.SlicedWassersteinLoss(16, seed=0)
    assert count_calls(lambda: loss(x, y).backward()) <= 200


def test_a_small_problem_of_tensors_is_not_lost_in_calls(rng: np.random.Generator) -> None:
    pytest.importorskip("numba")
    x, y = (torch.as_tensor(rng.normal(size=(256, 16))) for _ in range(2))
    theta = torch.as_tensor(unit_rows(rng, 32, 16))
    assert count_calls(lambda: osl.sliced_wasserstein(x, y, directions=theta)) < 760
