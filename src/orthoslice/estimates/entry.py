"""From what the user gave to an estimate: checks, a request, and an answer that is accurate."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np

from orthoslice.backend.arrays import RNG, float_info, is_readable, namespace, to_numpy
from orthoslice.backend.kernels.cuda import is_on_gpu
from orthoslice.check.inputs import is_dask
from orthoslice.check.options import check_p
from orthoslice.clouds.cloud import Cloud, make_clouds, one_cloud
from orthoslice.clouds.conditioning import largest_coordinate, unit_scale, widened
from orthoslice.clouds.laws import Law, frame_beside, law_cloud
from orthoslice.costs.laws import AgainstLaw
from orthoslice.costs.scores import COSTS, Score, Sliced
from orthoslice.estimates.driver import estimate
from orthoslice.estimates.plan import estimate_as_planned
from orthoslice.estimates.request import Options, Request, make_request
from orthoslice.estimates.result import Estimate
from orthoslice.estimates.underflow import power_may_underflow

METHODS: dict[str, Score] = {"sliced": Sliced(), "projected": COSTS["exact"]}


def check_method(method: object) -> Score:
    """The score that `method` names."""
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {sorted(METHODS)}; got {method!r}.")
    return METHODS[method]


def estimate_distance(
    name: str,
    score: Score,
    clouds: tuple[object, object, object, object],
    p: object,
    given: Options,
    *,
    accurate: bool = True,
) -> Estimate:
    """Check what was given and estimate; if `accurate`, right to the accuracy of the type or an error."""
    checked, kind = clouds, type(clouds[0])
    if kind is type(clouds[1]) is Cloud:
        x, y = cast(tuple[Cloud, Cloud], clouds[:2])
        clouds, kind = (x.points, y.points, x.weights, y.weights), type(x.points)
    # Most clouds are plain arrays without weights, of which no more has to be asked.
    are_plain = kind is type(clouds[1]) is np.ndarray and clouds[2] is clouds[3] is None
    if are_plain or (kind is type(clouds[1]) and clouds[2] is clouds[3] is None and is_on_gpu(clouds[0])):
        planned = estimate_as_planned(name, score, clouds[0], clouds[1], p, given)
        if planned is not None:
            return planned
    if isinstance(clouds[1], Law) and not score.breaks_ties:
        planned = _planned_against_law(name, clouds[0], clouds[1], clouds[2:], p, given)
        if planned is not None:
            return planned
    is_lazy = not are_plain and any(map(is_dask, clouds)) and not isinstance(clouds[1], Law)
    if is_lazy:
        request, x, y = _lazy_request(name, score, clouds, p, given)
    else:
        request, x, y = check_request(name, score, checked, p, given)
    answer = _estimate_scaled(request, x, y, given.rng)
    # On the unit sphere no scale is far from another, and powers that may underflow are refused.
    return _accurate(request, answer, x, y, given.rng) if accurate and not score.on_sphere else answer


def check_request(
    name: str, score: Score, clouds: tuple[object, object, object, object], p: object, given: Options
) -> tuple[Request, Cloud, Cloud]:
    """The request and the clouds, checked, from the user's arguments."""
    p = check_p(p)
    if isinstance(clouds[1], Law):
        return _law_request(name, score, clouds, p, given)
    x, y = make_clouds(*clouds)
    return make_request(name, score, x, y, p, given), x, y


def _planned_against_law(
    name: str, x: Any, law: Law, weights: tuple[object, ...], p: object, given: Options
) -> Estimate | None:
    """The estimate for points in a plain array, where a plan makes it as a whole."""
    if not (type(x) is np.ndarray and x.dtype.char in "fd" and weights[0] is weights[1] is None):
        return None
    if not (given.control is None or given.control == "auto"):
        return None
    score, frame = AgainstLaw(law.base), frame_beside(law, x)
    return estimate_as_planned(name, score, x, frame, p, given._replace(control=None))


def _law_request(
    name: str, score: Score, clouds: tuple[Any, Any, Any, Any], p: float, given: Options
) -> tuple[Request, Cloud, Cloud]:
    """As :func:`check_request`, where a law stands in the place of `y`."""
    x, law, x_weights, y_weights = clouds
    if score.breaks_ties:
        raise TypeError(
            "`y` must be a cloud for the projected distance, which pairs points in space; laws are known on "
            "lines, for `sliced_wasserstein`. Pass a sample, `y.sample(n)`."
        )
    if y_weights is not None:
        raise TypeError("`y_weights` must be None where `y` is a law.")
    if not (given.control is None or given.control == "auto"):
        raise ValueError(f"`control` must be left out where `y` is a law; got {given.control!r}.")
    cloud = one_cloud(x, x_weights)
    if cloud.dim != law.dim:
        raise ValueError(f"`x` and `y` must share `dim`; got {cloud.dim} and a law in {law.dim} dimensions.")
    y = law_cloud(law, cloud.points)
    return make_request(name, AgainstLaw(law.base), cloud, y, p, given._replace(control=None)), cloud, y


def _lazy_request(
    name: str, score: Score, clouds: tuple[object, object, object, object], p: object, given: Options
) -> tuple[Request, Cloud, Cloud]:
    """As :func:`check_request`, if any of the clouds or weights is a Dask collection."""
    from orthoslice.parallel.chunks import lazy_clouds

    p = check_p(p)
    x, y = lazy_clouds(("x", clouds[0], clouds[2]), ("y", clouds[1], clouds[3]))
    return make_request(name, score, x, y, p, given), x, y


def _estimate_scaled(request: Request, x: Cloud, y: Cloud, rng: RNG) -> Estimate:
    if request.score.on_sphere:
        return estimate(request, x, y, rng, 1.0)
    x, y, scale = unit_scale(x, y, request.p)
    if request.atol is not None:
        request = replace(request, atol=request.atol / scale)
    return estimate(request, x, y, rng, scale)


# A distance below 2^-_DWARF_BITS times the largest coordinate has few correct digits in float32.
_DWARF_BITS = 12


def _accurate(request: Request, answer: Estimate, x: Cloud, y: Cloud, rng: RNG) -> Estimate:
    """The answer, computed anew in a wider type where far points dwarf it, or an error where it underflows.

    Checked only where the clouds were scaled or p is high; elsewhere the type holds both scales.
    """
    if not is_readable(answer._raw):
        return answer
    p, info = request.p, float_info(namespace(x.points), x.dtype)
    if answer._scale == 1 and not power_may_underflow(p, info):
        return answer
    least = float(info.smallest_normal) / float(info.eps)
    dwarf = p * (math.log2(max(largest_coordinate(x, y), least)) - math.log2(answer._scale) - _DWARF_BITS)
    if _means(answer).min() >= max(least, 2.0 ** min(dwarf, 0.0)):
        return answer
    # A wider type holds both scales, if equal far points of x and y have equal projections (`steady`).
    wide_x, wide_y = widened(x, y)
    steady = replace(request, steady=True)
    rng = rng if answer.seed is None else answer.seed
    answer = _estimate_scaled(steady, wide_x, wide_y, rng)
    # Error bars square scores: the square of the least score must not underflow.
    least = 2.0**-480 if wide_x.dtype != x.dtype or info.bits == 64 else least
    lost = _means(answer) < least
    if lost.any():
        # SW_1 does not underflow, and tells which clouds differ at all.
        score = Sliced() if request.score.breaks_ties else request.score
        lengths = _estimate_scaled(replace(steady, p=1.0, score=score), wide_x, wide_y, rng)
        if (lost & (_means(lengths) > 0)).any():
            raise OverflowError(
                f"`p` is too high for these clouds: beside their largest coordinate, "
                f"{largest_coordinate(x, y):.3g}, their distance is so small that |x - y|^{p:g} underflows in "
                f"{wide_x.dtype}. Pass a smaller `p`, or leave out points that are far from all others."
            )
    return answer if wide_x.dtype == x.dtype else replace(answer, _dtype=x.dtype)


def _means(answer: Estimate) -> Any:
    return to_numpy(answer._raw).mean(axis=0)
