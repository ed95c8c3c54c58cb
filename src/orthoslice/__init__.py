"""Sliced and projected Wasserstein distances of point clouds, with error bars."""

import importlib as _importlib
from typing import Any as _Any

from orthoslice import control, datasets, directions, exact
from orthoslice.all_pairs import Pairwise, pairwise
from orthoslice.barycenters import barycenter
from orthoslice.bounds import Bounds, wasserstein_bounds
from orthoslice.comparing import Comparison, compare
from orthoslice.coupling import Coupling, induced_coupling
from orthoslice.descent import Descent
from orthoslice.distances import projected_wasserstein, sliced_wasserstein, value_and_grad
from orthoslice.exact import Transport, wasserstein
from orthoslice.explaining import explain
from orthoslice.explanation import Explanation
from orthoslice.flows import flow
from orthoslice.inference import TwoSampleResult, two_sample_test
from orthoslice.matching import match
from orthoslice.resampling import BootstrapResult, bootstrap
from orthoslice.result import Estimate, UntrustedWarning
from orthoslice.scaling import scaled
from orthoslice.streams import Stream, Summarised

__version__ = "0.1.0"

__all__ = [
    "BootstrapResult",
    "Bounds",
    "Comparison",
    "Coupling",
    "Descent",
    "Estimate",
    "Explanation",
    "Pairwise",
    "Stream",
    "Summarised",
    "Transport",
    "TwoSampleResult",
    "UntrustedWarning",
    "barycenter",
    "bootstrap",
    "compare",
    "control",
    "datasets",
    "directions",
    "exact",
    "explain",
    "flow",
    "induced_coupling",
    "match",
    "pairwise",
    "projected_wasserstein",
    "scaled",
    "sliced_wasserstein",
    "two_sample_test",
    "value_and_grad",
    "wasserstein",
    "wasserstein_bounds",
]


# Neither torch nor matplotlib nor what the adapters are for is loaded by those who do not use them.
_LOADED_WHEN_USED = ("adapters", "nn", "plot")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LOADED_WHEN_USED])


def __getattr__(name: str) -> _Any:
    if name in _LOADED_WHEN_USED:
        return _importlib.import_module(f"orthoslice.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
