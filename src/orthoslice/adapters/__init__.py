"""Ways into other libraries: thin, and none of those is loaded before it is needed.

- :class:`SlicedWassersteinMetric`: a metric of torchmetrics.
- :class:`PlanSampler`: pairs for flow matching, in place of torchcfm's.
- :class:`CloudMetric`: a callable for scikit-learn's ``metric=``.
- :class:`CloudVectors`: a transformer of scikit-learn, clouds to vectors.
- :func:`group_clouds`: the groups of an AnnData object as clouds.
- :func:`compare_with_control`: all of these groups against one of them.
- :class:`DriftDetector`: tells batches that do not look like a reference.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from orthoslice.adapters.drift import Drift, DriftDetector
from orthoslice.adapters.row_metric import CloudMetric
from orthoslice.adapters.single_cell import compare_with_control, group_clouds

if TYPE_CHECKING:
    from orthoslice.adapters.plan_sampler import PlanSampler
    from orthoslice.adapters.torch_metric import SlicedWassersteinMetric
    from orthoslice.adapters.vectors import CloudVectors

__all__ = [
    "CloudMetric",
    "CloudVectors",
    "Drift",
    "DriftDetector",
    "PlanSampler",
    "SlicedWassersteinMetric",
    "compare_with_control",
    "group_clouds",
]


# Those whose modules load other libraries.
_MADE_OF_OTHERS = {
    "CloudVectors": "vectors",
    "PlanSampler": "plan_sampler",
    "SlicedWassersteinMetric": "torch_metric",
}


def __getattr__(name: str) -> Any:
    if name in _MADE_OF_OTHERS:
        return getattr(importlib.import_module(f"orthoslice.adapters.{_MADE_OF_OTHERS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
