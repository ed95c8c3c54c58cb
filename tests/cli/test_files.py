"""Files of all kinds: read as they are, matched by name, and refused in one line where they are bad."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tempfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orthoslice.cli.formats import source
from orthoslice.cli.formats.source import FileError, How, MissingExtra
from orthoslice.cli.matching import Choice, match_columns
from orthoslice.cli.tables import _gather, read_tables

pa = pytest.importorskip("pyarrow")

POINTS = np.random.default_rng(0).normal(size=(50, 3))
COLUMNS = ["u", "v", "w"]


def read(*names, **choice):
    """Tables, and what was said."""
    said = []
    found = read_tables([str(n) for n in names], Choice(**choice), said.append)
    return found, said


def write(path, points=POINTS, columns=COLUMNS):
    """A table in the format that the suffix says."""
    import pandas as pd

    frame = pd.DataFrame(points, columns=columns)
    kind = path.suffix
    if kind in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="," if kind == ".csv" else "\t")
    elif kind == ".parquet":
        frame.to_parquet(path)
    elif kind in (".feather", ".arrow"):
        frame.to_feather(path)
    elif kind == ".npy":
        np.save(path, points)
    elif kind == ".npz":
        np.savez(path, points=points)
    elif kind == ".h5ad":
        cells(points, columns).write_h5ad(path)
    elif kind == ".zarr":
        import zarr

        zarr.save_array(str(path), np.asarray(points))
    return path


def cells(points, columns):
    anndata = pytest.importorskip("anndata")
    import pandas as pd
    from scipy.sparse import csr_matrix

    names, columns = (pd.Index(n, dtype=object) for n in ([f"c{k}" for k in range(len(points))], columns))
    adata = anndata.AnnData(
        csr_matrix(np.asarray(points)), obs=pd.DataFrame(index=names), var=pd.DataFrame(index=columns)
    )
    adata.obsm["X_pca"] = np.asarray(points)[:, :2]
    return adata


SUFFIXES = [".csv", ".tsv", ".parquet", ".feather", ".npy", ".npz", ".h5ad", ".zarr"]
NAMED = [".csv", ".tsv", ".parquet", ".feather", ".h5ad"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_numbers(tmp_path, suffix):
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    path = write(tmp_path / f"a{suffix}")
    (table, _), _ = read(path, path)
    np.testing.assert_array_equal(table.points, POINTS)
    assert table.columns == (COLUMNS if suffix in NAMED else ["x0", "x1", "x2"])
    assert table.weights is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_does_not_fit_in_memory_is_mapped(tmp_path, suffix):
    """Pieces of a row, and a budget of two rows: the rows are in a file, and are the same."""
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    path = write(tmp_path / f"a{suffix}")
    assert source.piece_rows(200, 3) == 1
    if suffix == ".h5ad":
        with pytest.raises(
            FileError, match=r"sparse matrix takes [\d,]+ bytes, more than a quarter of --memory"
        ):
            read(path, path, memory=200)
        return
    if suffix == ".npz":
        with pytest.raises(
            FileError, match=r"takes 1,328 bytes when unpacked, more than a quarter of --memory"
        ):
            read(path, path, memory=200)
        return
    (table, _), _ = read(path, path, memory=200)
    assert isinstance(table.points, np.memmap)
    np.testing.assert_array_equal(table.points, POINTS)


def test_scaled_tables_are_put_aside_too(tmp_path):
    import orthoslice as osl

    path, other = write(tmp_path / "a.npy"), write(tmp_path / "b.npy", POINTS * 2 + 1)
    tables, _ = read(path, other, memory=200, scale="standard")
    assert all(isinstance(t.points, np.memmap) for t in tables)
    for table, expected in zip(tables, osl.scaled([POINTS, POINTS * 2 + 1]), strict=True):
        np.testing.assert_allclose(table.points, expected, rtol=1e-12)


def test_arrays_stay_where_they_are(tmp_path):
    """A file of plain numbers is mapped, not copied, whatever its size; float32 stays float32."""
    path = tmp_path / "a.npy"
    np.save(path, POINTS.astype(np.float32))
    (table, _), _ = read(path, path)
    assert isinstance(table.points, np.memmap)
    assert table.points.dtype == np.float32
    assert Path(table.points.filename) == path


@pytest.mark.parametrize("dtype", ["float32", ">f4", ">f8", "float16", "int64", "uint8", "bool"])
def test_types_of_arrays(tmp_path, dtype):
    values = (np.arange(12).reshape(4, 3) % 2).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "b.npy", np.zeros((2, 3)))
    (table, other), _ = read(tmp_path / "a.npy", tmp_path / "b.npy")
    assert table.points.dtype == other.points.dtype == np.float64
    np.testing.assert_array_equal(table.points, values.astype(float))


def test_columns_are_matched_by_name(tmp_path):
    write(tmp_path / "a.csv")
    write(tmp_path / "b.parquet", POINTS[:, ::-1], COLUMNS[::-1])
    (a, b), said = read(tmp_path / "a.csv", tmp_path / "b.parquet")
    np.testing.assert_array_equal(a.points, b.points)
    assert said == []
    write(tmp_path / "c.csv", POINTS[:, :2], ["u", "z"])
    with pytest.raises(FileError, match=r"same columns; only .*a.csv has 'v', 'w' and only .*c.csv has 'z'"):
        read(tmp_path / "a.csv", tmp_path / "c.csv")
    (a, c), _ = read(tmp_path / "a.csv", tmp_path / "c.csv", columns=["u"])
    np.testing.assert_array_equal(a.points, c.points)


def test_a_table_with_names_beside_an_array(tmp_path):
    write(tmp_path / "a.npy")
    write(tmp_path / "b.csv")
    (a, b), said = read(tmp_path / "a.npy", tmp_path / "b.csv")
    assert a.columns == b.columns == COLUMNS
    assert said == ["Columns are matched by position, since not all of the files name them."]
    write(tmp_path / "c.csv", POINTS[:, :2], ["u", "v"])
    with pytest.raises(FileError, match="as many columns"):
        read(tmp_path / "a.npy", tmp_path / "c.csv")


def test_columns_without_numbers_are_left_out_aloud(tmp_path):
    (tmp_path / "a.csv").write_text(",name,when,ok,u,id\n0,Ann,2020-01-01,true,1.5,9007199254740993\n")
    (tmp_path / "b.csv").write_text(",name,when,ok,u,id\n0,Bob,2020-01-02,false,2.5,9007199254740993\n")
    (a, b), said = read(tmp_path / "a.csv", tmp_path / "b.csv")
    assert a.columns == ["ok = 'true'", "u"]
    np.testing.assert_array_equal(a.points, [[1, 1.5]])
    np.testing.assert_array_equal(b.points, [[0, 2.5]])
    assert len(said) == 4
    assert any("column 'name' is left out: it holds identifiers: no two rows have the same." in s for s in said)
    assert any("column 'when' is left out: it holds dates or times." in s for s in said)
    assert any("column '' is left out: it holds row numbers" in s for s in said)
    assert any("column 'id' is left out: it holds integers above 2^53" in s for s in said)
    with pytest.raises(FileError, match="column 'when' must hold numbers or categories; it holds dates"):
        read(tmp_path / "a.csv", tmp_path / "b.csv", columns=["when"])
    (a, b), _ = read(tmp_path / "a.csv", tmp_path / "b.csv", columns=["name"])
    assert a.columns == ["name = 'Bob'"]
    np.testing.assert_array_equal([a.points, b.points], [[[0]], [[1]]])


def test_text_tables_as_people_have_them(tmp_path):
    expected = [[1.0, 2.5], [3.0, -4.0]]
    texts = {
        "semicolons": "a;b\n1;2.5\n3;-4\n",
        "windows": "a,b\r\n1,2.5\r\n3,-4\r\n",
        "mark": "\ufeffa,b\n1,2.5\n3,-4\n",
        "quotes": '"a","b"\n"1","2.5"\n3,-4\n',
        "no end": "a,b\n1,2.5\n3,-4",
        "integers first": "b,a\n2.5,1\n-4,3",
    }
    for name, text in texts.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(text.encode())
        (table, _), said = read(path, path, columns=["a", "b"])
        np.testing.assert_array_equal(table.points, expected)
        assert said == []
    (tmp_path / "bare.csv").write_text("1,2.5\n3,-4\n")
    (table, _), said = read(tmp_path / "bare.csv", tmp_path / "bare.csv")
    np.testing.assert_array_equal(table.points, expected)
    assert table.columns == ["x0", "x1"]
    assert "there is no header" in said[0]


def test_integers_that_become_fractions_far_down(tmp_path):
    """Types come from the first block of a file; the numbers further down are read all the same."""
    rows = ["n,m"] + ["1,"] * 400_000 + ["2.5,7"]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    (table, _), _ = read(tmp_path / "a.csv", tmp_path / "a.csv", columns=["n"])
    assert table.points[-1, 0] == 2.5
    with pytest.raises(FileError, match=r"400,000 of 400,001 rows have missing values, in 'm' \(400,000\)"):
        read(tmp_path / "a.csv", tmp_path / "a.csv")
    rows[-1] = "word,7"
    (tmp_path / "b.csv").write_text("\n".join(rows))
    with pytest.raises(FileError, match=r"b.csv: column 'n' holds 1 word among 400,001 values, such as 'word'"):
        read(tmp_path / "b.csv", tmp_path / "b.csv", columns=["n"])


@pytest.mark.parametrize("stdin", [False, True])
def test_integers_that_would_be_rounded_far_down(run, tmp_path, stdin):
    """Beyond the first block: exact or refused, in files and pipes; what is written as a fraction is one."""
    many = ["n,m,t"] + ["1,2,w"] * 300_000

    def distance(last):
        path = tmp_path / "a.csv"
        path.write_text("\n".join([*many, last, "3,,w"]))
        options = ("--n-directions", 4, "--columns", "n")
        if stdin:
            return run("distance", "-", path, *options, stdin=path.read_bytes())
        return run("distance", path, path, *options)

    for exact in ("9007199254740992,1,", "-9007199254740994,1,", "1e300,1,", "9007199254740993.0,1,"):
        assert distance(exact).exit_code == 0
    for rounded in ("9007199254740993,1,", " -9007199254740993 ,1,", "123456789012345678901234567890,1,"):
        result = distance(rounded)
        assert result.exit_code == 2
        assert f"column 'n' holds the integer {rounded.split(',')[0].strip()}, which floating" in result.stderr


def test_a_first_row_of_numbers_in_quotes_is_noted(tmp_path):
    (tmp_path / "a.csv").write_text('"1","2",\n"3","4",5\n')
    (table, _), said = read(tmp_path / "a.csv", tmp_path / "a.csv", columns=["1", "2"])
    np.testing.assert_array_equal(table.points, [[3, 4]])
    assert said[0].endswith("the first row is read as the names of columns, though it looks like numbers.")
    (tmp_path / "b.csv").write_text("id,2019,2020\n3,4,5\n")
    assert read(tmp_path / "b.csv", tmp_path / "b.csv")[1] == []


def test_lines_longer_than_a_block(tmp_path):
    """A header and rows above 1 MB, from a file and through a pipe."""
    from orthoslice.cli.formats.text import open_stream

    names = [f"{'c' * 600}{k}" for k in range(2000)]
    rows = [",".join("1." + f"{k}{r}".ljust(600, "5") for k in range(2000)) for r in range(3)]
    text = "\n".join([",".join(names), *rows]) + "\n"
    (tmp_path / "a.csv").write_text(text)
    (table, _), _ = read(tmp_path / "a.csv", tmp_path / "a.csv")
    assert table.columns == names
    assert table.points.shape == (3, 2000)
    (piece,) = open_stream("-", io.BytesIO(text.encode()), How(10**9)).batches(names, names)
    np.testing.assert_array_equal(np.column_stack(piece.columns), table.points)
    with pytest.raises(FileError, match="the first two lines must fit in a quarter of --memory"):
        read(tmp_path / "a.csv", tmp_path / "a.csv", memory=4 * 10**6)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
def test_missing_values_are_refused_or_dropped(tmp_path, suffix):
    holes = POINTS.copy()
    holes[3, 1] = holes[7, 1] = holes[7, 2] = np.nan
    path = write(tmp_path / f"a{suffix}", holes)
    names = COLUMNS if suffix != ".npy" else ["x0", "x1", "x2"]
    told = rf"2 of 50 rows have missing values, in '{names[1]}' \(2\), '{names[2]}' \(1\)"
    with pytest.raises(FileError, match=told + r"\. Write --missing indicate to compare the gaps"):
        read(path, path)
    (table, _), said = read(path, path, missing="drop")
    np.testing.assert_array_equal(table.points, np.delete(POINTS, [3, 7], axis=0))
    assert "they are left out" in said[0]
    with pytest.raises(FileError, match="no row is without missing values"):
        read(write(tmp_path / f"b{suffix}", holes * np.nan), path, missing="drop")


def test_infinite_values_are_refused(tmp_path):
    points = POINTS.copy()
    points[4, 2] = -np.inf
    with pytest.raises(FileError, match="column 'w' holds -inf in row 5"):
        read(write(tmp_path / "a.csv", points), tmp_path / "a.csv")


def test_weights(tmp_path):
    path = write(tmp_path / "a.csv", np.abs(POINTS))
    (table, _), _ = read(path, path, weights="v")
    assert table.columns == ["u", "w"]
    np.testing.assert_allclose(table.weights, np.abs(POINTS[:, 1]) / np.abs(POINTS[:, 1]).sum())
    with pytest.raises(FileError, match="weights must not be negative"):
        read(write(tmp_path / "b.csv"), path, weights="v")
    with pytest.raises(FileError, match="--weights names 'z'; it has 'u', 'v', 'w'"):
        read(path, path, weights="z")


def test_keys_of_files_with_several_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", one=POINTS, two=POINTS[:, :2])
    with pytest.raises(FileError, match=r"holds 'one', 'two'; choose one as in .*a.npz::one"):
        read(tmp_path / "a.npz", tmp_path / "a.npz")
    (table, _), _ = read(f"{tmp_path}/a.npz::two", f"{tmp_path}/a.npz::two")
    assert table.points.shape == (50, 2)
    path = write(tmp_path / "c.h5ad")
    (table, _), _ = read(f"{path}::X_pca", f"{path}::X_pca")
    np.testing.assert_array_equal(table.points, POINTS[:, :2])
    assert table.columns == ["X_pca-0", "X_pca-1"]
    cells(POINTS, COLUMNS).write_zarr(tmp_path / "c.zarr")
    (table, _), _ = read(tmp_path / "c.zarr", path)
    np.testing.assert_array_equal(table.points, POINTS)
    with pytest.raises(FileError, match="holds one table"):
        read(f"{write(tmp_path / 'a.csv')}::key", tmp_path / "a.csv")


def test_records_have_columns(tmp_path):
    records = np.array([(1, 2.5, "a"), (3, 4.5, "b")], dtype=[("u", "i4"), ("v", "f8"), ("name", "U1")])
    np.save(tmp_path / "a.npy", records)
    (table, _), said = read(tmp_path / "a.npy", tmp_path / "a.npy")
    np.testing.assert_array_equal(table.points, [[1, 2.5], [3, 4.5]])
    assert table.columns == ["u", "v"]
    assert "'name'" in said[0]
    assert read(tmp_path / "a.npy", tmp_path / "a.npy", scale="auto")[0][0].scale == "standard"


def test_folders_of_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(0)
    grey = draw.integers(0, 256, size=(5, 4, 3), dtype=np.uint8)
    for kind in ("grey", "color", "mixed"):
        (tmp_path / kind).mkdir()
    for k, pixels in enumerate(grey):
        image.fromarray(pixels).save(tmp_path / "grey" / f"{k}.png")
        image.fromarray(np.stack([pixels] * 3, axis=-1)).save(tmp_path / "color" / f"{k}.png")
        image.fromarray(pixels[: 4 - k % 2]).save(tmp_path / "mixed" / f"{k}.png")
    (tmp_path / "grey" / "notes.txt").write_text("no image")
    (table, _), _ = read(tmp_path / "grey", tmp_path / "grey")
    np.testing.assert_array_equal(table.points, grey.reshape(5, 12))
    assert table.columns[:2] == ["pixel 0,0", "pixel 0,1"]
    (table, _), _ = read(tmp_path / "color", tmp_path / "color")
    np.testing.assert_array_equal(table.points, np.repeat(grey.reshape(5, 12), 3, axis=1))
    assert table.columns[1] == "pixel 0,0 green"
    with pytest.raises(FileError, match=r"images must be of one size; got 3x3 beside 3x4\. Pass --resize"):
        read(tmp_path / "mixed", tmp_path / "mixed")
    (table, _), _ = read(tmp_path / "mixed", tmp_path / "mixed", resize=(2, 2))
    assert table.points.shape == (5, 4)
    (tmp_path / "grey" / "5.png").write_bytes(b"\x89PNG\r\n\x1a\n cut short")
    with pytest.raises(FileError, match=r"5.png: cannot be read as an image"):
        read(tmp_path / "grey", tmp_path / "grey")


def test_images_that_are_not_what_they_seem(tmp_path):
    """Depths that do not go together are refused; transparency and later frames are noted."""
    image = pytest.importorskip("PIL.Image")
    plain = image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    grey = [image.fromarray(np.full((2, 2), k, dtype=np.uint8)) for k in (1, 2)]
    deep = image.fromarray(np.full((2, 2), 40_000, dtype=np.uint16))
    for kind in ("colour", "grey", "deep", "clear", "moving", "pipe"):
        (tmp_path / kind).mkdir()
        (plain if kind == "colour" else deep if kind == "deep" else grey[0]).save(tmp_path / kind / "0.png")
    for kind in ("colour", "grey", "deep"):
        deep.save(tmp_path / kind / "1.png")
    for kind, mode in (("colour", "RGB"), ("grey", "L")):
        with pytest.raises(
            FileError, match=f"1.png: images must be all of 8 bits.*; got mode I.* beside {mode}"
        ):
            read(tmp_path / kind, tmp_path / kind)
    (table, _), said = read(tmp_path / "deep", tmp_path / "deep")
    assert (table.points == 40_000).all()
    assert said == []
    grey[0].convert("LA").save(tmp_path / "clear" / "1.png")
    grey[0].save(tmp_path / "clear" / "2.png", transparency=1)
    (table, _), said = read(tmp_path / "clear", tmp_path / "clear")
    assert table.points.shape == (3, 4)
    assert said[0].endswith("clear: transparency is left out (2 of 3 images have it).")
    grey[0].save(tmp_path / "moving" / "1.gif", save_all=True, append_images=grey[1:])
    _, said = read(tmp_path / "moving", tmp_path / "moving")
    assert said[0].endswith("moving: first frames count alone (1 of 2 images have several).")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe" / "1.png")
        with pytest.raises(FileError, match=r"1\.png: must be a plain file, as images are"):
            read(tmp_path / "pipe", tmp_path / "pipe")


def bomb() -> bytes:
    """A small archive of an array that says it takes 80 GB."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**8, 100)}
    )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("points.npy", header.getvalue() + bytes(10**6))
    return archive.getvalue()


def deflated_bomb() -> bytes:
    """A small archive whose array is small by its header, and large when unpacked."""
    member = io.BytesIO()
    np.save(member, POINTS)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("points.npy", member.getvalue() + bytes(400 * 10**6))
    return archive.getvalue()


class _Marked:
    """An object whose pickle writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def saved(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(*shape) -> bytes:
    """A .npy file without its numbers."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue()


def zipped(array) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, points=array)
    return file.getvalue()


BAD = {
    "truncated.npy": (saved(POINTS)[:300], "is truncated"),
    "header.npy": (saved(POINTS)[:60], "cannot be read as a .npy file"),
    "pickled.npy": (saved(np.array([{}, []], dtype=object)), "pickled objects, which are never loaded"),
    "bare_pickle.npy": (pickle.dumps([1, 2]), "pickled objects, which are never loaded"),
    "text.npy": (saved(np.array([["a", "b"]])), "must hold real numbers"),
    "complex.npy": (saved(np.ones((2, 2), dtype=complex)), "must hold real numbers"),
    "cube.npy": (
        saved(np.zeros((2, 3, 4))),
        r"must be a table of rows and columns; got an array of shape \(2, 3, 4\)",
    ),
    "point.npy": (saved(np.array(1.0)), "must be a table of rows and columns"),
    "no_rows.npy": (saved(np.zeros((0, 3))), "holds no rows"),
    "no_columns.npy": (saved(np.zeros((3, 0))), "has no column of numbers or categories"),
    "records.npy": (
        saved(np.zeros((4, 2), dtype=[("u", "f8"), ("v", "f8")])),
        r"records must be rows, one after the other; got shape \(4, 2\)",
    ),
    "record.npy": (saved(np.zeros((), dtype=[("u", "f8")])), r"records must be rows.*; got shape \(\)"),
    "next.npy": (saved(np.array([[2**53 + 1, 1]])), r"integers above 2\^53"),
    "negative.npy": (saved(np.array([[-(2**53) - 1, 1]])), r"integers above 2\^53"),
    "large.npy": (saved(np.array([[2**60 + 1, 1]])), r"integers above 2\^53"),
    "empty.npy": (b"", "the file is empty"),
    "wide.npy": (header(0, 2 * 10**8), r"200,000,000 columns takes .* more than --memory \(1,000,000,000\)"),
    "wide.npz": (zipped(np.zeros((2, 300_000), np.uint8)), "300,000 columns takes about 2,457,600,000 bytes"),
    "wide.csv": (b"1," * 99_999 + b"1\n", "100,000 columns takes about 1,638,400,000 bytes"),
    "bomb.npz": (bomb(), "takes 80,000,000,000 bytes when unpacked"),
    "deflated.npz": (deflated_bomb(), "bytes when unpacked"),
    "not_zip.npz": (b"hello", "cannot be read as a .npz file"),
    "ragged.csv": (b"a,b\n1,2\n3,4,5\n", "Expected 2 columns, got 3"),
    "words.csv": (b"a,b\nx,y\nz,w\n", "has no column of numbers or categories"),
    "twice.csv": (b"a,a\n1,2\n", "every column needs a name of its own; 'a' twice"),
    "empty.csv": (b"", "the file is empty"),
    "blank.csv": (b"\n\n \n", "the file is empty"),
    "header.csv": (b"a,b\n", "holds no rows"),
    "utf16.csv": ("a,b\n1,2\n".encode("utf-16"), "is not text in UTF-8"),
    "binary.csv": (bytes(range(256)), "is not text in UTF-8"),
    "gap.csv": (b"a,b\n1,\n2,3\n", r"1 of 2 rows have missing values, in 'b' \(1\)"),
    "bad.parquet": (b"PAR1 and nothing more", "cannot be read as a .parquet file"),
    "bad.feather": (b"ARROW1 and nothing more", "cannot be read as a .feather file"),
    "bad.h5ad": (b"\x89HDF\r\n\x1a\n", "cannot be read as a .h5ad file"),
    "file.zarr": (b"not a folder", "must be a folder, as .zarr is"),
    "bad.arrow": (b"nothing", "cannot be read as a .arrow file"),
    "bad.jsonl": (b"{not json", "cannot be read as a .jsonl file"),
    "bad.csv.gz": (b"not compressed", "cannot be read as a .csv.gz file"),
    "bad.csv.zst": (b"not compressed", "cannot be read as a .csv.zst file"),
    "table.xls": (b"", "must end with one of .csv"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_one_line(run, tmp_path, name):
    content, words = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    result = run("compare", path, path)
    assert_refused(result, path, words)


def assert_refused(result, path, words):
    import re

    assert result.exit_code == 2
    assert result.stdout == ""
    *said, error = result.stderr.splitlines()
    assert all(line.startswith("orthoslice: ") for line in said)
    assert error.startswith(f"Error: {path}"), error
    assert re.search(words, error), error


def test_nothing_is_unpickled(run, tmp_path):
    """The pickle would make a folder."""
    mark = tmp_path / "unpickled"
    for name, content in (
        ("a.npy", pickle.dumps(_Marked(str(mark)))),
        ("b.npy", saved(np.array([_Marked(str(mark))], dtype=object))),
    ):
        (tmp_path / name).write_bytes(content)
        assert run("compare", tmp_path / name, tmp_path / name).exit_code == 2
        assert not mark.exists()
    np.load(tmp_path / "b.npy", allow_pickle=True)
    assert mark.exists()  # so it would have been


def test_places_that_are_no_files(run, tmp_path, monkeypatch):
    assert_refused(
        run("compare", tmp_path / "no.csv", tmp_path / "no.csv"), tmp_path / "no.csv", "no such file"
    )
    assert_refused(run("compare", tmp_path, tmp_path), tmp_path, "folder without images")
    (tmp_path / "folder.csv").mkdir()
    assert_refused(
        run("bounds", *[tmp_path / "folder.csv"] * 2), tmp_path / "folder.csv", "folder without images"
    )
    path = write(tmp_path / "mine.csv")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert_refused(run("compare", path, path), path, "no permission")


def test_a_missing_library_is_named(run, tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv")
    real = source.importlib.import_module

    def without(name):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(source.importlib, "import_module", without)
    result = run("compare", path, path)
    assert result.exit_code == 2
    assert (
        "Reading text tables takes pyarrow, which is not installed: pip install 'orthoslice[data]'."
        in result.stderr
    )


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv")
    monkeypatch.setattr("orthoslice.cli.rows._SPARE_BYTES", 1 << 60)
    with pytest.raises(
        FileError, match=r"a.csv: its rows must fit in --memory or in .*, where .* bytes are left"
    ):
        read(path, path, memory=200)


def test_both_scales_at_once_are_refused(run, tables):
    assert "not both" in run("compare", *tables, "--standardize", "--whiten").stderr
    assert run("compare", *tables, "--memory", "much").exit_code == 2
    assert run("compare", *tables, "--resize", "big").exit_code == 2
    assert run("compare", *tables, "--rtol", -1).exit_code == 2


SEEDS = {
    ".npy": [saved(POINTS), saved(np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]))],
    ".csv": [b"a,b\n1,2\n3,4\n", b"1;2\n3;4\n"],
    ".tsv": [b"a\tb\n1\t2\n"],
    ".csv.gz": [gzip.compress(b"a,k\n1,x\n3,y\n", mtime=0)],
    ".jsonl": [b'{"a": 1, "k": "x"}\n{"a": 3.5, "k": "y"}\n'],
}


def _seeds(suffix):
    """Sound files of a kind, for the fuzzer to spoil."""
    if suffix in SEEDS:
        return SEEDS[suffix]
    with tempfile.TemporaryDirectory() as folder:
        return [write(Path(folder) / f"a{suffix}").read_bytes()]


@pytest.mark.parametrize(
    "suffix", [".npy", ".npz", ".csv", ".tsv", ".csv.gz", ".jsonl", ".arrow", ".parquet", ".feather", ".h5ad"]
)
def test_fuzzed_bytes_never_give_a_traceback(tmp_path, suffix):
    """Either a table or a line; anything else is raised here."""
    sound = _seeds(suffix)

    @st.composite
    def spoiled(draw):
        content = bytearray(draw(st.sampled_from(sound)))
        for _ in range(draw(st.integers(1, 8))):
            place = draw(st.integers(0, len(content) - 1))
            content[place : place + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
            if not content:
                break
        return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.one_of(st.binary(max_size=300), spoiled()))
    def fuzz(content):
        path = tmp_path / f"fuzzed{suffix}"
        path.write_bytes(content)
        try:
            tables, _ = read(path, path, memory=10**6)
        except (FileError, MissingExtra) as error:
            lines = str(error).splitlines()
        else:
            lines = ["a table"]
            assert tables[0].points.ndim == 2
            assert np.isfinite(tables[0].points).all()
        assert len(lines) == 1

    fuzz()


class _Counted(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        _Counted.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("chosen", [False, True])
def test_the_work_on_names_goes_with_their_number(chosen):
    """Not with its square, which is 9 million here."""
    n = 3000
    names = [[_Counted(f"c{k}") for k in order] for order in (range(n), range(n)[::-1])]
    files = [source.Source(str(k), some, lambda _: iter([np.zeros((2, n))])) for k, some in enumerate(names)]
    choice = Choice(columns=names[1] if chosen else None)
    _Counted.compared = 0
    matched = match_columns(files, choice, print)
    for one, columns in zip(files, matched.columns, strict=True):
        _gather(one, columns, matched.encoding, np.dtype(np.float64), choice, print, print)
    assert _Counted.compared < 20 * n


def test_columns_of_wide_arrays_can_be_chosen(tmp_path):
    """No name is made of the 2 million others, which --memory would not hold."""
    np.save(tmp_path / "a.npy", np.broadcast_to(np.arange(2_000_000, dtype=np.uint8), (2, 2_000_000)))
    (table, _), _ = read(*[tmp_path / "a.npy"] * 2, columns=["x258", "x3"], memory=10**7)
    np.testing.assert_array_equal(table.points, [[2, 3]] * 2)
    for name in ("x2000000", "x03", "x-1", "y3", "x"):
        with pytest.raises(FileError, match=r"it has 'x0', 'x1', .* and 1999992 more"):
            read(*[tmp_path / "a.npy"] * 2, columns=[name])


def png_header(width, height) -> bytes:
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + size + chunk(b"IDAT", zlib.compress(b""))


def huge_image(folder):
    folder.mkdir()
    (folder / "a.png").write_bytes(png_header(8900, 8900))
    return folder


def huge_resize(folder):
    folder.mkdir()
    (folder / "a.png").write_bytes(png_header(2, 2))
    return folder


def edited_cells(path, edit):
    h5py = pytest.importorskip("h5py")
    path = write(path.with_suffix(".h5ad"))
    with h5py.File(path, "a") as file:
        edit(file)
    return path


def replaced(name, shape, chunks=True):
    """An edit that puts a dataset of which nothing was written in the place of what has this name."""

    def edit(file):
        attributes = dict(file[name].attrs)
        del file[name]
        found = file.create_dataset(name, shape=shape, dtype="f4", chunks=chunks)
        found.attrs.update(attributes if "shape" not in attributes else {})

    return edit


def far_index(file):
    file["X/indices"][0] = 10**6


def many_rows(file):
    file["X"].attrs["shape"] = [2 * 10**8, 3]


def huge_zarr(path):
    zarr = pytest.importorskip("zarr")
    path = path.with_suffix(".zarr")
    zarr.open(str(path), mode="w", shape=(10**12, 3), chunks=(1000, 3), dtype="f8")
    return path


HUGE = {
    "image": (huge_image, {}, r"image of 8900x8900 pixels takes 633,680,000 bytes, more than a quarter"),
    "resize": (huge_resize, {"resize": (99999, 99999)}, r"29,999,400,003 columns takes about [\d,]+ bytes"),
    "dense cells": (lambda p: edited_cells(p, replaced("X", (10**12, 3))), {}, "must fit in --memory or in"),
    "chunk of cells": (
        lambda p: edited_cells(p, replaced("X", (10**8, 3), chunks=(10**8, 3))),
        {},
        "a chunk of it takes 1,200,000,000 bytes",
    ),
    "sparse cells": (
        lambda p: edited_cells(p, replaced("X/data", (10**9,))),
        {},
        "its sparse matrix takes 4,000,00",
    ),
    "names of cells": (
        lambda p: edited_cells(p, replaced("var/_index", (10**9,))),
        {},
        "the names of columns takes",
    ),
    "place outside of a matrix": (lambda p: edited_cells(p, far_index), {}, "cannot be read as a .h5ad file"),
    "rows of a matrix": (lambda p: edited_cells(p, many_rows), {}, r"sparse matrix takes 1,600,00\d,\d+ bytes"),
    "other layers": (lambda p: edited_cells(p, replaced("obsm/X_pca", (10**9, 2))), {}, None),
    "zarr": (huge_zarr, {}, "must fit in --memory or in"),
}


@pytest.mark.parametrize("case", HUGE)
def test_tiny_files_that_say_they_are_huge(tmp_path, case):
    """They are refused before anything is built, and what is not asked for is not read."""
    make, choice, words = HUGE[case]
    path = make(tmp_path / "a")
    tracemalloc.start()
    try:
        if words is None:
            read(path, path, memory=10**9, **choice)
        else:
            with pytest.raises(FileError, match=words):
                read(path, path, memory=10**9, **choice)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * 10**6


def test_a_header_that_lies_about_its_size(tmp_path):
    """More rows than a file could hold, and more than an integer could."""
    for shape in ("(1000000000000, 3)", "(99999999999999999999999, 3)", "(-1, 3)"):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
        path = tmp_path / "a.npy"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + bytes(240))
        with pytest.raises(FileError):
            read(path, path)
