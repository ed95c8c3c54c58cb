"""Control variates, and the base class for your own: see :class:`Control`."""

from orthoslice.estimates.control import Control, Gaussian, KnownMean

__all__ = ["Control", "Gaussian", "KnownMean"]
