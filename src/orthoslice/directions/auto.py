"""The choice of directions, made for the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

from orthoslice.backend.arrays import RNG, Array, DType, Key
from orthoslice.check.names import answers_other_names
from orthoslice.directions.base import DEFAULT_BLOCKS, Directions, Sample, Sampler, check_count, default_rows
from orthoslice.directions.control_rules import is_worthwhile
from orthoslice.directions.equispaced import FEWEST_IN_THE_PLANE, Equispaced
from orthoslice.directions.kerdock import MOST_DIMENSIONS, Kerdock
from orthoslice.directions.layout import Layout, Run
from orthoslice.directions.optimized import LARGEST_SET, Optimized
from orthoslice.directions.orthogonal import Orthogonal

# A set of more rows than this share of dim^2 has less than 2/3 of the error of orthogonal blocks.
_WORTH_SPREADING = 0.35

# So does a set if over (dim - over) / (n (dim - 1)) exceeds this, where over = n % dim rows fill no block.
_WORTH_FILLING = 0.07

# In 16 dimensions, sets of more rows than this are better as :class:`Optimized`.
_ALL_BASES_OF_16 = 144


Method: TypeAlias = Literal["sliced", "projected"]
"""Whether couplings are priced on their line, SW, or in full space, PW."""


class Choice(NamedTuple):
    """What :class:`Auto` chooses to run, and why.

    Examples
    --------
    >>> import orthoslice as osl
    >>> choice = osl.directions.Auto().choose(dim=2)
    >>> choice.sampler, choice.n_directions, choice.control
    (Equispaced(), 128, None)
    """

    sampler: Sampler
    n_directions: int
    control: Literal["gaussian"] | None
    """The control variate for ``control="auto"``, if the clouds are not small and no gradient is wanted."""
    why: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Auto(Sampler):
    """The sampler with the least error to be expected, by dimension, number of directions, method and `p`.

    What it picks is unbiased, and has an error bar: 4 independent sets or more, unless `replicates` says
    otherwise. `est.directions` is what was picked, and repeats an estimate; what is picked may improve
    between releases. It is

    - :class:`Equispaced` in the plane, in 8 sets or more;
    - :class:`Optimized` where sets have many rows for the dimension, from 3 to 9 dimensions with the default
      number of directions, or where blocks of `dim` would leave many rows over;
    - :class:`Kerdock` with very many directions, in 16 and in 33 to 64 dimensions;
    - :class:`Orthogonal` elsewhere.

    For PW there are twice as many sets: they gain much on smooth shapes, little where chance decides the
    orders, and smaller ones err no more.

    Clouds with symmetries are where sets can lose: see :class:`Equispaced`. :class:`Orthogonal` never loses
    more than a factor ``(dim + 4) / (dim + 1)`` to independent directions, whatever the clouds.

    Parameters
    ----------
    replicates
        Independent sets that share the directions, at the least. 1 gives the least error, and no error bar
        where one set has all directions.

    Examples
    --------
    >>> import orthoslice as osl
    >>> choice = osl.directions.Auto().choose(dim=3)
    >>> choice.sampler, choice.n_directions
    (Optimized(), 128)
    >>> print(choice.why)
    SW in dimension 3 with 4 sets of 32 directions: spread out evenly, they err less than orthogonal blocks.
    >>> osl.directions.Auto(replicates=1).choose(dim=2, n_directions=8).sampler
    Equispaced(replicates=1)
    >>> osl.directions.Auto().choose(dim=784, n_directions=1000).sampler
    Orthogonal(block_size=250)
    """

    replicates: int = 4
    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        check_count("replicates", self.replicates)

    @answers_other_names
    def choose(
        self,
        dim: int,
        n_directions: int | None = None,
        method: Method = "sliced",
        p: float = 2,
    ) -> Choice:
        """What would run, and why.

        Parameters
        ----------
        dim
            The dimension of the clouds.
        n_directions
            How many directions; None is the default number.
        method
            ``"sliced"`` for SW, ``"projected"`` for PW.
        p
            The power. The sampler is the same for all so far.
        """
        check_count("dim", dim)
        if method not in ("sliced", "projected"):
            raise ValueError(f"`method` must be 'sliced' or 'projected'; got {method!r}.")
        default = DEFAULT_BLOCKS * default_rows(dim)
        n = default if n_directions is None else check_count("n_directions", n_directions)
        sampler, reason = self._sampler(dim, n, method)
        if n_directions is None:
            if isinstance(sampler, Orthogonal) and sampler.block_size is not None:
                sampler = Orthogonal(block_size=min(sampler.block_size, default_rows(dim)))
            sampler, n = sampler.with_default_size(dim)
        sizes = " and ".join(f"{run.n_blocks} sets of {run.rows}" for run in sampler.runs(n, dim))
        name = "SW" if method == "sliced" else "PW"
        why = f"{name} in dimension {dim} with {sizes} directions: {reason}."
        layout = Layout(sampler.runs(n, dim))
        is_controlled = method == "sliced" and is_worthwhile(dim, p, layout)
        return Choice(sampler, n, "gaussian" if is_controlled else None, why)

    def _sampler(self, dim: int, n: int, method: str) -> tuple[Sampler, str]:
        if dim == 1:
            return self._orthogonal(dim, n), "all directions say the same"
        sets = self.replicates
        if sets > 1 and dim == 2:
            sets = max(sets, FEWEST_IN_THE_PLANE)
        elif sets > 1 and method == "projected":
            sets *= 2  # smaller sets err no more there, and more of them make a better error bar
        rows = max(1, n // sets)
        if dim == 2 and rows > 2:
            return Equispaced(replicates=sets), "even angles integrate smooth scores almost without error"
        if rows >= _WORTH_SPREADING * dim**2 and dim > 2:
            # Padded with zeros by up to a half, bases lose little of what they gain.
            ambient = Kerdock().ambient_dim(dim) if dim <= MOST_DIMENSIONS else 0
            if dim > 32 and 2 * dim > ambient and rows >= _WORTH_SPREADING * ambient**2:
                return Kerdock(replicates=sets), "this many unbiased bases err less than independent ones"
            if dim == 16 and rows in range(16, _ALL_BASES_OF_16 + 1, 16):
                return Kerdock(replicates=sets), "this many unbiased bases err less than independent ones"
            if _WORTH_SPREADING * dim**2 <= LARGEST_SET:
                return Optimized(replicates=sets), "spread out evenly, they err less than orthogonal blocks"
        over = n % dim
        if dim < rows <= LARGEST_SET and over * (dim - over) > _WORTH_FILLING * n * (dim - 1):
            frames = f"they do not divide into blocks of {dim}, and sets that are spread out need not"
            return Optimized(replicates=sets), frames
        return self._orthogonal(dim, n), "with this few for the dimension, orthogonal blocks are hard to beat"

    def _orthogonal(self, dim: int, n: int) -> Orthogonal:
        """Blocks of `dim` rows, or shorter ones if there would be too few of them."""
        if self.replicates == 1 or n >= self.replicates * dim:
            return Orthogonal()
        return Orthogonal(block_size=max(1, n // self.replicates))

    def block_rows(self, n_directions: int, dim: int) -> int:
        return self.choose(dim, n_directions).sampler.block_rows(n_directions, dim)

    def runs(self, n_directions: int, dim: int) -> tuple[Run, ...]:
        return self.choose(dim, n_directions).sampler.runs(n_directions, dim)

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        return self, self.choose(dim).n_directions

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> Directions:
        return self.choose(dim, rows * self.replicates).sampler.draw(key, rows, dim, dtype)

    def sample(self, n_directions: int, dim: int, rng: RNG = None) -> Sample:
        """Directions for SW, as plain NumPy arrays."""
        return self.choose(dim, max(1, n_directions)).sampler.sample(n_directions, dim, rng)

    def row(self, row: int, n_directions: int, dim: int, rng: RNG) -> Array:
        return self.choose(dim, n_directions).sampler.row(row, n_directions, dim, rng)
