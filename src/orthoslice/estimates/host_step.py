"""Small distances in host memory: check, project, sort and price in a handful of calls.

For a few hundred points the general way, which cuts work into passes and picks implementations anew, takes
several times as long as the arithmetic. Here all of that was decided when the plan was made.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from orthoslice.backend.arrays import NO_GRADIENTS, HostArray
from orthoslice.backend.arrays.hadamard import hadamard_adjoint, hadamard_project
from orthoslice.backend.kernels import LONGEST_INDEXED, numba_refusal
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import unscaled_extents
from orthoslice.clouds.ready import ReadyCloud, make_ready
from orthoslice.costs.draw import Draw
from orthoslice.costs.laws import AgainstLaw, Line, law_on_lines, law_slopes
from orthoslice.costs.lines import (
    project_and_score,
    score_in_columns,
    sliced_scores,
    slope_compiled_rows,
    sorted_scores,
    sorted_slopes,
)
from orthoslice.costs.scores import Exact, Score, Sliced
from orthoslice.costs.space import price_in_space
from orthoslice.couplings.coupling import rank_pairs
from orthoslice.couplings.orders import tied_order
from orthoslice.directions import (
    IID,
    Equispaced,
    Given,
    HadamardRademacher,
    Optimized,
    Orthogonal,
    Sampler,
    Sobol,
)
from orthoslice.directions.base import DenseDirections
from orthoslice.directions.hadamard import HadamardDirections
from orthoslice.directions.spheres import mean_shortening
from orthoslice.estimates.passes import WORTH_SHARING
from orthoslice.estimates.request import Request
from orthoslice.estimates.underflow import power_may_underflow

# Samplers whose directions are unit rows of a matrix, which can be drawn all at once.
_DRAWN_AS_ROWS = {IID, Equispaced, Given, Optimized, Orthogonal, Sobol}

# So are those of Hadamard blocks up to this dimension, where pairs are priced in space.
_MOST_AS_ROWS = 256

_EVERY_ROW = slice(None)

_WORDS = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


def host_step_refusal(request: Request, x: HostArray, y: HostArray) -> str | None:
    """Why :class:`HostStep` cannot carry out a request for NumPy clouds like these, or None if it can."""
    slices, n, m = request.layout.n_directions, x.shape[0], y.shape[0]
    if type(request.score) not in _STEPS or request.control is not None or request.adaptive:
        return "it takes distances of a given number of directions, without a control variate"
    by_blocks = type(request.score) is Sliced and type(request.sampler) is HadamardRademacher
    if not (by_blocks or _are_plain_rows(request.sampler, request.layout.longest_block, x.shape[1])):
        return "it takes directions that are rows of a matrix and count alike"
    if x.dtype != y.dtype or x.dtype not in _WORDS or power_may_underflow(request.p, np.finfo(x.dtype)):
        return "it takes clouds of one floating type, and powers that cannot underflow in it"
    if slices * (n + m) > WORTH_SHARING or slices * _row_bytes(request, x, y) > request.memory:
        return "it takes small clouds"
    if request.score.breaks_ties and {tied_order.names[0], price_in_space.names[0]} != {"numba"}:
        return "it takes couplings that no implementation from outside orders or prices"
    return numba_refusal()


def are_postponed(request: Request, x: HostArray, y: HostArray) -> bool:
    """Whether plain code scores such clouds until it pays to compile kernels: the general way counts that."""
    if request.score.breaks_ties:
        lines = (np.broadcast_to(np.zeros(1), (request.layout.n_directions, len(c))) for c in (x, y))
        return any(tied_order.is_postponed(px, px[0]) for px in lines)
    if isinstance(request.score, AgainstLaw):
        line = Line(request.score.law, x[:1, :1], lambda: x)
        return law_slopes.is_postponed(x.T[:1], line, ReadyCloud(x[:1]), request.p, 1.0, NO_GRADIENTS)
    if isinstance(request.sampler, HadamardRademacher):
        scored = sorted_scores.is_postponed(x.T[:1], y.T[:1], request.p)
        return scored or hadamard_project.is_postponed(x, *_hadamard_blocks(request, x))
    clouds = x, y, DenseDirections(x[:1]), _EVERY_ROW, request.p
    if sliced_scores.chosen(*clouds) is not project_and_score:
        return False
    return sliced_scores.is_postponed(*clouds) or sorted_scores.is_postponed(x.T[:1], y.T[:1], request.p)


def _row_bytes(request: Request, x: HostArray, y: HostArray) -> int:
    """Working memory that a direction needs at its peak, with gradients or without."""
    if request.score.breaks_ties:
        clouds = Cloud(x), Cloud(y)
        return request.score.row_bytes(*clouds, request.p, NO_GRADIENTS) + request.sampler.row_bytes(x.shape[1])
    lines = x.T[:1], y.T[:1], request.p
    scored = max(sorted_scores.row_bytes(*lines), sorted_slopes.row_bytes(*lines, 1.0))
    return scored + request.sampler.row_bytes(x.shape[1])


def _are_plain_rows(sampler: Sampler, rows: int, dim: int) -> bool:
    if type(sampler) is HadamardRademacher:
        # Rows of a padded space are shorter than 1.
        return sampler.ambient_dim(dim) == dim <= _MOST_AS_ROWS
    return type(sampler) in _DRAWN_AS_ROWS and sampler.weights(rows, dim) is None


_Scores: TypeAlias = Callable[[HostArray, HostArray, HostArray, float], HostArray]
"""Of x, y, directions as rows and p."""

_Slopes: TypeAlias = Callable[[HostArray, HostArray, HostArray, float, float], tuple[Any, ...]]
"""Of the same and a factor: the sum of the costs, and the derivatives of `factor * cost` by the projections."""


class HostStep(abc.ABC):
    """Costs of single clouds `x (n, dim)` and `y (m, dim)` of one type, and gradients of their mean.

    The arrays that it is made from have the shapes and the type of all clouds to come. Methods take NumPy
    arrays, row by row in memory.
    """

    by_factors: ClassVar[bool] = False
    """Whether factors of Hadamard blocks stand in the place of rows."""

    def __init__(self, request: Request, x: HostArray, y: HostArray) -> None:
        from orthoslice.backend.kernels.numba.checking import are_fit

        self.directions_dtype = request.score.directions_dtype(Cloud(x))
        self._p, self._slices = request.p, request.layout.n_directions
        self._words, self._no_rows = _WORDS[x.dtype], np.empty((0, x.shape[1]), dtype=x.dtype)
        # Directions that are off by no more stay as they are.
        self._rounding = float(np.finfo(x.dtype).eps) ** 0.75
        self._limits = np.asarray(unscaled_extents(request.p, x.shape[1], x.dtype)).view(self._words)
        self._are_fit = are_fit

    def are_fit(self, x: HostArray, y: HostArray, theta: HostArray | None = None) -> bool:
        """Whether the clouds are finite, near the origin and of a usual extent, and given rows are of length 1.

        If not, the general way takes them: it says what is wrong, or moves and scales them.
        """
        rows = self._no_rows if theta is None else theta
        words = self._words
        return bool(self._are_fit(x, x.view(words), y.view(words), self._limits, rows, self._rounding))

    def scores_if_fit(self, x: HostArray, y: HostArray, theta: HostArray) -> tuple[float, HostArray] | None:
        """The sum of :meth:`scores`, and these; None where :meth:`are_fit` says no of clouds or given rows."""
        if not self.are_fit(x, y, theta):
            return None
        scores = self.scores(x, y, theta)
        return float(np.add.reduce(scores)), scores

    @abc.abstractmethod
    def scores(self, x: HostArray, y: HostArray, theta: HostArray) -> HostArray:
        """The cost of each row of `theta`, float64 `(slices,)`."""

    @abc.abstractmethod
    def mean_and_gradients(
        self, x: HostArray, y: HostArray, theta: HostArray, wanted: tuple[bool, bool]
    ) -> tuple[float, HostArray]:
        """The mean of the same, and its wanted gradients, one below the other."""


class SlicedStep(HostStep):
    """SW_p^p: pairs are priced on their own line."""

    _score_fit: Callable[..., tuple[float, HostArray]] | None = None
    """One compiled call that checks and scores, where there is one."""

    def __init__(self, request: Request, x: HostArray, y: HostArray) -> None:
        super().__init__(request, x, y)
        self._score, self._price_slopes = self._choose(request, x, y)

    def _choose(self, request: Request, x: HostArray, y: HostArray) -> tuple[_Scores, _Slopes]:
        """What :meth:`scores` and :meth:`mean_and_gradients` call."""
        from orthoslice.backend.kernels.numba.sliced import score_fit_points, score_points

        score = _chosen_scores(x, y, request.p)
        if score is score_points:
            self._score_fit = score_fit_points
        return score, _chosen_slopes(x, y, request.p)

    def scores_if_fit(self, x: HostArray, y: HostArray, theta: HostArray) -> tuple[float, HostArray] | None:
        if self._score_fit is None:
            return super().scores_if_fit(x, y, theta)
        total, scores = self._score_fit(x, y, theta, self._p, self._limits, self._rounding)
        return None if total < 0 else (total, scores)

    def scores(self, x: HostArray, y: HostArray, theta: HostArray) -> HostArray:
        return self._score(x, y, theta, self._p)

    def mean_and_gradients(
        self, x: HostArray, y: HostArray, theta: HostArray, wanted: tuple[bool, bool]
    ) -> tuple[float, HostArray]:
        total, *slopes = self._price_slopes(x, y, theta, self._p, 1 / self._slices)
        parts = [side.T @ theta for side, want in zip(slopes, wanted, strict=False) if want]
        return total / self._slices, parts[0] if len(parts) == 1 else np.concatenate(parts)


class HadamardStep(SlicedStep):
    """The same on Hadamard blocks, by transforms: factors of the blocks stand in the place of rows."""

    by_factors = True

    def _choose(self, request: Request, x: HostArray, y: HostArray) -> tuple[_Scores, _Slopes]:
        signs, parts, paired = _hadamard_blocks(request, x)
        dim, lines = x.shape[1], (x.T[:1], y.T[:1], request.p)
        slopes = np.broadcast_to(signs.ravel()[:1], (self._slices, 1))
        project = hadamard_project.chosen(x, signs, parts, paired)
        carry_back = hadamard_adjoint.chosen(slopes, signs, parts, dim, paired)
        score: Callable[..., Any] = sorted_scores.chosen(*lines)
        slope: Callable[..., Any] = sorted_slopes.chosen(*lines, 1.0)
        factor = 1 / mean_shortening(dim, signs.shape[-1], request.p)

        def projected(x: HostArray, y: HostArray, signs: HostArray) -> tuple[Any, Any]:
            return project(x, signs, parts, paired), project(y, signs, parts, paired)

        def carried_back(side: HostArray, signs: HostArray) -> HostArray:
            return cast(HostArray, carry_back(side, signs, parts, dim, paired))

        self._carry_back = carried_back
        return (
            lambda x, y, signs, p: factor * score(*projected(x, y, signs), p),
            lambda x, y, signs, p, share: slope(*projected(x, y, signs), p, share * factor),
        )

    def mean_and_gradients(
        self, x: HostArray, y: HostArray, theta: HostArray, wanted: tuple[bool, bool]
    ) -> tuple[float, HostArray]:
        scores, *slopes = self._price_slopes(x, y, theta, self._p, 1 / self._slices)
        parts = [self._carry_back(side, theta) for side, want in zip(slopes, wanted, strict=False) if want]
        return float(np.add.reduce(scores)), parts[0] if len(parts) == 1 else np.concatenate(parts)


def _hadamard_blocks(request: Request, x: HostArray) -> tuple[HostArray, list[tuple[int, slice]], bool]:
    """What transforms take beside points like these: factors, of their shape and type, and which rows."""
    sampler, layout, dim = request.sampler, request.layout, x.shape[1]
    assert isinstance(sampler, HadamardRademacher)
    shape = layout.n_blocks, sampler.rounds, sampler.ambient_dim(dim)
    factors, paired = np.broadcast_to(np.ones(1, dtype=x.dtype), shape), sampler.is_paired(dim)
    blocks = HadamardDirections(factors, layout.longest_block, dim, paired=paired)
    return factors, blocks.parts(slice(0, layout.n_directions)), paired


class LawStep(SlicedStep):
    """The same where a law stands in the place of the second cloud: `y` is its frame."""

    def _choose(self, request: Request, x: HostArray, y: HostArray) -> tuple[_Scores, _Slopes]:
        assert isinstance(request.score, AgainstLaw)
        self._law, cloud, wanted = request.score.law, ReadyCloud(x[:1]), (True, *NO_GRADIENTS[1:])
        lines = self._on_lines(x, y, np.eye(1, x.shape[1], dtype=x.dtype))
        lines[1].tables_for(x.shape[0], request.p)  # what compiles kernels for them, if need be
        price: Callable[..., Any] = law_slopes.chosen(*lines, cloud, request.p, 1.0, NO_GRADIENTS)
        slope: Callable[..., Any] = law_slopes.chosen(*lines, cloud, request.p, 1.0, wanted)
        return (
            lambda x, y, theta, p: price(*self._on_lines(x, y, theta), cloud, p, 1.0, NO_GRADIENTS)[0],
            lambda x, y, theta, p, factor: _summed(
                slope(*self._on_lines(x, y, theta), cloud, p, factor, wanted)[:2], factor
            ),
        )

    def _on_lines(self, x: HostArray, y: HostArray, theta: HostArray) -> tuple[HostArray, Line]:
        px = theta @ x.T
        px -= theta @ y[:1].T
        return px, law_on_lines(self._law, y[1:], DenseDirections(theta), _EVERY_ROW)


class ProjectedStep(HostStep):
    """PW_p^p: pairs are priced in full space, in one compiled call where no projections tie."""

    def __init__(self, request: Request, x: HostArray, y: HostArray) -> None:
        from orthoslice.backend.kernels.numba.projected import price_apart

        super().__init__(request, x, y)
        self._price_apart = price_apart
        self._pairs = cast("tuple[HostArray, HostArray, HostArray]", rank_pairs(len(x), len(y), x))

    def scores(self, x: HostArray, y: HostArray, theta: HostArray) -> HostArray:
        return self._price(x, y, theta, (False, False))[0]

    def mean_and_gradients(
        self, x: HostArray, y: HostArray, theta: HostArray, wanted: tuple[bool, bool]
    ) -> tuple[float, HostArray]:
        scores, gradient = self._price(x, y, theta, wanted)
        gradient /= self._slices
        return float(np.add.reduce(scores)) / self._slices, gradient.astype(x.dtype, copy=False)

    def _price(
        self, x: HostArray, y: HostArray, theta: HostArray, wanted: tuple[bool, bool]
    ) -> tuple[HostArray, HostArray]:
        """The scores, and the wanted gradients of their sum in float64, one below the other."""
        wide = np.float64
        theta = theta.astype(wide, copy=False)
        px, py = theta @ x.T.astype(wide, copy=False), theta @ y.T.astype(wide, copy=False)
        n = len(x) * wanted[0]
        scores, gradient = np.empty(len(theta)), np.zeros((n + len(y) * wanted[1], x.shape[1]))
        if self._price_apart(x, y, px, py, *self._pairs, self._p, scores, gradient[:n], gradient[n:]):
            return scores, gradient
        ready = make_ready(Cloud(x), Cloud(y), for_ties=True)
        draw = Draw(DenseDirections(theta), len(theta), len(theta), _EVERY_ROW, False, None, len(theta))
        scored = Exact().evaluate(*ready, self._p, draw, (*wanted, False, False))
        sides = (cloud for cloud, want in zip(ready, wanted, strict=True) if want)
        parts = [cloud.in_users_order(g) for cloud, g in zip(sides, scored.gradients, strict=True)]
        return cast(HostArray, scored.costs), np.concatenate([gradient[:0], *cast(Any, parts)])


_STEPS: dict[type[Score], type[HostStep]] = {Sliced: SlicedStep, AgainstLaw: LawStep, Exact: ProjectedStep}


def make_host_step(request: Request, x: HostArray, y: HostArray) -> HostStep:
    """The step for clouds like these, which :func:`host_step_refusal` does not refuse."""
    by_factors = isinstance(request.sampler, HadamardRademacher) and type(request.score) is Sliced
    return (HadamardStep if by_factors else _STEPS[type(request.score)])(request, x, y)


def _chosen_scores(x: HostArray, y: HostArray, p: float) -> _Scores:
    from orthoslice.backend.kernels.numba.sliced import score_points

    at_once: Callable[..., Any] = sliced_scores.chosen(x, y, DenseDirections(x[:1]), _EVERY_ROW, p)
    if at_once is score_in_columns:
        return score_points
    if at_once is not project_and_score:
        return lambda x, y, theta, p: at_once(x, y, DenseDirections(theta), _EVERY_ROW, p)
    score_rows: Callable[..., Any] = sorted_scores.chosen(x.T[:1], y.T[:1], p)
    return lambda x, y, theta, p: score_rows(theta @ x.T, theta @ y.T, p)


def _chosen_slopes(x: HostArray, y: HostArray, p: float) -> _Slopes:
    from orthoslice.backend.kernels.numba.sliced import slope_points

    lines = x.T[:1], y.T[:1], p, 1.0
    if max(len(x), len(y)) <= LONGEST_INDEXED and sorted_slopes.is_chosen(slope_compiled_rows, *lines):
        return slope_points
    price: Callable[..., Any] = sorted_slopes.chosen(*lines)
    return lambda x, y, theta, p, factor: _summed(price(theta @ x.T, theta @ y.T, p, factor), factor)


def _summed(priced: tuple[HostArray, ...], factor: float) -> tuple[Any, ...]:
    scores, *slopes = priced
    return float(np.add.reduce(scores)) / factor, *slopes
