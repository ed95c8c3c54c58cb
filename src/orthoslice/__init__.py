"""Sliced and projected Wasserstein distances of point clouds, with error bars."""

import importlib as _importlib

# What `typing` calls so, which would take longer to load than all that is here.
TYPE_CHECKING = False

if TYPE_CHECKING:
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

# Where the names are defined. They are loaded when they are used: the command line can answer, and hear Ctrl-C,
# before NumPy is loaded.
_HOMES = {
    "BootstrapResult": "resampling",
    "Bounds": "bounds",
    "Comparison": "comparing",
    "Coupling": "coupling",
    "Descent": "descent",
    "Estimate": "result",
    "Explanation": "explanation",
    "Pairwise": "all_pairs",
    "Stream": "streams",
    "Summarised": "streams",
    "Transport": "exact",
    "TwoSampleResult": "inference",
    "UntrustedWarning": "result",
    "barycenter": "barycenters",
    "bootstrap": "resampling",
    "compare": "comparing",
    "explain": "explaining",
    "flow": "flows",
    "induced_coupling": "coupling",
    "match": "matching",
    "pairwise": "all_pairs",
    "projected_wasserstein": "distances",
    "scaled": "scaling",
    "sliced_wasserstein": "distances",
    "two_sample_test": "inference",
    "value_and_grad": "distances",
    "wasserstein": "exact",
    "wasserstein_bounds": "bounds",
}

# Modules that are public as such. Neither torch nor matplotlib is loaded by those who do not use them.
_MODULES = ("adapters", "control", "datasets", "directions", "exact", "nn", "plot")


def __getattr__(name: str) -> "_Any":
    if name in _MODULES:
        return _importlib.import_module(f"orthoslice.{name}")
    if name in _HOMES:
        found = getattr(_importlib.import_module(f"orthoslice.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
