"""What a permutation test of two samples found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orthoslice.backend.arrays import HostArray
from orthoslice.backend.markup import card
from orthoslice.check.options import check_level
from orthoslice.directions import Sampler

# Fewer labellings than this, and no p-value of 5% can be had.
_FEWEST_LABELLINGS = 20


@dataclass(frozen=True, eq=False, repr=False)
class TwoSampleResult:
    """What a permutation test of two samples found; the fields are named after those of SciPy.

    Attributes
    ----------
    statistic
        SW_p or PW_p of the samples, from the directions that were drawn. With ``method="auto"`` the smallest
        p-value of its parts, where small is extreme; how ties below it are broken is said in the notes of
        :func:`two_sample_test`.
    pvalue
        The probability, if both samples have the same law, of a statistic as extreme or more:
        ``(b + 1) / (n_permutations + 1)``, where b is how many permutations reached it.
    null_distribution
        The statistics of the permutations, `(n_permutations,)`.
    parts
        The p-value of every statistic by itself, such as ``{"SW_1": 0.31, "columns": 0.002}``: "columns" is the
        smallest of `column_pvalues`, "pairs" that of how two columns go together. With ``method="auto"``
        `pvalue` allows for there being several; with another there is one part, that of `pvalue`.
    found_by
        The part with the smallest p-value.
    column_statistics
        W_1 of every column, in its own units, `(columns,)`, of several features their sum; None if columns
        were not tested.
    column_pvalues
        The p-value of every column, adjusted for their number, `(columns,)`: if you call all columns with 5% or
        less different, then with a probability of at least 95% no column is called so without being so. None if
        columns were not tested.
    pair
        The two columns whose ranks go together least as before, whose p-value is ``parts["pairs"]``; None if
        pairs were not tested.
    pvalue_stderr
        Monte Carlo standard error of the p-value: how far off it is since not all permutations were tried.
    n_permutations, n_directions
        How many there were.
    stopped_early
        Whether the test ended before all permutations since no p-value, neither of the whole nor of any part,
        could become small.
    n_labellings
        How many permutations differ in their labels; infinity where that does not fit a float. No test on these
        samples has a p-value below its inverse.
    directions, seed
        ``directions=result.directions, n_directions=result.n_directions, rng=result.seed`` repeats the test.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.random.default_rng(0).normal(size=(2, 60, 3))
    >>> found = osl.two_sample_test(x, y, n_permutations=199, rng=0)
    >>> reached = np.sum(found.null_distribution >= found.statistic)
    >>> bool(found.pvalue == (reached + 1) / 200), found.null_distribution.shape
    (True, (199,))
    """

    method: str
    name: str
    p: float
    """The power; 1 with ``method="auto"``, whose parts have powers of their own."""
    statistic: float
    pvalue: float
    null_distribution: HostArray
    n_directions: int
    n_labellings: float
    directions: Sampler
    seed: int | None
    parts: dict[str, float]
    column_statistics: HostArray | None
    column_pvalues: HostArray | None
    pair: tuple[int, int] | None
    stopped_early: bool
    _n_reached: int
    _compared: str
    """Two samples, or a sample and a law, in words."""
    _replicas: str
    """What the null distribution comes from, in words."""

    @property
    def n_permutations(self) -> int:
        return len(self.null_distribution)

    @property
    def found_by(self) -> str:
        return min(self.parts, key=self.parts.__getitem__)

    @property
    def label(self) -> str:
        """What `statistic` is, in words."""
        return f"{self.name}_{self.p:g}" if self.method != "auto" else "smallest p-value"

    @property
    def pvalue_stderr(self) -> float:
        return math.sqrt(self.pvalue * (1 - self.pvalue) / (self.n_permutations + 1))

    def pvalue_interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval for the p-value that all permutations would give (Clopper and Pearson).

        If it contains your significance level, ask for more permutations.

        Examples
        --------
        >>> import numpy as np, orthoslice as osl
        >>> x, y = np.zeros((9, 2)), np.ones((9, 2))
        >>> low, high = osl.two_sample_test(x, y, rng=0).pvalue_interval()
        >>> bool(low == 0 and high < 0.005)
        True
        """
        from scipy.special import betaincinv

        check_level(level)
        hits, misses, tail = self._n_reached, self.n_permutations - self._n_reached, (1 - level) / 2
        low = betaincinv(hits, misses + 1, tail) if hits else 0.0
        high = betaincinv(hits + 1, misses, 1 - tail) if misses else 1.0
        return float(low), float(high)

    @property
    def _few(self) -> str:
        """A note if there are too few labellings for a small p-value, else empty."""
        if self.n_labellings >= _FEWEST_LABELLINGS:
            return ""
        return f"there are only {self.n_labellings:g} labellings, so that p cannot be small"

    @property
    def _repeat(self) -> str:
        method = "" if self.method == "sliced" else f'method="{self.method}", '
        return f"{method}directions={self.directions!r}, n_directions={self.n_directions}, rng={self.seed}"

    @property
    def _told_parts(self) -> str:
        return ", ".join(f"{name} {pvalue:.3g}" for name, pvalue in self.parts.items())

    def __repr__(self) -> str:
        few = f"; {self._few}" if self._few else ""
        parts = f" ({self._told_parts})" if len(self.parts) > 1 else ""
        early = ", which no more of them would make small" if self.stopped_early else ""
        return (
            f"TwoSampleResult({self.label} of {self._compared} is {self.statistic:.6g}{parts}; "
            f"{self._n_reached} of {self.n_permutations} {self._replicas} reach it: "
            f"p = {self.pvalue:.3g} +- {self.pvalue_stderr:.1g} (Monte Carlo error){early}{few}; "
            f"{self._repeat})"
        )

    def _repr_html_(self) -> str:
        permuted = f"{self._n_reached:,} of {self.n_permutations:,} {self._replicas}"
        rows = [
            ("p-value", f"{self.pvalue:.3g} \u00b1 {self.pvalue_stderr:.1g} (Monte Carlo error)"),
            (self.label, f"{self.statistic:.6g}"),
            ("reached by", permuted),
            ("to repeat it", self._repeat),
        ]
        if len(self.parts) > 1:
            rows.insert(2, ("p-values of its parts", self._told_parts))
        title = f"Do {self._compared} have the same law?"
        return card(title, rows, [f"Note: {self._few}."] if self._few else [])
