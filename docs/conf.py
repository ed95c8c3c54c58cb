"""How Sphinx makes the site: ``make docs``. The whole tree is its source, so that links hold here and there."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import orthoslice

ROOT = Path(__file__).parents[1]
HOW_TO = "docs/how_to"
# Scripts of the gallery run here without a screen, and say nothing of compiling.
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("ORTHOSLICE_QUIET", "1")
# The reference names laws as users do: `orthoslice.laws` is an attribute, which autodoc could not import.
sys.modules["orthoslice.laws"] = orthoslice.laws

project = "orthoslice"
author = "The orthoslice developers"
copyright = f"2026, {author}. MIT licence"  # noqa: A001
release = version = orthoslice.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "examples/README.md",
    "experiments/README.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".venv*", ".git", "build", "site", "src", "tests"]

# Single backticks of docstrings.
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "attrs_inline"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "docs/gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"__init__|__main__|distributed_encoder|larger_than_memory",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1,
    "plot_gallery": "ORTHOSLICE_NO_GALLERY" not in os.environ,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
    "parallel": 2,
}

html_theme = "furo"
html_title = "orthoslice"
html_favicon = "assets/favicon.svg"
html_static_path = ["assets"]
html_css_files = ["extra.css"]
# Opening the folder leads to the first page.
html_extra_path = ["assets/entry"]
html_show_sphinx = False
html_copy_source = False
# Of a contrast that small type can be read at.
pygments_style = "a11y-high-contrast-light"


def edit_page(app: Any, docname: str, source: list[str]) -> None:
    """Put pages that no list names at the end of the how-to pages; end code blocks at their last line."""
    source[0] = source[0].replace("\n\n```\n", "\n```\n")
    if docname == HOW_TO:
        pages = sorted((ROOT / "docs").glob("*.md"))
        text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
        lists = re.findall(r"^```{toctree}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        named = set(re.findall(r"^(?:.* <)?([\w/]+)>?$", "\n".join(lists), re.MULTILINE))
        rest = [page.stem for page in pages if page.stem not in {*named, "index"}]
        if rest:
            source[0] += "\n## More\n\n```{toctree}\n" + "\n".join(rest) + "\n```\n"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", edit_page)
    app.connect("env-get-outdated", lambda *_: [HOW_TO])
