"""The pages: their code runs, their links lead somewhere, and the reference has every public name.

The code of README.md and of every page in docs/ is collected by pytest itself: pyproject.toml has the pattern.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import orthoslice as osl

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    p
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "experiments/*.md", "benchmarks/**/*.md")
    for p in ROOT.glob(pattern)
    if "gallery" not in p.parts
)
RUN = [p for p in PAGES if p.parent == ROOT / "docs" or (p.name == "README.md" and p.parent == ROOT)]
TOPS = ("src", "tests", "docs", "examples", "experiments", "benchmarks")
LINK = re.compile(r"(?<!`)\]\(([^()\s]+)\)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What can be linked to: headings as lower-case words joined by hyphens."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    found = []
    for target in LINK.findall(prose(page)):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if re.match(r"\w+:", target):
            continue
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_broken_links_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One title\n\n[a](page.md#one-title), [b](page.md#another), [c](gone.md)\n")
    assert broken_links(page) == ["page.md#another", "gone.md"]


def files_that_are_gone(page: Path) -> list[str]:
    """Python files and folders that the page names and the repository lacks; capitals stand for any name."""
    named = re.findall(r"[\w/]+\.py\b", text_of(page)) + re.findall(r"`([a-z_]+(?:/[a-z_]+)*/)`", text_of(page))
    found = [path for top in TOPS for path in (ROOT / top, *(ROOT / top).rglob("*"))]
    there = {f"/{path.relative_to(ROOT).as_posix()}" for path in found}
    return [
        name
        for name in dict.fromkeys(named)
        if not re.search("[A-Z]{2}", name) and not any(p.endswith(f"/{name.rstrip('/')}") for p in there)
    ]


def test_the_architecture_names_files_that_are_there():
    assert files_that_are_gone(ROOT / "docs" / "architecture.md") == []


def test_files_that_are_gone_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`orthoslice/entry.py`, `estimates/entry.py`, `estimates/`, `cli/gone/`, `cli/NAME.py`\n")
    assert files_that_are_gone(page) == ["orthoslice/entry.py", "cli/gone/"]


@pytest.mark.parametrize("page", RUN, ids=lambda p: p.name)
def test_python_of_a_page_is_run(page):
    """Only what follows a prompt is collected; an answer ends at an empty line, not at the end of the block."""
    blocks = re.findall(r"^```(?:python|pycon|py)\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)
    assert [block for block in blocks if not block.startswith(">>> ")] == []
    assert [block for block in blocks if not block.endswith("\n\n")] == []


def shown() -> list[str]:
    pages = (text_of(p) for p in (ROOT / "docs" / "reference").glob("*.md"))
    return re.findall(r"^\.\. auto(?:function|class):: (\S+)$", "\n".join(pages), re.MULTILINE)


def test_the_reference_has_every_public_name_once():
    names = shown()
    assert len(set(names)) == len(names)
    modules = [importlib.import_module("orthoslice.parallel.torch"), *(getattr(osl, m) for m in osl._MODULES)]
    places = {f"orthoslice.{n}": getattr(osl, n) for n in osl.__all__ if not inspect.ismodule(getattr(osl, n))}
    places |= {f"{m.__name__}.{n}": getattr(m, n) for m in modules for n in getattr(m, "__all__", ())}
    found = [pkgutil.resolve_name(name) for name in names]
    # Some are public at two places, and are shown at one.
    assert [place for place, thing in places.items() if not any(thing is other for other in found)] == []
