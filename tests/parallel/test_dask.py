"""Dask collections: the same answers as in memory, whatever the chunks, and errors that tell the chunk."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thinning import examples

import orthoslice as osl
from orthoslice.parallel import sweeping
from orthoslice.parallel.reading import delayed_calls
from orthoslice.parallel.shuffle import Cluster, current_cluster

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
cloudpickle = pytest.importorskip("cloudpickle")

FUNCTIONS = [osl.sliced_wasserstein, osl.projected_wasserstein]


@pytest.fixture(autouse=True)
def _scheduler() -> Iterator[None]:
    """No threads, unless a test asks for some: they would outnumber the cores."""
    with dask.config.set(scheduler="synchronous"):
        yield


def _weights(rng: np.random.Generator, n: int) -> Any:
    """Even ones or some that differ by orders of magnitude; a third of the points may have none."""
    weights = np.exp(rng.choice([0, 1, 5]) * rng.normal(size=n)) * (rng.random(n) >= rng.choice([0, 1 / 3]))
    weights[rng.integers(n)] += 1
    return weights / weights.sum()


def _agree(lazy: Any, known: Any, rtol: float) -> None:
    """All that an estimate says of itself is the same, to rounding."""
    assert (lazy.n_directions, lazy.n_blocks, lazy.converged) == (
        known.n_directions,
        known.n_blocks,
        known.converged,
    )
    assert (lazy.directions, lazy.seed, lazy.control) == (known.directions, known.seed, known.control)
    assert lazy.trusted == known.trusted
    assert lazy.value.dtype == known.value.dtype
    scale = float(np.abs(known.scores).max())
    np.testing.assert_allclose(lazy.scores, known.scores, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(lazy.value, known.value, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(lazy.stderr, known.stderr, rtol=1e-6, atol=rtol * scale)


def _cut(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """Random chunks, some of them of one point."""
    cuts = np.unique(rng.integers(1, n, size=rng.integers(0, 6))) if n > 1 else []
    return tuple(int(size) for size in np.diff([0, *cuts, n]))


@pytest.mark.parametrize("way", ["points", "projections", "ranges"])
@examples(25)
@given(
    seed=st.integers(0, 10**6),
    dim=st.integers(1, 6),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)) | st.integers(1, 40).map(lambda n: (n, n)),
    weighted=st.sampled_from([(False, False), (False, False), (True, False), (True, True)]),
    tied=st.booleans(),
    dtype=st.sampled_from(["float64", "float32"]),
    p=st.sampled_from([1, 2, 2.5]),
)
def test_any_chunks(
    seed: int,
    dim: int,
    sizes: tuple[int, int],
    weighted: tuple[bool, bool],
    tied: bool,
    dtype: str,
    way: str,
    p: float,
) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=(n, dim)) * 3 + 40 * rng.integers(0, 2) for n in sizes)
    if tied:
        x, y = x.round(), y.round()
        x[: len(x) // 2] = x[0]
    x, y = x.astype(dtype), y.astype(dtype)
    given = {}
    for name, n, wanted in zip(("x_weights", "y_weights"), sizes, weighted, strict=True):
        if wanted:
            given[name] = _weights(rng, n)
    count = dim + 2 if way == "points" else dim
    room = 10**6 if way != "ranges" else 32 * sum(sizes) // 3
    lazy = [da.from_array(a, chunks=(_cut(rng, len(a)), _cut(rng, dim))) for a in (x, y)]
    lazy_given = {name: da.from_array(w, chunks=(_cut(rng, len(w)),)) for name, w in given.items()}
    options = {"p": p, "n_directions": count, "rng": seed, "directions": "iid"}
    rtol = 1e-12 if dtype == "float64" else 1e-5
    known = osl.sliced_wasserstein(x, y, **options, **given)
    _agree(osl.sliced_wasserstein(*lazy, **options, **lazy_given, memory=room), known, rtol)
    if way != "points":
        return
    known = osl.projected_wasserstein(x, y, **options, **given)
    _agree(osl.projected_wasserstein(*lazy, **options, **lazy_given), known, rtol)


def test_the_ways_are_taken(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the property test means by points, projections and ranges is what is done."""
    from orthoslice.parallel import dask as driver

    taken = []
    for name in ("_ByPoints", "_ByProjections", "_ByRanges", "_ByRowRanges"):
        plain = getattr(driver, name).run

        def run(self: Any, *units: int, name: str = name, plain: Any = plain) -> Any:
            taken.append(name)
            return plain(self, *units)

        monkeypatch.setattr(getattr(driver, name), "run", run)
    x = da.from_array(rng.normal(size=(30, 3)), chunks=(7, 3))
    for count, memory in ((5, 10**6), (3, 10**6), (3, 32 * 60 // 3)):
        osl.sliced_wasserstein(x, x + 1, n_directions=count, directions="iid", rng=0, memory=memory)
    for memory in (10**6, 60 * (2 * 24 + 48) - 1):
        osl.projected_wasserstein(x, x + 1, n_directions=3, rng=0, memory=memory)
    assert taken == ["_ByPoints", "_ByProjections", "_ByRanges", "_ByPoints", "_ByRowRanges"]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dim", [2, 3, 20])
def test_defaults(function: Any, dim: int, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(300, dim)), rng.normal(size=(200, dim)) * 1.2
    lazy = [da.from_array(a, chunks=(70, dim)) for a in (x, y)]
    known, found = function(x, y, rng=0), function(*lazy, rng=0)
    _agree(found, known, 1e-12)
    assert repr(found) == repr(known)
    np.testing.assert_allclose(found.interval(), known.interval(), rtol=1e-9)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_tolerance(function: Any, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(50, 3)) + 0.3
    lazy = [da.from_array(a, chunks=(20, 3)) for a in (x, y)]
    for rtol in (0.1, 0.01):
        known = function(x, y, rtol=rtol, directions="iid", rng=0)
        _agree(function(*lazy, rtol=rtol, directions="iid", rng=0), known, 1e-12)
    # More directions than a first look has: it did look again.
    assert known.n_directions > 8


def test_gaussian_control_and_weights(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(200, 12)) + 3, rng.normal(size=(150, 12))
    weights = rng.dirichlet(np.ones(200))
    options = {"directions": "orthogonal", "rng": 1, "control": "gaussian", "n_directions": 48}
    known = osl.sliced_wasserstein(x, y, x_weights=weights, **options)
    lazy = [da.from_array(a, chunks=(40, 12)) for a in (x, y)]
    found = osl.sliced_wasserstein(*lazy, x_weights=weights, memory=60_000, **options)
    assert found.control is not None
    _agree(found, known, 1e-10)


def test_a_chunk_without_mass(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(90, 3)), rng.normal(size=(80, 3)) + 1
    weights = np.concatenate([np.zeros(30), rng.dirichlet(np.ones(60))])
    known = osl.sliced_wasserstein(x, y, x_weights=weights, rng=0)
    lazy = [da.from_array(a, chunks=(30, 3)) for a in (x, y)]
    for memory in ("256MB", 1500):
        _agree(osl.sliced_wasserstein(*lazy, x_weights=weights, rng=0, memory=memory), known, 1e-12)


def test_a_control_of_your_own_is_refused(rng: np.random.Generator) -> None:
    class Own(osl.control.Control):
        def evaluate(self, *_: Any) -> Any:
            raise AssertionError

        def mean(self, *_: Any) -> Any:
            raise AssertionError

    x = da.from_array(rng.normal(size=(30, 3)), chunks=(7, 3))
    with pytest.raises(TypeError, match="`control` must be 'auto'"):
        osl.sliced_wasserstein(x, x + 1, control=Own(), rng=0)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("memory", [2000, "256MB"])
def test_far_clouds_of_any_scale(scale: float, memory: Any, rng: np.random.Generator) -> None:
    x, y = ((rng.normal(size=(60, 2)) + 1e9) * scale for _ in range(2))
    lazy = [da.from_array(a, chunks=(20, 2)) for a in (x, y)]
    known = osl.sliced_wasserstein(x, y, n_directions=4, directions="iid", rng=0)
    found = osl.sliced_wasserstein(*lazy, n_directions=4, directions="iid", rng=0, memory=memory)
    # Powers may be out of range; distances are not.
    np.testing.assert_allclose(found.distance, known.distance, rtol=1e-9)
    np.testing.assert_allclose(found.distance_stderr, known.distance_stderr, rtol=1e-6)


def test_integers_and_a_numpy_array_beside(rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 9, size=(50, 3)), rng.normal(size=(40, 3))
    known = osl.sliced_wasserstein(x, y, rng=0, n_directions=8)
    _agree(osl.sliced_wasserstein(da.from_array(x, chunks=(20, 3)), y, rng=0, n_directions=8), known, 1e-12)


def test_unknown_and_empty_chunks(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(100, 3)), rng.normal(size=(80, 3))
    lazy = da.from_array(x, chunks=(30, 3))
    # The last chunk has no row left.
    some = lazy[da.from_array((x[:, 0] > 0) & (np.arange(100) < 90), chunks=30)]
    known = osl.sliced_wasserstein(x[:90][x[:90, 0] > 0], y, rng=0, n_directions=8)
    _agree(osl.sliced_wasserstein(some, y, rng=0, n_directions=8), known, 1e-12)
    with pytest.raises(
        ValueError, match="`x` must hold at least one point and dimension; all chunks are empty"
    ):
        osl.sliced_wasserstein(lazy[lazy[:, 0] > 99], y)


def test_data_frames_are_matched_by_column(rng: np.random.Generator) -> None:
    x = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    y = pd.DataFrame(rng.normal(size=(50, 3)) + np.arange(3), columns=["a", "b", "c"])[["c", "a", "b"]]
    known = osl.sliced_wasserstein(x, y, rng=0, n_directions=8)
    lazy = dd.from_pandas(x, npartitions=3), dd.from_pandas(y, npartitions=2)
    for other in (lazy[1], y):
        _agree(osl.sliced_wasserstein(lazy[0], other, rng=0, n_directions=8), known, 1e-12)
    with pytest.raises(ValueError, match="only `x` has 'a'"):
        osl.sliced_wasserstein(lazy[0], lazy[1].rename(columns={"a": "d"}))
    x.loc[45, "b"] = np.nan
    with pytest.raises(ValueError, match=r"In chunk 2 of `x`.* Column 'b' of `x` must be finite"):
        osl.sliced_wasserstein(dd.from_pandas(x, npartitions=3), y)


@pytest.mark.parametrize("kind", ["zarr", "npy", "parquet"])
def test_files(kind: str, rng: np.random.Generator, tmp_path: Path) -> None:
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(50, 3))
    if kind == "zarr":
        pytest.importorskip("zarr")
        da.to_zarr(da.from_array(x, chunks=(20, 3)), str(tmp_path / "x"))
        lazy = da.from_zarr(str(tmp_path / "x"))
    elif kind == "npy":
        np.save(tmp_path / "x.npy", x)
        lazy = da.from_array(np.load(tmp_path / "x.npy", mmap_mode="r"), chunks=(20, 3))
    else:
        pd.DataFrame(x, columns=["a", "b", "c"]).to_parquet(tmp_path / "x.parquet")
        lazy = dd.read_parquet(tmp_path / "x.parquet")
    known = osl.sliced_wasserstein(x, y, rng=0, n_directions=8)
    _agree(osl.sliced_wasserstein(lazy, y, rng=0, n_directions=8), known, 1e-12)


def _with_bad_chunk(make: Any, columns: int = 3) -> Any:
    """Four chunks of ten rows, of which the third is what `make` makes of it."""
    parts = []
    for k in range(4):
        chunk = np.ones((10, 3))
        parts.append(da.from_delayed(dask.delayed(make(chunk) if k == 2 else chunk), (10, 3), dtype=float))
    return da.concatenate(parts)


def _spoil(value: Any) -> Any:
    def make(chunk: Any) -> Any:
        chunk[3, 1] = value
        return chunk

    return make


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_spoil(np.nan), "must be finite; got nan at index (3, 1)"),
        (_spoil(-np.inf), "must be finite; got -inf at index (3, 1)"),
        (lambda chunk: chunk[:, :2], "a table of shape (10, 3); got (10, 2)"),
        (lambda chunk: chunk[:4], "a table of shape (10, 3); got (4, 3)"),
        (lambda chunk: chunk + 1j, "must hold real numbers"),
    ],
)
@pytest.mark.parametrize("function", [*FUNCTIONS, osl.two_sample_test])
def test_a_bad_chunk_is_told(function: Any, make: Any, why: str, name: str) -> None:
    clouds = {"x": np.ones((5, 3)), "y": np.ones((5, 3))} | {name: _with_bad_chunk(make)}
    with pytest.raises((ValueError, TypeError)) as error:
        function(clouds["x"], clouds["y"])
    assert f"In chunk 2 of `{name}` (rows 20 to 29, indices count from the first): " in str(error.value)
    assert why in str(error.value)


def test_bad_weights_are_told() -> None:
    x, weights = da.ones((40, 3), chunks=(10, 3)), np.full(40, 1 / 40)
    bad = weights.copy()
    bad[25] = -1
    with pytest.raises(
        ValueError, match=r"In chunk 2 of `x_weights`.*must not be negative or NaN; got -1.0 at"
    ):
        osl.sliced_wasserstein(x, x, x_weights=bad)
    with pytest.raises(ValueError, match="`y_weights` must sum to 1; got a sum of 2"):
        osl.sliced_wasserstein(x, x, y_weights=da.from_array(2 * weights, chunks=7))
    with pytest.raises(ValueError, match=r"`x_weights` must have one weight a point of `x`, shape \(40,\)"):
        osl.sliced_wasserstein(x, x, x_weights=weights[1:])


def test_other_bad_input() -> None:
    x = da.ones((40, 3), chunks=(10, 3))
    with pytest.raises(ValueError, match=r"`x` and `y` must share `dim`; got shapes \(40, 3\) and \(40, 2\)"):
        osl.sliced_wasserstein(x, x[:, :2])
    with pytest.raises(ValueError, match=r"pass `x\[:, None\]`"):
        osl.sliced_wasserstein(x[:, 0], x)
    with pytest.raises(TypeError, match="Dask collections can be passed to"):
        osl.wasserstein(x, x)
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="Beside Dask collections, `y` must be one"):
        osl.sliced_wasserstein(x, torch.ones(4, 3))


def test_what_needs_the_points_says_so(rng: np.random.Generator) -> None:
    x = da.from_array(rng.normal(size=(40, 3)), chunks=(10, 3))
    found = osl.sliced_wasserstein(x, x + 1, rng=0)
    with pytest.warns(osl.UntrustedWarning, match="these are Dask collections"):
        assert np.isnan(found.data_stderr)


@pytest.mark.parametrize("method", ["sliced", "projected"])
@pytest.mark.parametrize("grouped", [False, True])
def test_two_sample_tests(method: str, grouped: bool, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(60, 3)) + 50, rng.normal(size=(50, 3)) + 50.3
    groups = (np.arange(60) // 6, 10 + np.arange(50) // 5) if grouped else None
    options = {"method": method, "groups": groups, "rng": 3, "n_permutations": 99, "n_directions": 12}
    known = osl.two_sample_test(x, y, **options)
    found = osl.two_sample_test(*(da.from_array(a, chunks=(17, 2)) for a in (x, y)), **options)
    assert found.pvalue == known.pvalue
    np.testing.assert_allclose(found.statistic, known.statistic, rtol=1e-12)
    np.testing.assert_allclose(found.null_distribution, known.null_distribution, rtol=1e-10)
    np.testing.assert_array_equal(found.column_pvalues, known.column_pvalues)


def test_two_sample_tests_of_frames_with_columns_in_another_order(rng: np.random.Generator) -> None:
    pd = pytest.importorskip("pandas")
    x, y = rng.normal(size=(40, 3)), rng.normal(size=(30, 3)) + np.array([0, 0, 5])
    frames = pd.DataFrame(x, columns=list("uvw")), pd.DataFrame(y, columns=list("uvw"))[["w", "u", "v"]]
    options = {"method": "auto", "rng": 3, "n_permutations": 99, "n_directions": 8}
    known = osl.two_sample_test(x, y, **options)
    found = osl.two_sample_test(*(dd.from_pandas(f, npartitions=2) for f in frames), **options)
    assert found.parts == known.parts
    np.testing.assert_array_equal(found.column_pvalues, known.column_pvalues)


def test_two_sample_tests_by_all_statistics(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(60, 3)) + 50, rng.normal(size=(50, 3)) + 50
    options = {"method": "auto", "rng": 3, "n_permutations": 299, "n_directions": 12}
    known = osl.two_sample_test(x, y, **options)
    found = osl.two_sample_test(*(da.from_array(a, chunks=(17, 2)) for a in (x, y)), **options)
    assert (found.pvalue, found.parts, found.n_permutations) == (
        known.pvalue,
        known.parts,
        known.n_permutations,
    )
    np.testing.assert_array_equal(found.column_pvalues, known.column_pvalues)
    np.testing.assert_allclose(found.column_statistics, known.column_statistics, rtol=1e-12)


def test_zeros_that_stand_for_points_are_not_sent(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tasks are told, and results that are sent or kept; labels and groups of a test have to be told."""
    told: list[int] = []

    def shuffle(clouds: Any, lines: Any, work: Any) -> Any:
        told.extend(len(cloudpickle.dumps(one)) for one in work)
        return shuffled(clouds, lines, work)

    shuffled = sweeping.shuffle
    monkeypatch.setattr(sweeping, "shuffle", shuffle)
    x = da.from_array(rng.normal(size=(2000, 50)), chunks=(500, 50))
    osl.pairwise([x, x + 1], n_directions=2, rng=0)
    assert max(told) < 5_000
    osl.two_sample_test(x, x + 1, n_directions=2, n_permutations=9, rng=0)
    assert max(told) < 4000 * 30
    estimate = osl.sliced_wasserstein(x, x + 1, n_directions=60, rng=0)
    # Some points of x are kept, to see how far to trust an error bar.
    assert len(pickle.dumps(estimate._subject.y)) < 5_000
    again = pickle.loads(pickle.dumps(estimate))
    assert (again.value, again.stderr, again.trusted) == (estimate.value, estimate.stderr, estimate.trusted)


@pytest.mark.parametrize("method", ["sliced", "projected"])
@pytest.mark.parametrize("tied", [False, True])
def test_pairwise(method: str, tied: bool, rng: np.random.Generator) -> None:
    clouds = {name: rng.normal(size=(n, 3)) * 1e180 for name, n in (("a", 30), ("b", 41), ("c", 22))}
    if tied:
        clouds = {name: (a / 1e180).round() for name, a in clouds.items()}
    options = {"method": method, "rng": 0, "n_directions": 20, "p": 1}
    known = osl.pairwise(clouds, **options)
    lazy = {name: da.from_array(a, chunks=(13, 3)) for name, a in clouds.items()} | {"b": clouds["b"]}
    found = osl.pairwise(lazy, **options)
    assert found.labels == known.labels
    np.testing.assert_allclose(found.distance, known.distance, rtol=1e-12)
    np.testing.assert_allclose(found.distance_stderr, known.distance_stderr, rtol=1e-9)
    lazy["c"] = da.from_array(clouds["c"][:, :2], chunks=(13, 2))
    with pytest.raises(ValueError, match=r"`clouds\['a'\]` and `clouds\['c'\]` must share `dim`"):
        osl.pairwise(lazy)
    with pytest.raises(OverflowError, match="too high for Dask collections"):
        osl.pairwise([lazy["a"], lazy["b"]], p=40)


def test_what_needs_all_points_in_one_task_says_so(rng: np.random.Generator) -> None:
    x = da.from_array(rng.normal(size=(300, 3)), chunks=(100, 3))
    # 600 points take three copies of 24 bytes, and a direction.
    with pytest.raises(
        ValueError, match=r"must hold all points .*: 0\.0912MB; got 0\.09MB\..*`method=\"sliced\"`"
    ):
        osl.two_sample_test(x, x + 1, method="projected", memory=90_000)
    with pytest.raises(
        ValueError, match=r"must hold all points .*: 0\.0624MB; got 0\.06MB\..*of a pair at a time"
    ):
        osl.pairwise([x, x + 1], method="projected", memory=60_000)
    options = {"method": "projected", "n_permutations": 19, "n_directions": 3, "rng": 0}
    assert osl.two_sample_test(x, x + 1, **options, memory=92_000).n_directions == 3


def test_what_needs_whole_directions_in_one_task_says_so(rng: np.random.Generator) -> None:
    x = da.from_array(rng.normal(size=(300, 3)), chunks=(100, 3))
    with pytest.raises(
        ValueError, match=r"must hold a direction of all points.*: 0\.048MB; got 0\.047MB\..* a random part"
    ):
        osl.two_sample_test(x, x + 1, memory=47_000)
    with pytest.raises(
        ValueError,
        match=r"must hold a direction of all points.*: 0\.0192MB; got 0\.019MB\..*`sliced_wasserstein` of",
    ):
        osl.pairwise([x, x + 1], memory=19_000)
    assert osl.two_sample_test(x, x + 1, n_permutations=19, n_directions=3, memory=48_000).n_directions == 3
    assert osl.pairwise([x, x + 1], n_directions=3, memory=20_000).n_directions == 3


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many points of both clouds each range of a sliced distance gets."""
    from orthoslice.parallel import ranges

    found, plain = [], ranges._price

    def price(share: Any, units: Any, p: float, *sent: Any) -> float:
        found.append(sum(len(values) for own in sent for values, _ in own))
        return plain(share, units, p, *sent)

    monkeypatch.setattr(ranges, "_price", price)
    return found


def test_ranges_of_a_value_that_most_points_have(rng: np.random.Generator, lengths: list[int]) -> None:
    """A range gets no more than its share, though 90% of the points are one; and the answer is exact."""
    x = rng.normal(size=(3000, 2))
    x[rng.permutation(3000)[:2700]] = x[0]
    y = rng.normal(size=(3000, 2)).round(1)
    lazy = [da.from_array(a, chunks=(500, 2)) for a in (x, y)]
    options = {"n_directions": 2, "directions": "iid", "rng": 0}
    known = osl.sliced_wasserstein(x, y, **options)
    _agree(osl.sliced_wasserstein(*lazy, **options, memory=32 * 6000 // 8), known, 1e-12)
    # Eight ranges of 750: without the marks' own mass, one of them would get 2,700 and more.
    assert 0 < max(lengths) < 1.5 * 750


@pytest.mark.parametrize("kind", ["one has most", "half have none", "heavy tails"])
def test_ranges_of_uneven_weights(rng: np.random.Generator, lengths: list[int], kind: str) -> None:
    """Ranges are cut by what they get, not by mass: 2,999 points may have a thousandth of it."""
    x, y = rng.normal(size=(3000, 2)), rng.normal(size=(2000, 2)) + 0.5
    if kind == "one has most":
        weights = np.append(3e6, rng.random(2999))
    elif kind == "half have none":
        weights = np.where(x[:, 0] > 0, 0.0, rng.random(3000))
    else:
        weights = np.exp(6 * rng.normal(size=3000))
    options = {"n_directions": 2, "directions": "iid", "rng": 0, "x_weights": weights / weights.sum()}
    lazy = [da.from_array(a, chunks=(500, 2)) for a in (x, y)]
    known = osl.sliced_wasserstein(x, y, **options)
    _agree(osl.sliced_wasserstein(*lazy, **options, memory=40 * 5000 // 10), known, 1e-12)
    assert len(lengths) == 2 * 8
    assert max(lengths) < 1.2 * 5000 / 8


@pytest.mark.parametrize("sizes", [(300_000, 300_000), (300_000, 200_001)], ids=str)
def test_rows_longer_than_a_cache(sizes: tuple[int, int], rng: np.random.Generator) -> None:
    """Whole directions and ranges of them, each sorted in several parts."""
    x, y = (rng.standard_normal((n, 2), dtype=np.float32) * (1 + k / 4) for k, n in enumerate(sizes))
    lazy = [da.from_array(a, chunks=(_cut(rng, len(a)), 2)) for a in (x, y)]
    options = {"n_directions": 2, "directions": "iid", "rng": 0}
    known = osl.sliced_wasserstein(x, y, **options)
    for memory in ("10MB", "4MB"):
        _agree(osl.sliced_wasserstein(*lazy, **options, memory=memory), known, 1e-6)


def test_ranges_where_every_processor_rounds_in_its_own_way(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of two kinds round products differently; what one has counted is what another one sends."""
    from orthoslice.directions import base

    x, y = rng.normal(size=(300, 4)), rng.normal(size=(300, 4))
    x[:200] = x[0]
    options = {"n_directions": 3, "directions": "iid", "rng": 0}
    known = osl.sliced_wasserstein(x, y, **options)
    plain, calls = base.product, itertools.count()

    def product(a: Any, b: Any) -> Any:
        return np.nextafter(plain(a, b), (np.inf, -np.inf)[next(calls) % 2])

    monkeypatch.setattr(base, "product", product)
    lazy = [da.from_array(a, chunks=(70, 4)) for a in (x, y)]
    _agree(osl.sliced_wasserstein(*lazy, **options, memory=32 * 600 // 3), known, 1e-12)
    # The patch does what it says: the other way goes by products.
    before = next(calls)
    _agree(osl.sliced_wasserstein(*lazy, **options, memory=10**6), known, 1e-12)
    assert next(calls) > before + 1


def test_how_often_ranges_read_a_chunk(rng: np.random.Generator) -> None:
    """To check it, for moments, for marks, to count on all directions, and once for every direction."""
    reads = []

    def read(rows: Any) -> Any:
        reads.append(len(rows))
        return rows

    x = rng.normal(size=(200, 2))
    parts = [da.from_delayed(dask.delayed(read, pure=False)(x[k::4]), (50, 2), dtype=float) for k in range(4)]
    y = np.concatenate([x[k::4] for k in range(4)]) + 1
    options = {"n_directions": 5, "directions": "iid", "rng": 0}
    found = osl.sliced_wasserstein(da.concatenate(parts), y, **options, memory=32 * 400 // 3, workers=1)
    _agree(found, osl.sliced_wasserstein(y - 1, y, **options), 1e-12)
    assert len(reads) == 4 * (4 + 5)


def test_how_often_whole_directions_read_a_chunk(rng: np.random.Generator) -> None:
    """To check it, for all moments, also those of a control, and for all directions."""
    reads = []

    def read(rows: Any) -> Any:
        reads.append(len(rows))
        return rows

    x, y = rng.normal(size=(200, 30)), rng.normal(size=(150, 30)) + 1
    lazy = da.from_delayed(dask.delayed(read, pure=False)(x), (200, 30), dtype=float)
    options = {"n_directions": 20, "control": "gaussian", "rng": 0}
    found = osl.sliced_wasserstein(lazy, y, **options, memory=10**5, workers=1)
    _agree(found, osl.sliced_wasserstein(x, y, **options), 1e-9)
    assert len(reads) == 3


def test_threads(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(3000, 3)), rng.normal(size=(2000, 3))
    lazy = [da.from_array(a, chunks=(500, 3)) for a in (x, y)]
    known = osl.sliced_wasserstein(x, y, rng=0, n_directions=8)
    with dask.config.set(scheduler="threads"):
        for memory in ("20KB", "100KB", "1MB"):
            found = osl.sliced_wasserstein(*lazy, rng=0, n_directions=8, memory=memory, workers=2)
            _agree(found, known, 1e-12)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        dask.config.set(scheduler=None),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made,
        distributed.Client(made) as client,
    ):
        yield client


def test_who_works_is_who_dask_would_ask(cluster: Any) -> None:
    """A client that is there but not in use has no say."""
    assert current_cluster(3) == Cluster(None, 1, 3)
    with dask.config.set(scheduler="threads"):
        assert current_cluster(3) == Cluster(None, 1, 3)
    for scheduler in (None, "dask.distributed", cluster):
        with dask.config.set(scheduler=scheduler):
            assert current_cluster(3) == Cluster(cluster, 2, 2)


def test_points_that_are_sent_are_worked_on_by_all(
    cluster: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks would go where the points are, so every worker gets them; and Dask knows how much that is."""
    distributed = pytest.importorskip("distributed")
    found = []

    def spread(self: Cluster, persisted: Any) -> None:
        spread_out(self, persisted)
        futures = distributed.futures_of(persisted)
        workers = [len(own) for own in cluster.who_has(futures).values()]
        found.append((workers, sum(cluster.nbytes([future.key for future in futures]).values())))

    spread_out = Cluster.spread
    monkeypatch.setattr(Cluster, "spread", spread)
    x, y = rng.normal(size=(2, 4000, 3))
    lazy, other = (da.from_array(points, chunks=(1000, 3)) for points in (x, y))
    with dask.config.set(scheduler=None):
        for function in FUNCTIONS:
            known = function(x, y, rng=0, n_directions=12)
            _agree(function(lazy, other, rng=0, n_directions=12), known, 1e-12)
        osl.pairwise([lazy, other], method="projected", rng=0, n_directions=12)
    assert [workers for workers, _ in found] == [[2]] * 3
    assert min(size for _, size in found) >= 2 * x.nbytes


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_is_lost(tmp_path: Path) -> None:
    """Its scheduler ends while chunks are read."""
    distributed = pytest.importorskip("distributed")

    def read(begun: Path) -> np.ndarray:
        begun.touch()
        time.sleep(1)
        return np.zeros((10, 3))

    begun = tmp_path / "begun"
    lazy = da.from_delayed(dask.delayed(read)(begun), (10, 3), dtype=float)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    # The client asks for a new connection once, and not for half a minute.
    impatient = {"scheduler": None, "distributed.comm.timeouts.connect": "1s"}
    with dask.config.set(impatient), distributed.LocalCluster(**options) as made:
        scheduler = made.scheduler

        def end() -> None:
            while not begun.exists():
                time.sleep(0.01)
            scheduler.loop.add_callback(scheduler.close)

        ending = threading.Thread(target=end)
        ending.start()
        with (
            distributed.Client(made),
            pytest.raises(ConnectionError, match=r"The Dask cluster must be there .*scheduler-connection-lost"),
        ):
            osl.sliced_wasserstein(lazy, lazy + 1, rng=0)
        ending.join()


def test_calls_share_a_layer_of_the_graph() -> None:
    """Dask looks for every key in every layer, so their number must not grow with that of the chunks."""
    chunks = list(da.from_array(np.arange(40.0), chunks=2).to_delayed())
    calls = delayed_calls([(np.full_like, chunk, k) for k, chunk in enumerate(chunks)])
    assert {len(call.dask.layers) for call in calls} == {2}
    np.testing.assert_array_equal(dask.compute(*calls), np.repeat(np.arange(20.0), 2).reshape(20, 2))


def _slow_chunk(rows: Any, folder: str, k: int) -> Any:
    """A chunk that takes its time, and leaves a trace of having been read."""
    (Path(folder) / f"{k}-{os.getpid()}-{time.time_ns()}").touch()
    time.sleep(0.05)
    return rows


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_whose_worker_is_killed(cluster: Any, rng: np.random.Generator, tmp_path: Path) -> None:
    """The same answer from two processes, also where one of them is killed in the middle of the run."""
    x, y = rng.normal(size=(400, 3)), rng.normal(size=(300, 3))
    known = osl.sliced_wasserstein(x, y, rng=0, n_directions=4, directions="iid")
    read = dask.delayed(_slow_chunk, pure=False)
    parts = [
        da.from_delayed(read(x[k * 50 : k * 50 + 50], str(tmp_path), k), (50, 3), dtype=float) for k in range(8)
    ]
    lazy = da.concatenate(parts), da.from_array(y, chunks=(50, 3))
    with dask.config.set(scheduler=None):
        _agree(osl.sliced_wasserstein(*lazy, rng=0, n_directions=4, directions="iid"), known, 1e-12)
        for trace in tmp_path.iterdir():
            trace.unlink()
        victim = next(iter(cluster.run(os.getpid).values()))
        killed_at: list[int] = []

        def kill() -> None:
            # Looked at once, drawn from, and half of the chunks read for the first directions.
            while len(list(tmp_path.iterdir())) < 20:
                time.sleep(0.005)
            os.kill(victim, signal.SIGKILL)
            killed_at.append(len(list(tmp_path.iterdir())))

        killer = threading.Thread(target=kill)
        killer.start()
        found = osl.sliced_wasserstein(*lazy, rng=0, n_directions=4, directions="iid", memory="256MB")
        killer.join()
    _agree(found, known, 1e-12)
    # It was alive and then dead, before the run was over.
    assert killed_at[0] < len(list(tmp_path.iterdir()))
    assert victim not in cluster.run(os.getpid).values()


def test_the_example_runs_on_a_cluster_at_an_address(cluster: Any) -> None:
    from examples import larger_than_memory

    with dask.config.set(scheduler=None):
        found = larger_than_memory.main(cluster.scheduler.address, n_points=4000, rows=1000)
    with dask.config.set(scheduler="synchronous"):
        known = larger_than_memory.compare(4000, 1000)
    _agree(found, known, 1e-12)
