"""Log training loss against sweeps for several seeds, and differences between such curves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.common import student
from experiments.trainings import Row

Floats = NDArray[np.float64]


class Kind(NamedTuple):
    """What curves must share to be compared."""

    data: str
    precision: str
    n_directions: int
    learning_rate: float


class Curve(NamedTuple):
    """All seeds of one estimator."""

    kind: Kind
    estimator: str
    log_loss: Floats
    """(seeds, sweeps)"""
    seconds: Floats
    """(seeds, sweeps); of a sweep, beside other runs on the same machine."""

    @property
    def sweeps(self) -> Floats:
        return np.arange(1.0, 1 + self.log_loss.shape[1])

    @property
    def sweep_seconds(self) -> Floats:
        """The median over sweeps, a seed: the first ones compile."""
        return np.median(self.seconds, axis=1)

    @property
    def final(self) -> Floats:
        """Mean over the last tenth of training, a seed."""
        return self.log_loss[:, -max(1, self.log_loss.shape[1] // 10) :].mean(axis=1)

    @property
    def whole(self) -> Floats:
        """Mean over all of training, a seed: the area under the curve."""
        return self.log_loss.mean(axis=1)


def make_curves(rows: list[Row]) -> dict[Kind, dict[str, Curve]]:
    """A curve for each kind and estimator, as far as all its seeds have come."""
    seeds: dict[tuple[Kind, str], dict[int, list[Row]]] = {}
    for row in rows:
        kind = Kind(*(row[name] for name in Kind._fields))
        seeds.setdefault((kind, row["estimator"]), {}).setdefault(row["seed"], []).append(row)
    made: dict[Kind, dict[str, Curve]] = {}
    for (kind, estimator), by_seed in seeds.items():
        length = min(map(len, by_seed.values()))
        loss, seconds = (
            np.array([[row[name] for row in by_seed[seed][:length]] for seed in sorted(by_seed)])
            for name in ("loss", "seconds")
        )
        made.setdefault(kind, {})[estimator] = Curve(kind, estimator, np.log(loss), seconds)
    return made


def difference(a: Floats, b: Floats, level: float = 0.95) -> tuple[float, float, float]:
    """The mean of `a - b` over seeds, with Student's interval: runs of one seed start alike and see alike."""
    return student(a - b, level)


def difference_by_sweep(a: Curve, b: Curve) -> tuple[Floats, Floats, Floats]:
    """The same for every sweep that both have."""
    n = min(a.log_loss.shape[1], b.log_loss.shape[1])
    found = [difference(a.log_loss[:, k], b.log_loss[:, k]) for k in range(n)]
    mean, low, high = np.array(found).T
    return mean, low, high
