"""Kernels that are compiled when that pays: what is postponed, what is not, and that answers are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.applications.compare.compare import prepare_comparison
from orthoslice.applications.two_sample import labels, pricing
from orthoslice.backend.arrays import LABELS, Key, Operation, PlainWork
from orthoslice.backend.kernels import LABELLINGS, when_to_compile

pytest.importorskip("numba")


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a process that finds nothing compiled; machine code itself is kept where it always is."""
    marks = tmp_path / "marks"
    monkeypatch.setattr(when_to_compile, "_marks", lambda: marks)
    monkeypatch.setattr(when_to_compile, "_begun", set())
    monkeypatch.setattr(when_to_compile, "_plain", Counter())
    monkeypatch.setattr(when_to_compile, "_on_disk", frozenset)
    monkeypatch.setattr(when_to_compile, "PLAIN_NUMBERS", 100)
    monkeypatch.setattr(when_to_compile, "LOADING_NUMBERS", 50)
    monkeypatch.setattr(when_to_compile, "_NUMBERS_A_CALL", 0)
    monkeypatch.setattr(Operation, "revision", Operation.revision + 1)


@pytest.fixture
def total(cold: None) -> Operation:
    """An operation that says who did it: a kernel for floats, or plain code."""
    operation = Operation("total")
    operation.implementation("numba", lambda _: None, plain_work=PlainWork.of)(lambda _: "kernel")
    operation.implementation("reference", lambda _: None)(lambda _: "plain")
    return operation


def test_many_small_calls_add_up(total: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(when_to_compile, "_NUMBERS_A_CALL", 40)
    assert [total(np.ones(1)) for _ in range(5)] == ["plain"] * 4 + ["kernel"]


def test_small_work_is_plain_until_it_adds_up(total: Operation) -> None:
    assert [total(np.ones(30)) for _ in range(7)] == ["plain"] * 5 + ["kernel"] * 2
    # It stays compiled, and has its mark on disk.
    assert total(np.ones(1)) == "kernel"
    assert when_to_compile._marks().joinpath("total-numba-float64").exists()
    # Another type is another kernel, for which numba need not be loaded again.
    assert [total(np.ones(30, dtype=np.float32)) for _ in range(4)] == ["plain"] * 3 + ["kernel"]


def test_large_work_is_compiled_for_at_once(total: Operation) -> None:
    assert total(np.ones(151)) == "kernel"


def test_work_that_comes_in_pieces_is_seen_as_a_whole(total: Operation) -> None:
    with when_to_compile.expecting(1 << 17), when_to_compile.expecting(5):
        assert total(np.ones(5)) == "kernel"


def test_asking_counts_nothing(total: Operation) -> None:
    for _ in range(9):
        assert total.is_postponed(np.ones(30))
        assert total.chosen(np.ones(30))(None) == "plain"
    assert total(np.ones(30)) == "plain"


def test_what_is_in_the_cache_waits_until_numba_pays(total: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(when_to_compile, "_on_disk", lambda: frozenset({"total-numba-float64"}))
    assert [total(np.ones(20)) for _ in range(4)] == ["plain"] * 2 + ["kernel"] * 2
    assert not when_to_compile._marks().exists()


def test_numba_is_loaded_once_for_all_that_is_in_the_cache(
    total: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        when_to_compile, "_on_disk", lambda: frozenset({"total-numba-float64", "total-numba-float32"})
    )
    assert total(np.ones(51)) == "kernel"
    assert total(np.ones(1, dtype=np.float32)) == "kernel"


def test_who_asks_for_a_kernel_in_the_cache_begins_it(
    total: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(when_to_compile, "_on_disk", lambda: frozenset({"total-numba-float64"}))
    before = Operation.revision
    assert total.chosen(np.ones(51))(None) == "kernel"
    assert Operation.revision > before
    assert total(np.ones(1)) == "kernel"


def test_a_forced_kernel_is_compiled(total: Operation) -> None:
    with total.using("numba"):
        assert total(np.ones(1)) == "kernel"


def test_a_kernel_that_fails_is_not_said_to_be_ready(cold: None) -> None:
    operation = Operation("failing")

    @operation.implementation("numba", lambda _: None, plain_work=PlainWork.of)
    def _(_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        operation(np.ones(151))
    assert not when_to_compile._marks().exists()


def _weights(n: int) -> np.ndarray:
    return np.arange(1.0, n + 1) / (n * (n + 1) / 2)


def _tested(x: np.ndarray, y: np.ndarray, **options: Any) -> np.ndarray:
    found = osl.two_sample_test(x, y, n_directions=8, n_permutations=99, rng=0, **options)
    return np.array([found.statistic, found.pvalue, *found.null_distribution])


CALLS: dict[str, Callable[..., Any]] = {
    "sliced": lambda x, y: osl.sliced_wasserstein(x, y, rng=0).value,
    "long rows": lambda x, y: osl.sliced_wasserstein(np.tile(x, (5, 1)), y, p=1, rng=0).value,
    "weighted": lambda x, y: osl.sliced_wasserstein(x, y, x_weights=_weights(len(x)), rng=0).value,
    "tolerance": lambda x, y: osl.sliced_wasserstein(x, y, rtol=0.2, rng=0).value,
    "hadamard": lambda x, y: osl.sliced_wasserstein(x, y, directions="hadamard", rng=0).value,
    "projected": lambda x, y: osl.projected_wasserstein(x, y, rng=0).value,
    "projected, weighted": lambda x, y: (
        osl.projected_wasserstein(x, y, x_weights=_weights(len(x)), rng=0).value
    ),
    "gradient": lambda x, y: osl.value_and_grad(x, y, rng=0)[1],
    "projected gradient": lambda x, y: osl.value_and_grad(x, y, method="projected", rng=0)[1],
    "test": _tested,
    "test by SW_2": lambda x, y: _tested(x, y, p=2),
    "test by PW_1": lambda x, y: _tested(x, y, method="projected"),
    "test of groups": lambda x, y: _tested(x, y, p=2, groups=np.arange(len(x) + len(y)) // 4),
    "bootstrap": lambda x, y: osl.bootstrap(x, y, p=2, rng=0).distribution,
    "bounds": lambda x, y: (lambda b: (b.lower, b.upper))(osl.wasserstein_bounds(x, y, rng=0)),
    "pairwise": lambda x, y: osl.pairwise([x, y, x[:40]], rng=0).distance,
    "pairwise by PW": lambda x, y: osl.pairwise([x, y, x[:40]], method="projected", rng=0).distance,
    "match": lambda x, y: osl.match(x[: len(y)], y, rng=0).cost(),
}


@pytest.mark.parametrize("call", CALLS)
def test_plain_and_compiled_answers_are_the_same(
    call: str, cold: None, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    x, y = rng.normal(size=(300, 4)), rng.normal(size=(260, 4)) + 0.3
    answers = []
    for numbers in (sys.maxsize, 0):
        monkeypatch.setattr(when_to_compile, "PLAIN_NUMBERS", numbers)
        monkeypatch.setattr(when_to_compile, "LOADING_NUMBERS", numbers)
        Operation.revision += 1
        answers.append(np.asarray(CALLS[call](x, y)))
        assert bool(when_to_compile._begun) == (numbers == 0)
    np.testing.assert_allclose(*answers, rtol=1e-9)


def test_plain_labellings_take_little_memory(rng: np.random.Generator) -> None:
    """20 lines of 40,000 points have 51 million labels under one block of labellings."""
    import tracemalloc

    exchange = labels.free_exchange(15_000, 25_000)
    words = labels.draw_labels(Key.from_seed(3, np.zeros(1)).fold(0, LABELS), 0, exchange)
    sizes = exchange.sizes(words, LABELLINGS)
    values = np.sort(rng.normal(size=(20, 40_000)), axis=1)
    at = rng.permuted(np.tile(np.arange(40_000, dtype=np.uint32), (20, 1)), axis=1)
    with pricing.line_totals.using("reference"):
        for p in (1.0, 2.0):
            tracemalloc.start()
            pricing.line_totals(values, at, words, sizes, p)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 32e6


def _said(code: str, cache: Path) -> str:
    environment = {**os.environ, "ORTHOSLICE_CACHE_DIR": str(cache), "ORTHOSLICE_QUIET": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


FIRST = (
    "import sys, numpy as np, orthoslice as osl\n"
    "x = np.random.default_rng(0).normal(size=(300, 5))\n"
    "{call}\n"
    "heavy = 'numba', 'numba.np.arraymath', 'numpy.f2py', 'scipy.special', 'torch', 'jax'\n"
    "print([name for name in heavy if name in sys.modules])"
)


@pytest.mark.parametrize("name", ["sliced_wasserstein", "projected_wasserstein", "two_sample_test"])
def test_a_small_first_call_loads_no_compiler(name: str, tmp_path: Path) -> None:
    assert _said(FIRST.format(call=f"osl.{name}(x, x + 1, rng=0)"), tmp_path) == "[]"
    assert not list(tmp_path.rglob("*.nb?"))


def test_one_variable_moves_the_cache_of_kernels(tmp_path: Path) -> None:
    """The first process compiles, the second finds it there and loads numba as soon as that pays.

    Without the rules of its compiler, which machine code does not need.
    """
    call = "from orthoslice.costs.lines import sorted_scores\n{}sorted_scores(x, x + 1, 2.0)"
    forced = FIRST.format(call=call.format("with sorted_scores.using('numba'): "))
    assert _said(forced, tmp_path).startswith("['numba', 'numba.np.arraymath'")
    assert list(tmp_path.glob("numba-*/*.nbc"))
    again = call.format(
        "from orthoslice.backend.kernels import when_to_compile\nwith when_to_compile.expecting({}): "
    )
    few, many = (
        FIRST.format(call=again.format(count)) for count in ("0", "when_to_compile.LOADING_NUMBERS + 1")
    )
    assert _said(few, tmp_path) == "[]"
    assert _said(many, tmp_path) == "['numba']"
    assert _said(many, tmp_path / "empty") == "[]"


def test_losses_do_not_load_the_compiler_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = (
        "import sys, torch, orthoslice as osl\n"
        "loss = osl.nn.SlicedWassersteinLoss(n_directions=8, seed=0)\n"
        "x = torch.ones(20, 3, requires_grad=True)\n"
        "loss(x, 2 * torch.ones(20, 3)).backward()\n"
        "print('torch._dynamo' in sys.modules)"
    )
    assert _said(code, tmp_path) == "False"


@pytest.mark.usefixtures("cold")
def test_losses_compile_at_once(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Steps are repeated, so that a loss does not begin with plain code, nor stay with it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    from orthoslice.backend.kernels.numba import sliced

    kernel, calls = sliced.slope_points, []
    monkeypatch.setattr(sliced, "slope_points", lambda *clouds: calls.append(1) or kernel(*clouds))
    monkeypatch.setattr(when_to_compile, "PLAIN_NUMBERS", 1 << 40)
    x, y = (torch.from_numpy(rng.normal(size=(8, 3))).float() for _ in range(2))
    x.requires_grad_()
    loss = osl.nn.SlicedWassersteinLoss(4, seed=0)
    loss(x, y).backward()
    assert [plan is not None for plan in loss.caches.plans.values()] == [True]
    assert calls


@pytest.mark.parametrize(("n", "is_loaded"), [(10, False), (300, True)])
def test_a_comparison_of_some_hundred_rows_loads_kernels_at_once(
    cold: None, monkeypatch: pytest.MonkeyPatch, n: int, is_loaded: bool
) -> None:
    """All of its parts need them; by themselves they would be left to plain code for a while."""
    monkeypatch.setattr(when_to_compile, "LOADING_NUMBERS", 1 << 22)
    monkeypatch.setattr(when_to_compile, "is_kept", lambda kernel: True)
    assert not when_to_compile.pays("total", 1)
    prepare_comparison(np.random.default_rng(0).normal(size=(n, 2)), np.zeros((n, 2)), rng=0)
    assert when_to_compile.pays("total", 1) == is_loaded
