"""
Training a generator
====================

**Claim: in 300 steps a small network comes within twice the distance of data from other data.** It learns to
turn noise into points in the shape of a heart. Its loss is the sliced Wasserstein distance of a batch of what
it makes to a batch of data. There is no second network to train against, and no part of the data is
forgotten, since the loss compares whole clouds.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import orthoslice as osl

torch.manual_seed(0)


def heart(n):
    x, y = 3 * torch.rand(2, 4 * n) - 1.5
    inside = (x**2 + y**2 - 1) ** 3 < x**2 * y**3
    return torch.stack([x[inside], y[inside]], dim=1)[:n]


# %%
# A network and a loss
# --------------------
# The loss draws new orthogonal directions at every call.

width = 96
layers = [torch.nn.Linear(2, width), torch.nn.LeakyReLU(0.1)]
for _ in range(2):
    layers += [torch.nn.Linear(width, width), torch.nn.LeakyReLU(0.1)]
generator = torch.nn.Sequential(*layers, torch.nn.Linear(width, 2))
loss = osl.nn.SlicedWassersteinLoss(n_directions=32, seed=0)
optimizer = torch.optim.Adam(generator.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=300)

# %%
# Training
# --------

noise = torch.randn(1000, 2)
history, pictures = [], {}
for step in range(301):
    if step in (0, 20, 100, 300):
        with torch.no_grad():
            pictures[step] = generator(noise)
    value = loss(generator(torch.randn(500, 2)), heart(500))
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    schedule.step()
    history.append(value.item())

# %%
# How well does it fit? The exact distance of a thousand points of the generator to data, beside that of data to
# other data.

data = heart(1000)
made, other = (float(osl.wasserstein(points, data).distance) for points in (pictures[300], heart(1000)))
print(f"W_2 of generator and data {made:.3f}, of data and data {other:.3f}")
assert made < 2 * other

figure, panels = plt.subplots(1, 5, figsize=(14, 3), width_ratios=(1, 1, 1, 1, 1.15))
for axes, (step, points) in zip(panels, pictures.items(), strict=False):
    axes.scatter(*data.T, s=6, color="lightgrey", lw=0, label="data")
    axes.scatter(*points.T, s=6, color="crimson", lw=0, alpha=0.6, label="generator")
    axes.set(xlim=(-1.7, 1.7), ylim=(-1.9, 1.5), xticks=[], yticks=[], aspect="equal", title=f"step {step}")
panels[0].legend(loc="lower left", markerscale=3, fontsize=8)
panels[4].loglog(np.arange(1, len(history) + 1), history, color="crimson", lw=0.6)
panels[4].set(xlabel="step", title="loss (SW$_2^2$ of batches)")
figure.tight_layout()
plt.show()
