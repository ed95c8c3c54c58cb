"""Rows of trainings."""

from __future__ import annotations

COLUMNS = (
    *("task", "method", "strength", "seed", "steps", "n_episodes", "mean_return"),
    *("sw", "pw", "kl", "shift", "std", "rollout_ms", "update_ms"),
)
"""Returns are of the episodes that ended since the last row, not discounted or normalised.

`sw`, `pw`, `kl` and `shift` say how far the last update moved the policy, `std` is the mean standard deviation
of its actions. `rollout_ms` and `update_ms` are wall-clock means for one rollout and one update since then.
"""
