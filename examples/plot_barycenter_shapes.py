"""
Shapes between shapes
=====================

**Claim: every barycenter takes at most 60 steps, without a step length to choose.** Three surfaces in space
stand at the corners of a triangle. Everywhere else is their barycenter with the weights of that place: the
cloud whose weighted mean of squared sliced Wasserstein distances to the three is least.

Nothing has to be tuned: :func:`orthoslice.barycenter` knows the length of its steps.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

rng = np.random.default_rng(0)
n = 1500

# %%
# Three shapes
# ------------
# Points on the surfaces of a cube, a torus and a double cone.


def cube(n):
    points = rng.uniform(-1, 1, size=(n, 3))
    points[np.arange(n), rng.integers(3, size=n)] = rng.choice([-1, 1], size=n)
    return points


def torus(n, radius=1.2, tube=0.45):
    around, across = rng.uniform(0, 2 * np.pi, size=(2, 4 * n))
    # Outer parts of the tube have more surface.
    keep = rng.uniform(0, radius + tube, size=4 * n) < radius + tube * np.cos(across)
    around, across = around[keep][:n], across[keep][:n]
    ring = radius + tube * np.cos(across)
    return np.stack([ring * np.cos(around), ring * np.sin(around), tube * np.sin(across)], axis=1)


def double_cone(n):
    height = rng.choice([-1, 1], size=n) * 1.5 * np.sqrt(rng.random(n))
    angle = rng.uniform(0, 2 * np.pi, size=n)
    return np.stack([0.7 * height * np.cos(angle), 0.7 * height * np.sin(angle), height], axis=1)


shapes = [cube(n), torus(n), double_cone(n)]

# %%
# Barycenters
# -----------
# Weights in steps of a third. A weight of 1 gives a shape back.

steps = 3
weights = [(steps - row, row - column, column) for row in range(steps + 1) for column in range(row + 1)]
found = [osl.barycenter(shapes, np.array(w) / steps, rng=0) for w in weights]
for w, barycenter in zip(weights, found, strict=True):
    print(w, "of 3:", barycenter.n_steps, "steps, mean SW_2^2", round(barycenter.value, 4))
    assert barycenter.converged
    assert barycenter.n_steps <= 60

# %%
# What is far away is paler.


def draw(axes, points):
    turned = points @ np.array([[0.8, -0.35, 0.49], [0.6, 0.47, -0.65], [0.0, 0.81, 0.58]])
    order = np.argsort(turned[:, 2])
    depth = turned[order, 2]
    axes.scatter(*turned[order, :2].T, c=depth, s=3 + 2 * (depth > 0), cmap="YlGnBu", vmin=-2.6, vmax=1.8, lw=0)
    axes.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal")
    axes.axis("off")


figure = plt.figure(figsize=(8, 7.6))
for w, barycenter in zip(weights, found, strict=True):
    row, column = steps - w[0], w[2]
    left = 0.5 + (column - row / 2 - 0.5) * 0.25
    axes = figure.add_axes((left, 0.72 - 0.235 * row, 0.25, 0.26))
    draw(axes, barycenter.points)
    if max(w) == steps:
        axes.set_title(
            ["cube", "torus", "double cone"][w.index(steps)], y=0.93 if row == 0 else -0.06, fontsize=11
        )
plt.show()
