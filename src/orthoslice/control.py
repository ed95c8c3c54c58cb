"""Control variates, for those who write their own: see :class:`Control`."""

from orthoslice.estimates.control import Control, Gaussian, KnownMean

__all__ = ["Control", "Gaussian", "KnownMean"]
