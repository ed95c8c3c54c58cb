"""Kernels for arrays in host memory, compiled by numba."""
