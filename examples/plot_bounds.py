"""
SW below, PW above, W between
=============================

**Claim: SW <= certain lower bound <= W <= certain upper bound <= PW, at every size of the difference.** The
bounds come from sorts and are certain, not statistical; W itself is exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

rng = np.random.default_rng(0)
x, base = rng.normal(size=(200, 10)), rng.normal(size=(200, 10))
shifts = np.linspace(0, 6, 9)
rows = []
for shift in shifts:
    y = base + shift / np.sqrt(10)
    bounds = osl.wasserstein_bounds(x, y, rng=0)
    distances = [f(x, y, rng=0).distance for f in (osl.sliced_wasserstein, osl.projected_wasserstein)]
    rows.append([distances[0], bounds.lower, osl.wasserstein(x, y).distance, bounds.upper, distances[1]])
table = np.array(rows)
print(np.round(table[[0, -1]], 2))
assert (np.diff(table, axis=1) > -1e-9).all()

# %%
# As the clouds move apart the bracket closes: a shift is seen by every direction.

figure, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
ax.fill_between(shifts, table[:, 1], table[:, 3], color="#0072B2", alpha=0.25, label="certain bounds")
ax.plot(shifts, table[:, 2], color="black", label="W$_2$, exact")
ax.plot(shifts, table[:, 0], "--", color="#D55E00", label="SW$_2$")
ax.plot(shifts, table[:, 4], ":", color="#D55E00", label="PW$_2$")
ax.set(xlabel="length of the shift", ylabel="distance", title="200 against 200 points in 10 dimensions")
ax.legend()
plt.show()
