"""Figure 4's experiment: the penalty and its gradient, runs that go on, and the statistics of curves."""

from __future__ import annotations

import dataclasses
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="pip install 'orthoslice[rl]'")
pytest.importorskip("gymnasium", reason="pip install 'orthoslice[rl]'")

import gymnasium
import torch
from stable_baselines3 import PPO
from torch.distributions import Normal

# `pytest` alone, unlike `python -m pytest`, does not look for packages in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.fig4_trust_region import claims, curves, jobs, rows, tables, training
from experiments.fig4_trust_region.config import METHODS, SMOKE, Config, Run, list_runs, without_extras
from experiments.fig4_trust_region.penalty import Penalty, distance_for
from experiments.fig4_trust_region.ppo import TrustRegionPPO
from experiments.trainings import read_rows, write_rows

import orthoslice as osl

SMALL = dataclasses.replace(without_extras(SMOKE), n_seeds=1, n_steps=512, rollouts_per_row=2)
PENALTIES = [name for name, method in METHODS.items() if method.distance != "none"]


class Reach(gymnasium.Env):
    """A point in the plane, rewarded for being near the origin: two actions, so that directions matter."""

    observation_space = gymnasium.spaces.Box(-10, 10, (3,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.at, self.time = self.np_random.uniform(-1, 1, 2), 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.at, self.time = self.at + 0.1 * action, self.time + 1
        return self._seen(), -float(np.square(self.at).sum()), False, self.time == 20, {}

    def _seen(self) -> np.ndarray:
        return np.array([*self.at, self.time / 20])


@pytest.fixture(scope="module", autouse=True)
def reach() -> Iterator[None]:
    gymnasium.register("Reach-v0", Reach)
    yield
    # Tests of this file may be run in several turns of one process.
    del gymnasium.registry["Reach-v0"]


def make_model(method: str, strength: float = 1e-3, **changes: object) -> TrustRegionPPO:
    config = dataclasses.replace(SMALL, rollout_steps=128, **changes)
    return training.make_model(Run("Reach-v0", method, strength, 0), config)[0]


def collect(model: TrustRegionPPO) -> None:
    """A rollout without an update."""
    update = model.train
    model.train = lambda: None
    model.learn(model.n_steps, log_interval=None, reset_num_timesteps=False)
    model.train = update


def start(model: TrustRegionPPO) -> torch.Tensor:
    """Begin an update; returns D on its first minibatch, before anything was changed."""
    collect(model)
    model.policy.remember()
    model.policy.penalty.start(0, 3, 2)
    return penalty_of_minibatch(model)


def penalty_of_minibatch(model: TrustRegionPPO) -> torch.Tensor:
    batch = next(model.rollout_buffer.get(model.batch_size))
    _, _, answer = model.policy.evaluate_actions(batch.observations, batch.actions)
    return -answer / model.policy.strength


@pytest.mark.parametrize("name", PENALTIES)
def test_distance_is_zero_before_the_first_step_and_not_after(name: str) -> None:
    model = make_model(name)
    first = start(model)
    assert first.item() == 0
    model.policy.optimizer.zero_grad()
    first.backward()
    assert all(not p.grad.any() for p in model.policy.parameters() if p.grad is not None)
    with torch.no_grad():
        model.policy.action_net.bias += 0.1
    assert penalty_of_minibatch(model).item() > 1e-3


@pytest.mark.parametrize("name", PENALTIES)
def test_gradient_reaches_the_policy(name: str) -> None:
    model = make_model(name)
    start(model)
    with torch.no_grad():
        model.policy.action_net.bias += 0.1
        model.policy.log_std += 0.05
    model.policy.optimizer.zero_grad()
    penalty_of_minibatch(model).backward()
    policy = model.policy
    for part in (policy.mlp_extractor.policy_net, policy.action_net):
        assert all(p.grad.abs().max() > 0 for p in part.parameters())
    assert policy.log_std.grad.abs().max() > 0
    # It is no business of the value's.
    values = [*policy.mlp_extractor.value_net.parameters(), *policy.value_net.parameters()]
    assert all(p.grad is None or not p.grad.any() for p in values)
    # The old policy stays as it was.
    assert not any(p.requires_grad for p in policy._old[0].parameters())


@pytest.mark.parametrize("name", ["sw", "pw", "kl"])
def test_a_strong_penalty_holds_the_policy(name: str) -> None:
    moves = {}
    for strength in (0.0, 100.0):
        model = make_model(name, strength, learning_rate=1e-3, n_epochs=4)
        model.learn(model.n_steps, log_interval=None)
        moves[strength] = training.measure_move(model)
    for measure in ("sw", "kl", "shift"):
        assert 0 < moves[100.0][measure] < 0.5 * moves[0.0][measure]


@pytest.mark.parametrize("name", ["none", "sw", "pw", "kl"])
def test_without_strength_it_is_plain_ppo(name: str) -> None:
    """Bit for bit what stable-baselines3 trains by itself: noise and directions of D come from elsewhere."""
    ours = make_model(name, 0.0)
    ours.learn(2 * ours.n_steps, log_interval=None)
    config = dataclasses.replace(SMALL, rollout_steps=128)
    theirs = PPO(
        "MlpPolicy",
        training.make_environment("Reach-v0", config.seed, config),
        learning_rate=config.learning_rate,
        n_steps=128,
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        clip_range=config.clip_range,
        seed=config.seed,
        device="cpu",
    )
    theirs.learn(2 * theirs.n_steps, log_interval=None)
    pairs = zip(ours.policy.parameters(), theirs.policy.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("shape", [(64, 3), (64, 6), (33, 1), (64, 23)])
def test_the_loss_is_a_line_of_torch(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    x, moved = torch.randn(2, *shape, generator=generator)
    theta = torch.as_tensor(osl.directions.Orthogonal().sample(2 * shape[1], shape[1], 0).theta).float()
    # Far, and near as in an update.
    for y in (moved, x + 0.01 * moved):
        ours, theirs = (y.clone().requires_grad_() for _ in range(2))
        value = ((ours @ theta.T).sort(dim=0).values - (x @ theta.T).sort(dim=0).values).abs().mean()
        value.backward()
        expected = osl.nn.SlicedWassersteinLoss(p=1, directions=theta)(x, theirs)
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-7)


def test_actions_alone_do_not_see_an_exchange_and_joint_points_do() -> None:
    states = torch.tensor([[0.0], [5.0]]).repeat(32, 1)
    old = Normal(states.repeat(1, 2), 1e-6)
    new = Normal(5 - states.repeat(1, 2), 1e-6)
    for distance in ("sw", "pw"):
        found = {}
        for points in ("actions", "joint"):
            penalty = Penalty(METHODS[distance]._replace(points=points), 1, 0)
            penalty.start(0, 1, 2)
            found[points] = penalty(states, old, new).item()
        assert found["actions"] < 1e-4
        assert found["joint"] > 0.1


@pytest.mark.parametrize("distance", ["sw", "pw"])
@pytest.mark.parametrize("directions", ["orthogonal", "iid"])
def test_directions_of_an_update(distance: str, directions: str) -> None:
    """D of clouds of one point each is |v|, or |<theta, v>| in the mean, and so tells the directions."""
    states, old = torch.zeros(1, 4), Normal(torch.zeros(1, 3), 1.0)
    penalty = Penalty(METHODS[distance]._replace(directions=directions), 2, 5)
    found = []
    for update in (0, 1, 0):
        penalty.start(update, 4, 3)
        moves = (Normal(v[None], 1.0) for v in torch.eye(3).repeat(2, 1))
        found.append(torch.stack([penalty(states, old, new) for new in moves]))
    assert torch.equal(found[0], found[2])
    if distance == "pw":
        torch.testing.assert_close(found[0], torch.ones(6))
    else:
        assert not torch.equal(found[0], found[1])
        assert not torch.equal(found[0][:3], found[0][3:])


@pytest.mark.parametrize("distance", ["sw", "pw"])
@pytest.mark.parametrize("directions", ["orthogonal", "iid"])
def test_distances_are_the_functions(distance: str, directions: str) -> None:
    """The mean over many minibatches is the library's value; minibatches, updates and seeds are independent."""
    x, y = torch.randn(2, 64, 3, generator=torch.Generator().manual_seed(1))
    found = {}
    for seed in (0, 1):
        D = distance_for(METHODS[distance]._replace(directions=directions), 3, seed)
        found[seed] = torch.stack([D(x, y) for _ in range(100)])
        assert len(set(found[seed].tolist())) == 100
    assert not torch.equal(found[0], found[1])
    function = osl.sliced_wasserstein if distance == "sw" else osl.projected_wasserstein
    exact = function(x.double(), y.double(), 1, n_directions=10_000, rng=0).value.item()
    every = torch.cat([found[0], found[1]])
    # Four standard errors: one such test of 16,000 fails by chance. Those of another p fail (the control).
    error = every.std().item() / len(every) ** 0.5
    assert abs(every.mean().item() - exact) < 4 * error
    other = function(x.double(), y.double(), 2, n_directions=1000, rng=0).value.item()
    assert abs(every.mean().item() - other) > 4 * error


def test_runs_are_those_of_the_paper_first() -> None:
    runs = list_runs(Config())
    paper = list_runs(without_extras(Config()))
    assert runs[:30] == paper
    assert len(paper) == len(set(paper)) == 30
    assert len({run.name for run in runs}) == len(runs)
    assert {run.strength for run in runs if run.method in ("none", "clip")} == {0.0}
    assert {Config().steps_of(run) for run in paper} == {1_000_000}
    for run in runs[30:]:
        assert Config().steps_of(run) == (1_000_000 if run.method in ("kl", "clip") else Config().n_extra_steps)


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    run = Run("Reach-v0", "pw", 1e-3, 0)
    # Three rollouts of two that make a row: one of them is pending when it stops.
    config = dataclasses.replace(SMALL, n_steps=3 * 256)
    assert training.train(run, config, tmp_path)
    first = read_rows(tmp_path / f"{run.name}.csv")
    assert [row["steps"] for row in first] == [512, 768]
    longer = dataclasses.replace(config, n_steps=6 * 256)
    model, environment = training.make_model(run, longer)
    training.restore(model, environment, tmp_path / f"{run.name}.pt")
    assert model.num_timesteps == 768
    assert model._n_updates == 3 * config.n_epochs
    assert environment.obs_rms.count > 768
    assert (
        model.policy.optimizer.state_dict()["state"][0]["step"] == 3 * config.n_epochs * 256 / config.batch_size
    )
    fresh, _ = training.make_model(run, longer)
    assert not torch.equal(fresh.policy.action_net.weight, model.policy.action_net.weight)
    assert training.train(run, longer, tmp_path)
    kept = read_rows(tmp_path / f"{run.name}.csv")
    assert kept[:2] == first
    assert [row["steps"] for row in kept] == [512, 768, 1280, 1536]
    assert not list(tmp_path.glob("*.partial"))


def test_a_stop_between_rows_loses_no_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("Reach-v0", "sw", 1e-3, 0)
    # Before the run, before its first rollout, and after it.
    clock = iter([0.0, 0.0, 2.0, *[0.0] * 4])
    fake = types.SimpleNamespace(time=lambda: next(clock), perf_counter=time.perf_counter)
    monkeypatch.setattr(training, "time", fake)
    assert not training.train(run, SMALL, tmp_path, deadline=1.0)
    assert read_rows(tmp_path / f"{run.name}.csv") == []
    assert training.train(run, SMALL, tmp_path, deadline=1.0)
    (row,) = read_rows(tmp_path / f"{run.name}.csv")
    assert row["steps"] == 512
    # 12 episodes of 20 steps in each of two rollouts of 256; the one under way at the stop is given up.
    assert row["n_episodes"] == 24
    monkeypatch.undo()
    # Rows ahead of the state, as after a crash between the two files, are made again.
    write_rows(tmp_path / f"{run.name}.csv", [row, row | {"steps": 700}])
    assert training.train(run, dataclasses.replace(SMALL, n_steps=1024), tmp_path)
    assert [r["steps"] for r in read_rows(tmp_path / f"{run.name}.csv")] == [512, 1024]


def test_no_time_means_no_work(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, tasks=("Reach-v0",))
    left = jobs.train_all(config, tmp_path, minutes=0)
    assert left == list_runs(config)
    assert jobs.collect_rows(config, tmp_path) == []


@pytest.mark.full
def test_processes_make_whole_rows(tmp_path: Path) -> None:
    # Children know the tasks of gymnasium alone.
    config = dataclasses.replace(SMALL, methods=("none", "pw"))
    assert jobs.train_all(config, tmp_path, n_jobs=2) == []
    made = jobs.collect_rows(config, tmp_path)
    assert [(row["method"], row["steps"]) for row in made] == [("none", 512), ("pw", 512)]
    assert all(tuple(row) == rows.COLUMNS for row in made)
    assert all(value is not None for row in made for value in row.values())
    states = {path: path.stat() for path in tmp_path.glob("*.pt")}
    # What is finished is left alone, and what is kept of it is small enough to carry about.
    assert jobs.train_all(config, tmp_path) == []
    assert len(states) == 2
    assert all(path.stat().st_mtime_ns == kept.st_mtime_ns for path, kept in states.items())
    assert all(kept.st_size < 250_000 for kept in states.values())


def test_a_folder_with_other_settings_is_refused(tmp_path: Path) -> None:
    jobs.train_all(SMALL, tmp_path, minutes=0)
    jobs.train_all(dataclasses.replace(SMALL, n_steps=4096, n_seeds=3), tmp_path, minutes=0)
    with pytest.raises(ValueError, match=r"`folder` must hold runs with the same settings; batch_size differ"):
        jobs.train_all(dataclasses.replace(SMALL, batch_size=32), tmp_path, minutes=0)


def made_up(finals: dict[tuple[str, str], list[float]], n_times: int = 20, wave: float = 0.0) -> list[dict]:
    """Rows of straight curves that end at the given returns; `wave` bends all but those of PW."""
    made = []
    for (task, method), ends in finals.items():
        for seed, end in enumerate(ends):
            for k in range(1, n_times + 1):
                dip = wave * (k % 2) * (method != "pw")
                values = (
                    task,
                    method,
                    0.0 if method == "none" else 1e-3,
                    seed,
                    1000 * k,
                    5,
                    end * k / n_times - dip,
                )
                made.append(
                    dict(zip(rows.COLUMNS, (*values, 0.1, 0.2, 0.3, 0.4, 1.0, 10.0, 10.0), strict=True))
                )
    return made


def test_claims_follow_the_curves() -> None:
    close = [100.0, 101.0, 102.0, 103.0, 104.0]
    far = [200.0, 201.0, 202.0, 203.0, 204.0]
    ends = {"none": close, "sw": close, "pw": far}
    equal = made_up({("Hopper-v5", name): close for name in ends})
    assert [claim.held for claim in claims.judge(equal)] == [True, True]
    unequal = made_up({("Hopper-v5", name): values for name, values in ends.items()})
    assert [claim.held for claim in claims.judge(unequal)] == [True, False]
    cheetah = {
        ("HalfCheetah-v5", "none"): close,
        ("HalfCheetah-v5", "sw"): close,
        ("HalfCheetah-v5", "pw"): far,
    }
    assert [claim.held for claim in claims.judge(made_up(cheetah))] == [True, True, False]
    assert [claim.held for claim in claims.judge(made_up(cheetah, wave=50.0))] == [True, True, True]
    short = [row for row in equal if not (row["method"] == "pw" and row["seed"] == 3 and row["steps"] > 5000)]
    assert not claims.judge(short)[0].held


def test_numbers_of_a_curve() -> None:
    (curve,) = curves.make_curves(made_up({("Hopper-v5", "none"): [100.0, 200.0]}, n_times=10))
    np.testing.assert_allclose(curve.final, [100, 200])
    np.testing.assert_allclose(curve.area, [55, 110])
    np.testing.assert_allclose(curve.drawdown, 0)
    bent = curve._replace(returns=np.array([[0.0, 10.0, 4.0, 10.0, 12.0]]))
    np.testing.assert_allclose(bent.drawdown, 6 / 5)
    np.testing.assert_allclose(curves.interquartile_mean(np.array([[9.0], [1.0], [2.0], [3.0], [-50.0]])), 2)
    assert "| none | 0 | 2 | 150 ± 71 |" in tables.tables(
        made_up({("Hopper-v5", "none"): [100.0, 200.0]}, n_times=10)
    )


def test_intervals_cover() -> None:
    """Of 400 experiments with 5 seeds, Welch's interval misses in 2.5% to 7.5%: a false alarm in 1 of 40 runs.

    Negative control: the bootstrap's percentiles, drawn but not judged by, miss more often.
    """
    rng = np.random.default_rng(3)
    missed = np.zeros(2)
    for seed in range(400):
        a, b = rng.standard_normal((2, 5)) * [[1.0], [2.0]]
        _, low, high = curves.welch(a, b)
        missed[0] += not low <= 0 <= high
        difference = lambda a, b: a.mean() - b.mean()  # noqa: E731
        low, high = curves.bootstrap([a, b], difference, n_resamples=100, seed=seed)
        missed[1] += not low <= 0 <= high
    assert 0.025 < missed[0] / 400 < 0.075
    assert missed[1] / 400 > 0.09
