"""
Two halves of one file
======================

**Claim: two halves of the same images are 0.69 apart, with an interval far from 0, and p is 0.9.** An
interval over directions says how exactly the distance of *these points* is known. What chance alone gives is
another question, which permuting the labels answers.
"""

import matplotlib.pyplot as plt

import orthoslice as osl

threes, eights = osl.datasets.digits(3), osl.datasets.digits(8)
pairs = {"two halves of the threes": (threes[::2], threes[1::2]), "threes against eights": (threes, eights)}
tests = {name: osl.two_sample_test(*pair, p=2, rng=0) for name, pair in pairs.items()}
for name, pair in pairs.items():
    est = osl.sliced_wasserstein(*pair, rng=0)
    low, high = est.distance_interval()
    print(f"{name}: SW_2 = {est.distance:.3f} ({low:.3f} to {high:.3f}), p = {tests[name].pvalue}")
    assert low > 0.5
assert tests["two halves of the threes"].pvalue > 0.5
assert tests["threes against eights"].pvalue == 0.001

# %%
# What chance gives, and what was observed
# ----------------------------------------

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (name, test) in zip(axes, tests.items(), strict=True):
    osl.plot.null(test, unit="shades of grey", ax=ax)
    ax.set_xlabel(f"SW$_2$ of {name} (shades of grey)")
plt.show()
