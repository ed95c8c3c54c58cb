"""Losses of clouds whose points are spread over the ranks of `torch.distributed`.

Every rank holds a shard of `x` and a shard of `y`, and gets the loss of the clouds that all shards make up: of
the global batch, not a mean over small ones. It is what :mod:`orthoslice.nn` makes of all points in one
process, to rounding, and so are its gradients.

What is sent
    Directions come from a counter-based generator, so that every rank draws them itself. Each prices a share of
    them. A sliced loss sends projections, by all-to-all: a rank then has those of all points on its directions,
    sorts and prices them, and sends their slopes back. Where there are fewer dimensions than directions a rank,
    the points themselves are sent, which is less. A rank thus receives n x min(directions / ranks, dim) numbers
    of a cloud of n points, and as many for its gradient. Projected losses price pairs by all coordinates, and
    the partners of one direction already are all points: they always send the points. So do weighted clouds.

Gradients
    They are worked out, and sent, along with the value: a backward pass sends nothing, and ranks may run theirs
    at any time. The gradient of one global loss by parameters that all ranks share is the sum of what the
    ranks have, but `DistributedDataParallel` and FSDP take the average. So, as with the functions of
    `torch.distributed.nn`, the gradient by a shard is that of the sum of the losses of all ranks: the number of
    ranks times the gradient of the global loss. The average makes it right, and the loss can be added to others
    that are means over the batch of a rank. With ``averaged=False`` the gradient by a shard is that of the
    global loss itself; that of `value_and_grad`, which no average follows, always is. Every rank must scale the
    loss alike.

Every rank must call the loss, also one whose shard is empty (`x[:0]`). Before anything else the ranks tell each
other what they were given. If something is wrong on one of them, all of them raise.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import torch

from orthoslice import nn
from orthoslice.backend.arrays import is_readable, library, wants_gradients
from orthoslice.backend.arrays.autodiff import has_tangent
from orthoslice.check.inputs import as_array, as_floating, check_points, check_same_library, exact_dtype
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import unit_scale
from orthoslice.estimates.driver import value_by
from orthoslice.estimates.request import make_request
from orthoslice.estimates.result import root
from orthoslice.estimates.underflow import power_may_underflow
from orthoslice.nn._inputs import check_seed, refuse_transforms
from orthoslice.nn._loss import Loss
from orthoslice.nn._plans import StepPlan, Taken
from orthoslice.nn._steps import Weights
from orthoslice.parallel._ranks import GatheredRows, Ranks
from orthoslice.parallel._ways import Shards, by_points, by_projections, sends_projections

__all__ = ["ProjectedWassersteinLoss", "SlicedWassersteinLoss"]

# Ranks send types as indices into this; points and weights are cast to one of them.
_TYPES = (torch.float32, torch.float64)


class _Report(NamedTuple):
    """What a rank was given, in integers."""

    n: int = 0
    m: int = 0
    dim: int = 0
    dtype: int = 0
    x_weights: int = 0
    """The type of the weights by number, counted from 1; 0 for none."""
    y_weights: int = 0
    wanted: int = 0
    """Which inputs (x, y, weights) need a gradient on this rank: a bit each."""
    largest: int = 0
    """The largest magnitude of a coordinate, as the bits of a float64."""
    rng: int = -1
    """A checksum of the seed of this call, or -1 for none."""
    options: int = 0
    """A checksum of the options of the loss."""


class _ShardedLoss(Loss):
    """A loss of clouds that are spread over ranks."""

    _takes_laws = False

    def __init__(self, *arguments: Any, process_group: Any, averaged: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Not a buffer: DDP and FSDP would overwrite the shard of every rank with that of the first.
        target = self.target
        del self.target
        self.target = target
        self.process_group = process_group
        self.averaged = bool(averaged)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], *args: Any, **options: Any) -> Any:
        moved = super()._apply(fn, *args, **options)
        if self.target is not None:
            self.target = fn(self.target)
        return moved

    def _check_pair(
        self, x: torch.Tensor, y: torch.Tensor | None, wanted: tuple[bool, bool] = (False, False)
    ) -> torch.Tensor:
        try:
            return super()._check_pair(x, y, wanted)
        except (TypeError, ValueError) as error:
            ranks = Ranks.of(self.process_group)
            if not ranks.is_alone:
                # The other ranks wait for the report of this one.
                self._tell(ranks, _Report(), error)
            raise

    def _find_plan(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None
    ) -> tuple[StepPlan | None, Taken | None, torch.Tensor, torch.Tensor]:
        # On its own a process makes whole steps by kernels, where it can.
        if Ranks.of(self.process_group).is_alone:
            return super()._find_plan(x, y, weights, rng)
        return None, None, x, y

    def _recorded_value(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None
    ) -> torch.Tensor:
        """A compiler breaks its graph here and goes on after it: ranks talk to each other in there."""
        if not torch.compiler.is_compiling():
            refuse_transforms()
        from orthoslice.nn._uncompiled import run_uncompiled

        value: torch.Tensor = run_uncompiled(self._value, x, y, weights, rng)
        return value

    def _value_in_general(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None
    ) -> torch.Tensor:
        ranks = Ranks.of(self.process_group)
        if ranks.is_alone:
            return super()._value_in_general(x, y, weights, rng)
        report, trouble = _Report(), None
        try:
            inputs, report = self._read((x, y, *(weights or (None, None))), rng)
            clouds = Cloud(inputs[0], inputs[2]), Cloud(inputs[1], inputs[3])
            # This checks samplers of users, which may fail on one rank only.
            request = make_request(self._name, self._score, *clouds, self.p, self._options(None))
        except Exception as error:
            trouble = error
        reports = self._tell(ranks, report, trouble)
        _check_alike(reports)
        bits = functools.reduce(int.__or__, (r.wanted for r in reports))
        wanted = tuple(bool(bits >> k & 1) for k in range(4))
        factor = float(ranks.size) if self.averaged else 1.0
        shards = Shards(ranks, [r.n for r in reports], [r.m for r in reports], wanted, factor)
        with self._taken_key(inputs[0], rng) as key:
            if self._is_strained(reports, inputs):
                x, y, x_weights, y_weights = (
                    None if a is None else GatheredRows.apply(ranks, counts, factor, a)
                    for a, counts in zip(inputs, shards.counts, strict=True)
                )
                return self._estimate((x, y, x_weights, y_weights), key)
            way = by_projections if sends_projections(request, shards, *clouds) else by_points
            value: torch.Tensor = value_by(functools.partial(way, shards), request, *clouds, key)
            return root(value, self.p) if self.distance else value

    def _value_and_grad(
        self, x: torch.Tensor, y: torch.Tensor, weights: Weights | None, rng: int | None, y_grad: bool
    ) -> tuple[torch.Tensor, ...]:
        value, *gradients = super()._value_and_grad(x, y, weights, rng, y_grad)
        # No average follows, so the factor that prepares for it is divided out.
        ranks = Ranks.of(self.process_group).size if self.averaged else 1
        return value, *(gradients if ranks == 1 else [g / ranks for g in gradients])

    def _read(self, given: tuple[Any, ...], rng: object) -> tuple[tuple[Any, ...], _Report]:
        """The shards of this rank as the estimate takes them, and the report on them for the other ranks."""
        x, y, *_ = given
        refuse_transforms()
        if any(torch.is_tensor(a) and has_tangent(a) for a in given):
            raise TypeError("Losses over several ranks have gradients backwards only, not along tangents.")
        self._check_device(x, None)
        named: dict[str, Any] = {
            name: None if a is None else as_array(name, a, like=x if library(a) is None else None)
            for name, a in zip(("x", "y", "x_weights", "y_weights"), given, strict=True)
        }
        check_same_library({name: a for name, a in named.items() if a is not None})
        dtype, largest, inputs = exact_dtype(x, y), 0.0, []
        for name in ("x", "y"):
            points = as_floating(name, named[name], dtype)
            if points.ndim != 2 or points.shape[1] == 0:
                raise ValueError(
                    f"`{name}` must be a shard (n, dim) of one cloud; got shape {tuple(points.shape)}."
                )
            if points.shape[0]:
                largest = max(largest, check_points(name, cast(torch.Tensor, points).detach()) or 0.0)
            inputs.append(points)
        if x.shape[1] != y.shape[1]:
            raise ValueError(f"`x` and `y` must share `dim`; got shapes {tuple(x.shape)} and {tuple(y.shape)}.")
        for name in ("x", "y"):
            weights, n = named[f"{name}_weights"], named[name].shape[0]
            if weights is not None and tuple(weights.shape) != (n,):
                raise ValueError(
                    f"`{name}_weights` must have one weight for each point of `{name}` on this rank, shape "
                    f"({n},); got {tuple(weights.shape)}."
                )
            inputs.append(weights if weights is None or weights.dtype in _TYPES else weights.to(dtype))
        report = _Report(
            n=x.shape[0],
            m=y.shape[0],
            dim=x.shape[1],
            dtype=_TYPES.index(dtype),
            x_weights=0 if inputs[2] is None else 1 + _TYPES.index(inputs[2].dtype),
            y_weights=0 if inputs[3] is None else 1 + _TYPES.index(inputs[3].dtype),
            wanted=sum(wants << k for k, wants in enumerate(wants_gradients(*inputs))),
            largest=struct.unpack("q", struct.pack("d", largest))[0],
            rng=-1 if rng is None else _checksum(check_seed("rng", rng)),
            options=self._options_checksum(),
        )
        return tuple(inputs), report

    def _options_checksum(self) -> int:
        """A checksum that differs between losses of different options."""
        theta = None
        if self.theta is not None:
            theta = self.caches.theta_checksum.get_or_make(_checksum_of_rows, self.theta)
        # What else samplers of users hold may be written differently by every process.
        held = {} if self._sampler is None else vars(self._sampler)
        plain = [value for value in held.values() if isinstance(value, int | float | str)]
        options = (self.n_directions, self.p, self.distance, self.memory, self.averaged, theta)
        return _checksum((self._name, self.cost, type(self._sampler).__qualname__, plain, *options))

    def _tell(self, ranks: Ranks, report: _Report, trouble: Exception | None) -> list[_Report]:
        """The reports of all ranks. Key and step become those of the first, as buffers do under DDP."""
        buffers = self.key_high, self.key_low, self.step
        place = self.step.device
        own = [buffer.reshape(1).to(torch.int64) for buffer in buffers]
        # Sizes are needed on the host: this is the one time that a step waits for the device.
        words = ranks.tell(torch.cat([torch.tensor(report, dtype=torch.int64, device=place), *own]), trouble)
        k = len(own)
        if words[ranks.rank][-k:] != words[0][-k:]:
            for buffer, word in zip(buffers, words[0][-k:], strict=True):
                buffer.fill_(word)
        return [_Report(*row[:-k]) for row in words]

    def _is_strained(self, reports: list[_Report], inputs: tuple[Any, ...]) -> bool:
        """Whether powers may leave the range of the type.

        Such clouds are scaled, and may be estimated again in a wider type: each rank gathers all points for it.
        """
        points = inputs[0].detach()
        if not is_readable(points):
            return False
        largest = max(struct.unpack("d", struct.pack("q", r.largest))[0] for r in reports)
        nothing = Cloud(points[:0], largest=largest)
        return unit_scale(nothing, nothing, self.p)[2] != 1 or power_may_underflow(
            self.p, torch.finfo(points.dtype)
        )

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.averaged else ", averaged=False")


class SlicedWassersteinLoss(_ShardedLoss, nn.SlicedWassersteinLoss):
    """SW_p^p of clouds whose points are spread over ranks.

    It is :class:`orthoslice.nn.SlicedWassersteinLoss` of all points.

    Every rank of the group calls it with its shards, which may differ in length or be empty, and gets the same
    value; see :mod:`orthoslice.parallel.torch` for what is sent, and for gradients. On one rank, or where no
    process group was started, it is the loss that it is named after.

    Parameters
    ----------
    n_directions, p, directions, distance, seed, memory
        As in :class:`orthoslice.nn.SlicedWassersteinLoss`. The key and the step of the first rank count, so
        that ``seed=None`` draws one for all of them.
    target
        This rank's shard of a cloud that stays the same.
    process_group
        The ranks that share the clouds; None for all.
    averaged
        Whether gradients are averaged over the ranks before they are used, as `DistributedDataParallel` and
        FSDP do. If not, the gradient by a shard is that of the global loss itself: for gradients that are added
        up, and for points that are moved themselves.

    Notes
    -----
    Weights are given shard by shard, and those of all shards together sum to 1.

    Examples
    --------
    >>> import torch
    >>> from orthoslice.parallel.torch import SlicedWassersteinLoss
    >>> loss = SlicedWassersteinLoss(n_directions=63, seed=0)
    >>> round(loss(torch.zeros(100, 3), torch.ones(100, 3)).item(), 6)
    1.0
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
        process_group: Any = None,
        averaged: bool = True,
    ) -> None:
        super().__init__(
            n_directions,
            p=p,
            directions=directions,
            target=target,
            distance=distance,
            seed=seed,
            memory=memory,
            process_group=process_group,
            averaged=averaged,
        )


class ProjectedWassersteinLoss(_ShardedLoss, nn.ProjectedWassersteinLoss):
    """PW_p^p of clouds whose points are spread over ranks.

    It is :class:`orthoslice.nn.ProjectedWassersteinLoss` of all points. Every rank receives all of them, and
    prices its share of the directions.

    Parameters
    ----------
    n_directions, p, directions, target, distance, seed, memory, process_group, averaged
        As in :class:`SlicedWassersteinLoss`.
    cost
        How couplings are priced; as in :func:`orthoslice.projected_wasserstein`.

    Examples
    --------
    >>> import torch
    >>> from orthoslice.parallel.torch import ProjectedWassersteinLoss
    >>> ProjectedWassersteinLoss(n_directions=64, seed=0)(torch.zeros(100, 3), torch.ones(100, 3)).item()
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
        process_group: Any = None,
        averaged: bool = True,
    ) -> None:
        super().__init__(
            n_directions,
            p=p,
            cost=cost,
            directions=directions,
            target=target,
            distance=distance,
            seed=seed,
            memory=memory,
            process_group=process_group,
            averaged=averaged,
        )


def _check_alike(reports: list[_Report]) -> None:
    """Raise, on every rank alike, unless the shards are of the same two clouds."""
    _check_same("The dimension of `x` and `y`", [str(r.dim) for r in reports])
    types = [str(_TYPES[r.dtype]).removeprefix("torch.") for r in reports]
    _check_same("The floating type of `x` and `y`", types)
    for name in ("x_weights", "y_weights"):
        kinds = [getattr(r, name) for r in reports]
        found = ["none" if k == 0 else str(_TYPES[k - 1]).removeprefix("torch.") for k in kinds]
        _check_same(f"The type of `{name}`", found, " Pass weights on all ranks, or on none.")
    seeds = ["none" if r.rng < 0 else f"one with checksum {r.rng:08x}" for r in reports]
    _check_same("`rng`", seeds)
    made = [f"options with checksum {r.options:08x}" for r in reports]
    _check_same("How the loss is made", made, " Give all ranks the same arguments.")
    for name, counts in (("x", [r.n for r in reports]), ("y", [r.m for r in reports])):
        if not any(counts):
            raise ValueError(
                f"`{name}` must hold at least one point on one of the ranks; all shards are empty."
            )


def _check_same(what: str, found: list[str], remedy: str = "") -> None:
    if len(set(found)) > 1:
        each = ", ".join(f"{text} on rank {k}" for k, text in enumerate(found))
        raise ValueError(f"{what} must be the same on all ranks; got {each}.{remedy}")


def _checksum(value: object) -> int:
    return zlib.crc32(repr(value).encode())


def _checksum_of_rows(theta: torch.Tensor) -> tuple[tuple[int, ...], int]:
    return tuple(theta.shape), zlib.crc32(theta.detach().cpu().contiguous().view(torch.uint8).numpy())
