"""Pictures of results by matplotlib, for notebooks and papers (the extra ``plot``).

- :func:`directions`: how far apart two clouds are along each direction.
- :func:`quantiles`: two clouds along one direction, the lowest against the lowest.
- :func:`features`: which features differ.
- :func:`bounds`: where the Wasserstein distance must lie.
- :func:`null`: what chance alone gives, and what was observed.
- :func:`convergence`: how an estimate and its error bar settled.

Each draws on the `ax` that it is given, or on one of a new figure, and returns it.
"""

from orthoslice.applications.compare.plots import bounds, convergence, directions, features, null, quantiles

__all__ = ["bounds", "convergence", "directions", "features", "null", "quantiles"]
