"""Losses for PyTorch: thin modules over the two distances, with fresh directions at every step."""

from __future__ import annotations

import abc
import operator
import secrets
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch

from orthoslice.arrays import DIRECTIONS, STEPS, Outcome, Stream, Wanted, differentiable, full_precision
from orthoslice.cloud import Cloud
from orthoslice.directions import IID, Given, Orthogonal, Sampler
from orthoslice.directions.drawing import draw_blocks
from orthoslice.distances import projected_wasserstein, sliced_wasserstein
from orthoslice.estimate import plan_layout
from orthoslice.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal
from orthoslice.kernels.cuda.loss import sliced_loss, sort_target
from orthoslice.options import check_directions, check_memory, check_n_directions, check_p
from orthoslice.result import Estimate, Layout
from orthoslice.scores import COSTS, Score, Sliced

__all__ = ["ProjectedWassersteinLoss", "SlicedWassersteinLoss"]


class _Plan(NamedTuple):
    """What stays the same from step to step."""

    sampler: Sampler
    layout: Layout


class _Loss(torch.nn.Module, abc.ABC):  # type: ignore[misc]
    """Options, and the key and the step of the directions, which live where the data does."""

    key_high: torch.Tensor
    key_low: torch.Tensor
    step: torch.Tensor
    theta: torch.Tensor | None
    target: torch.Tensor | None

    def __init__(
        self, n_directions: Any, p: Any, directions: Any, target: Any, seed: Any, memory: Any, score: Score
    ) -> None:
        super().__init__()
        if isinstance(directions, list | tuple | np.ndarray):
            directions = torch.as_tensor(directions)
        given = isinstance(directions, torch.Tensor)
        sampler = Given(theta=directions) if given else check_directions(directions, Cloud(torch.zeros(1, 1)))
        self.n_directions = check_n_directions(n_directions, sampler)
        self.p = check_p(p)
        self.memory = check_memory(memory)
        self._sampler = None if given else sampler
        self._score = score
        self._plans: dict[Any, _Plan] = {}
        if target is not None:
            _check_tensor("target", target)
        self.register_buffer("theta", directions.detach() if given else None)
        self.register_buffer("target", None if target is None else target.detach(), persistent=False)
        key = Stream.from_seed(secrets.randbits(64) if seed is None else _check_seed("seed", seed), np.zeros(1))
        self.register_buffer("key_high", torch.as_tensor(key.high))
        self.register_buffer("key_low", torch.as_tensor(key.low))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    # A compiler would find nothing to fuse in here: one break of its graph, and no error.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(
        self, x: torch.Tensor, y: torch.Tensor | None = None, *, rng: int | None = None
    ) -> torch.Tensor:
        """The loss of `x (n, dim)` against `y (m, dim)`, or against the target: a scalar.

        Clouds with leading axes `(..., n, dim)` share the directions, and the loss is the mean over them. Every
        call moves on to new directions unless `rng`, an integer, says which to use: what runs twice under
        activation checkpointing must see the same ones both times.
        """
        if (y is None) == (self.target is None):
            raise TypeError(
                "Pass `y`: this loss was made without a `target`."
                if y is None
                else "This loss was made with a `target`: pass `x` alone."
            )
        y = self.target if y is None else y
        for name, points in (("x", x), ("y", y)):
            _check_tensor(name, points)
        if rng is not None:
            return self._value(x, y, Stream.from_seed(_check_seed("rng", rng), x), None)
        if x.device != self.step.device:
            raise ValueError(
                f"`x` must be on the device of this loss, {self.step.device}; got {x.device}. "
                "Move the loss there: `loss.to(x.device)`."
            )
        return self._value(x, y, Stream(self.key_high, self.key_low), self.step)

    def _value(self, x: Any, y: Any, stream: Stream, step: torch.Tensor | None) -> torch.Tensor:
        """By the public function: any device, type, batch and sampler."""
        on_host = x.device.type == "cpu"
        if on_host:
            # Tensors in host memory are worked on as NumPy arrays.
            stream = Stream(*(word.numpy() for word in stream))
        if step is not None:
            stream = stream.fold(int(step) if on_host else step.to(torch.int32), STEPS)
        value: torch.Tensor = self._estimate(
            x,
            y,
            p=self.p,
            directions=self.theta if self._sampler is None else self._sampler,
            n_directions=self.n_directions,
            rng=stream,
            memory=self.memory,
        ).value
        if step is not None:
            step += 1
        return value.mean()

    @abc.abstractmethod
    def _estimate(self, x: Any, y: Any, **options: Any) -> Estimate:
        """The distance that this is the loss of."""

    def _plan(self, x: torch.Tensor) -> _Plan:
        theta, sampler = self.theta, cast(Sampler, self._sampler)
        # Given directions change with the module's type, and when a state is loaded.
        given = None if theta is None else (theta.data_ptr(), theta._version)
        place = (x.shape[-1], x.device, given)
        if place not in self._plans:
            if theta is not None:
                self._plans.clear()
                sampler = check_directions(theta.float(), Cloud(x.detach().float()))
            dim, count = x.shape[-1], self.n_directions
            self._plans[place] = _Plan(*plan_layout(sampler, count, dim, self._score, self.p, adaptive=False))
        return self._plans[place]

    def extra_repr(self) -> str:
        directions = f"{tuple(self.theta.shape)} given" if self.theta is not None else repr(self._sampler)
        return f"n_directions={self.n_directions}, p={self.p:g}, directions={directions}"


class SlicedWassersteinLoss(_Loss):
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
        The power, at least 1. The loss is SW_p^p; take the root if you want the distance.
    directions
        ``"orthogonal"``, ``"iid"``, ``"hadamard"``, a sampler from :mod:`orthoslice.directions`, or unit rows
        `(slices, dim)`, which are then the same at every step.
    target
        A cloud `(m, dim)` that stays the same: the loss is then called with `x` alone. Where the directions
        stay the same too, a GPU projects and sorts it only once.
    seed
        An integer, for runs that can be repeated; None draws one. Key and step are buffers: they move with the
        module and are saved in its `state_dict`, so that a run that is taken up again goes on where it was.
    memory
        Working memory in bytes or as text.

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
        seed: int | None = None,
        memory: int | str = "1GB",
    ) -> None:
        super().__init__(n_directions, p, directions, target, seed, memory, Sliced())
        self._sorted_target: Any = None

    def _estimate(self, x: Any, y: Any, **options: Any) -> Estimate:
        return sliced_wasserstein(x, y, **options)

    def _value(self, x: Any, y: Any, stream: Stream, step: torch.Tensor | None) -> torch.Tensor:
        if self._whole_step_refusal(x, y) is not None:
            return super()._value(x, y, stream, step)
        # Half precision is summed in single precision.
        x, y = (a if a.dtype == torch.float32 else a.float() for a in (x, y))
        sampler, layout = self._plan(x)
        with full_precision(x):
            if isinstance(sampler, Given):
                theta = sampler.theta
            else:
                blocks = (layout.n_blocks, layout.block_rows, x.shape[1], torch.float32, DIRECTIONS, step)
                theta = draw_blocks(sampler, stream, 0, *blocks).theta[: layout.n_directions]
            constants = (theta, self._target_on(theta), step)
            value: torch.Tensor = differentiable(
                _whole_step, (self.p, self.memory), (x, y), constants, (2, 2), compilable=False
            )[0]
        return value

    def _whole_step_refusal(self, x: Any, y: Any) -> str | None:
        """Why the kernels for a whole step cannot be used, or None if they can."""
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or 0 in (*x.shape, *y.shape):
            return "it takes two clouds of points"
        if max(x.shape[0], y.shape[0]) > LONGEST_CUDA_ROW:
            return f"it takes clouds of at most {LONGEST_CUDA_ROW} points"
        if any(a.dtype not in (torch.float32, torch.float16, torch.bfloat16) for a in (x, y)):
            return "it takes single and half precision"
        if not isinstance(self._sampler, IID | Orthogonal | None):
            return "it takes independent, orthogonal or given directions"
        if x.device != y.device:
            return "it takes clouds on one device"
        return cuda_refusal(self.step, dtype="int64") if x.is_cuda else "it takes tensors on an NVIDIA GPU"

    def _target_on(self, theta: torch.Tensor) -> Any:
        """The target projected and sorted, where neither it nor the directions change."""
        if self.target is None or self.theta is None:
            return None
        place = (self.target.data_ptr(), self.target._version, theta.data_ptr(), theta._version)
        if self._sorted_target is None or self._sorted_target[0] != place:
            self._sorted_target = place, sort_target(self.target.float(), theta)
        return self._sorted_target[1]


def _whole_step(options: tuple[float, int], inputs: tuple[Any, ...], constants: Any, wanted: Wanted) -> Outcome:
    theta, target, step = constants
    p, memory = options
    x, y = inputs
    value, gradients = sliced_loss(x, y, theta, target, p, (wanted[0], wanted[1]), memory, step)
    return Outcome(value, theta, gradients)


class ProjectedWassersteinLoss(_Loss):
    """PW_p^p as a loss: an unbiased estimate with fresh directions at every call, and its gradient.

    PW bounds W from above where SW bounds it from below, and pulls points along the full differences of their
    pairs. The gradient takes the couplings as they are.

    Parameters
    ----------
    n_directions, p, directions, target, seed, memory
        As in :class:`SlicedWassersteinLoss`.
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
        seed: int | None = None,
        memory: int | str = "1GB",
    ) -> None:
        if cost not in COSTS:
            raise ValueError(f"`cost` must be one of {sorted(COSTS)}; got {cost!r}.")
        super().__init__(n_directions, p, directions, target, seed, memory, COSTS[cost])
        self.cost = cost

    def _estimate(self, x: Any, y: Any, **options: Any) -> Estimate:
        return projected_wasserstein(x, y, cost=self.cost, **options)


def _check_tensor(name: str, points: Any) -> None:
    if not isinstance(points, torch.Tensor):
        raise TypeError(f"`{name}` must be a torch tensor (..., n, dim); got {type(points).__name__}.")


def _check_seed(name: str, seed: Any) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"`{name}` must be an integer or None; got {seed!r}.") from None
    if isinstance(seed, bool) or not 0 <= number < 2**64:
        raise ValueError(f"`{name}` must be an integer from 0 to 2**64 - 1; got {seed!r}.")
    return number
