"""Tables as people have them: categories, gaps, identifiers, notations, formats, groups and references."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import zipfile

import numpy as np
import pytest
from record_schema import DOCS, SCHEMA, check

import orthoslice as osl
from orthoslice.cli.encoding import CATEGORY_STEP
from orthoslice.cli.formats.source import FileError
from orthoslice.cli.matching import Choice
from orthoslice.cli.tables import read_tables

pa = pytest.importorskip("pyarrow")

QUICK = ("--n-permutations", 99, "--n-directions", 16)


def read(*names, **choice):
    """Tables, and what was said."""
    said = []
    return read_tables([str(n) for n in names], Choice(**choice), said.append), said


def write(path, columns, sep=","):
    """A text table of columns by name."""
    rows = zip(*columns.values(), strict=True)
    lines = [sep.join(columns), *(sep.join(str(cell) for cell in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def column(record, name):
    return next(c for c in record["columns"] if c["name"] == name)


# What a build must not stay green on.


def test_a_shift_beside_a_column_of_large_units_is_found(run, tmp_path):
    draw = np.random.default_rng(0)
    tables = []
    for name, shift in (("a", 0.0), ("b", 0.5)):
        tables.append(draw.normal(size=(400, 4)) * [1, 1, 1, 100] + [0, shift, 0, 0])
        write(tmp_path / f"{name}.csv", dict(zip("uvwz", tables[-1].T, strict=True)))
    files = tmp_path / "a.csv", tmp_path / "b.csv"
    result = run("test", *files, "--level", 0.05, *QUICK)
    assert result.exit_code == 1
    assert result.record["units"] == "standard"
    assert [c["name"] for c in result.record["columns"] if c["changed"]] == ["v"]
    assert result.record["columns"][0]["name"] == "v"
    words = " ".join(run("test", *files, "--words", *QUICK).stdout.split())
    assert "Are they different? Yes." in words
    assert "v p = " in words
    assert "higher in b.csv: mean" in words
    assert "No change was found in the 3 others." in words
    # The control: in units of the files a distance does not see it.
    assert osl.two_sample_test(*tables, rng=0).pvalue > 0.05
    assert run("test", *files, "--units", "raw", *QUICK).record["units"] == "raw"


def test_columns_that_no_longer_go_together_are_named(run, tmp_path):
    draw = np.random.default_rng(0)
    files = []
    for name, together in (("a", 0.8), ("b", 0.0)):
        u, v, w = draw.normal(size=(3, 200))
        columns = {"age": u, "weight": w, "height": together * u + np.sqrt(1 - together**2) * v}
        files.append(write(tmp_path / f"{name}.csv", columns))
    result = run("test", *files, "--level", 0.05, *QUICK)
    assert result.exit_code == 1
    assert not any(c["changed"] for c in result.record["columns"])
    assert result.record["pair"]["columns"] == ["age", "height"]
    assert result.record["pair"]["pvalue"] == 0.01
    first, second = result.record["pair"]["correlation"]
    assert first > 0.6 > 0.2 > abs(second)
    words = " ".join(run("test", *files, "--words", *QUICK).stdout.split())
    assert "In none alone, by all 200 and 200 rows." in words
    told = f"Columns do not go together as before, most surely age and height (rank correlation {first:.2f} ->"
    assert told in words
    some = " ".join(run("test", *files, "--max-rows", 150, "--words", *QUICK).stdout.split())
    assert some.index("were shuffled") < some.index("Column by column") < some.index("Of the two looks")
    assert "In 150 rows of each table, chosen at random, columns do not go together as before, most" in some
    # The control: where they go together as before nothing is said of it.
    assert "go together" not in run("test", files[0], files[0], "--words", *QUICK).stdout
    same = write(tmp_path / "c.csv", {"age": u, "weight": w, "height": v})
    assert "go together" not in run("test", files[1], same, "--words", *QUICK).stdout


def test_many_small_changes_are_told_as_such(run, tmp_path):
    """A shift of 60 columns, too small for any one of them; other seeds show it in one or in a pair too."""
    draw = np.random.default_rng(1)
    files = []
    for name, shift in (("a", 0.0), ("b", 0.14)):
        values = draw.normal(size=(150, 60)) + shift
        files.append(write(tmp_path / f"{name}.csv", {f"c{k}": column for k, column in enumerate(values.T)}))
    options = "--n-permutations", 99, "--n-directions", 64
    found = run("test", *files, *options).record
    assert found["verdict"]["different"]
    assert not any(c["changed"] for c in found["columns"])
    words = " ".join(run("test", *files, "--words", *options).stdout.split())
    assert "The difference is in many small changes, or in how columns go together." in words


def test_tables_of_one_row(run, tmp_path):
    files = [write(tmp_path / f"{name}.csv", {"u": [k], "v": [2]}) for k, name in enumerate("ab")]
    result = run("compare", *files, "--words", *QUICK)
    words = " ".join(result.stdout.split())
    assert "a.csv (1 row) and b.csv (1 row), 2 columns" in words
    assert "Are they different? It cannot be told." in words
    assert "So few rows give no p-value below 1, whatever they hold." in words
    # There are no two rows to pick, and columns are in common units already.
    assert "picked at random" not in words
    assert "--standardize" not in words
    assert "(the same in 20 shuffles)" in words


@pytest.mark.parametrize(
    ("rows", "level", "code", "told"),
    [
        (3, 0.2, 1, "Probably. "),
        (3, 0.05, 0, "It cannot be told. "),
        (40, 0.05, 1, "Yes. "),
        (40, 0.001, 0, "It cannot be told. "),
    ],
)
def test_words_follow_the_level_as_the_exit_code_does(run, tmp_path, rows, level, code, told):
    files = [write(tmp_path / f"{name}.csv", {"u": k + np.arange(rows) / 99}) for k, name in enumerate("ab")]
    result = run("test", *files, "--columns", "u", "--level", level, "--words", *QUICK)
    words = " ".join(result.stdout.split())
    assert result.exit_code == code
    assert f"Are they different? {told}" in words
    assert ("It cannot be told in which, by all 3 and 3 rows." in words) == (rows == 3 and not code)
    assert (f"p counts as a difference up to {level}" in words) == (level != 0.05)
    assert ("p cannot be smaller with 99 shuffles" in words) == (level == 0.001)


def test_copies_are_equal_however_many_rows_are_looked_at(run, tmp_path):
    draw = np.random.default_rng(2)
    a = {"u": draw.normal(size=300), "k": draw.choice(["x", "y", "z"], size=300)}
    write(tmp_path / "a.csv", a)
    write(tmp_path / "b.csv", {name: values[::-1] for name, values in a.items()})
    files = tmp_path / "a.csv", tmp_path / "b.csv"
    record = run("compare", *files, "--max-rows", 100, *QUICK).record
    check(record)
    assert record["equal"]
    assert not record["verdict"]["different"]
    assert record["bounds"]["upper"] == 0
    words = " ".join(run("compare", *files, "--max-rows", 100, "--words", *QUICK).stdout.split())
    assert "Are they different? No: they are equal." in words
    assert not run("compare", files[0], write(tmp_path / "c.csv", a | {"u": a["u"] + 1}), *QUICK).record[
        "equal"
    ]


def test_a_pvalue_near_the_level_is_told_with_its_error(run, tmp_path):
    draw = np.random.default_rng(1)
    files = [
        write(tmp_path / f"{name}.csv", {"u": draw.normal(0.3 * k, 1, size=60)}) for k, name in enumerate("ab")
    ]
    found = run("test", *files, *QUICK).record["test"]
    p = found["pvalue"]
    assert found["stderr"] == pytest.approx(np.sqrt(p * (1 - p) / 100))
    for level, told in ((p, True), (p + found["stderr"], True), (p + 5 * found["stderr"], False)):
        words = " ".join(run("test", *files, "--level", level, "--words", *QUICK).stdout.split())
        assert (f"on either side of {level:g}: more shuffles can tell." in words) == told


def test_a_verdict_is_of_the_columns_looked_at(run, tmp_path):
    """Dates that are ten years later, and numbers that are words, do not hide behind "no difference"."""
    draw = np.random.default_rng(2)
    u, days = draw.normal(size=(2, 60)), draw.integers(0, 365, size=60)
    files = []
    for k, name in enumerate("ab"):
        dates = np.datetime64("2020-01-01") + 3650 * k + days
        cells = {"u": u[k], "born": dates, "weight": [f"{w + 10 * k:.6f}kg" for w in u[k]]}
        files.append(write(tmp_path / f"{name}.csv", cells))
    left = "2 were left out: 'born' (dates or times), 'weight' (identifiers: no two rows have the same)."
    for others, told in (
        (files[1:], "No difference was found in the column looked at; "),
        (files[:1], "No: they are equal in the column looked at; "),
        (files[1:] * 2, "No difference was found in the column looked at; "),
    ):
        result = run("test", files[0], *others, *QUICK)
        check(result.record)
        assert [column["name"] for column in result.record["left_out"]] == ["born", "weight"]
        words = " ".join(run("test", files[0], *others, "--words", *QUICK).stdout.split())
        assert told + left in words
    # Those who name what they leave out know it.
    options = "--ignore", "born,weight", *QUICK
    assert "left_out" not in run("test", *files, *options).record
    assert "No difference was found. " in run("test", *files, "--words", *options).stdout.replace("\n", " ")


def test_equal_but_for_values_that_count_together(run, tmp_path):
    often = [f"v{k}" for k in range(50)] * 4
    files = [
        write(tmp_path / f"{name}.csv", {"k": [*often, *(f"{name}{j}" for j in range(9))]}) for name in "ab"
    ]
    words = " ".join(run("test", *files, "--words", *QUICK).stdout.split())
    assert "But rare values of 'k' count as one: whether they agree is not known." in words


def test_many_rows_are_not_called_few(run, tmp_path):
    """Beside a p-value of all rows there is one of the columns, which says nothing of how small it could be."""
    draw = np.random.default_rng(2)
    files = [write(tmp_path / f"{name}.csv", {"u": draw.normal(size=300)}) for name in "ab"]
    words = " ".join(run("compare", *files, "--max-rows", 100, "--words", *QUICK).stdout.split())
    assert "Column by column, all 300 and 300 rows were compared" in words
    assert "So few rows" not in words
    assert "was looked at in 100 rows of each table only" in words


def test_both_values_are_told_where_a_table_has_one(run, tmp_path):
    draw = np.random.default_rng(0)
    cells = (["x"] * 50, ["y"] * 50, ["x", "y"] * 25)
    files = [
        write(tmp_path / f"{name}.csv", {"k": k, "u": draw.normal(size=50)})
        for name, k in zip("abc", cells, strict=True)
    ]
    for pair, words, shares in (
        (files[:2], "only a.csv has 'x'; only b.csv has 'y'", {"x": [1, 0], "y": [0, 1]}),
        (files[2::-2], "only c.csv has 'y'", {"x": [0.5, 1], "y": [0.5, 0]}),
        (files[2:0:-1], "only c.csv has 'x'", {"x": [0.5, 0], "y": [0.5, 1]}),
    ):
        record = run("test", *pair, *QUICK).record
        told = column(record, "k")["shares"]
        assert {value["value"]: value["share"] for value in told} == shares
        assert words in " ".join(run("test", *pair, "--words", *QUICK).stdout.split())


def test_a_category_that_turns_around_is_found(run, tmp_path):
    draw = np.random.default_rng(0)
    for name, share in (("a", 0.1), ("b", 0.9)):
        write(
            tmp_path / f"{name}.csv",
            {"u": draw.normal(size=200), "k": np.where(draw.random(200) < share, "b", "a")},
        )
    files = tmp_path / "a.csv", tmp_path / "b.csv"
    result = run("test", *files, "--level", 0.05, *QUICK)
    assert result.exit_code == 1
    first = result.record["columns"][0]
    assert (first["name"], first["kind"], first["changed"]) == ("k", "category", True)
    (told,) = first["shares"]
    assert told["value"] == "b"
    assert told["share"] == pytest.approx([0.1, 0.9], abs=0.07)
    words = " ".join(run("compare", *files, "--words", *QUICK).stdout.split())
    assert f"'b': {100 * told['share'][0]:.3g}% -> {100 * told['share'][1]:.3g}%" in words


def test_a_small_shift_of_many_rows_is_found_by_all_of_them(run, tmp_path):
    """0.03 standard deviations of 100,000 rows (z = 6.7), of which the test looks at 100."""
    draw = np.random.default_rng(0)
    for name, shift in (("a", 0.0), ("b", 0.03)):
        table = {f"c{k}": draw.normal(size=100_000) + shift * (k == 1) for k in range(3)}
        pa.parquet = pytest.importorskip("pyarrow.parquet")
        pa.parquet.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    files = tmp_path / "a.parquet", tmp_path / "b.parquet"
    result = run("test", *files, "--level", 0.05, "--max-rows", 100, "--memory", "30MB", *QUICK)
    assert result.exit_code == 1
    assert result.record["columns"][0]["name"] == "c1"
    assert result.record["columns"][0]["rows"] == [100_000, 100_000]
    assert result.record["rows_looked_at"] == [100, 100]
    assert result.record["test"]["pvalue"] > 0.05
    words = " ".join(run("compare", *files, "--words", "--max-rows", 100, *QUICK).stdout.split())
    assert "all 100,000 and 100,000 rows were compared" in words
    assert "100 rows of each table, chosen at random, were shuffled" in words
    # What decides comes first.
    assert words.index("Column by column") < words.index("were shuffled") < words.index("Of the two looks")
    assert "exact about those rows, not about the files" in words


# Units.


def test_units_of_tables_and_of_arrays(run, tmp_path):
    points = np.random.default_rng(0).normal(size=(60, 2)) * [1, 50]
    files = []
    for name, rows in (("a", points[:30]), ("b", points[30:])):
        np.save(tmp_path / f"{name}.npy", rows)
        files.append(write(tmp_path / f"{name}.csv", dict(zip("uv", rows.T, strict=True))))
    arrays = [file.with_suffix(".npy") for file in files]
    scaled = float(osl.sliced_wasserstein(*osl.scaled([points[:30], points[30:]]), rng=0).distance)
    raw = float(osl.sliced_wasserstein(points[:30], points[30:], rng=0).distance)
    for options, of_tables, of_arrays in (
        ((), "standard", "raw"),
        (("--standardize",), "standard", "standard"),
        (("--units", "standard"), "standard", "standard"),
        (("--units", "raw"), "raw", "raw"),
        (("--whiten",), "whiten", "whiten"),
    ):
        for some, units in ((files, of_tables), (arrays, of_arrays)):
            found = run("distance", *some, *options).record
            assert found["units"] == units
            if units != "whiten":
                expected = scaled if units == "standard" else raw
                assert found["sliced"]["distance"] == pytest.approx(expected, rel=1e-9)
    assert "not both" in run("distance", *files, "--units", "raw", "--whiten").stderr
    assert "not both" in run("distance", *files, "--units", "raw", "--standardize").stderr


def test_columns_are_told_in_their_own_units(run, tmp_path):
    draw = np.random.default_rng(0)
    tables = [{"metres": draw.normal(loc, 2, size=300)} for loc in (170.0, 175.0)]
    files = [write(tmp_path / f"{k}.csv", table) for k, table in enumerate(tables)]
    for units in ("standard", "raw"):
        found = run("compare", *files, "--units", units, *QUICK).record
        for told in (column(found, "metres"), found["features"][0]):
            assert told["mean"] == pytest.approx([t["metres"].mean() for t in tables])
            assert told["spread"] == pytest.approx([t["metres"].std() for t in tables])
        assert "mean 170 -> 175" in found["features"][0]["change"]
    run("report", *files, "-o", tmp_path / "r.html", *QUICK)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "in standard deviations of the columns" in page
    assert f"{tables[0]['metres'].mean():.4g}" in page


def test_a_category_that_moves_counts_as_a_number_that_moves_by_two_deviations(tmp_path):
    for values, step in (("ab", CATEGORY_STEP), ("abc", CATEGORY_STEP)):
        cells = list(values) * 4
        path = write(tmp_path / "a.csv", {"k": cells, "u": np.random.default_rng(0).normal(size=len(cells))})
        (table, _), _ = read(path, path, scale="auto")
        points = table.points[:, :-1]
        assert np.linalg.norm(points[0] - points[1]) == pytest.approx(step)
        assert np.unique(points, axis=0).shape == (len(values), 1 if len(values) == 2 else len(values))


def test_far_values_that_set_a_unit_are_told(tmp_path):
    values = np.random.default_rng(0).normal(size=2000)
    plain = write(tmp_path / "a.csv", {"u": values})
    far = write(tmp_path / "b.csv", {"u": np.append(values[:-1], 1e6)})
    assert read(plain, plain, scale="auto")[1] == []
    told = "A few far values set the standard deviation of 'u'"
    assert told in read(plain, far, scale="auto")[1][0]
    # What fills gaps is one value, from which the others are not far.
    even = write(tmp_path / "c.csv", {"u": np.linspace(-1, 1, 2000)})
    gaps = write(tmp_path / "d.csv", {"u": [*np.linspace(-1, 1, 10), *["NA"] * 1990]})
    assert read(even, gaps, scale="auto", missing="indicate")[1] == []
    assert told in read(far, gaps, scale="auto", missing="indicate")[1][0]


# Categories, identifiers, gaps.


def test_categories_of_many_values_and_of_types(tmp_path):
    feather = pytest.importorskip("pyarrow.feather")
    many = [f"v{k}" for k in range(60) for _ in range(4)]
    table = {
        "kind": pa.array(many).dictionary_encode(),
        "ok": pa.array([True, False] * 120),
        "code": pa.array([1, 2, 3, 4] * 60).dictionary_encode(),
        "text": pa.array([str(k / 8) for k in range(240)]),
    }
    feather.write_feather(pa.table(table), str(tmp_path / "a.feather"))
    (found, _), said = read(*[tmp_path / "a.feather"] * 2)
    assert said == []
    kinds = {c.name: c for c in found.encoding.columns}
    assert len(kinds["kind"].levels) == 51
    assert kinds["kind"].levels[-1] == "(other)"
    assert (kinds["ok"].levels, kinds["ok"].rest) == (("true",), "false")
    assert kinds["code"].is_category
    assert not kinds["text"].is_category
    np.testing.assert_array_equal(found.points[:, kinds["text"].place], np.arange(240) / 8)
    np.testing.assert_array_equal(found.points[:, kinds["kind"].features].sum(axis=1), 1)
    assert found.points[:, kinds["kind"].features[-1]].sum() == 40


def test_truth_values_of_all_formats_are_the_same(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    truths = [True, False, False, True, None]
    parquet.write_table(pa.table({"u": [1, 2, 4, 8, 3], "k": truths}), tmp_path / "a.parquet")
    for told in (("True", "False"), ("TRUE", "FALSE"), ("true", "false")):
        cells = ["" if truth is None else told[not truth] for truth in truths]
        path = write(tmp_path / "b.csv", {"u": [1, 2, 4, 8, 3], "k": cells})
        (one, other), _ = read(tmp_path / "a.parquet", path, missing="indicate")
        assert one.columns == ["u", "k = 'false'", "k = 'true'", "k = (missing)"]
        np.testing.assert_array_equal(one.points, other.points)


def test_values_that_only_one_file_has(run, tmp_path):
    a = write(tmp_path / "a.csv", {"k": ["x", "y"] * 60})
    b = write(tmp_path / "b.csv", {"k": ["x", "y", "z"] * 40})
    found = run("test", a, b, *QUICK).record
    assert column(found, "k")["shares"][0] == {"value": "z", "share": [0.0, pytest.approx(1 / 3)]}
    assert "only b.csv has 'z'" in " ".join(run("test", a, b, "--words", *QUICK).stdout.split())


def test_identifiers_are_left_out_and_said(run, tmp_path):
    draw = np.random.default_rng(0)
    table = {
        "row": range(20),
        "key": [f"k{k}" for k in draw.permutation(20)],
        "size": draw.permutation(20),
        "text": [f"a b {k // 2} {k}" for k in range(20)],
    }
    path = write(tmp_path / "a.csv", table)
    (found, _), said = read(path, path)
    assert found.columns == ["size"]
    assert any("column 'row' is left out: it holds row numbers or identifiers" in s for s in said)
    assert any("column 'key' is left out: it holds identifiers: no two rows have the same" in s for s in said)
    # Asked for, they are taken; ignored, they are not mentioned; with --strict they must be one of the two.
    assert read(path, path, columns=["row", "size"])[0][0].columns == ["row", "size"]
    assert read(path, path, ignore=("row", "key", "text"))[1] == []
    with pytest.raises(
        FileError, match=r"'row' would be left out: .* With --strict nothing is .*: --ignore row,key,text"
    ):
        read(path, path, strict=True)
    assert run("test", path, path, "--strict", "--ignore", "row,key,text", *QUICK).exit_code == 0
    assert run("test", path, path, "--strict", *QUICK).exit_code == 2
    assert "--ignore names 'no'" in run("test", path, path, "--ignore", "no").stderr


def test_columns_that_only_one_file_has_are_told_with_what_to_write(tmp_path):
    a = write(tmp_path / "a.csv", {"u": [1, 2, 4], "v": [3, 1, 2]})
    for names, told in (
        (("u", "v", "w,x", "z"), "write --ignore '\"w,x\",z'"),
        (("u", "z"), "write --ignore v,z"),
        (("U ", "V"), "They differ in blanks or capitals only"),
        (("r", "s"), "No name is in both: give columns the same names"),
        (("u", *"abcdefgh"), "Choose some with --columns"),
    ):
        columns = {f'"{name}"': [1, 2, 4] for name in names}
        with pytest.raises(FileError, match=re.escape(told)):
            read(a, write(tmp_path / "b.csv", columns))
    read(a, write(tmp_path / "b.csv", {"u": [1, 2, 4], "z": [3, 1, 2]}), ignore=("v", "z"))


def test_names_with_commas_are_quoted(run, tmp_path):
    rows = "\n".join(f"{k % 7},{k % 5},{k % 3}" for k in range(30))
    (tmp_path / "a.csv").write_text(f'"a,b",c,d\n{rows}\n')
    files = [tmp_path / "a.csv"] * 2
    assert run("bounds", *files, "--columns", '"a,b", d').record["inputs"][0]["columns"] == 2
    assert run("bounds", *files, "--ignore", '"a,b"').record["inputs"][0]["columns"] == 2


def test_a_text_of_many_values_is_no_category(tmp_path):
    path = write(
        tmp_path / "a.csv",
        {
            "t": [f"text {k // 2}" for k in range(20)] + [f"t{k}" for k in range(200)],
            "u": [k % 9 for k in range(220)],
        },
    )
    (_, _), said = read(path, path)
    assert "column 't' is left out: it holds free text: 210 different values" in said[0]


def test_gaps(run, tmp_path):
    draw = np.random.default_rng(0)
    files = []
    for name, share in (("a", 0.05), ("b", 0.3)):
        gaps = draw.random(400) < share
        numbers = [f"{u:.6f}" for u in draw.normal(5, 1, size=400)]
        files.append(
            write(
                tmp_path / f"{name}.csv",
                {
                    "u": ["" if gap else u for gap, u in zip(gaps, numbers, strict=True)],
                    "k": ["NA" if k % 20 == 0 else "xy"[k % 2] for k in range(400)],
                },
            )
        )
    refused = run("test", *files)
    assert refused.exit_code == 2
    assert "Write --missing indicate to compare the gaps too, --missing drop" in refused.stderr
    assert "'k' (20)" in refused.stderr
    found = run("test", *files, "--missing", "indicate", "--level", 0.01, *QUICK)
    assert found.exit_code == 1
    told = column(found.record, "u")
    assert told["changed"]
    assert told["missing"] == pytest.approx([0.05, 0.3], abs=0.05)
    # Means are those of the values that are there.
    assert told["mean"] == pytest.approx([5, 5], abs=0.2)
    assert not column(found.record, "k")["changed"]
    assert column(found.record, "k")["missing"] == pytest.approx([0.05, 0.05])
    dropped = run("test", *files, "--missing", "drop", *QUICK).record
    assert dropped["inputs"][0]["rows"] < 400
    assert not column(dropped, "u")["changed"]
    # A "no" says of which rows it is.
    words = " ".join(run("test", *files, "--missing", "drop", "--words", *QUICK).stdout.split())
    n_dropped = [400 - told["rows"] for told in dropped["inputs"]]
    told = "No difference was found; rows with gaps were left out: {} of a.csv, {} of b.csv."
    assert told.format(*n_dropped) in words
    assert "were left out" not in run("test", *files, "--missing", "indicate", "--words", *QUICK).stdout
    again = run("test", *files, "--drop-missing", *QUICK).record
    assert again["verdict"] == dropped["verdict"]


def test_gaps_of_arrays(tmp_path):
    points = np.random.default_rng(0).normal(size=(30, 2))
    points[3, 1] = np.nan
    np.save(tmp_path / "a.npy", points)
    (table, _), _ = read(*[tmp_path / "a.npy"] * 2, missing="indicate")
    assert table.columns == ["x0", "x1", "x1 is missing"]
    assert table.points[3, 2] == 1 == table.points[:, 2].sum()
    assert table.points[3, 1] == pytest.approx(np.nanmean(points[:, 1]))


def test_words_among_numbers_are_shown_with_what_to_write(run, tmp_path):
    values = [str(k % 10) for k in range(50)]
    values[7], values[9], values[30] = "unknown", "unknown", "n.a., sorry"
    quoted = [f'"{v}"' if "," in v else v for v in values]
    path = write(tmp_path / "a.csv", {"u": quoted, "v": range(50, 100)})
    result = run("test", path, path)
    assert result.exit_code == 2
    assert (
        "column 'u' holds 3 words among 50 values, such as 'unknown' (2), 'n.a., sorry' (1)." in result.stderr
    )
    assert """--na-values 'unknown,"n.a., sorry"' --missing indicate""" in result.stderr
    assert result.stderr.count("\n") == 1
    # What it says to write works.
    fixed = run("test", path, path, "--na-values", 'unknown,"n.a., sorry"', "--missing", "indicate", *QUICK)
    assert fixed.exit_code == 0
    assert column(fixed.record, "u")["missing"] == pytest.approx([0.06, 0.06])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbers_that_stand_for_missing_values(tmp_path, suffix):
    path = write(tmp_path / "a.csv", {"u": [1.5, -999, 2.5, "-999.0"] * 5})
    if suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "a.parquet"
        parquet.write_table(pa.table({"u": [1.5, -999.0, 2.5, -999.0] * 5}), path)
    (table, _), _ = read(path, path, missing="drop", na_values=("-999",))
    assert set(table.points[:, 0]) == {1.5, 2.5}


def test_a_column_of_numbers_in_one_file_and_words_in_another(tmp_path):
    a = write(tmp_path / "a.csv", {"u": [1.5, 2.5, 2.5]})
    b = write(tmp_path / "b.csv", {"u": ["high", "low", "low"]})
    with pytest.raises(
        FileError, match=r"'u' holds numbers in .*a.csv and words such as 'low' \(2\), 'high' \(1\) in"
    ):
        read(a, b)


@pytest.mark.parametrize(
    ("cells", "option", "choice"),
    [
        (["1,234.5", "12.5", "-2,000"], "--thousands ,", {"thousands": ","}),
        (["12,3", "4,25", "5"], "--decimal ,", {"decimal": ","}),
        (["1.234,5", "12,5", "-2.000,25"], "--decimal , --thousands .", {"decimal": ",", "thousands": "."}),
        (["1'234.5", "12.5", "-2'000"], """--thousands ''"'"''""", {"thousands": "'"}),
        (["1\u00a0234", "12", "-2 000"], "--thousands ' '", {"thousands": " "}),
        (["1\u202f234,5", "12,5", "-2 000"], "--decimal , --thousands ' '", {"decimal": ",", "thousands": " "}),
        (["5.5%", "12 %", "-7%"], "--signs %", {"signs": "%"}),
        (["$1,234.5", "$12.50", "-$2"], "--thousands , --signs '\\$'", {"thousands": ",", "signs": "$"}),
        (["12,5 €", "3 €", "-1 €"], "--decimal , --signs '€'", {"decimal": ",", "signs": "€"}),
    ],
)
def test_numbers_in_other_notations(tmp_path, cells, option, choice):
    path = write(tmp_path / "a.csv", {"u": cells * 5, "k": ["x", "y", "y"] * 5}, sep=";")
    with pytest.raises(FileError, match=f"'u' holds numbers such as .*; write {option} to read them"):
        read(path, path)
    (table, _), _ = read(path, path, **choice)
    mark, dot = choice.get("thousands") or "", choice.get("decimal", ".")
    bare = [cell.translate({ord(c): None for c in "%$€ \u00a0\u202f"}) for cell in cells * 5]
    expected = [float(cell.replace(mark, "").replace(dot, ".")) for cell in bare]
    np.testing.assert_array_equal(table.points[:, 0], expected)


@pytest.mark.parametrize(
    ("cells", "choice", "told"),
    [
        # A mark that parts thousands in most values and hundreds in one is a decimal comma in all.
        (["1,466", "1,702", "1,69"], {}, "'1,466'; write --decimal , to read them (that one as 1.466)"),
        (
            ["1,466", "1,702", "1,69"],
            {"thousands": ","},
            "'1,69'; write --decimal , to read them (that one as 1.69)",
        ),
        (["0,466", "0,702", "0,693"], {}, "write --decimal , to read them (that one as 0.466)"),
        # Where values can be both, the sentence says what they become.
        (["1,466", "1,702", "12,693"], {}, "write --thousands , to read them (that one as 12693)"),
        (
            ["10,130.99", "1,702.5", "693.1"],
            {"decimal": ","},
            "write --thousands , to read them (that one as 10130.99)",
        ),
    ],
)
def test_what_is_written_decides_between_notations(tmp_path, cells, choice, told):
    path = write(tmp_path / "a.csv", {"size (m)": cells * 5, "k": ["x", "y", "y"] * 5}, sep=";")
    with pytest.raises(FileError, match=re.escape(told)) as raised:
        read(path, path, **choice)
    # As a shell takes it.
    assert str(raised.value).endswith("--ignore 'size (m)'.")


def test_signs_are_asked_for_beside_another_notation(tmp_path):
    """Where a notation was named, and values are no numbers in it yet."""
    path = write(
        tmp_path / "a.csv", {"u": ["$1,234.5", "$12.50", "-$2"] * 5, "k": ["x", "y", "y"] * 5}, sep=";"
    )
    with pytest.raises(FileError, match=r"write --thousands , --signs '\$' to read them"):
        read(path, path, thousands=",")
    # A text that has signs among its letters is a category still.
    path = write(tmp_path / "b.csv", {"u": ["5% off", "10% off", "full"] * 5})
    (table, _), _ = read(path, path)
    assert table.columns == ["u = '10% off'", "u = '5% off'", "u = 'full'"]


def test_every_notation_of_a_file_is_asked_for(tmp_path):
    """Money beside percents: what one error says to write does not hide the next column as free text."""
    cells = {"p": ["5,5%", "12,0%"] * 60, "m": [f"{k}.234,{k} €" for k in range(1, 121)]}
    path = write(tmp_path / "a.csv", cells, sep=";")
    with pytest.raises(FileError, match=r"'p' holds .*; write --decimal , --signs % to"):
        read(path, path)
    with pytest.raises(FileError, match=r"'m' holds .*; write --decimal , --thousands \. --signs '%€' to"):
        read(path, path, decimal=",", signs="%")
    (table, _), said = read(path, path, decimal=",", thousands=".", signs="%€")
    assert table.columns == ["p", "m"]
    assert said == []
    assert table.points[1].tolist() == [12.0, 2234.2]


def test_days_are_no_thousands(tmp_path):
    """A mark between thousands makes no number of a day, and days are left out however they are written."""
    days = [f"{1 + k % 28:02}.{1 + k % 12:02}.2026" for k in range(60)]
    path = write(tmp_path / "a.csv", {"day": days, "m": ["1.234,5", "1.00.000,5", "7"] * 20}, sep=";")
    (table, _), said = read(path, path, decimal=",", thousands=".")
    assert table.columns == ["m"]
    assert table.points[:3, 0].tolist() == [1234.5, 100000.5, 7.0]
    assert said == [f"{path}: column 'day' is left out: it holds dates or times."]
    for text in ("3/14/26", "2026-12-24 18:00", "24.12.2026"):
        path = write(tmp_path / "b.csv", {"day": [text] * 3, "m": [1, 2, 5]})
        assert read(path, path)[0][0].columns == ["m"]
    # The control: versions and what only begins like a day are categories, and so is a day that was asked for.
    path = write(tmp_path / "v.csv", {"fw": ["1.2.0", "10.1.12", "10.1.12"], "m": [1, 2, 5]})
    assert read(path, path)[0][0].columns == ["fw = '10.1.12'", "m"]
    path = write(tmp_path / "c.csv", {"size": ["1-2-packs", "3-4-packs", "3-4-packs"], "m": [1, 2, 5]})
    assert read(path, path)[0][0].columns == ["size = '3-4-packs'", "m"]
    path = write(tmp_path / "d.csv", {"day": ["3/14/26", "3/15/26", "3/15/26"], "m": [1, 2, 5]})
    assert read(path, path, columns=["day"])[0][0].columns == ["day = '3/15/26'"]


def test_bars_between_columns(tmp_path):
    path = write(tmp_path / "a.csv", {"u": [1, 2, 5], "m": ["x", "y,z", "x"]}, sep="|")
    assert read(path, path)[0][0].columns == ["u", "m = 'y,z'"]


def test_encodings(run, tmp_path):
    text = "größe,k\n" + "1.5,é\n2.5,ü\n" * 5
    for encoding in ("latin-1", "utf-16", "utf-8"):
        (tmp_path / f"{encoding}.csv").write_bytes(text.encode(encoding))
    (table, other), said = read(tmp_path / "latin-1.csv", tmp_path / "utf-8.csv")
    assert table.columns == other.columns == ["größe", "k = 'ü'"]
    np.testing.assert_array_equal(table.points, other.points)
    assert said == [
        f"{tmp_path}/latin-1.csv: is not UTF-8, and is read as Latin-1 (Windows-1252); if it is neither, pass "
        "--encoding."
    ]
    # The euro is a sign of Windows' own, and some bytes are none there.
    (tmp_path / "euro.csv").write_bytes("m,k\n1 €,é\n2 €,ü\n".encode("cp1252"))
    assert read(*[tmp_path / "euro.csv"] * 2, signs="€")[0][0].columns[0] == "m"
    (tmp_path / "rare.csv").write_bytes(b"m,k\n1,\x81\n2,\xfc\n3,\xfc\n")
    (table, _), said = read(*[tmp_path / "rare.csv"] * 2)
    assert table.columns == ["m", "k = 'ü'"]
    assert "read as Latin-1;" in said[0]
    assert "--encoding utf-16" in run("bounds", *[tmp_path / "utf-16.csv"] * 2).stderr
    (table, _), said = read(*[tmp_path / "utf-16.csv"] * 2, encoding="utf-16")
    np.testing.assert_array_equal(table.points, other.points)
    assert said == []
    assert "must be known to Python" in run("bounds", *[tmp_path / "utf-8.csv"] * 2, "--encoding", "x").stderr
    assert "is not text in" in run("bounds", *[tmp_path / "latin-1.csv"] * 2, "--encoding", "utf-8").stderr


# Formats.

TABLE = {"u": [0.5, 1.5, 2.0, 4.0], "k": ["x", "y", "y", "x"]}


def test_every_format_of_tables_gives_the_same(tmp_path):
    pytest.importorskip("pyarrow.feather")
    from pyarrow import feather, ipc, parquet

    plain = write(tmp_path / "a.csv", TABLE)
    table = pa.table(TABLE)
    text = plain.read_bytes()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(text.replace(b",", b"\t")))
    (tmp_path / "a.csv.zst").write_bytes(pa.Codec("zstd").compress(text, asbytes=True))
    lines = [json.dumps(dict(zip(TABLE, row, strict=True))) for row in zip(*TABLE.values(), strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    feather.write_feather(table, str(tmp_path / "a.feather"))
    parquet.write_table(table, tmp_path / "a.parquet")
    with ipc.new_file(str(tmp_path / "file.arrow"), table.schema) as sink:
        sink.write_table(table)
    with ipc.new_stream(str(tmp_path / "stream.arrow"), table.schema) as sink:
        sink.write_table(table)
    files = sorted(path for path in tmp_path.iterdir() if path != plain)
    assert len(files) == 8
    for path in files:
        (expected, found), said = read(plain, path, scale="auto", tally=True)
        assert said == []
        assert found.columns == ["u", "k = 'y'"]
        np.testing.assert_array_equal(found.points, expected.points)
        np.testing.assert_array_equal(found.tally.mean, [2.0, 0.5])


def test_lines_of_json_that_change_their_mind(tmp_path):
    """Whole numbers become fractions and gaps beyond the first block of the reader."""
    lines = ['{"u": 1, "t": "a"}'] * 300_000 + ['{"u": 2.5}', '{"u": null, "t": "b", "more": 1}']
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    (table, _), _ = read(path, path, missing="drop", columns=["u"])
    assert table.points[-1, 0] == 2.5
    assert len(table.points) == 300_001


def test_sheets(tmp_path):
    excel = pytest.importorskip("openpyxl")
    book = excel.Workbook()
    for row in [list(TABLE), *zip(*TABLE.values(), strict=True)]:
        book.active.append(row)
    book.create_sheet("more").append(["z"])
    book["more"].append([1.5])
    book.save(tmp_path / "a.xlsx")
    (expected, found), _ = read(write(tmp_path / "a.csv", TABLE), tmp_path / "a.xlsx")
    np.testing.assert_array_equal(found.points, expected.points)
    assert read(*[f"{tmp_path}/a.xlsx::more"] * 2)[0][0].columns == ["z"]
    with pytest.raises(FileError, match="has the sheets"):
        read(*[f"{tmp_path}/a.xlsx::no"] * 2)


def test_sheets_without_their_reader(run, tmp_path, monkeypatch):
    (tmp_path / "a.xlsx").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    assert "pip install 'orthoslice[excel]'" in run("bounds", *[tmp_path / "a.xlsx"] * 2).stderr


# Many tables.


def grouped(tmp_path, n=900):
    draw = np.random.default_rng(0)
    site = draw.choice(list("ABC"), size=n)
    return write(
        tmp_path / "all.csv",
        {"id": range(n), "site": site, "u": draw.normal(size=n) + (site == "B"), "v": draw.normal(size=n)},
    )


def test_groups_of_one_table(run, tmp_path):
    path = grouped(tmp_path)
    result = run("compare", path, "--by", "site", "--level", 0.05, *QUICK)
    assert result.exit_code == 1
    check(result.record)
    batches = {b["name"]: b for b in result.record["batches"]}
    assert set(batches) == {"site = A", "site = B", "site = C"}
    assert sum(b["rows"] for b in batches.values()) == 900
    odd = batches["site = B"]
    assert odd["different"]
    assert odd["adjusted_pvalue"] >= odd["pvalue"]
    assert [c["name"] for c in odd["columns"] if c["changed"]] == ["u"]
    assert odd["columns"][0]["rows"] == [900 - odd["rows"], odd["rows"]]
    table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
    others = table["u"][table["site"] != "B"]
    assert odd["columns"][0]["mean"] == pytest.approx([others.mean(), table["u"][table["site"] == "B"].mean()])
    words = run("compare", path, "--by", "site", "--words", *QUICK).stdout
    assert words.index("site = B") < words.index("site = A")
    # Of the others each was compared with rows of B too.
    assert sum(b["different"] for b in batches.values()) > 1
    assert "makes the rest seem different too" in " ".join(words.split())
    assert run("test", path, "--by", "site", *QUICK).record["verdict"]["different"]


def test_two_groups_are_compared_with_each_other(run, tmp_path):
    draw = np.random.default_rng(0)
    path = write(tmp_path / "all.csv", {"sex": list("mf") * 100, "u": draw.normal(size=200)})
    found = run("compare", path, "--by", "sex", *QUICK).record
    check(found)
    assert [i["name"] for i in found["inputs"]] == ["sex = f", "sex = m"]
    assert {"sliced", "test", "bounds"} <= set(found)
    for words, told in (
        ((path,), "Pass two tables, or one with --by"),
        ((path, path, "--by", "sex"), "--by splits one table"),
        ((path, "--by", "no"), "--by names 'no'"),
        ((path, "--by", "u"), "--by takes a column with 50 values or fewer; 'u' has 200"),
    ):
        result = run("compare", *words)
        assert result.exit_code == 2
        assert told in result.stderr
    assert run("report", path, "--by", "sex", "-o", tmp_path / "r.html", *QUICK).exit_code == 0


def test_one_reference_and_many_batches(run, tmp_path):
    draw = np.random.default_rng(0)
    files = [
        write(tmp_path / f"{name}.csv", {"u": draw.normal(shift, 1, size=200), "v": draw.normal(size=200)})
        for name, shift in (("ref", 0), ("jan", 0), ("feb", 0.6), ("mar", 0))
    ]
    result = run("test", *files, "--level", 0.05, *QUICK)
    assert result.exit_code == 1
    check(result.record)
    assert [b["different"] for b in result.record["batches"]] == [False, True, False]
    pvalues = [b["pvalue"] for b in result.record["batches"]]
    assert [b["adjusted_pvalue"] for b in result.record["batches"]] == pytest.approx(osl_adjusted(pvalues))
    assert result.record["verdict"]["pvalue"] == min(osl_adjusted(pvalues))
    assert "Which differ from ref.csv? 1 of 3 do." in " ".join(
        run("test", *files, "--words", *QUICK).stdout.split()
    )
    assert run("test", files[0], files[1], files[3], "--level", 0.05, *QUICK).exit_code == 0


def test_names_do_not_push_out_what_is_said_of_them(run, tmp_path):
    """Long paths and long names of columns, and groups that look like paths."""
    folder = tmp_path / "lake" / ("of_data" * 12)
    folder.mkdir(parents=True)
    name = "how satisfied are you, on a scale from 1 to 10, with the service in general and with its price"
    columns = {f'"{name}"': [k % 7 for k in range(60)], "k": ["a/b", "c/d"] * 30}
    moved = columns | {f'"{name}"': [k % 7 + 5 for k in range(60)]}
    files = [write(folder / f"{n}.csv", c) for n, c in (("ref", columns), ("jan", columns), ("feb", moved))]
    words = " ".join(run("test", *files, "--words", *QUICK).stdout.split())
    assert re.search(
        r"feb.csv 60 rows p = 0.02 how satisfied .* its price: higher in feb.csv: mean 2.9 -> 7.9", words
    )
    assert "jan.csv 60 rows p = 1 no difference was found" in words
    words = " ".join(run("test", files[0], files[2], "--words", *QUICK).stdout.split())
    assert f"{name} p = 0.01 higher in feb.csv: mean 2.9 -> 7.9 (+2.5 standard deviations)" in words
    # Those of both tables together, in which lengths are, are larger.
    assert "Each was looked at alone. Standard deviations are those within the tables.)" in words
    words = run("test", files[0], "--by", "k", "--words", *QUICK).stdout
    assert words.startswith("k = a/b (30 rows) and k = c/d (30 rows)")


def test_of_few_rows_no_batch_is_called_sound(run, tmp_path):
    """Three rows against three: whatever they hold, it cannot be told."""
    files = [write(tmp_path / f"{k}.csv", {"u": 100 * k + np.arange(3)}) for k in range(3)]
    options = "--columns", "u", "--level", 0.05, "--words", *QUICK
    words = " ".join(run("test", *files, *options).stdout.split())
    assert "Which differ from 0.csv? It cannot be told." in words
    assert words.count("give no p below 0.2 among so many tables") == 2
    assert "no difference was found" not in words
    # The control: forty rows of one law are enough for a "no".
    draw = np.random.default_rng(3)
    files = [write(tmp_path / f"{k}.csv", {"u": draw.normal(size=40)}) for k in range(3)]
    words = " ".join(run("test", *files, *options).stdout.split())
    assert "Which differ from 0.csv? No difference was found." in words
    assert words.count("no difference was found") == 2


def osl_adjusted(pvalues):
    """Holm's method, written otherwise than in the library."""
    order = sorted(pvalues)
    steps = [min(1.0, (len(order) - k) * p) for k, p in enumerate(order)]
    return [max(steps[: order.index(p) + 1]) for p in pvalues]


# A reference in a file.


def test_fit_and_check(run, tmp_path):
    draw = np.random.default_rng(0)

    def table(name, n, shift=0.0, share=0.5):
        columns = {"u": draw.normal(5 + shift, 1, size=n), "k": np.where(draw.random(n) < share, "a", "b")}
        return write(tmp_path / f"{name}.csv", columns)

    reference = table("ref", 1200)
    fitted = run("fit", reference, "-o", tmp_path / "r.osl", "--batch-size", 40, "--n-splits", 199)
    assert fitted.exit_code == 0
    check(fitted.record)
    assert fitted.record["reference"]["batch_size"] == 40
    for name, options, code, first in (
        ("sound", {}, 0, None),
        ("shifted", {"shift": 1.0}, 1, "u"),
        ("turned", {"share": 0.05}, 1, "k"),
    ):
        found = run("check", tmp_path / "r.osl", table(name, 40, **options), "--level", 0.02)
        assert found.exit_code == code, name
        check(found.record)
        assert found.record["verdict"]["different"] == bool(code)
        assert found.record["drift"]["threshold"] > 0
        changed = [c["name"] for c in found.record["columns"] if c["changed"]]
        assert changed == ([] if first is None else [first])
    words = " ".join(run("check", tmp_path / "r.osl", table("other", 25, 1.0), "--words").stdout.split())
    assert "Does other.csv (25 rows) look like ref.csv (1,200 rows)? No." in words
    assert "97.5% of its own batches" in words
    # One row is too few for columns one by one, and far enough away for the detector.
    words = " ".join(run("check", tmp_path / "r.osl", table("one", 1, 100.0), "--words").stdout.split())
    assert "Does one.csv (1 row) look like ref.csv (1,200 rows)? No." in words
    assert "In none alone" in words
    assert "Its rows as a whole are too far from the reference." in words
    assert "no change" not in words.lower()


def test_the_detector_of_a_file_is_that_of_the_library(run, tmp_path):
    """Points in their own units, a batch of the size it was made for."""
    points = np.random.default_rng(0).normal(size=(300, 3))
    np.save(tmp_path / "ref.npy", points)
    np.save(tmp_path / "batch.npy", points[:20] + 0.4)
    options = ("--batch-size", 20, "--n-splits", 99, "--seed", 3)
    run("fit", tmp_path / "ref.npy", "-o", tmp_path / "r.osl", *options)
    found = run("check", tmp_path / "r.osl", tmp_path / "batch.npy").record
    shuffled = points[np.random.default_rng(3).permutation(300)]
    detector = osl.adapters.DriftDetector(20, false_alarm_rate=0.025, n_splits=99, rng=3).fit(shuffled)
    expected = detector.predict(points[:20] + 0.4)
    assert found["drift"] == {
        "is_drift": expected.is_drift,
        "statistic": expected.statistic,
        "threshold": expected.threshold,
        "pvalue": expected.pvalue,
    }
    before = (tmp_path / "r.osl").read_bytes()
    run("fit", tmp_path / "ref.npy", "-o", tmp_path / "r.osl", *options)
    assert (tmp_path / "r.osl").read_bytes() == before


def test_batches_that_do_not_fit_the_reference(run, tmp_path):
    reference = write(tmp_path / "ref.csv", {"u": np.arange(200) % 7, "c": [3] * 200, "k": list("ab") * 100})
    path = tmp_path / "r.osl"
    run("fit", reference, "-o", path, "--n-splits", 99)
    told = {
        "gone": ({"u": [1.0, 2.0]}, "the reference names 'c', 'k'; it has 'u'"),
        "words": (
            {"u": ["x", "y"], "c": [3, 3], "k": ["a", "b"]},
            "'u' must hold numbers, as in the reference",
        ),
        "gap": ({"u": ["1", ""], "c": [3, 3], "k": ["a", "b"]}, "1 of 2 rows have missing values"),
    }
    for name, (columns, words) in told.items():
        result = run("check", path, write(tmp_path / f"{name}.csv", columns))
        assert result.exit_code == 2
        assert words in result.stderr
    # A constant that changed, and a value that was never there, are alarms.
    sound = {"u": np.arange(14) % 7, "c": [3] * 14, "k": list("ab") * 7}
    assert run("check", path, write(tmp_path / "sound.csv", sound)).exit_code == 0
    for name, change in (("c", [4] * 14), ("k", list("az") * 7)):
        result = run("check", path, write(tmp_path / "new.csv", sound | {name: change}))
        assert result.exit_code == 1
        assert result.record["columns"][0]["name"] == name
    extra = write(tmp_path / "extra.csv", sound | {"more": range(14)})
    assert (
        "column 'more' is left out: it holds what the reference does not have"
        in run("check", path, extra).stderr
    )
    assert run("check", path, extra, "--strict").exit_code == 2
    assert "10 times the rows of a batch" in run("fit", reference, "-o", path, "--batch-size", 100).stderr


def test_files_that_are_no_reference(run, tmp_path):
    table = write(tmp_path / "a.csv", {"u": np.arange(300) % 11})
    path = tmp_path / "r.osl"
    run("fit", table, "-o", path, "--n-splits", 99)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def refused(**changed):
        with zipfile.ZipFile(tmp_path / "bad.osl", "w") as archive:
            for name, content in (members | changed).items():
                archive.writestr(name, content)
        result = run("check", tmp_path / "bad.osl", table)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        return result.stderr

    record = json.loads(members["reference.json"])
    assert "must be a reference of version 1" in refused(
        **{"reference.json": json.dumps(record | {"version": 2})}
    )
    assert "cannot be read" in refused(**{"reference.json": json.dumps(record | {"columns": []})})
    assert "cannot be read" in refused(**{"reference.json": "{}"})
    import pickle

    assert "cannot be read" in refused(**{"points.npy": pickle.dumps([1])})
    drawn = record["detector"] | {"directions": {"name": "from_function", "options": {}}}
    assert "must name a sampler" in refused(**{"reference.json": json.dumps(record | {"detector": drawn})})
    (tmp_path / "bad.osl").write_bytes(b"no archive")
    assert "zip file. `orthoslice fit` makes one." in run("check", tmp_path / "bad.osl", table).stderr
    assert "there is no such file" in run("check", tmp_path / "no.osl", table).stderr


# Answers as an interface.


def test_levels_and_records_of_reports(run, tables, tmp_path):
    page = tmp_path / "r.html"
    result = run("report", *tables, "-o", page, "--json", "--level", 0.05, *QUICK)
    assert result.exit_code == 1
    check(result.record)
    compared = run("compare", *tables, "--level", 0.05, *QUICK)
    assert compared.exit_code == 1
    for key in ("verdict", "columns", "sliced", "features"):
        assert result.record[key] == compared.record[key]
    assert "higher in b.csv" in page.read_text(encoding="utf-8")
    assert run("report", tables[0], tables[0], "-o", page, "--level", 0.05, *QUICK).exit_code == 0
    assert run("compare", tables[0], tables[0], "--level", 0.05, *QUICK).exit_code == 0


def test_options_are_in_the_record(run, tables):
    options = ("--seed", 7, "--p", 3, "--max-rows", 50, "--columns", "age,height", "--missing", "drop")
    found = run("compare", *tables, *options, *QUICK).record["options"]
    told = {"seed": 7, "p": 3.0, "max_rows": 50, "columns": "age,height", "missing": "drop", "level": None}
    assert told.items() <= found.items()
    assert (found["n_permutations"], found["n_directions"], found["units"]) == (99, 16, "auto")


def test_commands_of_the_docs_run(run, tmp_path, monkeypatch):
    """Every command in a block of shell code, beside the files that it names; none of them is bad usage."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)

    def table(n):
        return {
            "customer": [f"c{k}" for k in range(n)],
            "age": draw.normal(40, 9, size=n),
            "plan": draw.choice(["basic", "premium"], size=n),
        }

    for name in ("before", "after", "jan", "feb", "mar"):
        write(tmp_path / f"{name}.csv", table(100))
    write(tmp_path / "all.csv", table(300) | {"site": list("abc") * 100})
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(table(800)), "ref.parquet")
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    lines = [line for block in re.findall("```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    parts = [shlex.split(re.split(r" > | \|\| ", line)[0], comments=True) for line in lines]
    commands = dict.fromkeys(tuple(words[1:]) for words in parts if words[:1] == ["orthoslice"])
    assert len(commands) >= 10
    # Files of `fit` come before those who read them.
    for words in sorted(commands, key=lambda words: words[0] != "fit"):
        if words != ("warmup",):
            result = run(*words)
            assert result.exit_code in (0, 1), (words, result.stderr)


def test_the_example_of_a_record_follows_the_schema():
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    (block,) = re.findall("```json\n(.*?)```", text, re.DOTALL)
    record = json.loads(block)
    # Some options stand for all of them.
    required = SCHEMA["$defs"]["options"]["required"]
    check(record | {"options": dict.fromkeys(required) | whole_options() | record["options"]})


def whole_options():
    plain = {"strict": False, "drop_missing": False, "decimal": ".", "standardize": False, "whiten": False}
    return plain | {"memory": "1GB"}
