"""
The mean of handwritten digits
==============================

**Claim: the barycenter of six images is nearer to them, by the mean of SW_2^2, than the best of the six.** An
image can be read as a cloud: its pixels are points of the plane, and ink is their weight. The mean of some
images, pixel by pixel, is a blur in which all of them can be seen at once. The barycenter of the clouds moves
ink instead of mixing it.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import ndimage

import orthoslice as osl
from orthoslice import datasets

# %%
# Images as weighted clouds
# -------------------------
# The digits come with the package: 8 x 8 pixels of ink. Drawn four times finer they make clouds of some hundred
# points; sizes differ, and so do weights.

SIDE = 32
pixels = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), axis=-1).reshape(-1, 2).astype(float)


def digits(label, count):
    fine = [ndimage.zoom(image.reshape(8, 8), SIDE // 8, order=1) for image in datasets.digits(label)[:count]]
    return np.stack(fine)


def weighted_cloud(image):
    ink = image.ravel() * (image.ravel() > 2)
    return pixels[ink > 0], ink[ink > 0] / ink.sum()


def barycenter(images, weights=None):
    points, ink = zip(*map(weighted_cloud, images), strict=True)
    return osl.barycenter(points, weights, point_weights=ink, n_points=400, rng=0)


# %%
# One digit, many hands
# ---------------------
# Six images of a digit, of which two are shown, their mean and their barycenter.

labels = [0, 2, 3, 4, 5, 6]
samples = [digits(label, 6) for label in labels]
middles = [barycenter(images).points for images in samples]


def mean_cost(cloud, images):
    """The mean of SW_2^2 from a weighted cloud to images."""
    (points, ink), others = cloud, map(weighted_cloud, images)
    options = {"x_weights": ink, "n_directions": 64, "rng": 0}
    return np.mean([osl.sliced_wasserstein(points, other, y_weights=w, **options).value for other, w in others])


for label, images, middle in zip(labels, samples, middles, strict=True):
    costs = mean_cost((middle, None), images), min(mean_cost(weighted_cloud(image), images) for image in images)
    print(f"{label}: {costs[0]:.3f} from the barycenter, {costs[1]:.3f} from the best image")
    assert costs[0] < costs[1]

# %%
# From one digit to another
# -------------------------
# Barycenters of a three and a zero, with weights from (1, 0) to (0, 1).

pair = np.stack([digits(3, 1)[0], digits(0, 1)[0]])
between = [barycenter(pair, [1 - share, share]).points for share in np.linspace(0, 1, len(labels))]

# %%
# The pictures
# ------------

figure, panels = plt.subplots(5, len(labels), figsize=(8.4, 7.4))
for column, images in enumerate(samples):
    for row, image in enumerate((images[0], images[1], images.mean(axis=0))):
        panels[row, column].imshow(image, cmap="Greys")
    for row, points in ((3, middles[column]), (4, between[column])):
        panels[row, column].scatter(*points.T, s=6, color="black", alpha=0.6, lw=0)
        panels[row, column].set(xlim=(-0.5, SIDE - 0.5), ylim=(SIDE - 0.5, -0.5), aspect="equal")
for axes in panels.flat:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("lightgrey")
titles = ["one image", "another", "mean of 6,\npixel by pixel", "barycenter\nof 6", "from a three\nto a zero"]
for row, title in enumerate(titles):
    panels[row, 0].set_ylabel(title, rotation=0, ha="right", va="center", labelpad=8)
figure.tight_layout()
plt.show()
