"""
Color transfer
==============

**Claim: 150 steps take the colors of a photograph to within 1% of their distance from those of another.** A
photograph is a cloud of colors, one point a pixel. Moving that cloud onto the colors of another photograph
repaints the first one in the colors of the second, and keeps what is where.

Both photographs come with scikit-image. :func:`orthoslice.flow` needs no settings.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage import data, transform

import orthoslice as osl

# %%
# Two photographs
# ---------------
# As clouds `(pixels, 3)` of red, green and blue between 0 and 1, made smaller so that this takes seconds.


def photograph(image, height=80):
    width = round(height * image.shape[1] / image.shape[0])
    return transform.resize(image, (height, width), anti_aliasing=True)


coffee, rocket = photograph(data.coffee()), photograph(data.rocket(), height=90)
colors = {name: image.reshape(-1, 3) for name, image in (("coffee", coffee), ("rocket", rocket))}

# %%
# Each in the colors of the other
# -------------------------------
# The photographs need not have the same number of pixels.

warm = osl.flow(colors["rocket"], colors["coffee"], rng=0)
cold = osl.flow(colors["coffee"], colors["rocket"], rng=0)
for name, found in (("rocket in the colors of coffee", warm), ("coffee in the colors of rocket", cold)):
    start, end = np.sqrt(found.history[0]), np.sqrt(found.value)
    print(f"{name}: {found.n_steps} steps, SW_2 from {start:.3f} to {end:.4f}")
    assert found.n_steps <= 150
    assert end < 0.01 * start

# %%
# The photographs, and below each where its colors lie between blue and red, dark and light.


def show(axes, image, title):
    axes.imshow(image.clip(0, 1))
    axes.set(xticks=[], yticks=[], title=title)


def show_colors(axes, cloud):
    cloud = cloud.clip(0, 1)
    axes.scatter(cloud[:, 0] - cloud[:, 2], cloud.mean(axis=1), c=cloud, s=2, lw=0)
    axes.set(xlim=(-0.6, 0.95), ylim=(0, 1), xticks=[], yticks=[], xlabel="red - blue", ylabel="lightness")


figure, panels = plt.subplots(2, 4, figsize=(12, 5), height_ratios=(1, 1.15))
show(panels[0, 0], coffee, "coffee")
show(panels[0, 1], cold.points.reshape(coffee.shape), "coffee, colors of rocket")
show(panels[0, 2], rocket, "rocket")
show(panels[0, 3], warm.points.reshape(rocket.shape), "rocket, colors of coffee")
for axes, cloud in zip(panels[1], (colors["coffee"], cold.points, colors["rocket"], warm.points), strict=True):
    show_colors(axes, cloud)
figure.tight_layout()
plt.show()
