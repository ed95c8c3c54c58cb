"""
Training a generator
====================

A small network learns to turn noise into data: eight bumps on a ring. Its loss is the sliced Wasserstein
distance of a batch of what it makes to a batch of data. There is no second network to train against, and no
bump is forgotten: the loss compares whole clouds.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import orthoslice as osl

torch.manual_seed(0)


def bumps(n):
    angle = 2 * np.pi / 8 * torch.randint(8, (n,))
    return 2 * torch.stack([angle.cos(), angle.sin()], dim=1) + 0.12 * torch.randn(n, 2)


# %%
# A network and a loss
# --------------------
# The loss draws new orthogonal directions at every call.

generator = torch.nn.Sequential(
    torch.nn.Linear(2, 96), torch.nn.ReLU(), torch.nn.Linear(96, 96), torch.nn.ReLU(), torch.nn.Linear(96, 2)
)
loss = osl.nn.SlicedWassersteinLoss(n_directions=32, seed=0)
optimizer = torch.optim.Adam(generator.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)

# %%
# Training
# --------

noise = torch.randn(1000, 2)
history, pictures = [], {}
for step in range(1001):
    if step in (0, 20, 100, 1000):
        with torch.no_grad():
            pictures[step] = generator(noise)
    value = loss(generator(torch.randn(500, 2)), bumps(500))
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    schedule.step()
    history.append(value.item())

# %%
# How well does it fit? The exact distance of a thousand points of the generator to data, beside that of data to
# other data. A network is continuous and cannot tear its noise apart: threads remain between the bumps.

data = bumps(1000)
print("W_2 of generator and data:", round(float(osl.wasserstein(pictures[1000], data).distance), 2))
print("W_2 of data and data:     ", round(float(osl.wasserstein(bumps(1000), data).distance), 2))

figure, panels = plt.subplots(1, 5, figsize=(14, 3), width_ratios=(1, 1, 1, 1, 1.15))
for axes, (step, points) in zip(panels, pictures.items(), strict=False):
    axes.scatter(*data.T, s=4, color="lightgrey", lw=0, label="data")
    axes.scatter(*points.T, s=4, color="tab:blue", lw=0, alpha=0.7, label="generator")
    axes.set(xlim=(-2.9, 2.9), ylim=(-2.9, 2.9), xticks=[], yticks=[], aspect="equal", title=f"step {step}")
panels[0].legend(loc="lower left", markerscale=3, fontsize=8)
panels[4].loglog(np.arange(1, len(history) + 1), history, color="tab:blue", lw=0.6)
panels[4].set(xlabel="step", title="loss (SW$_2^2$ of batches)")
figure.tight_layout()
plt.show()
