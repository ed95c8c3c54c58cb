"""Pictures of columns: both tables over each other, by all rows."""

from __future__ import annotations

import numpy as np
import pytest

from orthoslice.applications.columns import TableColumn, compare_columns, edges_of, tally_rows
from orthoslice.applications.compare.column_pictures import picture_change, picture_values
from orthoslice.applications.compare.report.svg import render_key, render_picture

NAMES = ("before", "after")


def change_of(x, y, column):
    edges = edges_of([x, y], [column])
    (found,) = compare_columns(*(tally_rows(t, [column], edges) for t in (x, y)), [column])
    return found


def test_histograms_count_all_rows(rng):
    x, y = rng.normal(size=(3000, 1)), rng.normal(size=(500, 1)) + 1
    bars, line = picture_change(change_of(x, y, TableColumn("c", 0)), NAMES).marks
    assert bars.counts.sum() == pytest.approx(100)
    # Stairs have two points a bar, and begin and end on the ground.
    assert line.ys[1:-1:2].sum() == pytest.approx(100)
    assert line.ys[0] == line.ys[-1] == 0
    # Cells between edges hold few rows: the histogram is that of the rows, but for them.
    own = 100 * np.histogram(x[:, 0], bars.edges)[0] / len(x)
    np.testing.assert_allclose(bars.counts, own, atol=0.5)
    middle = (bars.edges[1:] + bars.edges[:-1]) / 2
    assert np.average(middle, weights=line.ys[1:-1:2]) == pytest.approx(1, abs=0.2)


def test_far_values_do_not_squeeze_the_others(rng):
    x, y = rng.normal(size=(2, 2000))
    x[0], y[1] = 1e6, -1e6
    picture = picture_values("c", x, y, NAMES, "mm")
    assert -10 < picture.x.low < picture.x.high < 10
    assert "Values further out count in the outer bars." in picture.told
    assert picture.marks[0].counts.sum() == pytest.approx(100)
    # A value that many rows have is shown where it is.
    y[:100] = -999
    assert picture_values("c", x, y, NAMES, "mm").x.low <= -999


def test_whole_numbers_are_not_split(rng):
    picture = picture_values("c", rng.poisson(9, 900), rng.poisson(11, 900), NAMES, "")
    edges = picture.marks[0].edges
    assert np.all(edges % 1 == 0.5)
    assert np.all(np.diff(edges) == np.diff(edges)[0])


def test_few_values_and_categories_are_bars_of_shares():
    coin = np.repeat([0.0, 1.0], 50)[:, None], np.repeat([0.0, 1.0], [80, 20])[:, None]
    for picture in (
        picture_change(change_of(*coin, TableColumn("coin", 0, ("head",), "tail")), NAMES),
        picture_values("coin", *(side[:, 0] for side in coin), NAMES, ""),
    ):
        assert picture.y.names[-1].endswith("50% \u2192 20%")
        assert [mark.lengths[-1] for mark in picture.marks] == [50, 20]
        assert render_picture(picture).count("<rect") == 2 * len(picture.y.names)
        assert all(name in render_key(picture) for name in NAMES)


def test_odd_columns_are_drawn():
    empty = np.array([[0.0, 1.0]] * 9)
    column = TableColumn("c", 0, missing=1)
    full = np.column_stack([np.arange(9.0), np.zeros(9)])
    for x, y in ((empty, full), (empty, empty), (full, full * 0)):
        drawn = render_picture(picture_change(change_of(x, y, column), NAMES))
        # The words before the marks may say that there is no mean.
        assert "nan" not in drawn.partition(">")[2]
