"""Couplings near the optimal one."""
