"""Packages build on each other in one direction: what a module loads lies on its own floor or below."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import orthoslice as osl

SOURCE = Path(osl.__file__).parent
FLOORS = [
    {"backend"},
    # The five steps, and true answers to check them against.
    {"check", "directions", "clouds", "couplings", "costs", "exact"},
    {"estimates"},
    {"applications", "control", "plot"},
    {"nn", "parallel", "adapters", "cli", "datasets"},
]
FLOOR = {name: k for k, names in enumerate(FLOORS) for name in names}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def loaded(path: Path) -> Iterator[str]:
    """Packages of ours that a module loads when it is loaded itself; its functions may load others later."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            first, *rest = node.module.split(".")
            if first == "orthoslice":
                yield from rest[:1] or [alias.name for alias in node.names]


MODULES = sorted(p for p in SOURCE.rglob("*.py") if not p.name.startswith("__") or p.parent != SOURCE)


def test_the_top_level_is_known() -> None:
    """A new name at the top is a decision, not an accident."""
    assert {package_of(path) for path in MODULES} == set(FLOOR)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_modules_load_nothing_from_above(path: Path) -> None:
    own = FLOOR[package_of(path)]
    above = [name for name in loaded(path) if FLOOR.get(name, own) > own]
    assert not above


def test_only_the_backend_loads_kernels() -> None:
    """Kernels load numba and CUDA, and so does the backend where it looks for them."""
    engines = {"numba", "cuda", "cupy"}
    for path in MODULES:
        names = {
            (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else alias.name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not names & engines or package_of(path) == "backend", path
