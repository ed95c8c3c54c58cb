"""The projected loss by CUDA kernels, against pairs that are found and priced in float64 by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_rounded, unit_rows

from orthoslice.backend.kernels.cuda import projected
from orthoslice.backend.kernels.cuda import rows as cuda_rows
from orthoslice.backend.kernels.cuda.projected import BYTES_A_PAIR, ProjectedStep

torch = pytest.importorskip("torch")

# Dimensions that threads load one by one or four at a time, and hold in up to eight runs or not at all.
SIZES = [
    *[(1, 1, 1), (2, 3, 5), (63, 33, 7), (257, 130, 9), (1000, 5, 3), (600, 64, 40), (2100, 4, 2), (70, 65, 9)],
    *[(40, 132, 20), (33, 260, 9), (21, 516, 10), (9, 257, 5), (9, 1028, 300)],
]
MEMORY = 10**8
WANTED = [(False, False), (True, False), (False, True), (True, True)]


def plain(x, y, theta, p):
    """The mean cost and both gradients; points that tie on a line are matched by their coordinates."""
    x_order, y_order = (np.lexsort(cloud.T[::-1]) for cloud in (x, y))
    value, gradients = 0.0, [np.zeros_like(x), np.zeros_like(y)]
    for row in theta:
        i = x_order[np.argsort(x[x_order] @ row, kind="stable")]
        j = y_order[np.argsort(y[y_order] @ row, kind="stable")]
        gap = x[i] - y[j]
        length = np.linalg.norm(gap, axis=1)
        value += np.sum(length**p) / (len(x) * len(theta))
        strength = p * np.where(length > 0, length, 1) ** (p - 2) * (length > 0) / (len(x) * len(theta))
        gradients[0][i] += strength[:, None] * gap
        gradients[1][j] -= strength[:, None] * gap
    return value, gradients


def clouds(rng, n, dim, slices, device):
    """Multiples of 1/8 are projected exactly on directions of such, so rounding changes no order; many tie."""
    tables = [rng.integers(-16, 17, size=(rows, dim)) / 8 for rows in (n, n, slices)]
    return tables, [torch.tensor(t, dtype=torch.float32, device=device) for t in tables]


def assert_step(found, expected, wanted, dim):
    value, gradients = expected
    assert_rounded(found[0], torch.tensor(value), np.float32, dim)
    parts = [g for g, want in zip(gradients, wanted, strict=True) if want]
    if parts:
        assert_rounded(found[1], torch.tensor(np.concatenate(parts)), np.float32, dim)
    else:
        assert found[1] is None


@pytest.mark.thin
@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("p", [1, 2, 1.5, 3])
@pytest.mark.parametrize(("n", "dim", "slices"), SIZES)
def test_steps(rng, n, dim, slices, p, cuda_device):
    """Repeated with other data; equal points of both clouds are among them."""
    run = None
    for step, wanted in enumerate(WANTED if n <= 63 else WANTED[::3]):
        tables, tensors = clouds(rng, n, dim, slices, cuda_device)
        tables[1][: n // 2], tensors[1][: n // 2] = tables[0][: n // 2], tensors[0][: n // 2]
        run = run or ProjectedStep(tensors[0].get_device(), n, dim, slices, p, MEMORY)
        count = torch.tensor(step, device=cuda_device)
        found = run(*tensors, None, count, wanted)
        assert count.item() == step + 1
        assert_step(found, plain(*tables, p), wanted, dim)


@pytest.fixture(params=["on chip", "long"])
def rows_are(request, monkeypatch):
    """Rows that are sorted and matched as long ones are, or as they are."""
    if request.param == "long":
        for module in (projected, cuda_rows):
            monkeypatch.setattr(module, "longest_on_chip", lambda device: 50)
        monkeypatch.setattr(projected, "most_shared_bytes", lambda device: 100)
    # A block has several rows.
    monkeypatch.setattr(projected, "_MATCH_BLOCKS", 2)
    return request.param


@pytest.mark.thin(pairs=True)
@pytest.mark.usefixtures("empty_is_nan", "rows_are")
@pytest.mark.parametrize(("at_once", "wanted"), [(1, (True, True)), (3, (False, True)), (4, (False, False))])
@pytest.mark.parametrize("dim", [6, 8, 1028])
def test_directions_in_parts(rng, dim, at_once, wanted, cuda_device):
    """As many at a time as `memory` holds, at least one, and fewer in the end."""
    n, slices = 60, 7
    tables, tensors = clouds(rng, n, dim, slices, cuda_device)
    run = ProjectedStep(tensors[0].get_device(), n, dim, slices, 1.5, at_once * BYTES_A_PAIR * n)
    count = torch.tensor(0, device=cuda_device)
    for step in range(2):
        assert_step(run(*tensors, None, count, wanted), plain(*tables, 1.5), wanted, dim)
        assert count.item() == step + 1
    assert torch.equal(run(*tensors, None, None, wanted)[0], run(*tensors, None, None, wanted)[0])


@pytest.mark.usefixtures("rows_are")
@pytest.mark.parametrize("kind", ["constant", "few points", "one coordinate", "axes"])
def test_rows_in_any_order(rng, kind, cuda_device):
    """Where projections tie, the order of rows changes nothing, and a cloud costs nothing against its own."""
    n, dim, slices = 150, 5, 6
    x, y = (rng.normal(size=(n, dim)).astype(np.float32) for _ in "xy")
    theta = unit_rows(rng, slices, dim)
    if kind == "constant":
        x[:] = x[0]
    elif kind == "few points":
        x, y = x[rng.integers(0, 4, n)], y[rng.integers(0, 4, n)]
    elif kind == "one coordinate":
        x[:, 1:], y[:, 1:] = 1, -1
    else:
        # Whole numbers: nearly all points tie on every axis.
        x, y, theta = np.round(x), np.round(y), np.eye(dim)[np.arange(slices) % dim]
    x, y, theta = (torch.tensor(a, dtype=torch.float32, device=cuda_device) for a in (x, y, theta))
    run = ProjectedStep(x.get_device(), n, dim, slices, 2, MEMORY)
    value, gradient = run(x, y, theta, None, None, (True, True))
    mixed = [torch.tensor(rng.permutation(n), device=cuda_device) for _ in "xy"]
    again, moved = run(x[mixed[0]], y[mixed[1]], theta, None, None, (True, True))
    assert_rounded(again, value, np.float32, dim)
    if kind == "one coordinate":
        # Where points are equal they may change places, and their gradients with them.
        assert torch.equal(moved, torch.cat([gradient[:n][mixed[0]], gradient[n:][mixed[1]]]))
    assert run(x, x[mixed[0]], theta, None, None, (False, False))[0] == 0


def test_clouds_that_are_not_aligned(rng, cuda_device):
    """Four numbers are loaded at a time, which is possible at multiples of 16 bytes alone."""
    tables, (x, y, theta) = clouds(rng, 20, 8, 6, cuda_device)
    x, y = (torch.cat([a.new_zeros(1), a.flatten()])[1:].view(20, 8) for a in (x, y))
    run = ProjectedStep(x.get_device(), 20, 8, 6, 2, MEMORY)
    assert_step(run(x, y, theta, None, None, (True, True)), plain(*tables, 2), (True, True), 8)


def test_strided_clouds(rng, cuda_device):
    tables, (x, y, theta) = clouds(rng, 20, 5, 6, cuda_device)
    run = ProjectedStep(x.get_device(), 20, 5, 6, 2, MEMORY)
    x, y, theta = x.T.contiguous().T, y.repeat(1, 2)[:, :5], theta.repeat_interleave(2, 0)[::2]
    assert_step(run(x, y, theta, None, None, (True, True)), plain(*tables, 2), (True, True), 5)


def test_nan_of_points_and_of_directions(rng, cuda_device):
    _, (x, y, theta) = clouds(rng, 20, 5, 6, cuda_device)
    run = ProjectedStep(x.get_device(), 20, 5, 6, 2, MEMORY)
    spoil = torch.tensor(0.0, device=cuda_device)
    assert run(x, y, theta, spoil, None, (False, False))[0].isfinite()
    for value in run(x, y, theta, spoil + np.nan, None, (True, True)):
        assert value.isnan().all()
    x[3, 1] = np.nan
    assert run(x, y, theta, None, None, (False, False))[0].isnan()


@pytest.mark.parametrize("dim", [5, 33])
def test_clouds_far_from_the_origin(rng, dim, cuda_device):
    """Points are matched as float64 matches them, and the order of rows changes nothing."""
    n, slices = 63, 5
    far = 1e4 * (np.arange(dim) % 2)
    x, y = (
        torch.tensor(rng.normal(size=(n, dim)) + far, dtype=torch.float32, device=cuda_device) for _ in "xy"
    )
    theta = torch.tensor(unit_rows(rng, slices, dim), dtype=torch.float32, device=cuda_device)
    run = ProjectedStep(x.get_device(), n, dim, slices, 2, MEMORY)
    found = run(x, y, theta, None, None, (True, True))
    expected = plain(*(a.double().cpu().numpy() for a in (x, y, theta)), 2)
    assert_step(found, expected, (True, True), dim)
    shuffled = x[torch.tensor(rng.permutation(n), device=cuda_device)]
    assert torch.equal(run(shuffled, y, theta, None, None, (False, False))[0], found[0])
