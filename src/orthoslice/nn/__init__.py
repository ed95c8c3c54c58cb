"""Losses for PyTorch: thin modules over the two distances, with fresh directions at every step."""

from __future__ import annotations

from typing import Any, Literal

import torch

from orthoslice.applications.spherical.sphere import check_geometry, check_on_sphere, check_planes
from orthoslice.backend.arrays import Key
from orthoslice.check.names import answers_other_names
from orthoslice.clouds.laws import Law
from orthoslice.costs.circle import check_circle_p
from orthoslice.costs.laws import AgainstLaw
from orthoslice.costs.scores import COSTS, Score, Sliced
from orthoslice.nn._inputs import check_tensor
from orthoslice.nn._loss import Loss

__all__ = ["ProjectedWassersteinLoss", "SlicedWassersteinLoss", "SphericalSlicedWassersteinLoss"]


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
        rows `(slices, dim)`, which are then the same at every step. A GPU draws orthogonal, independent and, in
        sliced losses, Hadamard ones itself; others take the way of the public function. In up to 9 dimensions
        ``directions=Auto(replicates=1)`` makes gradients that vary less: see "Which directions?" in the docs.
    target
        A cloud `(m, dim)` that stays the same: the loss is then called with `x` alone. It is copied, so writes
        to the tensor that was passed change nothing. Or a law of ``osl.laws``,
        such as ``osl.laws.Normal(8)``: no points of it are sampled, so gradients vary less.
        Where the directions stay the same too, a GPU projects and
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

    _name = "SW"
    _takes_laws = True

    @answers_other_names
    def __init__(
        self,
        n_directions: int | None = None,
        *,
        p: float = 2,
        directions: Any = "orthogonal",
        target: torch.Tensor | Law | None = None,
        distance: bool = False,
        seed: int | None = None,
        memory: int | str = "512MB",
    ) -> None:
        super().__init__(n_directions, p, directions, target, distance, seed, memory)

    @property
    def _score(self) -> Score:
        return Sliced() if self._law is None else AgainstLaw(self._law.base)


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

    _name = "PW"

    @answers_other_names
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
        super().__init__(n_directions, p, directions, target, distance, seed, memory)
        self.cost = cost

    @property
    def _score(self) -> Score:
        return COSTS[self.cost]


class SphericalSlicedWassersteinLoss(Loss):
    """SSW_p^p as a loss for unit vectors: an unbiased estimate with fresh planes at every call.

    For normalised embeddings. With ``target="uniform"`` it is least where they are spread evenly over the
    sphere, without a sampled target and its noise. Normalise first, by
    ``torch.nn.functional.normalize(z, dim=-1)``: the gradient goes through that. Every step goes through the
    driver of :func:`orthoslice.spherical_sliced_wasserstein`.

    Parameters
    ----------
    n_directions, p, distance, seed, memory
        As in :class:`SlicedWassersteinLoss`, for planes; weights have no gradient on great circles.
    geometry, directions
        As in :func:`orthoslice.spherical_sliced_wasserstein`.
    target
        A cloud `(m, dim)` of unit vectors that stays the same, or ``"uniform"``: the loss is then called with
        `x` alone.

    Examples
    --------
    >>> import torch, orthoslice as osl
    >>> loss = osl.nn.SphericalSlicedWassersteinLoss(n_directions=64, target="uniform", seed=0)
    >>> z = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    >>> value = loss(torch.nn.functional.normalize(z, dim=-1))
    >>> value.backward()
    >>> tuple(z.grad.shape), 0 < value.item() < 1 / 4
    ((100, 3), True)
    """

    @answers_other_names
    def __init__(
        self,
        n_directions: int | None = None,
        *,
        p: float = 2,
        geometry: Literal["great_circles", "stereographic"] = "great_circles",
        directions: Any = "orthogonal",
        target: torch.Tensor | Literal["uniform"] | None = None,
        distance: bool = False,
        seed: int | None = None,
        memory: int | str = "512MB",
    ) -> None:
        self._name, self._on_sphere = check_geometry(geometry, target, "target")
        self._is_uniform = isinstance(target, str)
        dim = directions.shape[-1] if hasattr(directions, "shape") else 0
        planes = check_planes(directions, dim)
        super().__init__(n_directions, p, planes, None if self._is_uniform else target, distance, seed, memory)
        self.has_target |= self._is_uniform
        check_circle_p(self.p, torch.zeros(1))

    @property
    def _score(self) -> Score:
        return self._on_sphere

    def _check_pair(
        self, x: torch.Tensor, y: torch.Tensor | None, wanted: tuple[bool, bool] = (False, False)
    ) -> torch.Tensor:
        if not self._is_uniform:
            return super()._check_pair(x, y, wanted)
        if y is not None:
            raise TypeError("This loss was made for the uniform law: pass `x` alone.")
        check_tensor("x", x, wanted[0])
        # The score reads x alone.
        return x.detach()

    def _estimate(self, clouds: tuple[Any, Any, Any, Any], key: Key) -> torch.Tensor:
        for name, points in zip(("x", "y"), clouds, strict=False):
            check_on_sphere(name, points)
        if self._is_uniform:
            clouds = (*clouds[:3], None if clouds[2] is None else clouds[2].detach())
        return super()._estimate(clouds, key)
