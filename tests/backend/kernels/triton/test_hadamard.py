"""Walsh-Hadamard projections by Triton kernels, against the plain reference in float64."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import assert_rounded

from orthoslice.backend.arrays.hadamard import hadamard_adjoint, hadamard_project

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

LARGE = [(4097, 100), (257, 4096)] if torch.cuda.is_available() else []
SIZES = [(1, 1), (2, 2), (3, 3), (63, 17), (257, 5), (3, 1000), (1, 2100), *LARGE]
DTYPES = [np.float32, np.float64]


def problem(rng, n, dim, dtype, device, rounds=3, paired=False):
    """Points, slopes and factors of three blocks, and rows that begin and end inside of blocks."""
    ambient = 1 << (dim - 1).bit_length()
    rows = -(-2 * ambient // 3)
    parts = [(0, slice(rows // 3, rows)), (1, slice(0, rows)), (2, slice(0, max(1, rows // 2)))]
    n_rows = sum(part.stop - part.start for _, part in parts)
    points, slopes = (rng.normal(size=shape).astype(dtype) for shape in ((n, dim), (n_rows, n)))
    signs = rng.choice([-1.0, 1.0], size=(3, rounds, ambient)).astype(dtype)
    if paired:
        angle = rng.uniform(0, 2 * np.pi, size=(3, rounds, ambient // 2))
        signs = np.stack([np.cos(angle), np.sin(angle)], axis=-1).reshape(signs.shape).astype(dtype)
    return *(torch.tensor(a, device=device) for a in (points, slopes, signs)), parts


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "dim"), SIZES)
@pytest.mark.parametrize("paired", [False, True])
def test_both_ways(rng, n, dim, dtype, device, paired):
    paired &= dim > 1
    points, slopes, signs, parts = problem(rng, n, dim, dtype, device, paired=paired)
    for operation, table, rest in ((hadamard_project, points, ()), (hadamard_adjoint, slopes, (dim,))):
        for taken in (parts, parts[1:2]) if dim < 100 else (parts,):
            count = sum(part.stop - part.start for _, part in taken)
            given = table if operation is hadamard_project else table[:count]
            with operation.using("triton"):
                found = operation(given, signs, taken, *rest, paired)
            with operation.using("reference"):
                exact = operation(given.double(), signs.double(), taken, *rest, paired)
            assert found.dtype == given.dtype
            assert_rounded(found, exact, dtype, 3 * (1 + np.log2(dim)))


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("paired", [False, True])
def test_rounds_and_layouts(rng, rounds, device, paired):
    """Nothing contiguous, nothing changed."""
    points, slopes, signs, parts = problem(rng, 19, 23, np.float64, device, rounds, paired)
    wide = [a.repeat_interleave(2, dim=-1)[..., ::2] for a in (points, slopes, signs)]
    for operation, table, rest in ((hadamard_project, 0, ()), (hadamard_adjoint, 1, (23,))):
        with operation.using("triton"):
            found = operation(wide[table], wide[2], parts, *rest, paired)
        with operation.using("reference"):
            exact = operation((points, slopes)[table], signs, parts, *rest, paired)
        assert_rounded(found, exact, np.float64, 10)
    assert all(torch.equal(a, b) for a, b in zip(wide, (points, slopes, signs), strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_point_does_not_feel_its_neighbours(rng, dtype, device):
    """To the last digit, NaN included: otherwise equal points would project to different numbers."""
    points, _, signs, _ = problem(rng, 70, 100, dtype, device, paired=True)
    parts = [(0, slice(0, 128))]
    points[7, 3] = np.nan
    with hadamard_project.using("triton"):
        together = hadamard_project(points, signs, parts, True)
        for k in (0, 6, 8, 63, 64, 69):
            alone = hadamard_project(points[k : k + 1], signs, parts, True)
            assert torch.equal(together[:, k], alone[:, 0])
    assert together.isnan().any(dim=0).nonzero().flatten().tolist() == [7]
    assert together[:, 7].isnan().all()


# Compiles a kernel for a GPU, which need not be there. Prints how often the code fuses a product and a sum.
COMPILE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from orthoslice.backend.kernels.triton.hadamard import _options, _project_kernel as kernel

types = {"points": "*fp32", "signs": "*fp32", "out": "*fp32"}
options = _options(torch.ones((1, 3, 128)), paired=True)
known = {name: options.pop(name) for name in kernel.arg_names if name in options}
source = ASTSource(
    kernel,
    {name: "constexpr" if name in known else types.get(name, "i32") for name in kernel.arg_names},
    known,
)
code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
print(code.count("fma."), code.count("mul.") > 0)
"""


def test_points_of_a_tile_are_rounded_alike(tmp_path):
    """Of a b + c d a compiler may fuse either product, and may choose another one for another point."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=env | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0 True\n"


def test_blocks_are_summed_in_parts(rng, device, monkeypatch):
    """As many of them are where there are few points; always in the same way."""
    monkeypatch.setattr("orthoslice.backend.kernels.triton._shared._ENOUGH_PROGRAMS", 4)
    points, slopes = (torch.tensor(rng.normal(size=s), device=device) for s in ((4, 3), (9, 4)))
    signs = torch.tensor(rng.choice([-1.0, 1.0], size=(9, 3, 4)), device=device)
    parts = [(block, slice(0, 1)) for block in range(9)]
    for operation, table, rest in ((hadamard_project, points, ()), (hadamard_adjoint, slopes, (3,))):
        with operation.using("triton"):
            found, again = (operation(table, signs, parts, *rest, False) for _ in range(2))
        assert torch.equal(found, again)
        with operation.using("reference"):
            assert_rounded(found, operation(table, signs, parts, *rest, False), np.float64, 10)


def test_refusals(rng, device):
    points, _, signs, _ = problem(rng, 4, 8, np.float32, device)
    part = (0, slice(0, 8))
    long = torch.ones((1, 1, 8192), device=device)
    cases = {
        "by slices": (points, signs, [(0, torch.arange(8, device=device))]),
        "consecutive": (points, signs, [part, (2, slice(0, 8))]),
        "type of the points": (points, signs.double(), [part]),
        "at most 4096": (torch.ones((1, 8192), device=device), long, [part]),
        "gradient tape": (points.clone().requires_grad_(), signs, [part]),
    }
    for reason, arguments in cases.items():
        with hadamard_project.using("triton"), pytest.raises(TypeError, match=reason):
            hadamard_project(*arguments, False)
