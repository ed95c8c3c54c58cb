"""
What PW does to points that follow it
=====================================

**Claim: points that descend along PW end in the middle of their target, those that descend along SW on it.**
Why a loss should be sliced, in one picture: every direction pairs a point with another partner, and PW pulls
it to their mean.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

rng = np.random.default_rng(0)
start = 0.3 * rng.normal(size=(400, 2))
angle = rng.uniform(0, 2 * np.pi, 400)
target = np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.05 * rng.normal(size=(400, 2))

moved = {
    method: osl.flow(start, target, method=method, n_steps=60, rng=0).points
    for method in ("sliced", "projected")
}
left = {method: osl.wasserstein(points, target).distance for method, points in moved.items()}
radius = {method: float(np.linalg.norm(points, axis=1).mean()) for method, points in moved.items()}
print({method: f"W_2 left {left[method]:.3f}, mean radius {radius[method]:.2f}" for method in moved})
assert radius["sliced"] > 0.95
assert left["projected"] > 5 * left["sliced"]
assert radius["projected"] < 0.8 * radius["sliced"]

# %%

figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained", sharex=True, sharey=True)
panels = {"start": start, **moved}
for ax, (name, points) in zip(axes, panels.items(), strict=True):
    ax.scatter(*target.T, s=5, color="#BBBBBB")
    ax.scatter(*points.T, s=5, color="#0072B2")
    ax.set(aspect="equal", title=name if name == "start" else f"{name}: W$_2$ left {left[name]:.2f}")
plt.show()
