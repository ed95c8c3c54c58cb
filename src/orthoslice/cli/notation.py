"""Numbers and truth values as people write them: 1,234.5 and 1.234,5, 12 % and 12 €, True and TRUE."""

from __future__ import annotations

import importlib
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray
from orthoslice.cli.formats.source import How

_CAPITAL_TRUTHS = ("True", "False", "TRUE", "FALSE")

# Numbers in other notations: 1,234.5 or 1'234 or 1 234, and 12,5 or 1.234,5 or 1 234,5.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?P<mark>[,'\u2019 ])\d{3}((?P=mark)\d{3})*(\.\d+)?")
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(?P<mark>[.'\u2019 ])\d{3}((?P=mark)\d{3})*),\d+")

# Blanks that are not broken, which stand for a blank between thousands.
_BLANKS = "\u00a0\u202f"

# Signs that people write beside numbers.
_SIGNS = "%$€£¥"


class Asked(NamedTuple):
    """What to write so that words are read as numbers."""

    example: str
    options: str
    value: float
    """What the example is then: `1,234` may be meant as 1.234."""


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
    if not holds_text(column):
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


def holds_text(column: Any) -> bool:
    """Whether a column of Arrow's is of text, and of no other type."""
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


def ask_notation(words: Counter[str], most_others: float, how: How) -> Asked | None:
    """The options that make numbers of words that `how` does not read; `most_others` of them may be none."""
    # With their signs taken away they are numbers in another notation, or numbers.
    bare = {v: _with_blanks(without_signs(v, _SIGNS + how.signs)) for v in words}
    plain = {v for v in words if to_number(bare[v], how) is not None}
    found: dict[int, Asked] = {}
    for pattern, other in _notations(how):
        alike = {v for v in words if pattern.fullmatch(bare[v])} if pattern else plain
        n_others = sum(k for v, k in words.items() if v not in plain and v not in alike)
        if not alike or n_others > most_others or n_others in found:
            continue
        example = max(sorted(alike), key=len)
        written = pattern.fullmatch(bare[example]) if pattern else None
        if written is not None and written["mark"]:
            other = other._replace(thousands=written["mark"])
        signs = (c for c in dict.fromkeys(_SIGNS + how.signs) if c in how.signs or any(c in v for v in words))
        other = other._replace(signs="".join(signs))
        value = to_number(example, other)
        if other != how and value is not None:
            found[n_others] = Asked(example, _options_of(other), value)
    # The notation that leaves the fewest words: 1,234 may be both, and 1,69 beside it shows which.
    return found[min(found)] if found else None


def _notations(how: How) -> Iterator[tuple[re.Pattern[str] | None, How]]:
    """Ways to write numbers, besides those that `how` reads, and how to read them; None is `how` with signs."""
    if how.thousands is None or how.decimal == how.thousands:
        if how.decimal in ".,":
            yield _THOUSANDS, how._replace(decimal=".")
        yield _COMMA, how._replace(decimal=",")
    elif how.thousands == "," and how.decimal == ".":
        yield _COMMA, how._replace(decimal=",", thousands=None)
    yield None, how


def _options_of(how: How) -> str:
    """What to write on the command line for numbers that are written so."""
    told = [f"--decimal {how.decimal}"] if how.decimal != "." else []
    told += [f"--thousands {shlex.quote(how.thousands)}"] if how.thousands else []
    told += [f"--signs {shlex.quote(how.signs)}"] if how.signs else []
    return " ".join(told)
