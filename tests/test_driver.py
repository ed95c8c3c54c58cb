"""Memory, chunks, threads, batches, progress: what must not change the answer, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from helpers import weights

import orthoslice as osl
from orthoslice.arrays.operations import Operation

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


PEAK = """
import resource, sys
import numpy as np
import orthoslice as osl

distance, n, n_directions = getattr(osl, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
x, y = rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
distance(x[:100], y[:100], n_directions=3, rng=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
distance(x, y, n_directions=n_directions, rng=0)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.parametrize("distance", ["sliced_wasserstein", "projected_wasserstein"])
def test_peak_memory_does_not_grow_with_directions(distance: str) -> None:
    """A million points in dimension 3: the peak beyond the data stays below 300 MB."""
    peak = subprocess.run(
        [sys.executable, "-c", PEAK, distance, "1000000", "12"], capture_output=True, text=True, check=True
    )
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
    est = osl.sliced_wasserstein(x, y, rtol=0.002, rng=0)
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
    for dim, n, blocks in ((1, 128, 128), (3, 129, 43), (16, 128, 8), (64, 512, 8), (300, 1024, 8)):
        x = np.zeros((2, dim))
        est = osl.sliced_wasserstein(x, x + 1, rng=0)
        assert (est.n_directions, est.n_blocks) == (n, blocks)


def test_repr_repeats_the_estimate(rng: np.random.Generator) -> None:
    """The repr holds the arguments that repeat it."""
    x, y = rng.normal(size=(10, 300)), rng.normal(size=(10, 300))
    est = osl.sliced_wasserstein(x, y)
    arguments = repr(est).split("; ")[1].rstrip(")")
    names = vars(osl.directions)
    again = eval(f"osl.sliced_wasserstein(x, y, {arguments})", {"osl": osl, "x": x, "y": y, **names})
    assert again.value == est.value


def test_float32_far_from_the_origin(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(200, 3)), rng.normal(size=(200, 3)) + 0.5
    far = [(v + 1000).astype(np.float32) for v in (x, y)]
    exact = osl.sliced_wasserstein(*(v.astype(np.float64) for v in far), rng=0)
    assert float(osl.sliced_wasserstein(*far, rng=0).value) == pytest.approx(float(exact.value), rel=1e-5)


def test_forced_rows_do_not_fall_back() -> None:
    operation = Operation("thing")
    operation.row("fast", lambda v: None if v > 0 else "it takes positive numbers")(lambda v: ("fast", v))
    operation.row("reference", lambda _: None)(lambda v: ("reference", v))
    assert operation(1) == ("fast", 1)
    assert operation(-1) == ("reference", -1)
    with operation.using("reference"):
        assert operation(1) == ("reference", 1)
    with operation.using("fast"), pytest.raises(TypeError, match="it takes positive numbers"):
        operation(-1)
    with pytest.raises(ValueError, match="has rows"), operation.using("other"):
        pass
