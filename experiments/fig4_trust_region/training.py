"""One training, in one thread, that can be stopped after any update and taken up again."""

from __future__ import annotations

import functools
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecNormalize

import orthoslice as osl
from experiments.fig4_trust_region.config import METHODS, Config, Run
from experiments.fig4_trust_region.penalty import Penalty, divergence
from experiments.fig4_trust_region.ppo import TrustRegionPPO
from experiments.fig4_trust_region.rows import COLUMNS
from experiments.trainings import Files, one_thread, read_rows, replacing, write_rows


@one_thread()
def train(run: Run, config: Config, folder: Path, deadline: float = float("inf")) -> bool:
    """Train until the run has all its steps, or until the clock `time.time()` shows `deadline`.

    Returns whether the run is finished. Rows and state are in `folder` then, and were after every row.
    """
    files, n_steps = Files.of(run.name, folder), config.steps_of(run)
    rows = read_rows(files.rows) if files.rows.exists() else []
    if rows and rows[-1]["steps"] >= n_steps:
        return True
    if time.time() >= deadline:
        return False
    model, environment = make_model(run, config)
    # Seconds spent on rollouts and on updates, and how many of them, since the last row.
    spent, n_updates = [0.0, 0.0], 0
    if files.state.exists():
        spent, n_updates = restore(model, environment, files.state)
    # A run may have been stopped between writing its rows and its state.
    rows = [row for row in rows if row["steps"] <= model.num_timesteps]
    while model.num_timesteps < n_steps and time.time() < deadline:
        start = time.perf_counter()
        model.learn(config.rollout_steps, log_interval=None, reset_num_timesteps=False)
        updating = model.seconds_of_update
        spent = [spent[0] + time.perf_counter() - start - updating, spent[1] + updating]
        n_updates += 1
        if n_updates == config.rollouts_per_row or model.num_timesteps >= n_steps:
            rows.append(make_row(run, model, spent, n_updates))
            _report(rows[-1], n_steps, config)
            model.ep_info_buffer.clear()
            spent, n_updates = [0.0, 0.0], 0
            _save(model, environment, rows, (spent, n_updates), files)
    _save(model, environment, rows, (spent, n_updates), files)
    environment.close()
    return bool(model.num_timesteps >= n_steps)


def make_model(run: Run, config: Config) -> tuple[TrustRegionPPO, VecNormalize]:
    """PPO as the configuration says, before its first step."""
    method = METHODS[run.method]
    seed = config.seed + run.seed
    penalty = None if method.distance == "none" else Penalty(method, config.n_blocks, seed)
    environment = make_environment(run.task, seed, config)
    model = TrustRegionPPO(
        environment,
        learning_rate=config.learning_rate,
        n_steps=config.rollout_steps,
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        gamma=config.discount,
        gae_lambda=config.gae_lambda,
        clip_range=config.standard_clip_range if method.clips else config.clip_range,
        vf_coef=config.value_coefficient,
        max_grad_norm=config.max_gradient_norm,
        policy_kwargs={
            "net_arch": list(config.hidden),
            "activation_fn": torch.nn.Tanh,
            "penalty": penalty,
            "strength": run.strength,
        },
        seed=seed,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    # Unbounded, in place of windows over the last episodes: rows empty it.
    model.ep_info_buffer, model.ep_success_buffer = deque(), deque()
    return model, environment


def make_environment(task: str, seed: int, config: Config) -> VecNormalize:
    """One simulator, with observations and rewards normalised and episodes counted before that."""
    # A function, not a name: for a name, stable-baselines3 asks for pictures too.
    return VecNormalize(make_vec_env(functools.partial(gymnasium.make, task), seed=seed), gamma=config.discount)


def make_row(run: Run, model: TrustRegionPPO, spent: list[float], n_updates: int) -> dict[str, Any]:
    """What is known after an update."""
    returns = [episode["r"] for episode in model.ep_info_buffer]
    values = (
        *(len(returns), float(np.mean(returns)) if returns else None),
        *measure_move(model).values(),
        float(model.policy.log_std.detach().exp().mean()),
        *(1e3 * seconds / n_updates for seconds in spent),
    )
    # Five digits: a file of all rows stays small, and nothing is known to more.
    rounded = (float(f"{value:.5g}") if isinstance(value, float) else value for value in values)
    return dict(zip(COLUMNS, (*run, model.num_timesteps, *rounded), strict=True))


def measure_move(model: TrustRegionPPO) -> dict[str, float]:
    """How far the last update moved the policy, at the states of its rollout.

    SW_1 and PW_1 are means over clouds of a minibatch's size, as D sees them. `shift` is the mean length of the
    move of an action, its state and noise kept.
    """
    buffer, policy = model.rollout_buffer, model.policy
    generator = torch.Generator().manual_seed(model.num_timesteps)
    n = buffer.buffer_size // model.batch_size * model.batch_size
    order = torch.randperm(buffer.buffer_size, generator=generator)[:n]
    states = torch.as_tensor(buffer.observations.reshape(buffer.buffer_size, -1), dtype=torch.float32)[order]
    with torch.no_grad():
        old, new = policy.old_actions(states), policy.new_actions(states)
        noise = torch.randn(new.mean.shape, generator=generator)
        x, y = (
            torch.addcmul(actions.mean, actions.stddev, noise).reshape(-1, model.batch_size, noise.shape[1])
            for actions in (old, new)
        )
        options: dict[str, Any] = {"p": 1, "directions": "orthogonal", "rng": model.num_timesteps, "workers": 1}
        return {
            "sw": float(osl.sliced_wasserstein(x, y, **options).value.mean()),
            "pw": float(osl.projected_wasserstein(x, y, **options).value.mean()),
            "kl": float(divergence(old, new)),
            "shift": float((y - x).norm(dim=-1).mean()),
        }


def _save(
    model: TrustRegionPPO,
    environment: VecNormalize,
    rows: list[dict[str, Any]],
    pending: tuple[list[float], int],
    files: Files,
) -> None:
    """Rows first: those that are ahead of the state are dropped when it is read."""
    write_rows(files.rows, rows, COLUMNS)
    state = {
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "steps": model.num_timesteps,
        "n_updates": model._n_updates,
        "observations": _moments(environment.obs_rms),
        "returns": _moments(environment.ret_rms),
        "torch": torch.get_rng_state(),
        # The one that stable-baselines3 shuffles minibatches with.
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002
        "episodes": [dict(episode) for episode in model.ep_info_buffer],
        "pending": pending,
    }
    with replacing(files.state) as partial:
        torch.save(state, partial)


def restore(model: TrustRegionPPO, environment: VecNormalize, path: Path) -> tuple[list[float], int]:
    """Go on from a saved state, with a new episode: what a simulator holds is not saved."""
    # Our own file, of a few arrays and numbers.
    state = torch.load(path, weights_only=False)
    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimizer"])
    model.num_timesteps, model._n_updates = state["steps"], state["n_updates"]
    environment.obs_rms.mean, environment.obs_rms.var, environment.obs_rms.count = state["observations"]
    environment.ret_rms.mean, environment.ret_rms.var, environment.ret_rms.count = state["returns"]
    # Not the first episodes again.
    environment.seed(int(np.random.SeedSequence([model.seed, model.num_timesteps]).generate_state(1)[0]))
    model._last_obs = environment.reset()
    model._last_episode_starts = np.ones(environment.num_envs, dtype=bool)
    model.ep_info_buffer.extend(state["episodes"])
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    spent, n_updates = state["pending"]
    return spent, n_updates


def _moments(running: Any) -> tuple[Any, Any, Any]:
    return running.mean, running.var, running.count


def _report(row: dict[str, Any], n_steps: int, config: Config) -> None:
    seconds = (row["rollout_ms"] + row["update_ms"]) / 1e3
    print(
        f"{row['task']} {row['method']} {row['strength']:g} seed {row['seed']}: {row['steps']:,} of "
        f"{n_steps:,} steps, return {row['mean_return']}, {config.rollout_steps / seconds:.0f} steps/s",
        file=sys.stderr,
        flush=True,
    )
