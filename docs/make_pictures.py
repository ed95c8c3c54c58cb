"""Make the picture of the README: ``python docs/make_pictures.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

import orthoslice as osl

mpl.use("agg")
mpl.rcParams.update({"font.size": 11, "axes.titlesize": 12})


def main() -> None:
    """Three pictures side by side: images of a handwritten 3 against those of an 8."""
    import matplotlib.pyplot as plt

    x, y = osl.datasets.digits(3), osl.datasets.digits(8)
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.4), layout="constrained")
    names = [f"row {k // 8} column {k % 8}" for k in range(64)]
    osl.plot.null(osl.two_sample_test(x, y, rng=0), unit="shades of grey", ax=axes[0])
    found = osl.explain(x, y, names=names, rng=0)
    osl.plot.features(found, n_shown=7, ax=axes[1])
    osl.plot.directions(osl.sliced_wasserstein(x, y, rng=0), unit="shades of grey", ax=axes[2])
    figure.savefig(Path(__file__).with_name("pictures.png"), dpi=72)


if __name__ == "__main__":
    main()
