"""
Batches against a reference
===========================

**Claim: of 200 batches without a change about 5% raise an alarm, as asked for; after a shift of 0.3 standard
deviations in every column nearly all do.** The threshold comes from random batches of the reference itself.
"""

import matplotlib.pyplot as plt
import numpy as np

import orthoslice as osl

rng = np.random.default_rng(0)
reference = rng.normal(size=(2000, 6))
detector = osl.adapters.DriftDetector(100, false_alarm_rate=0.05, rng=0).fit(reference)

sound = [detector.predict(rng.normal(size=(100, 6))) for _ in range(200)]
moved = [detector.predict(rng.normal(size=(100, 6)) + 0.3) for _ in range(60)]
rates = [np.mean([found.is_drift for found in batches]) for batches in (sound, moved)]
print(f"alarms: {rates[0]:.1%} before, {rates[1]:.1%} after the shift")
assert 0.02 < rates[0] < 0.09
assert rates[1] > 0.95

# %%

shown = [*sound[:90], *moved]
figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
colours = ["#D55E00" if found.is_drift else "#0072B2" for found in shown]
ax.scatter(range(len(shown)), [found.statistic for found in shown], c=colours, s=14)
ax.axhline(shown[0].threshold, color="black", linewidth=1)
ax.axvline(89.5, color="#808080", linestyle=":")
ax.set(xlabel="batch", ylabel="SW$_1$ to the reference", title="Orange: an alarm. The data changed at batch 90")
plt.show()
