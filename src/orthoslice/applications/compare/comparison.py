"""What a comparison of two tables found: a record that tells itself in words, and as a web page."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from orthoslice.applications.bounds import Bounds
from orthoslice.applications.columns import ColumnChange, row_pieces
from orthoslice.applications.compare.pairs import PairChange, pair_of
from orthoslice.applications.compare.words import DEFAULT_LEVEL, SCALED, told, told_html
from orthoslice.applications.explain.explanation import Explanation
from orthoslice.applications.two_sample.testing import TwoSampleResult
from orthoslice.backend.arrays import HostArray
from orthoslice.backend.writing import replacing
from orthoslice.estimates.result import Estimate

if TYPE_CHECKING:
    from os import PathLike

# Where the hashes of rows begin, and the steps of SplitMix64, which mix every bit into all others.
_SALTS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_MIXING = tuple(
    (np.uint64(shift), np.uint64(factor))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What :func:`compare` found of two clouds; parts that were not worked out are None.

    Attributes
    ----------
    names
        What the clouds are called.
    features
        What their columns are called.
    x, y, x_weights, y_weights
        The clouds `(n, dim)`, NumPy arrays or memory maps, and their weights `(n,)`, or None.
    sample_x, sample_y, sample_x_weights, sample_y_weights
        The rows that all parts but `sliced` were worked out from: all of them, or `max_rows` at random.
    sliced, projected
        SW_p of all rows and PW_p of the sample, each an :class:`Estimate`.
    bounds
        Certain bounds on W_p of the sample, within 0.1% of each other, or as near as 10 seconds bring them.
    exact
        W_p of the sample itself, which takes no time worth speaking of: up to some 1,000 rows each, or one
        column.
    test
        Whether it may be chance; None for clouds with weights.
    explanation
        Which features and directions differ.
    shuffled_moves, shuffled_move
        How far apart in W_p the clouds still are each time that their rows were shuffled between them (within
        1%, or exactly where `exact` is known), and the mean of that: two samples of one law are not at distance
        0. None for clouds with weights.
    typical_gap
        The median distance of two rows of x, to compare distances with.
    columns
        How every column changed, by all rows and in its own units; empty where that was not asked for.
    level
        The p-value up to which words call something a difference.
    left_out
        Columns of the tables that were not looked at, and what they hold.
    dropped
        How many rows were left out for their gaps, of the tables that had some.
    units
        What a length of 1 means, in words.
    seed
        ``rng=found.seed`` repeats it.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.random.default_rng(0).normal(size=(2, 100, 2)) + [[[0, 0]], [[1, 0]]]
    >>> found = osl.compare(x, y, features=["age", "income"], n_permutations=99, rng=0)
    >>> found.test.pvalue, found.explanation.features[0].name
    (0.01, 'age')
    """

    names: tuple[str, str]
    features: tuple[Hashable, ...]
    x: HostArray
    y: HostArray
    x_weights: HostArray | None
    y_weights: HostArray | None
    sample_x: HostArray
    sample_y: HostArray
    sample_x_weights: HostArray | None
    sample_y_weights: HostArray | None
    p: float
    units: str
    seed: int
    typical_gap: float
    options: dict[str, Any] = field(default_factory=dict)
    """The other keyword arguments of :func:`compare`, as they were passed."""
    sliced: Estimate | None = None
    projected: Estimate | None = None
    bounds: Bounds | None = None
    shuffled_moves: HostArray | None = None
    test: TwoSampleResult | None = None
    explanation: Explanation | None = None
    columns: tuple[ColumnChange, ...] = ()
    level: float = DEFAULT_LEVEL
    left_out: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def pvalue(self) -> float | None:
        """How often chance alone makes two tables of one law as different; None for clouds with weights.

        That of the test, if it has looked at columns too and at all rows. Where columns were tested besides, it
        is twice the smaller of the two, which is right whatever depends on what.
        """
        if self.test is None:
            return None
        tested = [change.pvalue for change in self.columns if change.pvalue is not None]
        if not tested or (_is_combined(self.test) and not self.is_sampled):
            return self.test.pvalue
        return min(1.0, 2 * min(self.test.pvalue, *tested))

    @property
    def least_pvalue(self) -> float:
        """The smallest p-value that a test of these rows can have; 0 where there is none."""
        if self.test is None:
            return 0.0
        # Labels that are exchanged as a whole give samples of one size the same distance.
        return (2 if len(self.sample_x) == len(self.sample_y) else 1) / self.test.n_labellings

    @functools.cached_property
    def is_equal(self) -> bool:
        """Whether both clouds hold the same rows, in any order, by all of them; False with weights."""
        return self.x_weights is None and self.y_weights is None and have_same_rows(self.x, self.y)

    @functools.cached_property
    def repeated(self) -> tuple[float, float]:
        """The share of the rows of each sample that occur there more than once, among as many rows of both."""
        n, draw = min(len(self.sample_x), len(self.sample_y)), np.random.default_rng(self.seed)
        some = (draw.choice(len(rows), n, replace=False) for rows in (self.sample_x, self.sample_y))
        first, second = (
            Counter(hash(rows[k].tobytes()) for k in own)
            for rows, own in zip((self.sample_x, self.sample_y), some, strict=True)
        )
        return _share_of_copies(first, n), _share_of_copies(second, n)

    @functools.cached_property
    def pair(self) -> PairChange | None:
        """The two columns that go together least as before, by the rows of the sample; None if not tested."""
        return pair_of(self.test, self.features, self.sample_x, self.sample_y)

    @property
    def shuffled_move(self) -> float | None:
        """The mean of `shuffled_moves`."""
        return None if self.shuffled_moves is None else float(np.mean(self.shuffled_moves))

    @property
    def exact(self) -> float | None:
        """W_p of the sample, where `bounds` found it exactly."""
        found = None if self.bounds is None else self.bounds.transport
        is_exact = found is not None and found.converged and found.method != "auction"
        return found.distance if found is not None and is_exact else None

    @property
    def bracket(self) -> tuple[float, float] | None:
        """Between which lengths W_p of the sample lies: twice the same where it is known exactly."""
        if self.exact is not None:
            return self.exact, self.exact
        return None if self.bounds is None else (self.bounds.lower, self.bounds.upper)

    @property
    def is_sampled(self) -> bool:
        """Whether parts were worked out from some of the rows only."""
        return len(self.sample_x) < len(self.x) or len(self.sample_y) < len(self.y)

    def write_report(
        self,
        path: str | PathLike[str],
        *,
        command: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        scale_hint: str = SCALED,
    ) -> None:
        """Write what was found as a web page in one file, which needs neither network nor scripts.

        Parameters
        ----------
        path
            Where to write it, such as ``"report.html"``. A file that is there is replaced once all is
            written.
        command
            How the command line was called, word by word, to be told in the report.
        notes
            What else to tell, such as what was left out when files were read.
        scale_hint
            How to ask for common units, in words that follow "if its units are not meant to count more".

        Examples
        --------
        >>> import tempfile, numpy as np, orthoslice as osl
        >>> from pathlib import Path
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(60, 2)), rng.normal(size=(50, 2)) + 1
        >>> found = osl.compare(x, y, n_permutations=99, rng=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.write_report(Path(folder) / "report.html")
        ...     Path(folder, "report.html").read_text(encoding="utf-8").count("<figure>")
        9
        """
        page = self.to_html(command=command, notes=notes, scale_hint=scale_hint)
        with replacing(path) as file:
            file.write(page.encode())

    def to_html(
        self, *, command: Sequence[str] | None = None, notes: Sequence[str] = (), scale_hint: str = SCALED
    ) -> str:
        """The page of :meth:`write_report` as text."""
        # The page's code imports this module for its own part.
        from orthoslice.applications.compare.report.page import render_page

        return render_page(self, command, notes, scale_hint)

    def __repr__(self) -> str:
        return told(self)

    def _repr_html_(self) -> str:
        return told_html(self)


def have_same_rows(x: HostArray, y: HostArray) -> bool:
    """Whether two arrays hold the same rows in any order; memory maps may be larger than memory.

    Every row counts by 128 bits of a hash, whose sums other rows share with a probability of about 2**-128.
    """
    return x.shape == y.shape and _sums_of_hashes(x) == _sums_of_hashes(y)


def _sums_of_hashes(points: HostArray) -> list[int]:
    """The sums, modulo 2**64, of two hashes of every row."""
    sums = [0] * len(_SALTS)
    for rows, _ in row_pieces(points):
        # 0 and -0 are equal, and differ in a bit.
        bits = (rows + 0.0).view(np.uint64)
        for k, salt in enumerate(_SALTS):
            mixed = np.full(len(rows), salt, dtype=np.uint64)
            for column in bits.T:
                mixed ^= column
                for shift, factor in _MIXING:
                    mixed ^= mixed >> shift
                    mixed *= factor
                mixed ^= mixed >> np.uint64(31)
            sums[k] = (sums[k] + int(mixed.sum(dtype=np.uint64))) % 2**64
    return sums


def _share_of_copies(counts: Counter[int], n: int) -> float:
    return sum(count for count in counts.values() if count > 1) / n


def _is_combined(test: TwoSampleResult) -> bool:
    """Whether the p-value of the test allows for having looked at every column too."""
    return test.method == "auto"
