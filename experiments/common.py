"""What the experiments share: how one is executed, its files, and small statistics."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import importlib
import importlib.util
import json
import math
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

import matplotlib as mpl
import numpy as np
import scipy
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.special import stdtrit

import orthoslice as osl
from orthoslice.exact import estimator_mse_plane

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
SMOKE_RESULTS = ROOT.parent / "build" / "smoke"

IID_COLOUR, ORTHOGONAL_COLOUR, GREY = "#d55e00", "#0072b2", "#666666"

Row: TypeAlias = dict[str, Any]
Method: TypeAlias = Literal["sliced", "projected"]
DirectionsName: TypeAlias = Literal["iid", "orthogonal"]

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    # The same rows give the same file.
    "svg.hashsalt": "orthoslice",
}


class Claim(NamedTuple):
    """A sentence, whether it held, and the numbers behind it."""

    claim: str
    held: bool
    detail: str


class MissingExtra(ImportError):
    """What an experiment needs is not installed; the message says which extra installs it."""


class NoSuchPart(ValueError):
    """An experiment has no such part, or no rows that it could be added to."""


def require(extra: str, *packages: str) -> None:
    """Raise :class:`MissingExtra` unless all these packages are installed."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtra(f"This experiment needs {', '.join(missing)}: pip install 'orthoslice[{extra}]'.")


class Outcome(NamedTuple):
    """What a run left behind."""

    rows: list[Row]
    claims: list[Claim]
    seconds: float
    folder: Path


def execute(name: str, folder: Path, *, smoke: bool = False, part: str | None = None) -> Outcome:
    """Run an experiment, check its claims, and write rows, pictures and a record to a folder.

    With a part, its rows take the place of those in the folder, where the others stay as they are.
    """
    module = importlib.import_module(f"experiments.{name}")
    config = module.SMOKE if smoke else module.Config()
    start = time.perf_counter()
    rows: list[Row] = module.run(config) if part is None else _with_part(module, config, part, folder)
    seconds = time.perf_counter() - start
    if part is not None:
        # The record is of all rows, and says how long they took together.
        seconds += json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["seconds"]
    claims = [Claim(*claim) for claim in module.check(rows)]
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / f"{name}.csv", rows)
    with mpl.rc_context(STYLE):
        save_figure(module.plot(rows), folder / name)
    record = describe(name, config, seconds)
    if getattr(config, "is_kept", False) and hasattr(module, "machine"):
        record["machine"] = module.machine()
    record |= {"claims": [claim._asdict() for claim in claims]}
    (folder / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return Outcome(rows, claims, seconds, folder)


def _with_part(module: ModuleType, config: Any, part: str, folder: Path) -> list[Row]:
    """Kept rows, with those of one part made anew; a row's first column names its part."""
    name = module.__name__.removeprefix("experiments.")
    kept = folder / f"{name}.csv"
    if not hasattr(module, "run_part") or not kept.exists():
        why = "has no parts" if kept.exists() else f"has no rows in {folder} to add to"
        raise NoSuchPart(f"`--part` takes an experiment with parts that was run before; {name} {why}.")
    new: list[Row] = module.run_part(config, part)
    first = next(iter(new[0])) if new else ""
    rows = read_rows(kept)
    places = [k for k, row in enumerate(rows) if row.get(first) == part]
    before = places[0] if places else len(rows)
    return [*rows[:before], *new, *(row for row in rows[before:] if row.get(first) != part)]


def describe(name: str, config: Any, seconds: float) -> dict[str, Any]:
    """What is needed to repeat a run."""
    settings = dataclasses.asdict(config)
    return {
        "experiment": name,
        "seed": settings.get("seed"),
        "config": settings,
        "seconds": round(seconds, 1),
        "versions": {
            "orthoslice": osl.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "matplotlib": mpl.__version__,
            "python": platform.python_version(),
        },
    }


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Rows as CSV, floats to nine digits, nothing for None."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([_text(value) for value in row.values()] for row in rows)


def read_rows(path: Path) -> list[Row]:
    """Rows as :func:`write_rows` wrote them: numbers are numbers again, and nothing is None."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def save_figure(figure: Figure, stem: Path) -> None:
    """A PNG to look at and an SVG to print."""
    figure.savefig(stem.with_suffix(".png"), dpi=130)
    figure.savefig(stem.with_suffix(".svg"), dpi=110, metadata={"Date": None})


def plane_errors(
    x: ArrayLike, y: ArrayLike, p: int, method: Method = "sliced", n_directions: int = 2
) -> tuple[float, float]:
    """Exact mean squared errors of the iid and of the orthogonal estimator in the plane."""
    names: tuple[DirectionsName, ...] = ("iid", "orthogonal")
    iid, orthogonal = (
        estimator_mse_plane(x, y, p, method=method, directions=name, n_directions=n_directions)
        for name in names
    )
    return iid, orthogonal


def student(values: ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """The mean of independent numbers, with Student's interval."""
    sample = np.asarray(values, dtype=float)
    mean = float(sample.mean())
    half = float(stdtrit(sample.size - 1, (1 + level) / 2) * sample.std(ddof=1) / math.sqrt(sample.size))
    return mean, mean - half, mean + half


def wilson(n_hits: int, n_trials: int, level_z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95% interval for a probability."""
    share, z2 = n_hits / n_trials, level_z**2
    centre = (share + z2 / (2 * n_trials)) / (1 + z2 / n_trials)
    half = level_z / (1 + z2 / n_trials) * math.sqrt(share * (1 - share) / n_trials + z2 / (4 * n_trials**2))
    return max(centre - half, 0.0), min(centre + half, 1.0)
