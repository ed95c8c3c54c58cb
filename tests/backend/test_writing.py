"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat

import pytest

from orthoslice.backend.writing import replacing


def content(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("before", [None, b"good"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device"), ValueError])
def test_what_goes_wrong_leaves_what_was_there(tmp_path, before, error):
    path = tmp_path / "a.csv"
    if before is not None:
        path.write_bytes(before)
    with contextlib.suppress(KeyboardInterrupt, OSError, ValueError), replacing(path) as file:
        file.write(b"half")
        file.flush()
        assert len(content(tmp_path)) == 1 + (before is not None)
        raise error
    assert content(tmp_path) == ({} if before is None else {"a.csv": before})


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    told = r"cannot be written: No such file or directory: '.*none/a\.csv'"
    with pytest.raises(FileNotFoundError, match=told), replacing(tmp_path / "none" / "a.csv"):
        pass


@pytest.mark.skipif(os.name == "nt", reason="modes and links are those of POSIX")
def test_modes_and_links_stay(tmp_path):
    path, link = tmp_path / "a.csv", tmp_path / "link.csv"
    mask = os.umask(0o027)
    try:
        with replacing(path) as file:
            file.write(b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        link.symlink_to("a.csv")
        with replacing(link) as file:
            file.write(b"2")
    finally:
        os.umask(mask)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert content(tmp_path) == {"a.csv": b"2", "link.csv": b"2"}


def test_what_is_no_plain_file_is_written_to():
    with replacing(os.devnull) as file:
        file.write(b"1")
    assert not os.path.isfile(os.devnull)
