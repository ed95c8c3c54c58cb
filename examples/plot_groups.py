"""
All pairs of ten clouds
=======================

**Claim: the ten digits, as clouds of images, are projected and sorted once each, and zeros and ones turn out
more than half again as far apart as threes and nines, the pair nearest to each other.** Every cloud serves
nine pairs.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

clouds = {str(label): osl.datasets.digits(label) for label in range(10)}
found = osl.pairwise(clouds, rng=0)
distance = np.asarray(found.distance)

# %%
# A map
# -----
# Classical scaling: the plane whose squared distances are nearest to those of the table.

centred = np.eye(10) - 0.1
values, vectors = np.linalg.eigh(-0.5 * centred @ distance**2 @ centred)
place = vectors[:, -2:] * np.sqrt(values[-2:])
upper = np.triu_indices(10, 1)
nearest = min(zip(*upper, strict=True), key=lambda pair: distance[pair])
print(f"nearest: {nearest[0]} and {nearest[1]}, {distance[nearest]:.2f}; 0 and 1: {distance[0, 1]:.2f}")
assert nearest == (3, 9)
assert distance[0, 1] > 1.5 * distance[3, 9]

figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
picture = axes[0].imshow(distance, cmap="cividis")
axes[0].set(xticks=range(10), yticks=range(10), title="SW$_2$ of all pairs")
figure.colorbar(picture, ax=axes[0])
axes[1].scatter(*place.T, s=0)
for (a, b), label in zip(place, clouds, strict=True):
    axes[1].text(a, b, label, fontsize=16, ha="center", va="center")
axes[1].set(aspect="equal", title="as a map", xticks=[], yticks=[])
plt.show()
