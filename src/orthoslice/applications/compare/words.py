"""What a comparison found, in words for people who know neither transport nor tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from orthoslice.applications.columns import OTHERS, number
from orthoslice.backend.markup import escaped, shown
from orthoslice.estimates.result import Estimate

if TYPE_CHECKING:
    from orthoslice.applications.columns import ColumnChange
    from orthoslice.applications.compare.comparison import Comparison
    from orthoslice.applications.explain.explanation import Feature
    from orthoslice.applications.two_sample.testing import TwoSampleResult

DEFAULT_LEVEL = 0.05
"""The p-value up to which words call something a difference, where no other was asked for."""

# Of p-values up to the level, those up to _SURE are a plain "yes"; above _OPEN nothing speaks for a difference.
_SURE, _OPEN = 0.01, 0.2

# With this many rows in both samples, a difference that is not chance may still be too small to matter.
_MANY_ROWS = 2000

# The most columns to name, and the least share of one: less is shown as 0%.
_SHOWN_FEATURES, _LEAST_SHARE = 5, 0.005

# Tables at most `_HARDLY_MORE` times as far apart as shuffled rows may seem not to differ.
_HARDLY_MORE = 1.1

# Rows that occur more than once are told where their shares differ by this much.
_MANY_COPIES = 0.1

# The most columns to name that changed.
SHOWN_CHANGES = 10

# The most columns to name that were left out.
_SHOWN_LEFT = 3

# Ends what is told of a mean that moved.
_TOLD_UNIT = " standard deviations)"
WITHIN = " Standard deviations are those within the tables."

# The questions of sections that the report has pictures for.
ABOUT_CHANCE = "Are they different?"
ABOUT_DISTANCE = "How far apart are they?"
ABOUT_COLUMNS = "In which columns do they differ?"
ABOUT_NOTES = "Good to know"

SCALED = "pass `*osl.scaled([x, y])`"


class Section(NamedTuple):
    """A question that people ask, its short answer, and what is behind it."""

    question: str
    answer: str
    lines: tuple[str, ...]


def tell(found: Comparison, scale_hint: str = SCALED) -> list[Section]:
    """The sections of the text, of those parts that were worked out.

    `scale_hint` says how to scale; it is empty where columns are in common units already.
    """
    sections = [_tables(found)]
    if found.test is not None:
        sections.append(_chance(found, found.test))
    if found.columns and not found.is_equal:
        least = 0.0 if found.is_sampled else found.least_pvalue
        changes = tell_columns(found.columns, found.names, found.level, verdict=found.pvalue, least=least)
        sections.append(_with_pair(found, changes))
    if found.sliced is not None or found.bracket is not None:
        sections.append(_distance(found))
    if found.explanation is not None and not found.columns:
        sections.append(_features(found))
    notes = notes_of(found, scale_hint)
    if notes:
        sections.append(Section(ABOUT_NOTES, "", notes))
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
    (a, b) = found.names
    names = [change.name for change in found.columns] or found.features
    columns = f"{len(names):,} columns" if len(names) > 1 else f"1 column, {names[0]}"
    lines = (f"Lengths are {found.units}.",) if found.columns else ()
    return Section(
        f"{a} ({rows_in_words(len(found.x))}) and {b} ({rows_in_words(len(found.y))}), {columns}", "", lines
    )


def rows_in_words(n: int) -> str:
    return "1 row" if n == 1 else f"{n:,} rows"


def _chance(found: Comparison, test: TwoSampleResult) -> Section:
    if found.is_equal:
        there = looked_at(len(found.columns or found.features), found.left_out, found.dropped)
        lines = ["Both hold the same rows."]
        if others := [f"{c.name!r}" for c in found.columns if OTHERS in c.levels]:
            lines.append(
                f"But rare values of {', '.join(others)} count as one: whether they agree is not known."
            )
        return Section(ABOUT_CHANCE, f"No: they are equal{there}.", tuple(lines))
    p, many = found.pvalue, test.n_permutations
    assert p is not None
    least = found.least_pvalue
    if p <= found.level:
        answer = "Yes." if p <= _SURE else "Probably."
    elif is_open(p, found.level, least):
        answer = "It cannot be told."
    else:
        there = looked_at(len(found.columns or found.features), found.left_out, found.dropped)
        answer = f"No difference was found{there}."
    reached = round(test.pvalue * (many + 1)) - 1
    lines, by_columns = [_shuffled(found, test, reached)], _by_columns(found)
    by_shuffles = by_columns is None or p == test.pvalue or test.pvalue <= by_columns
    if by_columns is not None and p != test.pvalue:
        line = (
            f"Column by column, all {len(found.x):,} and {len(found.y):,} rows were compared: the smallest p, "
            f"adjusted for the number of columns, is {by_columns:.2g}."
        )
        # The look that decides comes first.
        lines.insert(int(by_shuffles), line)
        lines.append(f"Of the two looks together, p = {p:.2g}.")
    if (p <= found.level) != (p <= DEFAULT_LEVEL):
        lines.append(f"By the level that was asked for, p counts as a difference up to {found.level:g}.")
    if p <= found.level and min(len(found.x), len(found.y)) >= _MANY_ROWS:
        lines.append("With this many rows even a tiny difference shows: see how large it is.")
    low, high = (min(1.0, p / test.pvalue * end) for end in test.pvalue_interval())
    if p > found.level and least > min(found.level, DEFAULT_LEVEL):
        lines.append(few_rows(least, p))
    elif p > found.level and not reached:
        lines.append(f"p cannot be smaller with {many:,} shuffles: more can tell.")
    elif by_shuffles and low <= found.level <= high:
        lines.append(
            f"All possible shuffles would likely put p between {low:.2g} and {high:.2g}, on either side of "
            f"{found.level:g}: more shuffles can tell."
        )
    elif p > found.level and found.is_sampled:
        lines.append(
            f"That does not prove them equal: how columns go together was looked at in "
            f"{_rows_looked_at(found)} only."
        )
    elif p > found.level:
        lines.append("That does not prove them equal: with more rows a small difference might show.")
    return Section(ABOUT_CHANCE, answer, tuple(lines))


def _shuffled(found: Comparison, test: TwoSampleResult, reached: int) -> str:
    """What the test did, and how many of its shuffles reached what was found."""
    many = test.n_permutations
    few = "none" if reached == 0 else "all" if reached == many else f"{reached:,}"
    rows = f"{_rows_looked_at(found)}, chosen at random," if found.is_sampled else "The rows"
    return (
        f"{rows} were shuffled between the two tables {many:,} times: {few} of the shuffles made them as "
        f"different as they are (p = {test.pvalue:.2g})."
    )


def is_open(p: float, level: float, least: float) -> bool:
    """Whether a p-value above the level leaves it open; `least` is the smallest that so many rows can have.

    Examples
    --------
    >>> is_open(0.3, 0.05, 0.001), is_open(0.1, 0.05, 0.001), is_open(0.3, 0.05, 0.1)
    (False, True, True)
    """
    return p <= _OPEN or least > level


def few_rows(least: float, p: float) -> str:
    """That no p-value is below `least`, but for shuffles that reach less often than all possible ones would."""
    by_chance = (
        " A smaller one is an accident of the shuffles." if float(f"{p:.2g}") < float(f"{least:.2g}") else ""
    )
    return f"So few rows give no p-value below {least:.2g}, whatever they hold.{by_chance}"


def _by_columns(found: Comparison) -> float | None:
    """The smallest p-value of a column, where columns were tested."""
    return min((c.pvalue for c in found.columns if c.pvalue is not None), default=None)


def looked_at(n_columns: int, left_out: Mapping[str, str], dropped: Mapping[str, int]) -> str:
    """Of which columns and rows a "no" is, where some were left out.

    Examples
    --------
    >>> looked_at(3, {"born": "dates or times"}, {})
    " in the 3 columns looked at; 1 was left out: 'born' (dates or times)"
    >>> looked_at(3, {}, {"b.csv": 1500})
    '; rows with gaps were left out: 1,500 of b.csv'
    """
    gaps = ", ".join(f"{n:,} of {name}" for name, n in dropped.items())
    rows = f"; rows with gaps were left out: {gaps}" if gaps else ""
    if not left_out:
        return rows
    some = [f"{name!r} ({why})" for name, why in list(left_out.items())[:_SHOWN_LEFT]]
    more = len(left_out) - len(some)
    named = ", ".join(some) + (f" and {more:,} more" if more else "")
    columns = f"{n_columns:,} columns" if n_columns > 1 else "column"
    were = "were" if len(left_out) > 1 else "was"
    return f" in the {columns} looked at; {len(left_out):,} {were} left out: {named}{rows}"


def _rows_looked_at(found: Comparison) -> str:
    """How many rows of each table the slower parts look at."""
    n, m = len(found.sample_x), len(found.sample_y)
    return f"{n:,} rows of each table" if n == m else f"{n:,} and {m:,} rows"


def tell_columns(
    columns: Sequence[ColumnChange],
    names: tuple[str, str],
    level: float,
    some: str = "all ",
    verdict: float | None = None,
    least: float = 0.0,
) -> Section:
    """The columns that changed, in their own units; `some` is said of the rows that they were compared by.

    `verdict` is the p-value of the whole comparison, which may not be small where that of a column just is, and
    `least` the smallest p-value that so many rows can have.
    """
    changed = [c for c in columns if c.pvalue is not None and c.pvalue <= level]
    told = changed if columns[0].pvalue is not None else columns
    n, m = columns[0].rows
    rows = f"by {some}{n:,} and {m:,} rows"
    if not told and least > level:
        return Section(ABOUT_COLUMNS, f"It cannot be told in which, {rows}.", ())
    if not told:
        is_sure = verdict is not None and verdict <= level
        answer = "In none alone" if is_sure else "In none was a change found"
        return Section(ABOUT_COLUMNS, f"{answer}, {rows}.", ())
    answer = f"In {len(changed):,} of {len(columns):,}, {rows}:" if changed else ""
    beside = ""
    if changed and verdict is not None and verdict > level:
        answer = f"Perhaps in {answer.removeprefix('In ')}"
        beside = f" Columns are not all that was looked at: of everything together, p = {verdict:.2g}."
    most = told[:SHOWN_CHANGES]
    width = max(len(shown(c.name)) for c in most)
    lines = []
    for change in most:
        sure = "" if change.pvalue is None else f"{small_pvalue(change.pvalue)}  "
        lines.append(f"{shown(change.name):{width}}  {sure}{change.in_words(*names)}")
    if len(told) > len(most):
        lines.append(f"and {len(told) - len(most):,} more")
    left = len(columns) - len(told)
    if left:
        lines.append(f"No change was found in the {f'{left:,} others' if left > 1 else 'other one'}.")
    if changed:
        # Lengths are in those of both tables together, which a large shift makes larger.
        unit = WITHIN if any(_TOLD_UNIT in line for line in lines) else ""
        lines.append(f"(p is adjusted for the number of columns. Each was looked at alone.{unit}{beside})")
    return Section(ABOUT_COLUMNS, answer, tuple(lines))


def _with_pair(found: Comparison, told: Section) -> Section:
    """What columns tell, and where the tables differ the two that do not go together as before."""
    if found.pvalue is None or found.pvalue > found.level:
        return told
    changed = [c for c in found.columns if c.pvalue is not None and c.pvalue <= found.level]
    owners = {found.features[k] for c in changed for k in c.features}
    pair, line = found.pair, "Columns"
    if found.is_sampled:
        line = f"In {_rows_looked_at(found)}, chosen at random, columns"
    # Where a column changed by itself, it goes together with others in another way for that alone.
    if pair is not None and pair.pvalue <= found.level and not owners & {*pair.names}:
        line += f" do not go together as before, most surely {pair.in_words(found.names[1])}."
    elif not changed:
        line = "The difference is in many small changes, or in how columns go together."
    else:
        return told
    last = told.lines[-1:] if changed else ()
    return told._replace(lines=(*told.lines[: len(told.lines) - len(last)], line, *last))


def small_pvalue(p: float) -> str:
    """A p-value in eleven characters.

    Examples
    --------
    >>> small_pvalue(0.0123), small_pvalue(0.0)
    ('p = 0.01   ', 'p < 1e-99  ')
    """
    return f"p = {p:.1g}".ljust(11) if p >= 1e-99 else "p < 1e-99  "


def _distance(found: Comparison) -> Section:
    a, b = found.names
    if found.is_equal:
        return Section(ABOUT_DISTANCE, "Not at all: their distance is 0.", ())
    answer, lines = "", []
    if (bracket := found.bracket) is not None:
        low, high = number(bracket[0]), number(bracket[1])
        span = f"by {high}" if low == high else f"by {low} to {high}"
        answer = f"To become like {b}, the rows of {a} have to move {span} on average."
        if found.is_sampled:
            n, m = len(found.sample_x), len(found.sample_y)
            answer = (
                f"To become like {m:,} rows of {b}, {n:,} rows of {a} have to move {span} on average; both "
                "were chosen at random."
            )
        lines.append(_how_sure(found, low, high))
    if found.shuffled_moves is not None:
        lines.append(_by_chance(found))
    if len(found.x) > 1:
        lines.append(f"Two rows of {a} picked at random are typically {number(found.typical_gap)} apart.")
    if found.sliced is not None:
        lines.append(_sliced(found))
    return Section(ABOUT_DISTANCE, answer, tuple(lines))


def _how_sure(found: Comparison, low: str, high: str) -> str:
    """What is known of how far rows have to move, and what that length is."""
    mean = {1.0: "the plain mean", 2.0: "the root of the mean square"}
    mean_of = mean.get(found.p, f"the root of the mean of power {found.p:g}")
    limits = " about those rows, not about the files" if found.is_sampled else ""
    what = f"the Wasserstein distance W_{found.p:g}, {found.units}; the average is {mean_of}"
    if found.exact is not None:
        return f"This is exact{limits} ({what})."
    sure = "This is certain" if low == high else "Both ends are certain"
    return (
        f"{sure}{limits}: less than {low} is impossible, and a way to do it with {high} was found "
        f"(bounds on {what})."
    )


def _by_chance(found: Comparison) -> str:
    """How far apart shuffled rows are, and what that means beside the test."""
    assert found.shuffled_moves is not None
    assert found.shuffled_move is not None
    low, high = float(found.shuffled_moves.min()), float(found.shuffled_moves.max())
    span = f"{number(low)} to {number(high)}" if number(low) != number(high) else "the same"
    told = (
        f"Had the rows been shuffled between the two tables, it would be about {number(found.shuffled_move)} "
        f"({span} in {len(found.shuffled_moves)} shuffles)."
    )
    if found.pvalue is None or found.bracket is None:
        return told
    if found.pvalue > found.level and found.bracket[0] > high:
        many = len(found.shuffled_moves) + 1
        told += f" All of these are nearer, as chance alone makes it in 1 of {many} comparisons."
    elif found.pvalue <= found.level and found.bracket[1] <= _HARDLY_MORE * found.shuffled_move:
        told += " Rows lie apart by themselves here, which hides small changes, but not from the test."
    elif found.pvalue <= found.level and found.bracket[0] <= high:
        told += " Some of these are as far apart: this one number does not see all that the test sees."
    return told


def _sliced(found: Comparison) -> str:
    est = found.sliced
    assert est is not None
    low, high = quiet_interval(est)
    error = ""
    if not math.isnan(low) and not est._doubt:
        ends = number(low, 4), number(high, 4)
        error = f", 95% interval {ends[0]} to {ends[1]}" if ends[0] != ends[1] else ", right to these digits"
    distance = number(float(est.distance), 4)
    return (
        f"Looked at from one side only, they are {distance} apart, on average over all sides (sliced "
        f"Wasserstein distance SW_{found.p:g}{error})."
    )


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
    by_chance = found.pvalue is not None and found.pvalue > found.level
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
        told = found.explanation.notes
        notes += [note.replace(SCALED, scale_hint) for note in told if scale_hint or SCALED not in note]
    if found.is_sampled and not found.is_equal:
        whole = ["the sliced distance"] * (found.sliced is not None) + ["columns"] * bool(found.columns)
        alone = f"All rows count in {' and in '.join(whole)}. The rest is" if whole else "All is"
        certain = ", and so are the certain bounds" if found.bounds is not None else ""
        notes.append(f"{alone} about {_rows_looked_at(found)} chosen at random{certain}.")
    if found.x_weights is not None or found.y_weights is not None:
        notes.append(
            "Whether it may be chance cannot be told of rows with weights: those of different weight cannot be "
            "shuffled."
        )
    if found.test is not None and abs(found.repeated[1] - found.repeated[0]) >= _MANY_COPIES:
        few, many = sorted(zip(found.repeated, found.names, strict=True))
        notes.append(
            f"In {many[1]} {many[0]:.0%} of the rows occur more than once, in {few[1]} {few[0]:.0%}. Were rows "
            "written twice? The test takes them for independent."
        )
    for kind, est in (("sliced", found.sliced), ("projected", found.projected)):
        if est is not None and est.converged is False:
            notes.append(f"The {kind} distance is less accurate than was asked for.")
    if found.sliced is not None and found.sliced._doubt:
        notes.append(
            "How accurate the sliced distance is cannot be told: tables like these may be much farther apart, "
            "or nearer, on a few of the sides that were not looked from. More directions can tell."
        )
    return tuple(notes)
