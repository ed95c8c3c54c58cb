"""D, the distance between the old and the new policy, from actions at the states of a minibatch.

A call of :class:`orthoslice.nn.SlicedWassersteinLoss` on 64 points in host memory takes about as long as the
rest of PPO's step on a minibatch, nearly all of it checks and bookkeeping. So the directions of a whole update
come from the library in one draw, and the two distances, a line each without weights and ties, are written out
here. A test holds them to the library's losses, values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.distributions import Normal, kl_divergence

import orthoslice as osl
from experiments.fig4_trust_region.config import DistanceName, Method

SAMPLERS = {"orthogonal": osl.directions.Orthogonal(), "iid": osl.directions.IID()}


def sliced(x: torch.Tensor, y: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
    """SW_1 of clouds `(n, dim)` along the rows of `theta (slices, dim)`."""
    return ((y @ theta.T).sort(dim=0).values - (x @ theta.T).sort(dim=0).values).abs().mean()


def projected(x: torch.Tensor, y: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
    """PW_1 of clouds `(n, dim)` along the rows of `theta (slices, dim)`; its couplings have no gradient."""
    ix, iy = ((cloud.detach() @ theta.T).argsort(dim=0) for cloud in (x, y))
    partners = torch.empty_like(ix).scatter_(0, iy, ix)
    # The norm's gradient is 0 at 0, where pairs have not moved.
    return torch.linalg.vector_norm(y[:, None] - x[partners], dim=-1).mean()


DISTANCES: dict[DistanceName, Callable[..., torch.Tensor]] = {"sw": sliced, "pw": projected}


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
        self._thetas: Iterator[torch.Tensor] = iter(())

    def start(self, update: int, n_minibatches: int, state_dim: int, action_dim: int) -> None:
        """Draw the directions of an update of `n_minibatches` minibatches."""
        self._noise.manual_seed(self.seed * 1_000_003 + update)
        if self.method.distance == "kl":
            return
        dim = action_dim + (state_dim if self.method.points == "joint" else 0)
        slices = self.n_blocks * dim
        rng = int(torch.randint(2**62, (), generator=self._noise))
        theta = SAMPLERS[self.method.directions].sample(n_minibatches * slices, dim, rng).theta
        self._thetas = iter(torch.as_tensor(theta, dtype=torch.float32).reshape(n_minibatches, slices, dim))

    def __call__(self, states: torch.Tensor, old: Normal, new: Normal) -> torch.Tensor:
        """D at the states `(n, state_dim)` of the next minibatch: a scalar, differentiable by `new`."""
        if self.method.distance == "kl":
            return divergence(old, new)
        noise = torch.randn(new.mean.shape, generator=self._noise)
        x, y = (torch.addcmul(policy.mean, policy.stddev, noise) for policy in (old, new))
        if self.method.points == "joint":
            x, y = (torch.cat([states, actions], dim=1) for actions in (x, y))
        return DISTANCES[self.method.distance](x, y, next(self._thetas))
