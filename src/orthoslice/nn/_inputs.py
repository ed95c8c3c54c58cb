"""Checks of the losses' inputs, and a warning about how images are read."""

from __future__ import annotations

import operator
import sys
import warnings
from typing import Any

import torch

from orthoslice.backend.torch_internals import are_transforms_active, is_forward_mode
from orthoslice.clouds.laws import Law


def check_target(target: Any) -> None:
    """Raise unless this is a tensor that requires no gradient."""
    if isinstance(target, Law):
        raise TypeError(
            "`target` can be a law in `osl.nn.SlicedWassersteinLoss` alone, in one process; here pass a "
            "tensor, such as `torch.as_tensor(target.sample(1000))`."
        )
    if isinstance(target, type) and issubclass(target, Law):
        raise TypeError(f"`target` is a class: pass a law of it, such as `osl.laws.{target.__name__}(3)`.")
    check_tensor("target", target)
    if target.requires_grad:
        raise ValueError(
            "`target` must be fixed, and this one asks for a gradient, which it would not get. Pass it as `y` "
            "at every call, `loss(x, y)`, or pass `target.detach()` if it stays as it is."
        )


def check_tensor(name: str, points: object, has_gradient: bool = False) -> None:
    if not isinstance(points, torch.Tensor):
        raise TypeError(f"`{name}` must be a torch tensor (..., n, dim); got {type(points).__name__}.")
    if has_gradient and not points.is_floating_point():
        raise TypeError(
            f"`{name}` must be of a floating type to have a gradient; got {points.dtype}. "
            f"Pass `{name}.float()`."
        )


def are_plain_clouds(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether these are two clouds without batch axes; the driver says what is wrong with others."""
    if not (x.is_floating_point() and y.is_floating_point() and x.ndim == y.ndim == 2):
        return False
    return x.shape[1] == y.shape[1] and 0 not in (*x.shape, *y.shape)


def are_plain_weights(weights: tuple[Any, Any], x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether these are weights of points of such clouds, on their device, of which no derivative is wanted."""
    if is_forward_mode():
        return False
    for table, of in zip(weights, (x, y), strict=True):
        if table is not None and not (
            isinstance(table, torch.Tensor)
            and table.is_floating_point()
            and table.shape == of.shape[:1]
            and table.device == of.device
            and not (table.is_neg() or (table.requires_grad and torch.is_grad_enabled()))
        ):
            return False
    return True


def check_seed(name: str, seed: Any) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"`{name}` must be an integer or None; got {seed!r}.") from None
    if isinstance(seed, bool) or not 0 <= number < 2**64:
        raise ValueError(f"`{name}` must be an integer from 0 to 2**64 - 1; got {seed!r}.")
    return number


def refuse_transforms() -> None:
    """Raise within transforms of `torch.func` that a loss cannot follow, and while `torch.jit` traces."""
    if torch.jit.is_tracing():
        refuse_graph()
    if are_transforms_active():
        raise TypeError(
            "`torch.func` cannot transform this call: its grad, vjp and vmap take `loss(x, y)`, derivatives "
            "along tangents are those of `torch.autograd.forward_ad`, and `loss.value_and_grad(x, y)` is for "
            "outside of transforms."
        )


NOT_IN_A_GRAPH = (
    "a loss draws new directions at every step, which a graph that leaves its process (`torch.export`, "
    "`torch.jit`) would freeze or refuse: export the model without the loss, or use `torch.compile`"
)


def refuse_graph() -> None:
    """Raise where a call of a loss is being recorded, to be played again without it."""
    raise TypeError(f"{NOT_IN_A_GRAPH[0].upper()}{NOT_IN_A_GRAPH[1:]}.")


def warn_of_images(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Say how clouds with two leading axes are read, since images have them; returns whether it was said."""
    if max(x.ndim, y.ndim) < 4:
        return False
    name, points = ("x", x) if x.ndim >= 4 else ("y", y)
    *batch, n, dim = points.shape
    shape, count = tuple(points.shape), " x ".join(map(str, batch))
    warnings.warn(
        f"`{name}` of shape {shape} is read as {count} clouds of {n} points in {dim} dimensions: if "
        f"these are images, their rows of pixels. For one cloud of images pass `{name}.flatten(1)`; "
        f"if clouds are meant, `{name}.flatten(0, -3)` says so.",
        UserWarning,
        stacklevel=_calls_from_user(),
    )
    return True


def _calls_from_user() -> int:
    """How many frames above the caller the first one lies that is neither orthoslice's nor torch's."""
    frame, calls, libraries = sys._getframe(1), 1, ("orthoslice.", "torch.")
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(libraries):
        frame, calls = frame.f_back, calls + 1
    return calls
