"""A step of a loss as one operator of torch: for `torch.compile`, and for the transforms of `torch.func`.

A module of its own, imported while a compiler or a transform reads a loss. The number of the step is taken
outside of the operator, which is a function of its arguments then: a graph may be played again, and what
`torch.func` transforms is not counted twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from orthoslice.backend.torch_internals import (
    are_transforms_active,
    is_exporting,
    is_forward_mode,
    outside_transforms,
    recording_gradients,
)
from orthoslice.nn._inputs import check_seed, refuse_graph, refuse_transforms
from orthoslice.nn._steps import Weights, find_loss

if TYPE_CHECKING:
    from orthoslice.nn._loss import Loss

_SCHEMA = (
    "(Tensor x, Tensor y, Tensor? x_weights, Tensor? y_weights, Tensor? step, int serial, int? rng, "
    "bool[] wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def recorded_step(
    loss: Loss, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None
) -> torch.Tensor:
    """The value of a loss, by an operator that compilers and transforms of torch take as it is."""
    if torch.jit.is_tracing() or is_exporting():
        refuse_graph()
    clouds, is_transformed = (x, y, *(weights or (None, None))), are_transforms_active()
    if is_transformed:
        if is_forward_mode():
            refuse_transforms()
        with outside_transforms(), loss.taken_step(loss.step if rng is None else None) as number:
            pass
    else:
        number = _taken_number(loss, rng)
    # Within a transform, tensors do not tell all the derivatives that will be asked of them.
    wanted = [c is not None and c.is_floating_point() and (is_transformed or c.requires_grad) for c in clouds]
    wanted[1] &= not loss.has_target
    seed = None if rng is None else check_seed("rng", rng)
    # Operators take integers of 64 bits with a sign.
    seed = seed if seed is None or seed < 1 << 63 else seed - (1 << 64)
    run = _TransformedStep.apply if is_transformed else _compiled_step
    value: torch.Tensor = run(*clouds, number, loss.serial, seed, wanted)[0]
    return value


def _taken_number(loss: Loss, rng: int | None) -> torch.Tensor | None:
    """As `taken_step` of a loss, in words that compilers read; a graph runs in one thread at a time."""
    if rng is not None:
        return None
    number: torch.Tensor = loss.step.clone()
    if loss.training:
        loss.step.add_(1)
    return number


def _value_type(x: torch.Tensor, y: torch.Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)


def _work_out(
    x: torch.Tensor,
    y: torch.Tensor,
    x_weights: torch.Tensor | None,
    y_weights: torch.Tensor | None,
    step: torch.Tensor | None,
    serial: int,
    rng: int | None,
    wanted: list[bool],
) -> tuple[torch.Tensor, ...]:
    """The value and its gradients by the first four arguments; an empty tensor where one is not wanted."""
    with recording_gradients(), torch.enable_grad():
        clouds = [None if c is None else c.detach() for c in (x, y, x_weights, y_weights)]
        inputs = [c.requires_grad_() for c, want in zip(clouds, wanted, strict=True) if c is not None and want]
        seed = rng if rng is None or rng >= 0 else rng + (1 << 64)
        value = find_loss(serial).value_at(step, *clouds, seed)
        # Copies, since operators may not give out two parts of one tensor.
        found = [g.clone() for g in torch.autograd.grad(value, inputs)] if inputs else []
    value = value.detach().to(_value_type(x, y))
    each = iter(found)
    return value, *(next(each) if want else value.new_empty(0) for want in wanted)


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.wanted = inputs[-1]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:])


def _pull_back(
    ctx: Any, cotangent: torch.Tensor | None, *of_gradients: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    if any(g is not None for g in of_gradients):
        raise RuntimeError(
            "orthoslice gives first derivatives in torch, and a second one was asked for. JAX has both."
        )
    if cotangent is None:
        return (None,) * 8
    pairs = zip(ctx.saved_tensors, ctx.wanted, strict=True)
    return *((cotangent * g).to(g.dtype) if want else None for g, want in pairs), None, None, None, None


_compiled_step = torch.library.custom_op("orthoslice::loss_step", _work_out, mutates_args=(), schema=_SCHEMA)
_compiled_step.register_autograd(_pull_back, setup_context=_keep_gradients)


@_compiled_step.register_fake  # type: ignore[untyped-decorator]
def _(
    x: torch.Tensor,
    y: torch.Tensor,
    x_weights: torch.Tensor | None,
    y_weights: torch.Tensor | None,
    step: torch.Tensor | None,
    serial: int,
    rng: int | None,
    wanted: list[bool],
) -> tuple[torch.Tensor, ...]:
    value = x.new_empty((), dtype=_value_type(x, y))
    clouds = zip((x, y, x_weights, y_weights), wanted, strict=True)
    return value, *(torch.empty_like(c) if want else value.new_empty(0) for c, want in clouds)


class _TransformedStep(torch.autograd.Function):  # type: ignore[misc]
    """The same for transforms of `torch.func`, which do not take operators with derivatives."""

    forward = staticmethod(_work_out)
    setup_context = staticmethod(_keep_gradients)
    backward = staticmethod(_pull_back)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: object
    ) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
        """One cloud after the other, all with the same directions."""
        results = []
        for k in range(info.batch_size):
            pairs = zip(arguments, in_dims, strict=True)
            one = [a.select(d, k) if isinstance(a, torch.Tensor) and d is not None else a for a, d in pairs]
            results.append(_TransformedStep.apply(*one))
        return tuple(map(torch.stack, zip(*results, strict=True))), (0,) * 5
