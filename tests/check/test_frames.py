"""Data frames: columns are matched by name, and errors name column and row."""

from __future__ import annotations

import datetime as dt
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import orthoslice as osl
from orthoslice.check import frames

NAMES = ["age", "income", "height"]
X = np.random.default_rng(1).normal(size=(5, 3))
Y = np.random.default_rng(2).normal(size=(6, 3)) + np.array([0, 5, 50])


def arrow(table, names):
    return pytest.importorskip("pyarrow").table(dict(zip(names, table.T, strict=True)))


MAKERS = {
    "pandas": lambda table, names: pd.DataFrame(table, columns=names),
    "polars": lambda table, names: pl.DataFrame(dict(zip(names, table.T, strict=True))),
    "pyarrow": arrow,
}
CALLS = {
    "sliced": lambda x, y: osl.sliced_wasserstein(x, y, rng=0).value,
    "projected": lambda x, y: osl.projected_wasserstein(x, y, rng=0).value,
    "bounds": lambda x, y: osl.wasserstein_bounds(x, y, rng=0).upper,
    "exact": lambda x, y: osl.wasserstein(x, y).value,
    "coupling": lambda x, y: osl.induced_coupling(x, y, [1, 0, 0]).cost(2),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.mark.thin
@pytest.mark.parametrize("call", CALLS)
def test_columns_are_matched_by_name(make, call):
    """In the order of `x`; a frame against an array goes by position, which is another answer here."""
    shuffled = make(Y[:, [2, 0, 1]], ["height", "age", "income"])
    expected = CALLS[call](X, Y)
    assert CALLS[call](make(X, NAMES), shuffled) == expected
    assert CALLS[call](make(X, NAMES), Y) == expected
    assert CALLS[call](X, shuffled) == CALLS[call](X, Y[:, [2, 0, 1]]) != expected


def test_frames_of_two_libraries_are_matched_too():
    x, y = MAKERS["pandas"](X, NAMES), MAKERS["polars"](Y[:, ::-1], NAMES[::-1])
    assert CALLS["sliced"](x, y) == CALLS["sliced"](X, Y)


def test_names_that_differ(make):
    x, y = make(X, NAMES), make(Y, ["age", "income", "weight"])
    for call in CALLS.values():
        with pytest.raises(ValueError, match=r"only `x` has 'height' and only `y` has 'weight'\. To match"):
            call(x, y)
    with pytest.raises(ValueError, match=r"same columns, in any order; only `y` has 'height'\. To"):
        osl.sliced_wasserstein(make(X[:, :2], NAMES[:2]), make(Y, NAMES))


def test_many_names_are_not_all_listed():
    x, y = np.ones((2, 20)), np.zeros((2, 20))
    with pytest.raises(ValueError, match="'x7' and 12 more and only `y` has 'y0', 'y1'"):
        osl.sliced_wasserstein(
            pd.DataFrame(x, columns=[f"x{k}" for k in range(20)]),
            pd.DataFrame(y, columns=[f"y{k}" for k in range(20)]),
        )


def test_a_name_twice():
    for pair in ((pd.DataFrame(X, columns=["a", "a", "b"]), Y), (X, pd.DataFrame(Y, columns=["a", "b", "a"]))):
        with pytest.raises(ValueError, match="a name of its own for each column; got 'a' twice"):
            osl.sliced_wasserstein(*pair)


BAD = {
    "text": (["t", "u", "v"], TypeError, "hold real numbers; got 't' at row 0"),
    "none": ([1.0, None, 2.0], ValueError, "be finite; got a missing value .* at row 1"),
    "nan": ([1.0, 2.0, np.nan], ValueError, "be finite; got a missing value \\(nan\\) at row 2"),
    "infinity": ([1.0, -np.inf, np.inf], ValueError, "be finite; got -inf at row 1"),
    "dates": ([dt.date(2020, 1, 1)] * 3, TypeError, "hold real numbers; got"),
    "lists": ([[1], [2], [3]], TypeError, "hold real numbers; got"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("library", [pd, pl])
def test_errors_name_column_and_row(case, library):
    column, error, words = BAD[case]
    frame = library.DataFrame({"age": [1.0, 2.0, 3.0], "income": column, "height": [1, 2, 3]})
    for x, y, name in ((frame, Y, "x"), (X, frame, "y")):
        with pytest.raises(error, match=f"Column 'income' of `{name}` must {words}"):
            osl.sliced_wasserstein(x, y)


@pytest.mark.parametrize(
    ("column", "error", "words"),
    [
        (pd.Categorical([1, 2, 3]), TypeError, "categories"),
        (pd.date_range("2020", periods=3), TypeError, "datetime64"),
        (pd.date_range("2020", periods=3, tz="UTC"), TypeError, "Timestamp"),
        (pd.to_timedelta([1, 2, 3]), TypeError, "timedelta64"),
        (pd.interval_range(0, 3), TypeError, "Interval"),
        (pd.Series([1, "two", 3], dtype=object), TypeError, "got 'two' at row 1"),
        (np.array([1j, 2, 3]), TypeError, "complex128"),
        (pd.array([1, None, 3], dtype="Int64"), ValueError, "missing value .* at row 1"),
        (pd.array([1.5, 2, None], dtype="Float64"), ValueError, "missing value .* at row 2"),
        (pd.array([None, True, True], dtype="boolean"), ValueError, "missing value .* at row 0"),
        (pl.Series(list("uvw"), dtype=pl.Categorical), TypeError, "categories"),
        (pl.Series(list("uvw"), dtype=pl.Enum(list("uvw"))), TypeError, "categories"),
        (pl.Series([1, None, 3]), ValueError, "missing value .* at row 1"),
    ],
    ids=lambda v: str(getattr(v, "dtype", "")),
)
def test_types_of_columns(column, error, words):
    library = pl if isinstance(column, pl.Series) else pd
    frame = library.DataFrame({"age": [1.0, 2.0, 3.0], "income": column, "height": [1, 2, 3]})
    with pytest.raises(error, match=f"Column 'income' of `x` must .*{words}"):
        osl.sliced_wasserstein(frame, Y)


GOOD = {
    "bool": [True, False, True],
    "nullable integers": pd.array([1, 0, 1], dtype="Int64"),
    "nullable booleans": pd.array([True, False, True], dtype="boolean"),
    "objects": pd.Series([1, 0.0, True], dtype=object),
    "sparse": pd.arrays.SparseArray([1.0, 0.0, 1.0]),
    "float32": np.array([1, 0, 1], np.float32),
}


@pytest.mark.parametrize("kind", GOOD)
def test_numbers_of_any_kind(kind):
    rest = np.array([[0.5, 7], [1.5, 8], [2.5, 9]])
    frame = pd.DataFrame({"age": rest[:, 0], "income": GOOD[kind], "height": rest[:, 1]})
    plain = np.column_stack([rest[:, 0], [1, 0, 1], rest[:, 1]])
    assert CALLS["sliced"](frame, Y) == CALLS["sliced"](plain, Y)


def test_integers_stay_integers():
    """What rounds them, or refuses to, comes later."""
    column = pd.array([2**53 + 1, 1], dtype="Int64").astype(object)
    table = frames.read_frame("x", pd.DataFrame({"a": column, "b": [1, 2]}))
    assert table.dtype.kind == "i"
    assert table[0, 0] == 2**53 + 1


def test_a_line_that_is_a_series():
    with pytest.raises(ValueError, match=r"Points on a line have dim 1: .*`x\.to_frame\(\)`"):
        osl.sliced_wasserstein(pd.Series([1.0, 2.0]), Y)


def test_weights_are_taken_by_position():
    """A Series with labels of its own is fine; one with the frame's labels in another order is a mistake."""
    x, weights = pd.DataFrame(X, columns=NAMES), np.array([0.1, 0.2, 0.3, 0.3, 0.1])
    expected = osl.sliced_wasserstein(X, Y, x_weights=weights, rng=0).value
    for given in (pd.Series(weights), pl.Series(weights), pd.Series(weights, index=list("vwxyz"))):
        assert osl.sliced_wasserstein(x, Y, x_weights=given, rng=0).value == expected
    with pytest.raises(ValueError, match=r"`x_weights` must be in the order.*`x_weights\.loc\[x\.index\]`"):
        osl.sliced_wasserstein(x, Y, x_weights=pd.Series(weights).sort_values(ascending=False))
    with pytest.raises(ValueError, match="`y_weights` must be in the order of the rows of `y`"):
        osl.sliced_wasserstein(Y, x, y_weights=pd.Series(weights)[::-1])


class AnnData:
    """As much of one as is looked at."""

    X, obsm = X, {}


def things_that_hold_arrays():
    sparse = pytest.importorskip("scipy.sparse")
    yield sparse.csr_matrix(X), "csr_matrix", "`x.toarray()`"
    yield sparse.coo_array(X), "coo_array", "`x.toarray()`"
    yield AnnData(), "AnnData", "`x.X`"
    yield AnnData(), "AnnData", "`x.obsm["
    yield pl.LazyFrame({"a": [1]}), "LazyFrame", "`x.collect()`"
    yield memoryview(X), "memoryview", "a list or a data frame; got"


@pytest.mark.parametrize(("thing", "kind", "words"), [*things_that_hold_arrays()])
def test_a_word_on_what_to_pass(thing, kind, words):
    with pytest.raises(TypeError) as caught:
        osl.sliced_wasserstein(thing, Y)
    assert f"got {kind}" in str(caught.value)
    assert words in str(caught.value)


def test_sparse_tensors():
    torch = pytest.importorskip("torch")
    dense = torch.eye(3)
    with warnings.catch_warnings():
        # Torch says once a process that these are new.
        warnings.simplefilter("ignore", UserWarning)
        compressed = dense.to_sparse_csr()
    for sparse in (dense.to_sparse(), compressed):
        with pytest.raises(TypeError, match="to_dense"):
            osl.sliced_wasserstein(sparse, dense)
