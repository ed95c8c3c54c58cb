"""Sliced and projected Wasserstein distances of point clouds, with error bars."""

import importlib as _importlib

# Stands for `typing.TYPE_CHECKING`: `typing` takes longer to load than all that is here.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any as _Any

    from orthoslice import control, datasets, directions, exact
    from orthoslice.applications.bounds import Bounds, wasserstein_bounds
    from orthoslice.applications.compare.compare import compare
    from orthoslice.applications.compare.comparison import Comparison
    from orthoslice.applications.descent.barycenter import barycenter
    from orthoslice.applications.descent.descent import Descent
    from orthoslice.applications.descent.flow import flow
    from orthoslice.applications.distances import projected_wasserstein, sliced_wasserstein, value_and_grad
    from orthoslice.applications.embedding import Embedding, embed
    from orthoslice.applications.explain.explain import explain
    from orthoslice.applications.explain.explanation import Explanation
    from orthoslice.applications.match.cheapest import cheapest_coupling
    from orthoslice.applications.match.match import match
    from orthoslice.applications.max_sliced import MaxSliced, max_sliced_wasserstein
    from orthoslice.applications.pairwise import Pairwise, pairwise
    from orthoslice.applications.prediction import PredictedPairwise
    from orthoslice.applications.scaling import scaled
    from orthoslice.applications.sketch.stream import Stream, Summarised
    from orthoslice.applications.spherical.circle import CircularTransport, circular_wasserstein
    from orthoslice.applications.spherical.sphere import spherical_sliced_wasserstein
    from orthoslice.applications.two_sample.bootstrap import BootstrapResult, bootstrap
    from orthoslice.applications.two_sample.testing import TwoSampleResult, two_sample_test
    from orthoslice.clouds import laws
    from orthoslice.couplings.coupling import Coupling, induced_coupling
    from orthoslice.couplings.quantiles import quantile_function
    from orthoslice.estimates.result import Estimate, UntrustedWarning
    from orthoslice.exact import Transport, wasserstein

__version__ = "0.1.0"

__all__ = [
    "BootstrapResult",
    "Bounds",
    "CircularTransport",
    "Comparison",
    "Coupling",
    "Descent",
    "Embedding",
    "Estimate",
    "Explanation",
    "MaxSliced",
    "Pairwise",
    "PredictedPairwise",
    "Stream",
    "Summarised",
    "Transport",
    "TwoSampleResult",
    "UntrustedWarning",
    "barycenter",
    "bootstrap",
    "cheapest_coupling",
    "circular_wasserstein",
    "compare",
    "control",
    "datasets",
    "directions",
    "embed",
    "exact",
    "explain",
    "flow",
    "induced_coupling",
    "laws",
    "match",
    "max_sliced_wasserstein",
    "pairwise",
    "projected_wasserstein",
    "quantile_function",
    "scaled",
    "sliced_wasserstein",
    "spherical_sliced_wasserstein",
    "two_sample_test",
    "value_and_grad",
    "wasserstein",
    "wasserstein_bounds",
]

# Where the names are defined. They are loaded when they are used: the command line can answer, and hear Ctrl-C,
# before NumPy is loaded.
_HOMES = {
    "BootstrapResult": "applications.two_sample.bootstrap",
    "Bounds": "applications.bounds",
    "CircularTransport": "applications.spherical.circle",
    "Comparison": "applications.compare.comparison",
    "Coupling": "couplings.coupling",
    "Descent": "applications.descent.descent",
    "Embedding": "applications.embedding",
    "Estimate": "estimates.result",
    "Explanation": "applications.explain.explanation",
    "MaxSliced": "applications.max_sliced",
    "Pairwise": "applications.pairwise",
    "PredictedPairwise": "applications.prediction",
    "Stream": "applications.sketch.stream",
    "Summarised": "applications.sketch.stream",
    "Transport": "exact",
    "TwoSampleResult": "applications.two_sample.testing",
    "UntrustedWarning": "estimates.result",
    "barycenter": "applications.descent.barycenter",
    "bootstrap": "applications.two_sample.bootstrap",
    "cheapest_coupling": "applications.match.cheapest",
    "circular_wasserstein": "applications.spherical.circle",
    "compare": "applications.compare.compare",
    "embed": "applications.embedding",
    "explain": "applications.explain.explain",
    "flow": "applications.descent.flow",
    "induced_coupling": "couplings.coupling",
    "match": "applications.match.match",
    "max_sliced_wasserstein": "applications.max_sliced",
    "pairwise": "applications.pairwise",
    "projected_wasserstein": "applications.distances",
    "quantile_function": "couplings.quantiles",
    "scaled": "applications.scaling",
    "sliced_wasserstein": "applications.distances",
    "spherical_sliced_wasserstein": "applications.spherical.sphere",
    "two_sample_test": "applications.two_sample.testing",
    "value_and_grad": "applications.distances",
    "wasserstein": "exact",
    "wasserstein_bounds": "applications.bounds",
}

# Public modules, loaded at first use: torch and matplotlib are not loaded before.
_MODULES = {name: name for name in ("adapters", "control", "datasets", "directions", "exact", "nn", "plot")}
_MODULES["laws"] = "clouds.laws"


def __getattr__(name: str) -> "_Any":
    if name in _MODULES:
        return _importlib.import_module(f"orthoslice.{_MODULES[name]}")
    if name in _HOMES:
        found = getattr(_importlib.import_module(f"orthoslice.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
