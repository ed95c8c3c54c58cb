"""Which parameters of long tests `make test` keeps; the marker `full` is on all others.

`@pytest.mark.thin` keeps combinations of parameters that cover every value of every parameter, those of
fixtures included; `@pytest.mark.thin(pairs=True)` every pair of values of two parameters. A list of many
values of one parameter is thinned where it is written, with `every`.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings

Choice = Mapping[str, Hashable]
"""A combination of parameters: for each its name, and what tells its value from others."""


# Deterministic examples: a failure on one machine fails on the next. Workers of Dask import tests, too.
settings.register_profile("full", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("quick", parent=settings.get_profile("full"), max_examples=15)


def every(step: int, values: Iterable[Any]) -> list[Any]:
    """Values for `parametrize`, of which the first and every `step`-th after it are quick."""
    marks = ((), (pytest.mark.full,))
    return [pytest.param(value, marks=marks[k % step > 0]) for k, value in enumerate(values)]


def examples(count: int) -> settings:
    """So many examples of a property; in the quick profile fewer, by the factor of all others."""
    share = settings.default.max_examples / settings.get_profile("full").max_examples
    return settings(max_examples=round(count * share))


def covering(choices: Sequence[Choice], size: int) -> set[int]:
    """Places of combinations that together have all values that any of them has of every `size` parameters."""
    seats = [_seats(choice, size) for choice in choices]
    missing = set().union(*seats)
    kept: set[int] = set()
    while missing:
        best = max(range(len(choices)), key=lambda k: len(seats[k] & missing))
        kept.add(best)
        missing -= seats[best]
    return kept


def _choice(item: pytest.Function) -> Choice:
    """The parameters of a test; those that one `parametrize` sets together are one."""
    params = dict(item.callspec.params)
    choice: dict[str, Hashable] = {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        together = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        # Not every value can be hashed or compared. All combinations share the objects that were written down.
        choice[",".join(together)] = tuple(id(params.pop(name)) for name in together)
    return choice | {name: id(value) for name, value in params.items()}


def _seats(choice: Choice, size: int) -> set[tuple[tuple[str, Hashable], ...]]:
    return set(itertools.combinations(sorted(choice.items()), min(size, len(choice))))


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark as `full` what the marker `thin` of a test leaves out."""
    thinned = [item for item in items if item.get_closest_marker("thin") and hasattr(item, "callspec")]
    for _, group in itertools.groupby(thinned, key=lambda item: (item.parent, item.originalname)):
        cases = list(group)
        marker = cases[0].get_closest_marker("thin")
        size = 2 if marker.kwargs.get("pairs") else 1
        kept = covering([_choice(case) for case in cases], size)
        for k, case in enumerate(cases):
            if k not in kept:
                case.add_marker(pytest.mark.full)
