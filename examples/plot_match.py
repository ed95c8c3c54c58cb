"""
Partners for points
===================

**Claim: osl.match comes within 2% of the least cost, where the best single direction costs twice as much.**
Two clouds of 2,000 points in the plane; the least is exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

rng = np.random.default_rng(0)
x = rng.normal(size=(2000, 2))
angle = rng.uniform(0, 2 * np.pi, 2000)
y = 3 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.3 * rng.normal(size=(2000, 2))

theta = osl.directions.Equispaced().sample(64, 2, 0).theta
single = min((osl.induced_coupling(x, y, row) for row in theta), key=lambda c: c.cost(2))
found = osl.match(x, y, rng=0)
least = osl.wasserstein(x, y).value
ratios = [float(coupling.cost(2) / least) for coupling in (single, found)]
print(f"cost over the least: best direction {ratios[0]:.2f}, match {ratios[1]:.4f}")
assert ratios[0] > 1.5
assert ratios[1] < 1.02

# %%

figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained", sharex=True, sharey=True)
for ax, coupling, ratio, name in zip(axes, (single, found), ratios, ("best direction", "match"), strict=True):
    some = np.arange(0, 2000, 8)
    ix, iy = coupling.ix[some], coupling.iy[some]
    ax.plot([x[ix, 0], y[iy, 0]], [x[ix, 1], y[iy, 1]], color="#808080", linewidth=0.5)
    ax.scatter(*x[ix].T, s=6, color="#0072B2")
    ax.scatter(*y[iy].T, s=6, color="#D55E00")
    ax.set(aspect="equal", title=f"{name}: {ratio:.3f} of the least cost")
plt.show()
