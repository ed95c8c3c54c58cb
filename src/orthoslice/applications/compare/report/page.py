"""The report: one page in one file, which loads nothing from a network and runs no script."""

from __future__ import annotations

import base64
import hashlib
import inspect
import itertools
import platform
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import orthoslice
from orthoslice.applications.columns import number
from orthoslice.applications.compare.column_pictures import picture_change, picture_values
from orthoslice.applications.compare.compare import compare
from orthoslice.applications.compare.comparison import Comparison
from orthoslice.applications.compare.pictures import (
    Picture,
    picture_bounds,
    picture_convergence,
    picture_directions,
    picture_features,
    picture_null,
    picture_quantiles,
)
from orthoslice.applications.compare.report.images import image_shape, render_images
from orthoslice.applications.compare.report.svg import render_key, render_picture
from orthoslice.applications.compare.words import (
    ABOUT_COLUMNS,
    ABOUT_NOTES,
    SHOWN_CHANGES,
    WITHIN,
    Section,
    change_in_words,
    small_pvalue,
    tell,
)
from orthoslice.backend.markup import cut, escaped

if TYPE_CHECKING:
    from orthoslice.applications.explain.explanation import DifferentDirection

_MOST_FEATURES = 50
_LONGEST_NAME = 60


class Figure(NamedTuple):
    """A picture and what to look for in it, in plain words."""

    picture: Picture
    caption: str


def render_page(found: Comparison, command: Sequence[str] | None, notes: Sequence[str], scale_hint: str) -> str:
    """The whole page; see :meth:`orthoslice.Comparison.to_html`."""
    style = (files("orthoslice.applications.compare.report") / "style.css").read_text(encoding="utf-8")
    a, b = found.names
    title = f"{a} and {b}, compared"
    first, *sections = tell(found, scale_hint)
    warnings = [line for section in sections if section.question == ABOUT_NOTES for line in section.lines]
    body = _notice((*notes, *warnings)) + "".join(
        _section(section, found) for section in sections if section.question != ABOUT_NOTES
    )
    # Nothing may be loaded, run or styled but this very style sheet, whatever names are made of.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="orthoslice {orthoslice.__version__}">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the answers</a>\n'
        f"<header>\n<h1>{_name(a)} and {_name(b)}, compared</h1>\n"
        f'<p class="lead">{escaped(first.question)}</p>\n</header>\n'
        f'<main id="main">\n{body}{_for_specialists(found)}{_repeat(found, command)}</main>\n</body>\n</html>\n'
    )


def _notice(notes: Sequence[str]) -> str:
    """What was left out, and what else to know before anything is believed."""
    return f'<section class="notice">\n<h2>{ABOUT_NOTES}</h2>\n{_list(notes)}</section>\n' if notes else ""


def _section(section: Section, found: Comparison) -> str:
    answer = f'<p class="answer">{escaped(section.answer)}</p>\n' if section.answer else ""
    lines, figures = section.lines, ""
    if section.question == ABOUT_COLUMNS:
        drawn, shape = list(_on_changes(found)), image_shape(found)
        figures = _figures(iter(drawn)) if shape is None else render_images(found, shape)
        # Captions say what the first lines do, one a column; where only features are known, the table does.
        lines = lines[len(drawn) :] if found.columns else ()
        if shape is not None:
            lines = tuple(line.replace(WITHIN, "") for line in lines if not line.startswith("and "))
    return f"<section>\n<h2>{escaped(section.question)}</h2>\n{answer}{figures}{_list(lines)}</section>\n"


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return f'<ul class="told">{items}</ul>\n' if items else ""


def _on_changes(found: Comparison) -> Iterator[Figure]:
    """Columns that changed, the surest first: both tables over each other."""
    if found.is_equal:
        return
    changed = [c for c in found.columns if c.pvalue is not None and c.pvalue <= found.level]
    for change in changed[:SHOWN_CHANGES]:
        assert change.pvalue is not None
        words = f"{small_pvalue(change.pvalue).strip()}; {change.in_words(*found.names)}"
        picture = picture_change(change, found.names)
        if change.changed_value is not None and picture.x.label == change.name:
            value = change.changed_value[0]
            if not picture.x.low <= value <= picture.x.high:
                words += f". {number(value, 6)} is beyond the picture and counts in the outer bar."
        yield Figure(picture, words.replace("->", "\u2192"))
    pvalues = None if found.test is None else found.test.column_pvalues
    if found.columns or pvalues is None:
        return
    for k in np.argsort(pvalues, kind="stable")[:SHOWN_CHANGES]:
        if pvalues[k] <= found.level:
            name, columns = str(found.features[k]), (found.sample_x[:, k], found.sample_y[:, k])
            picture = picture_values(name, *columns, found.names, _unit(found))
            yield Figure(picture, f"{small_pvalue(float(pvalues[k])).strip()}, adjusted for all columns.")


def _for_specialists(found: Comparison) -> str:
    """How the answers came about, folded away."""
    parts = (
        _figures(itertools.chain(_on_chance(found), _on_distance(found), _on_columns(found))),
        _figures(_on_changes(found)) if image_shape(found) is not None else "",
        _sums_of_columns(found),
        _feature_table(found),
    )
    return _folded("How the answers came about", "".join(parts))


def _folded(title: str, content: str) -> str:
    if not content:
        return ""
    return f"<details>\n<summary><h2>{escaped(title)}</h2></summary>\n{content}</details>\n"


def _on_chance(found: Comparison) -> Iterator[Figure]:
    if found.test is None:
        return
    counted, side = "how far apart the two tables were", "right"
    if found.test.method == "auto":
        counted, side = "how surprising the two tables were, the smallest of several p-values,", "left"
    yield Figure(
        picture_null(found.test, unit=_unit(found)),
        f"The bars count {counted} each time their rows had been shuffled between them. The line is what they "
        f"are. The further it stands to the {side} of the bars, the less chance explains.",
    )


def _on_distance(found: Comparison) -> Iterator[Figure]:
    unit = _unit(found)
    if found.bounds is not None:
        yield Figure(
            picture_bounds(found.bounds, sliced=found.sliced, projected=found.projected, unit=unit),
            "How far rows have to move on average, the Wasserstein distance, is certainly within the bracket. "
            "The sliced distance looks from one side at a time and is never larger; the projected one pairs "
            "rows as seen from one side and is never smaller.",
        )
    # One column has only one direction.
    if found.sliced is not None and len(found.features) > 1:
        yield Figure(
            picture_directions(found.sliced, unit=unit),
            "Seen from one random side (a weighted sum of all columns), this is how far apart the tables are. "
            "A long tail to the right: they differ mostly in a few ways. The line is the average over sides.",
        )
        yield Figure(
            picture_convergence(found.sliced, unit=unit),
            "The sliced distance as more and more sides were looked at, and how far off it may be because "
            "not all were. A narrow band at the right end: looking at more would change little.",
        )


def _on_columns(found: Comparison) -> Iterator[Figure]:
    if found.explanation is not None and found.explanation.distance > 0:
        yield Figure(
            picture_features(found.explanation),
            "Every column looked at alone: its part in the sum of all their differences, those by chance too.",
        )


def _sums_of_columns(found: Comparison) -> str:
    told = found.explanation
    if told is None or told.distance == 0:
        return ""
    introduction = (
        "Each dot compares the tables at one rank, from the lowest values to the highest: on the dashed line "
        f"they would be equal, above it {found.names[1]} is higher."
    )
    if len(found.features) > 1:
        introduction = (
            "Columns may differ together more than alone. Below are the weighted sums of columns along which "
            f"the tables were found to lie furthest apart. {introduction} These sums were chosen to be "
            "different, so along them even two random halves of one table lie apart."
        )
    return f"<p>{escaped(introduction)}</p>\n{_figures(_along(found, told.directions))}"


def _along(found: Comparison, directions: Sequence[DifferentDirection]) -> Iterator[Figure]:
    for direction in directions:
        picture = picture_quantiles(
            found.sample_x,
            found.sample_y,
            direction,
            x_weights=found.sample_x_weights,
            y_weights=found.sample_y_weights,
            labels=found.names,
            unit=_unit(found),
        )
        yield Figure(picture, f"Here the tables are {direction.distance:.3g} apart.")


def _figures(figures: Iterator[Figure]) -> str:
    drawn = "".join(
        f"<figure>\n<figcaption><h3>{escaped(figure.picture.title)}</h3><p>{escaped(figure.caption)}</p>"
        f"</figcaption>\n{render_picture(figure.picture)}\n{render_key(figure.picture)}</figure>\n"
        for figure in figures
    )
    return f'<div class="figures">\n{drawn}</div>\n' if drawn else ""


def _feature_table(found: Comparison) -> str:
    told = found.explanation
    if told is None:
        return ""
    a, b = found.names
    numbers = (f"mean in {a}", f"mean in {b}", f"spread in {a}", f"spread in {b}")
    head = "".join(f'<th scope="col" class="number">{escaped(name)}</th>' for name in numbers)
    rows = []
    for f in told.features[:_MOST_FEATURES]:
        change = escaped(change_in_words(f._replace(change=f.change.replace("->", "\u2192")), b))
        cells = "".join(
            f'<td class="number">{number(v, 4)}</td>' for v in (f.x_mean, f.y_mean, f.x_spread, f.y_spread)
        )
        rows.append(
            f'<tr><th scope="row">{_name(cut(str(f.name), _LONGEST_NAME))}</th>'
            f'<td class="number">{f.share:.1%}</td><td class="words">{change}</td>{cells}</tr>'
        )
    left = len(told.features) - len(rows)
    more = f" The {left:,} that differ least are left out." if left else ""
    return (
        f'<p class="lead" id="columns">Columns, the most different first, each alone: its part of the '
        f"difference, and what changes. Spread is the standard deviation.{more}</p>\n"
        '<div class="scrolls" role="region" aria-label="Columns, the most different first" tabindex="0">\n'
        '<table aria-labelledby="columns"><thead><tr><th scope="col">column</th>'
        f'<th scope="col" class="number">part</th><th scope="col">what changes</th>{head}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table>\n</div>\n"
    )


def _repeat(found: Comparison, command: Sequence[str] | None) -> str:
    told = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in _computed(found))
    shell = ""
    if command is not None:
        shell = f"<h3>On the command line</h3>\n<pre><code>{escaped(shlex.join(command))}</code></pre>\n"
    code = "\n".join(escaped(line) for line in _code(found))
    return _folded(
        "What was computed, and how to repeat it",
        f"<dl>{told}</dl>\n{shell}"
        "<h3>In Python</h3>\n<p>With the two tables as data frames <code>x</code> and <code>y</code>, in these "
        f"units:</p>\n<pre><code>{code}</code></pre>\n",
    )


def _computed(found: Comparison) -> Iterator[tuple[str, str]]:
    (a, b), dim = found.names, len(found.columns) or len(found.features)
    columns = f"{dim:,} columns" if dim > 1 else "1 column"
    yield a, f"{len(found.x):,} rows of {columns}"
    yield b, f"{len(found.y):,} rows of {columns}"
    if found.is_sampled:
        rows = f"{len(found.sample_x):,} and {len(found.sample_y):,} rows"
        whole = "the sliced distance and for columns" if found.columns else "the sliced distance"
        yield "Looked at", f"all rows for {whole}; {rows} at random for the rest"
    yield "Lengths", found.units
    for label, estimate in (("Sliced distance", found.sliced), ("Projected distance", found.projected)):
        if estimate is not None:
            yield label, repr(estimate)
    if found.bounds is not None:
        yield "Bounds", repr(found.bounds)
    if found.exact is not None:
        yield "Exactly", f"W_{found.p:g} = {found.exact:.6g}"
    if found.test is not None:
        yield "Test", repr(found.test)
    if found.explanation is not None:
        told = found.explanation
        yield "Columns", f"n_directions={told.n_directions}, rng={told.seed}, p={told.p:g}"
    yield "Seed", str(found.seed)
    python = platform.python_version()
    yield "Versions", f"orthoslice {orthoslice.__version__}, NumPy {np.__version__}, Python {python}"


def _code(found: Comparison) -> Iterator[str]:
    # Options that have their default are left out.
    usual = {name: q.default for name, q in inspect.signature(compare).parameters.items()}
    given = {"names": found.names, "units": found.units, **found.options}
    passed = [f"{name}={value!r}" for name, value in given.items() if value != usual[name]]
    weights = {"x_weights": found.x_weights, "y_weights": found.y_weights}
    passed += [f"{name}={name}" for name, value in weights.items() if value is not None]
    yield "import orthoslice as osl"
    yield ""
    yield f"found = osl.compare({', '.join(['x', 'y', *passed, f'rng={found.seed}'])})"
    yield "print(found)"
    yield 'found.write_report("report.html")'


def _unit(found: Comparison) -> str:
    """What lengths are counted in, as it stands in parentheses."""
    return found.units.removeprefix("in ")


def _name(name: object) -> str:
    """A name from the user in ``<bdi>``: a right-to-left script in it does not turn the words around it."""
    return f"<bdi>{escaped(name)}</bdi>"
