"""What a column is: a number, a category, or something to leave out, by all its rows in all files."""

from __future__ import annotations

import importlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray
from orthoslice.cli.sources import FileError, How, Source, shown_name

# A category has at most _MOST_LEVELS values of its own; rarer ones are counted together.
_MOST_LEVELS = 50

# Values of a text column that are remembered: beyond them, no new ones are counted.
_MOST_VALUES = 100_000

# Text with more different values than this part of its rows is no category.
_FREE_TEXT = 0.5

# From this share of numbers on, the other values of a column are words among numbers.
_MOSTLY_NUMBERS = 0.5

# Fewer rows than this may increase by chance.
_FEWEST_NUMBERED = 10

# Values of which a table of two rows may have one each.
_TRUTHS = ("true", "false", "yes", "no", "t", "f", "y", "n")

_CAPITAL_TRUTHS = ("True", "False", "TRUE", "FALSE")

# An integer that float64 may not hold, and that Python reads in a moment.
_INTEGER = re.compile(r"\s*[+-]?[0-9]{16,400}\s*")

# Numbers in other notations: 1,234.5 or 1'234 or 1 234, and 12,5 or 1.234,5 or 1 234,5.
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?P<mark>[,'\u2019 ])\d{3}((?P=mark)\d{3})*(\.\d+)?")
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(?P<mark>[.'\u2019 ])\d{3}((?P=mark)\d{3})*),\d+")

# Blanks that are not broken, which stand for a blank between thousands.
_BLANKS = "\u00a0\u202f"

# Signs that people write beside numbers.
_SIGNS = "%$€£¥"

# Days as people write them, perhaps with a time: 24.12.2026, 12/24/26, 2026-12-24 18:00. Versions have dots
# too, but no year at the end.
_DATE = re.compile(
    r"(\d{1,2}([./-])\d{1,2}\2\d{4}|\d{1,2}/\d{1,2}/\d{2}|\d{4}([/-])\d{1,2}\3\d{1,2})([T ,].*)?"
)


class Number(NamedTuple):
    """A column of numbers."""


class Category(NamedTuple):
    """A column of a few values."""

    levels: tuple[str, ...]
    """The values that count by themselves, the most frequent of all files first."""
    has_others: bool
    """Whether there are more, which count together."""


class Left(NamedTuple):
    """A column that is left out."""

    why: str


Kind = Number | Category | Left


@dataclass
class Profile:
    """What one pass over a column of a file tells of it."""

    n_rows: int = 0
    n_missing: int = 0
    n_plain: int = 0
    """Values in pieces that hold nothing but numbers."""
    counts: Counter[str] = field(default_factory=Counter)
    """The values of other pieces, and how often each occurs."""
    n_uncounted: int = 0
    """Values that came when `counts` was full."""
    is_named: bool = False
    """Whether the type says that values are names: categories and truth values."""
    mean: float = 0.0
    """Of the values of pieces that hold nothing but numbers."""
    rounded: str | None = None
    """An integer that floating point does not hold."""
    increases: bool = True
    _last: float = -np.inf

    def add(self, column: Any, how: How) -> None:
        """Take some more rows of the column, an array of Arrow's."""
        arrow = importlib.import_module("pyarrow")
        self.n_rows += len(column)
        if arrow.types.is_dictionary(column.type) or arrow.types.is_boolean(column.type):
            self.is_named = True
        if arrow.types.is_integer(column.type) and _exceeds(column):
            self.rounded = self.rounded or "above 2^53"
            self.n_missing += column.null_count
            return
        numbers = None if self.is_named else as_numbers(column, how)
        if numbers is not None:
            if self.rounded is None and _holds_text(column):
                self.rounded = _first_rounded(column, numbers)
            self._take(numbers)
            return
        texts = as_texts(column, how)
        self.n_missing += texts.null_count
        self.increases = False
        self._count(texts)

    def add_numbers(self, numbers: HostArray) -> None:
        """Take some more rows of an array, missing values as NaN."""
        self.n_rows += len(numbers)
        self._take(numbers)

    def _take(self, numbers: HostArray) -> None:
        there = ~np.isnan(numbers)
        n_there = int(there.sum())
        self.n_missing += len(numbers) - n_there
        if not n_there:
            return
        values = numbers[there]
        self.n_plain += n_there
        if np.isfinite(values).all():
            self.mean += (float(values.mean()) - self.mean) * n_there / self.n_plain
        if self.increases:
            steps = np.diff(values, prepend=self._last)
            whole = bool(np.isfinite(values).all() and (values == np.rint(values)).all())
            self.increases = whole and n_there == len(numbers) and bool((steps > 0).all())
            self._last = float(values[-1])

    def _count(self, texts: Any) -> None:
        found = importlib.import_module("pyarrow.compute").value_counts(texts.drop_null())
        for value, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            if value in self.counts or len(self.counts) < _MOST_VALUES:
                self.counts[value] += count
            else:
                self.n_uncounted += count

    @property
    def n_values(self) -> int:
        return self.n_rows - self.n_missing

    @property
    def is_text(self) -> bool:
        return bool(self.counts) or self.is_named

    @property
    def is_identifier(self) -> bool:
        """Whether every row has a value of its own: text, or whole numbers that increase."""
        if self.is_text:
            is_truth = all(value.lower() in _TRUTHS for value in self.counts)
            return not (self.n_plain or self.is_named or is_truth) and set(self.counts.values()) == {1}
        return self.increases and self.n_values >= _FEWEST_NUMBERED

    @property
    def is_dated(self) -> bool:
        """Whether all values are written as days are."""
        return bool(self.counts) and not self.n_plain and all(map(_DATE.fullmatch, self.counts))

    @property
    def is_free_text(self) -> bool:
        counted = sum(self.counts.values())
        return not self.is_named and len(self.counts) > max(_MOST_LEVELS, _FREE_TEXT * counted)


def profile_columns(source: Source, columns: list[str], how: How) -> dict[str, Profile]:
    """One pass over all rows of some columns."""
    assert source.batches is not None
    found = {column: Profile() for column in columns}
    for batch in source.batches(columns, ()):
        for column, profile in found.items():
            profile.add(batch.column(column), how)
    return found


def kind_of(column: str, profiles: Sequence[tuple[Source, Profile]], asked: bool, how: How) -> Kind:
    """What a column is in all files; one that was `asked` for is not left out.

    Raises
    ------
    FileError
        Where it holds words among numbers, numbers that are written in other ways than `how` says, or numbers
        in one file and words in another.
    """
    for source, profile in profiles:
        _check_words(shown_name(source.name), column, profile, how)
        _check_exact(shown_name(source.name), column, profile, asked)
    told = [(source, profile) for source, profile in profiles if profile.n_values]
    if any(profile.rounded for _, profile in told):
        return Left("integers above 2^53, which look like identifiers")
    if not told:
        return Number() if asked or any(not p.n_rows for _, p in profiles) else Left("nothing: it is empty")
    words = [(source, profile) for source, profile in told if _is_words(profile, how)]
    if not words:
        is_left = not asked and all(profile.is_identifier and not profile.is_text for _, profile in told)
        return Left("row numbers or identifiers: whole numbers that increase") if is_left else Number()
    if len(words) < len(told) and any(not p.is_text for _, p in told):
        number = next(source for source, profile in told if not profile.is_text)
        source, profile = words[0]
        raise FileError(
            f"Column {column!r} holds numbers in {shown_name(number.name)} and words such as "
            f"{_shown_values(profile.counts)} in {shown_name(source.name)}. Leave it out with --ignore "
            f"{quoted(column)}."
        )
    if not asked and all(profile.is_dated for _, profile in words):
        return Left("dates or times")
    if not asked and all(profile.is_identifier for _, profile in words):
        return Left("identifiers: no two rows have the same")
    if not asked and any(profile.is_free_text for _, profile in words):
        most = max(len(profile.counts) for _, profile in words)
        return Left(f"free text: {most:,} different values")
    return _category([profile.counts for _, profile in words], any(p.n_uncounted for _, p in words))


def _is_words(profile: Profile, how: How) -> bool:
    """Whether not all values are numbers, or the type says that they are names."""
    return profile.is_named or any(to_number(value, how) is None for value in profile.counts)


def _category(counts: Iterable[Counter[str]], is_cut: bool) -> Category:
    total: Counter[str] = Counter()
    for some in counts:
        total.update(some)
    ordered = sorted(total, key=lambda value: (-total[value], value))
    has_others = is_cut or len(ordered) > _MOST_LEVELS
    return Category(tuple(ordered[:_MOST_LEVELS]), has_others)


def _check_words(shown: str, column: str, profile: Profile, how: How) -> None:
    """Raise where most values are numbers, but not all, or are numbers in another notation."""
    if profile.is_named or not profile.counts:
        return
    words = Counter({v: k for v, k in profile.counts.items() if to_number(v, how) is None})
    n_words = sum(words.values())
    # With their signs taken away they are numbers in another notation, or numbers.
    bare = {v: _with_blanks(without_signs(v, _SIGNS + how.signs)) for v in words}
    plain = {v for v in words if to_number(bare[v], how) is not None}
    for pattern, other in _notations(how):
        alike = {v for v in words if pattern.fullmatch(bare[v])} if pattern else plain
        n_others = sum(k for v, k in words.items() if v not in plain and v not in alike)
        if not alike or n_others > (1 - _MOSTLY_NUMBERS) * profile.n_values:
            continue
        example = max(sorted(alike), key=len)
        written = pattern.fullmatch(bare[example]) if pattern else None
        if written is not None and written["mark"]:
            other = other._replace(thousands=written["mark"])
        signs = (c for c in dict.fromkeys(_SIGNS + how.signs) if c in how.signs or any(c in v for v in words))
        other = other._replace(signs="".join(signs))
        if other != how:
            raise FileError(
                f"{shown}: column {column!r} holds numbers such as {example!r}; write {_options_of(other)} to "
                f"read them, or leave the column out with --ignore {quoted(column)}."
            )
    if n_words and n_words <= (1 - _MOSTLY_NUMBERS) * profile.n_values:
        few = ",".join(quoted(v) for v, _ in words.most_common(3))
        raise FileError(
            f"{shown}: column {column!r} holds {n_words:,} word{'s' * (n_words > 1)} among "
            f"{profile.n_values:,} values, such as {_shown_values(words)}. If they stand for missing values, "
            f"write --na-values {shlex.quote(few)} --missing indicate; or leave the column out with --ignore "
            f"{quoted(column)}."
        )


def _notations(how: How) -> Iterator[tuple[re.Pattern[str] | None, How]]:
    """Ways to write numbers, besides those that `how` reads, and how to read them; None is `how` with signs."""
    if how.thousands is None or how.decimal == how.thousands:
        if how.decimal == ".":
            yield _THOUSANDS, how
        yield _COMMA, how._replace(decimal=",")
    yield None, how


def _options_of(how: How) -> str:
    """What to write on the command line for numbers that are written so."""
    told = [f"--decimal {how.decimal}"] if how.decimal != "." else []
    told += [f"--thousands {shlex.quote(how.thousands)}"] if how.thousands else []
    told += [f"--signs {shlex.quote(how.signs)}"] if how.signs else []
    return " ".join(told)


def _check_exact(shown: str, column: str, profile: Profile, asked: bool) -> None:
    if profile.rounded is not None and asked:
        raise FileError(
            f"{shown}: column {column!r} holds the integer {profile.rounded}, which floating point would "
            "round. Is it an identifier? Leave that out with --ignore."
        )


def as_texts(column: Any, how: How) -> Any:
    """A column as text, missing values as null."""
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    texts = column.cast(arrow.string())
    if how.na_values:
        missing = compute.is_in(texts, value_set=arrow.array(how.na_values, arrow.string()))
        texts = compute.if_else(missing, arrow.scalar(None, arrow.string()), texts)
    # Truth values are written in several ways, and are one type elsewhere.
    is_truth = compute.is_in(texts, value_set=arrow.array(_CAPITAL_TRUTHS, arrow.string()))
    return (
        compute.if_else(is_truth, compute.utf8_lower(texts), texts) if compute.any(is_truth).as_py() else texts
    )


def as_numbers(column: Any, how: How) -> HostArray | None:
    """A column in float64, missing values as NaN; None if some are words."""
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    if not _holds_text(column):
        numbers: HostArray = column.cast(arrow.float64()).to_numpy(zero_copy_only=False)
        return _without_na(numbers, how)
    texts = as_texts(column, how)
    for sign in how.signs:
        texts = compute.replace_substring(texts, sign, "")
    texts = compute.utf8_trim_whitespace(texts)
    if how.thousands:
        if how.thousands == " ":
            texts = compute.replace_substring_regex(texts, f"[{_BLANKS}]", " ")
        marks = (f"\\x{{{ord(mark):x}}}" for mark in (how.thousands, how.decimal))
        if compute.any(compute.match_substring_regex(texts, _misgrouped(*marks))).as_py():
            return None
        texts = compute.replace_substring(texts, how.thousands, "")
    if how.decimal != ".":
        texts = compute.replace_substring(texts, how.decimal, ".")
    try:
        numbers = texts.cast(arrow.float64()).to_numpy(zero_copy_only=False)
    except arrow.ArrowInvalid:
        return None
    return _without_na(numbers, how)


def _without_na(numbers: HostArray, how: How) -> HostArray:
    marks = [mark for mark in (to_number(text, how) for text in how.na_values) if mark is not None]
    return np.where(np.isin(numbers, marks), np.nan, numbers) if marks else numbers


def _holds_text(column: Any) -> bool:
    types = importlib.import_module("pyarrow").types
    kinds = types.is_string, types.is_large_string, types.is_string_view
    return any(is_kind(column.type) for is_kind in kinds)


def to_number(text: str, how: How) -> float | None:
    """The number that a text is, or None."""
    text = without_signs(text, how.signs)
    if how.thousands:
        text = _with_blanks(text) if how.thousands == " " else text
        if re.search(_misgrouped(re.escape(how.thousands), re.escape(how.decimal)), text):
            return None
        text = text.replace(how.thousands, "")
    try:
        return float(text.replace(how.decimal, ".")) if "_" not in text else None
    except ValueError:
        return None


def _misgrouped(thousands: str, decimal: str) -> str:
    """A regular expression for digits that are no groups of thousands, such as those of 24.12.2026.

    The last group has three digits; others may have two, as in India. The marks are quoted as the engine wants.
    """
    last = rf"{thousands}([0-9]{{0,2}}|[0-9]{{4,}})($|{decimal})"
    return rf"{last}|{thousands}([0-9]?|[0-9]{{4,}}){thousands}"


def _with_blanks(text: str) -> str:
    """The text with blanks of one kind."""
    return text.translate(dict.fromkeys(map(ord, _BLANKS), " "))


def without_signs(text: str, signs: str) -> str:
    """The text without these characters and the blanks around it.

    Examples
    --------
    >>> without_signs("-$ 5.20", "%$")
    '- 5.20'
    """
    return "".join(c for c in text if c not in signs).strip()


def _exceeds(integers: Any) -> bool:
    """Whether some of these integers are above 2^53, of which float64 does not have every one."""
    found = importlib.import_module("pyarrow.compute").min_max(integers)
    ends = [end for end in (found["min"].as_py(), found["max"].as_py()) if end is not None]
    return any(abs(end) > 2**53 for end in ends)


def _first_rounded(column: Any, numbers: HostArray) -> str | None:
    """The first integer that float64 does not hold, as it is written; `numbers` are what was read."""
    if not (np.abs(numbers) >= 2.0**53).any():
        return None
    for text in column.to_pylist():
        if text is not None and _INTEGER.fullmatch(text) and int(text) != float(text):
            return str(text.strip())
    return None


def _shown_values(counts: Counter[str], most: int = 3) -> str:
    """The most frequent values in a sentence."""
    shown = ", ".join(f"{value[:40]!r} ({count:,})" for value, count in counts.most_common(most))
    return shown if len(counts) <= most else f"{shown} and {len(counts) - most:,} more"


def quoted(name: str) -> str:
    """A name as lists such as `--ignore a,b` take it: in quotes if it has a comma or a quote."""
    return '"' + name.replace('"', '""') + '"' if re.search(r'[,"]', name) else name
