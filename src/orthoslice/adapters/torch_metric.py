"""A metric of torchmetrics: how far generated points are from real ones."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from orthoslice.applications.distances import sliced_wasserstein
from orthoslice.check.options import check_p

try:
    from torchmetrics import Metric
    from torchmetrics.utilities.data import dim_zero_cat
except ImportError as error:
    raise ImportError(
        "`SlicedWassersteinMetric` is a metric of torchmetrics: pip install 'orthoslice[metrics]'."
    ) from error


class SlicedWassersteinMetric(Metric):  # type: ignore[misc]
    """SW_p of two sets of points that come in batches, as a metric of torchmetrics.

    Used like its FID: ``update(x, real=True)`` for real points, ``update(x, real=False)`` for others, then
    ``compute()``. It keeps all points, since a distance of batches is not a mean over batches; processes
    concatenate theirs. Directions are those of `rng` at every call, so that processes and epochs agree.

    Parameters
    ----------
    p, directions, n_directions, rng, memory
        As in :func:`orthoslice.sliced_wasserstein`. `rng` must be an integer.
    reset_real
        Whether ``reset()`` forgets real points too. If not, they need not be passed again at the next epoch.
    kwargs
        For :class:`torchmetrics.Metric`, such as ``compute_on_cpu``.

    Examples
    --------
    >>> import torch, orthoslice as osl
    >>> metric = osl.adapters.SlicedWassersteinMetric(n_directions=60)
    >>> for batch in torch.zeros(4, 10, 3):
    ...     metric.update(batch, real=True)
    ...     metric.update(batch + 1, real=False)
    >>> round(metric.compute().item(), 4)
    1.0
    """

    is_differentiable: ClassVar[bool] = False
    higher_is_better: ClassVar[bool] = False
    full_state_update: ClassVar[bool] = False
    real: Any
    other: Any

    def __init__(
        self,
        p: float = 2,
        *,
        directions: Any = "auto",
        n_directions: int | None = None,
        rng: int = 0,
        memory: int | str = "256MB",
        reset_real: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(rng, int):
            raise TypeError(f"`rng` must be an integer, so that all processes draw alike; got {rng!r}.")
        self.p, self.reset_real = check_p(p), reset_real
        self.options: dict[str, Any] = {
            "directions": directions,
            "n_directions": n_directions,
            "rng": rng,
            "memory": memory,
        }
        self.add_state("real", default=[], dist_reduce_fx="cat")
        self.add_state("other", default=[], dist_reduce_fx="cat")

    def update(self, x: torch.Tensor, real: bool) -> None:
        """Add points `(n, dim)` to the real ones or to the others."""
        if not isinstance(x, torch.Tensor) or x.ndim != 2:
            got = f"shape {tuple(x.shape)}" if hasattr(x, "shape") else type(x).__name__
            raise ValueError(
                f"`x` must be a tensor of points (n, dim); got {got}. Of images or sequences pass features, or "
                "`x.flatten(1)`."
            )
        (self.real if real else self.other).append(x.detach())

    def compute(self) -> torch.Tensor:
        """SW_p of all points so far, a scalar."""
        clouds = []
        for name, parts in (("real=True", self.real), ("real=False", self.other)):
            if len(parts) == 0:
                raise ValueError(f"`compute` takes points of both kinds; call `update(x, {name})` first.")
            clouds.append(dim_zero_cat(parts))
        real, other = clouds
        distance: torch.Tensor = sliced_wasserstein(real, other, self.p, **self.options).distance
        return distance

    def reset(self) -> None:
        """Forget all points; real ones only with `reset_real`."""
        # A copy: the list itself is emptied.
        kept = [dim_zero_cat(self.real)] if len(self.real) else []
        super().reset()
        if not self.reset_real:
            self.real = kept
