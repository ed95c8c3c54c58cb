"""Ways into other libraries: thin, and none of those is loaded before it is needed.

- :class:`SlicedWassersteinMetric`: a metric of torchmetrics.
- :class:`CloudMetric`: a callable for scikit-learn's ``metric=``.
- :func:`group_clouds`: the groups of an AnnData object as clouds.
- :class:`DriftDetector`: tells batches that do not look like a reference.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from orthoslice.adapters.drift import Drift, DriftDetector
from orthoslice.adapters.row_metric import CloudMetric
from orthoslice.adapters.single_cell import group_clouds

if TYPE_CHECKING:
    from orthoslice.adapters.torch_metric import SlicedWassersteinMetric

__all__ = ["CloudMetric", "Drift", "DriftDetector", "SlicedWassersteinMetric", "group_clouds"]


def __getattr__(name: str) -> Any:
    # A metric of torchmetrics is made of one of its classes.
    if name == "SlicedWassersteinMetric":
        return importlib.import_module("orthoslice.adapters.torch_metric").SlicedWassersteinMetric
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
