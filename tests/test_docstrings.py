"""Every public name has a docstring with an example, and the example is one that the test suite runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import orthoslice as osl

MODULES = [osl, importlib.import_module("orthoslice.parallel.torch"), *(getattr(osl, m) for m in osl._MODULES)]


def public() -> dict[str, object]:
    found = {}
    for module in MODULES:
        for n in getattr(module, "__all__", ["digits"]):  # `datasets` has no other names
            thing = getattr(module, n)
            if not inspect.ismodule(thing):
                found[f"{module.__name__}.{n}"] = thing
    return found


NAMES = public()


def example_of(thing: object) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "")


@pytest.mark.parametrize("name", NAMES)
def test_it_has_an_example_that_uses_it(name: str) -> None:
    thing = NAMES[name]
    examples = example_of(thing)
    assert examples, "no example in the docstring"
    source = "".join(example.source for example in examples)
    # Results are used by way of what returns them.
    if inspect.isfunction(thing):
        assert re.search(rf"\b{thing.__name__}\b", source)
    assert any(example.want for example in examples) or "ax" in source


@pytest.mark.parametrize("name", NAMES)
def test_its_example_is_collected(name: str) -> None:
    """`--doctest-modules` runs what is defined in a module of the package, and not what a decorator hides."""
    thing = NAMES[name]
    kind = thing if hasattr(thing, "__name__") else type(thing)
    module = inspect.getmodule(kind)
    assert module is not None
    assert Path(module.__file__ or "").is_relative_to(Path(osl.__file__).parent)
    found = doctest.DocTestFinder().find(module)
    assert any(test.name == f"{module.__name__}.{kind.__name__}" and test.examples for test in found)


def test_a_docstring_without_an_example_is_seen() -> None:
    def bare() -> None:
        """Do nothing."""

    assert example_of(bare) == []
