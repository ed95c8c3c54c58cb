"""Run the examples and keep their pictures: `python -m examples [folder]`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("plot_*.py"))


def run(script: Path, folder: Path) -> Path:
    """Run a script; its picture goes to a file where it would be shown."""
    picture = folder / f"{script.stem.removeprefix('plot_')}.png"
    folder.mkdir(parents=True, exist_ok=True)
    mpl.use("Agg")
    shown, plt.show = plt.show, lambda: plt.savefig(picture, dpi=90)
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        plt.show = shown
        plt.close("all")
    return picture


if __name__ == "__main__":
    for script in SCRIPTS:
        print(run(script, Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "pictures"))
