"""All pairs of many clouds against one pair at a time."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import orthoslice as osl
from orthoslice.applications import pairwise as all_pairs
from orthoslice.costs import segments
from orthoslice.directions.layout import Layout, whole_blocks
from orthoslice.estimates.statistics import statistics, unit_statistics


def ragged(rng: np.random.Generator, sizes: tuple[int, ...], dim: int = 5) -> list[np.ndarray]:
    return [rng.normal(size=(n, dim)) + 0.1 * k for k, n in enumerate(sizes)]


DISTANCES = {"SW": osl.sliced_wasserstein, "PW": osl.projected_wasserstein}


def assert_like_the_loop(found: osl.Pairwise, clouds: list[Any], rtol: float = 1e-11, **options: Any) -> None:
    for i in range(len(clouds)):
        for j in range(i + 1, len(clouds)):
            alone = DISTANCES[found.name](clouds[i], clouds[j], **options)
            for quantity in all_pairs.QUANTITIES:
                matrix = getattr(found, quantity)
                assert matrix[i, j] == matrix[j, i]
                # One point has one coupling with any cloud, and an error of rounding only.
                np.testing.assert_allclose(matrix[i, j], getattr(alone, quantity), rtol=rtol, atol=1e-14)
            assert (found.n_directions, found.n_blocks) == (alone.n_directions, alone.n_blocks)
    for quantity in all_pairs.QUANTITIES:
        assert (np.diagonal(getattr(found, quantity)) == 0).all()


@pytest.mark.parametrize("p", [1, 2, 2.5])
@pytest.mark.parametrize("directions", ["auto", "iid", "hadamard"])
def test_equals_the_loop(p: float, directions: str, rng: np.random.Generator) -> None:
    clouds = ragged(rng, (20, 20, 1, 33))
    options = {"p": p, "directions": directions, "n_directions": 23, "rng": 4}
    assert_like_the_loop(osl.pairwise(clouds, **options), clouds, **options)


@pytest.mark.parametrize("p", [1, 2, 2.5])
@pytest.mark.parametrize("directions", ["auto", "iid", "hadamard"])
def test_projected_distances_equal_the_loop(p: float, directions: str, rng: np.random.Generator) -> None:
    clouds = ragged(rng, (20, 20, 1, 33))
    # Ties: equal points, and points that some directions do not tell apart.
    clouds[1][5:9] = clouds[1][4]
    clouds[3] = np.round(clouds[3])
    options = {"p": p, "directions": directions, "n_directions": 23, "rng": 4}
    found = osl.pairwise(clouds, method="projected", **options)
    assert_like_the_loop(found, clouds, **options)
    assert repr(found).startswith(f"Pairwise(PW_{p:g} of 6 pairs of 4 clouds, from ")
    shuffled = [rng.permutation(cloud) for cloud in clouds]
    again = osl.pairwise(shuffled, method="projected", **options)
    np.testing.assert_allclose(again.value, found.value, rtol=1e-11)


def test_projected_distances_along_axes(rng: np.random.Generator) -> None:
    """On a grid nearly all points tie along an axis: only their lexicographic order tells them apart."""
    clouds = [rng.integers(0, 3, size=(n, 3)).astype(float) for n in (30, 30, 21)]
    options = {"directions": np.eye(3), "p": 2}
    found = osl.pairwise(clouds, method="projected", **options)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        alone = osl.projected_wasserstein(clouds[i], clouds[j], **options)
        np.testing.assert_allclose(found.value[i, j], alone.value, rtol=1e-12)


def test_projected_distances_in_pieces(rng: np.random.Generator) -> None:
    clouds = ragged(rng, (20, 30, 25, 40), dim=2)
    expected = osl.pairwise(clouds, method="projected", rng=4)
    for options in ({"workers": 1}, {"workers": 3, "memory": 30_000}):
        found = osl.pairwise(clouds, method="projected", rng=4, **options)
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-12)
    single = [cloud.astype(np.float32) for cloud in clouds]
    assert_like_the_loop(osl.pairwise(single, method="projected", rng=4), single, rtol=2e-4, rng=4)


def test_projected_clouds_are_sorted_once(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    clouds, sorted_points = ragged(rng, (20, 30, 25, 40, 10)), []
    order = segments.tied_order
    monkeypatch.setattr(segments, "tied_order", lambda t, r: sorted_points.append(t.size) or order(t, r))
    osl.pairwise(clouds, method="projected", n_directions=17, rng=0)
    assert sum(sorted_points) == 17 * 125


def test_equals_the_loop_for_clouds_of_all_sizes(rng: np.random.Generator) -> None:
    clouds = ragged(rng, (512, 513, 2501, 700), dim=3)
    assert_like_the_loop(osl.pairwise(clouds, rng=4), clouds, rng=4)


@pytest.mark.parametrize(("scale", "offset"), [(1e150, 0), (1e-150, 0), (1, 1e5)])
def test_units_do_not_matter(scale: float, offset: float, rng: np.random.Generator) -> None:
    clouds = [scale * cloud + offset for cloud in ragged(rng, (20, 30, 25))]
    found = osl.pairwise(clouds, rng=4)
    for i, j in ((0, 1), (1, 2)):
        alone = osl.sliced_wasserstein(clouds[i], clouds[j], rng=4)
        np.testing.assert_allclose(found.distance[i, j], alone.distance, rtol=1e-9)
        np.testing.assert_allclose(found.distance_stderr[i, j], alone.distance_stderr, rtol=1e-7)


def test_single_precision(rng: np.random.Generator) -> None:
    clouds = [cloud.astype(np.float32) for cloud in ragged(rng, (20, 600, 33))]
    assert_like_the_loop(osl.pairwise(clouds, rng=4), clouds, rtol=2e-4, rng=4)


def test_arrays_of_other_libraries(backend: Any, rng: np.random.Generator) -> None:
    clouds = [cloud.astype(np.float32) for cloud in ragged(rng, (20, 25))]
    theirs = [backend.asarray(cloud) for cloud in clouds]
    np.testing.assert_array_equal(osl.pairwise(theirs, rng=4).distance, osl.pairwise(clouds, rng=4).distance)
    axes = np.eye(5, dtype=np.float32)[:3]
    found = osl.pairwise(theirs, directions=backend.asarray(axes))
    np.testing.assert_array_equal(found.distance, osl.pairwise(clouds, directions=axes).distance)


def test_a_pair_is_projected_and_sorted_once(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    clouds, rows = ragged(rng, (20, 30, 25, 40, 10)), []
    sort = all_pairs.sort_segments
    monkeypatch.setattr(all_pairs, "sort_segments", lambda t, starts: rows.append(len(t)) or sort(t, starts))
    osl.pairwise(clouds, n_directions=17, rng=0)
    assert sum(rows) == 17


def test_equal_clouds_and_one_block(rng: np.random.Generator) -> None:
    cloud = rng.normal(size=(30, 4))
    found = osl.pairwise([cloud, cloud[::-1].copy(), cloud + 1], rng=0)
    assert found.distance[0, 1] < 1e-12 < found.distance[0, 2]
    assert found.distance_stderr[0, 1] < 1e-12
    single = osl.pairwise([cloud, cloud + 1], directions="orthogonal", n_directions=3, rng=0)
    assert single.n_blocks == 1
    assert np.isnan(single.stderr[0, 1])
    assert single.stderr[0, 0] == 0


def test_memory_and_workers_change_only_rounding(rng: np.random.Generator) -> None:
    clouds = ragged(rng, (20, 30, 25, 40), dim=2)
    expected = osl.pairwise(clouds, directions="orthogonal", rng=4)
    assert expected.n_blocks == 64
    for options in ({"workers": 1}, {"workers": 3, "memory": 300_000}, {"memory": 30_000, "workers": 2}):
        found = osl.pairwise(clouds, directions="orthogonal", rng=4, **options)
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-12)
        np.testing.assert_allclose(found.stderr, expected.stderr, rtol=1e-10)


def test_little_memory_makes_larger_blocks(rng: np.random.Generator) -> None:
    clouds = ragged(rng, (10,) * 20, dim=2)
    whole, grouped = (
        osl.pairwise(clouds, directions="orthogonal", rng=4, memory=memory, workers=1)
        for memory in ("256MB", 70_000)
    )
    np.testing.assert_allclose(whole.value, grouped.value, rtol=1e-12)
    assert (whole.n_blocks, grouped.n_blocks) == (64, 10)
    above = np.triu_indices(20, 1)
    # Fewer blocks know the error less well, but of the same size.
    assert 0.7 < np.median(grouped.stderr[above] / whole.stderr[above]) < 1.4


def test_memory_is_kept_within(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without regard to caches, which hold less than this memory.
    monkeypatch.setattr(all_pairs, "_CACHED_BYTES", 10**9)
    clouds = ragged(rng, (500,) * 20)

    def peak(memory: int) -> int:
        tracemalloc.start()
        osl.pairwise(clouds, n_directions=200, memory=memory, workers=1, rng=0)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10**6)
    copies = 3 * sum(cloud.nbytes for cloud in clouds)
    assert peak(10**6) < 10**6 + copies
    assert peak(64 * 10**6) > 10**6 + copies


def test_statistics_of_unit_means(rng: np.random.Generator) -> None:
    sizes = ((12, 4, 1), (13, 4, 1), (9, 1, 1), (30, 4, 2), (5, 4, 1), (4, 4, 1))
    for layout in (Layout(whole_blocks(n, rows), unit) for n, rows, unit in sizes):
        scores = rng.normal(size=(layout.n_directions, 3))
        cuts = layout.unit_ends[1:-1]
        means = np.stack([part.mean(axis=0) for part in np.split(scores, cuts)])
        for a, b in zip(unit_statistics(means, layout), statistics(scores, layout), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_names_and_frames(rng: np.random.Generator) -> None:
    clouds = ragged(rng, (6, 7, 8), dim=2)
    names = ["a", ("b", 1), 3]
    expected = osl.pairwise(clouds, rng=1)
    assert expected.labels == [0, 1, 2]
    pairs = list(zip(names, clouds, strict=True))
    frames = [(name, pd.DataFrame(cloud, columns=["u", "v"])) for name, cloud in pairs]
    # The columns of the last in another order.
    frames[2] = (3, pl.DataFrame({"v": clouds[2][:, 1], "u": clouds[2][:, 0]}))
    for given in (dict(pairs), pairs, iter(pairs), frames):
        found = osl.pairwise(given, rng=1)
        assert found.labels == names
        np.testing.assert_array_equal(found.distance, expected.distance)
    square = found.to_frame()
    assert square.loc["a", 3] == found.distance[0, 2]
    assert list(square.index) == list(square.columns) == names
    table = found.to_frame("pairs")
    assert table["second"].tolist() == [("b", 1), 3, 3]
    np.testing.assert_array_equal(table["stderr"], found.stderr[np.triu_indices(3, 1)])
    with pytest.raises(ValueError, match="`what` must be one of"):
        found.to_frame("all")


def test_groups_of_a_frame(rng: np.random.Generator) -> None:
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["u", "v"])
    frame["donor"] = rng.integers(0, 3, size=30)
    found = osl.pairwise(frame.groupby("donor")[["u", "v"]], rng=0)
    parts = [frame.loc[frame["donor"] == k, ["u", "v"]].to_numpy() for k in range(3)]
    np.testing.assert_array_equal(found.distance, osl.pairwise(parts, rng=0).distance)
    with pytest.raises(TypeError, match=r"pass `frame.groupby\(...\)\[columns\]`"):
        osl.pairwise(frame)


def test_an_array_of_clouds(rng: np.random.Generator) -> None:
    table = rng.normal(size=(4, 10, 2))
    np.testing.assert_array_equal(
        osl.pairwise(table, rng=0).distance, osl.pairwise(table.tolist(), rng=0).distance
    )
    # Two points written as tuples are a cloud, and no name with a cloud.
    assert osl.pairwise([((0.0, 0.0), (1.0, 1.0)), ((2.0, 2.0), (3.0, 3.0))], rng=0).labels == [0, 1]


@pytest.mark.parametrize(
    ("clouds", "message"),
    [
        ([np.zeros((3, 2))], "`clouds` must hold two or more clouds; got 1"),
        ({"a": np.zeros((3, 2)), "b": np.zeros((3, 4))}, "Cloud 'b', called `y` here, .* must share `dim`"),
        ([np.zeros((3, 2)), [[np.nan, 1]]], "Cloud 1, called `y` here, .* must be finite; got nan"),
        ([("a", np.zeros((3, 2))), ("a", np.ones((3, 2)))], "`clouds` must have a name each; got 'a' twice"),
        (np.zeros((2, 3, 4, 5)), r"Each of `clouds` must have shape \(n, dim\); 0 has \(3, 4, 5\)"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_refusals(clouds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        osl.pairwise(clouds)


def test_refused_options() -> None:
    clouds = [np.zeros((3, 2)), np.ones((3, 2))]
    with pytest.raises(ValueError, match="`method` must be 'sliced', 'projected' or 'predicted'; got 'exact'"):
        osl.pairwise(clouds, method="exact")
    with pytest.raises(ValueError, match="got Stratified, which is made for two clouds"):
        osl.pairwise(clouds, directions=osl.directions.Stratified(*clouds))
    with pytest.raises(TypeError, match="`clouds` must be a mapping"):
        osl.pairwise(3)


def test_powers_that_vanish_are_refused(rng: np.random.Generator) -> None:
    clouds = ragged(rng, (20, 30))
    with pytest.raises(OverflowError, match="`p` is too high for these clouds"):
        osl.pairwise(clouds, p=2000)
    assert osl.pairwise([np.ones((5, 2)), np.ones((5, 2))], p=2000).distance[0, 1] == 0


def test_a_distance_beyond_the_range_is_refused() -> None:
    found = osl.pairwise([np.full((3, 2), 1.7e308), np.full((3, 2), -1.7e308)], rng=0)
    for quantity in ("distance", "value"):
        with pytest.raises(OverflowError, match="exceeds the range of float64"):
            getattr(found, quantity)


def test_repr() -> None:
    found = osl.pairwise({"a": np.zeros((3, 2)), "b": np.full((2, 2), 3.0), "c": np.zeros((3, 2))}, p=1, rng=0)
    assert repr(found).startswith("Pairwise(SW_1 of 3 pairs of 3 clouds, from 0 to ")
    assert repr(found).endswith("; directions=Equispaced(), n_directions=128, rng=0)")
