"""D, the distance between the old and the new policy, from actions at the states of a minibatch."""

from __future__ import annotations

import torch
from torch.distributions import Normal, kl_divergence

import orthoslice as osl
from experiments.fig4_trust_region.config import Method

LOSSES = {"sw": osl.nn.SlicedWassersteinLoss, "pw": osl.nn.ProjectedWassersteinLoss}


def distance_for(method: Method, slices: int, seed: int) -> torch.nn.Module:
    """SW_1 or PW_1 of clouds `(n, dim)`; every call moves on to new directions, which the seed decides."""
    return LOSSES[method.distance](slices, p=1, directions=method.directions, seed=seed)


def divergence(old: Normal, new: Normal) -> torch.Tensor:
    """KL(old || new) of policies with independent coordinates, averaged over states."""
    return kl_divergence(old, new).sum(dim=-1).mean()


class Penalty:
    """D(old, new) for the minibatches of one update after another.

    A cloud has one action for each state of the minibatch, `mean + std * noise`. Both policies get the same
    noise, so that equal policies are at distance 0, and all of D's gradient comes from what differs.

    With ``points="actions"`` the clouds are of actions alone, as the paper's SW_1(pi_old, pi_new) reads: laws
    of actions, mixed over states. Such a D cannot see policies that exchange actions between states. With
    ``points="joint"`` the state's coordinates stand beside the action's. D then sees every change, but in more
    coordinates, most of which never differ: it needs more directions and more time.

    Parameters
    ----------
    method
        Which distance, directions and points.
    n_blocks
        Blocks of directions a minibatch, each as many as points have coordinates.
    seed
        Of noise and directions. Both are the same for an update however often it is repeated, and neither
        touches torch's own stream, which makes the actions of the rollouts.
    """

    def __init__(self, method: Method, n_blocks: int, seed: int) -> None:
        self.method, self.n_blocks, self.seed = method, n_blocks, seed
        self._noise = torch.Generator()
        self._distance: torch.nn.Module | None = None

    def start(self, update: int, state_dim: int, action_dim: int) -> None:
        """Begin an update, whose noise and directions no other has."""
        self._noise.manual_seed(self.seed * 1_000_003 + update)
        if self.method.distance == "kl":
            return
        dim = action_dim + (state_dim if self.method.points == "joint" else 0)
        seed = int(torch.randint(2**62, (), generator=self._noise))
        self._distance = distance_for(self.method, self.n_blocks * dim, seed)

    def __call__(self, states: torch.Tensor, old: Normal, new: Normal) -> torch.Tensor:
        """D at the states `(n, state_dim)` of the next minibatch: a scalar, differentiable by `new`."""
        if self.method.distance == "kl":
            return divergence(old, new)
        assert self._distance is not None, "`start` begins an update"
        noise = torch.randn(new.mean.shape, generator=self._noise)
        x, y = (torch.addcmul(policy.mean, policy.stddev, noise) for policy in (old, new))
        if self.method.points == "joint":
            x, y = (torch.cat([states, actions], dim=1) for actions in (x, y))
        return self._distance(x, y)
