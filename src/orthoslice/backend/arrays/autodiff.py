"""Values whose gradient was worked out on the way forward, given to torch's and JAX's tapes."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from orthoslice.backend.array_types import Array, JaxArray, Tensor
from orthoslice.backend.arrays.namespace import is_bridged, library, namespace, refuse_transformed, to_numpy
from orthoslice.backend.torch_internals import is_forward_mode

Wanted: TypeAlias = tuple[bool, ...]

NO_GRADIENTS: Wanted = (False, False, False, False)
"""By x, y and their weights."""


class Outcome(NamedTuple):
    """What a computation returns: a value `(...)`, arrays without a gradient, and the value's gradients.

    A gradient has the value's shape followed by the shape of the last axes of its input, or is None where it
    was not wanted.
    """

    value: Array
    extra: tuple[Array, ...]
    gradients: tuple[Array | None, ...]


Compute: TypeAlias = Callable[[Any, tuple[Array | None, ...], Any, Wanted], Outcome]


def differentiable(
    compute: Compute,
    request: Hashable,
    inputs: tuple[Array | None, ...],
    constants: object,
    trailing: tuple[int, ...],
    *,
    compilable: bool,
) -> tuple[Array, tuple[Array, ...]]:
    """Run `compute(request, inputs, constants, wanted)` so that its value can be differentiated by its inputs.

    `trailing[k]` says how many last axes of input k belong to one value; axes before those are a batch and
    broadcast. The coupling is found once, going forward, and only gradients of the inputs' size are kept.
    JAX compiles what is `compilable`, once a request: step by step it is ten times slower. Torch tensors that
    are bridged reach `compute` as NumPy arrays, so their constants must be NumPy arrays too.
    """
    kind = library(inputs[0])
    if is_bridged(inputs[0]):
        compute = functools.partial(_through_numpy, compute)
    if kind == "jax":
        value, extra = _jax_function(compute, request, trailing, compilable)(inputs, constants)
        return value, extra
    if kind == "torch":
        inputs = _in_memory(inputs)
        wanted = wants_gradients(*inputs)
        if any(wanted):
            run = functools.partial(compute, request)
            value, *extra = _torch_function().apply(run, constants, trailing, wanted, *inputs)
            return value, tuple(extra)
    outcome = compute(request, inputs, constants, (False,) * len(inputs))
    return outcome.value, outcome.extra


def with_gradients(
    compute: Compute,
    request: Hashable,
    inputs: tuple[Array | None, ...],
    constants: object,
    wanted: Wanted,
    *,
    compilable: bool,
) -> Outcome:
    """Run `compute(request, inputs, constants, wanted)` for its value and gradients at once, without a tape.

    Arguments are those of :func:`differentiable`. The gradients are the ones that it would leave on a tape.
    """
    if is_bridged(inputs[0]):
        compute = functools.partial(_through_numpy, compute)
    if library(inputs[0]) == "jax" and compilable:
        outcome: Outcome = _jax_outcome(compute, request, wanted)(inputs, constants)
        return outcome
    return compute(request, _in_memory(inputs), constants, wanted)


def _in_memory(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, with lazily negated views of torch written out for kernels to read."""
    if library(inputs[0]) != "torch":
        return inputs
    given = [a for a in inputs if a is not None]
    refuse_transformed(*given)
    if not any(a.is_neg() for a in given):
        return inputs
    # Kernels read memory, which does not hold the sign of a negated view.
    return tuple(None if a is None else a.resolve_neg() for a in inputs)


@functools.lru_cache(maxsize=256)
def _jax_outcome(compute: Compute, request: Hashable, wanted: Wanted) -> Any:
    def run(inputs: tuple[JaxArray | None, ...], constants: object) -> Outcome:
        return compute(request, inputs, constants, wanted)

    return sys.modules["jax"].jit(run)


def _through_numpy(
    compute: Compute, request: object, inputs: tuple[Array | None, ...], constants: object, wanted: Wanted
) -> Outcome:
    """Compute with NumPy arrays that share memory with the tensors."""
    torch = sys.modules["torch"]
    arrays = tuple(None if a is None else to_numpy(a) for a in inputs)
    value, extra, gradients = compute(request, arrays, constants, wanted)
    # On the CPU, like the inputs: torch's default device may be another.
    as_tensor = functools.partial(torch.as_tensor, device="cpu")
    back = tuple(None if g is None else as_tensor(g) for g in gradients)
    return Outcome(as_tensor(np.asarray(value)), tuple(map(as_tensor, extra)), back)


def wants_gradients(*tensors: Tensor | None) -> Wanted:
    """Which of these torch tensors need a derivative: backwards along the tape, or forwards."""
    taped, forwards = sys.modules["torch"].is_grad_enabled(), is_forward_mode()
    wanted = (False,) * len(tensors)
    # Runs at every training step, so it must be quick.
    if taped:
        wanted = tuple([t is not None and t.requires_grad for t in tensors])
    if forwards:
        wanted = tuple(w or (t is not None and has_tangent(t)) for t, w in zip(tensors, wanted, strict=True))
    return wanted


def has_tangent(tensor: Tensor) -> bool:
    """Whether a torch tensor is differentiated forwards now."""
    return sys.modules["torch"].autograd.forward_ad.unpack_dual(tensor).tangent is not None


def _pull_back(cotangent: Tensor, gradient: Tensor, shape: tuple[int, ...], trailing: int) -> Tensor:
    """The chain rule for one input, summed over the batch axes along which that input was repeated."""
    xp = namespace(gradient)
    product = xp.reshape(cotangent, (*cotangent.shape, *(1,) * trailing)) * gradient
    extra = product.ndim - len(shape)
    repeated = tuple(
        axis for axis in range(product.ndim - trailing) if axis < extra or shape[axis - extra] == 1
    )
    total = xp.sum(product, axis=repeated, keepdims=True) if repeated else product
    return xp.reshape(total, shape)


@functools.lru_cache(maxsize=256)
def _jax_function(compute: Compute, request: Hashable, trailing: tuple[int, ...], compilable: bool) -> Any:
    """`compute` with its derivative along a tangent; JAX transposes that rule for reverse mode.

    The gradients depend on no tangent, so that they are worked out going forward, once.
    """
    jax = sys.modules["jax"]
    zero = jax.custom_derivatives.SymbolicZero

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def primal(inputs: tuple[JaxArray | None, ...], constants: object) -> tuple[JaxArray, tuple[JaxArray, ...]]:
        outcome = compute(request, inputs, constants, (False,) * len(inputs))
        return outcome.value, outcome.extra

    def push_forward(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
        (inputs, constants), (moves, others) = primals, tangents
        wanted = tuple(not (move is None or isinstance(move, zero)) for move in moves)
        value, extra, gradients = compute(request, inputs, constants, wanted)
        change = jax.numpy.zeros_like(value)
        for gradient, move, k in zip(gradients, moves, trailing, strict=True):
            if gradient is not None:
                change = change + _along(gradient, move, k).astype(value.dtype)
        for other in jax.tree.leaves(others, is_leaf=lambda leaf: isinstance(leaf, zero)):
            # NaN where a constant (the directions) has a tangent: its derivative is not 0, and not computed.
            if not isinstance(other, zero) and other.dtype != jax.dtypes.float0:
                change = change + math.nan * jax.numpy.sum(other).astype(value.dtype)
        return (value, extra), (change, jax.tree.map(jax.numpy.zeros_like, extra))

    primal.defjvp(push_forward, symbolic_zeros=True)
    return jax.jit(primal) if compilable else primal


def _along(gradient: JaxArray, move: JaxArray, trailing: int) -> JaxArray:
    """The derivative along `move (..., points)` of values `(...)` with this gradient; batch axes broadcast."""
    xp = namespace(gradient)
    lead = (1,) * (gradient.ndim - move.ndim)
    product = gradient * cast(JaxArray, xp.reshape(move, (*lead, *move.shape))).astype(gradient.dtype)
    return xp.sum(product, axis=tuple(range(-trailing, 0)))


def first_derivative(gradient: Tensor, *inputs: Tensor) -> Tensor:
    """A torch gradient by these inputs that raises an error when it is differentiated again."""
    return _first_derivative().apply(gradient, *inputs)


@functools.cache
def _first_derivative() -> Any:
    torch = sys.modules["torch"]

    class FirstDerivative(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: object, gradient: Tensor, *inputs: Tensor) -> Tensor:
            return gradient.clone()

        @staticmethod
        def backward(ctx: object, *_: Tensor) -> Any:
            raise RuntimeError(
                "orthoslice gives first derivatives in torch, and a second one was asked for. JAX has both."
            )

        jvp = backward

    return FirstDerivative


def is_differentiated_again() -> bool:
    """Whether what a backward pass computes may itself be differentiated, backwards or forwards."""
    return bool(sys.modules["torch"].is_grad_enabled()) or is_forward_mode()


@functools.cache
def _torch_function() -> Any:
    torch = sys.modules["torch"]

    class SavedGradient(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, compute: Any, constants: Any, trailing: Any, wanted: Wanted, *inputs: Any) -> Any:
            outcome = compute(inputs, constants, wanted)
            ctx.trailing = trailing
            ctx.save_for_backward(*inputs, *outcome.gradients)
            if is_forward_mode():
                ctx.save_for_forward(*outcome.gradients)
            ctx.mark_non_differentiable(*outcome.extra)
            return outcome.value, *outcome.extra

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
            # Looked up once: activation checkpointing unpacks what was saved only once.
            saved = ctx.saved_tensors
            inputs, gradients = saved[: len(saved) // 2], saved[len(saved) // 2 :]
            pulled = []
            for a, gradient, axes in zip(inputs, gradients, ctx.trailing, strict=True):
                if gradient is not None and is_differentiated_again():
                    gradient = first_derivative(gradient, *(i for i in inputs if i is not None))
                pulled.append(
                    None if gradient is None else _pull_back(cotangent, gradient, a.shape, axes).to(a.dtype)
                )
            return None, None, None, None, *pulled

        @staticmethod
        def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, None]:
            moved = 0
            for gradient, tangent, axes in zip(ctx.saved_tensors, tangents[4:], ctx.trailing, strict=True):
                if gradient is not None and tangent is not None:
                    moved = moved + (gradient * tangent).sum(dim=tuple(range(-axes, 0)))
            return moved, None

    return SavedGradient
