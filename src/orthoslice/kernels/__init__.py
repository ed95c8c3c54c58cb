"""Compiled loops: the only place that imports numba."""
