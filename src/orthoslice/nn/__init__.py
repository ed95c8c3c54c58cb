"""Losses for PyTorch: thin modules over the two distances, with fresh directions at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from orthoslice.arrays import full_precision
from orthoslice.coupling import unreadable_nan
from orthoslice.distances import projected_wasserstein, sliced_wasserstein
from orthoslice.kernels.cuda import LONGEST_CUDA_ROW
from orthoslice.kernels.cuda.lexsort import LONGEST_CLOUD
from orthoslice.kernels.cuda.loss import is_target_worth_sorting, sliced_loss, small_step, sort_target
from orthoslice.kernels.cuda.projected import BYTES_A_PAIR, ProjectedStep
from orthoslice.nn._loss import Loss
from orthoslice.result import Estimate
from orthoslice.scores import COSTS, Sliced

__all__ = ["ProjectedWassersteinLoss", "SlicedWassersteinLoss"]


class SlicedWassersteinLoss(Loss):
    """SW_p^p as a loss: an unbiased estimate with fresh directions at every call, and its gradient.

    On an NVIDIA GPU a step draws its directions, projects, sorts and prices on the device, without waiting for
    the host or being waited for, and keeps no more for the backward pass than gradients of the clouds' size. It
    can be captured in a CUDA graph: every replay draws anew. Elsewhere it is
    :func:`orthoslice.sliced_wasserstein`.

    Parameters
    ----------
    n_directions
        How many directions a step takes. None means 8 blocks of about ``clip(dim, 16, 128)``.
    p
        The power, at least 1.
    directions
        A name as in :func:`orthoslice.sliced_wasserstein`, a sampler from :mod:`orthoslice.directions`, or unit
        rows `(slices, dim)`, which are then the same at every step. A GPU draws orthogonal and independent ones
        itself; others take the way of the public function. In up to 9 dimensions
        ``directions=Auto(replicates=1)`` makes gradients that vary less: see "Which directions?" in the docs.
    target
        A cloud `(m, dim)` that stays the same: the loss is then called with `x` alone. It is copied, so writes
        to the tensor that was passed change nothing. Where the directions stay the same too, a GPU projects and
        sorts it only once, unless that is slower. To change it, write to the copy, ``loss.target.copy_(new)``,
        or put another in its place, ``loss.target = new``; writes through ``.data`` may go unnoticed.
    distance
        Whether the loss is the distance, SW_p, instead of SW_p^p. Its gradient at equal clouds is 0, where that
        of ``loss(x, y) ** (1 / p)`` is NaN. The root of an unbiased estimate is slightly biased downwards.
    seed
        An integer, for runs that can be repeated; None draws one. Key and step are buffers: they move with the
        module and are saved in its `state_dict`, so that a run that is taken up again goes on where it was.
    memory
        Working memory in bytes or as text.

    Notes
    -----
    A loss lives where its target is, or else its given directions; ``loss.to(device)`` moves it.

    Examples
    --------
    >>> import torch, orthoslice as osl
    >>> loss = osl.nn.SlicedWassersteinLoss(n_directions=63, seed=0)
    >>> x = torch.zeros(100, 3, requires_grad=True)
    >>> value = loss(x, torch.ones(100, 3))
    >>> value.backward()
    >>> round(value.item(), 6), loss.step.item(), tuple(x.grad.shape)
    (1.0, 1, (100, 3))
    """

    def __init__(
        self,
        n_directions: int | None = None,
        *,
        p: float = 2,
        directions: Any = "orthogonal",
        target: torch.Tensor | None = None,
        distance: bool = False,
        seed: int | None = None,
        memory: int | str = "512MB",
    ) -> None:
        super().__init__(n_directions, p, directions, target, distance, seed, memory, Sliced())

    def _estimate(self, x: Any, y: Any, **options: Any) -> Estimate:
        return sliced_wasserstein(x, y, **options)

    def _whole_step_refusal(self, x: Any, y: Any) -> str | None:
        if max(x.shape[:1] + y.shape[:1], default=0) > LONGEST_CUDA_ROW:
            return f"it takes clouds of at most {LONGEST_CUDA_ROW} points"
        return super()._whole_step_refusal(x, y)

    def _whole_step(
        self, x: Any, y: Any, theta: Any, step: torch.Tensor | None, wanted: tuple[bool, bool]
    ) -> tuple[Any, Any]:
        with full_precision(x):
            target = None
            if self._may_sort_target and not wanted[1]:
                target = self._sorted_target.get_or_make(_sort_target, self.target, theta)
            return sliced_loss(x, y, theta, target, self.p, wanted, self.memory, step)

    def _choose_run(self, x: Any, y: Any, slices: int) -> Callable[..., tuple[Any, Any]]:
        if not (self._may_sort_target and is_target_worth_sorting(x, y, self.theta)):
            small = small_step(x, y, slices, self.p, self.memory)
            if small is not None:
                return lambda loss, *arguments: small(*arguments)
        return SlicedWassersteinLoss._whole_step

    @property
    def _may_sort_target(self) -> bool:
        """Whether the target would come out the same at every step."""
        return self._has_target and self._sampler is None


class ProjectedWassersteinLoss(Loss):
    """PW_p^p as a loss: an unbiased estimate with fresh directions at every call, and its gradient.

    PW bounds W from above where SW bounds it from below, and pulls points along the full differences of their
    pairs. The gradient takes the couplings as they are.

    Parameters
    ----------
    n_directions, p, directions, target, distance, seed, memory
        As in :class:`SlicedWassersteinLoss`; a target is not sorted beforehand.
    cost
        How couplings are priced; as in :func:`orthoslice.projected_wasserstein`.

    Examples
    --------
    >>> import torch, orthoslice as osl
    >>> loss = osl.nn.ProjectedWassersteinLoss(n_directions=64, seed=0)
    >>> loss(torch.zeros(100, 3), torch.ones(100, 3)).item()
    3.0
    """

    def __init__(
        self,
        n_directions: int | None = None,
        *,
        p: float = 2,
        cost: Literal["exact", "pooled", "independent"] = "exact",
        directions: Any = "orthogonal",
        target: torch.Tensor | None = None,
        distance: bool = False,
        seed: int | None = None,
        memory: int | str = "512MB",
    ) -> None:
        if cost not in COSTS:
            raise ValueError(f"`cost` must be one of {sorted(COSTS)}; got {cost!r}.")
        super().__init__(n_directions, p, directions, target, distance, seed, memory, COSTS[cost])
        self.cost = cost

    def _estimate(self, x: Any, y: Any, **options: Any) -> Estimate:
        return projected_wasserstein(x, y, cost=self.cost, **options)

    def _whole_step_refusal(self, x: Any, y: Any) -> str | None:
        if self.cost != "exact":
            return "it prices pairs by their full distance"
        if x.shape != y.shape or max(x.shape[:1], default=0) > LONGEST_CLOUD:
            return f"it takes clouds of equal size, at most {LONGEST_CLOUD} points"
        return super()._whole_step_refusal(x, y)

    def _choose_run(self, x: Any, y: Any, slices: int) -> Callable[..., tuple[Any, Any]] | None:
        n, dim = x.shape
        if BYTES_A_PAIR * slices * n > self.memory:
            return None
        run = ProjectedStep(x.get_device(), n, dim, slices, self.p)
        return lambda loss, x, y, theta, *rest: run(x, y, theta, loss._nan_of(theta), *rest)

    def _nan_of(self, theta: torch.Tensor) -> torch.Tensor | None:
        """A tensor that is NaN if a given direction is, which orders would swallow; None if none is given."""
        found = self._nan_of_bad_rows.get_or_make(unreadable_nan, theta) if self._sampler is None else None
        return found if isinstance(found, torch.Tensor) else None


def _sort_target(target: torch.Tensor, theta: torch.Tensor) -> Any:
    return sort_target(target.float(), theta)
