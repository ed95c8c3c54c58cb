"""Walsh-Hadamard kernels against dense matrices in float64, at sizes that do not fill tiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

import orthoslice as osl
from orthoslice.backend.arrays import to_numpy
from orthoslice.backend.arrays.hadamard import hadamard_adjoint, hadamard_project, walsh_hadamard
from orthoslice.backend.kernels.numba import hadamard as kernels

SIZES = [1, 2, 3, 63, 64, 257]
DIMS = [1, 2, 3, 17, 64, 1000]
DTYPES = [np.float32, np.float64]

pytest.importorskip("numba")


def padded(dim):
    return 1 << (dim - 1).bit_length()


def dense_hadamard(dim):
    """The orthonormal Hadamard matrix, by its definition: a sign for every common bit of row and column."""
    index = np.arange(dim)
    common = np.bitwise_count(index[:, None] & index)
    return np.where(common % 2 == 0, 1.0, -1.0) / np.sqrt(dim)


def dense_block(signs, paired=False):
    """H D_k ... H D_1 `(dim, dim)`; the factors are diagonal, or reflections of neighbouring coordinates."""
    theta = np.eye(signs.shape[1])
    for values in signs.astype(np.float64):
        factor = np.diag(values)
        if paired:
            blocks = [[[c, s], [s, -c]] for c, s in values.reshape(-1, 2)]
            factor = scipy.linalg.block_diag(*blocks)
        theta = dense_hadamard(len(values)) @ factor @ theta
    return theta


def draw_signs(rng, *shape, dtype=np.float64, paired=False):
    if not paired:
        return rng.choice([-1.0, 1.0], size=shape).astype(dtype)
    angle = rng.uniform(0, 2 * np.pi, size=(*shape[:-1], shape[-1] // 2))
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1).reshape(shape).astype(dtype)


def assert_close(found, expected, dtype, dim, rounds=1):
    """Each stage of each round rounds a vector of about the length of the largest one."""
    eps = np.finfo(dtype).eps
    scale = np.abs(expected).max() + 1
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * eps * scale * rounds * (np.log2(dim) + 1))


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [1, 2, 4, 8, 16, 32, 64, 1024])
@pytest.mark.parametrize("n", SIZES)
def test_rows(rng, n, dim, dtype):
    rows = rng.normal(size=(n, dim)).astype(dtype)
    expected = rows.astype(np.float64) @ dense_hadamard(dim)
    kernels.walsh_hadamard_rows(rows)
    assert_close(rows, expected, dtype, dim)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(("n", "paired"), [*((n, False) for n in SIZES), (1, True), (63, True)])
def test_project(rng, n, dim, dtype, paired):
    """All rows, and the last ones only; what is not written would stay NaN."""
    ambient = padded(dim)
    paired &= ambient > 1
    points = rng.normal(size=(n, dim)).astype(dtype)
    signs = draw_signs(rng, 3, ambient, dtype=dtype, paired=paired)
    expected = dense_block(signs, paired)[:, :dim] @ points.T.astype(np.float64)
    for first in (0, ambient // 3):
        out = np.full((ambient - first, n), np.nan, dtype=dtype)
        kernels.hadamard_project(points, signs, paired, first, ambient - first, out)
        assert_close(out, expected[first:], dtype, ambient, rounds=3)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(("n", "paired"), [*((n, False) for n in SIZES), (1, True), (63, True)])
def test_adjoint(rng, n, dim, dtype, paired):
    """Adds to what is there."""
    ambient = padded(dim)
    paired &= ambient > 1
    first = ambient // 3
    signs = draw_signs(rng, 2, ambient, dtype=dtype, paired=paired)
    before = rng.normal(size=(n, dim)).astype(dtype)
    slopes = rng.normal(size=(ambient - first, n)).astype(dtype)
    expected = before + slopes.T.astype(np.float64) @ dense_block(signs, paired)[first:, :dim]
    total = before.copy()
    kernels.hadamard_adjoint(slopes, signs, paired, first, total)
    assert_close(total, expected, dtype, ambient, rounds=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("rounds", [1, 3])
def test_few_rows_are_formed(rng, rounds, dtype, paired):
    """On either side of the number of rows for which a matrix is cheaper than the transform."""
    points = rng.normal(size=(37, 100)).astype(dtype)
    signs = draw_signs(rng, 2, rounds, 128, dtype=dtype, paired=paired)
    for count in (1, 7 * rounds, 7 * rounds + 1):
        parts = [(0, slice(128 - count, 128)), (1, slice(5, 5 + count))]
        theta = np.concatenate([dense_block(signs[block], paired)[rows, :100] for block, rows in parts])
        found = kernels.project_on_blocks(points, signs, parts, paired)
        assert_close(found, theta @ points.T.astype(np.float64), dtype, 128, rounds)
        slopes = rng.normal(size=(2 * count, 37)).astype(dtype)
        back = kernels.carry_back_from_blocks(slopes, signs, parts, 100, paired)
        assert_close(back, slopes.T.astype(np.float64) @ theta, dtype, 128, rounds)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_rounds(rng, rounds):
    points, signs = rng.normal(size=(5, 11)), draw_signs(rng, rounds, 16)
    out = np.full((16, 5), np.nan)
    kernels.hadamard_project(points, signs, False, 0, 16, out)
    assert_close(out, dense_block(signs)[:, :11] @ points.T, np.float64, 16, rounds)


@pytest.mark.parametrize("n", [1, 15, 16, 17])
def test_scratch_is_cleared(rng, n):
    """Tiles are reused: nothing of an earlier point may stay in the padding or in lanes without a point."""
    points = rng.normal(size=(n, 5))
    tile = np.full(8 * kernels.LANES, np.nan)
    kernels._load(tile, points, n - (n - 1) % kernels.LANES - 1)
    count = (n - 1) % kernels.LANES + 1
    expected = np.zeros((8, kernels.LANES))
    expected[:5, :count] = points[-count:].T
    np.testing.assert_array_equal(tile.reshape(8, kernels.LANES), expected)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_point_does_not_feel_its_neighbours(rng, dtype, paired):
    """To the last digit: otherwise equal points of two clouds would project to different numbers."""
    points = rng.normal(size=(37, 100)).astype(dtype)
    signs = draw_signs(rng, 1, 3, 128, dtype=dtype, paired=paired)
    with hadamard_project.using("numba"):
        together = hadamard_project(points, signs, [(0, slice(0, 128))], paired)
        for k in (0, 15, 16, 36):
            alone = hadamard_project(points[k : k + 1], signs, [(0, slice(0, 128))], paired)
            np.testing.assert_array_equal(together[:, k], alone[:, 0])


def layouts(table):
    """The same numbers in memory of other shapes."""
    spread = np.full((table.shape[0], 2 * table.shape[1]), np.nan, dtype=table.dtype)
    spread[:, ::2] = table
    frozen = table.copy()
    frozen.flags.writeable = False
    return {
        "contiguous": table,
        "strided": spread[:, ::2],
        "transposed": np.asfortranarray(table),
        "backwards": table[::-1].copy()[::-1],
        "frozen": frozen,
    }


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        *(("numpy", layout) for layout in ("contiguous", "strided", "transposed", "backwards", "frozen")),
        # Torch has neither negative strides nor read-only tensors.
        *(("torch", layout) for layout in ("contiguous", "strided", "transposed")),
    ],
)
@pytest.mark.parametrize("paired", [False, True])
def test_rows_of_operations_agree(rng, layout, kind, paired):
    """Rows that begin and end inside blocks; the arguments are left as they were."""
    torch = pytest.importorskip("torch")
    convert = torch.asarray if kind == "torch" else np.asarray
    signs = draw_signs(rng, 3, 2, 32, paired=paired)
    parts = [(0, slice(7, 20)), (1, slice(0, 20)), (2, slice(0, 3))]
    points, slopes = rng.normal(size=(19, 23)), rng.normal(size=(36, 19))
    cases = [
        (hadamard_project, points, (convert(signs), parts, paired)),
        (hadamard_adjoint, slopes, (convert(signs), parts, 23, paired)),
        (walsh_hadamard, rng.normal(size=(6, 64)), ()),
    ]
    for operation, table, rest in cases:
        given = convert(layouts(table)[layout])
        found = {}
        for row in ("numba", "reference"):
            with operation.using(row):
                found[row] = operation(given, *rest)
        assert type(found["numba"]) is type(given)
        np.testing.assert_allclose(np.asarray(found["numba"]), np.asarray(found["reference"]), atol=1e-13)
        np.testing.assert_array_equal(np.asarray(given), table)


def test_batches_of_rows(rng):
    rows = rng.normal(size=(3, 5, 16))
    with walsh_hadamard.using("numba"):
        np.testing.assert_allclose(walsh_hadamard(rows), rows @ dense_hadamard(16), atol=1e-14)


def test_torch_memory_is_not_copied(rng):
    torch = pytest.importorskip("torch")
    from orthoslice.backend.arrays.operations import from_host

    table = np.zeros((2, 3), dtype=np.float32)
    tensor = from_host(table, torch.zeros(1))
    table[0, 0] = 7
    assert tensor[0, 0] == 7
    assert from_host(table, table) is table


def test_refusals(rng):
    """A forced row says why it cannot; left to itself the operation takes the reference."""
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    points, signs, parts = rng.normal(size=(4, 8)), draw_signs(rng, 1, 2, 8), [(0, slice(0, 8))]
    expected = hadamard_project(points, signs, parts, False)
    tape = torch.tensor(points, requires_grad=True)
    cases = {
        "NumPy arrays and torch tensors": (jnp.asarray(points), jnp.asarray(signs), parts),
        "gradient tape": (tape, torch.tensor(signs), parts),
        "by slices": (points, signs, [(0, np.arange(8))]),
        "type of the points": (points, signs.astype(np.float32), parts),
        "float32 and float64": (points.astype(np.float16), signs.astype(np.float16), parts),
    }
    for reason, arguments in cases.items():
        with hadamard_project.using("numba"), pytest.raises(TypeError, match=reason):
            hadamard_project(*arguments, False)
        found = to_numpy(hadamard_project(*arguments, False))
        np.testing.assert_allclose(found, expected, atol=0.1 if found.dtype == np.float16 else 1e-5)
    hadamard_project(tape, torch.tensor(signs), parts, False).sum().backward()
    np.testing.assert_allclose(tape.grad, np.ones((4, 8)) @ dense_block(signs[0]), atol=1e-13)
    with torch.no_grad(), hadamard_project.using("numba"):
        np.testing.assert_array_equal(hadamard_project(tape, torch.tensor(signs), parts, False), expected)
    with walsh_hadamard.using("numba"), pytest.raises(TypeError, match="powers of two, not 6"):
        walsh_hadamard(np.ones((2, 6)))


WORK = """
import json, sys
if {blocked}:
    sys.modules["numba"] = None
import numpy as np, orthoslice as osl
from orthoslice.backend.arrays.hadamard import hadamard_project
x, y = np.random.default_rng(0).normal(size=(2, 30, 20))
values = [
    float(f(x, y, 1.5, directions="hadamard", n_directions=40, rng=1).value)
    for f in (osl.sliced_wasserstein, osl.projected_wasserstein)
]
with hadamard_project.using("numba"):
    try:
        osl.sliced_wasserstein(x, y, directions="hadamard", rng=1)
        refusal = None
    except TypeError as error:
        refusal = str(error)
print(json.dumps([values, refusal]))
"""


def test_without_numba():
    """The answers are the same, and a forced kernel is an error that says what is missing."""
    here = {**os.environ, "PYTHONPATH": str(Path(osl.__file__).parents[1])}
    answers = []
    for blocked in (False, True):
        code = WORK.format(blocked=blocked)
        done = subprocess.run(
            [sys.executable, "-c", code], env=here, capture_output=True, text=True, check=True
        )
        answers.append(json.loads(done.stdout))
    (values, refusal), (plain_values, plain_refusal) = answers
    assert refusal is None
    assert "numba cannot be imported" in plain_refusal
    np.testing.assert_allclose(values, plain_values, rtol=1e-12)
