"""Peers: library calls that compute the same function as a Spec, found by algebraic matching.

This folder is not part of the compiler and may name operators, because library calls have names.  A match only proposes
a call; its result is compared with the reference (:mod:`nautilus.bench.verify`).
"""
