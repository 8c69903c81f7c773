"""Passes of Scalar IR that change the matrices of products."""
