"""What both losses are: options, a plan for every shape of clouds, and directions from step to step."""

from __future__ import annotations

import abc
import contextlib
import functools
import secrets
from collections.abc import Callable, Hashable, Iterator
from typing import Any, cast

import numpy as np
import torch

from orthoslice.backend.arrays import STEPS, HostArray, Key, is_bridged, is_captured
from orthoslice.backend.arrays.autodiff import wants_gradients
from orthoslice.backend.kernels.cuda.directions import DrawnAhead
from orthoslice.backend.kernels.when_to_compile import expecting_many
from orthoslice.backend.torch_internals import are_transforms_active
from orthoslice.check.options import check_directions, check_memory, check_n_directions, check_p
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.laws import Law, frame_beside
from orthoslice.costs.scores import Score
from orthoslice.directions import Given, HadamardRademacher
from orthoslice.directions.drawing import Blocks, can_draw_ahead, draw_blocks
from orthoslice.estimates.entry import estimate_distance
from orthoslice.estimates.fused import whole_step
from orthoslice.estimates.host_step import host_step_refusal, make_host_step
from orthoslice.estimates.plan import all_blocks
from orthoslice.estimates.request import Options, Request, make_request
from orthoslice.nn._inputs import (
    are_plain_clouds,
    are_plain_weights,
    check_seed,
    check_target,
    check_tensor,
    refuse_graph,
    refuse_transforms,
    warn_of_images,
)
from orthoslice.nn._plans import (
    Drawn,
    StepOutcome,
    StepPlan,
    Taken,
    at_least_single,
    draw_on_host,
    draw_step,
    draw_steps_ahead,
    given_directions,
    given_on_host,
    leave_undrawn,
    run_on_host,
    run_to_distance,
    take_on_device,
    take_on_host,
)
from orthoslice.nn._steps import Caches, StepLock, Weights, WithGradients, enrol, split_gradient

# How many plans a loss keeps, one for each shape of clouds that it was called with.
_MOST_PLANS = 256

# Stands for "never planned": None in the table of plans says that no plan is possible.
_NOT_PLANNED = object()

# Held while a step of the kernels is launched, from drawing its directions to counting it; and while the number
# of a step is taken for the public function.
_STEP_LOCK = StepLock()


class Loss(torch.nn.Module, abc.ABC):  # type: ignore[misc]
    """Options, and the key and the step of the directions, which live where the data does.

    A call makes the same request as the public function. Where a :class:`.StepPlan` can be made for clouds like
    these, kernels carry it out as a whole on the device. Otherwise the driver of the public function does: in
    host memory, and for batches, and for weights and types that the kernels do not take.
    """

    key_high: torch.Tensor
    key_low: torch.Tensor
    step: torch.Tensor
    theta: torch.Tensor | None
    target: torch.Tensor | None
    caches: Caches
    draws_ahead = True
    """Whether directions of several steps may be drawn at once."""
    cost: Any = None
    has_target: bool
    """Whether a call takes `x` alone."""
    _name: str
    _law: Law | None
    """The target where that is a law: then there is no tensor `target`."""
    _takes_laws = False

    def __init__(
        self,
        n_directions: int | None,
        p: float,
        directions: Any,
        target: Any,
        distance: bool,
        seed: int | None,
        memory: int | str,
    ) -> None:
        super().__init__()
        law = target if isinstance(target, Law) and self._takes_laws else None
        if law is not None:
            target = None
        if target is not None:
            check_target(target)
        # A loss lives in one place: that of its target, or else of its directions, or else torch's default.
        place = None if target is None else target.device
        given = isinstance(directions, torch.Tensor | list | tuple | np.ndarray)
        if given:
            directions = torch.as_tensor(directions, device=place)
            if directions.requires_grad:
                raise ValueError("`directions` have no gradient here; pass `directions.detach()`.")
            place = directions.device
        sampler = Given(theta=directions) if given else check_directions(directions, Cloud(torch.zeros(1, 1)))
        self.n_directions = check_n_directions(n_directions, sampler)
        self.p = check_p(p)
        self.distance = bool(distance)
        self.memory = check_memory(memory)
        self._sampler = None if given else sampler
        self._law = law
        self.has_target = not (target is law is None)
        self._has_warned = False
        self.caches, self._caches_of_twins = Caches(), Caches()
        self.serial = enrol(self)
        # Copies, since what is worked out from them would not notice every write to the caller's tensors.
        self.register_buffer("theta", directions.clone() if given else None)
        self.register_buffer("target", None if target is None else target.clone(), persistent=False)
        key = Key.from_seed(secrets.randbits(64) if seed is None else check_seed("seed", seed), np.zeros(1))
        self.register_buffer("key_high", torch.as_tensor(key.high, device=place))
        self.register_buffer("key_low", torch.as_tensor(key.low, device=place))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64, device=place))

    @property
    def seed(self) -> int:
        """The integer that `seed=` repeats these directions with; on a GPU, reading it waits for the device."""
        high, low = (int(word) & 0xFFFFFFFF for word in (self.key_high, self.key_low))
        return high << 32 | low

    def forward(
        self,
        x: torch.Tensor,
        y: torch.Tensor | None = None,
        *,
        x_weights: torch.Tensor | None = None,
        y_weights: torch.Tensor | None = None,
        rng: int | None = None,
    ) -> torch.Tensor:
        """The loss of `x (n, dim)` against `y (m, dim)`, or against the target: a scalar.

        Clouds with leading axes `(..., n, dim)` share the directions, and the loss is the mean over them.
        Weights `x_weights (..., n)` and `y_weights (..., m)` sum to 1; on a GPU whoever wants gradients by them
        waits longer, since the public function is called for those.

        In training mode every call moves on to new directions. After `eval()` calls use the directions of the
        current step and leave it as it is, so that validation changes nothing of a run. `rng`, an integer, says
        which directions to use instead, in either mode: what runs twice under activation checkpointing must see
        the same ones both times.
        """
        y = self._check_pair(x, y)
        weights = None if x_weights is None and y_weights is None else (x_weights, y_weights)
        if torch.compiler.is_compiling() or are_transforms_active() or torch.jit.is_tracing():
            return self._recorded_value(x, y, weights, rng)
        return self._value(x, y, weights, rng)

    def _recorded_value(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None
    ) -> torch.Tensor:
        """The value where torch records what is done, to compile or transform it."""
        from orthoslice.nn._graph import recorded_step

        return recorded_step(self, x, y, weights, rng)

    def value_at(
        self,
        step: torch.Tensor | None,
        x: torch.Tensor,
        y: torch.Tensor,
        x_weights: torch.Tensor | None,
        y_weights: torch.Tensor | None,
        rng: int | None,
    ) -> torch.Tensor:
        """The value with the directions of a step, or of a seed; no step is taken."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, training=False, caches=self._caches_of_twins, draws_ahead=False)
        if step is not None:
            twin.__dict__["_buffers"] = {**self._buffers, "step": step}
        weights = None if x_weights is None and y_weights is None else (x_weights, y_weights)
        return twin._value(x, y if self._law is None else self._frame(x), weights, rng)

    def __prepare_scriptable__(self) -> None:
        """`torch.jit.script` calls this before it reads any code."""
        refuse_graph()

    def value_and_grad(
        self,
        x: torch.Tensor,
        y: torch.Tensor | None = None,
        *,
        y_grad: bool = False,
        x_weights: torch.Tensor | None = None,
        y_weights: torch.Tensor | None = None,
        rng: int | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """The loss and its gradient by `x` in one call, without a tape.

        For loops that move the points themselves. The gradient is worked out with the value, so on a GPU this
        spares handing it through torch's engine, which for small clouds takes longer than the step. The call is
        a step like any other, works under `no_grad` and in inference mode, and both results are constants to
        torch, even if `x` or `y` come from a network.

        Parameters
        ----------
        x, y, x_weights, y_weights, rng
            As in a call of the loss.
        y_grad
            Whether to return the gradient by `y` too.

        Returns
        -------
        tuple
            The value, the gradient by `x`, of its shape and type, and with `y_grad` that by `y`.

        Examples
        --------
        >>> import torch, orthoslice as osl
        >>> loss = osl.nn.SlicedWassersteinLoss(n_directions=63, target=torch.ones(100, 3), seed=0)
        >>> x = torch.zeros(100, 3)
        >>> value, gradient = loss.value_and_grad(x)
        >>> round(value.item(), 6), tuple(gradient.shape), round((x - 50 * 3 * gradient).mean().item(), 6)
        (1.0, (100, 3), 1.0)
        """
        y = self._check_pair(x, y, (True, y_grad))
        weights = None if x_weights is None and y_weights is None else (x_weights, y_weights)
        if torch.compiler.is_compiling():
            from orthoslice.nn._uncompiled import run_uncompiled

            result: tuple[torch.Tensor, ...] = run_uncompiled(self._value_and_grad, x, y, weights, rng, y_grad)
            return result
        return self._value_and_grad(x, y, weights, rng, y_grad)

    def _check_pair(
        self, x: torch.Tensor, y: torch.Tensor | None, wanted: tuple[bool, bool] = (False, False)
    ) -> torch.Tensor:
        """What to compare `x` with; `wanted` says whether gradients by `x` and by `y` are to be returned."""
        if wanted[1] and y is None:
            raise ValueError("`y_grad` asks for a gradient by `y`, and a `target` has none. Pass it as `y`.")
        if (y is None) != self.has_target:
            raise TypeError(
                "Pass `y`: this loss was made without a `target`."
                if y is None
                else "This loss was made with a `target`: pass `x` alone."
            )
        check_tensor("x", x, wanted[0])
        if self._law is not None:
            # Compilers cannot read how a frame is made: `value_at` makes it.
            return x if torch.compiler.is_compiling() else self._frame(x)
        y = self.target if y is None else y
        check_tensor("y", y, wanted[1])
        return y

    def _frame(self, x: torch.Tensor) -> torch.Tensor:
        """What stands for the law beside `x` in the place of a cloud, and `_score` knows how to read."""
        assert self._law is not None
        return frame_beside(self._law, x if x.dtype in (torch.float32, torch.float64) else x.float())

    def _value(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None
    ) -> torch.Tensor:
        plan, taken, x, y = self._find_plan(x, y, weights, rng)
        if plan is None or taken is None:
            return self._value_in_general(x, y, weights, rng)
        if plan.is_half:
            x, y = x.float(), y.float()
        wanted = wants_gradients(x, y)
        with _STEP_LOCK:
            run = self._start_step(plan, taken, rng, weights)
            if wanted[0] or wanted[1]:
                value: torch.Tensor = WithGradients.apply(run, wanted, x, y)
            else:
                value, _ = run(x, y, wanted)
        return value

    def _value_and_grad(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None, y_grad: bool
    ) -> tuple[torch.Tensor, ...]:
        refuse_transforms()
        plan, taken, x, y = self._find_plan(x, y, weights, rng)
        if plan is None or taken is None:
            # A tape of its own, even under `no_grad` or in inference mode.
            with torch.inference_mode(False), torch.enable_grad():
                x = (x.clone() if x.is_inference() else x).detach().requires_grad_()
                y = (y.clone() if y.is_inference() else y).detach().requires_grad_(y_grad)
                value = self._value_in_general(x, y, weights, rng)
                return value.detach(), *torch.autograd.grad(value, (x, y) if y_grad else (x,))
        with torch.no_grad():
            wide = (x.float(), y.float()) if plan.is_half else (x, y)
            wanted = True, y_grad
            with _STEP_LOCK:
                value, gradient = self._start_step(plan, taken, rng, weights)(*wide, wanted)
            parts = zip(split_gradient(gradient, x, wanted), (x, y), strict=True)
            return value, *(g if g.dtype == of.dtype else g.to(of.dtype) for g, of in parts if g is not None)

    def _find_plan(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None
    ) -> tuple[StepPlan | None, Taken | None, torch.Tensor, torch.Tensor]:
        """How to make the whole step by kernels, and of what, or None where they cannot; and the clouds.

        Looked up, not worked out: for small clouds the host is what takes time.
        """
        if x.is_neg() or y.is_neg():
            # Kernels read memory, which does not hold the sign of a negated view.
            x, y = x.resolve_neg(), y.resolve_neg()
        if weights is not None and not are_plain_weights(weights, x, y):
            return None, None, x, y
        given, step = self._buffers["theta"], self._buffers["step"]
        rows = self.n_directions if given is None else (given.shape, given.device)
        options = (rows, self.p, self.distance, self.memory, self.cost)
        kinds = x.dtype, y.dtype, x.device, y.device, step.device, step.dtype, weights is None
        shape = x.shape, y.shape, kinds, options
        plan = self.caches.plans.get(shape, _NOT_PLANNED)
        if plan is _NOT_PLANNED:
            self._check_device(x, rng)
            plan = self._make_plan(shape, x, y, weights is not None)
        return plan, None if plan is None else plan.take(x, y), x, y

    def _start_step(
        self, plan: StepPlan, taken: Taken, rng: int | None, weights: Weights | None
    ) -> Callable[..., StepOutcome]:
        """Draw the directions of a step; returns a function of x, y and `wanted` that makes and counts it."""
        theta, step = plan.directions(self, rng)
        counted = step if self.training else None
        rest = () if weights is None else (weights,)
        return lambda x, y, wanted: plan.run(self, *(taken or (x, y)), theta, counted, wanted, *rest)

    def _make_plan(
        self, shape: Hashable, x: torch.Tensor, y: torch.Tensor, is_weighted: bool
    ) -> StepPlan | None:
        plans = self.caches.plans
        if len(plans) >= _MOST_PLANS:
            plans.clear()
            self.caches.ahead.clear()
        plan = self._plan_whole_step(x, y, is_weighted) if are_plain_clouds(x, y) else None
        plans[shape] = plan
        return plan

    def _plan_whole_step(self, x: torch.Tensor, y: torch.Tensor, is_weighted: bool) -> StepPlan | None:
        options = self._options(None)
        if self._sampler is None:
            # Here only their number counts; those that were rounded to another type are checked when used.
            wide = torch.float64 if x.dtype == torch.float64 else torch.float32
            options = options._replace(directions=options.directions.to(wide))
        request = make_request(
            self._name, self._score, Cloud(x.detach()), Cloud(y.detach()), check_p(self.p), options
        )
        plan = self._plan_on_device(request, x, y, is_weighted)
        if plan is None and not is_weighted:
            plan = self._plan_on_host(request, x, y)
        if plan is not None and self.distance and self.p != 1:
            plan = plan._replace(run=functools.partial(run_to_distance, plan.run, self.p))
        return plan

    def _plan_on_host(self, request: Request, x: torch.Tensor, y: torch.Tensor) -> StepPlan | None:
        if not (
            is_bridged(x) and is_bridged(self.step) and x.dtype == y.dtype in (torch.float32, torch.float64)
        ):
            return None
        tables = x.detach().numpy(), y.detach().numpy()
        given = self._sampler is None
        if host_step_refusal(request, *tables) or (self.theta is not None and self.theta.dtype != x.dtype):
            return None
        draw: Callable[..., tuple[HostArray, torch.Tensor | None]] = given_on_host
        with expecting_many():
            step = make_host_step(request, *tables)
            if not given:
                key, size = Key.from_seed(0, tables[0]), (x.shape[1], step.directions_dtype)
                blocks = all_blocks(request.sampler, request.layout, *size, key)
                chosen = draw_blocks.chosen(blocks[0])
                count = request.layout.n_directions
                draw = functools.partial(draw_on_host, chosen, blocks, count, step.by_factors)
        run = functools.partial(run_on_host, step, x.dtype)
        return StepPlan(False, functools.partial(take_on_host, step), draw, run)

    def _plan_on_device(
        self, request: Request, x: torch.Tensor, y: torch.Tensor, is_weighted: bool
    ) -> StepPlan | None:
        is_fixed = self.has_target and self._sampler is None
        run = whole_step(request, x, y, self.step, is_fixed, is_weighted)
        if run is None:
            return None
        is_half = not x.dtype == y.dtype == torch.float32
        return StepPlan(is_half, take_on_device, self._choose_drawing(request, x.shape[1]), run)

    def _choose_drawing(self, request: Request, dim: int) -> Callable[..., Drawn]:
        """Where the directions of a whole step come from."""
        if self._sampler is None:
            return given_directions
        if isinstance(request.sampler, HadamardRademacher):
            return leave_undrawn
        layout, key = request.layout, self._key(None)[0]
        size = (layout.n_blocks, layout.longest_block, dim, torch.float32)
        blocks = Blocks(request.sampler, key, 0, *size, step=self.step)
        draw = functools.partial(draw_step, draw_blocks.chosen(blocks), blocks, layout.n_directions)
        if not (self.draws_ahead and can_draw_ahead(blocks, layout.n_directions)) or is_captured(self.step):
            return draw
        return functools.partial(draw_steps_ahead, self._drawn_ahead(blocks, layout.n_directions), draw)

    def _drawn_ahead(self, blocks: Blocks, slices: int) -> DrawnAhead:
        """Directions of several steps at once, shared by all plans that draw alike."""
        ahead = self.caches.ahead
        alike = self.step.device, blocks.rows, slices, blocks.dim
        if alike not in ahead:
            with torch.inference_mode(False):
                ahead[alike] = DrawnAhead(self.step, STEPS, blocks.rows, slices, blocks.dim, blocks.purpose)
        return ahead[alike]

    def _options(self, key: Key | None) -> Options:
        """What the public function would be called with."""
        return Options(
            directions=at_least_single(self.theta) if self._sampler is None else self._sampler,
            n_directions=self.n_directions,
            rtol=None,
            atol=None,
            control=None,
            rng=key,
            memory=self.memory,
            workers=None,
            progress=False,
        )

    def _value_in_general(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None
    ) -> torch.Tensor:
        """By the driver of the public function: any device, type, batch and sampler."""
        self._check_device(x, rng)
        # A loss warns once.
        self._has_warned = self._has_warned or warn_of_images(x, y)
        clouds = x, y if self._law is None else self._law, *(weights or (None, None))
        with self._taken_key(x, rng) as key:
            return self._estimate(clouds, key).mean()

    def _estimate(self, clouds: tuple[object, object, object, object], key: Key) -> torch.Tensor:
        """What the public function makes of x, y and their weights, with the directions of this key."""
        estimate = estimate_distance(self._name, self._score, clouds, self.p, self._options(key))
        value: torch.Tensor = estimate.distance if self.distance else estimate.value
        return value

    @contextlib.contextmanager
    def _taken_key(self, x: torch.Tensor, rng: int | None) -> Iterator[Key]:
        """The key of this call's directions, on the device of `x`; a call without a seed takes a step."""
        key, step = self._key(rng, x)
        with self.taken_step(step) as now:
            on_host = is_bridged(x)
            if on_host:
                # Tensors in host memory are worked on as NumPy arrays.
                key = Key(*(cast(torch.Tensor, word).numpy() for word in key))
            if now is not None:
                number = now.to(torch.int32)
                key = key.fold(int(number) if on_host else number.reshape(1), STEPS)
            yield key

    @contextlib.contextmanager
    def taken_step(self, step: torch.Tensor | None) -> Iterator[torch.Tensor | None]:
        """The number of the current step, after which the next call gets the next one.

        A call that fails undoes its step, unless another call has taken one since: no two share a number.
        """
        if step is None or not self.training:
            yield step
            return
        with _STEP_LOCK:
            now = step.clone()
            step += 1
        try:
            yield now
        except BaseException:
            with _STEP_LOCK:
                # Compared on the device: reading the step would wait for a GPU.
                step -= (step == now + 1).to(step.dtype)
            raise

    @property
    @abc.abstractmethod
    def _score(self) -> Score:
        """How couplings are priced."""

    def _key(self, rng: int | None, like: torch.Tensor | None = None) -> tuple[Key, torch.Tensor | None]:
        """Which directions to draw: those of the current step, or those of a seed, which is no step.

        The key of a seed is made where `like` is, or else where this loss is.
        """
        buffers = self._buffers
        if rng is None:
            return Key(buffers["key_high"], buffers["key_low"]), buffers["step"]
        return Key.from_seed(check_seed("rng", rng), buffers["step"] if like is None else like), None

    def _check_device(self, x: torch.Tensor, rng: int | None) -> None:
        if rng is None and x.device != self.step.device:
            raise ValueError(
                f"`x` must be on the device of this loss, {self.step.device}; got {x.device}. "
                "Move the loss there: `loss.to(x.device)`."
            )

    def _apply(self, *args: Any, **options: Any) -> Any:
        moved = super()._apply(*args, **options)
        self.caches, self._caches_of_twins = Caches(), Caches()
        return moved

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "caches": Caches(), "_caches_of_twins": Caches()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.serial = enrol(self)

    def extra_repr(self) -> str:
        directions = f"{tuple(self.theta.shape)} given" if self.theta is not None else repr(self._sampler)
        parts = [f"n_directions={self.n_directions}", f"p={self.p:g}", f"directions={directions}"]
        if self.distance:
            parts.append("distance=True")
        if self._law is not None:
            parts.append(f"target={self._law}")
        if self.target is not None:
            parts.append(f"target={tuple(self.target.shape)}")
        # Tensors on torch's device "meta" have shapes and no numbers.
        return ", ".join(parts if self.key_high.is_meta else [*parts, f"seed={self.seed}"])
