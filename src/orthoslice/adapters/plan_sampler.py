"""A drop-in for the plan sampler of torchcfm: pairs of noise and data for flow matching."""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.applications.match.match import match
from orthoslice.backend.arrays import host_generator
from orthoslice.check.names import says

try:
    import torch
except ImportError as error:
    raise ImportError("`PlanSampler` pairs torch tensors: pip install 'orthoslice[torch]'.") from error


class PlanSampler:
    """Pairs of two batches near the optimal ones, with the methods of torchcfm's ``OTPlanSampler``.

    A matcher of torchcfm takes it in place of its own: ``matcher.ot_sampler = osl.adapters.PlanSampler()``.
    Pairs come from :func:`orthoslice.match`, on the device of the tensors, where torchcfm copies a matrix of
    all costs to the host. The cost is the squared Euclidean distance, as in torchcfm.

    Parameters
    ----------
    within_classes
        Whether :meth:`sample_plan_with_labels` pairs points of one class only, for a flow that is given the
        class. Pairs across classes would have the flow of a class begin at a part of the noise, while it is
        used with noise from everywhere. A GPU is waited for once a class.
    n_sweeps, workers
        As in :func:`orthoslice.match`.
    rng
        An integer, a NumPy or torch generator, or None. Calls go on in one stream, so that every batch gets
        directions of its own, and a sampler made with the same integer repeats them all.

    Notes
    -----
    By default every point of `x0` comes once and in its place, with its partner: batches of equal size are
    paired by a permutation. torchcfm draws pairs with replacement by default, which leaves out 37% of a batch
    and repeats others; ``replace=True`` does so here. A point whose mass is shared by several partners, as it
    is where sizes differ, gets one of them, drawn by mass.

    Examples
    --------
    >>> import torch, orthoslice as osl
    >>> noise, data = torch.randn(256, 1, 8, 8), torch.randn(256, 1, 8, 8) + 1
    >>> sampler = osl.adapters.PlanSampler(rng=0)
    >>> x0, x1 = sampler.sample_plan(noise, data)
    >>> x0.equal(noise), x1.shape, bool((x1 - x0).square().sum() < (data - noise).square().sum())
    (True, torch.Size([256, 1, 8, 8]), True)

    Pairs within a class; noise has no class of its own and takes that of the row beside it:

    >>> digit = torch.randint(10, (256,))
    >>> sampler = osl.adapters.PlanSampler(within_classes=True, rng=0)
    >>> x0, x1, _, y1 = sampler.sample_plan_with_labels(noise, data, y1=digit)
    >>> y1.equal(digit)
    True
    """

    @says(
        "Pairs are those of `osl.match`: torchcfm's `method`, `reg` and other options of its solvers have no "
        "counterpart and are left out."
    )
    def __init__(
        self,
        *,
        within_classes: bool = False,
        n_sweeps: int | None = None,
        workers: int | None = None,
        rng: int | np.random.Generator | torch.Generator | None = None,
    ) -> None:
        self.within_classes, self.n_sweeps, self.workers = within_classes, n_sweeps, workers
        self._generator = host_generator(rng)

    def sample_plan(
        self, x0: torch.Tensor, x1: torch.Tensor, replace: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Pairs of two batches `(n, ...)` and `(m, ...)`: n points of `x0`, and their partners in `x1`.

        With `replace` the n points are drawn at random; without, they are those of `x0` in their order.
        """
        if self.within_classes:
            raise ValueError(
                "`sample_plan` gets no classes to pair within; call `sample_plan_with_labels`, or make the "
                "sampler with `within_classes=False`."
            )
        flat, rows = _flat(x0, x1), self._rows(x0, replace)
        partner = self._partners(*flat, rows)
        return x0[rows], x1[partner]

    def sample_plan_with_labels(
        self,
        x0: torch.Tensor,
        x1: torch.Tensor,
        y0: torch.Tensor | None = None,
        y1: torch.Tensor | None = None,
        replace: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """As :meth:`sample_plan`, with the labels of the points; None where none are given.

        With `within_classes` labels are classes `(n,)` and `(m,)`, and `y1` must be given. Without `y0` row k
        of `x0` has the class of row k of `x1`, which is right for noise. Where a class has as many points on
        both sides, they are paired by a permutation.
        """
        flat = _flat(x0, x1)
        for name, y, x in (("y0", y0, x0), ("y1", y1, x1)):
            _check_labels(name, y, x)
        rows = self._rows(x0, replace)
        if self.within_classes:
            partner = self._class_partners(*flat, *_classes(x0, x1, y0, y1), rows)
        else:
            partner = self._partners(*flat, rows)
        return x0[rows], x1[partner], None if y0 is None else y0[rows], None if y1 is None else y1[partner]

    def sample_trajectory(self, X: torch.Tensor) -> torch.Tensor:
        """Paths through the populations `(n, times, ...)`, each paired with the next one, in the same shape.

        A tensor on the device of `X`, where torchcfm returns a NumPy array. All pairs are permutations, so
        every point lies on one path.
        """
        if not isinstance(X, torch.Tensor) or X.ndim < 3:
            raise ValueError(f"`X` must be a torch tensor of populations (n, times, ...); got {_told(X)}.")
        rows = torch.arange(len(X), device=X.device)
        paths = [X[:, 0]]
        for before, after in zip(X.unbind(1)[:-1], X.unbind(1)[1:], strict=True):
            rows = self._partners(*_flat(before, after), rows)
            paths.append(after[rows])
        return torch.stack(paths, dim=1)

    def _rows(self, x0: torch.Tensor, replace: bool) -> torch.Tensor:
        """Which points of `x0` are paired."""
        n = len(x0)
        rows = torch.from_numpy(self._generator.integers(n, size=n)) if replace else torch.arange(n)
        return rows.to(x0.device)

    def _partners(self, x0: torch.Tensor, x1: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """A partner in `x1` for each of some rows of `x0`, drawn from what the plan has for that row."""
        plan: Any = match(x0, x1, n_sweeps=self.n_sweeps, workers=self.workers, rng=self._generator)
        if len(x0) == len(x1):
            partners: torch.Tensor = plan.iy[rows]
            return partners
        ix, order = plan.ix.sort(stable=True)
        filled = plan.mass[order].cumsum(0)
        share = torch.from_numpy(self._generator.random(len(rows))).to(filled)
        at = torch.searchsorted(filled, (rows + share) / len(x0))
        # Rounding must not lead to the pairs of another row.
        first, stop = (torch.searchsorted(ix, rows, right=right) for right in (False, True))
        return plan.iy[order[at.clamp(first, stop - 1)]]

    def _class_partners(
        self, x0: torch.Tensor, x1: torch.Tensor, y0: torch.Tensor, y1: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """As :meth:`_partners`, of the same class."""
        partners = torch.empty_like(rows)
        for label in y0.unique():
            own, others = (torch.nonzero(y == label)[:, 0] for y in (y0, y1))
            if not len(others):
                raise ValueError(f"`y1` must have every class of `y0`; it has no {label.item()!r}.")
            at = torch.nonzero(y0[rows] == label)[:, 0]
            within = torch.searchsorted(own, rows[at])
            partners[at] = others[self._partners(x0[own], x1[others], within)]
        return partners

    def __repr__(self) -> str:
        return f"PlanSampler(within_classes={self.within_classes})"


def _flat(x0: torch.Tensor, x1: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The batches as clouds; images and sequences are points of all their numbers."""
    for name, x in (("x0", x0), ("x1", x1)):
        if not isinstance(x, torch.Tensor) or x.ndim < 2 or not len(x):
            raise ValueError(
                f"`{name}` must be a torch tensor of points (n, ...), one or more; got {_told(x)}."
            )
    return x0.detach().flatten(1), x1.detach().flatten(1)


def _told(given: object) -> str:
    return f"shape {tuple(given.shape)}" if isinstance(given, torch.Tensor) else type(given).__name__


def _check_labels(name: str, labels: object, points: torch.Tensor) -> None:
    """Raise unless labels are left out or there is one for every point."""
    if labels is not None and not (isinstance(labels, torch.Tensor) and labels.shape[:1] == (len(points),)):
        raise ValueError(
            f"`{name}` must be a tensor with a label for every point, ({len(points)}, ...); got "
            f"{_told(labels)}."
        )


def _classes(
    x0: torch.Tensor, x1: torch.Tensor, y0: torch.Tensor | None, y1: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The class of every point of both batches."""
    if y1 is None:
        raise ValueError("`y1` must be the classes of `x1`, since the sampler pairs within classes; got None.")
    if y0 is None and len(x0) != len(x1):
        raise ValueError(
            f"`y0` may be left out for batches of one size only; got {len(x0)} and {len(x1)} points."
        )
    y0 = y1 if y0 is None else y0
    for name, y, x in (("y0", y0, x0), ("y1", y1, x1)):
        if y.shape != (len(x),):
            raise ValueError(f"`{name}` must have a class for every point, ({len(x)},); got {tuple(y.shape)}.")
    return y0, y1
