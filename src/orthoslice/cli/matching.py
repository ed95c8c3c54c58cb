"""Which columns of several files are compared: matched by name or by position, and what each of them is."""

from __future__ import annotations

import csv
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from orthoslice.check.frames import listed, repeated, without
from orthoslice.cli.column_kinds import Category, Left, Number, Profile, kind_of, profile_columns, to_ignore
from orthoslice.cli.encoding import Encoding, make_encoding, places_of
from orthoslice.cli.formats.source import FileError, How, Numbered, Source, check_width, shown_name

# With more names than this, columns to leave out are not listed as an option.
_FEW_NAMES = 8


class Choice(NamedTuple):
    """What is wanted of the files."""

    columns: list[str] | None = None
    ignore: tuple[str, ...] = ()
    """Columns that are left out without a word."""
    weights: str | None = None
    by: str | None = None
    """The column that splits a file into groups of rows."""
    missing: str = "refuse"
    """What happens to missing values: "refuse", "drop" (their rows) or "indicate" (as features)."""
    strict: bool = False
    """Whether leaving a column out is an error."""
    scale: str | None = None
    """None, "standard", "whiten", or "auto": standard for tables, none for arrays and images."""
    resize: tuple[int, int] | None = None
    """Width and height of images."""
    memory: int = 10**9
    """Bytes. A table may take a quarter of them; a larger one is read from its file, or put in one."""
    decimal: str = "."
    thousands: str | None = None
    encoding: str | None = None
    na_values: tuple[str, ...] = ()
    signs: str = ""
    is_open: bool = False
    """Whether later files are read with the same features, and may have other values, and gaps."""
    tally: bool = False
    """Whether columns are to be compared one by one, by all rows."""

    @property
    def how(self) -> How:
        """How files are opened."""
        written = self.decimal, self.thousands, self.encoding, self.na_values, self.signs
        return How(self.memory, self.resize, *written)

    @property
    def beside(self) -> list[str]:
        """Columns that are read and not compared."""
        return [column for column in (self.weights, self.by) if column is not None]


class Matched(NamedTuple):
    """The columns of every file, in one order, and the features that stand for them."""

    columns: list[list[str]]
    encoding: Encoding


def split_names(text: str) -> list[str]:
    """Names that are separated by commas; those with a comma of their own are in double quotes.

    Examples
    --------
    >>> split_names('age, "name, first",k')
    ['age', 'name, first', 'k']
    """
    (names,) = csv.reader([text], skipinitialspace=True)
    return [name.strip() for name in names]


def match_columns(sources: list[Source], choice: Choice, say: Callable[[str], None]) -> Matched:
    """Match the columns of files, and say which are left out."""
    for source in sources:
        # Names are not listed before memory is known to hold them.
        if choice.columns is None:
            check_width(source.name, len(source.columns), choice.memory)
        if source.named and (twice := repeated(source.columns)):
            raise FileError(
                f"{shown_name(source.name)}: every column needs a name of its own; {listed(twice)} twice."
            )
        _check_there(source, choice.beside, "--weights" if choice.by is None else "--by")
    if choice.ignore and not any(column in source.columns for source in sources for column in choice.ignore):
        there = listed(sources[0].columns)
        raise FileError(f"--ignore names {listed(choice.ignore)}; the columns are {there}.")
    teller = _Teller(choice, say)
    wanted = _wanted(sources, choice, teller)
    profiles = [_profiles(s, columns, choice) for s, columns in zip(sources, wanted, strict=True)]
    wanted = _aligned(sources, wanted, profiles, choice, teller)
    matched = _understood(sources, wanted, profiles, choice, teller)
    teller.tell()
    for source, columns in zip(sources, matched.columns, strict=True):
        _check_any(source, columns)
    return matched._replace(encoding=replace(matched.encoding, left_out=teller.left_out))


class _Teller:
    """Gathers what is left out of which file, and says it once for all, or refuses to leave it out."""

    def __init__(self, choice: Choice, say: Callable[[str], None]) -> None:
        self.choice, self.say = choice, say
        self.left: dict[tuple[str, str], list[str]] = {}

    def leave_out(self, name: str, column: str, why: str) -> None:
        names = self.left.setdefault((column, why), [])
        if shown_name(name) not in names:
            names.append(shown_name(name))

    def tell(self) -> None:
        if self.choice.strict and self.left:
            (column, why), names = next(iter(self.left.items()))
            columns = to_ignore(dict.fromkeys(c for c, _ in self.left))
            raise FileError(
                f"{names[0]}: column {column!r} would be left out: it holds {why}. With --strict nothing is "
                f"left out but what you name: --ignore {columns}."
            )
        for (column, why), names in self.left.items():
            self.say(f"{', '.join(names)}: column {column!r} is left out: it holds {why}.")

    @property
    def left_out(self) -> dict[str, str]:
        """The columns, and what they hold."""
        return dict(self.left.keys())


def _wanted(sources: list[Source], choice: Choice, teller: _Teller) -> list[list[str]]:
    """The columns of every file that may be compared."""
    if choice.columns is not None:
        for source in sources:
            _check_there(source, choice.columns, "--columns")
        return [choice.columns for _ in sources]
    aside = {*choice.ignore, *choice.beside}
    skipped = dict.fromkeys(c for s in sources for c in s.skipped)
    for source in sources:
        for column, what in source.skipped.items():
            if column not in aside:
                teller.leave_out(source.name, column, what)
    return [[c for c in s.columns if c not in skipped and c not in aside] for s in sources]


def _check_any(source: Source, columns: list[str]) -> None:
    if not columns:
        raise FileError(f"{shown_name(source.name)}: has no column of numbers or categories.")


def _profiles(source: Source, columns: list[str], choice: Choice) -> dict[str, Profile]:
    """What all rows tell of columns that may be of any kind; of arrays, only where gaps are asked for."""
    if source.batches is not None:
        return profile_columns(source, columns, choice.how)
    if choice.missing != "indicate" or source.pieces is None:
        return {}
    found = {column: Profile() for column in columns}
    for piece in source.pieces(places_of(source, columns)):
        for profile, values in zip(found.values(), piece.T, strict=True):
            profile.add_numbers(np.asarray(values, dtype=np.float64))
    return found


def _aligned(
    sources: list[Source],
    wanted: list[list[str]],
    profiles: list[dict[str, Profile]],
    choice: Choice,
    teller: _Teller,
) -> list[list[str]]:
    """The columns of every file, in one order."""
    named = [k for k, source in enumerate(sources) if source.named]
    if choice.columns is not None:
        return wanted
    if len(named) == len(sources):
        _check_names(sources, wanted)
        return [wanted[0] for _ in sources]
    if named:
        teller.say("Columns are matched by position, since not all of the files name them.")
    for k in named:
        _check_names([sources[named[0]], sources[k]], [wanted[named[0]], wanted[k]])
        wanted[k] = wanted[named[0]]
    # Arrays hold numbers only, so that other columns have no place to be matched with.
    for column in list(wanted[named[0]]) if named else ():
        told = [(sources[k], profiles[k][column]) for k in named if column in profiles[k]]
        kind = kind_of(column, told, False, choice.how) if told else Number()
        if not isinstance(kind, Number):
            why = kind.why if isinstance(kind, Left) else "categories, and the other file has no names"
            teller.leave_out(sources[named[0]].name, column, why)
            for k in named:
                wanted[k] = [c for c in wanted[k] if c != column]
    first, columns = sources[0], wanted[0]
    for source, others in zip(sources[1:], wanted[1:], strict=True):
        if len(columns) != len(others):
            raise FileError(
                f"The files must have as many columns; {shown_name(first.name)} has {len(columns)} and "
                f"{shown_name(source.name)} has {len(others)}. Choose some with --columns."
            )
    return wanted


def _understood(
    sources: list[Source],
    wanted: list[list[str]],
    profiles: list[dict[str, Profile]],
    choice: Choice,
    teller: _Teller,
) -> Matched:
    """What every column is in all files, without those that are left out."""
    shown = wanted[next((k for k, s in enumerate(sources) if s.named), 0)]
    kinds: dict[str, Any] = {}
    # What stands in the place of missing numbers.
    gaps: dict[str, float] = {}
    kept = []
    for place, name in enumerate(shown):
        found = [(s, p[c[place]]) for s, p, c in zip(sources, profiles, wanted, strict=True) if c[place] in p]
        kind = kind_of(name, found, choice.columns is not None, choice.how) if found else Number()
        if isinstance(kind, Left):
            for source, _ in found:
                teller.leave_out(source.name, name, kind.why)
            continue
        if choice.is_open and isinstance(kind, Category):
            kind = kind._replace(has_others=True)
        kinds[name] = kind
        kept.append(place)
        if choice.missing == "indicate" and (choice.is_open or any(p.n_missing for _, p in found)):
            n_values = sum(p.n_plain for _, p in found)
            gaps[name] = sum(p.mean * p.n_plain for _, p in found) / n_values if n_values else 0.0
    columns = [[c[place] for place in kept] for c in wanted]
    return Matched(columns, make_encoding(kinds, gaps))


def _check_there(source: Source, columns: list[str], option: str) -> None:
    shown = shown_name(source.name)
    there = source.columns if isinstance(source.columns, Numbered) else set(source.columns)
    missing = [c for c in columns if c not in there]
    if missing:
        raise FileError(f"{shown}: {option} names {listed(missing)}; it has {listed(source.columns)}.")
    for column in columns:
        if column in source.skipped:
            raise FileError(
                f"{shown}: column {column!r} must hold numbers or categories; it holds "
                f"{source.skipped[column]}."
            )


def _check_names(sources: list[Source], kept: list[list[str]]) -> None:
    """Raise unless files with names have the same columns."""
    first, columns = sources[0], kept[0]
    for source, others in zip(sources[1:], kept[1:], strict=True):
        only = [without(columns, others), without(others, columns)]
        if any(only):
            names = shown_name(first.name), shown_name(source.name)
            told = " and ".join(f"only {n} has {listed(o)}" for n, o in zip(names, only, strict=True) if o)
            raise FileError(f"The files must have the same columns; {told}. {_remedy(columns, *only)}")


def _remedy(columns: list[str], mine: Sequence[Hashable], theirs: Sequence[Hashable]) -> str:
    """What to do about columns that only one of two files has, where the first has `columns`."""
    if len(mine) == len(theirs) and sorted(map(_folded, mine)) == sorted(map(_folded, theirs)):
        return "They differ in blanks or capitals only: give them the same names."
    if len(mine) == len(columns):
        return "No name is in both: give columns the same names."
    if len(mine) + len(theirs) > _FEW_NAMES:
        return "Choose some with --columns."
    return f"To compare the others, write --ignore {to_ignore(map(str, (*mine, *theirs)))}."


def _folded(name: Hashable) -> str:
    """A name without what people write now this way, now that."""
    return " ".join(str(name).split()).casefold()


def known_columns(source: Source, encoding: Encoding, choice: Choice, say: Callable[[str], None]) -> list[str]:
    """What a file calls the columns of an encoding; more columns than those are left out."""
    known, shown = [column.name for column in encoding.columns], shown_name(source.name)
    if not source.named:
        if len(source.columns) != len(known):
            raise FileError(
                f"{shown}: must have as many columns as the reference, {len(known)}; got {len(source.columns)}."
            )
        return list(source.columns)
    _check_there(source, known, "the reference")
    teller = _Teller(choice, say)
    for column in without(source.columns, {*known, *choice.ignore}):
        teller.leave_out(source.name, str(column), "what the reference does not have or left out")
    teller.tell()
    profiles = profile_columns(source, known, choice.how) if source.batches is not None else {}
    for column in encoding.columns:
        if column.name in profiles and not column.is_category:
            kind = kind_of(column.name, [(source, profiles[column.name])], True, choice.how)
            if isinstance(kind, Category):
                raise FileError(
                    f"{shown}: column {column.name!r} must hold numbers, as in the reference; it holds words "
                    f"such as {listed(kind.levels[:3])}."
                )
    return known
