"""What the losses keep from step to step, and how a step's gradients reach torch's tape."""

from __future__ import annotations

import itertools
import operator
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from orthoslice.backend.arrays import is_captured
from orthoslice.backend.arrays.autodiff import first_derivative, is_differentiated_again
from orthoslice.backend.torch_internals import is_forward_mode, write_count

if TYPE_CHECKING:
    from orthoslice.backend.kernels.cuda.directions import DrawnAhead
    from orthoslice.nn._loss import Loss

Weights: TypeAlias = tuple[torch.Tensor | None, torch.Tensor | None]
"""The weights of x and of y; None for points of equal mass."""


class StepLock:
    """A lock that every step of every loss takes, so that no two steps use the same directions.

    It is one for all losses, since copies of a loss may share buffers. A thread may take it again, since hooks
    on what autograd saves can call a loss. A forked child gets a new one: it may have been held by a thread
    that the child does not have.
    """

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class TensorCache:
    """One result that was worked out from tensors, kept until one of them changes or another takes its place.

    Writes are noticed by the count that torch keeps of them. Writes through `.data` are not in that count.
    """

    def __init__(self) -> None:
        # Replaced as a whole, since copies of a loss in other threads may read it.
        self._kept: tuple[tuple[torch.Tensor, ...], list[int], Any] = (), [], None

    def get_or_make(self, make: Callable[..., Any], *sources: torch.Tensor) -> Any:
        """`make(*sources)`, worked out again only if it has to be."""
        versions = [write_count(source) for source in sources]
        before, versions_before, result = self._kept
        if versions == versions_before and all(map(operator.is_, sources, before)):
            return result
        with torch.inference_mode(False):
            result = make(*sources)
        # A result captured in a CUDA graph has no values before the graph runs, so it is not kept. Nor is one
        # of tensors of inference mode, where torch counts no writes.
        if not (is_captured(sources[0]) or any(source.is_inference() for source in sources)):
            self._kept = sources, versions, result
        return result


class Caches:
    """Results that a loss keeps, valid until its tensors are moved; copies of a loss start with none."""

    def __init__(self) -> None:
        self.plans: dict[Hashable, Any] = {}
        """By shapes, types, places and options; None where no plan is possible."""
        self.ahead: dict[Hashable, DrawnAhead] = {}
        """Directions of several steps, by how they are drawn."""
        self.checked_theta = TensorCache()
        self.theta_checksum = TensorCache()
        self.nan_of_bad_rows = TensorCache()
        self.sorted_target = TensorCache()
        self._weights: tuple[Hashable, TensorCache] = None, TensorCache()

    def weights_of(self, *kind: Hashable) -> TensorCache:
        """What was worked out from weights, of one kind at a time: which cloud has some, and where."""
        kept = self._weights
        if kept[0] != kind:
            kept = self._weights = kind, TensorCache()
        return kept[1]


_serials = itertools.count()
_losses: weakref.WeakValueDictionary[int, Loss] = weakref.WeakValueDictionary()


def enrol(loss: Loss) -> int:
    """A number by which :func:`find_loss` finds this loss in this process: operators of torch take numbers."""
    serial = next(_serials)
    _losses[serial] = loss
    return serial


def find_loss(serial: int) -> Any:
    """The loss of that number."""
    try:
        return _losses[serial]
    except KeyError:
        raise RuntimeError(
            "This graph calls a loss that is gone: a graph cannot outlive its losses, nor leave their process."
        ) from None


class WithGradients(torch.autograd.Function):  # type: ignore[misc]
    """A value whose gradients were worked out on the way forward."""

    @staticmethod
    def forward(
        ctx: Any,
        run: Callable[..., tuple[torch.Tensor, torch.Tensor | None]],
        wanted: tuple[bool, bool],
        x: torch.Tensor,
        y: torch.Tensor,
    ) -> torch.Tensor:
        value, gradient = run(x, y, wanted)
        ctx.wanted = wanted
        ctx.save_for_backward(x, y, gradient)
        if is_forward_mode():
            ctx.save_for_forward(x, gradient)
        return value

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, y, gradient = ctx.saved_tensors
        if is_differentiated_again():
            gradient = first_derivative(gradient, x, y)
        return None, None, *split_gradient(cotangent * gradient, x, ctx.wanted)

    @staticmethod
    def jvp(ctx: Any, _run: object, _wanted: object, *tangents: torch.Tensor) -> torch.Tensor:
        x, gradient = ctx.saved_tensors
        parts = zip(split_gradient(gradient, x, ctx.wanted), tangents, strict=True)
        return sum(
            (part * tangent).sum() for part, tangent in parts if part is not None and tangent is not None
        )


def split_gradient(
    gradient: torch.Tensor, x: torch.Tensor, wanted: tuple[bool, bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients by x and y, which lie one below the other; None for one that was not wanted."""
    if wanted[0] and wanted[1]:
        return gradient[: x.shape[0]], gradient[x.shape[0] :]
    return (gradient, None) if wanted[0] else (None, gradient)
