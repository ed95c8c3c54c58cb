"""Walsh-Hadamard projections by CUDA kernels, against the plain reference in float64."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from helpers import assert_rounded

from orthoslice.backend.arrays.hadamard import hadamard_adjoint, hadamard_project
from orthoslice.backend.kernels.cuda import compiling, most_shared_bytes
from orthoslice.backend.kernels.cuda import hadamard as cuda_hadamard

torch = pytest.importorskip("torch")

LARGE = [(4097, 100), (257, 4096), (100, 8000)] if torch.cuda.is_available() else []
SIZES = [(1, 1), (2, 2), (3, 3), (63, 17), (257, 5), (9, 300), (3, 1000), (1, 2100), *LARGE]
DTYPES = [np.float32, np.float64]


def forget_launches():
    """What is prepared for a shape depends on numbers that tests change."""
    cuda_hadamard.projecting_on_blocks.cache_clear()
    cuda_hadamard.carrying_back.cache_clear()


@pytest.fixture(autouse=True)
def launches_anew():
    forget_launches()
    yield
    forget_launches()


def problem(rng, n, dim, dtype, kernel_device, rounds=3, paired=False):
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
    return *(torch.tensor(a, device=kernel_device) for a in (points, slopes, signs)), parts


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "dim"), SIZES)
@pytest.mark.parametrize("paired", [False, True])
def test_both_ways(rng, n, dim, dtype, kernel_device, paired):
    """With few numbers a thread and with many."""
    paired &= dim > 1
    points, slopes, signs, parts = problem(rng, n, dim, dtype, kernel_device, paired=paired)
    for operation, table, rest in ((hadamard_project, points, ()), (hadamard_adjoint, slopes, (dim,))):
        for taken in (parts, parts[1:2]) if dim < 100 else (parts,):
            count = sum(part.stop - part.start for _, part in taken)
            given = table if operation is hadamard_project else table[:count]
            with operation.using("cuda"):
                found = operation(given, signs, taken, *rest, paired)
            with operation.using("reference"):
                exact = operation(given.double(), signs.double(), taken, *rest, paired)
            assert found.dtype == given.dtype
            assert_rounded(found, exact, dtype, 3 * (1 + np.log2(dim)))


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("paired", [False, True])
def test_rounds_and_layouts(rng, rounds, kernel_device, paired):
    """Nothing contiguous, nothing changed."""
    points, slopes, signs, parts = problem(rng, 19, 23, np.float64, kernel_device, rounds, paired)
    wide = [a.repeat_interleave(2, dim=-1)[..., ::2] for a in (points, slopes, signs)]
    for operation, table, rest in ((hadamard_project, 0, ()), (hadamard_adjoint, 1, (23,))):
        with operation.using("cuda"):
            found = operation(wide[table], wide[2], parts, *rest, paired)
        with operation.using("reference"):
            exact = operation((points, slopes)[table], signs, parts, *rest, paired)
        assert_rounded(found, exact, np.float64, 10)
    assert all(torch.equal(a, b) for a, b in zip(wide, (points, slopes, signs), strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_point_does_not_feel_its_neighbours(rng, dtype, kernel_device):
    """To the last digit, NaN included: otherwise equal points would project to different numbers."""
    points, _, signs, _ = problem(rng, 70, 100, dtype, kernel_device, paired=True)
    parts = [(0, slice(0, 128))]
    points[7, 3] = np.nan
    with hadamard_project.using("cuda"):
        together = hadamard_project(points, signs, parts, True)
        for k in (0, 6, 8, 63, 64, 69):
            alone = hadamard_project(points[k : k + 1], signs, parts, True)
            assert torch.equal(together[:, k], alone[:, 0])
    assert together.isnan().any(dim=0).nonzero().flatten().tolist() == [7]
    assert together[:, 7].isnan().all()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is missing: it shows what a GPU would run")
@pytest.mark.parametrize("kind", cuda_hadamard._PROGRAMS, ids=str)
def test_products_are_rounded_before_they_are_added(kind, tmp_path):
    """Of a b + c d a compiler may fuse either product, and may choose another one at another place."""
    program, (size, _) = cuda_hadamard._PROGRAMS[kind], kind
    (tmp_path / "kernels.cu").write_text(compiling._PRELUDE + program.path.read_text())
    options = ["-ptx", "-arch=sm_90", "-std=c++17", f"-I{program.path.parent}", *program.flags]
    subprocess.run(["nvcc", *options, "kernels.cu", "-o", "kernels.ptx"], cwd=tmp_path, check=True)
    code = (tmp_path / "kernels.ptx").read_text()
    assert "fma." not in code
    assert f"mul.rn.f{8 * size}" in code


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(("dim", "rounds"), [(64, 3), (128, 2), (128, 3), (2048, 3)])
def test_less_shared_memory(rng, dim, rounds, kernel_device, monkeypatch):
    """Fewer points at a time on other GPUs: not a bit changes. One thread block sums all blocks."""
    monkeypatch.setattr(cuda_hadamard, "_ENOUGH_BLOCKS", 1)
    points, slopes, signs, parts = problem(rng, 40, dim, np.float32, kernel_device, rounds, paired=True)
    for operation, table, rest in ((hadamard_project, points, ()), (hadamard_adjoint, slopes, (dim,))):
        answers = []
        for n_bytes in (1 << 30, 4 * dim * 16, 4 * dim * 4):
            # Not more than there is: on a GPU the first is its own limit.
            least = min(n_bytes, most_shared_bytes(points.get_device()))
            monkeypatch.setattr(cuda_hadamard, "most_shared_bytes", lambda device, few=least: few)
            with operation.using("cuda"):
                answers.append(operation(table, signs, parts, *rest, True))
        with operation.using("reference"):
            exact = operation(table.double(), signs.double(), parts, *rest, True)
        assert_rounded(answers[0], exact, np.float32, 3 * (1 + np.log2(dim)))
        assert all(torch.equal(found, answers[0]) for found in answers[1:])


def test_blocks_are_summed_in_parts(rng, kernel_device, monkeypatch):
    """As many of them are where there are few points; always in the same way."""
    monkeypatch.setattr("orthoslice.backend.kernels.cuda.hadamard._ENOUGH_BLOCKS", 4)
    points, slopes = (torch.tensor(rng.normal(size=s), device=kernel_device) for s in ((4, 3), (9, 4)))
    signs = torch.tensor(rng.choice([-1.0, 1.0], size=(9, 3, 4)), device=kernel_device)
    parts = [(block, slice(0, 1)) for block in range(9)]
    for operation, table, rest in ((hadamard_project, points, ()), (hadamard_adjoint, slopes, (3,))):
        with operation.using("cuda"):
            found, again = (operation(table, signs, parts, *rest, False) for _ in range(2))
        assert torch.equal(found, again)
        with operation.using("reference"):
            assert_rounded(found, operation(table, signs, parts, *rest, False), np.float64, 10)


def test_refusals(rng, kernel_device, monkeypatch):
    monkeypatch.setattr(cuda_hadamard, "most_shared_bytes", lambda device: 2 * 4 * 4096 - 1)
    points, _, signs, _ = problem(rng, 4, 8, np.float32, kernel_device)
    part = (0, slice(0, 8))
    long = torch.ones((1, 1, 16384), device=kernel_device)
    cases = {
        "by slices": (points, signs, [(0, torch.arange(8, device=kernel_device))]),
        "consecutive": (points, signs, [part, (2, slice(0, 8))]),
        "type of the points": (points, signs.double(), [part]),
        "at most 8192": (torch.ones((1, 16384), device=kernel_device), long, [part]),
        "on a chip": (torch.ones((1, 4096), device=kernel_device), long[..., :4096], [part]),
        "gradient tape": (points.clone().requires_grad_(), signs, [part]),
    }
    for reason, arguments in cases.items():
        with hadamard_project.using("cuda"), pytest.raises(TypeError, match=reason):
            hadamard_project(*arguments, False)
