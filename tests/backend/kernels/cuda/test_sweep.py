"""All pairs of two clouds in tiles, against plain NumPy, and rounds of an auction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from orthoslice.backend.kernels.cuda import sweep
from orthoslice.backend.kernels.cuda.sweep import (
    PADDING,
    TILE,
    Lists,
    least_totals,
    lists_refusal,
    make_lists,
    soft_totals,
    tile_minima,
)

torch = pytest.importorskip("torch")

# One tile and several of them; few coordinates, a whole number of stages, and a part of one more.
SIZES = [(3, 5, 1, 2.0), (130, 129, 3, 2.0), (40, 300, 16, 1.0), (129, 257, 19, 1.5)]


def columns(points, kind, device):
    """Points by columns, with zeros up to whole tiles."""
    n, dim = points.shape
    padded = np.zeros((dim, -(-n // TILE) * TILE))
    padded[:, :n] = points.T
    return torch.tensor(padded, dtype=getattr(torch, kind), device=device)


def problem(rng, n, m, dim, p, kind, device):
    x, y, price = rng.normal(size=(n, dim)), rng.normal(size=(m, dim)) + 0.5, rng.normal(size=m)
    x, y, price = (a.astype(kind) for a in (x, y, price))
    padded = np.full(-(-m // TILE) * TILE, PADDING)
    padded[:m] = price
    totals = cdist(x.astype(float), y.astype(float)) ** p + price
    return (
        totals,
        (
            *(columns(points, kind, device) for points in (x, y)),
            torch.tensor(padded, dtype=getattr(torch, kind), device=device),
            p,
        ),
        (x, y),
    )


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(("n", "m", "dim", "p"), SIZES)
def test_minima_of_rows_and_of_tiles(rng, n, m, dim, p, kind, cuda_device):
    totals, given, _ = problem(rng, n, m, dim, p, kind, cuda_device)
    off = 1e-13 if kind == "float64" else 1e-5
    found = least_totals(*given).cpu().numpy()[:n]
    np.testing.assert_allclose(found, totals.min(axis=1), rtol=0, atol=off)
    by_tile = tile_minima(*given).cpu().numpy()[:n]
    for tile in range(by_tile.shape[1]):
        part = totals[:, tile * TILE : (tile + 1) * TILE]
        np.testing.assert_allclose(by_tile[:, tile], part.min(axis=1), rtol=0, atol=off)


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(("n", "m", "dim", "p"), SIZES)
@pytest.mark.parametrize("eps", [10.0, 0.1, 1e-4])
def test_soft_minima(rng, n, m, dim, p, eps, cuda_device):
    totals, given, _ = problem(rng, n, m, dim, p, "float32", cuda_device)
    least = totals.min(axis=1)
    true = least - eps * np.log(np.exp((least[:, None] - totals) / eps).sum(axis=1))
    found = eps * soft_totals(*given, eps).cpu().numpy()[:n]
    np.testing.assert_allclose(found, true, rtol=0, atol=1e-5 * (1 + eps))


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("warps", [4, 1])
@pytest.mark.parametrize(("n", "m", "dim", "p"), SIZES)
def test_lists_hold_the_cheapest_columns(rng, n, m, dim, p, warps, cuda_device, monkeypatch):
    """A block has a row a warp, and a single one of many coordinates."""
    if warps == 1:
        monkeypatch.setattr(sweep, "most_shared_bytes", lambda _: 4000)
    totals, given, (x, y) = problem(rng, n, m, dim, p, "float32", cuda_device)
    size, n_tiles = min(4, -(-m // TILE), m), -(-m // TILE)
    rows = np.flatnonzero(rng.random(n) < 0.7)
    minima = tile_minima(*given)[torch.tensor(rows, device=cuda_device)]
    limit, groups = minima.topk(size, dim=1, largest=False)
    wide = tuple(torch.tensor(points.astype(float), device=cuda_device) for points in (x, y))
    lists = Lists(
        torch.full((n, size), -1, dtype=torch.int32, device=cuda_device),
        wide[0].new_full((n, size), math.nan),
        wide[0].new_full((n,), math.nan),
    )
    at = torch.tensor(rows, device=cuda_device)
    make_lists(given[:3], wide, at, groups, limit.amax(dim=1), p, lists)
    held, near, bound = (a.cpu().numpy() for a in lists)
    assert n_tiles >= size
    assert (np.delete(held, rows, axis=0) == -1).all()
    ranked = np.sort(totals, axis=1)
    for i in rows:
        assert len(set(held[i].tolist())) == size
        np.testing.assert_allclose(np.sort(totals[i, held[i]]), ranked[i, :size], rtol=0, atol=1e-5)
        np.testing.assert_allclose(bound[i], ranked[i, size - 1], rtol=0, atol=1e-5)
        cost = np.linalg.norm(x[i].astype(float) - y[held[i]].astype(float), axis=1) ** p
        np.testing.assert_allclose(near[i], cost, rtol=1e-13)


def test_lists_of_too_many_coordinates(monkeypatch):
    monkeypatch.setattr(sweep, "most_shared_bytes", lambda _: 4 * (2 * 16 * TILE + 500))
    assert lists_refusal(0, 16, 500) is None
    assert "do not fit" in lists_refusal(0, 16, 501)
