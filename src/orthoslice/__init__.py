"""Sliced and projected Wasserstein distances of point clouds, with error bars."""

import importlib as _importlib
from typing import Any as _Any

from orthoslice import control, datasets, directions, exact
from orthoslice.all_pairs import Pairwise, pairwise
from orthoslice.bounds import Bounds, wasserstein_bounds
from orthoslice.coupling import Coupling, induced_coupling
from orthoslice.distances import projected_wasserstein, sliced_wasserstein
from orthoslice.exact import Transport, wasserstein
from orthoslice.explaining import Explanation, explain
from orthoslice.inference import TwoSampleResult, two_sample_test
from orthoslice.matching import match
from orthoslice.result import Estimate, UntrustedWarning
from orthoslice.scaling import scaled

__version__ = "0.1.0"

__all__ = [
    "Bounds",
    "Coupling",
    "Estimate",
    "Explanation",
    "Pairwise",
    "Transport",
    "TwoSampleResult",
    "UntrustedWarning",
    "control",
    "datasets",
    "directions",
    "exact",
    "explain",
    "induced_coupling",
    "match",
    "pairwise",
    "projected_wasserstein",
    "scaled",
    "sliced_wasserstein",
    "two_sample_test",
    "wasserstein",
    "wasserstein_bounds",
]


def __getattr__(name: str) -> _Any:
    # Neither torch nor what the adapters are for is loaded by those who do not use them.
    if name in ("nn", "adapters"):
        return _importlib.import_module(f"orthoslice.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
