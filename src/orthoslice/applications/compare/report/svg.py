"""Pictures as SVG inside a page: small, sharp at any size, and in the colours of the page's theme.

Colours and fonts are those of the classes in `style.css`, so that one drawing serves light and dark. Text
cannot be measured here, so labels are placed by a generous guess of their width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from orthoslice.applications.compare.pictures import (
    Axis,
    Band,
    Bars,
    Dots,
    Line,
    Mark,
    Picture,
    Rows,
    Rule,
    Span,
)
from orthoslice.backend.arrays import HostArray
from orthoslice.backend.markup import cut, escaped

# In units of the drawing, which is as wide as a phone: there it is shown at about this size, elsewhere larger.
_WIDTH, _HEIGHT, _ROW = 340.0, 240.0, 40.0
_TOP, _RIGHT, _BOTTOM = 8.0, 14.0, 42.0
_LETTER = 7.0
_LONGEST_LABEL, _LONGEST_NAME = 50, 44


class Frame(NamedTuple):
    """Where the marks go: the area inside the axes, and how numbers become places in it."""

    left: float
    right: float
    top: float
    bottom: float
    x: Axis
    y: Axis

    def across(self, value: float) -> float:
        return self.left + (value - self.x.low) / (self.x.high - self.x.low) * (self.right - self.left)

    def up(self, value: float) -> float:
        return self.bottom - (value - self.y.low) / (self.y.high - self.y.low) * (self.bottom - self.top)


def render_picture(picture: Picture) -> str:
    """The picture as an ``<svg>``, with `picture.told` as its label for screen readers."""
    height, frame = _frame(picture)
    drawn = [*_axes(frame), *(_draw(mark, frame) for mark in picture.marks)]
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {height:g}" role="img" aria-label="{escaped(picture.told)}">'
        + "".join(drawn)
        + "</svg>"
    )


def render_key(picture: Picture) -> str:
    """What the marks of a picture mean, as a list; empty where nothing needs to be said."""
    items = [(mark, getattr(mark, "label", "")) for mark in picture.marks]
    entries = "".join(f"<li>{_swatch(mark)} {escaped(label)}</li>" for mark, label in items if label)
    return f'<ul class="key">{entries}</ul>' if entries else ""


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """About `about` round numbers from `low` to `high`.

    Examples
    --------
    >>> ticks(0, 18.4)
    [0.0, 5.0, 10.0, 15.0]
    """
    power = 10.0 ** math.floor(math.log10((high - low) / about))
    step = min((power * k for k in (1, 2, 5, 10)), key=lambda step: abs((high - low) / step - about))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def tick_labels(values: list[float]) -> list[str]:
    """The numbers with as many digits as tell them apart.

    Examples
    --------
    >>> tick_labels([0.0, 0.2, 0.4]), tick_labels([1000.0, 2000.0])
    (['0.0', '0.2', '0.4'], ['1,000', '2,000'])
    """
    if not values:
        return []
    step = values[1] - values[0] if len(values) > 1 else abs(values[0]) or 1.0
    largest = max(abs(value) for value in values)
    if largest >= 1e6 or step < 1e-4:
        return [f"{value:.{max(1, math.ceil(math.log10(largest / step)) + 1)}g}" for value in values]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    # A minus sign before a zero comes from rounding.
    return [f"{value + 0.0:,.{digits}f}" for value in values]


def _frame(picture: Picture) -> tuple[float, Frame]:
    """The height of the drawing, and where the marks go."""
    if picture.y.names:
        bottom = _TOP + _ROW * len(picture.y.names)
        return bottom + _BOTTOM, Frame(_RIGHT, _WIDTH - _RIGHT, _TOP, bottom, picture.x, picture.y)
    widest = max((len(label) for label in tick_labels(ticks(picture.y.low, picture.y.high))), default=1)
    left = 30 + _LETTER * widest
    bottom = _TOP + _WIDTH - _RIGHT - left if picture.is_square else _HEIGHT - _BOTTOM
    return bottom + _BOTTOM, Frame(left, _WIDTH - _RIGHT, _TOP, bottom, picture.x, picture.y)


def _axes(frame: Frame) -> Iterable[str]:
    values = ticks(frame.x.low, frame.x.high)
    # Labels side by side must not touch.
    labels = tick_labels(values)
    room = (frame.right - frame.left) / max(1, len(values))
    every = math.ceil(_LETTER * (max(map(len, labels), default=0) + 1) / room)
    for k, (value, label) in enumerate(zip(values, labels, strict=True)):
        place = frame.across(value)
        if frame.y.names:
            yield _segment("grid", place, frame.top, place, frame.bottom)
        if k % every == 0:
            yield _text(place, frame.bottom + 16, label, "middle")
    yield _segment("axis", frame.left, frame.bottom, frame.right, frame.bottom)
    yield _text(_WIDTH / 2, frame.bottom + 35, cut(frame.x.label, _LONGEST_LABEL), "middle")
    if frame.y.names:
        for row, name in enumerate(frame.y.names):
            yield _text(frame.left, frame.top + _ROW * row + 15, cut(name, _LONGEST_NAME), "start")
        return
    values = ticks(frame.y.low, frame.y.high)
    for value, label in zip(values, tick_labels(values), strict=True):
        place = frame.up(value)
        yield _segment("grid", frame.left, place, frame.right, place)
        yield _text(frame.left - 6, place + 4, label, "end")
    centre = (frame.top + frame.bottom) / 2
    label = escaped(cut(frame.y.label, int((frame.bottom - frame.top) / _LETTER)))
    yield f'<text transform="translate(14 {centre:.1f}) rotate(-90)" text-anchor="middle">{label}</text>'


def _draw(mark: Mark, frame: Frame) -> str:
    match mark:
        case Bars():
            return f'<path class="bars {mark.role}" d="{_stairs(mark, frame)}"/>'
        case Rows():
            height, aside = (12.0, 0.0) if mark.lane is None else (6.0, 6.0 * mark.lane)
            return "".join(
                _box(mark.role, frame.left, frame.across(length), top + aside, top + aside + height)
                + (_text(frame.across(length) + 5, top + 11, end, "start") if end else "")
                for top, length, end in zip(_rows(frame, mark.first), mark.lengths, mark.ends, strict=False)
            )
        case Span():
            low, high, place = frame.across(mark.low), frame.across(mark.high), _rows(frame, mark.row)[0] + 6
            parts = [_segment(f"thick {mark.role}", low, place, high, place)]
            parts += [_segment(mark.role, end, place - 6, end, place + 6) for end in (low, high)]
            if mark.at is not None:
                parts.append(_circle(mark.role, frame.across(mark.at), place, 4))
            return "".join(parts)
        case Line():
            return f'<polyline class="line {mark.role}" points="{_points(mark.xs, mark.ys, frame)}"/>'
        case Dots():
            places = zip(mark.xs, mark.ys, strict=True)
            return "".join(_circle(mark.role, frame.across(x), frame.up(y), 2.6) for x, y in places)
        case Band():
            there = _points(mark.xs, mark.high, frame), _points(mark.xs[::-1], mark.low[::-1], frame)
            return f'<polygon class="band {mark.role}" points="{" ".join(there)}"/>'
        case Rule():
            place = frame.across(mark.at)
            return _segment(f"thick {mark.role}", place, frame.top, place, frame.bottom)


def _stairs(bars: Bars, frame: Frame) -> str:
    """The outline of a histogram: bars side by side would leave hairlines between them."""
    steps = "".join(
        f"V{frame.up(count):.1f}H{frame.across(edge):.1f}"
        for count, edge in zip(bars.counts, bars.edges[1:], strict=True)
    )
    return f"M{frame.across(bars.edges[0]):.1f},{frame.bottom:.1f}{steps}V{frame.bottom:.1f}Z"


def _rows(frame: Frame, first: int) -> list[float]:
    """Where the bars of rows begin, from the given one on."""
    return [frame.top + _ROW * row + 21 for row in range(first, len(frame.y.names))]


def _points(xs: HostArray, ys: HostArray, frame: Frame) -> str:
    """Places of a curve; what is far outside the frame ends at its edge."""
    heights = (min(max(frame.up(y), frame.top), frame.bottom) for y in ys)
    return " ".join(f"{frame.across(x):.1f},{height:.1f}" for x, height in zip(xs, heights, strict=True))


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escaped(text)}</text>'


def _segment(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _circle(kind: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def _box(kind: str, left: float, right: float, top: float, bottom: float) -> str:
    size = f'width="{max(0.5, right - left):.2f}" height="{max(0.0, bottom - top):.2f}"'
    return f'<rect class="{kind}" x="{left:.2f}" y="{top:.2f}" {size}/>'


def _swatch(mark: Mark) -> str:
    """A mark in small, as it stands in the key."""
    match mark:
        case Dots():
            drawn = _circle(mark.role, 9, 6, 3.5)
        case Band():
            drawn = f'<rect class="band {mark.role}" x="1" y="1" width="16" height="10"/>'
        case Line():
            drawn = _segment(f"line {mark.role}", 0, 6, 18, 6)
        case Rule():
            drawn = _segment(f"thick {mark.role}", 0, 6, 18, 6)
        case _:
            drawn = _box(mark.role, 1, 17, 1, 11)
    return f'<svg class="swatch" viewBox="0 0 18 12" aria-hidden="true">{drawn}</svg>'
