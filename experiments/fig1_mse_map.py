"""Figure 1: MSE of the iid estimator less that of the orthogonal one, for two points against two.

SW_1 in the plane with two directions. x_1 = (0, 0) and x_2 = (1, 0) stay; z = x_1 - y_1 and r = y_1 - y_2
have length 1 and make the angles rho and phi with the x axis. Errors are exact, nothing is simulated.
A reflection in the x axis turns (phi, rho) into (-phi, -rho) and changes no error, so that only rho from
0 to 180 degrees is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.colors import ListedColormap, SymLogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from experiments.common import Claim, Row, plane_errors


@dataclass(frozen=True, kw_only=True)
class Config:
    """How fine the grid is: angles to a full turn, an even number."""

    n_angles: int = 120
    n_directions: int = 2
    p: int = 1


SMOKE = Config(n_angles=30)


def clouds(phi: float, rho: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The data set at two angles in radians."""
    x = np.array([[0.0, 0.0], [1.0, 0.0]])
    first = x[0] - np.array([np.cos(rho), np.sin(rho)])
    second = first - np.array([np.cos(phi), np.sin(phi)])
    return x, np.array([first, second])


def run(config: Config) -> list[Row]:
    """One row a data set, rho from 0 to 180 degrees."""
    if config.n_angles < 2 or config.n_angles % 2:
        raise ValueError(f"`n_angles` must be even, so that it holds 180 degrees; got {config.n_angles}.")
    step = 360 / config.n_angles
    rows = []
    for j in range(config.n_angles // 2 + 1):
        for i in range(config.n_angles):
            phi, rho = i * step, j * step
            x, y = clouds(np.deg2rad(phi), np.deg2rad(rho))
            iid, orthogonal = plane_errors(x, y, config.p, n_directions=config.n_directions)
            rows.append({"phi_deg": phi, "rho_deg": rho, "mse_iid": iid, "mse_orthogonal": orthogonal})
    return rows


def gain_on_torus(rows: list[Row]) -> NDArray[np.float64]:
    """MSE iid less MSE orthogonal `(rho, phi)` over both full turns, the second half by reflection."""
    n_angles = len({row["phi_deg"] for row in rows})
    half = np.array([row["mse_iid"] - row["mse_orthogonal"] for row in rows]).reshape(-1, n_angles)
    mirrored = np.roll(half[-2:0:-1, ::-1], 1, axis=1)
    return np.concatenate([half, mirrored])


def region_sizes(mask: NDArray[np.bool_], *, diagonal: bool = False) -> list[int]:
    """Cells of each connected region on the torus, largest first."""
    wrapped = np.pad(mask, 1, mode="wrap")
    labels, n_labels = ndimage.label(wrapped, np.ones((3, 3)) if diagonal else None)
    # A cell of the frame and the cell it copies are one and the same.
    frame = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    origin = np.concatenate([labels[-2], labels[1], labels[:, -2], labels[:, 1]])
    graph = coo_array((np.ones(frame.size), (frame, origin)), shape=(n_labels + 1, n_labels + 1))
    _, region = connected_components(graph, directed=False)
    sizes = np.bincount(region[labels[1:-1, 1:-1][mask]])
    return sorted((int(size) for size in sizes if size), reverse=True)


def check(rows: list[Row]) -> list[Claim]:
    """The caption: two connected regions where iid is better."""
    gain = gain_on_torus(rows)
    iid_wins = gain < 0
    sizes = region_sizes(iid_wins)
    variants = [
        len(region_sizes(iid_wins, diagonal=True)),
        *(len(region_sizes(iid_wins[i::2, j::2])) for i in (0, 1) for j in (0, 1)),
    ]
    return [
        Claim(
            "The configurations where iid wins form two connected regions on the torus.",
            len(sizes) == 2 and set(variants) == {2},
            f"{len(sizes)} regions of {sizes} cells among {gain.size}; with diagonal neighbours {variants[0]}; "
            f"on the four grids twice as coarse {variants[1:]}",
        ),
        Claim(
            "Neither estimator dominates: the difference takes both signs.",
            bool(gain.min() < 0 < gain.max()),
            f"difference from {gain.min():.6f} to {gain.max():.6f}; "
            f"iid wins on {iid_wins.mean():.1%} of the configurations",
        ),
    ]


def plot(rows: list[Row]) -> Figure:
    """The difference on the left, its sign on the right."""
    gain = gain_on_torus(rows)
    closed = np.pad(gain, (0, 1), mode="wrap")
    degrees = np.linspace(0, 360, len(closed))
    figure = Figure(figsize=(9.6, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    # The gains are thirty times the losses: a linear scale would hide where iid wins.
    scale = SymLogNorm(linthresh=0.002, vmin=-0.2, vmax=0.2, base=10)
    image = left.pcolormesh(
        degrees, degrees, closed, cmap="RdBu", norm=scale, shading="gouraud", rasterized=True
    )
    left.contour(degrees, degrees, closed, levels=[0], colors="black", linewidths=1)
    ticks = [-0.1, -0.01, -0.001, 0, 0.001, 0.01, 0.1]
    bar = figure.colorbar(image, ax=left, ticks=ticks)
    bar.ax.set_yticklabels([f"${tick}$" for tick in ticks])
    bar.ax.minorticks_off()
    bar.set_label("MSE iid $-$ MSE orthogonal (symmetric log scale)")
    left.set_title("Difference: blue where orthogonal is better")
    step = 360 / len(gain)
    edges = np.arange(len(closed) + 1) * step - step / 2
    right.pcolormesh(edges, edges, closed < 0, cmap=ListedColormap(["white", "black"]), rasterized=True)
    right.set_title(f"Black: iid is better ({(gain < 0).mean():.1%} of the torus)")
    for axes in (left, right):
        axes.set(
            aspect="equal", xlim=(0, 360), ylim=(0, 360), xlabel=r"$\phi$, angle of $r = y_1 - y_2$ (degrees)"
        )
        axes.set(xticks=range(0, 361, 60), yticks=range(0, 361, 60))
        axes.spines[["top", "right"]].set_visible(True)
    left.set_ylabel(r"$\rho$, angle of $z = x_1 - y_1$ (degrees)")
    figure.suptitle("SW$_1$ of two points against two in the plane, $N = 2$ directions, exact errors")
    return figure
