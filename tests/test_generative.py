"""Figure 6 and flow matching: runs side by side, trainings that go on, pairs, paths, and what is judged."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="pip install 'orthoslice[torch]'")

import torch

# `pytest` alone, unlike `python -m pytest`, does not look for packages in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments import fig6_generators, flow_matching, mixture
from experiments.fig6_generators import tables as fig6_tables
from experiments.fig6_generators.training import GeneratorTraining
from experiments.flow_matching import jobs as flow_jobs
from experiments.flow_matching import pairs, problems, timing
from experiments.flow_matching import tables as flow_tables
from experiments.flow_matching.config import Run
from experiments.flow_matching.training import FlowTraining, bends
from experiments.stacked import StackedMLP, generator_of
from experiments.trainings import Place

SMALL_FIGURE = dataclasses.replace(
    fig6_generators.SMOKE, n_seeds=2, n_steps=20, unit_steps=5, batch_size=32, hidden=(8,), n_points=50
)
SMALL_FLOW = dataclasses.replace(
    flow_matching.SMOKE,
    n_seeds=2,
    pool_size=40,
    n_steps=20,
    unit_steps=5,
    batch_size=16,
    hidden=(8,),
    n_points=50,
)


@pytest.fixture(scope="module")
def flow_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of the small flows."""
    folder = tmp_path_factory.mktemp("flow")
    flow_jobs.prepare(SMALL_FLOW, folder)
    return folder


def test_shares_of_modes_and_what_counts_as_covered() -> None:
    """For one sample of each law; a share is off by more than 5 standard errors once in 10^5 such tests."""
    n = 20_000
    points = mixture.sample(n, torch.Generator().manual_seed(0)).numpy()
    error = math.sqrt(1 / 16 * 15 / 16 / n)
    np.testing.assert_allclose(mixture.shares(points), 1 / 16, atol=5 * error)
    found = mixture.describe(points)
    assert (found["central_modes"], found["perimeter_modes"]) == (4, 12)
    assert found["central_share"] == pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / n))
    assert found["reach"] == pytest.approx(math.sqrt(2 * (0.15**2 + 0.45**2) / 2 + 0.02), abs=0.01)
    # A law with other modes is told apart: all points in the middle.
    shrunk = mixture.describe(points / 3)
    assert (shrunk["central_modes"], shrunk["perimeter_modes"]) == (4, 0)
    assert mixture.MODES.shape == (16, 2)
    assert np.diff(np.unique(mixture.MODES)).tolist() == pytest.approx([0.3] * 3)


def test_a_run_comes_out_as_it_would_alone() -> None:
    def trained(seeds: list[int]) -> list[torch.Tensor]:
        network = StackedMLP((3, 16, 2), [generator_of("cpu", seed) for seed in seeds])
        optimizer = torch.optim.Adam(network.parameters(), 1e-2)
        x = torch.stack([torch.randn(20, 3, generator=generator_of("cpu", seed, 1)) for seed in seeds])
        for _ in range(30):
            optimizer.zero_grad()
            (network(x) - x[..., :2].sin()).square().mean(dim=(1, 2)).sum().backward()
            optimizer.step()
        return [parameter.detach()[seeds.index(5)] for parameter in network.parameters()]

    for alone, beside in zip(trained([5]), trained([2, 5, 9]), strict=True):
        torch.testing.assert_close(alone, beside, rtol=1e-4, atol=1e-6)
        assert alone.abs().max() > 0.1


def test_stacked_layers_start_as_linear_ones() -> None:
    network = StackedMLP((4, 1000, 2), [generator_of("cpu", 0)])
    for parameters, n_in in zip((network.weights, network.biases), ((4, 1000), (4, 1000)), strict=True):
        for parameter, width in zip(parameters, n_in, strict=True):
            assert parameter.abs().max() <= width**-0.5
    # The standard deviation of a uniform law; 4,000 weights are off by 5% once in 10^6 draws.
    assert network.weights[0].std().item() == pytest.approx(0.5 / math.sqrt(3), rel=0.05)


def make_training(name: str, folder: Path) -> Any:
    if name == "figure":
        return GeneratorTraining(SMALL_FIGURE, "cpu")
    return FlowTraining("small_digits", SMALL_FLOW, folder, "cpu")


@pytest.mark.parametrize("name", ["figure", "flow"])
def test_a_training_goes_on_where_it_was(name: str, flow_folder: Path, tmp_path: Path) -> None:
    straight, first, second = (make_training(name, flow_folder) for _ in range(3))
    rows = [straight.advance(unit) for unit in range(4)]
    for unit in range(2):
        assert first.advance(unit) == rows[unit]
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert [second.advance(unit) for unit in range(2, 4)] == rows[2:]
    for training in (straight, second):
        training.finish(tmp_path / "left")
        with np.load(tmp_path / "left.npz") as file:
            points = file["points"]
        assert points.any()
        if training is straight:
            kept = points
    np.testing.assert_array_equal(points, kept)


def test_runs_of_a_seed_share_all_but_their_distance() -> None:
    training = GeneratorTraining(SMALL_FIGURE, "cpu")
    assert [(run.method, run.seed) for run in training.runs] == [("sw", 0), ("sw", 1), ("pw", 0), ("pw", 1)]
    for parameter in training.network.parameters():
        assert torch.equal(parameter[0], parameter[2])
        assert not torch.equal(parameter[0], parameter[1])
    seen: list[tuple[Any, Any]] = []
    training._step = lambda noise, target: seen.append((noise, target)) or torch.zeros(4)  # type: ignore[method-assign]
    training.advance(0)
    for part in seen[0]:
        assert torch.equal(part[0], part[2])
        assert not torch.equal(part[0], part[1])


def test_claims_of_figure_6_fail_if_names_are_exchanged() -> None:
    rows = fig6_generators.run(dataclasses.replace(fig6_generators.SMOKE, n_steps=160, unit_steps=80))
    other = {"sw": "pw", "pw": "sw"}
    exchanged = [{**row, "method": other.get(row["method"], row["method"])} for row in rows]
    assert [claim.held for claim in fig6_generators.check(exchanged)[1:]] == [False] * 4
    assert all(claim.held for claim in fig6_generators.check(rows)[1:])
    lines = fig6_tables.table(rows).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| SW_2", "| PW_2", "| the mixture itself"]
    assert {line.count("|") for line in lines} == {7}


@pytest.mark.parametrize("name", SMALL_FLOW.problems)
def test_pairs_are_of_one_pool_and_cost_what_they_say(name: Any, flow_folder: Path) -> None:
    problem = problems.make_problem(name, SMALL_FLOW)
    costs = {}
    for pairing in SMALL_FLOW.pairings:
        run = Run(pairing, 1)
        kept = pairs.read_pairs(name, run, flow_folder)
        assert (np.sort(kept.partner, axis=1) == np.arange(40)).all()
        noise, data = pairs.paired(problem, SMALL_FLOW, run, flow_folder)
        unpaired = problems.noise_and_data(problem, SMALL_FLOW, 1)
        np.testing.assert_array_equal(noise, unpaired[0])
        np.testing.assert_array_equal(np.sort(data, axis=0), np.sort(unpaired[1], axis=0))
        costs[pairing] = np.square(noise - data).sum(axis=1).reshape(2, 40).mean(axis=1)
        np.testing.assert_allclose(costs[pairing], kept.cost, rtol=1e-5)
    assert (costs["exact"] <= costs["match"] * (1 + 1e-5)).all()
    assert (costs["match"] < 0.8 * costs["independent"]).all()


def test_tables_of_flow_matching(flow_folder: Path) -> None:
    flow_jobs.train(SMALL_FLOW, flow_folder, Place())
    rows = flow_jobs.measure(SMALL_FLOW, flow_folder)
    lines = flow_tables.table(rows).splitlines()
    assert len(lines) == 2 + 2 * 4
    assert {line.count("|") for line in lines} == {12}
    assert len(timing.measure("sixteen", 50, SMALL_FLOW, 1)) == len(timing.HEAD)


def test_training_without_pairs_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be paired with data before training.*--pair"):
        FlowTraining("sixteen", SMALL_FLOW, tmp_path, "cpu")


def test_components_of_digits() -> None:
    """All of them lose nothing; a few have the largest variances, of mean 1 in their unit."""
    config = dataclasses.replace(SMALL_FLOW, n_components=64)
    problem = problems.make_problem("small_digits", config)
    points = problem.test(300, np.random.default_rng(0))
    assert problem.to_images is not None
    images, others = problems._read_images("small_digits")
    found = problem.to_images(points).reshape(300, 1, 64)
    # Half a step between two bytes may be rounded either way.
    assert np.abs(found - 255 * others).max(axis=2).min(axis=1).max() < 0.51
    known = problems.find_components(images, 5)
    np.testing.assert_allclose(known.axes @ known.axes.T, np.eye(5), atol=1e-12)
    variances = ((images - known.mean) @ known.axes.T / known.unit).var(axis=0)
    assert variances.mean() == pytest.approx(1)
    assert (np.diff(variances) < 0).all()


def test_bends_of_known_paths() -> None:
    t = torch.linspace(0, 1, 1001, dtype=torch.float64)
    straight = t[:, None, None, None] * torch.tensor([3.0, 4.0])
    found = bends(straight)
    assert found["bend"].item() == pytest.approx(0, abs=1e-12)
    assert found["length"].item() == pytest.approx(1)
    # A half circle: the velocity has length pi and the way length 2, so |v - w|^2 is pi^2 - 4 on average.
    circle = torch.stack([(math.pi * t).cos(), (math.pi * t).sin()], dim=-1)[:, None, None]
    found = bends(circle)
    assert found["bend"].item() == pytest.approx((math.pi**2 - 4) / 4, rel=1e-4)
    assert found["length"].item() == pytest.approx(math.pi / 2, rel=1e-4)


def test_a_field_that_is_known_is_followed(flow_folder: Path) -> None:
    """Euler's method of x' = x grows by (1 + 1 / steps) in every step."""
    training = FlowTraining("sixteen", SMALL_FLOW, flow_folder, "cpu")
    training.velocity = lambda x, t: x  # type: ignore[method-assign]
    paths = training.paths(5)
    torch.testing.assert_close(paths[-1], 1.2**5 * paths[0])
    assert paths.shape == (6, 6, 50, 2)
