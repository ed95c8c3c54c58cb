"""
Three points against three
==========================

**Claim: orthogonal directions can make PW worse, by 55% here.** The paper that introduced PW conjectures that
they never do. In the plane everything is exact: no simulation is involved.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

x = np.array([[1.32, 1.29], [-0.42, 0.65], [0.97, -0.98]])
y = np.array([[-2.04, -0.46], [1.04, 0.84], [-0.38, -0.54]])
iid, orthogonal = (
    osl.exact.estimator_mse_plane(x, y, 2, method="projected", directions=d, n_directions=2)
    for d in ("iid", "orthogonal")
)
print(f"mean squared error: {iid:.4f} independent, {orthogonal:.4f} orthogonal")
assert orthogonal > 1.5 * iid

# %%
# Why
# ---
# The score jumps where the order of two projections changes. Scores of orthogonal directions are correlated
# here: where one is high, the one a quarter turn away tends to be high too.

angle = np.linspace(0, np.pi, 721)
theta = np.stack([np.cos(angle), np.sin(angle)], axis=1)
scores = osl.projected_wasserstein(x, y, directions=theta).scores
turned = np.roll(scores[:-1], 360)
print(f"correlation of scores a quarter turn apart: {np.corrcoef(scores[:-1], turned)[0, 1]:+.2f}")
assert np.corrcoef(scores[:-1], turned)[0, 1] > 0.5

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
axes[0].scatter(*x.T, color="#0072B2", label="x")
axes[0].scatter(*y.T, color="#D55E00", marker="s", label="y")
axes[0].set(aspect="equal", title="The counterexample")
axes[0].legend()
axes[1].plot(np.degrees(angle), scores, color="#0072B2", label="score of v")
axes[1].plot(np.degrees(angle[:-1]), turned, color="#D55E00", linestyle="--", label="of v, a quarter turn on")
axes[1].set(
    xlabel="angle of v (degrees)", ylabel="cost", title=f"error {orthogonal / iid:.2f} times that of iid"
)
axes[1].legend()
plt.show()
