"""The report: one file that shows every picture, asks for nothing, and runs nothing."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import io
import itertools
import json
import re
import shlex
import string
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from typer.testing import CliRunner

import orthoslice as osl
from orthoslice.applications.compare.pictures import picture_null
from orthoslice.applications.compare.report.svg import render_picture, tick_labels, ticks
from orthoslice.backend.markup import cut, escaped, shown, shown_json
from orthoslice.cli import app

pd = pytest.importorskip("pandas")

COLUMNS = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "a & b; \u202egnol " + "long " * 30,
]
NAMES = ("<script>alert(3)</script>.csv", "/data/'quoted' & \udcff\x1b[2J.csv")
N_FOLDED = 8
"""Chance, bounds, directions, convergence, columns, and three sums of columns."""
N_FIGURES = N_FOLDED + 3
"""All columns of `tables` change, and each is shown."""

# No difference has no columns, one column one direction, two columns two sums, and weights no test. Columns
# that are not found to change are not shown: two rows, and weights, tell nothing of them.
N_ODD_FIGURES = {"same": 4, "one column": 4 + 1, "constant": 7 + 2, "two rows": N_FOLDED, "weights": 7}


def tables(dim=3):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, dim)), rng.normal(size=(70, dim)) + 0.7
    return x, y


@pytest.fixture(scope="module")
def found():
    """A comparison of tables whose names would do harm, were they taken for HTML."""
    x, y = (pd.DataFrame(table, columns=COLUMNS) for table in tables())
    return osl.compare(x, y, names=NAMES, n_permutations=99, rng=0)


@pytest.fixture(scope="module")
def page(found):
    return found.to_html(command=["orthoslice", "report", "a b.csv", "<b>.csv"])


class Outline(html.parser.HTMLParser):
    """Tags with their attributes, the texts between them, and whether they are nested well."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts, self._open = [], {}, []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_page_is_made_of_harmless_parts_only(page):
    outline = Outline(page)
    used = {tag for tag, _ in outline.tags}
    assert not used & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "image",
        "use",
        "foreignobject",
    }
    for _, attributes in outline.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "style")]
        assert attributes.get("href", "#main") in ("#main", "data:,")
    (style,) = outline.texts["style"]
    assert "url(" not in style
    assert "@import" not in style


def image_folders(tmp_path, colour):
    """Two folders of 9 images of 4 x 6 pixels; the seventh pixel is brighter in the second one."""
    pil = pytest.importorskip("PIL.Image")
    draw, shape = np.random.default_rng(0), (4, 6, 3) if colour else (4, 6)
    for name, brighter in (("before", 0), ("after", 120)):
        (tmp_path / name).mkdir()
        for k in range(9):
            pixels = draw.integers(0, 100, shape)
            pixels[1, 0] += brighter
            pil.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f"{k}.png")
    return tmp_path / "before", tmp_path / "after"


@pytest.mark.parametrize("colour", [False, True])
def test_folders_of_images_are_shown_as_images(tmp_path, colour):
    pil = pytest.importorskip("PIL.Image")
    folders = [str(folder) for folder in image_folders(tmp_path, colour)]
    page = tmp_path / "page.html"
    options = ["-o", str(page), "--n-permutations", "99"]
    assert CliRunner().invoke(app, ["report", *folders, *options]).exit_code == 0
    outline = Outline(page.read_text())
    titles = outline.texts["h3"]
    assert titles[:3] == ["Mean of before", "Mean of after", "Difference of the means"]
    images = outline.all("img")
    assert len(images) == 3 + 4
    # Of single pixels nothing is told, nor in what units.
    assert "Each was looked at alone." in page.read_text()
    assert "Standard deviations are" not in page.read_text()
    # What comes from elsewhere is refused by the policy, and there is nothing of the kind.
    drawn = [base64.b64decode(i["src"].removeprefix("data:image/png;base64,")) for i in images]
    mean, _, gap, pair = (np.asarray(pil.open(io.BytesIO(d))) for d in drawn[:4])
    assert mean.shape == gap.shape == (4, 6, 3)
    assert pair.shape == (4, 6 + 1 + 6, 3)
    files = [np.asarray(pil.open(f).convert("RGB"), dtype=float) for f in sorted(Path(folders[0]).iterdir())]
    np.testing.assert_allclose(mean, np.mean(files, axis=0), atol=0.51)
    # Orange in full where the second folder is brighter, and hardly any colour elsewhere.
    assert gap[1, 0].tolist() == [192, 78, 0]
    assert np.delete(gap.reshape(-1, 3), 6, axis=0).min() > 100
    # A table, and images in other units, are shown column by column.
    options += ["--standardize"]
    assert CliRunner().invoke(app, ["report", *folders, *options]).exit_code == 0
    assert not Outline(page.read_text()).all("img")


def test_names_are_shown_as_text(page):
    outline = Outline(page)
    words = " ".join(text for texts in outline.texts.values() for text in texts)
    for name in (*COLUMNS[:2], NAMES[0], r"/data/'quoted' & \udcff\x1b[2J.csv"):
        assert name in words
    assert "\u202e" not in page
    page.encode("utf-8")
    # The check can fail: the very name would be a tag.
    assert Outline(COLUMNS[0]).all("script")


def test_the_policy_allows_this_style_and_nothing_else(page):
    outline = Outline(page)
    (policy,) = (a["content"] for a in outline.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    (style,) = outline.texts["style"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"
    # It must come before whatever it is to hold back.
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_figures_can_be_heard(page):
    outline = Outline(page)
    assert len(outline.all("figure")) == len(outline.all("figcaption")) == N_FIGURES
    drawn = [a for a in outline.all("svg") if "swatch" not in a.get("class", "")]
    assert len(drawn) == N_FIGURES
    for attributes in drawn:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 40
    assert all(a["aria-hidden"] == "true" for a in outline.all("svg") if "swatch" in a.get("class", ""))


def test_headings_and_landmarks_are_in_order(page):
    outline = Outline(page)
    assert outline.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert [len(outline.all(tag)) for tag in ("header", "main", "title")] == [1, 1, 1]
    assert all("scope" in attributes for attributes in outline.all("th"))


def test_numbers_are_those_of_the_comparison(found, page):
    words = html.unescape(page)
    for shown_number in (
        f"W_2 is {found.exact:.4g} for certain.",
        f"SW_2 = {found.sliced.distance:.4g}",
        f"(p = {found.test.pvalue:.3g})",
        f"{found.explanation.features[0].share:.1%}",
    ):
        assert shown_number in words


def test_the_same_comparison_makes_the_same_page(found, page):
    assert found.to_html(command=["orthoslice", "report", "a b.csv", "<b>.csv"]) == page


def test_it_says_how_to_repeat_it(page):
    codes = [html.unescape(code) for code in re.findall("<pre><code>(.*?)</code></pre>", page, re.DOTALL)]
    assert shlex.split(codes[0]) == ["orthoslice", "report", "a b.csv", "<b>.csv"]


def test_the_python_of_the_report_repeats_it(tmp_path, monkeypatch):
    x, y = tables()
    options = {"names": ("a", "it's"), "units": "in mm", "n_permutations": 49, "p": 3, "rtol": 0.2}
    weights = {"x_weights": np.arange(1, 81) / np.arange(1, 81).sum()}
    for more in ({}, weights):
        found = osl.compare(x, y, rng=5, **options, **more)
        page = found.to_html()
        (code,) = re.findall("<pre><code>(.*?)</code></pre>", page, re.DOTALL)
        assert "memory" not in code  # as it is by default
        monkeypatch.chdir(tmp_path)
        told = io.StringIO()
        with redirect_stdout(told):
            exec(html.unescape(code), {"x": x, "y": y, **more})
        assert told.getvalue().strip() == repr(found)
        assert (tmp_path / "report.html").read_text(encoding="utf-8") == page


def test_the_command_of_the_report_repeats_it(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from orthoslice.cli import app

    monkeypatch.chdir(tmp_path)
    for name, table in zip(("a b.csv", "<c>.csv"), tables(), strict=True):
        pd.DataFrame(table, columns=COLUMNS).assign(label="2020-01-01").to_csv(name, index=False)
    words = ["report", "a b.csv", "<c>.csv", "--standardize", "--n-permutations", "19", "-o", "it.html"]
    pages = []
    for _ in range(2):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        pages.append((tmp_path / "it.html").read_text(encoding="utf-8"))
        (code, _) = re.findall("<pre><code>(.*?)</code></pre>", pages[-1], re.DOTALL)
        program, *words = shlex.split(html.unescape(code))
        assert program == "orthoslice"
    assert pages[0] == pages[1]
    assert "--standardize" in words
    assert "--whiten" not in words
    assert "column &#x27;label&#x27; is left out" in pages[0]  # what was said of the files
    assert "standard deviations" in pages[0]


def test_how_to_scale_is_told_in_the_words_of_the_caller():
    x, y = (table * [1, 1, 1000] for table in tables())
    found = osl.compare(x, y, n_permutations=9, rng=0)
    assert "pass `*osl.scaled([x, y])`" in found.to_html()
    assert "add --standardize" in found.to_html(scale_hint="add --standardize")


def test_warnings_come_first_and_the_rest_is_folded_away(found):
    page = found.to_html(notes=["a.csv: column 'id' is left out"])
    places = [page.index(part) for part in ("is left out", "Are they different?", "<figure>", "<details>")]
    assert places == sorted(places)
    assert page.count("<details>") == 2
    assert "<details open" not in page
    assert "notice" not in found.to_html()[page.index("<body>") :]


def test_parts_that_are_missing_are_left_out(found):
    only = dataclasses.replace(found, test=None, bounds=None, projected=None, explanation=None)
    assert len(Outline(only.to_html()).all("figure")) == 2
    nothing = dataclasses.replace(only, sliced=None)
    assert Outline(nothing.to_html()).all("figure") == []


@pytest.mark.parametrize(
    "kind", ["same", "one column", "two rows", "constant", "weights", "tiny", "huge", "many"]
)
def test_odd_tables_make_whole_pages(kind):
    x, y = tables(60 if kind == "many" else 3)
    options = {}
    if kind == "same":
        y = x.copy()
    elif kind == "one column":
        x, y = x[:, :1], y[:, :1]
    elif kind == "two rows":
        x, y = x[:2], y[:2]
    elif kind == "constant":
        x, y = np.zeros((9, 2)), np.ones((8, 2))
    elif kind == "weights":
        options["x_weights"] = np.arange(1, 81) / np.arange(1, 81).sum()
    elif kind in ("tiny", "huge"):
        scale = 1e-30 if kind == "tiny" else 1e30
        x, y = x * scale, y * scale
    found = osl.compare(x, y, n_permutations=19, rng=0, **options)
    page = found.to_html()
    outline = Outline(page)
    coordinates = " ".join(
        str(value)
        for tag, attributes in outline.tags
        for name, value in attributes.items()
        if tag in ("rect", "line", "circle", "path", "polyline", "polygon", "text") and name != "class"
    )
    assert "nan" not in coordinates
    assert "inf" not in coordinates
    n_figures = len(outline.all("figure"))
    if kind != "many":
        assert n_figures == N_ODD_FIGURES.get(kind, N_FIGURES)
    else:
        assert N_FOLDED < n_figures <= N_FOLDED + 10
        assert "The 10 that differ least are left out." in page


def test_write_report_replaces_what_is_there(tmp_path, found, page):
    place = tmp_path / "report.html"
    place.write_text("old", encoding="utf-8")
    found.write_report(place)
    assert place.read_text(encoding="utf-8") == found.to_html() != page


def test_a_comparison_shows_itself_in_notebooks(found):
    told = found._repr_html_()
    assert "<script" not in told
    assert escaped(COLUMNS[0]) in told
    assert "Are they different?" in told


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.7, 4.1), (1.0901, 1.1035), (0, 3e-9), (1e6, 5e6), (5, 5.001)]
)
def test_ticks_are_round_and_can_be_told_apart(low, high):
    values = ticks(low, high)
    assert 3 <= len(values) <= 8
    assert low <= values[0] + 1e-12 * abs(high)
    assert values[-1] <= high * (1 + 1e-12)
    labels = tick_labels(values)
    assert len(set(labels)) == len(labels)
    np.testing.assert_allclose([float(t.replace(",", "")) for t in labels], values, atol=1e-9 * (high - low))


def test_text_that_is_shown_holds_nothing_that_acts():
    told = r"a b\x00\x9b\ud800\u2067c" + "\u0301\U0001f600"
    assert shown("a\nb\x00\x9b\ud800\u2067c\u0301\U0001f600") == told
    assert shown(told) == told
    names = ["\x1b\x7f\x85\x9b\u202e\u2069\u200f\ud800\U000f0000", "\n\u00e9\U0001f600"]
    harmless = shown_json(json.dumps(names, ensure_ascii=False, indent=2))
    assert json.loads(harmless) == names
    assert set(harmless) - set(string.printable) == {"\u00e9", "\U0001f600"}
    assert escaped('<a href="x">&\'') == "&lt;a href=&quot;x&quot;&gt;&amp;&#x27;"
    assert cut("x" * 100, 10) == "x" * 6 + "\u2026" + "x" * 3
    assert len(cut("y" * 100, 10)) == 10


def test_pictures_name_what_they_show(found):
    drawn = render_picture(picture_null(found.test))
    assert f"so that p = {found.test.pvalue:.3g}." in drawn


def test_a_value_beyond_the_picture_is_said_to_be(tmp_path):
    """The outer values of a column are counted in the outer bars, where -999 would look like no change."""
    draw = np.random.default_rng(0)
    for name, n_far, n_none in (("a", 0, 0), ("b", 32, 400)):
        u, v = draw.normal(size=(2, 8000))
        u[:n_far], v[:n_none] = -999, 0
        rows = "".join(f"{a},{b}\n" for a, b in zip(u, v, strict=True))
        (tmp_path / f"{name}.csv").write_text("u,v\n" + rows)
    options = ["--n-permutations", "99", "--n-directions", "16", "--max-rows", "200"]
    files = [str(tmp_path / f"{name}.csv") for name in "ab"]
    assert CliRunner().invoke(app, ["report", *files, "-o", str(tmp_path / "r.html"), *options]).exit_code == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "value -999: 0% \u2192 " in page
    assert page.count("-999 is beyond the picture and counts in the outer bar.") == 1
    assert page.count("is beyond the picture") == 1
    assert "value 0: 0% \u2192 " in page


def test_what_chance_leaves_is_said_of_the_right_side(found, page):
    """Distances are large where tables differ, and the smallest p-values of the default test are small."""
    assert found.test.method == "auto"
    assert found.test.statistic < np.quantile(found.test.null_distribution, 0.1)
    assert "The further it stands to the left of the bars, the less chance explains." in page
    assert "observed (p = 0.01)" in page
    of_distances = osl.compare(*tables(), 1, n_permutations=99, rng=0)
    assert of_distances.test.statistic > np.quantile(of_distances.test.null_distribution, 0.9)
    assert "The further it stands to the right of the bars, the less chance explains." in of_distances.to_html()


# In a browser

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

TEXTS_THAT_TOUCH = """
[...document.querySelectorAll('figure > svg')].flatMap((svg, k) => {
  const edge = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  const out = texts.filter(([, b]) => b.left < edge.left - 1 || b.right > edge.right + 1 ||
                                      b.top < edge.top - 1 || b.bottom > edge.bottom + 1).map(([t]) => [k, t]);
  // Boxes of letters have room above and below, which may be shared.
  const touch = (a, b) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom;
  const pairs = texts.flatMap(([t, a], i) =>
    texts.slice(0, i).filter(([, b]) => touch(a, b)).map(([u]) => [k, t, u]));
  return [...out, ...pairs];
})
"""

UNFOLD = "document.querySelectorAll('details').forEach(d => d.open = true)"

MOST_LINES = """
Math.max(...[...document.querySelectorAll('th, td')].map(cell => {
  const style = getComputedStyle(cell);
  const words = document.createRange();
  words.selectNodeContents(cell);
  return Math.round(words.getBoundingClientRect().height / parseFloat(style.lineHeight));
}))
"""

LEAST_CONTRAST = """
(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [.2126, .7152, .0722][k], 0);
  const behind = node => {
    for (let n = node; n; n = n.parentElement) {
      const c = rgb(getComputedStyle(n).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
  };
  const ratio = (node, property) => {
    const [a, b] = [light(rgb(getComputedStyle(node)[property])), light(behind(node))];
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  };
  const all = selector => [...document.querySelectorAll(selector)];
  const least = (selector, property) => Math.min(...all(selector).map(n => ratio(n, property)));
  return {
    words: least('h1, h2, h3, p, li, th, td, code', 'color'),
    labels: least('figure text', 'fill'),
    marks: Math.min(
      least('figure > svg :is(.found, .against, .quiet):not(.line)', 'fill'),
      least('figure > svg .line', 'stroke'),
    ),
  };
})()
"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(tmp_path_factory, page):
    place = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(page, encoding="utf-8")
    return place.as_uri()


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_in_a_browser(browser, address, width, scheme):
    browser.open(address, width=width, scheme=scheme)
    # What changed is seen at once, how it was found once it is asked for.
    seen = "[...document.querySelectorAll('figure > svg')].map(s => s.checkVisibility())"
    assert browser.evaluate(seen) == [True] * 3 + [False] * N_FOLDED
    browser.evaluate(UNFOLD)
    assert all(browser.evaluate(seen))
    assert browser.errors == []
    assert set(browser.requests) <= {address, "data:,"}
    assert browser.evaluate("document.querySelectorAll('figure > svg[role=img]').length") == N_FIGURES
    visible = "[...document.querySelectorAll('figure > svg')].every(s => s.getBoundingClientRect().height > 80)"
    assert browser.evaluate(visible)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(TEXTS_THAT_TOUCH) == []
    smallest = "Math.min(...[...document.querySelectorAll('figure > svg')].map(s => 13 * s.getScreenCTM().a))"
    assert browser.evaluate(smallest) >= 11  # pixels of letters
    contrast = browser.evaluate(LEAST_CONTRAST)
    # The levels of the Web Content Accessibility Guidelines, AA.
    assert contrast["words"] >= 4.5, contrast
    assert contrast["labels"] >= 4.5, contrast
    assert contrast["marks"] >= 3, contrast
    assert browser.evaluate(MOST_LINES) < 8
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 24, 28)")
    assert browser.evaluate("document.querySelector('h1').textContent").startswith(NAMES[0])


@needs_chromium
def test_keyboard_and_screen_reader_reach_everything(browser, address):
    browser.open(address, width=390)
    browser.press_tab()
    assert browser.evaluate("document.activeElement.getAttribute('href')") == "#main"
    assert (
        browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    )  # seen once it is reached
    browser.evaluate(UNFOLD)
    reached = []
    for _ in range(3):
        browser.press_tab()
        told = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
        reached.append(browser.evaluate(told))
    folded = ["How the answers came about", "What was computed, and how to repeat it"]
    assert reached == [folded[0], "Columns, the most different first", folded[1]]
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    heard = [(n["role"]["value"], n.get("name", {}).get("value")) for n in tree if not n["ignored"]]
    images = [name for role, name in heard if role in ("image", "img")]
    assert len(images) == N_FIGURES
    assert all(images)
    roles = {role for role, _ in heard}
    assert {"main", "heading", "table", "rowheader", "columnheader", "region"} <= roles


@needs_chromium
def test_what_slips_into_the_page_is_held_back_and_noticed(browser, page, tmp_path):
    """The checks above can fail, and the policy holds were a name not escaped."""
    evil = '<script>document.title = "taken"</script><img src="https://example.org/x.png"><p style="color:red">'
    place = tmp_path / "evil.html"
    place.write_text(page.replace("<header>", f"<header>{evil}"), encoding="utf-8")
    browser.open(place.as_uri())
    assert browser.evaluate("document.title") != "taken"
    assert len([e for e in browser.errors if "Content Security Policy" in e]) >= 3
    loose = tmp_path / "loose.html"
    loose.write_text(re.sub("<meta http-equiv=.*?>", "", place.read_text(encoding="utf-8")), encoding="utf-8")
    browser.open(loose.as_uri())
    assert browser.evaluate("document.title") == "taken"
    assert "https://example.org/x.png" in browser.requests
