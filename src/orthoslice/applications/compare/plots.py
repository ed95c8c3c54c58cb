"""Pictures of results, drawn by matplotlib: see :mod:`orthoslice.plot`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from orthoslice.applications.bounds import Bounds
from orthoslice.applications.compare import pictures
from orthoslice.applications.explain.explanation import Explanation
from orthoslice.applications.two_sample.testing import TwoSampleResult
from orthoslice.backend.markup import cut
from orthoslice.estimates.result import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of Okabe and Ito: told apart by the colour-blind, and dark enough on white and light enough on black.
_COLOURS = {"found": "#0072B2", "against": "#D55E00", "quiet": "#808080"}

# The height of a row, and of a line of the legend.
_ROW_INCHES, _LEGEND_POINTS = 0.45, 17

_LONGEST_LABEL, _LONGEST_NAME, _LONGEST_TITLE, _TITLE_LINE = 60, 42, 200, 34


def directions(estimate: Estimate, *, unit: str = pictures.UNIT, ax: Axes | None = None) -> Axes:
    """Draw how far apart two clouds are along each direction that was drawn, and the estimate.

    A few directions far to the right say that the clouds differ in few ways; all of them close together, that
    they differ in all.

    Parameters
    ----------
    estimate
        Of :func:`orthoslice.sliced_wasserstein` or :func:`orthoslice.projected_wasserstein`, for one pair.
    unit
        What distances are counted in.
    ax
        Where to draw; a new figure by default.

    Examples
    --------
    >>> import orthoslice as osl
    >>> x, y = osl.datasets.digits(0), osl.datasets.digits(1)
    >>> ax = osl.plot.directions(osl.sliced_wasserstein(x, y, rng=0))
    >>> ax.get_xlabel()
    'distance along a direction (units of the data)'
    """
    return _draw(pictures.picture_directions(estimate, unit=unit), ax)


def quantiles(
    x: object,
    y: object,
    direction: object = None,
    *,
    x_weights: object = None,
    y_weights: object = None,
    labels: tuple[str, str] = ("x", "y"),
    unit: str = pictures.UNIT,
    rng: object = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the quantiles of two clouds along one direction against each other.

    Dots on the diagonal say that the clouds are the same along the direction; dots above it, that y is higher
    there; another slope, that y is wider or narrower.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`, as in :func:`orthoslice.sliced_wasserstein`.
    direction
        A unit vector `(dim,)`, or one of the ``directions`` of :func:`orthoslice.explain`. By default the one
        along which the clouds differ most, as :func:`orthoslice.explain` finds it.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.
    labels
        What to call the clouds.
    unit
        What projections are counted in.
    rng
        For the search of a direction where none is given.
    ax
        Where to draw; a new figure by default.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(300, 3)), rng.normal(size=(200, 3)) + [2, 0, 0]
    >>> ax = osl.plot.quantiles(x, y, np.array([1.0, 0.0, 0.0]))
    >>> ax.get_ylabel()
    'y (units of the data)'
    """
    picture = pictures.picture_quantiles(
        x, y, direction, x_weights=x_weights, y_weights=y_weights, labels=labels, unit=unit, rng=rng
    )
    return _draw(picture, ax)


def features(explanation: Explanation, *, n_shown: int = 10, ax: Axes | None = None) -> Axes:
    """Draw the part of each feature in the difference of two clouds.

    Parameters
    ----------
    explanation
        Of :func:`orthoslice.explain`.
    n_shown
        How many features have a bar; the others share one.
    ax
        Where to draw; a new figure by default.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.zeros((3, 2)), np.zeros((3, 2)) + [0, 1]
    >>> ax = osl.plot.features(osl.explain(x, y, names=["age", "income"], rng=0))
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['income', 'age']
    """
    return _draw(pictures.picture_features(explanation, n_shown=n_shown), ax)


def bounds(
    bounds: Bounds,
    *,
    sliced: Estimate | None = None,
    projected: Estimate | None = None,
    unit: str = pictures.UNIT,
    ax: Axes | None = None,
) -> Axes:
    """Draw where the Wasserstein distance must lie, with the estimates below and above it.

    Parameters
    ----------
    bounds
        Of :func:`orthoslice.wasserstein_bounds`.
    sliced, projected
        Estimates of SW_p and PW_p with the same `p`, to be drawn beside them with their 95% intervals.
    unit
        What distances are counted in.
    ax
        Where to draw; a new figure by default.

    Examples
    --------
    >>> import orthoslice as osl
    >>> x, y = osl.datasets.digits(0), osl.datasets.digits(1)
    >>> ax = osl.plot.bounds(osl.wasserstein_bounds(x, y, rng=0), sliced=osl.sliced_wasserstein(x, y, rng=0))
    >>> len(ax.get_yticklabels())
    2
    """
    return _draw(pictures.picture_bounds(bounds, sliced=sliced, projected=projected, unit=unit), ax)


def null(test: TwoSampleResult, *, unit: str = pictures.UNIT, ax: Axes | None = None) -> Axes:
    """Draw the distances that permuted labels give, with the one that was observed.

    Parameters
    ----------
    test
        Of :func:`orthoslice.two_sample_test`.
    unit
        What distances are counted in.
    ax
        Where to draw; a new figure by default.

    Examples
    --------
    >>> import orthoslice as osl
    >>> x, y = osl.datasets.digits(0), osl.datasets.digits(1)
    >>> ax = osl.plot.null(osl.two_sample_test(x, y, n_permutations=99, rng=0))
    >>> ax.get_xlabel()
    'SW_1 (units of the data)'
    """
    return _draw(pictures.picture_null(test, unit=unit), ax)


def convergence(
    estimate: Estimate, *, level: float = 0.95, unit: str = pictures.UNIT, ax: Axes | None = None
) -> Axes:
    """Draw how an estimate and its error bar settled as directions came in.

    At every number of directions the band is the interval that a run with that number would have reported. It
    is not a simultaneous band: its coverage over all numbers at once is not claimed.

    Parameters
    ----------
    estimate
        Of :func:`orthoslice.sliced_wasserstein` or :func:`orthoslice.projected_wasserstein`, for one pair.
    level
        Of the band.
    unit
        What distances are counted in.
    ax
        Where to draw; a new figure by default.

    Examples
    --------
    >>> import orthoslice as osl
    >>> x, y = osl.datasets.digits(0), osl.datasets.digits(1)
    >>> ax = osl.plot.convergence(osl.sliced_wasserstein(x, y, rng=0))
    >>> ax.get_xlabel()
    'directions used'
    """
    return _draw(pictures.picture_convergence(estimate, level=level, unit=unit), ax)


def _draw(picture: pictures.Picture, ax: Axes | None) -> Axes:
    if ax is None:
        ax = _new_axes(picture)
    for mark in picture.marks:
        _draw_mark(ax, mark)
    # The legend is between title and axes, where it covers no data.
    labels = ax.get_legend_handles_labels()[1]
    if labels:
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    title = _plain(picture.title, _LONGEST_TITLE)
    title = textwrap.fill(title, _TITLE_LINE, max_lines=3, placeholder=" \u2026")
    ax.set_title(title, loc="left", pad=8 + _LEGEND_POINTS * len(labels))
    ax.set_xlabel(_plain(picture.x.label))
    ax.set_xlim(picture.x.low, picture.x.high)
    ax.spines[["top", "right"]].set_visible(False)
    if picture.y.names:
        ax.set_yticks(range(len(picture.y.names)), [_plain(name, _LONGEST_NAME) for name in picture.y.names])
        ax.set_ylim(len(picture.y.names) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    else:
        ax.set_ylabel(_plain(picture.y.label))
        ax.set_ylim(picture.y.low, picture.y.high)
    if picture.is_square:
        ax.set_aspect("equal", adjustable="box")
    return ax


def _new_axes(picture: pictures.Picture) -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("`osl.plot` draws with matplotlib: pip install 'orthoslice[plot]'.") from error
    height = 5.9 if picture.is_square else 4.0
    if picture.y.names:
        height = 1.2 + _ROW_INCHES * len(picture.y.names)
    _, ax = plt.subplots(figsize=(4.8 if picture.is_square else 6.4, height), layout="constrained")
    return ax


def _draw_mark(ax: Axes, mark: pictures.Mark) -> None:
    colour, label = _COLOURS[mark.role], _plain(getattr(mark, "label", ""))
    match mark:
        case pictures.Bars():
            ax.stairs(mark.counts, mark.edges, fill=True, color=colour, alpha=0.75, label=label)
        case pictures.Rows():
            height, aside = (0.6, 0.0) if mark.lane is None else (0.3, 0.3 * (mark.lane - 0.5))
            places = mark.first + np.arange(len(mark.ends)) + aside
            bars = ax.barh(places, mark.lengths, height=height, color=colour, label=label)
            ax.bar_label(bars, labels=list(mark.ends), padding=3)
        case pictures.Span():
            ax.plot([mark.low, mark.high], [mark.row] * 2, "|-", color=colour, markersize=12, lw=2.5)
            if mark.at is not None:
                ax.plot([mark.at], [mark.row], color=colour, marker="o", markersize=5)
        case pictures.Line():
            style = "--" if mark.role == "quiet" else "-"
            ax.plot(mark.xs, mark.ys, style, color=colour, label=label)
        case pictures.Dots():
            ax.plot(mark.xs, mark.ys, "o", color=colour, markersize=3.5, label=label)
        case pictures.Band():
            ax.fill_between(mark.xs, mark.low, mark.high, color=colour, alpha=0.35, lw=0, label=label)
        case pictures.Rule():
            ax.axvline(mark.at, color=colour, lw=2, label=label)


def _plain(text: str, most: int = _LONGEST_LABEL) -> str:
    """Names that others gave, as they are: long ones are cut, and a dollar sign begins no formula."""
    return cut(text, most).replace("$", r"\$")
