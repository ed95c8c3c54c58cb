"""What a column is: a number, a category, or something to leave out, by all its rows in all files."""

from __future__ import annotations

import importlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray
from orthoslice.cli.formats.source import FileError, How, Source, shown_name
from orthoslice.cli.notation import as_numbers, as_texts, ask_notation, holds_text, to_number

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

# An integer that float64 may not hold, and that Python reads in a moment.
_INTEGER = re.compile(r"\s*[+-]?[0-9]{16,400}\s*")

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
            if self.rounded is None and holds_text(column):
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
            f"{to_ignore([column])}."
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
    asked = ask_notation(words, (1 - _MOSTLY_NUMBERS) * profile.n_values, how)
    if asked is not None:
        raise FileError(
            f"{shown}: column {column!r} holds numbers such as {asked.example!r}; write {asked.options} to "
            f"read them (that one as {asked.value:.15g}), or leave the column out with --ignore "
            f"{to_ignore([column])}."
        )
    if n_words and n_words <= (1 - _MOSTLY_NUMBERS) * profile.n_values:
        few = ",".join(quoted(v) for v, _ in words.most_common(3))
        raise FileError(
            f"{shown}: column {column!r} holds {n_words:,} word{'s' * (n_words > 1)} among "
            f"{profile.n_values:,} values, such as {_shown_values(words)}. If they stand for missing values, "
            f"write --na-values {shlex.quote(few)} --missing indicate; or leave the column out with --ignore "
            f"{to_ignore([column])}."
        )


def _check_exact(shown: str, column: str, profile: Profile, asked: bool) -> None:
    if profile.rounded is not None and asked:
        raise FileError(
            f"{shown}: column {column!r} holds the integer {profile.rounded}, which floating point would "
            "round. Is it an identifier? Leave that out with --ignore."
        )


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


def to_ignore(names: Iterable[str]) -> str:
    """What to write after `--ignore` in a shell.

    Examples
    --------
    >>> print(to_ignore(["a", "b"]), to_ignore(["size (m)"]))
    a,b 'size (m)'
    """
    return shlex.quote(",".join(quoted(name) for name in names))


def quoted(name: str) -> str:
    """A name as lists such as `--ignore a,b` take it: in quotes if it has a comma or a quote."""
    return '"' + name.replace('"', '""') + '"' if re.search(r'[,"]', name) else name
