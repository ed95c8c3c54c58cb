"""
Where is the difference?
========================

**Claim: a correlation that no column shows is found, and named.** Six columns; one is shifted, and two others
go together in the second table. Tests of each column see the shift alone.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

rng = np.random.default_rng(1)
names = ["age", "height", "weight", "pulse", "sodium", "sleep"]
x, y = rng.normal(size=(500, 6)), rng.normal(size=(500, 6))
y[:, 0] += 0.5
y[:, 2] = 0.8 * y[:, 1] + 0.6 * y[:, 2]

found = osl.explain(x, y, names=names, rng=0)
test = osl.two_sample_test(x, y, method="auto", rng=0)
columns = [name for name, p in zip(names, test.column_pvalues, strict=True) if p <= 0.05]
print(f"columns that changed: {columns}")
assert columns == ["age"]

# %%
# Combinations
# ------------
# Directions along which the tables are farthest apart, orthogonal to each other.

tops = [sorted(d.loadings, key=lambda k: -abs(d.loadings[k]))[:2] for d in found.directions[:3]]
print(f"heaviest columns of the first three directions: {tops}")
assert {"height", "weight"} in [set(top) for top in tops]

figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
osl.plot.features(found, ax=axes[0])
place = next(k for k, top in enumerate(tops) if set(top) == {"height", "weight"})
osl.plot.quantiles(x, y, found.directions[place], ax=axes[1])
plt.show()
