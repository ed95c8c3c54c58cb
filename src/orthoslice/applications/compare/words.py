"""What a comparison found, in words for people who know neither transport nor tests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from orthoslice.backend.markup import escaped, shown
from orthoslice.estimates.result import Estimate

if TYPE_CHECKING:
    from orthoslice.applications.compare.compare import Comparison
    from orthoslice.applications.explain.explanation import Feature
    from orthoslice.applications.two_sample.testing import TwoSampleResult

# p-values up to which the answer is "yes" and "probably"; above the last one nothing speaks for a difference.
_SURE, _LIKELY, _OPEN = 0.01, 0.05, 0.2

# With this many rows in both samples, a difference that is not chance may still be too small to matter.
_MANY_ROWS = 2000

# The most columns to name, and the least share of one: less is shown as 0%.
_SHOWN_FEATURES, _LEAST_SHARE = 5, 0.005

# The questions of sections that the report has pictures for.
ABOUT_CHANCE = "Are they different?"
ABOUT_DISTANCE = "How far apart are they?"
ABOUT_COLUMNS = "In which columns do they differ?"

SCALED = "pass `*osl.scaled([x, y])`"


class Section(NamedTuple):
    """A question that people ask, its short answer, and what is behind it."""

    question: str
    answer: str
    lines: tuple[str, ...]


def tell(found: Comparison, scale_hint: str = SCALED) -> list[Section]:
    """The sections of the text, of those parts that were worked out; `scale_hint` says how to scale."""
    sections = [_tables(found)]
    if found.test is not None:
        sections.append(_chance(found, found.test))
    if found.sliced is not None or found.bounds is not None:
        sections.append(_distance(found))
    if found.explanation is not None:
        sections.append(_features(found))
    notes = notes_of(found, scale_hint)
    if notes:
        sections.append(Section("Good to know", "", notes))
    # Names of tables and columns are whatever files say.
    return [Section(shown(q), shown(a), tuple(shown(line) for line in lines)) for q, a, lines in sections]


def told(found: Comparison) -> str:
    """The sections as plain text."""
    lines: list[str] = []
    for question, answer, details in tell(found):
        lines.append(" ".join(part for part in (question, answer) if part))
        lines += [f"  {line}" for line in details]
    return "\n".join(lines)


def told_html(found: Comparison) -> str:
    """The sections as HTML, for notebooks."""
    parts = []
    for question, answer, details in tell(found):
        head = " ".join(part for part in (question, answer) if part)
        lines = "".join(f"<li>{escaped(line)}</li>" for line in details)
        parts.append(f"<p><strong>{escaped(head)}</strong></p>" + (f"<ul>{lines}</ul>" if lines else ""))
    return f'<div class="orthoslice">{"".join(parts)}</div>'


def _tables(found: Comparison) -> Section:
    (a, b), dim = found.names, len(found.features)
    columns = f"{dim} columns" if dim > 1 else f"1 column, {found.features[0]}"
    return Section(f"{a} ({len(found.x):,} rows) and {b} ({len(found.y):,} rows), {columns}", "", ())


def _chance(found: Comparison, test: TwoSampleResult) -> Section:
    p, many = test.pvalue, test.n_permutations
    if p <= _SURE:
        answer = "Yes."
    elif p <= _LIKELY:
        answer = "Probably."
    else:
        answer = "It cannot be told." if p <= _OPEN else "No difference was found."
    reached = round(p * (many + 1)) - 1
    few = "none" if reached == 0 else "all" if reached == many else f"{reached:,}"
    lines = [
        f"The rows were shuffled between the two tables {many:,} times: {few} of the shuffles put them as far "
        f"apart as they are (p = {p:.2g})."
    ]
    if p <= _LIKELY and min(len(found.sample_x), len(found.sample_y)) >= _MANY_ROWS:
        lines.append("With this many rows even a tiny difference shows: see how large it is.")
    if p > _LIKELY:
        lines.append("That does not prove them equal: with more rows a small difference might show.")
    return Section(ABOUT_CHANCE, answer, tuple(lines))


def _distance(found: Comparison) -> Section:
    a, b = found.names
    answer, lines = "", []
    if found.bounds is not None:
        low, high = number(found.bounds.lower), number(found.bounds.upper)
        span = f"by {high}" if low == high else f"by {low} to {high}"
        answer = f"To become like {b}, the rows of {a} have to move {span} on average."
        mean = {1.0: "the plain mean", 2.0: "the root of the mean square"}
        mean_of = mean.get(found.p, f"the root of the mean of power {found.p:g}")
        sure = "This is certain" if low == high else "Both ends are certain"
        lines.append(
            f"{sure}: less than {low} is impossible, and a way to do it with {high} was found "
            f"(bounds on the Wasserstein distance W_{found.p:g}, {found.units}; the average is {mean_of})."
        )
    if found.shuffled_move is not None:
        by_chance = number(found.shuffled_move)
        lines.append(f"Had the rows been shuffled between the two tables, it would be about {by_chance}.")
    lines.append(f"Two rows of {a} picked at random are typically {number(found.typical_gap)} apart.")
    if found.sliced is not None:
        lines.append(_sliced(found))
    return Section(ABOUT_DISTANCE, answer, tuple(lines))


def _sliced(found: Comparison) -> str:
    est = found.sliced
    assert est is not None
    low, high = quiet_interval(est)
    error = ""
    if not math.isnan(low):
        ends = number(low, 4), number(high, 4)
        error = f", 95% interval {ends[0]} to {ends[1]}" if ends[0] != ends[1] else ", right to these digits"
    distance = number(float(est.distance), 4)
    return (
        f"Looked at from one side only, they are {distance} apart, on average over all sides (sliced "
        f"Wasserstein distance SW_{found.p:g}{error})."
    )


def number(value: float, digits: int = 3) -> str:
    """A number as people write it: 1,130 and 0.0123, not 1.13e+03.

    Examples
    --------
    >>> number(1131.4), number(0.01234), number(1.3e9), number(0.0)
    ('1,130', '0.0123', '1.3e+09', '0')
    """
    rounded = float(f"{value:.{digits}g}")
    if value == 0 or 1e-4 <= abs(rounded) < 1e7:
        places = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else 0
        text = f"{rounded:,.{places}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits}g}"


def quiet_interval(est: Estimate) -> tuple[float, float]:
    """The 95% interval of a distance, or NaN, without a warning: :func:`notes_of` says what is doubtful."""
    return est._told_interval() or (math.nan, math.nan)


def _features(found: Comparison) -> Section:
    told = found.explanation
    assert told is not None
    most = [f for f in told.features[:_SHOWN_FEATURES] if f.share > 0]
    # With very many columns, no share may reach _LEAST_SHARE.
    most = [f for f in most if f.share >= _LEAST_SHARE] or most
    if not most:
        return Section(ABOUT_COLUMNS, "In none: both hold the same rows.", ())
    by_chance = found.test is not None and found.test.pvalue > _LIKELY
    answer = "These differ most, though it may be by chance:" if by_chance else "These differ most:"
    width = max(len(shown(f.name)) for f in most)
    lines = [f"{shown(f.name):{width}}  {f.share:4.0%}  {change_in_words(f, found.names[1])}" for f in most]
    left = len(told.features) - len(most)
    if left:
        rest = sum(f.share for f in told.features[len(most) :])
        lines.append(f"the {left} others: {rest:.0%} together" if left > 1 else f"the other one: {rest:.0%}")
    lines.append("(Percentages are parts of the difference, each column looked at alone.)")
    return Section(ABOUT_COLUMNS, answer, tuple(lines))


def change_in_words(feature: Feature, name: str) -> str:
    return feature.change.replace(" in y:", f" in {name}:")


def notes_of(found: Comparison, scale_hint: str = SCALED) -> tuple[str, ...]:
    """Notes on dominant features, sampling, weights and doubtful errors."""
    notes = []
    if found.explanation is not None:
        notes += [note.replace(SCALED, scale_hint) for note in found.explanation.notes]
    if found.is_sampled:
        n, m = len(found.sample_x), len(found.sample_y)
        rows = f"{n:,} rows of each table" if n == m else f"{n:,} and {m:,} rows"
        alone = "All is" if found.sliced is None else "All rows count in the sliced distance. The rest is"
        certain = ", and so are the certain bounds" if found.bounds is not None else ""
        notes.append(f"{alone} about {rows} chosen at random{certain}.")
    if found.x_weights is not None or found.y_weights is not None:
        notes.append(
            "Whether it may be chance cannot be told of rows with weights: those of different weight cannot be "
            "shuffled."
        )
    for kind, est in (("sliced", found.sliced), ("projected", found.projected)):
        if est is not None and est.converged is False:
            notes.append(f"The {kind} distance is less accurate than was asked for.")
    if found.sliced is not None and found.sliced._doubt:
        notes.append(f"The interval of the sliced distance cannot be trusted: {found.sliced._doubt}.")
    return tuple(notes)
