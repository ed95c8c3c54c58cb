"""What both losses are: options, a plan for every shape of clouds, and directions from step to step."""

from __future__ import annotations

import abc
import functools
import operator
import secrets
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from orthoslice.arrays import STEPS, Stream
from orthoslice.cloud import Cloud
from orthoslice.directions import IID, Given, Orthogonal
from orthoslice.directions.drawing import Blocks, can_draw_ahead, draw_blocks
from orthoslice.estimate import plan_layout
from orthoslice.kernels.cuda import cuda_refusal
from orthoslice.kernels.cuda.directions import DrawnAhead
from orthoslice.nn._steps import Kept, Plan, WithGradients, is_captured
from orthoslice.options import check_directions, check_memory, check_n_directions, check_p
from orthoslice.result import Estimate
from orthoslice.scores import Score

# Shapes of clouds whose plans are kept.
_MOST_PLANS = 256

_NO_PLAN = object()

# A step is launched as a whole: between drawing its directions and counting it, no other thread may come. A
# thread may come back, since hooks on what autograd saves can call a loss.
_IN_TURN = threading.RLock()

# What the kernels for a whole step take; half precision is made single on the way in.
_TYPES = ("float32", "float16", "bfloat16")


class Loss(torch.nn.Module, abc.ABC):  # type: ignore[misc]
    """Options, and the key and the step of the directions, which live where the data does."""

    key_high: torch.Tensor
    key_low: torch.Tensor
    step: torch.Tensor
    theta: torch.Tensor | None
    target: torch.Tensor | None
    _plans: dict[Any, Any]
    _all_ahead: dict[Any, DrawnAhead]
    _checked_theta: Kept
    _spoil: Kept
    _sorted_target: Kept
    cost: Any = None

    def __init__(
        self, n_directions: Any, p: Any, directions: Any, target: Any, seed: Any, memory: Any, score: Score
    ) -> None:
        super().__init__()
        if isinstance(directions, list | tuple | np.ndarray):
            directions = torch.as_tensor(directions)
        if target is not None:
            _check_tensor("target", target)
        given = isinstance(directions, torch.Tensor)
        sampler = Given(theta=directions) if given else check_directions(directions, Cloud(torch.zeros(1, 1)))
        self.n_directions = check_n_directions(n_directions, sampler)
        self.p = check_p(p)
        self.memory = check_memory(memory)
        self._sampler = None if given else sampler
        self._score = score
        self._has_target = target is not None
        self._forget()
        self.register_buffer("theta", directions.detach() if given else None)
        self.register_buffer("target", target.detach() if self._has_target else None, persistent=False)
        key = Stream.from_seed(secrets.randbits(64) if seed is None else _check_seed("seed", seed), np.zeros(1))
        self.register_buffer("key_high", torch.as_tensor(key.high))
        self.register_buffer("key_low", torch.as_tensor(key.low))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(
        self, x: torch.Tensor, y: torch.Tensor | None = None, *, rng: int | None = None
    ) -> torch.Tensor:
        """The loss of `x (n, dim)` against `y (m, dim)`, or against the target: a scalar.

        Clouds with leading axes `(..., n, dim)` share the directions, and the loss is the mean over them. Every
        call moves on to new directions unless `rng`, an integer, says which to use: what runs twice under
        activation checkpointing must see the same ones both times.
        """
        if (y is None) != self._has_target:
            raise TypeError(
                "Pass `y`: this loss was made without a `target`."
                if y is None
                else "This loss was made with a `target`: pass `x` alone."
            )
        y = self.target if y is None else y
        _check_tensor("x", x)
        _check_tensor("y", y)
        # A compiler would find nothing to fuse in there: it breaks its graph once, and goes on after it.
        value = self._value_uncompiled if torch.compiler.is_compiling() else self._value
        return value(x, y, rng)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _value_uncompiled(self, x: Any, y: Any, rng: int | None) -> torch.Tensor:
        return self._value(x, y, rng)

    def _value(self, x: Any, y: Any, rng: int | None) -> torch.Tensor:
        # Looked up, not worked out: for small clouds the host is what takes time.
        given, step = self._buffers["theta"], self._buffers["step"]
        rows = self.n_directions if given is None else (given.shape, given.device)
        options = (rows, self.p, self.memory, self.cost)
        shape = (x.shape, y.shape, x.dtype, y.dtype, x.device, y.device, step.device, step.dtype, options)
        plan = self._plans.get(shape, _NO_PLAN)
        if plan is _NO_PLAN:
            plan = self._make_plan(shape, x, y)
        if plan is None:
            return self._value_in_general(x, y, rng)
        if not plan.is_single:
            # Half precision is summed in single precision.
            x, y = x.float(), y.float()
        with _IN_TURN:
            theta, step = plan.directions(self, rng)
            run = functools.partial(plan.run, self)
            if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):
                value: torch.Tensor = WithGradients.apply(run, (theta, step), x, y)
            else:
                value, _ = run(x, y, theta, step, (False, False))
        return value

    def _make_plan(self, shape: Any, x: Any, y: Any) -> Plan | None:
        """How to make a whole step on the device, or None where the public function must do it."""
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
            self._all_ahead.clear()
        plan = None
        if self._whole_step_refusal(x, y) is None:
            directions: Any = _given_directions
            slices = 0 if self.theta is None else self.theta.shape[0]
            if self._sampler is not None:
                count, dim = self.n_directions, x.shape[1]
                sampler, layout = plan_layout(self._sampler, count, dim, self._score, self.p, adaptive=False)
                stream, size = self._key(None)[0], (layout.n_blocks, layout.block_rows, dim, torch.float32)
                blocks, slices = Blocks(sampler, stream, 0, *size, step=self.step), layout.n_directions
                directions = functools.partial(_drawn, draw_blocks.chosen(blocks), blocks, slices)
                if can_draw_ahead(blocks, slices) and not is_captured(self.step):
                    directions = functools.partial(_drawn_ahead, self._ahead(blocks, slices), directions)
            run = self._choose_run(x, y, slices)
            plan = None if run is None else Plan(x.dtype == y.dtype == torch.float32, directions, run)
        self._plans[shape] = plan
        return plan

    def _ahead(self, blocks: Blocks, slices: int) -> DrawnAhead:
        """One for all plans that draw alike."""
        key = self.step.device, blocks.rows, slices, blocks.dim
        if key not in self._all_ahead:
            with torch.inference_mode(False):
                made = DrawnAhead(self.step, STEPS, blocks.rows, slices, blocks.dim, blocks.purpose)
            self._all_ahead[key] = made
        return self._all_ahead[key]

    @abc.abstractmethod
    def _choose_run(self, x: Any, y: Any, slices: int) -> Callable[..., tuple[Any, Any]] | None:
        """What a plan runs to make a whole step with clouds of these shapes, or None where memory is short."""

    def _whole_step_refusal(self, x: Any, y: Any) -> str | None:
        """Why the kernels for a whole step cannot be used, or None if they can."""
        if not isinstance(self._sampler, IID | Orthogonal | None):
            return "it takes independent, orthogonal or given directions"
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or 0 in (*x.shape, *y.shape):
            return "it takes two clouds of points"
        if self.theta is not None and (self.theta.ndim != 2 or self.theta.shape[1] != x.shape[1]):
            return "it takes directions of the clouds' dimension"
        if self.theta is not None and self.theta.device != x.device:
            return "it takes directions beside the clouds"
        if any(str(a.dtype).removeprefix("torch.") not in _TYPES for a in (x, y)):
            return "it takes single and half precision"
        if not x.device == y.device == self.step.device:
            return "it takes clouds on the device of the loss"
        return cuda_refusal(self.step, dtype="int64")

    def _value_in_general(self, x: Any, y: Any, rng: int | None) -> torch.Tensor:
        """By the public function: any device, type, batch and sampler."""
        self._check_device(x, rng)
        stream, step = self._key(rng, x)
        on_host = x.device.type == "cpu"
        if on_host:
            # Tensors in host memory are worked on as NumPy arrays.
            stream = Stream(*(word.numpy() for word in stream))
        if step is not None:
            stream = stream.fold(
                int(step.to(torch.int32)) if on_host else step.to(torch.int32).reshape(1), STEPS
            )
        value: torch.Tensor = self._estimate(
            x,
            y,
            p=self.p,
            directions=_wide(self.theta) if self._sampler is None else self._sampler,
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

    def _key(self, rng: int | None, like: torch.Tensor | None = None) -> tuple[Stream, torch.Tensor | None]:
        """Which directions to draw: those of the next step, or those of a seed, which is no step.

        The key of a seed is made where `like` is, or else where this loss is.
        """
        buffers = self._buffers
        if rng is None:
            return Stream(buffers["key_high"], buffers["key_low"]), buffers["step"]
        return Stream.from_seed(_check_seed("rng", rng), buffers["step"] if like is None else like), None

    def _check_device(self, x: torch.Tensor, rng: int | None) -> None:
        if rng is None and x.device != self.step.device:
            raise ValueError(
                f"`x` must be on the device of this loss, {self.step.device}; got {x.device}. "
                "Move the loss there: `loss.to(x.device)`."
            )

    def _forget(self) -> None:
        """What is kept from step to step holds for tensors that are where they were."""
        self.__dict__.update(_nothing_kept())

    def _apply(self, *args: Any, **options: Any) -> Any:
        moved = super()._apply(*args, **options)
        self._forget()
        return moved

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **_nothing_kept()}

    def extra_repr(self) -> str:
        directions = f"{tuple(self.theta.shape)} given" if self.theta is not None else repr(self._sampler)
        return f"n_directions={self.n_directions}, p={self.p:g}, directions={directions}"


def _nothing_kept() -> dict[str, Any]:
    """What a loss keeps from step to step, before the first."""
    names = ("_checked_theta", "_spoil", "_sorted_target")
    return {"_plans": {}, "_all_ahead": {}} | {name: Kept() for name in names}


def _given_directions(loss: Loss, rng: int | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Directions that stay the same, as rows, and the step that they are used in."""
    theta = loss._checked_theta.of(_checked_rows, loss._buffers["theta"])
    return theta, loss._buffers["step"] if rng is None else None


def _drawn(
    draw: Any, blocks: Blocks, slices: int, loss: Loss, rng: int | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As many directions out of these blocks, as rows, and the step that they are of."""
    stream, step = loss._key(rng)
    theta = draw(blocks._replace(stream=stream, step=step)).theta
    return theta if theta.shape[0] == slices else theta[:slices], step


def _drawn_ahead(
    ahead: DrawnAhead, draw: Any, loss: Loss, rng: int | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The same, made together with those of other steps."""
    stream, step = loss._key(rng)
    # A graph may outlive what is held here.
    if step is None or is_captured(step) or not ahead.is_in_order():
        drawn: tuple[torch.Tensor, torch.Tensor | None] = draw(loss, rng)
        return drawn
    return ahead(stream, step), step


def _wide(theta: Any) -> torch.Tensor:
    """Given directions in single precision at least; rounding to half precision has changed their length."""
    if theta.dtype not in (torch.float16, torch.bfloat16):
        return theta
    return torch.nn.functional.normalize(theta.float(), dim=-1)


def _checked_rows(theta: torch.Tensor) -> torch.Tensor:
    """Given directions as the kernels take them, with NaN for rows that are not of unit length."""
    wide = _wide(theta).float()
    checked = check_directions(wide, Cloud(wide[:1]))
    assert isinstance(checked, Given)
    return checked.theta


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
