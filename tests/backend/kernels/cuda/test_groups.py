"""Groups matched by a CUDA kernel, against SciPy's assignment of every group."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from orthoslice.applications.match import regroup
from orthoslice.applications.match.regroup import group_starts, largest_group, levels_for, make_match, rematch
from orthoslice.backend.kernels.cuda.groups import LARGEST_GROUP, match_groups
from orthoslice.clouds.cloud import Cloud

torch = pytest.importorskip("torch")

# One group and two of them, of one to four columns a lane.
SIZES = [(1, 1, 2), (2, 3, 1), (33, 2, 2), (129, 5, 1.5), (250, 3, 2)]


def problem(rng, n, dim, device):
    """Clouds, groups in any order, and a matching."""
    tables = rng.normal(size=(n, dim)), rng.normal(size=(n, dim)) + 0.5, rng.permutation(n), rng.permutation(n)
    tensors = [
        torch.tensor(t, dtype=torch.float32 if t.ndim == 2 else torch.int64, device=device) for t in tables
    ]
    return tables, tensors


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize(("n", "dim", "p"), SIZES)
def test_every_group_is_matched_as_scipy_does(rng, n, dim, p, cuda_device):
    (x, y, order, partner), tensors = problem(rng, n, dim, cuda_device)
    levels = levels_for(n, LARGEST_GROUP)
    found = match_groups(*tensors, levels, p).cpu().numpy()
    assert sorted(found.tolist()) == list(range(n))
    for first, stop in itertools.pairwise(group_starts(n, levels)):
        members = order[first:stop]
        theirs = partner[members]
        assert sorted(found[members]) == sorted(theirs), "partners stay in their group"
        costs = cdist(x[members], y[theirs]) ** p
        rows, columns = linear_sum_assignment(costs)
        least, had = costs[rows, columns].sum(), costs[np.arange(len(members)), np.arange(len(members))].sum()
        cost = (np.linalg.norm(x[members] - y[found[members]], axis=1) ** p).sum()
        assert least * (1 - 1e-12) <= cost <= least * (1 + 1e-5)
        assert n < 30 or least < 0.9 * had


@pytest.mark.usefixtures("empty_is_nan")
@pytest.mark.parametrize("kind", ["equal", "grid", "nan", "infinite"])
def test_whatever_the_points_the_answer_is_a_matching(rng, kind, cuda_device):
    """Many costs tie, or cannot be compared at all."""
    _, (x, y, order, partner) = problem(rng, 40, 2, cuda_device)
    x, y = {
        "equal": (torch.zeros_like(x), torch.zeros_like(y)),
        "grid": (x.round(), y.round()),
        "nan": (torch.full_like(x, torch.nan), y),
        "infinite": (x.where(x < 1, torch.inf), y),
    }[kind]
    found = match_groups(x, y, order, partner, 0, 2.0)
    assert sorted(found.tolist()) == list(range(40))
    if kind == "grid":
        before, after = ((x - y[a]).square().sum().item() for a in (partner, found))
        assert after < 0.9 * before


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_sweep_is_never_dearer_in_the_type_of_the_clouds(rng, kind, cuda_device, monkeypatch):
    """Clouds so near that single precision cannot tell which matching of them is cheaper."""
    monkeypatch.setattr(regroup, "cuda_refusal", lambda *_, **__: None)
    _, (x, y, order, partner) = problem(rng, 60, 2, cuda_device)
    x, y = (Cloud(points.to(getattr(torch, kind)), None) for points in (x, x + 1e-9 * y.double()))
    identity = torch.arange(60, device=cuda_device)
    for before in (make_match(partner, x, y, 2), make_match(identity, x, y, 2)):
        with rematch.using("cuda"):
            after = rematch(before, order, 0, x, y, 2, 1)
        assert sorted(after.partner.tolist()) == list(range(60))
        assert after.cost.dtype == x.points.dtype
        assert after.cost.sum() <= before.cost.sum()
        torch.testing.assert_close(after.cost, make_match(after.partner, x, y, 2).cost)
    assert largest_group(order) == LARGEST_GROUP


def test_what_is_refused(rng):
    _, (x, y, order, partner) = problem(rng, 300, 2, "cpu")
    clouds = Cloud(x, None), Cloud(y, None)
    before = make_match(partner, *clouds, 2)
    for levels, reason in ((1, "at most 128 points"), (2, "NVIDIA GPU")):
        with rematch.using("cuda"), pytest.raises(TypeError, match=reason):
            rematch(before, order, levels, *clouds, 2, 1)
