"""
Intervals hold what they say
============================

**Claim: of 400 intervals at 95%, 93 to 97% hold the truth.** In the plane the truth is known exactly, so it
can be counted. Directions are coupled, within blocks and sets, and the intervals come from the blocks, which
are not.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

rng = np.random.default_rng(0)
x, y = rng.normal(size=(30, 2)), rng.normal(size=(40, 2)) * [1.5, 0.7] + [1, 0]
truth = osl.exact.sliced_plane(x, y, 2)

# %%
# Many estimates of one number
# ----------------------------
# As many orthogonal directions in each, in eight blocks or more. The rest differs in nothing but the seed.

runs = [osl.sliced_wasserstein(x, y, directions="orthogonal", n_directions=32, rng=k) for k in range(400)]
lows, highs = np.array([run.interval() for run in runs]).T
held = (lows <= truth) & (truth <= highs)
print(f"{np.mean(held):.1%} of {len(runs)} intervals hold the truth")
assert 0.93 <= np.mean(held) <= 0.97

# %%
# The first sixty
# ---------------

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
place = np.arange(60)
for inside, colour in ((True, "#0072B2"), (False, "#D55E00")):
    shown = place[held[:60] == inside]
    ax.vlines(
        shown, lows[shown], highs[shown], color=colour, label="holds the truth" if inside else "misses it"
    )
ax.axhline(truth, color="black", linewidth=1)
ax.set(xlabel="run", ylabel="SW$_2^2$", title=f"{np.mean(held):.1%} of 400 intervals at 95% hold the truth")
ax.legend()
plt.show()
