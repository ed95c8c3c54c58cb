"""PPO of stable-baselines3 with a penalty in its loss.

Its loss is ``policy + ent_coef * -mean(entropy) + vf_coef * value``. A policy that answers `-strength * D`
where the entropy is asked for, under ``ent_coef=1``, adds the penalty without another line of its training
loop. The entropy bonus that this displaces has weight 0 in the settings of the experiment.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from torch.distributions import Normal

from experiments.fig4_trust_region.penalty import Penalty


class TrustRegionPolicy(ActorCriticPolicy):
    """A Gaussian policy that remembers an earlier state of itself and answers with its distance from there."""

    def __init__(self, *args: Any, penalty: Penalty | None, strength: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self.penalty, self.strength = penalty, strength
        # In a tuple, out of sight of torch: the old actor is neither trained nor saved.
        self._old: tuple[torch.nn.Module, torch.Tensor] | None = None

    def remember(self) -> None:
        """Take the present policy as the old one."""
        actor = torch.nn.Sequential(*self.mlp_extractor.policy_net, self.action_net)
        self._old = copy.deepcopy(actor).requires_grad_(False), self.log_std.detach().exp()

    def old_actions(self, states: torch.Tensor) -> Normal:
        """The remembered policy at these states."""
        assert self._old is not None
        actor, std = self._old
        mean = actor(states)
        return Normal(mean, std.expand_as(mean), validate_args=False)

    def new_actions(self, states: torch.Tensor) -> Normal:
        """The present policy at these states."""
        return self.get_distribution(states).distribution

    def evaluate_actions(self, obs: torch.Tensor, actions: torch.Tensor) -> Any:
        """As in the base class, with `-strength * D` for the entropy."""
        values, log_prob, _ = super().evaluate_actions(obs, actions)
        if self.penalty is None:
            return values, log_prob, torch.zeros(())
        # The base class has just set this to the new policy at these states.
        new = self.action_dist.distribution
        # Simulators give observations in double precision.
        states = obs.float()
        return values, log_prob, -self.strength * self.penalty(states, self.old_actions(states), new)


class TrustRegionPPO(PPO):
    """PPO whose policy is held near the one that collected the rollout."""

    policy: TrustRegionPolicy

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(TrustRegionPolicy, *args, ent_coef=1.0, **options)
        self.seconds_of_update = 0.0

    def train(self) -> None:
        """One update: remember the old policy, then train."""
        start = time.perf_counter()
        self.policy.remember()
        if self.policy.penalty is not None:
            (state_dim,), (action_dim,) = self.observation_space.shape, self.action_space.shape
            self.policy.penalty.start(self._n_updates, state_dim, action_dim)
        super().train()
        self.seconds_of_update = time.perf_counter() - start
