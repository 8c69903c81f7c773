"""Kernels that compute chunks of a reduction, and those that combine them."""
