"""Drift: batches that do not look like a reference, by a threshold of known false-alarm rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np

from orthoslice.applications.distances import sliced_wasserstein
from orthoslice.applications.scaling import Scaling, check_scale, fit_scaling
from orthoslice.applications.two_sample.testing import two_sample_test
from orthoslice.backend.arrays import RNG, HostArray
from orthoslice.check.options import check_p, is_real
from orthoslice.clouds.cloud import Cloud, host_clouds
from orthoslice.directions import NAMED, Sampler
from orthoslice.directions.base import check_count

# A reference of fewer batches says too little of how far a batch may lie from it.
_FEWEST_BATCHES = 10

# 1 / _UNITS_PART of the reference sets the units, if `scale` is not None.
_UNITS_PART = 4


@dataclass(frozen=True)
class Drift:
    """What a detector says of a batch.

    Attributes
    ----------
    is_drift
        Whether the batch is further from the reference than the threshold.
    statistic, threshold
        SW_p of the batch and the reference, and what it may be.
    pvalue
        How often batches of the reference itself are as far from the rest of it, or further.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> detector = osl.adapters.DriftDetector(50, rng=0).fit(rng.normal(size=(1000, 2)))
    >>> found = detector.predict(rng.normal(size=(50, 2)) + 1)
    >>> found.is_drift, found.statistic > found.threshold, found.pvalue
    (True, True, 0.001)
    """

    is_drift: bool
    statistic: float
    threshold: float
    pvalue: float

    def __repr__(self) -> str:
        told = "drift" if self.is_drift else "no drift"
        return f"Drift({told}: {self.statistic:.4g}, threshold {self.threshold:.4g}, p = {self.pvalue:.3g})"


class DriftDetector:
    """Tells batches that do not look like a reference, with a threshold of known false-alarm rate.

    ``fit(reference)`` splits the reference at random, many times, into a batch and the rest, and sets the
    threshold so that the given share of these batches would raise an alarm. ``predict(batch)`` is one distance.

    Parameters
    ----------
    batch_size
        How many points a batch has. The threshold holds for this size only: smaller batches are further away.
    false_alarm_rate
        How often a batch that comes from the law of the reference may raise an alarm.
    p
        The power, at least 1. Higher powers look more at the tails.
    scale
        None, or ``"standard"`` or ``"whiten"`` as in :func:`orthoslice.scaled`, in units that the first
        quarter of the reference sets. It serves for nothing else: points that set the units look tamer in them
        than new ones do.
    directions, n_directions, rng, memory, workers
        As in :func:`orthoslice.two_sample_test`.
    n_splits
        How many random splits of the reference the threshold comes from.

    Notes
    -----
    Points must be independent: where neighbours in time resemble each other, whole batches of the reference
    differ more than random ones, and there are more false alarms.

    One batch is left out of the reference, and later batches take its place: such a distance has the same law
    as that of every random split. The splits share their points, which is why the rate is not exact. For a
    rate of 10% there were 9% to 10% false alarms with normal points, and with tails so heavy that there is
    hardly a variance (Student's t, 2.5 degrees of freedom) 12%, 11% and 10% against references of 10, 20 and 60
    batches. It is right **on average over references**: all batches are compared with one, and an odd one
    raises more alarms for good. For a test that is exact, call ``osl.two_sample_test(reference, batch)``; to
    see what changed, ``osl.explain(reference, batch)``.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> detector = osl.adapters.DriftDetector(100, false_alarm_rate=0.01, rng=0).fit(rng.normal(size=(2000, 4)))
    >>> detector.predict(rng.normal(size=(100, 4))).is_drift
    False
    >>> detector.predict(rng.normal(size=(100, 4)) + 0.5).is_drift
    True
    """

    def __init__(
        self,
        batch_size: int,
        *,
        false_alarm_rate: float = 0.05,
        p: float = 1,
        scale: Literal["standard", "whiten"] | None = None,
        directions: Any = "auto",
        n_directions: int | None = None,
        n_splits: int = 999,
        rng: RNG = None,
        memory: int | str = "256MB",
        workers: int | None = None,
    ) -> None:
        self.batch_size = check_count("batch_size", batch_size)
        self.n_splits = check_count("n_splits", n_splits)
        self.p = check_p(p)
        if scale is not None:
            check_scale("scale", scale)
        self.scale = scale
        if not (is_real(false_alarm_rate) and 0 < false_alarm_rate < 1):
            raise ValueError(f"`false_alarm_rate` must lie between 0 and 1; got {false_alarm_rate!r}.")
        self.false_alarm_rate = float(false_alarm_rate)
        if self._n_alarms < 1:
            least = math.ceil(1 / self.false_alarm_rate) - 1
            raise ValueError(
                f"`n_splits` must be {least} or more for a false-alarm rate of {false_alarm_rate:g}; got "
                f"{n_splits}."
            )
        self.directions, self.n_directions, self.rng = directions, n_directions, rng
        self.memory, self.workers = memory, workers
        self._fitted: _Fitted | None = None

    @property
    def _n_alarms(self) -> int:
        """floor(rate * (n_splits + 1)) distances may exceed the threshold; 1e-12 allows for rounding."""
        return math.floor(self.false_alarm_rate * (self.n_splits + 1) * (1 + 1e-12))

    def fit(self, reference: Any) -> Self:
        """Set the threshold by a reference `(n, dim)`: an array of any library, or a data frame."""
        # Checked against its own first row, since the check takes two clouds and matches columns by name.
        _, cloud = host_clouds("fit", reference[:1], reference)
        n_units = 0 if self.scale is None else cloud.n // _UNITS_PART
        if cloud.n - n_units < _FEWEST_BATCHES * self.batch_size:
            besides = "" if self.scale is None else f" besides the {n_units} that set the units"
            raise ValueError(
                f"`reference` must have {_FEWEST_BATCHES} times the points of a batch or more{besides}, "
                f"{_FEWEST_BATCHES * self.batch_size}; got {cloud.n - n_units}. Pass more points, or a smaller "
                "`batch_size`."
            )
        scaling = None if self.scale is None else fit_scaling([cloud.points[:n_units]], self.scale)
        points = _scaled(cloud, scaling)[n_units:]
        # Permuted labels are random splits. A later batch takes the place of the points that are left out here.
        kept = points[self.batch_size :]
        splits = two_sample_test(
            kept,
            points[: self.batch_size],
            self.p,
            columns=False,
            n_permutations=self.n_splits,
            directions=self.directions,
            n_directions=self.n_directions,
            rng=self.rng,
            memory=self.memory,
            workers=self.workers,
        )
        self._fitted = _Fitted(
            reference[:1],
            points,
            scaling,
            splits.null_distribution,
            splits.directions,
            splits.n_directions,
            splits.seed,
        )
        return self

    @property
    def threshold(self) -> float:
        """How far a batch may be from the reference."""
        ordered = np.sort(self._checked.null_distribution)
        return float(ordered[-self._n_alarms])

    def predict(self, batch: Any) -> Drift:
        """Whether a batch `(batch_size, dim)` lies further from the reference than the threshold."""
        fitted = self._checked
        _, cloud = host_clouds("predict", fitted.pattern, batch)
        if cloud.n != self.batch_size:
            raise ValueError(
                f"`batch` must have {self.batch_size} points, for which the threshold holds; got {cloud.n}. "
                "Make another detector for another `batch_size`."
            )
        estimate = sliced_wasserstein(
            fitted.points[self.batch_size :],
            _scaled(cloud, fitted.scaling),
            self.p,
            directions=fitted.directions,
            n_directions=fitted.n_directions,
            rng=fitted.seed,
            memory=self.memory,
            workers=self.workers,
        )
        statistic = float(estimate.distance)
        reached = int((fitted.null_distribution >= statistic).sum())
        pvalue = (reached + 1) / (self.n_splits + 1)
        return Drift(statistic > self.threshold, statistic, self.threshold, pvalue)

    def state(self) -> dict[str, Any]:
        """All that a fitted detector of NumPy points is made of, as plain values and arrays.

        ``DriftDetector.from_state(state)`` is the same detector; `orthoslice fit` writes it to a file. Units
        (`scale`) are not part of it: scale points before.

        Examples
        --------
        >>> import numpy as np, orthoslice as osl
        >>> points = np.random.default_rng(0).normal(size=(300, 2))
        >>> detector = osl.adapters.DriftDetector(20, n_splits=99, rng=0).fit(points)
        >>> again = osl.adapters.DriftDetector.from_state(detector.state())
        >>> again.predict(points[:20] + 1) == detector.predict(points[:20] + 1)
        True
        """
        fitted = self._checked
        if fitted.scaling is not None:
            raise ValueError("A detector with a `scale` has no state; pass scaled points and `scale=None`.")
        drawn = fitted.directions
        return {
            "batch_size": self.batch_size,
            "false_alarm_rate": self.false_alarm_rate,
            "p": self.p,
            "n_splits": self.n_splits,
            "directions": {"name": type(drawn).__name__, "options": asdict(drawn)},
            "n_directions": fitted.n_directions,
            "seed": fitted.seed,
            "points": np.asarray(fitted.points),
            "null_distribution": np.asarray(fitted.null_distribution),
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], *, memory: int | str = "256MB", workers: int | None = None
    ) -> Self:
        """The detector whose :meth:`state` this is."""
        kinds = {type(sampler).__name__: type(sampler) for sampler in NAMED.values()}
        named = state["directions"]["name"]
        if named not in kinds:
            raise ValueError(f"`state` must name a sampler of `osl.directions`; got {named!r}.")
        sampler = kinds[named](**state["directions"]["options"])
        points = np.asarray(state["points"])
        found = cls(
            state["batch_size"],
            false_alarm_rate=state["false_alarm_rate"],
            p=state["p"],
            directions=sampler,
            n_directions=state["n_directions"],
            n_splits=state["n_splits"],
            rng=state["seed"],
            memory=memory,
            workers=workers,
        )
        found._fitted = _Fitted(
            points[:1],
            points,
            None,
            np.asarray(state["null_distribution"]),
            sampler,
            state["n_directions"],
            state["seed"],
        )
        return found

    @property
    def _checked(self) -> _Fitted:
        if self._fitted is None:
            raise ValueError("The detector has no threshold yet: call `fit(reference)` first.")
        return self._fitted

    def __repr__(self) -> str:
        told = "not fitted" if self._fitted is None else f"threshold {self.threshold:.4g}"
        return (
            f"DriftDetector(batches of {self.batch_size} points, SW_{self.p:g}, "
            f"false_alarm_rate={self.false_alarm_rate:g}, {told})"
        )


@dataclass(frozen=True)
class _Fitted:
    """What a detector keeps of its reference."""

    pattern: Any
    """A row of it as it came, with its columns."""
    points: Any
    """All of it; the place of the first batch is taken by the batches that are looked at."""
    scaling: Scaling | None
    null_distribution: HostArray
    """Distances of random batches from the rest."""
    directions: Sampler
    n_directions: int
    seed: int | None


def _scaled(cloud: Cloud, scaling: Scaling | None) -> Any:
    return cloud.points if scaling is None else scaling.apply(cloud.points)
