"""Kernels for tensors on a GPU, compiled by Triton."""
