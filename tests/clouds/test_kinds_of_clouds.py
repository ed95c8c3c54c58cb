"""Every public function answers alike for every kind of cloud: the arrays' answer is the reference."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import weights

import orthoslice as osl
from orthoslice.clouds.cloud import make_clouds
from orthoslice.clouds.conditioning import centred
from orthoslice.clouds.mapped import MappedPoints
from orthoslice.clouds.ready import in_canonical_order, make_ready

OPTIONS: dict[str, Any] = {"n_directions": 24, "rng": 0}
COSTS = ("exact", "pooled", "independent", "paper_pooled")

# What a user may call with two clouds and their weights: a name and a function of (x, y, x_weights, y_weights).
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sliced": lambda x, y, v, w: osl.sliced_wasserstein(x, y, x_weights=v, y_weights=w, **OPTIONS).value,
    "sliced, p = 1.5": lambda x, y, v, w: (
        osl.sliced_wasserstein(x, y, 1.5, x_weights=v, y_weights=w, **OPTIONS).value
    ),
    "sliced, control": lambda x, y, v, w: (
        osl.sliced_wasserstein(x, y, x_weights=v, y_weights=w, control="gaussian", **OPTIONS).value
    ),
    "sliced, hadamard": lambda x, y, v, w: (
        osl.sliced_wasserstein(x, y, x_weights=v, y_weights=w, directions="hadamard", **OPTIONS).value
    ),
    # Of chunks, tasks receive projections, or points of a range of ranks.
    "sliced, few directions": lambda x, y, v, w: (
        osl.sliced_wasserstein(x, y, x_weights=v, y_weights=w, directions="iid", n_directions=3, rng=0).value
    ),
    "projected, little memory": lambda x, y, v, w: (
        osl.projected_wasserstein(
            x, y, x_weights=v, y_weights=w, directions="iid", n_directions=3, rng=0, memory=5_000
        ).value
    ),
    "sliced, rtol": lambda x, y, v, w: (
        osl.sliced_wasserstein(x, y, x_weights=v, y_weights=w, rtol=0.05, rng=0).value
    ),
    **{
        f"projected, {cost}": lambda x, y, v, w, cost=cost: (
            osl.projected_wasserstein(
                x, y, x_weights=v, y_weights=w, cost=cost, directions="iid", **OPTIONS
            ).value
        )
        for cost in COSTS
    },
    **{
        f"gradient, {method}": lambda x, y, v, w, method=method: np.concatenate(
            [
                np.ravel(part)
                for part in osl.value_and_grad(x, y, method=method, x_weights=v, y_weights=w, **OPTIONS)
            ]
        )
        for method in ("sliced", "projected")
    },
    "circle": lambda x, y, v, w: (
        osl.circular_wasserstein(x[..., 0], y[..., 0], period=24, x_weights=v, y_weights=w).value
    ),
    "quantiles": lambda x, y, v, w: osl.quantile_function(x[..., 1], [0.0, 0.3, 0.5, 1.0], weights=v),
    "doubts": lambda x, y, v, w: np.asarray(
        osl.projected_wasserstein(x, y, 1, x_weights=v, y_weights=w, **OPTIONS).trusted, dtype=float
    ),
}
ON_THE_SPHERE: dict[str, Callable[..., Any]] = {
    geometry: lambda x, y, v, w, geometry=geometry: (
        osl.spherical_sliced_wasserstein(
            x, y, geometry=geometry, x_weights=v, y_weights=w, n_directions=12, rng=0
        ).value
    )
    for geometry in ("great_circles", "stereographic")
}
SINGLE: dict[str, Callable[..., Any]] = {
    "largest slice": lambda x, y, v, w: (
        osl.max_sliced_wasserstein(x, y, x_weights=v, y_weights=w, n_starts=2, n_directions=64, rng=0).distance
    ),
    "cheapest": lambda x, y, v, w: osl.cheapest_coupling(
        x, y, x_weights=v, y_weights=w, n_directions=8, rng=0
    ).cost(),
    "narrow bounds": lambda x, y, v, w: osl.wasserstein_bounds(x, y, x_weights=v, y_weights=w, rtol=1e-6).upper,
    "against a law": lambda x, y, v, w: (
        osl.sliced_wasserstein(x, osl.laws.Normal(x.shape[1]), x_weights=v, **OPTIONS).value
    ),
    "bounds": lambda x, y, v, w: [
        (b := osl.wasserstein_bounds(x, y, x_weights=v, y_weights=w, n_directions=8, rng=0)).lower,
        b.upper,
    ],
    "exact": lambda x, y, v, w: osl.wasserstein(x, y, x_weights=v, y_weights=w).value,
    "coupling": lambda x, y, v, w: osl.induced_coupling(
        x, y, np.eye(1, x.shape[1])[0].astype(x.dtype), x_weights=v, y_weights=w
    ).to_dense(),
    "match": lambda x, y, v, w: osl.match(x, y, x_weights=v, y_weights=w, rng=0).cost(),
    "explain": lambda x, y, v, w: [
        f.score for f in osl.explain(x, y, x_weights=v, y_weights=w, n_directions=8, rng=0).features
    ],
    "explain, directions": lambda x, y, v, w: (
        osl.explain(x, y, x_weights=v, y_weights=w, n_directions=8, rng=0).directions[0].distance
    ),
    "explain, points": lambda x, y, v, w: [
        m.distance for m in osl.explain(x, y, x_weights=v, y_weights=w, n_directions=8, rng=0).points
    ],
}
# What takes points of the plane, exactly.
IN_THE_PLANE = {
    "value": lambda x, y, v, w: osl.exact.wasserstein_value(x, y, x_weights=v, y_weights=w),
    "sliced": lambda x, y, v, w: osl.exact.sliced_plane(x, y, 2, x_weights=v, y_weights=w),
    "projected": lambda x, y, v, w: osl.exact.projected_plane(x, y, 2, x_weights=v, y_weights=w),
    "angles": lambda x, y, v, w: osl.exact.angular_score(x, y, 2, x_weights=v, y_weights=w).constant,
    "errors": lambda x, y, v, w: osl.exact.estimator_mse_plane(
        x, y, 2, directions="orthogonal", n_directions=4, x_weights=v, y_weights=w
    ),
}
SINGLE |= {
    f"exact, {name}": lambda x, y, v, w, exact=exact: exact(x[:, :2], y[:, :2], v, w)
    for name, exact in IN_THE_PLANE.items()
}
UNWEIGHTED: dict[str, Callable[..., Any]] = {
    "test, sliced": lambda x, y: osl.two_sample_test(x, y, n_permutations=19, **OPTIONS).null_distribution,
    "test, projected": lambda x, y: (
        osl.two_sample_test(x, y, method="projected", n_permutations=19, **OPTIONS).null_distribution
    ),
    "test, auto": lambda x, y: (
        (t := osl.two_sample_test(x, y, method="auto", n_permutations=19, **OPTIONS)).null_distribution
        + t.column_statistics.sum()
    ),
    "vectors": lambda x, y: (e := osl.embed([x, y], n=8, **OPTIONS)).vectors[0] - e.vectors[1],
    "two points": lambda x, y: osl.exact.sliced_two_points(x[:2], y[:2], 2),
    "stream": lambda x, y: streamed(x).compare(streamed(y)).value,
    "drift": lambda x, y: osl.adapters.DriftDetector(3, n_splits=19, rng=0).fit(x).predict(y[:3]).statistic,
    "bootstrap": lambda x, y: osl.bootstrap(x, y + 3, n_resamples=99, **OPTIONS).interval(0.9),
    "pairwise": lambda x, y: osl.pairwise([x, y, x], **OPTIONS).distance,
    "pairwise, projected": lambda x, y: osl.pairwise([x, y, x], method="projected", **OPTIONS).distance,
    "data error": lambda x, y: osl.sliced_wasserstein(x, y, **OPTIONS).data_stderr,
    "barycenter": lambda x, y: osl.barycenter([x, y], n_steps=2, rng=0).points,
    "flow": lambda x, y: osl.flow(x, y, n_steps=2, rng=0).points,
    "compare": lambda x, y: [
        (c := osl.compare(x, y, n_directions=8, n_permutations=19, rng=0)).sliced.value,
        c.projected.value,
        c.test.statistic,
    ],
    "scaled": lambda x, y: osl.sliced_wasserstein(*osl.scaled([x, y]), **OPTIONS).value,
}


# What takes Dask collections.
CHUNKED = [name for name in FUNCTIONS if name.startswith(("sliced", "projected", "doubts"))]
CHUNKED_UNWEIGHTED = ["test, sliced", "test, projected", "test, auto", "pairwise", "pairwise, projected"]


def streamed(points: np.ndarray) -> osl.Stream:
    """A summary of points that were read in two parts."""
    stream = osl.Stream(points.shape[1], n_directions=4)
    stream.update(points[:20])
    stream.update(points[20:])
    return stream


def file_of(folder: Path, name: str, points: np.ndarray) -> np.ndarray:
    """The points as a memory map."""
    np.save(folder / f"{name}.npy", points)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


def kinds_of(folder: Path, x: np.ndarray, y: np.ndarray) -> dict[str, tuple[Any, Any]]:
    """Clouds in files, alone and beside arrays, whole files and parts of them."""
    in_x, in_y = file_of(folder, "x", x), file_of(folder, "y", y)
    twice = file_of(folder, "twice", np.repeat(x, 2, axis=-2))
    return {
        "files": (in_x, in_y),
        "file and array": (in_x, y),
        "array and file": (x, in_y),
        "every second row of a file": (twice[..., ::2, :], in_y),
    }


def problem(
    rng: np.random.Generator, dtype: str, offset: float, batch: tuple[int, ...], ties: bool
) -> tuple[np.ndarray, np.ndarray]:
    make = (lambda size: rng.integers(-3, 4, size=size)) if ties else (lambda size: rng.normal(size=size))
    x, y = (make((*batch, n, 4)).astype(dtype) for n in (37, 29))
    return x + np.asarray(offset, dtype), y + np.asarray(offset + 0.5, dtype)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("offset", [0.0, 3e4])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weighted", ["", "x", "xy"])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_files_answer_as_arrays_do(
    tmp_path: Path,
    dtype: str,
    batch: tuple[int, ...],
    weighted: str,
    ties: bool,
    offset: float,
    rng: np.random.Generator,
) -> None:
    x, y = problem(rng, dtype, offset, batch, ties)
    given = tuple(
        np.reshape([weights(rng, c.shape[-2]) for _ in range(*batch or (1,))], c.shape[:-1])
        if name in weighted
        else None
        for name, c in (("x", x), ("y", y))
    )
    kinds = {kind: (*clouds, *given) for kind, clouds in kinds_of(tmp_path, x, y).items()}
    rtol = 2e-4 if dtype == "float32" else 1e-9
    for name, function in (FUNCTIONS if batch else FUNCTIONS | SINGLE).items():
        # A search that climbs over ties may end elsewhere when its start is rounded otherwise.
        near = 0.05 if name == "explain, directions" else rtol
        agree(function, (x, y, *given), kinds, near, name)


@pytest.mark.parametrize("offset", [0.0, 3e4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_without_weights_take_files(
    tmp_path: Path, dtype: str, offset: float, rng: np.random.Generator
) -> None:
    x, y = problem(rng, dtype, offset, (), ties=False)
    rtol = 2e-4 if dtype == "float32" else 1e-9
    for name, function in UNWEIGHTED.items():
        agree(function, (x, y), kinds_of(tmp_path, x, y), rtol, name)


def agree(function: Callable[..., Any], known: Any, given: dict[str, Any], rtol: float, name: str) -> None:
    """Every kind of cloud in `given` gets the answer of the arrays `known`."""
    expected = np.asarray(function(*known), dtype=np.float64)
    for kind, arguments in given.items():
        found = np.asarray(function(*arguments), dtype=np.float64)
        atol = rtol * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=f"{name}, {kind}")


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ON_THE_SPHERE)
def test_files_of_unit_vectors(
    tmp_path: Path, name: str, dtype: str, batch: tuple[int, ...], weighted: bool, rng: np.random.Generator
) -> None:
    x, y = (c / np.linalg.norm(c, axis=-1, keepdims=True) for c in problem(rng, dtype, 0.0, batch, False))
    given = (np.broadcast_to(weights(rng, 37), x.shape[:-1]), None) if weighted else (None, None)
    kinds = {kind: (*clouds, *given) for kind, clouds in kinds_of(tmp_path, x, y).items()}
    agree(ON_THE_SPHERE[name], (x, y, *given), kinds, 2e-4 if dtype == "float32" else 1e-9, name)


def chunks_of(array: np.ndarray | None, size: int) -> Any:
    da = pytest.importorskip("dask.array")
    return None if array is None else da.from_array(array, chunks=(size, *array.shape[1:]))


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("offset", [0.0, 3e4])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weighted", ["", "x", "xy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_chunks_answer_as_arrays_do(
    tmp_path: Path, dtype: str, weighted: str, ties: bool, offset: float, rng: np.random.Generator
) -> None:
    """Dask collections of arrays and of files, alone and beside an array; tasks receive parts of others."""
    dask = pytest.importorskip("dask")
    x, y = problem(rng, dtype, offset, (), ties)
    v, w = (weights(rng, len(c)) if name in weighted else None for name, c in (("x", x), ("y", y)))
    lazy = chunks_of(x, 13), chunks_of(y, 9)
    kinds = {
        "chunks": (*lazy, chunks_of(v, 8), chunks_of(w, 29)),
        "chunks of a file": (chunks_of(file_of(tmp_path, "x", x), 10), lazy[1], v, w),
        "chunks and array": (lazy[0], y, v, w),
    }
    rtol = 2e-4 if dtype == "float32" else 1e-9
    with dask.config.set(scheduler="synchronous"):
        for name in CHUNKED:
            agree(FUNCTIONS[name], (x, y, v, w), kinds, rtol, name)
        for name in [] if weighted else CHUNKED_UNWEIGHTED:
            agree(UNWEIGHTED[name], (x, y), {kind: found[:2] for kind, found in kinds.items()}, rtol, name)


# An error bar for the data is NaN, with a warning: tests/parallel/test_dask.py.
@pytest.mark.parametrize(
    "name", sorted({*FUNCTIONS, *SINGLE, *UNWEIGHTED} - {*CHUNKED, *CHUNKED_UNWEIGHTED, "data error"})
)
def test_what_takes_no_chunks_says_so(name: str, rng: np.random.Generator) -> None:
    """No function makes an array of a collection by itself: it may be larger than the memory."""
    x, y = (chunks_of(c, 10) for c in problem(rng, "float64", 0.0, (), ties=False))
    function = (FUNCTIONS | SINGLE | UNWEIGHTED)[name]
    with pytest.raises(TypeError, match=r"Dask|dask"):
        function(x, y, *(() if name in UNWEIGHTED else (None, None)))


def test_no_public_function_is_left_out() -> None:
    called = {*re.findall(r"\bosl\.((?:exact\.)?\w+)\(", Path(__file__).read_text())}
    public = {name for name in osl.__all__ if inspect.isfunction(getattr(osl, name))}
    public |= {f"exact.{name}" for name in osl.exact.__all__ if inspect.isfunction(getattr(osl.exact, name))}
    assert public - called == {"exact.wasserstein"}, "which is osl.wasserstein"


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_weighted_file_and_its_shuffle_are_equal(
    tmp_path: Path, offset: float, rng: np.random.Generator
) -> None:
    x, w, order = rng.normal(size=(200, 3)) + offset, weights(rng, 200), rng.permutation(200)
    shuffled = x[order]
    kinds = (x, file_of(tmp_path, "x", x)), (shuffled, file_of(tmp_path, "shuffled", shuffled))
    for clouds in itertools.product(*kinds):
        for distance in (osl.sliced_wasserstein, osl.projected_wasserstein):
            est = distance(*clouds, x_weights=w, y_weights=w[order], **OPTIONS)
            assert float(est.distance) <= 1e-9 * max(1.0, offset)


def test_gradients_of_weighted_files_are_in_the_users_order(tmp_path: Path, rng: np.random.Generator) -> None:
    """Clouds that may be each other's shuffles are put in order; their gradients are put back."""
    x, w, order = rng.normal(size=(30, 3)), weights(rng, 30), rng.permutation(30)
    y = x[order]
    y[np.argsort(y[:, 0])[15], 1:] += 1
    given = {"x_weights": w, "y_weights": w[order], **OPTIONS}
    value, gradient = osl.value_and_grad(x, y, **given)
    found = osl.value_and_grad(file_of(tmp_path, "x", x), file_of(tmp_path, "y", y), **given)
    assert np.abs(gradient).max() > 1e-3
    np.testing.assert_allclose(found[0], value, rtol=1e-9)
    np.testing.assert_allclose(found[1], gradient, atol=1e-12)


@pytest.mark.parametrize("for_ties", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("mapped", ["x", "y", "xy"])
def test_the_contract_of_ready_clouds(
    tmp_path: Path, mapped: str, batch: tuple[int, ...], for_ties: bool, rng: np.random.Generator
) -> None:
    """Row k of all that a ready cloud holds is row `order[k]` of the user's, less one origin for both."""
    x, y = problem(rng, "float64", 1e5, batch, ties=True)
    v = weights(rng, 37) if not batch else np.stack([weights(rng, 37) for _ in range(2)])
    given = [file_of(tmp_path, n, a) if n in mapped else a for n, a in (("x", x), ("y", y))]
    ready = make_ready(*centred(*make_clouds(*given, v)), for_ties=for_ties)
    shifts = []
    for cloud, points, own in zip(ready, (x, y), (v, None), strict=True):
        assert isinstance(cloud.points, MappedPoints)
        order = np.broadcast_to(np.arange(cloud.n), points.shape[:-1]) if cloud.order is None else cloud.order
        in_order = np.take_along_axis(points, order[..., None], axis=-2)
        held = np.asarray(cloud.points)
        shifts.append((in_order - held)[..., :1, :])
        np.testing.assert_allclose(in_order - held, np.broadcast_to(shifts[-1], held.shape), atol=1e-9)
        np.testing.assert_array_equal(cloud.points[..., 3:9, :], held[..., 3:9, :])
        assert cloud.masses is not None
        if own is not None:
            np.testing.assert_array_equal(cloud.weights, np.take_along_axis(own, order, axis=-1))
            np.testing.assert_allclose(cloud.masses / 2.0**62, cloud.weights, rtol=1e-12)
        if for_ties:
            # Lexicographic order.
            flat = held.reshape(-1, cloud.n, 4)
            assert all((np.lexsort(table.T[::-1]) == np.arange(cloud.n)).all() for table in flat)
        back = cloud.in_users_order(held)
        np.testing.assert_allclose(back + shifts[-1], points, atol=1e-9)
        if batch:
            index = rng.integers(0, cloud.n, size=(5, *batch, 11))
            expected = np.stack([np.take_along_axis(held, i[..., None], axis=-2) for i in index])
            np.testing.assert_array_equal(cloud.points.gather(index), expected)
    np.testing.assert_allclose(*shifts, atol=1e-9)
    assert np.abs(shifts[0]).min() > 1e4


def test_points_in_a_file_refuse_what_would_read_them_all(tmp_path: Path, rng: np.random.Generator) -> None:
    points = MappedPoints(file_of(tmp_path, "x", rng.normal(size=(10, 2))))
    with pytest.raises(TypeError):
        points - 1.0  # type: ignore[operator]
    with pytest.raises(IndexError, match="give out rows"):
        points[0, 1, 2]
    shares = rng.normal(size=10)
    np.testing.assert_allclose(shares @ points, shares @ np.asarray(points), rtol=1e-12)


def test_moving_and_ordering_add_up(rng: np.random.Generator) -> None:
    table, first, second = rng.normal(size=(9, 2)), rng.permutation(9), rng.permutation(9)
    points = MappedPoints(table).moved(np.ones((1, 2))).taken(first).moved(np.ones((1, 2))).taken(second)
    np.testing.assert_array_equal(np.asarray(points), table[first][second] - 2)
    clouds = make_clouds(table + 1e6, table)
    x, _ = centred(*clouds)
    assert np.abs(x.points).max() < 10
    assert in_canonical_order(x).order is not None
